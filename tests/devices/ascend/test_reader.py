"""Huawei Ascend: every layout of npu-smi that is known, and what may happen to it."""

from __future__ import annotations

import pytest
from tests.devices.ascend.tools import Tools, read, text

from trainvitals.devices.ascend.reader import Ascend
from trainvitals.devices.base import NoLibraryError, SourceDownError
from trainvitals.devices.tools import FAILED, MISSING, TIMED_OUT, Answer
from trainvitals.metrics import FAMILIES
from trainvitals.telemetry import DeviceProcess

MIB = 2.0**20
OK = {("health_state", "ok"): 1.0, ("health_state", "warning"): 0.0, ("health_state", "critical"): 0.0}
WARNING = {**OK, ("health_state", "ok"): 0.0, ("health_state", "warning"): 1.0}
CRITICAL = {**OK, ("health_state", "ok"): 0.0, ("health_state", "critical"): 1.0}


def basic(utilization, temperature, used, total, power=None, *, health=OK):
    """Return the values of the table; memory in MiB."""
    values = {
        ("utilization_ratio",): utilization,
        ("temperature_celsius", "gpu"): temperature,
        ("memory_used_bytes",): used * MIB,
        ("memory_total_bytes",): total * MIB,
        **health,
    }
    return values if power is None else {**values, ("power_watts", "instant"): power}


def test_the_table_of_a_310():
    """No HBM: the chip computes in what is called memory; two chips on a card, numbered by the column Device."""
    found = read(Tools(text("info-310")))

    assert found[0].values == basic(0.17, 58.0, 2100, 8192, 11.6)
    assert found[1].values == basic(0.0, 61.0, 512, 8192, 11.6, health=WARNING)
    assert [(one.name, one.pci_bus_id, one.driver_version) for one in found.values()] == [
        ("Ascend 310", "0000:84:00.0", "21.0.4.7"),
        ("Ascend 310", "0000:85:00.0", "21.0.4.7"),
    ]


def test_the_table_of_a_910a():
    """HBM beside DDR; processes, one of them without a name, and a chip without any."""
    found = read(Tools(text("info-910a")))

    assert found[0].values == {**basic(0.96, 71.0, 30001, 32768, 212.5), ("processes",): 2.0}
    assert found[1].values == {**basic(0.0, 40.0, 12, 32768, 70.4, health=CRITICAL), ("processes",): 0.0}
    assert found[0].processes == (DeviceProcess(4711, 29000 * MIB), DeviceProcess(4712, 120 * MIB))
    assert found[1].processes == ()
    assert found[0].name == "Ascend 910A"


def test_the_table_of_a_910b():
    """Zeros for the memory that it does not have; no blank before the stroke; 65535 MiB are no mark."""
    found = read(Tools(text("info-910b")))

    assert found[0].values == basic(0.05, 41.0, 3500, 32768, 88.3)
    assert found[1].values == basic(1.0, 43.0, 65535, 65536, 93.0)
    assert found[2].values == basic(0.0, 44.0, 3600, 32768, 91.5)
    assert all(one.failed == {} for one in found.values())


def test_the_table_of_an_a3():
    """Two chips on a card, numbered by Phy-ID; the card's power stands with the first, the other has none."""
    found = read(Tools(text("info-a3")))

    assert found[6].values == {**basic(0.88, 57.0, 60000, 65536, 301.4), ("processes",): 1.0}
    assert found[7].values == {**basic(0.91, 59.0, 61000, 65536, None, health=CRITICAL), ("processes",): 2.0}
    assert found[7].processes == (DeviceProcess(900, 132 * MIB), DeviceProcess(901, 60000 * MIB))
    assert (found[6].name, found[6].failed) == ("Ascend910", {})


def details(table, answers, index=0):
    """Return the values of a chip beyond those of the table."""
    bare = read(Tools(table))[index].values
    return {key: value for key, value in read(Tools(table, answers))[index].values.items() if key not in bare}


def test_clocks():
    """Per chip of a card; the controller of the board (mcu) is no chip."""
    answers = {"common": text("common-310p")}

    assert details(text("info-910a"), {"common": text("common-910a")}) == {
        ("clock_hertz", "sm"): 880e6,
        ("clock_max_hertz", "sm"): 1000e6,
    }
    assert details(text("info-910b"), {"common": text("common-910b")})["clock_hertz", "sm"] == 800e6
    assert details(text("info-310"), answers, 0)["clock_hertz", "sm"] == 900e6
    assert details(text("info-310"), answers, 1)["clock_hertz", "sm"] == 450e6


