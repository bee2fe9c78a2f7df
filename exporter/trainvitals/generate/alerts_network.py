"""Alerts of the category resource about Ethernet and other network interfaces.

A port for RoCE or InfiniBand has an interface beside it: each trouble is told of one of the two.
"""

from __future__ import annotations

from trainvitals.generate.expressions import ERRORS_WINDOW, chinese, rising, settled
from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert, indent

_INTERFACE = "interface {{ $labels.interface }} on {{ $labels.instance }}"
_INTERFACE_ZH = "{{ $labels.instance }} 的网络接口 {{ $labels.interface }}"
#: Errors of the wire; packets are dropped, or too long, for other reasons as well.
_INTERFACE_ERRORS = "rx_crc_errors|rx_frame_errors|tx_carrier_errors"
_OF_A_PORT = 'unless on (instance, interface)\ntrainvitals_infiniband_port_info{interface!=""}'


_INTERFACE_RISING = rising("trainvitals_network_errors_total", "instance", "interface")

NETWORK: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsNetworkInterfaceDown",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        # It worked since the exporter began, or a day ago: no fault is an empty socket, or one that is switched off.
        expr=f"""
        max by (instance, interface) (trainvitals_network_up) == 0
        and on (instance, interface)
        trainvitals_network_enabled == 1
        and on (instance, interface)
        (trainvitals_network_expected_speed_bytes_per_second > 0 or trainvitals_network_up offset 1d == 1)
{indent(_OF_A_PORT, 8)}
        """,
        wait=LIMITS.interface_down_for,
        keep=LIMITS.signal_keep,
        summary="Interface {{ $labels.interface }} on {{ $labels.instance }} is down",
        summary_zh=f"{_INTERFACE_ZH} 已断开",
        description=f"The {_INTERFACE} worked before, is switched on, and has no link.",
        description_zh=f"{_INTERFACE_ZH} 曾经连通且已启用，但现在没有链路。",
        action=(
            "Look at cable, transceiver and switch port. If nothing is to be plugged in there any more, switch the "
            "interface off (`ip link set NAME down`) or name it in `network.exclude`."
        ),
        action_zh=(
            "检查线缆、光模块和交换机端口。若该接口不再使用，请停用（`ip link set NAME down`），"
            "或写入 `network.exclude`。"
        ),
        impact="Storage, checkpoints or the start of jobs are slower or fail, if they used this way.",
        impact_zh="若存储、检查点或作业启动走这条网络，会变慢或失败。",
        diagnosis="`trainvitals_network_state` and `trainvitals_network_carrier_downs_total`; `ethtool NAME`.",
        diagnosis_zh=(
            "查看 `trainvitals_network_state` 与 `trainvitals_network_carrier_downs_total`；运行 `ethtool NAME`。"
        ),
    ),
    Alert(
        name="TrainvitalsNetworkFlaps",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"""
        max by (instance, interface) (increase(trainvitals_network_carrier_downs_total[1h])) >= {LIMITS.link_flaps}
{indent(settled(3600), 8)}
        unless on (instance, interface)
        trainvitals_infiniband_port_info{{link_layer="infiniband"}}
        """,
        wait=LIMITS.restart_for,
        keep=LIMITS.signal_keep,
        summary="Interface {{ $labels.interface }} on {{ $labels.instance }} goes down again and again",
        summary_zh=f"{_INTERFACE_ZH} 反复断开",
        description=f'The {_INTERFACE} lost its link {{{{ $value | printf "%.0f" }}}} times in the last hour.',
        description_zh=f'{_INTERFACE_ZH} 在过去一小时内断开 {{{{ $value | printf "%.0f" }}}} 次。',
        action="Clean or replace cable and transceiver; look at the error counters of the switch port.",
        action_zh="清洁或更换线缆与光模块；查看交换机端口的错误计数。",
        impact="Each time connections stand still for seconds, or end.",
        impact_zh="每次断开都会使连接停顿数秒，或中断。",
        diagnosis="`trainvitals_network_carrier_downs_total` is the kernel's own count, RoCE ports included.",
        diagnosis_zh="`trainvitals_network_carrier_downs_total` 是内核自己的计数，包括 RoCE 端口。",
    ),
    Alert(
        name="TrainvitalsNetworkInterfaceSlow",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="efficiency",
        # A bond that lost a member is slower too, and the member has an alert.
        expr=f"""
        max by (instance, interface) (
          trainvitals_network_speed_bytes_per_second / (trainvitals_network_expected_speed_bytes_per_second > 0)
        ) < 1
        unless on (instance, interface)
        trainvitals_network_interface_info{{kind="bond"}}
{indent(_OF_A_PORT, 8)}
        """,
        wait=LIMITS.link_slow_for,
        keep=LIMITS.signal_keep,
        summary="Interface {{ $labels.interface }} on {{ $labels.instance }} is slower than it should be",
        summary_zh=f"{_INTERFACE_ZH} 低于应有速率",
        description=f"The {_INTERFACE} runs at {{{{ $value | humanizePercentage }}}} of its speed.",
        description_zh=f"{_INTERFACE_ZH} 只达到应有速率的 {{{{ $value | humanizePercentage }}}}。",
        action=(
            "Look at cable, transceiver and the settings of the switch port. If the interface is meant to be slower, "
            "say so in `network.expected_rate`."
        ),
        action_zh="检查线缆、光模块和交换机端口配置。若该接口本来就应更慢，请在 `network.expected_rate` 中写明。",
        impact="Data and checkpoints that come over it take longer.",
        impact_zh="经过它的数据读取和检查点变慢。",
        diagnosis="The speed that is expected is that of the settings, else the highest since the exporter began.",
        diagnosis_zh="应有速率取自设置；没有设置时，取导出器启动以来的最高值。",
    ),
    Alert(
        name="TrainvitalsNetworkErrors",
        file="hardware",
        category="resource",
        severity="warning",
        gauge="health",
        expr=f"""
        max by (instance, interface) (
          increase(trainvitals_network_errors_total{{kind=~"{_INTERFACE_ERRORS}"}}[{ERRORS_WINDOW}])
        ) > {LIMITS.network_errors}
{indent(settled(LIMITS.boot_settles), 8)}
        """,
        wait=LIMITS.link_errors_for,
        keep=LIMITS.signal_keep,
        summary="Interface {{ $labels.interface }} on {{ $labels.instance }} has more and more errors",
        summary_zh=f"{_INTERFACE_ZH} 的错误不断增加",
        description=f"In the last {LIMITS.link_errors_window:words} the {_INTERFACE} had: {_INTERFACE_RISING}.",
        description_zh=f"{_INTERFACE_ZH} 在最近 {LIMITS.link_errors_window:zh}内出现：{chinese(_INTERFACE_RISING)}。",
        action="Clean or replace cable and transceiver; look at the counters of the switch port at the other end.",
        action_zh="清洁或更换线缆与光模块；查看对端交换机端口的计数。",
        impact="Packets are lost and sent again: reading data and saving checkpoints is slower.",
        impact_zh="数据包丢失并重传：读取数据和保存检查点变慢。",
        diagnosis="Only errors of the wire count here; `trainvitals_network_errors_total` has all kinds.",
        diagnosis_zh="此处只统计线路错误；`trainvitals_network_errors_total` 包含所有类型。",
    ),
)
