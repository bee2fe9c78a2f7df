"""NVLink: which links work, what went over them and what went wrong, up to Hopper and from Blackwell on.

A board may have links that nothing is plugged into (an A100 for PCIe has 12), and this process cannot tell them from
broken ones.  So it says which links are up and which are not; which of them should be is known to
:mod:`trainvitals.collect.links`, which lives longer.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainvitals.devices.blanks import BLANKS, scaled
from trainvitals.devices.nvidia.apart import apart, check
from trainvitals.devices.nvidia.errors import Effect, meaning
from trainvitals.devices.nvidia.fields import Answers
from trainvitals.devices.nvidia.gpu import Gpu
from trainvitals.devices.nvidia.rows import Signal
from trainvitals.devices.tiers import Tier
from trainvitals.telemetry import DeviceSample

#: Links of a GPU at most (nvml.h, NVML_NVLINK_MAX_LINKS); a GPU has fewer, so far.
_MOST_LINKS = 36
_LINK_COUNT = 91
_STATE = 165
#: States in which a link works: active, and asleep to save power.
_WORKS = frozenset({1.0, 2.0})

#: Sent and received bytes of one link, and the unit: payload in KiB, which Blackwell may have replaced by bytes.
_BYTES = ((138, 139, 1024.0), (202, 204, 1.0))
#: Errors of one link: the first three up to Hopper, the others since Blackwell.
_ERRORS: Mapping[int, str] = {
    161: "replay",
    162: "recovery",
    163: "crc",
    206: "malformed_packet",
    207: "buffer_overrun",
    208: "receive",
    209: "receive_remote",
    210: "receive_general",
    211: "link_integrity",
    212: "transmit_discard",
    214: "recovery_failed",
    215: "recovery",
    219: "effective",
    221: "symbol",
}
#: Bit error ratios: those left after correction, and those before.
_RATIOS: Mapping[int, str] = {220: "effective", 222: "symbol"}
_FIELDS = (*(field for pair in _BYTES for field in pair[:2]), *_ERRORS, *_RATIOS)
#: Values asked for in one call; nvml.h names no limit.
_ONE_CALL = 128
#: Readings until fields that a device did not have are asked for again: a link that comes up may bring them.
_AGAIN = 16
#: How the driver writes that no bit was wrong: 15e-255.
_NO_BIT_WRONG = 0xFFF


class _Links:
    """What is remembered of the links of one GPU for as long as its handle lives."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.worked: set[int] = set()
        #: Fields that the device has, and readings until all are tried again.
        self.fields: tuple[int, ...] = ()
        self.rounds_left = 0
        self.bytes: tuple[int, int, float] | None = None
        #: Errors by (link, kind): what a link does not tell this time still belongs to the sum.
        self.errors: dict[tuple[int, str], float] = {}
        #: By kind, what links had counted before they began anew: a sum that fell would look like new errors.
        self.before: dict[str, float] = {}
        #: What went wrong at least once, by (field, link): shown from then on.
        self.wrong: set[tuple[int, int]] = set()


def links(gpu: Gpu, sample: DeviceSample) -> None:
    """Read the state of every link, and the counters while at least one works or has worked."""
    known: _Links | None = gpu.kept.get("nvlink")
    if known is None or not known.count:
        known = gpu.kept["nvlink"] = _Links(_count(gpu))
    if not known.count:
        return
    _states(gpu, known, sample)
    if known.worked:
        answers = _counters(gpu, known)
        _bytes(known, answers, sample)
        _errors(known, answers, sample)
        _ratios(known, answers, sample)
        for answer in answers.values():
            if isinstance(answer, int):
                check(gpu, sample, answer)


def _count(gpu: Gpu) -> int:
    """Return how many links a GPU has; where it does not say, how many of them have a state."""
    try:
        count = int(gpu.field(_LINK_COUNT))
    except gpu.nvml.NVMLError as error:
        if meaning(error.value)[1] not in {Effect.ABSENT, Effect.FIELD}:
            raise
    else:
        if count <= _MOST_LINKS:
            return count
    for link in range(_MOST_LINKS):
        try:
            gpu.nvml.nvmlDeviceGetNvLinkState(gpu.handle, link)
        except gpu.nvml.NVMLError as error:
            if error.value != gpu.nvml.NVML_ERROR_INVALID_ARGUMENT and meaning(error.value)[1] is not Effect.ABSENT:
                raise
            return link
    return _MOST_LINKS