def test_bandwidth_is_of_the_memory_that_the_device_computes_in():
    """HBM where there is one, else DDR; the number of the chip stands at the end of its block."""
    assert details(text("info-910b"), {"usages": text("usages-910b")}) == {("memory_bandwidth_ratio",): 0.33}
    assert details(text("info-310"), {"usages": text("usages-310p")}, 0) == {("memory_bandwidth_ratio",): 0.4}
    assert details(text("info-310"), {"usages": text("usages-310p")}, 1) == {("memory_bandwidth_ratio",): 0.2}


def test_memory_errors():
    """HBM and DDR together."""
    assert details(text("info-910b"), {"ecc": text("ecc")}) == {
        ("ecc_errors_total", "corrected"): 5.0,
        ("ecc_errors_total", "uncorrected"): 2.0,
        ("ecc_lifetime_errors_total", "corrected"): 50.0,
        ("ecc_lifetime_errors_total", "uncorrected"): 3.0,
        ("retired_pages", "corrected"): 7.0,
        ("retired_pages", "uncorrected"): 5.0,
    }


def test_a_sum_is_never_of_a_part():
    """A counter that cannot be read leaves its sum out; what the chip does not have is no part of it."""
    damaged = text("ecc").replace("HBM Single Bit Error Count               : 4", "HBM Single Bit Error Count : ?")
    without = text("ecc").replace("HBM Single Bit Error Count               : 4", "HBM Single Bit Error Count : NA")

    assert ("ecc_errors_total", "corrected") not in details(text("info-910b"), {"ecc": damaged})
    assert details(text("info-910b"), {"ecc": without})["ecc_errors_total", "corrected"] == 1.0


def test_faults_have_their_codes():
    """In the spelling of the maker's list; the table tells the health."""
    assert details(text("info-910a"), {"health": text("health-alarm")}, 1) == {
        ("fault_info", "80E01801"): 1.0,
        ("fault_info", "8C1F2000"): 1.0,
    }
    assert details(text("info-910a"), {"health": text("health-ok")}, 0) == {}


def test_links():
    """The port to the network, what it has counted, and the links to other chips."""
    answers = {"-link": "link status: UP\n", "-stat": text("stat"), "hccs": text("hccs")}

    assert details(text("info-910b"), answers) == {
        ("link_up", "roce"): 1.0,
        ("link_up", "hccs"): 1.0,
        ("link_transmit_bytes_total", "roce"): 123456789012.0,
        ("link_receive_bytes_total", "roce"): 223456789012.0,
        ("links_errors_total", "receive"): 3.0,
        ("links_errors_total", "crc"): 2.0,
        ("links_errors_total", "roce_receive"): 1.0,
        ("links_errors_total", "roce_transmit"): 0.0,
        ("links_errors_total", "replay"): 8.0,
        ("links_errors_total", "out_of_order"): 5.0,
    }


@pytest.mark.parametrize(
    ("kind", "answer", "value"),
    [
        ("-link", "link status: DOWN\n", 0.0),
        ("hccs", "HCCS Health Status: Healthy\n", 1.0),
        ("hccs", "HCCS Health Status: Unhealthy\n", 0.0),
        ("hccs", "HCCS Health Status: NA\n", None),
        ("-link", "link status: \n", None),
        ("-link", "link status: initialising\n", None),
    ],
)
def test_states_of_links(kind, answer, value):
    """A state that is not known is absent."""
    link = {"-link": "roce", "hccs": "hccs"}[kind]

    assert details(text("info-910b"), {kind: answer}).get(("link_up", link)) == value


def test_every_value_has_a_family_with_these_labels():
    """The exporter would throw away what the catalogue does not have."""
    answers = {
        "-link": "link status: UP\n",
        "-stat": text("stat"),
        "hccs": text("hccs"),
        "health": text("health-alarm"),
        "ecc": text("ecc"),
        "usages": text("usages-910b"),
        "common": text("common-910b"),
    }

    values = read(Tools(text("info-910b"), answers))[0].values

    assert len(values) > 20
    for family, *labels in values:
        assert len(FAMILIES[f"trainvitals_device_{family}"].labels) == 2 + len(labels)


# Who a chip is ------------------------------------------------------------------------------------------------------


def boards(**dies):
    """Return the answers for the boards of cards: ``c0="1"`` is a die of its own for the card 0."""
    answers = {}
    for card, die in dies.items():
        answers["board", card[1:]] = text("board").replace("1a2b3c4d", die * 8)
    return answers


