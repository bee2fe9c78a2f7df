"""Alerts of the category resource about the memory of devices, while it wears out, and about their heat."""

from __future__ import annotations

from trainvitals.generate.expressions import DEVICE, DEVICE_USERS_ZH, DEVICE_ZH, DEVICES, chinese
from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import DEVICE_USERS, listed

_WINDOW = f"{LIMITS.fault_window:duration}"
_TEMPERATURES = listed(
    "trainvitals_device_temperature_celsius{instance=%q,uuid=%q}",
    '{{ .Labels.sensor }} {{ .Value | printf "%.0f" }} °C',
    "instance",
    "uuid",
    by="sensor",
)


def _at_limit(value: str, sign: str, limit: str) -> str:
    """Return a value of each device that has reached one of the limits that the device itself tells."""
    return f"{value}\n  {sign} on (job, instance, device, uuid) group_left ()\n{limit}"


_HOT = "\nor on (instance, device, uuid)\n".join(
    (
        _at_limit(
            'trainvitals_device_temperature_celsius{sensor="gpu"}',
            ">=",
            'trainvitals_device_temperature_limit_celsius{limit="slowdown"}',
        ),
        _at_limit(
            'trainvitals_device_temperature_celsius{sensor="memory"}',
            ">=",
            'trainvitals_device_temperature_limit_celsius{limit="memory_max"}',
        ),
        # Below 0: some devices write 0 for a margin that they do not know.
        _at_limit(
            "(trainvitals_device_temperature_margin_celsius < 0)",
            "<=",
            'trainvitals_device_temperature_margin_limit_celsius{limit="slowdown"}',
        ),
    )
)

