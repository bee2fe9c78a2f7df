"""The table of XIDs: every code is there once, and says what its source says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.devices.nvidia.xids import ACTIONS, CAUSES, XIDS, LinkFault, Xid, describe, link_fault

ROOT = Path(__file__).parents[2]

EXTENDED = (
    "{unit} {effect} XC0 i0 Link {link} (0x{register:08x} 0x00000001 0x00000000 0x00000000 0x00000000 0x00000000)"
)


def test_every_code_of_the_catalogue_has_a_row():
    """1 to 172."""
    assert list(range(1, 173)) == list(XIDS)


def test_the_table_comes_without_the_reader_of_devices():
    """The exporter needs the one, its child the other, and memory is dear beside a training."""
    script = "import sys, trainvitals.devices.nvidia.xids; print('trainvitals.devices.nvidia.reader' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"False\n"


def test_rows_use_known_words_only():
    """Three severities, few categories, and actions that are explained."""
    assert {row.severity for row in XIDS.values()} == {"critical", "warning", "info"}
    assert {row.category for row in XIDS.values()} == {
        "application",
        "bus",
        "display",
        "driver",
        "hardware",
        "link",
        "memory",
        "power",
        "thermal",
    }
    assert {row.action for row in XIDS.values()} | {"drain"} == set(ACTIONS)


def test_every_row_and_action_is_documented():
    """docs/kernel.md has them all."""
    page = (ROOT / "docs" / "kernel.md").read_text()

    for row in XIDS.values():
        assert f"| {row.code} | {row.meaning} | {row.category} | {row.severity} | `{row.action}` |" in page
    for word, text in ACTIONS.items():
        assert f"| `{word}` | {text} |" in page
    for cause in CAUSES.values():
        assert f"| `{cause}` |" in page


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68, 109])
def test_errors_of_programs_never_look_like_a_hardware_fault(code):
    """Neither by category nor by severity nor by what to do."""
    row = describe(code, "pid=1, name=python, GPU has fallen off the bus, Fatal")

    assert row.category == "application"
    assert row.severity in {"warning", "info"}
    assert row.action in {"check_application", "restart_application", "restart_then_reset", "follow_earlier"}


def test_a_consequence_says_so():
    """45 is what the driver writes while it cleans up after another error."""
    assert describe(45) == Xid(
        45, "program was ended because of an earlier error", "application", "info", "follow_earlier"
    )


@pytest.mark.parametrize(
    ("code", "category", "severity", "action"),
    [
        (48, "memory", "critical", "reset_gpu"),
        (62, "hardware", "critical", "reset_gpu"),
        (63, "memory", "info", "reset_later"),
        (64, "memory", "critical", "replace_gpu"),
        (74, "link", "critical", "check_link"),
        (79, "bus", "critical", "reboot_node"),
        (92, "memory", "warning", "report"),
        (94, "memory", "warning", "restart_then_reset"),
        (95, "memory", "critical", "reset_gpu"),
        # The catalogue asks for a reset, and a busy GPU is often all there is to it.
        (109, "application", "warning", "restart_then_reset"),
        (119, "driver", "critical", "reset_gpu"),
        (120, "driver", "critical", "reset_gpu"),
        (140, "memory", "critical", "reset_gpu"),
        (143, "hardware", "critical", "reset_gpu"),
        (149, "link", "warning", "see_subcode"),
        (157, "hardware", "warning", "report"),
        (161, "memory", "warning", "report"),
        (173, "unknown", "warning", "report"),
        (99_999, "unknown", "warning", "report"),
    ],
)
def test_what_a_code_means(code, category, severity, action):
    """The codes that matter most, and those that nobody knows."""
    row = describe(code)

    assert (code, category, severity, action) == (row.code, row.category, row.severity, row.action)


@pytest.mark.parametrize(
    ("words", "severity", "action"),
    [
        ("0x0 (None) to 0x1 (GPU Reset Required)", "critical", "reset_gpu"),
        ("0x0 (None) to 0x2 (Node Reboot Required)", "critical", "reboot_node"),
        ("0x0 (None) to 0x2 (OS Reboot)", "critical", "reboot_node"),
        ("0x0 (None) to 0x3 (Drain P2P)", "warning", "drain"),
        ("0x3 (Drain P2P) to 0x4 (Drain and Reset)", "critical", "reset_gpu"),
        ("0x1 (GPU Reset Required) to 0x0 (None)", "info", "nothing"),
        ("0x0 (None) to 0x9 (Something New)", "warning", "see_message"),
        ("", "warning", "see_message"),
    ],
)
def test_154_does_what_its_message_names(words, severity, action):
    """The driver names the action itself."""
    row = describe(154, f"GPU recovery action changed from {words}")

    assert (severity, action) == (row.severity, row.action)


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (
            149,
            EXTENDED.format(unit="NETIR_LINK_EVT", effect="Fatal", link="08", register=0x004505C6),
            LinkFault("NETIR_LINK_EVT", "fatal", "8", "signal"),
        ),
        (
            149,
            EXTENDED.format(unit="NETIR_LINK_EVT", effect="Fatal", link="17", register=0x02A505C6),
            LinkFault("NETIR_LINK_EVT", "fatal", "17", "signal_or_cable"),
        ),
        (
            149,
            EXTENDED.format(unit="NETIR_LINK_DOWN", effect="Link Fatal", link="03", register=0x02345011),
            LinkFault("NETIR_LINK_DOWN", "fatal", "3", "peer"),
        ),
        (
            149,
            EXTENDED.format(unit="NETIR_LINK_EVT", effect="Fatal", link="00", register=0x03F05011),
            LinkFault("NETIR_LINK_EVT", "fatal", "0", "code_63"),
        ),
        (
            149,
            EXTENDED.format(unit="NETIR_LINK_EVT", effect="Fatal", link="02", register=0x00005011),
            LinkFault("NETIR_LINK_EVT", "fatal", "2", ""),
        ),
        (
            149,
            EXTENDED.format(unit="NETIR", effect="Fatal", link="-1", register=0x000FE406),
            LinkFault("NETIR", "fatal", "", ""),
        ),
        (
            145,
            "pid=876, name=ray::Worker, "
            + EXTENDED.format(unit="RLW_RXPIPE", effect="Nonfatal", link="11", register=0x0409A0C2),
            LinkFault("RLW_RXPIPE", "nonfatal", "11", ""),
        ),
        (144, "SAW_MVB Non-fatal XC1 i0 Link 02 (0x21", LinkFault("SAW_MVB", "nonfatal", "2", "")),
        (150, "MSE_WATCHDOG Fatal XC0 i0 Link 00", LinkFault("MSE_WATCHDOG", "fatal", "0", "")),
        (149, "NETIR_LINK_EVT Fatal XC0 i0 Link", None),
        (149, "", None),
        (79, EXTENDED.format(unit="NETIR_LINK_EVT", effect="Fatal", link="08", register=0x004505C6), None),
    ],
)
def test_errors_of_nvlink_5_name_unit_effect_link_and_cause(code, text, expected):
    """The message of 144 to 150, whole, with a process before it, and cut off."""
    assert expected == link_fault(code, text)


def test_the_effect_of_an_nvlink_5_error_decides_what_to_do():
    """Fatal needs a reset, nonfatal nothing; without the kernel's log it is not known."""
    fatal = describe(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6)")
    nonfatal = describe(145, "RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2)")

    assert ("critical", "reset_gpu") == (fatal.severity, fatal.action)
    assert ("info", "nothing") == (nonfatal.severity, nonfatal.action)
    assert ("warning", "see_subcode") == (describe(149).severity, describe(149).action)


@given(st.integers(), st.text(max_size=300))
def test_nothing_makes_it_raise(code, text):
    """Any number, any text."""
    assert describe(code, text).action in ACTIONS
    link_fault(code, text)
