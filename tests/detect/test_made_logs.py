"""Made-up logs of benchmarks/accuracy.py: read in full, quiet where they are healthy, and found where they are not."""

from __future__ import annotations

import pytest
from benchmarks.accuracy import FAMILIES, see, upper_bound
from benchmarks.forms import write
from benchmarks.made import KINDS, make

IDS = [kind.name for kind in KINDS]


def checked(folder, kind, seed, fault="healthy"):
    """Write a log, have it checked up, and return it with what was said."""
    log = make(kind, seed, fault)
    name, text = write(log)
    path = folder / name
    path.write_text(text)
    return log, see(path)


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_healthy_ones_are_read_in_full_and_have_no_warning(kind, tmp_path):
    """Every line of the training is a step."""
    for seed in range(2):
        log, seen = checked(tmp_path, kind, seed)
        assert seen.steps == len(log.train)
        assert seen.warnings == set()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "nan" in kind.faults], ids=lambda kind: kind.name)
def test_nan_is_found_in_each_form(kind, tmp_path):
    """And known within a line or two."""
    log, seen = checked(tmp_path, kind, 1, "nan")
    assert FAMILIES["nan"] & seen.found.keys()
    lines = [step for step, _ in log.train]
    assert log.onset in lines


def test_a_twin_is_the_same_up_to_its_fault():
    """The seed decides all else."""
    healthy, broken = make(KINDS[0], 3), make(KINDS[0], 3, "divergence")
    at = [step for step, _ in broken.train].index(broken.onset)
    assert healthy.train[:at] == broken.train[:at]
    assert healthy.train[at] != broken.train[at]
    assert healthy.form == broken.form


@pytest.mark.parametrize(("events", "bound"), [(0, 2.996), (1, 4.744), (10, 16.962)])
def test_the_bound_of_a_rate_is_that_of_poisson(events, bound):
    """From a table of the chi-squared distribution."""
    assert upper_bound(events, 1.0) == pytest.approx(bound, abs=0.002)
