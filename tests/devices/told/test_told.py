"""Vendors whose tool tells of all cards at once: layouts, marks, identities, failures, damage."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.devices.told.tool import FIRST, LAYOUTS, TOOLS, FakeTool, of, read

from trainvitals.devices.base import NoLibraryError, SourceDownError
from trainvitals.devices.plausible import is_plausible
from trainvitals.devices.told.reader import Told
from trainvitals.devices.tools import FAILED, MISSING, TIMED_OUT, Answer, Runner
from trainvitals.devices.vendors import VENDORS

INTEL, KUNLUNXIN = "0x8086", "0x1d22"


def values(sample):
    """Return the values of a sample as a file writes them: family and labels with blanks between."""
    return {" ".join(key): value for key, value in sample.values.items()}


def test_every_vendor_that_is_told_has_its_layouts():
    """One file for each row of the table."""
    told = {name for name, row in VENDORS.items() if ".told." in row.module}

    assert told == set(TOOLS) == set(FIRST)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_value_of_a_layout(layout, tmp_path):
    """In base units; a mark is absent and no failure; a version that knows less is asked otherwise, and then always."""
    vendor, case = LAYOUTS[layout]
    tool = of(vendor, tmp_path, case)
    reader = tool.reader()
    samples = read(reader)

    assert {index: values(sample) for index, sample in samples.items()} == {
        index: {name: pytest.approx(value) for name, value in told.items()} for index, told in case["values"].items()
    }
    for index, card in case["cards"].items():
        sample = samples[index]
        found = (sample.uuid, sample.pci_bus_id, sample.name, sample.driver_version, sample.vendor)
        assert found == (card["uuid"], card["address"], card["name"], card["driver"], vendor)
        assert sample.up == ("down" not in card)
        assert (sample.reason or None) == card.get("down")
    tool.calls.clear()
    tool.now += 10
    reader.devices()
    assert tool.calls == list(case["answers"])


@pytest.mark.parametrize("mark", ["N/A", "NA", "-", "[N/A]", "-1", "unknown", "None"])
@pytest.mark.parametrize(
    ("vendor", "text", "family"),
    [
        ("cambricon", "142", "power_watts default"),
        ("gaudi", "301 W", "power_watts default"),
        ("kunlunxin", "287.50 W", "power_watts default"),
        ("metax", "450W", "power_limit_watts"),
        ("iluvatar", "120,", "power_watts default"),
        ("enflame", "105 W", "power_watts default"),
        ("moorethreads", "210.5W", "power_watts default"),
        ("thead", "300.25 W", "power_watts default"),
        ("biren", ", 45", "temperature_celsius gpu"),
        ("intel", "283.16", "power_watts default"),
    ],
)
def test_no_mark_becomes_a_number(vendor, text, family, mark, tmp_path):
    """Whatever stands for "cannot read" is absent, the rest stays, and nothing has failed."""
    tool = of(vendor, tmp_path)
    tool.change(text, (", " if text.startswith(",") else "") + mark + ("," if text.endswith(",") else ""))
    sample = read(tool.reader())[0]
    wanted = {name: value for name, value in FIRST[vendor]["values"][0].items() if name != family}

    assert values(sample) == {name: pytest.approx(value) for name, value in wanted.items()}
    assert sample.failed == {}


@pytest.mark.parametrize(
    ("vendor", "text", "wrong", "family"),
    [
        ("cambricon", "51C", "0C", "temperature_celsius gpu"),
        ("gaudi", "64 %", "640 %", "utilization_ratio"),
        ("kunlunxin", "287.50 W", "65535 W", "power_watts default"),
        ("metax", "58C", "65535C", "temperature_celsius gpu"),
        ("iluvatar", ", 55,", ", 0,", "temperature_celsius gpu"),
        ("enflame", "12.5 %", "112.5 %", "utilization_ratio"),
        ("moorethreads", "48C", "480C", "temperature_celsius gpu"),
        ("thead", "300.25 W", "30025 W", "power_watts default"),
        ("biren", ", 45", ", 0", "temperature_celsius gpu"),
        ("intel", "93.50", "103.50", "utilization_ratio"),
    ],
)
def test_what_no_card_can_have_is_no_value(vendor, text, wrong, family, tmp_path):
    """It is left out and counted, and the rest of the card stays."""
    tool = of(vendor, tmp_path)
    tool.change(text, wrong)
    sample = read(tool.reader())[0]

    assert set(values(sample)) == set(FIRST[vendor]["values"][0]) - {family}
    assert sample.failed == {"implausible": 1}


def test_a_card_that_is_lost_keeps_the_names_of_the_others(tmp_path):
    """Numbers move up, identities do not; an answer without a card is asked for again before it is believed."""
    tool = of("metax", tmp_path)
    reader = tool.reader()
    assert [sample.uuid for sample in read(reader).values()] == ["0000:0f:00.0", "0000:34:00.0"]
    whole = dict(tool.answers)
    text = whole["mx-smi"]
    first = re.search(r"\| 0 +MetaX.*\n.*Available.*\n.*\n", text)[0]
    tool.answers = {"mx-smi": text.replace(first, "").replace("| 1  ", "| 0  ")}
    tool.calls.clear()
    tool.now += 10

    samples = read(reader)
    assert {index: sample.uuid for index, sample in samples.items()} == {0: "0000:34:00.0"}
    assert tool.calls == ["mx-smi", "mx-smi"]


def test_two_chips_with_one_serial_number_are_named_by_their_addresses(tmp_path):
    """And one alone by its number."""
    tool = of("kunlunxin", tmp_path)
    reader = tool.reader()
    assert [sample.uuid for sample in read(reader).values()] == ["0000:31:00.0", "0000:32:00.0"]

    tool.change("MADEUP77\n    PCI", "MADEUP78\n    PCI")
    tool.now += 10
    assert [sample.uuid for sample in read(reader).values()] == ["MADEUP78", "MADEUP77"]


@pytest.mark.parametrize("vendor", TOOLS)
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(reason=TIMED_OUT), "timeout"),
        (Answer("cannot open /dev/x0", FAILED), "failed"),
        (Answer("ERROR: No devices were found"), "not_understood"),
        (Answer(""), "not_understood"),
        (Answer("{}"), "not_understood"),
    ],
)
def test_a_tool_that_does_not_answer_is_a_driver_that_does_not(vendor, answer, reason, tmp_path):
    """Errors with status 0 among them."""
    tool = of(vendor, tmp_path)
    tool.say(answer)

    with pytest.raises(SourceDownError) as caught:
        tool.reader()
    assert caught.value.reason == reason


@pytest.mark.parametrize("vendor", TOOLS)
def test_without_a_tool_there_is_nothing_to_read(vendor, tmp_path):
    """That is no fault."""
    with pytest.raises(NoLibraryError, match=f"{TOOLS[vendor].names[0]}.* not found"):
        FakeTool(vendor, {}, tmp_path / "bus").reader()


@pytest.mark.parametrize("vendor", TOOLS)
@pytest.mark.parametrize("other", TOOLS)
def test_the_output_of_another_maker_is_not_believed(vendor, other, tmp_path):
    """Whatever a program of the same name prints: each maker's output is understood by its own reader alone."""
    if vendor == other:
        return
    tool = of(vendor, tmp_path, {"answers": dict.fromkeys(FIRST[vendor]["answers"], "")})
    tool.say("\n".join(FIRST[other]["answers"].values()))

    with pytest.raises(SourceDownError, match=r"not_understood|other_program"):
        tool.reader()


