"""The check list: what is fine, what to watch, what to act on, what cannot be said."""

from __future__ import annotations

import pytest
from tests.diagnose.helpers import Said, report, table


def rows(run):
    """Return the rows of a run by signal."""
    return {row.signal: row for row in run.signals}


@pytest.mark.parametrize(
    ("since", "until", "severity", "told"),
    [
        (30, 99, "critical", ("act", "critical", False)),
        (30, 99, "warning", ("act", "warning", False)),
        (30, 99, "info", ("watch", "info", False)),
        (10, 25, "critical", ("watch", "critical", True)),
        (10, 25, "warning", ("watch", "warning", True)),
        (10, 25, "info", ("fine", "info", False)),
        (None, 99, "warning", ("fine", "info", False)),
    ],
)
def test_the_state_of_a_signal(tmp_path, since, until, severity, told):
    """On at the end: act, or watch when it is a mere notice; over before the end: watch; never on: fine."""
    made = report(
        table(tmp_path / "a.csv"), detectors=[lambda: Said("odd", since=since, until=until, severity=severity)]
    )

    row = rows(made.runs[0])["odd"]

    assert told == (row.state.value, row.severity, row.over)
    assert row.since_step == (None if told[0] == "fine" else since)


def test_who_cannot_say_says_what_it_needs(tmp_path):
    """The reason is in the words of the detector."""
    made = report(table(tmp_path / "a.csv"), detectors=[lambda: Said("odd", silent=True)])

    row = rows(made.runs[0])["odd"]

    assert ("cannot_say", "needs 9 steps with a loss") == (row.state.value, row.evidence)


def test_a_finding_carries_what_the_detector_said(tmp_path):
    """Evidence, action, confidence and what was left out come from the verdict; the place is the step."""
    words = {"evidence": "it rose", "action": "Lower it.", "confidence": 0.7, "gated": "the warm-up"}
    made = report(table(tmp_path / "a.csv"), detectors=[lambda: Said("odd", since=30, **words)])

    row = rows(made.runs[0])["odd"]

    assert ("it rose", "Lower it.", 0.7, "the warm-up", "step 30") == (
        row.evidence,
        row.action,
        row.confidence,
        row.gated,
        row.location,
    )


def test_a_new_detector_is_a_new_row(tmp_path):
    """Rows come in the order of the detectors, under their own names; the errors of the log come last."""
    made = report(table(tmp_path / "a.csv"), detectors=[lambda: Said("never_heard_of"), lambda: Said("loss_spike")])

    assert ["never_heard_of", "loss_spike", "log_error"] == [row.signal for row in made.runs[0].signals]
    assert ["never heard of", "loss without jumps"] == [row.title for row in made.runs[0].signals[:2]]


def test_each_row_answers_a_question(tmp_path):
    """That of its signal; of a new one, by its category."""
    makers = [lambda: Said("loss_spike"), lambda: Said("never_heard_of")]

    assert ["loss jumps or is NaN", "learning", "health"] == [
        row.question for row in report(table(tmp_path / "a.csv"), detectors=makers).runs[0].signals
    ]


def test_a_failure_in_the_log_is_a_critical_finding(tmp_path):
    """The root cause of what the run did not survive, with its action."""
    path = tmp_path / "train.log"
    lines = [f"iter {n}: loss {4.0 - n / 100:.4f}, time 10.00ms" for n in range(30)]
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    path.write_text("\n".join([*lines, "Traceback (most recent call last):", error]) + "\n")

    row = rows(report(path).runs[0])["log_error"]

    assert ("act", "critical", 29) == (row.state.value, row.severity, row.since_step)
    assert row.evidence.startswith("device out of memory: ")
    assert row.action


def test_a_failure_that_the_run_survived_is_fine(tmp_path):
    """Steps behind the error show that it went on; the error is named all the same."""
    path = tmp_path / "train.log"
    lines = [f"iter {n}: loss {4.0 - n / 100:.4f}, time 10.00ms" for n in range(60)]
    lines.insert(20, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    path.write_text("\n".join(lines) + "\n")

    row = rows(report(path).runs[0])["log_error"]

    assert ("fine", "survived: device out of memory (1)") == (row.state.value, row.evidence)


def test_a_run_that_somebody_stopped_is_no_failure(tmp_path):
    """Ctrl-C is worth a note, and no alarm."""
    path = tmp_path / "train.log"
    lines = [f"iter {n}: loss {4.0 - n / 100:.4f}, time 10.00ms" for n in range(30)]
    path.write_text("\n".join([*lines, "Traceback (most recent call last):", "KeyboardInterrupt"]) + "\n")

    row = rows(report(path).runs[0])["log_error"]

    assert ("watch", "info") == (row.state.value, row.severity)


def test_a_table_holds_no_errors(tmp_path):
    """Of a format without the text of the program, errors cannot be said."""
    row = rows(report(table(tmp_path / "a.csv")).runs[0])["log_error"]

    assert ("cannot_say", "needs the text that the program prints") == (row.state.value, row.evidence)


def test_a_detector_that_fails_is_told_and_costs_itself(tmp_path):
    """The others are not touched, and the report says that there was an internal error."""

    class Broken(Said):
        def observe(self, step):
            raise ValueError(step)

    made = report(
        table(tmp_path / "a.csv"), detectors=[lambda: Broken("broken"), lambda: Said("odd", since=3, severity="info")]
    )

    assert "watch" == rows(made.runs[0])["odd"].state.value
    assert made.runs[0].case.complaints[0].startswith("detector broken cannot take")


@pytest.mark.parametrize(
    ("limit", "severity", "until", "fails"),
    [
        ("watch", "info", 99, True),
        ("act", "info", 99, False),
        ("act", "warning", 99, True),
        ("act", "critical", 20, False),
        ("warning", "warning", 20, True),
        ("warning", "info", 99, False),
        ("critical", "warning", 99, False),
        ("critical", "critical", 20, True),
    ],
)
def test_what_fails_a_build(tmp_path, limit, severity, until, fails):
    """--fail-on names a state or a severity; graver ones fail too."""
    path = table(tmp_path / "a.csv")
    made = report(path, detectors=[lambda: Said("odd", since=10, until=until, severity=severity)])

    assert made.fails(limit) is fails