def _states(gpu: Gpu, known: _Links, sample: DeviceSample) -> None:
    """Read which links work: by the field, as NCCL does on Hopper and newer, or else link by link."""
    # With a field that is always there, for a call of which every answer fails is taken for a spoilt one.
    answers = gpu.fields([(_LINK_COUNT, 0), *((_STATE, link) for link in range(known.count))])
    for link in range(known.count):
        with apart(gpu, sample):
            answer = answers[_STATE, link]
            state = answer if isinstance(answer, float) else gpu.nvml.nvmlDeviceGetNvLinkState(gpu.handle, link)
            works = float(state) in _WORKS
            sample.set("link_up", float(works), str(link))
            if works:
                known.worked.add(link)


def _counters(gpu: Gpu, known: _Links) -> Answers:
    """Ask for what the device has, link by link so that no call is all in vain, in as few calls as may be."""
    if not known.rounds_left or not known.fields:
        known.fields, known.rounds_left = _FIELDS, _AGAIN
    known.rounds_left -= 1
    answers: Answers = {}
    step = _ONE_CALL // len(known.fields)
    for first in range(0, known.count, step):
        some = range(first, min(first + step, known.count))
        answers |= gpu.fields((field, link) for link in some for field in known.fields)
    known.fields = tuple(
        sorted({field for (field, _), answer in answers.items() if isinstance(answer, float) or _may_be_back(answer)})
    )
    return answers


def _may_be_back(code: int) -> bool:
    return meaning(code)[1] is not Effect.ABSENT


def _bytes(known: _Links, answers: Answers, sample: DeviceSample) -> None:
    for pair in _BYTES:
        # Two fields count in two ways: a series must not go from one to the other.
        if known.bytes is None and any(isinstance(answers.get((pair[0], link)), float) for link in range(known.count)):
            known.bytes = pair
    if known.bytes is None:
        return
    *pair_of_fields, unit = known.bytes
    for family, field in zip(("link_transmit_bytes_total", "link_receive_bytes_total"), pair_of_fields, strict=True):
        for link in range(known.count):
            if isinstance(answer := answers.get((int(field), link)), float):
                sample.set(family, scaled(answer, unit), str(link))


def _errors(known: _Links, answers: Answers, sample: DeviceSample) -> None:
    for field, kind in _ERRORS.items():
        for link in range(known.count):
            answer = answers.get((field, link))
            if isinstance(answer, float):
                if answer not in BLANKS:
                    _count_errors(known, link, kind, answer)
                if answer:
                    known.wrong.add((field, link))
                if (field, link) in known.wrong:
                    sample.set("link_errors_total", answer, str(link), kind)
    sums = dict(known.before)
    for (_, kind), errors in known.errors.items():
        sums[kind] = sums.get(kind, 0.0) + errors
    for kind, errors in sums.items():
        sample.set("links_errors_total", errors, kind)


def _count_errors(known: _Links, link: int, kind: str, errors: float) -> None:
    last = known.errors.get((link, kind), 0.0)
    if errors < last:
        known.before[kind] = known.before.get(kind, 0.0) + last
    known.errors[link, kind] = errors


def _ratios(known: _Links, answers: Answers, sample: DeviceSample) -> None:
    for field, kind in _RATIOS.items():
        for link in range(known.count):
            answer = answers.get((field, link))
            if isinstance(answer, float):
                if answer not in {0.0, float(_NO_BIT_WRONG)}:
                    known.wrong.add((field, link))
                if (field, link) in known.wrong:
                    sample.set("link_bit_error_ratio", bit_error_ratio(int(answer)), str(link), kind)


def bit_error_ratio(packed: int) -> float:
    """Return the ratio that a field packs: ``mantissa * 10 ** -exponent``, in bits 8-11 and 0-7 (nvml.h).

    A number that has more bits is none, and comes back as it is: no ratio, so it is rejected.
    """
    if packed == _NO_BIT_WRONG:
        return 0.0
    if packed > _NO_BIT_WRONG:
        return float(packed)
    return float(f"{packed >> 8}e-{packed & 0xFF}")


SIGNALS: tuple[Signal, ...] = (Signal(Tier.MEDIUM, links, (_LINK_COUNT,)),)
