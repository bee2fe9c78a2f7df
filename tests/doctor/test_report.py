"""The report for people and for programs."""

from __future__ import annotations

import io
import json

from trainvitals import __version__
from trainvitals.doctor import report
from trainvitals.doctor.base import absent, ok, problem
from trainvitals.doctor.run import Row

ROWS = [
    Row("Exporter", "settings", ok("no file")),
    Row("Exporter", "port", problem("it is taken", "ss -ltnp")),
    Row("Node", "file systems", problem("stuck", "dmesg", "/mnt/[data]")),
    Row("Node", "pressure", absent("the kernel does not measure it", "grubby")),
]


class Terminal(io.StringIO):
    """A text file that says that it is a terminal."""

    def isatty(self):
        """Say so."""
        return True


def shown(rows, file=None):
    """Return what is printed."""
    file = file or io.StringIO()
    report.show(rows, file)
    return file.getvalue()


def test_problems_come_last_and_each_result_once():
    """Who reads the last lines knows what to do; brackets in a name are no markup."""
    expected = """\
Exporter
  ok        settings                                  no file

Node
  not here  pressure                                  the kernel does not measure it
                                                      better: grubby

Problems
  problem   port                                      it is taken
                                                      fix: ss -ltnp
  problem   file systems: /mnt/[data]                 stuck
                                                      fix: dmesg

2 problems; 1 ok, 1 not here
"""
    assert expected == shown(ROWS)


def test_a_sound_machine_has_no_section_of_problems():
    """One problem less, one section less."""
    text = shown(ROWS[:1])

    assert "Problems" not in text
    assert text.endswith("nothing is broken; 1 ok, 0 not here\n")


def test_one_problem_is_not_two():
    """The last line is a sentence."""
    assert shown(ROWS[:2]).endswith("\n1 problem; 1 ok, 0 not here\n")


def test_a_pipe_gets_no_colours_and_a_terminal_does(monkeypatch):
    """No escape codes where nobody reads them."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    assert "\x1b" not in shown(ROWS)
    assert "\x1b" in shown(ROWS, Terminal())


def test_a_long_sentence_is_one_line_in_a_pipe(monkeypatch):
    """So that grep finds it, however narrow the terminal was."""
    monkeypatch.setenv("COLUMNS", "40")
    long = "word " * 60 + "end"

    assert any(line.endswith("end") for line in shown([Row("A", "b", ok(long))]).splitlines() if "word" in line)


def test_names_from_outside_cannot_move_the_cursor():
    """A mount, a device or a user may be called anything."""
    text = shown([Row("A", "b", problem("why\x1b[2J", "do\r\nit", "na\x07me"))])

    assert "\x1b" not in text
    assert "\r" not in text
    assert "fix: do  it" in text


def test_the_json_holds_everything():
    """Programs get the same results, with words that do not change with the layout."""
    document = json.loads(report.as_json(ROWS))

    assert document["version"] == __version__
    assert document["sound"] is False
    assert [
        {
            "group": "Node",
            "check": "file systems",
            "subject": "/mnt/[data]",
            "outcome": "problem",
            "why": "stuck",
            "action": "dmesg",
        },
        {
            "group": "Node",
            "check": "pressure",
            "subject": "",
            "outcome": "not_here",
            "why": "the kernel does not measure it",
            "action": "grubby",
        },
    ] == document["results"][2:]


def test_a_machine_is_sound_without_problems():
    """What is not here breaks nothing."""
    assert report.is_sound([ROWS[0], ROWS[3]])
    assert not report.is_sound(ROWS)
