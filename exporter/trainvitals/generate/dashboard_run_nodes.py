"""Dashboard "Run", what it runs on: devices and hosts."""

from __future__ import annotations

from trainvitals.generate.dashboard_devices import device_panels, host_panels
from trainvitals.generate.panels import RUN, Row

_NODE_OF_RUN = f"trainvitals_run_info{{{RUN}}}"


def _on_nodes(expr: str) -> str:
    """Keep series of the nodes that the run has ranks on."""
    return f"({expr}) and on (instance) {_NODE_OF_RUN}"


def _of_devices(expr: str) -> str:
    """Keep devices on the nodes of the run, and those that its ranks use, read by whichever exporter."""
    return f'{_on_nodes(expr)} or ({expr}) and on (uuid) trainvitals_rank_info{{{RUN},uuid!=""}}'


DEVICES = Row(
    title="Devices of the run's nodes", title_zh="任务所在节点的设备", panels=device_panels(_of_devices), closed=True
)
HOST = Row(title="The run's nodes", title_zh="任务所在节点", panels=host_panels(_on_nodes), closed=True)
