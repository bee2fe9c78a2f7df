"""What each exporter shows of a fault: both run on one driver that breaks on command, and both are asked.

A fault is a row: the rules of the stub (stub.h), what ours must show and must not show, and how the other one is
described.  Each gets the same time.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from exporters import DEVICES, NVITOP, OURS, Exporter, Stub, running
from prometheus_client.samples import Sample

Samples = Sequence[Sample]

#: Seconds that both get at least after a fault: several rounds of either.
_LEAST = 8.0
_POLL = 0.5
_PREFIX = "trainvitals_device_"


@dataclass(frozen=True)
class Verdict:
    """What both showed of a fault, and whether what ours showed was right."""

    fault: str
    ours: str
    peer: str
    is_right: bool


class Fault(NamedTuple):
    """One row.

    ``shown`` says in words what ours shows once it shows it, and None before; ``wrong`` names wrong values of ours;
    ``peer`` says in words what the other one shows.  ``seconds`` is how long ours may take.
    """

    title: str
    rules: tuple[str, ...]
    shown: Callable[[Samples], str | None]
    wrong: Callable[[Samples], str]
    peer: Callable[[Samples], str]
    seconds: float = 30.0


def examine(library: Path, folder: Path) -> list[Verdict]:
    """Go through all faults."""
    stub = Stub(library, folder / "control-faults")
    verdicts = []
    with running(OURS, stub) as ours, running(NVITOP, stub) as peer:
        time.sleep(_LEAST)
        for fault in FAULTS:
            verdicts.append(_one(fault, stub, ours, peer))
            stub.follow()
            _recover(ours)
    # What hangs does not come back in the one that waits for it.
    stub = Stub(library, folder / "control-hung")
    with running(OURS, stub) as ours, running(NVITOP, stub) as peer:
        time.sleep(_LEAST)
        verdicts.append(_one(HUNG, stub, ours, peer))
    return verdicts


def _one(fault: Fault, stub: Stub, ours: Exporter, peer: Exporter) -> Verdict:
    stub.follow(*fault.rules)
    begun = time.monotonic()
    told = None
    wrong = ""
    while (passed := time.monotonic() - begun) < fault.seconds and (told is None or passed < _LEAST):
        time.sleep(_POLL)
        samples = ours.samples()
        if told is None and (words := fault.shown(samples)) is not None:
            told = f"{words} (after {time.monotonic() - begun:.0f} s)"
    samples = ours.samples()
    wrong = fault.wrong(samples)
    text = told or "not shown"
    if wrong:
        text += f"; WRONG: {wrong}"
    return Verdict(fault.title, text, fault.peer(peer.samples()), told is not None and not wrong)


def _recover(ours: Exporter) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        ups = [sample.value for sample in ours.samples() if sample.name == _PREFIX + "up"]
        if ups == [1.0] * DEVICES:
            return
        time.sleep(_POLL)


def value(samples: Samples, name: str, **labels: str) -> float | None:
    """Return the value of the series with these labels; None when there is none."""
    for sample in samples:
        if sample.name == name and labels.items() <= sample.labels.items():
            return sample.value
    return None


def ours(samples: Samples, family: str, **labels: str) -> float | None:
    """Return the value of one of our series of devices."""
    return value(samples, _PREFIX + family, **labels)


def down(index: str, *reasons: str) -> Callable[[Samples], str | None]:
    """Return what tells that a device is shown as down for one of the reasons."""

    def shown(samples: Samples) -> str | None:
        if ours(samples, "up", device=index) != 0.0:
            return None
        found = [reason for reason in reasons if ours(samples, "down_info", device=index, reason=reason)]
        return f"device_up 0, reason {found[0]}, no values" if found else None

    return shown


def no_values(index: str) -> Callable[[Samples], str]:
    """Return what names the values of a device that is down, and of others that have none."""

    def wrong(samples: Samples) -> str:
        about = ("up", "down_info", "down_since_timestamp_seconds", "info")
        names = {sample.name for sample in samples if sample.labels.get("device") == index}
        bad = sorted(names - {_PREFIX + name for name in about} - {"trainvitals_device_xid_errors_total"})
        bad = [name for name in bad if "fault" not in name and "xid" not in name]
        others = [str(i) for i in range(DEVICES) if str(i) != index]
        bad += [f"nothing of device {other}" for other in others if ours(samples, "utilization_ratio", device=other) is None]
        return ", ".join(bad[:3])

    return wrong


def nothing_wrong(_: Samples) -> str:
    """Return that no value can be wrong."""
    return ""


def peer_device(index: str) -> Callable[[Samples], str]:
    """Return what describes the other one's series of a device."""

    def describe(samples: Samples) -> str:
        values = [sample.value for sample in samples if sample.labels.get("index") == index]
        nans = sum(math.isnan(number) for number in values)
        return f"{nans} of {len(values)} series are NaN, no series says that it is gone"

    return describe


