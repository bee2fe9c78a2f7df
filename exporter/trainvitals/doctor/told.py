"""Vendors whose tool tells of all cards at once: what to do about each, from the tool's own table of questions."""

from __future__ import annotations

from trainvitals.devices.told import (
    biren,
    cambricon,
    enflame,
    gaudi,
    iluvatar,
    intel,
    kunlunxin,
    metax,
    moorethreads,
    thead,
    tpu,
)
from trainvitals.devices.told.base import Tool
from trainvitals.doctor.devices import Advice, Signal

_SIGNALS = {
    "utilization": (("utilization_ratio",),),
    "memory": (("memory_used_bytes",), ("memory_total_bytes",)),
    "temperature": (("temperature_celsius", "gpu"),),
    "power": (("power_watts",),),
}
#: Where the names of a maker's devices are not published.
_ALL = "docker run --privileged ..."
#: What hands the devices of a maker to a container; its runtime, where it has one.
_CONTAINERS = {
    cambricon.TOOL: "docker run --device /dev/cambricon_ctl --device /dev/cambricon_dev0 ...",
    moorethreads.TOOL: "docker run --runtime mthreads -e MTHREADS_VISIBLE_DEVICES=all ...",
    metax.TOOL: _ALL,
    iluvatar.TOOL: "docker run --runtime iluvatar -e ILUVATAR_COREX_VISIBLE_DEVICES=all ...",
    kunlunxin.TOOL: "docker run --device /dev/xpuctrl --device /dev/xpu0 ...",
    enflame.TOOL: _ALL,
    biren.TOOL: _ALL,
    thead.TOOL: _ALL,
    gaudi.TOOL: "docker run --runtime habana -e HABANA_VISIBLE_DEVICES=all ...",
    intel.TOOL: "docker run --device /dev/dri --cap-add PERFMON ...",
    tpu.TOOL: "docker run --privileged --net host ...",
}
#: What the tools of some makers do not tell.
_SILENT = {biren.TOOL: {"utilization", "power"}, tpu.TOOL: {"temperature", "power"}}


def _advice(tool: Tool) -> Advice:
    look = " ".join(tool.wordings[0].commands[-1])
    name = tool.names[0]
    silent = _SILENT.get(tool, set())
    return Advice(
        title=tool.title,
        signals=tuple(Signal(signal, families) for signal, families in _SIGNALS.items() if signal not in silent),
        driver={
            "timeout": f"time {look}",
            "failed": look,
            "not_understood": look,
            "other_program": f"command -v {name}",
        },
        device={"implausible": look},
        look=look,
        installed=f"command -v {name}",
        in_container=_CONTAINERS[tool],
    )


ADVICE = {tool.vendor: _advice(tool) for tool in _CONTAINERS}