def test_a_chip_is_known_by_its_die():
    """And by its address where the die does not tell, or tells what all others do."""
    die = "AAAAAAAA-00000001-00000002-00000003-0000000F"
    without = text("board").replace("VDie ID", "Some ID")
    never_written = text("board").replace("1a2b3c4d 00000001 00000002 00000003 0000000f", " ".join(["00000003"] * 5))

    assert read(Tools(text("info-910b"), boards(c0="a")))[0].uuid == die
    assert read(Tools(text("info-910b"), {"board": without}))[0].uuid == "0000:c1:00.0"
    assert read(Tools(text("info-910b"), {"board": never_written}))[1].uuid == "0000:c2:00.0"
    same = read(Tools(text("info-910b"), {"board": text("board")}))
    assert [one.uuid for one in same.values()] == [
        "1A2B3C4D-00000001-00000002-00000003-0000000F",
        "0000:c2:00.0",
        "0000:81:00.0",
    ]


def without_card(table, number):
    """Return a table without the rows of a card."""
    lines = table.splitlines(keepends=True)
    place = next(at for at, line in enumerate(lines) if line.startswith(f"| {number}  "))
    return "".join(lines[:place] + lines[place + 3 :])


def test_a_lost_card_is_not_listed_and_the_others_keep_their_names():
    """Who keeps the devices knows it as missing; nobody has its values."""
    tools = Tools(text("info-910b"), boards(c0="a", c1="b", c2="c"))
    reader = tools.reader()
    before = {one.uuid: one.pci_bus_id for one in read(tools, reader).values()}

    tools.table = without_card(text("info-910b"), 1)
    tools.now += 11
    after = {one.uuid: one.pci_bus_id for one in read(tools, reader).values()}

    assert len(before) == 3
    assert after == {name: address for name, address in before.items() if address != "0000:c2:00.0"}


def test_a_renumbered_card_keeps_its_name():
    """After a reset the rest may be counted anew: the name goes with the address, not with the number."""
    tools = Tools(text("info-910b"), boards(c0="a", c1="b", c2="c"))
    reader = tools.reader()
    before = {one.pci_bus_id: one.uuid for one in read(tools, reader).values()}

    tools.table = without_card(text("info-910b"), 1).replace("| 2     910B4", "| 1     910B4")
    tools.answers = boards(c0="a", c1="c")
    tools.now += 11
    found = read(tools, reader)

    assert (found[1].pci_bus_id, found[1].uuid) == ("0000:81:00.0", before["0000:81:00.0"])


def test_a_card_that_the_table_has_and_no_question_finds_keeps_its_basic_values():
    """An error text ("Invalid card id.") comes with the status 0."""
    kinds = ("board", "common", "usages", "ecc", "health", "hccs")

    found = read(Tools(text("info-910b"), dict.fromkeys(kinds, text("invalid-card"))))

    assert found[0].values == basic(0.05, 41.0, 3500, 32768, 88.3)
    assert found[1].uuid == ""
    assert sum(one.failed.get("not_understood", 0) for one in found.values()) == 18


# What cannot be read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", ["NA", "-", "N/A", "--", "", "-1"])
def test_marks_are_absent(mark):
    """Temperature, power and utilization each for themselves; nothing is 0 for it."""
    table = text("info-910b").replace("88.3", mark.ljust(4)).replace("41  ", mark.ljust(4))

    found = read(Tools(table))[0]

    assert found.values == {
        key: value for key, value in basic(0.05, 41.0, 3500, 32768).items() if key != ("temperature_celsius", "gpu")
    }
    assert (found.up, found.failed) == (True, {})


def test_a_dead_card_that_answers_is_down():
    """0 C and 65535 W: its 100 % are no utilization."""
    table = text("info-910b").replace("88.3 ", "65535").replace("41  ", "0   ").replace("| 5   ", "| 100 ")

    found = read(Tools(table))

    assert (found[0].up, found[0].reason, found[0].values) == (False, "implausible", {})
    assert found[0].failed == {"implausible": 2}
    assert found[1].up


def test_a_card_without_any_value_is_down():
    """npu-smi lists it, and that is all."""
    table = text("info-910b")
    for value in ("88.3", "41  ", "5    "):
        table = table.replace(value, "NA".ljust(len(value)), 1)
    table = (
        table.replace("3500 / 32768", "NA   / NA   ").replace("OK   ", "NA   ", 1).replace("0    / 0 ", "NA   / NA", 2)
    )

    found = read(Tools(table))

    assert (found[0].up, found[0].reason) == (False, "unknown")
    assert found[1].up


