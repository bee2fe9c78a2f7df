"""What each exporter shows of a fault: both run on one driver that breaks on command, and both are asked.

A fault is a row: the rules of the stub (stub.h), what ours must show and must not show, and how the other one is
described.  Each gets the same time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from prometheus_client.samples import Sample

from exporters import DEVICES, NVITOP, OURS, Exporter, Stub, running

Samples = Sequence[Sample]
_PREFIX = "trainvitals_device_"
#: What may be told of a device that does not answer: that it does not, what it is, and the faults that it had.
_OF_A_DEAD_DEVICE = tuple(
    _PREFIX + name for name in ("up", "down_", "info", "xid_", "link_fault", "fallen_off_bus", "events_")
)

#: Seconds that both get at least after a fault: several rounds of either.
_LEAST = 8.0
_POLL = 0.5
#: Between the first rules and later ones: both have read since.
_LATER = 5.0


@dataclass(frozen=True)
class Verdict:
    """What both showed of a fault, and whether what ours showed was right."""

    fault: str
    ours: str
    peer: str
    is_right: bool


class Fault(NamedTuple):
    """One row.  ``later`` are further rules, which come seconds after the first, ``events`` what the driver reports.

    ``shown`` says in words what ours shows once it shows it, and None before; ``wrong`` names wrong values of ours;
    ``peer`` says in words what the other one shows.  ``seconds`` is how long ours may take.
    """

    title: str
    rules: tuple[str, ...]
    shown: Callable[[Samples], str | None]
    wrong: Callable[[Samples], str]
    peer: Callable[[Samples], str]
    seconds: float = 30.0
    later: tuple[str, ...] = ()
    events: tuple[str, ...] = ()


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
    stub.happen(*fault.events)
    begun = time.monotonic()
    if fault.later:
        time.sleep(_LATER)
        stub.follow(*fault.rules, *fault.later)
    told = None
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
        names = {sample.name for sample in samples if sample.labels.get("device") == index}
        bad = sorted(name for name in names if not name.startswith(_OF_A_DEAD_DEVICE))
        for other in {str(number) for number in range(DEVICES)} - {index}:
            if ours(samples, "utilization_ratio", device=other) is None:
                bad.append(f"nothing of device {other}")
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


def peer_value(name: str, **labels: str) -> Callable[[Samples], str]:
    """Return what tells one value of the other one."""

    def describe(samples: Samples) -> str:
        number = value(samples, name, **labels)
        return f"no {name}" if number is None else f"{name} is {number:.10g}"

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
    """8 MB were sent and 2 MB received since the start."""
    sent, received = (ours(samples, f"pcie_{way}_bytes_total", device="1") for way in ("transmit", "receive"))
    return "8 MB sent, 2 MB received: right" if (sent, received) == (8e6, 2e6) else None


def _directions_swapped(samples: Samples) -> str:
    sent, received = (ours(samples, f"pcie_{way}_bytes_total", device="1") for way in ("transmit", "receive"))
    return "swapped" if (sent, received) == (2e6, 8e6) else ""


def _peer_directions(samples: Samples) -> str:
    """The call that it asks says 2000 MiB a second sent and 5000 received."""
    sent, received = (value(samples, f"gpu_pcie_{way}_throughput_MiBps", index="1") for way in ("tx", "rx"))
    if sent is None or received is None:
        return "no such series"
    verdict = "right" if (round(sent), round(received)) == (2000, 5000) else "wrong"
    return f"sends {sent:.0f}, receives {received:.0f} MiB/s, of 2000 and 5000: {verdict}"


def _temperature_gone(samples: Samples) -> str | None:
    return None if ours(samples, "temperature_celsius", device="6", sensor="gpu") is not None else "absent"


def _nans(samples: Samples) -> str:
    bad = {sample.name for sample in samples if math.isnan(sample.value) and sample.name.startswith(_PREFIX)}
    return ", ".join(sorted(bad))


def _stale(samples: Samples) -> str:
    """Device 0 was given another utilization after device 5 had begun to hang."""
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


def _xids(samples: Samples) -> str | None:
    number = ours(samples, "xid_errors_total", device="1", xid="31")
    return "device_xid_errors_total{xid=31} 2, with its meaning and what to do" if number == 2.0 else None


FAULTS: tuple[Fault, ...] = (
    Fault("a GPU falls off the bus", ("return 3 * 15",), down("3", "lost"), no_values("3"), peer_device("3")),
    Fault("a GPU wants a reset", ("return 4 * 16",), down("4", "reset_required"), no_values("4"), peer_device("4")),
    Fault(
        "utilization is 4294967295",
        ("value 2 utilization 4294967295",),
        _sentinel_refused,
        _sentinel_shown,
        peer_value("gpu_utilization_Percentage", index="2"),
    ),
    Fault(
        "a temperature that is not supported",
        ("return 6 temperature_v 3", "return 6 temperature 3"),
        _temperature_gone,
        _nans,
        peer_value("gpu_temperature_C", index="6"),
    ),
    Fault(
        "PCIe sends four times of what it receives",
        ("value 1 field197 4008001000", "value 1 field198 1002001000"),
        _directions,
        _directions_swapped,
        _peer_directions,
    ),
    Fault("the same XID twice", (), _xids, nothing_wrong, peer_has_none("xid"), events=("1 8 31", "1 8 31")),
    Fault(
        "a memory error that cannot be corrected",
        ("value 4 field4 7",),
        becomes("ecc_errors_total", 7.0, "device_ecc_errors_total 7", device="4", severity="uncorrected"),
        nothing_wrong,
        peer_has_none("ecc", "remap", "retired"),
    ),
    Fault(
        "clocks held down by heat",
        ("value 1 reasons 64",),
        becomes("clock_limited", 1.0, "device_clock_limited{reason=hw_thermal} 1", device="1", reason="hw_thermal"),
        nothing_wrong,
        peer_has_none("throttle", "reason", "limited"),
    ),
    Fault(
        "an NVLink goes down",
        ("value 6 link3 0",),
        becomes("link_up", 0.0, "device_link_up{link=3} 0", device="6", link="3"),
        nothing_wrong,
        peer_value("gpu_nvlink_tx_throughput_MiBps", index="6", link="3"),
    ),
    Fault(
        "PCIe trains down to generation 1",
        ("value 7 generation 1",),
        becomes("pcie_generation", 1.0, "device_pcie_generation 1 of 5", device="7"),
        nothing_wrong,
        peer_has_none("generation", "width"),
    ),
    Fault(
        "the driver asks for a reset",
        ("value 0 field230 1",),
        becomes("recovery_needed", 1.0, "device_recovery_needed 1, with the action", device="0"),
        nothing_wrong,
        peer_has_none("recovery"),
        seconds=75.0,
    ),
    Fault("the driver is unloaded", ("unloaded",), _driver_gone, nothing_wrong, _peer_average),
)

HUNG = Fault(
    "a call about one GPU never returns",
    ("hang 5 utilization",),
    down("5", "hung"),
    _others_fresh,
    _stale,
    seconds=60.0,
    later=("value 0 utilization 11",),
)
