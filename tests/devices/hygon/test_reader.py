"""Cards of Hygon through hy-smi: layouts, identities, failures."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.devices.hygon.tool import Tool, printed, read, text

from trainvitals.devices.base import NoLibraryError, SourceDownError
from trainvitals.devices.hygon import smi
from trainvitals.devices.hygon.reader import Hygon
from trainvitals.devices.plausible import is_plausible
from trainvitals.devices.tools import FAILED, MISSING, TIMED_OUT, Answer, Runner
from trainvitals.telemetry import DeviceSample

A, B, C = "0000:09:00.0", "0000:36:00.0", "0000:7a:00.0"


def _card(address, use="7", **more):
    return {"PCI Bus": address.upper(), "HCU use (%)": use, "Temperature (Sensor edge) (C)": "40", **more}


def _one(tmp_path, changes, **options):
    tool = Tool(tmp_path / "bus", changes, **options)
    (sample,) = read(tool.reader()).values()
    return sample


def test_every_value_of_the_layout_with_dcu(tmp_path):
    """One output with everything, MiB, an empty key among the others; a mark is absent."""
    samples = read(Tool(tmp_path / "bus", text("dcu")).reader())

    assert samples[0].values == {
        ("utilization_ratio",): 0.93,
        ("power_watts", "average"): 241.0,
        ("temperature_celsius", "gpu"): 57.0,
        ("temperature_celsius", "hotspot"): 63.0,
        ("temperature_celsius", "memory"): 60.0,
        ("memory_total_bytes",): 68702699520.0,
        ("memory_used_bytes",): 51539607552.0,
        ("hardware_info", "TEX2000415", "", "", "", ""): 1.0,
    }
    assert (samples[0].uuid, samples[0].name, samples[0].pci_bus_id) == (
        "4d0c00000a7700e1",
        "DCU EX200",
        "0000:3d:00.0",
    )
    assert samples[0].driver_version == "6.3.31-V1.9.0"
    assert samples[1].values == {
        ("utilization_ratio",): 0.0,
        ("temperature_celsius", "gpu"): 49.0,
        ("temperature_celsius", "memory"): 52.0,
        ("memory_total_bytes",): 68702699520.0,
        ("memory_used_bytes",): 4194304.0,
    }
    assert samples[1].uuid == "0000:5e:00.0"
    assert [sample.failed for sample in samples.values()] == [{}, {}]


def test_every_value_of_the_layout_with_hcu(tmp_path):
    """Four sensors, a share with a fraction; what is the same for good comes from an output of its own."""
    sample = _one(tmp_path, text("hcu"), stays=text("stays"))

    assert sample.values == {
        ("utilization_ratio",): 0.275,
        ("power_watts", "average"): 118.0,
        ("temperature_celsius", "gpu"): 41.0,
        ("temperature_celsius", "hotspot"): 46.0,
        ("temperature_celsius", "memory"): 38.0,
        ("temperature_celsius", "core"): 43.0,
        ("memory_total_bytes",): 68702699520.0,
        ("memory_used_bytes",): 21407727616.0,
        ("power_limit_watts",): 600.0,
        ("hardware_info", "TEX3000099", "D3005", "6.401.002600A.110233", "", ""): 1.0,
    }
    assert (sample.uuid, sample.name) == ("7a1100000b0000c9", "HCU EX300")


def test_every_value_of_the_older_layout(tmp_path):
    """Bytes, and one sensor: it is the chip's. The tool has the name of AMD's, and the driver stands in the JSON."""
    sample = _one(tmp_path, text("older"), named="rocm-smi", driver=text("older"))

    assert sample.values == {
        ("utilization_ratio",): 0.0,
        ("power_watts", "average"): 20.0,
        ("temperature_celsius", "gpu"): 44.0,
        ("memory_total_bytes",): 17163091968.0,
        ("memory_used_bytes",): 11182080.0,
        ("pcie_replays_total",): 0.0,
    }
    assert (sample.uuid, sample.name, sample.driver_version) == ("0000:26:00.0", "Hygon", "5.16.18")


@pytest.mark.parametrize("mark", ["N/A", "NA", "-", "", "-1", "unknown", None, [], True])
def test_no_mark_becomes_a_number(tmp_path, mark):
    """Whatever stands for "cannot read" is absent, and nothing has failed."""
    card = dict.fromkeys(
        (
            "HCU use (%)",
            "Average Graphics Package Power (W)",
            "Temperature (Sensor junction) (C)",
            "vram Total Memory (MiB)",
            "vram Total Used Memory (MiB)",
            "Unique ID",
            "Serial Number",
        ),
        mark,
    )

    sample = _one(tmp_path, printed(card0={**card, "PCI Bus": A, "Temperature (Sensor edge) (C)": "40"}))

    assert sample.values == {("temperature_celsius", "gpu"): 40.0}
    assert sample.failed == {}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("HCU use (%)", "103", "implausible"),
        ("HCU use (%)", "65535", ""),
        ("HCU use (%)", "-7", ""),
        ("HCU use (%)", "much", "not_understood"),
        ("Average Graphics Package Power (W)", "65535", "implausible"),
        ("Average Graphics Package Power (W)", "0.0", ""),
        ("Temperature (Sensor junction) (C)", "0.0", "implausible"),
        ("Temperature (Sensor mem) (C)", "65535", "implausible"),
        ("vram Total Memory (furlong)", "3", ""),
        ("vram Total Memory (XB)", "3", "not_understood"),
    ],
)
def test_what_no_card_can_have_is_no_value(tmp_path, key, value, reason):
    """It is left out and counted, and the rest of the card stays."""
    sample = _one(tmp_path, printed(card0={"PCI Bus": A, "Temperature (Sensor edge) (C)": "40", key: value}))

    assert sample.values == {("temperature_celsius", "gpu"): 40.0}
    assert sample.failed == ({reason: 1} if reason else {})


def test_more_memory_in_use_than_there_is_tells_neither(tmp_path):
    """One of the two is wrong, and nobody knows which."""
    more = {"vram Total Memory (MiB)": "65520", "vram Total Used Memory (MiB)": "70000"}

    sample = _one(tmp_path, printed(card0=_card(A, **more)))

    assert not any("memory" in family for family, *_ in sample.values)
    assert sample.failed == {"implausible": 1}


def test_a_dead_card_that_still_answers_is_down(tmp_path):
    """Neither its temperature nor its power can be, so nothing of it is believed."""
    dead = {"Temperature (Sensor edge) (C)": "0", "Average Graphics Package Power (W)": "65535"}

    sample = _one(tmp_path, printed(card0=_card(A, "100") | dead))

    assert (sample.up, sample.reason, sample.values, sample.pci_bus_id) == (False, "implausible", {}, A)


def test_a_card_that_tells_nothing_is_down(tmp_path):
    """The tool lists it, and that is all."""
    tool = Tool(tmp_path / "bus", printed(card0=_card(A), card1={"PCI Bus": B, "HCU use (%)": "-1"}))

    samples = read(tool.reader())

    assert (samples[0].up, samples[1].up, samples[1].reason) == (True, False, "unknown")


def test_cards_keep_their_names_when_others_vanish_and_numbers_move(tmp_path):
    """Who is who is asked anew at once, and known by the address."""
    ids = {A: "a1", B: "b2", C: "c3"}

    def stays(*addresses):
        return printed(**{f"card{n}": {"PCI Bus": one, "Unique ID": ids[one]} for n, one in enumerate(addresses)})

    tool = Tool(tmp_path / "bus", printed(card0=_card(A), card1=_card(B), card2=_card(C)), stays(A, B, C))
    reader = tool.reader()
    assert {index: sample.uuid for index, sample in read(reader).items()} == {0: "a1", 1: "b2", 2: "c3"}

    tool.changes, tool.stays = printed(card0=_card(A, "11"), card1=_card(C, "33")), stays(A, C)
    tool.now += 10
    samples = read(reader)

    assert {index: (one.uuid, one.values["utilization_ratio",]) for index, one in samples.items()} == {
        0: ("a1", 0.11),
        1: ("c3", 0.33),
    }


def test_names_stay_also_when_who_is_who_cannot_be_asked(tmp_path):
    """What was known of an address before is of the same card."""
    stays = printed(card0={"PCI Bus": A, "Unique ID": "a1"}, card1={"PCI Bus": B, "Unique ID": "b2"})
    tool = Tool(tmp_path / "bus", printed(card0=_card(A), card1=_card(B)), stays)
    reader = tool.reader()
    read(reader)

    tool.changes, tool.stays = printed(card0=_card(B)), Answer(reason=TIMED_OUT)
    tool.now += 10

    assert [sample.uuid for sample in read(reader).values()] == ["b2"]


def test_numbers_with_gaps_stay(tmp_path):
    """They are the tool's."""
    samples = read(Tool(tmp_path / "bus", printed(card1=_card(A), card7=_card(B))).reader())

    assert list(samples) == [1, 7]