def test_a_word_for_health_that_is_new_is_counted():
    """It is neither well nor ill."""
    found = read(Tools(text("info-910b").replace("| OK      ", "| Resting ", 1)))[0]

    assert not any(family == "health_state" for family, *_ in found.values)
    assert found.failed == {"not_understood": 1}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer("dcmi module initialize failed. ret is -8005\n", FAILED), "driver_not_loaded"),
        (Answer("dcmi module initialize failed. ret is -8005\n"), "driver_not_loaded"),
        (Answer("dcmi model initialized failed, because the device is used. ret is -8020\n"), "in_use"),
        (Answer("DrvMngGetConsoleLogLevel failed. (ret=4)\n", FAILED), "failed"),
        (Answer("", TIMED_OUT), "timeout"),
        (Answer(text("info-910b")[:900], TIMED_OUT), "timeout"),
        (Answer(""), "not_understood"),
        # Other tools, under the name of this one.
        (Answer("NVIDIA-SMI 550.54   Driver Version: 550.54\n| 0  Tesla | 30C |\n"), "not_understood"),
        (Answer('{"card0": {"Temperature": "34"}}'), "not_understood"),
        (Answer("Not Permitted Usage\n", FAILED), "failed"),
    ],
)
def test_a_tool_that_does_not_answer_takes_the_source_down(answer, reason):
    """With a word that says why; the half of a table is none."""
    with pytest.raises(SourceDownError) as raised:
        Tools(answer).reader()

    assert raised.value.reason == reason


def test_without_the_tool_there_is_nothing_to_read():
    """That is no failure of a driver."""
    with pytest.raises(NoLibraryError, match="npu-smi was not found"):
        Tools(Answer(reason=MISSING)).reader()


def test_without_a_card_no_tool_is_started(tmp_path):
    """A program of that name on a machine without such a card is somebody else's."""
    tools = Tools(text("info-910b"))

    with pytest.raises(NoLibraryError, match="PCI bus"):
        Ascend(tools, bus=str(tmp_path)).open()

    assert tools.calls == []


def test_rows_that_are_not_understood_are_counted_and_cost_themselves():
    """The other chips are read."""
    table = text("info-910b").replace("| 1     910B4               | OK  ", "| x     910B4               | OK  ")

    found = read(Tools(table))

    assert list(found) == [0, 2]
    assert found[0].failed == {"not_understood": 1}


def test_two_chips_of_one_number_are_not_asked_one_by_one():
    """An old table was seen that calls both chips of a card 0: an answer could be about the other one."""
    table = text("info-310").replace("| 1       1         | 0000:85", "| 0       1         | 0000:85")

    found = read(Tools(table, {"common": text("common-310p")}))

    assert [one.values["temperature_celsius", "gpu"] for one in found.values()] == [58.0, 61.0]
    assert not any(key[0] == "clock_hertz" for one in found.values() for key in one.values)


# How often ----------------------------------------------------------------------------------------------------------


def test_questions_are_asked_in_their_pace():
    """The table every ten seconds, clocks and errors every minute, a board once."""
    answers = {"common": text("common-910b"), "board": text("board"), "ecc": text("ecc")}
    tools = Tools(text("info-910b"), answers)
    reader = tools.reader()
    for _ in range(61):
        read(tools, reader)
        tools.now += 2

    assert tools.calls.count("npu-smi info") == 13
    assert tools.calls.count("npu-smi info -t common -i 0") == 3
    assert tools.calls.count("npu-smi info -t board -i 0 -c 0") == 1


def test_a_slow_tool_does_not_hold_up_a_round():
    """What is not asked in one round is asked in the next, and values that are known stay."""
    answers = {"common": text("common-910b"), "usages": text("usages-910b"), "ecc": text("ecc")}
    tools = Tools(text("info-910b"), answers)
    tools.cost = 1.5
    reader = tools.reader()

    begun = tools.now
    first = read(tools, reader)
    longest = tools.now - begun
    for _ in range(8):
        begun = tools.now
        last = read(tools, reader)
        longest = max(longest, tools.now - begun)

    assert longest < 8
    assert ("clock_hertz", "sm") in first[0].values
    assert {("clock_hertz", "sm"), ("memory_bandwidth_ratio",), ("retired_pages", "corrected")} <= set(last[0].values)


def test_a_question_that_hangs_is_left_alone_for_a_while():
    """It is counted once, and the others are asked."""
    tools = Tools(text("info-910b"), {"ecc": Answer("", TIMED_OUT), "common": text("common-910b")})
    reader = tools.reader()

    rounds = [read(tools, reader) for _ in range(10)]

    assert rounds[0][0].failed == {"timeout": 1}
    assert tools.calls.count("npu-smi info -t ecc -i 0") == 1
    tools.now += 31
    assert read(tools, reader)[0].failed == {"timeout": 1}
    assert tools.calls.count("npu-smi info -t ecc -i 0") == 2


def test_what_a_chip_does_not_have_is_no_failure():
    """The tool says so in words, with either status."""
    answers = {
        "hccs": Answer("This device does not support querying hccs.\n", FAILED),
        "ecc": "Failed to query. ret is -8255\n",
    }

    assert read(Tools(text("info-910b"), answers))[0].failed == {}