@pytest.mark.parametrize(
    ("vendor", "maker", "is_ours"),
    [
        ("kunlunxin", KUNLUNXIN, True),
        ("kunlunxin", INTEL, False),
        ("intel", INTEL, True),
        ("intel", KUNLUNXIN, False),
        ("kunlunxin", None, False),
        ("intel", None, False),
        ("cambricon", "0xcabc", True),
        ("cambricon", "0x10de", False),
        ("cambricon", None, True),
    ],
)
def test_whose_cards_a_tool_speaks_of_the_bus_knows(vendor, maker, is_ours, tmp_path):
    """Two programs are called xpu-smi: their cards must be on the bus, and of that maker."""
    case = FIRST[vendor]
    addresses = [card["address"] for card in case["cards"].values()] if maker else []
    tool = FakeTool(vendor, case["answers"], tmp_path / "bus", dict.fromkeys(addresses, maker))

    if is_ours:
        assert len(read(tool.reader())) == 2
    else:
        with pytest.raises(SourceDownError, match="other_program"):
            tool.reader()


def test_one_failure_keeps_the_last_values_and_the_second_takes_them_down(tmp_path):
    """The tool is slow under load; what was told 10 s before is told once more, and counted."""
    tool = of("gaudi", tmp_path)
    reader = tool.reader()
    read(reader)
    answers = dict(tool.answers)
    tool.say(Answer(reason=TIMED_OUT))
    tool.now += 10

    sample = read(reader)[0]
    assert (sample.values["utilization_ratio",], sample.failed) == (0.64, {"timeout": 1})
    tool.now += 10
    with pytest.raises(SourceDownError, match="timeout"):
        reader.devices()

    tool.answers = answers
    reader.close()
    reader.open()
    assert read(reader)[0].up