def test_one_answer_without_a_card_is_not_believed(tmp_path):
    """It was seen among others with it: the tool is asked a second time."""
    both, one = printed(card0=_card(A), card1=_card(B)), printed(card0=_card(A))
    tool = Tool(tmp_path / "bus", [both, one, both])
    reader = tool.reader()
    tool.now += 10

    assert list(read(reader)) == [0, 1]


def test_a_card_that_stays_away_is_gone(tmp_path):
    """Both answers lack it."""
    both, one = printed(card0=_card(A), card1=_card(B)), printed(card0=_card(A))
    tool = Tool(tmp_path / "bus", [both, one, one])
    reader = tool.reader()
    tool.now += 10

    assert list(read(reader)) == [0]


@pytest.mark.parametrize("unique", ["0000000000000000", "0x0", "N/A", ""])
def test_a_number_that_is_none_is_no_name(tmp_path, unique):
    """The serial number is next, then the address."""
    samples = read(
        Tool(
            tmp_path / "bus",
            printed(
                card0=_card(A, **{"Unique ID": unique, "Serial Number": "TEX1"}),
                card1=_card(B, **{"Unique ID": unique}),
            ),
        ).reader()
    )

    assert [sample.uuid for sample in samples.values()] == ["TEX1", B]


def test_a_number_that_two_cards_have_names_none(tmp_path):
    """Both are known by their addresses."""
    changes = printed(card0=_card(A, **{"Unique ID": "5"}), card1=_card(B, **{"Unique ID": "5"}))

    assert [sample.uuid for sample in read(Tool(tmp_path / "bus", changes).reader()).values()] == [A, B]


