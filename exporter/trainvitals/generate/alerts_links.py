"""Alerts of the category resource about the links of devices: NVLink, PCIe."""

from __future__ import annotations

from trainvitals.generate.expressions import DEVICE, DEVICE_USERS_ZH, DEVICE_ZH, DEVICES, chinese
from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import DEVICE_USERS, listed

_LINKS = listed(
    "trainvitals_device_link_up{instance=%q,uuid=%q} == 0",
    "link {{ .Labels.link }}",
    "instance",
    "uuid",
    by="link",
    none="not known",
)
#: What a sound link never has to do again; a wrong checksum is repaired by a replay and is usual in small numbers.
_REPEATS = "replay|recovery|recovery_failed|link_integrity"
_WINDOW = f"{LIMITS.nvlink_errors_window:duration}"
_RISING = listed(
    f"increase(trainvitals_device_links_errors_total{{instance=%q,uuid=%q}}[{_WINDOW}]) > 0",
    '{{ .Labels.kind }} {{ .Value | printf "%.0f" }}',
    "instance",
    "uuid",
    by="kind",
    none="none of late",
)


def _pcie(what: str) -> str:
    """Return a template that writes a number of the PCIe link of the alert's device."""
    return listed(
        f"trainvitals_device_pcie_{what}{{instance=%q,uuid=%q}}",
        "{{ .Value }}",
        "instance",
        "uuid",
        by="uuid",
        none="?",
    )