WEAR: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsDeviceUncorrectedErrors",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=(f'{DEVICES} (increase(trainvitals_device_ecc_errors_total{{severity="uncorrected"}}[{_WINDOW}])) > 0'),
        keep=LIMITS.signal_keep,
        summary="A device on {{ $labels.instance }} has memory errors that could not be corrected",
        summary_zh="{{ $labels.instance }} 上有设备出现无法纠正的显存错误",
        description=(
            f'Errors of {DEVICE} in the last {LIMITS.fault_window:words}: {{{{ $value | printf "%.0f" }}}}. '
            f"Used by: {DEVICE_USERS}."
        ),
        description_zh=(
            f'{DEVICE_ZH}在最近 {LIMITS.fault_window:zh}内出现 {{{{ $value | printf "%.0f" }}}} 次错误。'
            f"使用者：{DEVICE_USERS_ZH}。"
        ),
        action=(
            "Resume the run if it ended; what it computed until then is right, for the error ends the process. Reset "
            "the device between two jobs, so that the bad row is replaced. If errors come again after that, replace it."
        ),
        action_zh=(
            "若训练已中断，请恢复；此前的计算结果可信，因为出错时进程会被终止。在两个作业之间重置该设备，使坏行被替换。"
            "若之后再次出错，更换设备。"
        ),
        impact="The process that used this memory ends, and with it the run.",
        impact_zh="使用该显存的进程会终止，整个训练随之中断。",
        diagnosis="XIDs 48, 63, 64, 94 and 95 tell of the same errors; 94 hit one program only.",
        diagnosis_zh="XID 48、63、64、94 和 95 说的是同类错误；94 只影响一个程序。",
    ),
    Alert(
        name="TrainvitalsDeviceCorrectedErrors",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=(
            f'{DEVICES} (rate(trainvitals_device_ecc_errors_total{{severity="corrected"}}[5m])) '
            f"> {LIMITS.ecc_corrected}"
        ),
        wait=LIMITS.ecc_corrected_for,
        keep=LIMITS.signal_keep,
        summary="A device on {{ $labels.instance }} corrects very many memory errors",
        summary_zh="{{ $labels.instance }} 上有设备在不断纠正大量显存错误",
        description=(
            f'Of {DEVICE} {{{{ $value | printf "%.0f" }}}} errors a second are corrected. Used by: {DEVICE_USERS}.'
        ),
        description_zh=f'{DEVICE_ZH}每秒纠正 {{{{ $value | printf "%.0f" }}}} 个错误。使用者：{DEVICE_USERS_ZH}。',
        action="Plan to take the device out at the next checkpoint, reset it, and replace it if the errors come again.",
        action_zh="安排在下一个检查点之后停用并重置该设备；若再次出现则更换。",
        impact="The device is slower, its driver may hang, and an error that cannot be corrected is likely.",
        impact_zh="设备变慢，驱动可能卡死，并且很可能出现无法纠正的错误。",
        diagnosis=(
            "`trainvitals_device_ecc_lifetime_errors_total` has the errors of the board's whole life; XID 92 tells of "
            "the same."
        ),
        diagnosis_zh="`trainvitals_device_ecc_lifetime_errors_total` 是该卡一生的错误数；XID 92 说的是同一件事。",
    ),
    Alert(
        name="TrainvitalsDeviceSparesUsed",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"""
        {DEVICES} (trainvitals_device_row_remap_banks{{spares="none"}}) > 0
        or
        {DEVICES} (sum by (job, instance, device, uuid) (trainvitals_device_retired_pages)) >= {LIMITS.retired_pages}
        """,
        wait=LIMITS.device_down_for,
        keep=LIMITS.signal_keep,
        summary="A device on {{ $labels.instance }} has no spare memory left for repairs",
        summary_zh="{{ $labels.instance }} 上有设备已没有可用于修复的备用显存",
        description=(
            f"Of {DEVICE}, banks without a spare row, or pages that were taken out of use: "
            '{{ $value | printf "%.0f" }}.'
        ),
        description_zh=f'{DEVICE_ZH}：没有备用行的 bank 数或已停用的页数为 {{{{ $value | printf "%.0f" }}}}。',
        action="Plan to have the device replaced; no run has to be stopped for it.",
        action_zh="安排更换该设备；不必为此停止训练。",
        impact="None yet. The next error there cannot be repaired.",
        impact_zh="目前没有影响。下一次在同一位置出错将无法修复。",
        diagnosis="`trainvitals_device_row_remap_banks` and `trainvitals_device_remapped_rows`; before Ampere, pages.",
        diagnosis_zh=(
            "查看 `trainvitals_device_row_remap_banks` 与 `trainvitals_device_remapped_rows`；Ampere "
            "之前的设备看停用的页。"
        ),
    ),
    Alert(
        name="TrainvitalsDeviceHot",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        # No degrees of ours: what is hot differs from model to model.  One that is slowed down has an alert already.
        expr=f"""
        {DEVICES} (
{_HOT}
        )
        unless on (instance, device, uuid)
        trainvitals_device_clock_limited{{reason=~"hw_thermal|hw_slowdown"}} == 1
        """,
        wait=LIMITS.device_hot_for,
        keep=LIMITS.signal_keep,
        summary="A device on {{ $labels.instance }} is as hot as it may be",
        summary_zh="{{ $labels.instance }} 上有设备已达到温度上限",
        description=f"A limit of its own is reached by {DEVICE}: {_TEMPERATURES}. Used by: {DEVICE_USERS}.",
        description_zh=f"{DEVICE_ZH}已达到自身的温度上限：{chinese(_TEMPERATURES)}。使用者：{DEVICE_USERS_ZH}。",
        action="Look at fans, air and coolant of the node, and at its neighbors; the run can go on.",
        action_zh="检查该节点及相邻节点的风扇、风道和冷却液；训练可以继续。",
        impact="The device slows down, later it switches itself off; hot memory has more errors.",
        impact_zh="设备会降频，继续升温会自行关机；显存过热会增加错误。",
        diagnosis=(
            "`trainvitals_device_temperature_limit_celsius`, or on newer devices "
            "`trainvitals_device_temperature_margin_limit_celsius`, are the limits that the device tells."
        ),
        diagnosis_zh=(
            "设备自己给出的上限是 `trainvitals_device_temperature_limit_celsius`，较新的设备是 "
            "`trainvitals_device_temperature_margin_limit_celsius`。"
        ),
    ),
)