def test_the_tool_is_asked_every_ten_seconds_and_no_more_than_a_tenth_of_the_time(tmp_path):
    """It takes a second or more, and blocks while it measures."""
    tool = Tool(tmp_path / "bus", text("hcu"), text("stays"))
    reader = tool.reader()
    asked = len(tool.calls)

    tool.now += 9
    reader.devices()
    assert len(tool.calls) == asked
    tool.now += 1
    reader.devices()
    assert tool.calls[asked:] == ["hy-smi --showbus --showuse --showmeminfo vram --showtemp --showpower --json"]


def test_a_tool_that_does_not_know_an_option_is_asked_otherwise(tmp_path):
    """And then always so."""
    usage = Answer("usage: hy-smi [-h]\nhy-smi: error: unrecognized arguments: --showbus\n", FAILED)
    tool = Tool(tmp_path / "bus", [usage, text("hcu")])
    reader = tool.reader()
    asked = len(tool.calls)
    tool.now += 10
    reader.devices()

    assert tool.calls[asked:] == ["hy-smi --showuse --showmeminfo vram --showtemp --showpower --json"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(reason=TIMED_OUT), "timeout"),
        (Answer("ERROR: driver", FAILED), "failed"),
        (Answer("Unable to open /dev/mkfd"), "not_understood"),
        (Answer("{}"), "not_understood"),
        (Answer('{"card0": {"Temper'), "not_understood"),
        (Answer('{"gpu_data": [{"gpu": 0}]}'), "not_understood"),
        (Answer('{"card0": {"GPU use (%)": "1", "Card Vendor": "Advanced Micro Devices, Inc."}}'), "other_program"),
    ],
)
def test_a_tool_that_does_not_answer_is_a_driver_that_does_not(tmp_path, answer, reason):
    """Errors with status 0, half of an output, and the tool of another maker among them."""
    with pytest.raises(SourceDownError) as caught:
        Tool(tmp_path / "bus", answer).reader()

    assert caught.value.reason == reason


def test_without_a_tool_there_is_nothing_to_read(tmp_path):
    """That is no fault."""
    with pytest.raises(NoLibraryError, match="hy-smi was not found"):
        Tool(tmp_path / "bus", "", named="other-smi").reader()