def peer_value(name: str, index: str, unit: str = "") -> Callable[[Samples], str]:
    """Return what tells one value of the other one."""

    def describe(samples: Samples) -> str:
        number = value(samples, name, index=index)
        return f"no {name}" if number is None else f"{name} is {number:g}{unit}"

    return describe


def peer_has_none(*words: str) -> Callable[[Samples], str]:
    """Return what tells that the other one has no series of a subject."""

    def describe(samples: Samples) -> str:
        names = sorted({sample.name for sample in samples if any(word in sample.name.lower() for word in words)})
        return ", ".join(names) if names else "no such series"

    return describe


def becomes(family: str, number: float, words: str, **labels: str) -> Callable[[Samples], str | None]:
    """Return what tells that one of our series has a value."""

    def shown(samples: Samples) -> str | None:
        return words if ours(samples, family, **labels) == number else None

    return shown


def _sentinel_refused(samples: Samples) -> str | None:
    refused = value(samples, "trainvitals_values_rejected_total", family=_PREFIX + "utilization_ratio")
    failed = value(samples, "trainvitals_device_reads_failed_total", reason="impossible")
    if ours(samples, "utilization_ratio", device="2") is None and (refused or failed):
        return "no utilization of that device, the refusal is counted"
    return None


def _sentinel_shown(samples: Samples) -> str:
    number = ours(samples, "utilization_ratio", device="2")
    return "" if number is None else f"utilization_ratio is {number:g}"


def _directions(samples: Samples) -> str | None:
    sent, received = (ours(samples, f"pcie_{way}_bytes_total", device="1") for way in ("transmit", "receive"))
    return None if sent is None or received is None else f"sent {sent:.3g}, received {received:.3g} bytes: right"


def _peer_directions(samples: Samples) -> str:
    sent, received = (value(samples, f"gpu_pcie_{way}_throughput_MiBps", index="1") for way in ("tx", "rx"))
    return f"sent {sent}, received {received} MiB/s"


def _temperature_gone(samples: Samples) -> str | None:
    return None if ours(samples, "temperature_celsius", device="6", sensor="gpu") is not None else "absent"


def _nans(samples: Samples) -> str:
    bad = {sample.name for sample in samples if math.isnan(sample.value) and sample.name.startswith(_PREFIX)}
    return ", ".join(sorted(bad))


def _stale(samples: Samples) -> str:
    """Device 0 was given another utilization when device 5 hung."""
    number = value(samples, "gpu_utilization_Percentage", index="0")
    hung = value(samples, "gpu_utilization_Percentage", index="5")
    return f"answers 200 with values from before: device 0 {number:g} % (it is 11), device 5 {hung:g} %"


def _others_fresh(samples: Samples) -> str:
    number = ours(samples, "utilization_ratio", device="0")
    return no_values("5")(samples) or ("" if number == 0.11 else f"utilization_ratio of device 0 is {number}")


def _driver_gone(samples: Samples) -> str | None:
    up = value(samples, "trainvitals_device_source_up", vendor="nvidia")
    return "device_source_up 0, every device down" if up == 0.0 and ours(samples, "up", device="0") == 0.0 else None


def _peer_average(samples: Samples) -> str:
    values = [sample.value for sample in samples if sample.name.startswith("gpu_")]
    nans = sum(math.isnan(number) for number in values)
    return f"{nans} of {len(values)} series are NaN, and nothing says why"


FAULTS: tuple[Fault, ...] = (
    Fault("a GPU falls off the bus", ("return 3 * 15",), down("3", "lost"), no_values("3"), peer_device("3")),
    Fault("a GPU wants a reset", ("return 4 * 16",), down("4", "reset_required"), no_values("4"), peer_device("4")),
    Fault(
        "utilization is 4294967295",
        ("value 2 utilization 4294967295",),
        _sentinel_refused,
        _sentinel_shown,
        peer_value("gpu_utilization_Percentage", "2"),
    ),
    Fault(
        "a temperature that is not supported",
        ("return 6 temperature_v 3", "return 6 temperature 3"),
        _temperature_gone,
        _nans,
        peer_value("gpu_temperature_C", "6"),
    ),
    Fault("the driver is unloaded", ("unloaded",), _driver_gone, nothing_wrong, _peer_average),
)

HUNG = Fault(
    "a call about one GPU never returns",
    ("hang 5 utilization", "value 0 utilization 11"),
    down("5", "hung"),
    _others_fresh,
    _stale,
    seconds=60.0,
)
