"""Alerts of the category resource about RDMA ports: InfiniBand, RoCE and the like."""

from __future__ import annotations

from trainvitals.generate.expressions import ERRORS_WINDOW, chinese, rising, settled
from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert, indent

_PORT = "port {{ $labels.hca }}/{{ $labels.port }} on {{ $labels.instance }}"
_PORT_ZH = "{{ $labels.instance }} 的端口 {{ $labels.hca }}/{{ $labels.port }}"
#: Errors of the wire; discards are congestion, and what is constrained or relayed is a matter of settings.
_PORT_ERRORS = (
    "symbol_error|link_error_recovery|port_rcv_errors|local_link_integrity_errors|excessive_buffer_overrun_errors"
)
_PORT_RISING = rising("trainvitals_infiniband_errors_total", "instance", "hca", "port")
#: A RoCE port has its flaps counted by the kernel at its interface.
_ROCE = 'trainvitals_infiniband_port_info{link_layer="ethernet"}'

INFINIBAND: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsInfinibandPortDown",
        file="hardware",
        category="resource",
        severity="critical",
        gauge="health",
        # It went down of late, or was up within the day: an empty socket is no fault.  max_over_time() over a day would
        # read 60 million samples for 10,000 ports.
        expr="""
        max by (instance, hca, port) (trainvitals_infiniband_port_up) == 0
        and on (instance, hca, port)
        (
          increase(trainvitals_infiniband_flaps_total[1h]) > 0
          or
          trainvitals_infiniband_port_up offset 6h == 1
          or
          trainvitals_infiniband_port_up offset 1d == 1
        )
        """,
        wait=LIMITS.link_down_for,
        keep=LIMITS.signal_keep,
        summary="Port {{ $labels.hca }}/{{ $labels.port }} on {{ $labels.instance }} is down",
        summary_zh="{{ $labels.instance }} 的端口 {{ $labels.hca }}/{{ $labels.port }} 已断开",
        description="The port was up within the last day and is down now.",
        description_zh="该端口在过去一天内曾经连通，现在断开。",
        action=(
            "Look at cable, transceiver and switch port, and at `ibstat` on the node; leave the node out of new jobs "
            "until it is up again."
        ),
        action_zh="检查线缆、光模块和交换机端口，并在节点上运行 `ibstat`；恢复之前不要把新作业派到该节点。",
        impact="Collective operations over the port hang until NCCL gives up, or run at half the rate.",
        impact_zh="经过该端口的集合通信会挂起直到 NCCL 超时，或速率减半。",
        diagnosis="`trainvitals_infiniband_flaps_total` counts how often it went down.",
        diagnosis_zh="`trainvitals_infiniband_flaps_total` 是断开的次数。",
    ),
    Alert(
        name="TrainvitalsInfinibandPortFlaps",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"""
        max by (instance, hca, port) (increase(trainvitals_infiniband_flaps_total[1h])) >= {LIMITS.link_flaps}
        unless on (instance, hca, port)
        {_ROCE}
        """,
        wait=LIMITS.restart_for,
        keep=LIMITS.signal_keep,
        summary="Port {{ $labels.hca }}/{{ $labels.port }} on {{ $labels.instance }} goes down again and again",
        summary_zh="{{ $labels.instance }} 的端口 {{ $labels.hca }}/{{ $labels.port }} 反复断开",
        description='It went down {{ $value | printf "%.0f" }} times in the last hour.',
        description_zh='过去一小时内断开 {{ $value | printf "%.0f" }} 次。',
        action="Clean or replace cable and transceiver; look at the error counters of the switch port.",
        action_zh="清洁或更换线缆与光模块；查看交换机端口的错误计数。",
        impact="Each time collective operations stand still for seconds, or end with a timeout.",
        impact_zh="每次断开都会使集合通信停顿数秒，或以超时告终。",
        diagnosis="`trainvitals_infiniband_errors_total` says of which kind the errors are.",
        diagnosis_zh="`trainvitals_infiniband_errors_total` 按类型列出错误。",
    ),
    Alert(
        name="TrainvitalsInfinibandPortSlow",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="efficiency",
        expr="""
        max by (instance, hca, port) (
          trainvitals_infiniband_rate_bytes_per_second / (trainvitals_infiniband_expected_rate_bytes_per_second > 0)
        ) < 1
        """,
        wait=LIMITS.link_slow_for,
        keep=LIMITS.signal_keep,
        summary="Port {{ $labels.hca }}/{{ $labels.port }} on {{ $labels.instance }} is slower than it should be",
        summary_zh=f"{_PORT_ZH} 低于应有速率",
        description=f"The {_PORT} is trained to {{{{ $value | humanizePercentage }}}} of its rate.",
        description_zh=f"{_PORT_ZH} 只达到应有速率的 {{{{ $value | humanizePercentage }}}}。",
        action=(
            "Let the run go on if its pace is right. Take the link down and up, then clean or replace cable and "
            "transceiver, and look at the switch port. If the port is meant to be slower, say so in "
            "`network.expected_rate`."
        ),
        action_zh=(
            "若训练速度正常可继续。断开并重新连接该链路，然后清洁或更换线缆与光模块，并检查交换机端口。"
            "若该端口本来就应更慢，请在 `network.expected_rate` 中写明。"
        ),
        impact="Collective operations run at the pace of the slowest port.",
        impact_zh="集合通信的速度取决于最慢的端口。",
        diagnosis=(
            "The rate that is expected is that of the settings, else the highest since the exporter began or that of "
            "most ports of the same card."
        ),
        diagnosis_zh="应有速率取自设置；没有设置时，取导出器启动以来的最高值，或同型号网卡多数端口的速率。",
    ),
    Alert(
        name="TrainvitalsInfinibandErrors",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"""
        max by (instance, hca, port) (
          increase(trainvitals_infiniband_errors_total{{kind=~"{_PORT_ERRORS}"}}[{ERRORS_WINDOW}])
        ) > {LIMITS.infiniband_errors}
{indent(settled(LIMITS.boot_settles), 8)}
        """,
        wait=LIMITS.link_errors_for,
        keep=LIMITS.signal_keep,
        summary="Port {{ $labels.hca }}/{{ $labels.port }} on {{ $labels.instance }} has more and more errors",
        summary_zh=f"{_PORT_ZH} 的错误不断增加",
        description=f"In the last {LIMITS.link_errors_window:words} the {_PORT} had: {_PORT_RISING}.",
        description_zh=f"{_PORT_ZH} 在最近 {LIMITS.link_errors_window:zh}内出现：{chinese(_PORT_RISING)}。",
        action=(
            "Look at the error counters of the switch port at the other end, then clean or replace cable and "
            "transceiver; the run need not be stopped for it."
        ),
        action_zh="查看对端交换机端口的错误计数，然后清洁或更换线缆与光模块；不必为此停止训练。",
        impact="Packets are sent again, and collective operations with them; a link that gets worse goes down.",
        impact_zh="数据包重传，集合通信随之变慢；若继续恶化，链路会断开。",
        diagnosis=(
            "`trainvitals_infiniband_errors_total` by kind. A counter that is named in "
            "`trainvitals_infiniband_saturated` stands at its end and counts no further until it is cleared."
        ),
        diagnosis_zh=(
            "按类型查看 `trainvitals_infiniband_errors_total`。`trainvitals_infiniband_saturated` "
            "中列出的计数器已到上限，清零之前不再增加。"
        ),
    ),
)