LINKS: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsNvlinkDown",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        # An exporter that starts again knows only the links that work since: so compare with a day ago too.
        expr=f"""
        {DEVICES} (trainvitals_device_links_expected - trainvitals_device_links_up) > 0
        or
        {DEVICES} (trainvitals_device_links_expected offset 1d - trainvitals_device_links_up) > 0
        """,
        wait=LIMITS.link_down_for,
        keep=LIMITS.signal_keep,
        summary="A device on {{ $labels.instance }} has lost links to other devices",
        summary_zh="{{ $labels.instance }} 上有设备失去了与其他设备的互联链路",
        description=(
            f'Links of {DEVICE} that worked before and do not now: {{{{ $value | printf "%.0f" }}}} ({_LINKS}). '
            f"Used by: {DEVICE_USERS}."
        ),
        description_zh=(
            f'{DEVICE_ZH}有 {{{{ $value | printf "%.0f" }}}} 条链路曾经可用、现在不可用：{chinese(_LINKS)}。'
            f"使用者：{DEVICE_USERS_ZH}。"
        ),
        action=(
            "Resume the run on another node if it stands still. Read `dmesg` for XID 74 or 144 to 150, and "
            "`nvidia-smi nvlink -s`; reset the devices of the node together. If it comes again, reseat or replace "
            "device, bridge or cable."
        ),
        action_zh=(
            "若训练已停住，换到其他节点恢复。在 `dmesg` 中查 XID 74 或 144 到 150，运行 `nvidia-smi nvlink -s`；"
            "把该节点的设备一起重置。若再次发生，重新插拔或更换设备、桥接器或线缆。"
        ),
        impact="Collective operations over the link hang or fail; a run that starts anew takes a slower way.",
        impact_zh="经过该链路的集合通信会挂起或失败；重新启动的训练会改走更慢的通路。",
        diagnosis=(
            "`trainvitals_device_links_expected` counts the links that worked since the exporter started, "
            "`trainvitals_device_links_up` those that do now. A bridge that was taken out on purpose is an alert for a "
            "day."
        ),
        diagnosis_zh=(
            "`trainvitals_device_links_expected` 是导出器启动以来可用过的链路数，`trainvitals_device_links_up` "
            "是现在可用的链路数。若是有意拆除了桥接器，告警会持续一天。"
        ),
    ),
    Alert(
        name="TrainvitalsNvlinkErrors",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"""
        {DEVICES} (
          increase(trainvitals_device_links_errors_total{{kind=~"{_REPEATS}"}}[{_WINDOW}])
        ) > 0
        or
        {DEVICES} (rate(trainvitals_device_links_errors_total{{kind="crc"}}[{_WINDOW}])) > {LIMITS.nvlink_crc}
        """,
        wait=LIMITS.nvlink_errors_for,
        keep=LIMITS.signal_keep,
        summary="Links of a device on {{ $labels.instance }} have errors again and again",
        summary_zh="{{ $labels.instance }} 上有设备的互联链路反复出错",
        description=(
            f"The links of {DEVICE} have had to repeat or recover for {LIMITS.nvlink_errors_for:words} on end; in the "
            f"last {LIMITS.nvlink_errors_window:words}: {_RISING}. Used by: {DEVICE_USERS}."
        ),
        description_zh=(
            f"{DEVICE_ZH}的链路已连续 {LIMITS.nvlink_errors_for:zh}反复重传或恢复；最近 "
            f"{LIMITS.nvlink_errors_window:zh}：{chinese(_RISING)}。使用者：{DEVICE_USERS_ZH}。"
        ),
        action=(
            "Let the run go on, and plan to look at the node: reset its devices between two jobs; if the errors come "
            "again on the same link, reseat or replace device, bridge or cable."
        ),
        action_zh=(
            "训练可以继续，安排检查该节点：在两个作业之间重置设备；若同一链路再次出错，重新插拔或更换设备、"
            "桥接器或线缆。"
        ),
        impact="Links that go on like this tend to break within days; until then they cost some bandwidth.",
        impact_zh="持续这样出错的链路往往在几天内断开；在此之前会损失一些带宽。",
        diagnosis=(
            "`trainvitals_device_link_errors_total` says which link. Symbol errors and effective errors are left to "
            "the correction of the link and are no part of this alert."
        ),
        diagnosis_zh=(
            "`trainvitals_device_link_errors_total` 给出是哪条链路。symbol 与 effective 错误由链路自身纠正，"
            "不计入此告警。"
        ),
    ),
    Alert(
        name="TrainvitalsPcieLinkSlow",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="efficiency",
        # Under load only: idle devices lower the generation to save power.
        expr=f"""
        {DEVICES} (
          max_over_time(trainvitals_device_pcie_generation[5m]) < trainvitals_device_pcie_max_generation
          or
          max_over_time(trainvitals_device_pcie_width[5m]) < trainvitals_device_pcie_max_width
        )
        and on (instance, device, uuid)
        {DEVICES} (avg_over_time(trainvitals_device_utilization_ratio[5m])) > {LIMITS.busy_ratio}
        """,
        wait=LIMITS.pcie_slow_for,
        keep=LIMITS.signal_keep,
        summary="The PCIe link of a busy device on {{ $labels.instance }} is slower than it can be",
        summary_zh="{{ $labels.instance }} 上忙碌设备的 PCIe 链路低于应有速率",
        description=(
            f"The PCIe link of {DEVICE} runs at generation {_pcie('generation')} of {_pcie('max_generation')} and has "
            f"{_pcie('width')} of {_pcie('max_width')} lanes. Used by: {DEVICE_USERS}."
        ),
        description_zh=(
            f"{DEVICE_ZH}的 PCIe 链路为第 {_pcie('generation')} 代（最高 {_pcie('max_generation')}），"
            f"通道 {_pcie('width')} 条（最多 {_pcie('max_width')}）。使用者：{DEVICE_USERS_ZH}。"
        ),
        action=(
            "Let the run go on if its pace is right. At the next pause reboot the node, then reseat device or riser, "
            "and compare the slot's setting in the BIOS with that of a neighbor; replace what stays slow."
        ),
        action_zh=(
            "若训练速度正常可继续。下次停顿时重启节点，然后重新插拔设备或转接卡，并与相邻节点对比 BIOS 中的插槽设置；"
            "仍然慢的部件更换。"
        ),
        impact="Copies between host and device, and over the network, take longer; all ranks wait for this one.",
        impact_zh="主机与设备之间以及经网络的拷贝变慢；所有 rank 都要等它。",
        diagnosis="`lspci -vv` on the node shows for each bridge on the way what it can do (LnkCap) and does (LnkSta).",
        diagnosis_zh="在节点上运行 `lspci -vv`，可看到通路上每个桥的能力（LnkCap）和现状（LnkSta）。",
    ),
    Alert(
        name="TrainvitalsPcieReplays",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"{DEVICES} (60 * rate(trainvitals_device_pcie_replays_total[5m])) > {LIMITS.pcie_replays}",
        wait=LIMITS.pcie_replays_for,
        keep=LIMITS.signal_keep,
        summary="The PCIe link of a device on {{ $labels.instance }} sends packets again and again",
        summary_zh="{{ $labels.instance }} 上有设备的 PCIe 链路不断重传",
        description=(
            f'{{{{ $value | printf "%.0f" }}}} packets a minute are sent again over the PCIe link of {DEVICE}; up to '
            f"{LIMITS.pcie_replays} are no fault. Used by: {DEVICE_USERS}."
        ),
        description_zh=(
            f'{DEVICE_ZH}的 PCIe 链路每分钟重传 {{{{ $value | printf "%.0f" }}}} 个数据包；不超过 '
            f"{LIMITS.pcie_replays} "
            f"个不算故障。使用者：{DEVICE_USERS_ZH}。"
        ),
        action="Plan to reseat device or riser at the next pause; replace them if that does not help.",
        action_zh="安排在下次停顿时重新插拔设备或转接卡；若无改善则更换。",
        impact="Copies are slower; a link that gets worse loses lanes, or the device (XID 79).",
        impact_zh="拷贝变慢；若继续恶化，链路会丢失通道，甚至设备掉线（XID 79）。",
        diagnosis="`trainvitals_device_pcie_errors_total` says of which kind the errors are.",
        diagnosis_zh="`trainvitals_device_pcie_errors_total` 按类型列出错误。",
    ),
)
