"""Rules: what a user may set of the detectors, and what is said of a mistake."""

from __future__ import annotations

import pytest
import yaml

from trainvitals import detect
from trainvitals.detect import rules
from trainvitals.detect.spike import SpikeSettings
from trainvitals.telemetry import Step


def test_without_rules_all_is_as_ever():
    """No section is no change: the same detectors, with their defaults."""
    made = rules.parse(None).build()

    assert [detector.signal for detector in detect.build()] == [detector.signal for detector in made]
    assert "warning" == rules.Rules()["loss_spike"].alarm


def test_the_printed_defaults_are_the_defaults():
    """What is printed as defaults is read as the defaults, each signal and each setting of it."""
    document = yaml.safe_load(rules.as_yaml())["detectors"]
    parsed = rules.parse(document)

    assert list(document) == [detector.signal for detector in detect.build()]
    for signal, known in rules.known().items():
        assert document[signal].keys() == {"enabled", "alarm", *rules.fields(known.settings)}
        assert (known.settings() if known.settings else None) == parsed[signal].settings


def test_each_setting_has_its_reason():
    """Every setting and every signal is described, in a text that fits its line."""
    for known in rules.known().values():
        assert known.words.endswith(".")
        for _, _, about in rules.fields(known.settings).values():
            assert about.why


def test_what_is_not_named_keeps_its_default():
    """One key of one signal is changed, and nothing else."""
    parsed = rules.parse({"loss_spike": {"level_errors": 9, "outliers_of": [4, 7], "alarm": "critical"}})

    assert SpikeSettings(level_errors=9.0, outliers_of=(4, 7)) == parsed["loss_spike"].settings
    assert ("critical", "warning") == (parsed["loss_spike"].alarm, parsed["loss_drift"].alarm)
    assert parsed["loss_drift"].settings is None


def test_a_signal_can_be_switched_off():
    """A signal that is not enabled has no detector; the others keep their order."""
    made = [detector.signal for detector in rules.parse({"plateau": {"enabled": False}}).build()]

    assert "plateau" not in made
    assert [name for name in (detector.signal for detector in detect.build()) if name != "plateau"] == made


def test_numbers_are_taken_as_yaml_gives_them():
    """A whole number is a number, and so is 1e-3, which YAML takes for a text."""
    parsed = rules.parse(yaml.safe_load("loss_spike: {spread_floor: 1e-3, event_sigmas: 7}"))

    assert (0.001, 7.0) == (parsed["loss_spike"].settings.spread_floor, parsed["loss_spike"].settings.event_sigmas)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (["loss_spike"], "detectors: expected signals with their settings, found ['loss_spike']"),
        ({"los_spike": {}}, "detectors: unknown name 'los_spike', did you mean loss_spike?"),
        ({"loss_spike": 3}, "detectors.loss_spike: expected settings with their values, found 3"),
        (
            {"loss_spike": {"level_error": 5}},
            "detectors.loss_spike: unknown name 'level_error', did you mean level_errors?",
        ),
        ({"loss_spike": {"level_errors": "six"}}, "detectors.loss_spike.level_errors: expected a number, found 'six'"),
        ({"loss_spike": {"level_errors": True}}, "detectors.loss_spike.level_errors: expected a number, found True"),
        ({"loss_spike": {"level_errors": float("nan")}}, "detectors.loss_spike.level_errors: expected a number"),
        ({"loss_spike": {"level_errors": 10**400}}, "detectors.loss_spike.level_errors: expected a number from 0 to"),
        ({"loss_spike": {"baseline": 99.5}}, "detectors.loss_spike.baseline: expected a whole number, found 99.5"),
        ({"loss_spike": {"baseline": 2}}, "detectors.loss_spike.baseline: expected a whole number from 16 to 1e+06"),
        ({"loss_spike": {"outliers_of": 3}}, "detectors.loss_spike.outliers_of: expected a list of 2 numbers, found 3"),
        ({"loss_spike": {"outliers_of": [5, 3]}}, "detectors.loss_spike: outliers_of: expected some of as many"),
        ({"loss_spike": {"enabled": "no"}}, "detectors.loss_spike.enabled: expected true or false, found 'no'"),
        ({"loss_spike": {"alarm": "page"}}, "detectors.loss_spike.alarm: expected one of info, warning, critical"),
        ({"plateau": {"wat": 1}}, "detectors.plateau: unknown name 'wat'"),
    ],
)
def test_a_mistake_is_told_in_one_line(document, message):
    """The line names the signal and the key, says what was expected, and the nearest name that there is."""
    with pytest.raises(rules.RulesError) as raised:
        rules.parse(document)

    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


#: A setting of each signal that has some, with a value that cannot be and one that can.
SETTINGS = {
    "loss_nonfinite": ("hold_steps", -1, 7),
    "loss_collapsed": ("zeros", 2, 9),
    "loss_diverged": ("far", 0.5, 3.0),
    "outlier_recurs": ("sigmas", -1, 6.0),
    "loss_spike": ("hold_steps", -1, 7),
    "loss_drift": ("in_a_row", 0, 3),
    "gradient_anomaly": ("factor", 0.5, 20.0),
    "loss_not_falling": ("fall", 2.0, 0.1),
    "plateau": ("gain", 1.5, 0.01),
    "data_starvation": ("warning", 1.5, 0.5),
    "communication_bound": ("warning", 1.5, 0.4),
    "bottleneck": ("waits", 1.5, 0.3),
}


@pytest.mark.parametrize("signal", SETTINGS)
def test_a_setting_reaches_its_detector(signal):
    """What a file says is what the detector goes by, and what cannot be is refused in one line that names it."""
    name, wrong, good = SETTINGS[signal]
    (detector,) = (one for one in rules.parse({signal: {name: good}}).build() if one.signal == signal)

    assert getattr(detector._settings, name) == good
    with pytest.raises(rules.RulesError, match=rf"^detectors\.{signal}\.{name}: expected .*$"):
        rules.parse({signal: {name: wrong}})


def test_a_changed_threshold_changes_the_verdict():
    """A gradient of 15 times its median explodes by default, and not where 20 times are allowed."""

    def active(document):
        (detector,) = (one for one in rules.parse(document).build() if one.signal == "gradient_anomaly")
        for step in range(400):
            norm = 15.0 if step >= 300 else 1.0 + 0.01 * (step % 7)
            detector.observe(Step(step, step, float(step), {"loss": 2.0, "grad_norm": norm}))
            if detector.verdict() is not None and detector.verdict().active:
                return True
        return False

    assert active({})
    assert not active({"gradient_anomaly": {"factor": 20.0}})