@pytest.mark.parametrize("vendor", TOOLS)
def test_a_tool_that_hangs_is_killed(vendor, tmp_path):
    """Its first question ends the attempt."""
    for name in TOOLS[vendor].names:
        (tmp_path / name).write_text("#!/bin/sh\nsleep 1000\n")
        (tmp_path / name).chmod(0o755)
    runner = Runner([str(tmp_path)], timeout=0.2, environ={"PATH": "/usr/bin:/bin"})

    with pytest.raises(SourceDownError, match="timeout"):
        Told(TOOLS[vendor], runner, bus=str(tmp_path)).open()


def test_a_real_tool_is_read(tmp_path):
    """A program on the disk that warns first; it reads what it was asked from its arguments."""
    (tmp_path / "cnmon").write_text(
        f"#!/bin/sh\necho warning >&2\ncat <<'E'\n{FIRST['cambricon']['answers']['cnmon']}E\n"
    )
    (tmp_path / "cnmon").chmod(0o755)
    runner = Runner([str(tmp_path)], environ={"PATH": "/usr/bin:/bin"})
    reader = Told(TOOLS["cambricon"], runner, bus=str(tmp_path / "none"))
    reader.open()

    assert values(read(reader)[1])["temperature_celsius gpu"] == 77.0
    assert list(reader.faults()) == []


def test_a_tool_that_vanishes_is_a_failure_first(tmp_path):
    """An update of the driver replaces it."""
    tool = of("cambricon", tmp_path)
    reader = tool.reader()
    tool.say(Answer(reason=MISSING))
    tool.now += 10

    assert read(reader)[0].failed == {"missing": 1}


@settings(deadline=None)
@given(
    layout=st.sampled_from(sorted(LAYOUTS)),
    begin=st.integers(0, 2500),
    length=st.integers(0, 60),
    noise=st.binary(max_size=20),
)
def test_damage_never_raises_and_never_gives_a_value_out_of_bounds(layout, begin, length, noise):
    """Random cuts and bytes in every known output."""
    vendor, case = LAYOUTS[layout]

    def damaged(text):
        raw = text.encode()
        return (raw[:begin] + noise + raw[begin + length :]).decode(errors="replace")

    answers = {command: damaged(text) for command, text in case["answers"].items()}
    tool = TOOLS[vendor]

    def run(command):
        return Answer(answers.get(" ".join(command), ""))

    reader = Told(tool, run, bus="/nowhere", clock=lambda: 0.0)
    reader._is_ours = lambda cards: True  # noqa: ARG005  The bus has none of these.
    try:
        reader.open()
    except SourceDownError:
        return
    for sample in read(reader).values():
        assert all(is_plausible(family, value) for (family, *_), value in sample.values.items())
        assert sample.failed.keys() <= {"implausible", "not_understood"}