@pytest.mark.parametrize(
    ("named", "vendor", "is_ours"),
    [
        ("rocm-smi", "0x1d94", True),
        ("rocm-smi", "0x1002", False),
        ("hy-smi", "0x1d94", True),
        ("hy-smi", "0x1002", False),
    ],
)
def test_whose_cards_a_tool_speaks_of_the_bus_knows(tmp_path, named, vendor, is_ours):
    """AMD's rocm-smi prints the same keys; the number of the maker decides."""
    amd = printed(card0={"PCI Bus": A, "GPU use (%)": "1", "Temperature (Sensor edge) (C)": "40.0"})
    tool = Tool(tmp_path / "bus", amd, named=named)
    tool.place(A, vendor)

    if is_ours:
        assert [sample.pci_bus_id for sample in read(tool.reader()).values()] == [A]
    else:
        with pytest.raises(SourceDownError, match="other_program"):
            tool.reader()


def test_a_tool_named_as_that_of_amd_must_say_whose_cards_it_means(tmp_path):
    """Without an address and a maker it is not believed."""
    with pytest.raises(SourceDownError, match="other_program"):
        Tool(tmp_path / "bus", printed(card0={"GPU use (%)": "1"}), named="rocm-smi").reader()


def test_one_failure_keeps_the_last_values_and_the_second_takes_them_down(tmp_path):
    """The tool is slow under load; what was told 10 s before is told once more, and counted."""
    tool = Tool(tmp_path / "bus", text("hcu"), text("stays"))
    reader = tool.reader()
    tool.changes = Answer(reason=TIMED_OUT)
    tool.now += 10

    (sample,) = read(reader).values()
    assert (sample.values["utilization_ratio",], sample.failed) == (0.275, {"timeout": 1})
    tool.now += 10
    with pytest.raises(SourceDownError, match="timeout"):
        reader.devices()

    tool.changes = text("hcu")
    reader.close()
    reader.open()
    assert read(reader)[0].up


def test_a_tool_that_hangs_is_killed(tmp_path):
    """Its first question ends the attempt."""
    tool = tmp_path / "hy-smi"
    tool.write_text("#!/bin/sh\nsleep 1000\n")
    tool.chmod(0o755)
    reader = Hygon(Runner([str(tmp_path)], timeout=0.3, environ={"PATH": "/usr/bin:/bin"}), bus=str(tmp_path))

    with pytest.raises(SourceDownError, match="timeout"):
        reader.open()


def test_a_real_tool_is_read(tmp_path):
    """A program on the disk, with a warning before its JSON."""
    tool = tmp_path / "hy-smi"
    tool.write_text(
        f"#!/bin/sh\necho 'WARNING: AMD GPU device(s) is/are in a low-power state' >&2\ncat <<E\n{text('hcu')}E\n"
    )
    tool.chmod(0o755)
    reader = Hygon(Runner([str(tmp_path)], environ={"PATH": "/usr/bin:/bin"}), bus=str(tmp_path / "none"))
    reader.open()

    assert read(reader)[0].values["temperature_celsius", "hotspot"] == 46.0
    assert list(reader.faults()) == []


def test_a_tool_that_vanishes_is_a_failure_first(tmp_path):
    """An update of the driver replaces it."""
    tool = Tool(tmp_path / "bus", text("hcu"))
    reader = tool.reader()
    tool.changes = Answer(reason=MISSING)
    tool.now += 10

    assert read(reader)[0].failed == {"missing": 1}


@settings(deadline=None)
@given(
    fixture=st.sampled_from(["dcu", "hcu", "older", "stays"]),
    begin=st.integers(0, 1300),
    length=st.integers(0, 60),
    noise=st.binary(max_size=20),
)
def test_damage_never_raises_and_never_gives_a_value_out_of_bounds(fixture, begin, length, noise):
    """Random cuts and bytes in every known output."""
    raw = text(fixture).encode()
    damaged = (raw[:begin] + noise + raw[begin + length :]).decode(errors="replace")

    smi.driver_version(damaged)
    for card in (smi.cards(damaged) or {}).values():
        sample = DeviceSample(index=0, uuid=smi.identity(card), vendor="hygon", name=smi.name(card))
        smi.measure(card, sample)
        smi.describe(card, sample)
        assert all(is_plausible(family, value) for (family, *_), value in sample.values.items())
        assert sample.failed.keys() <= {"implausible", "not_understood"}
