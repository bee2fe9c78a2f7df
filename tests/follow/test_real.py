"""Real logs: the number of steps, the last step and the last loss are what somebody else counted.

real.tsv holds a row for each file of a folder of public logs (TRAINVITALS_SHARED, or "shared" beside the repository):
how many steps it tells, over all runs in it, the number of the last one, and the last loss of the training; "-" where
there is none.  They were found with grep and by eye, and with TensorBoard for its own files, not with the readers that
are tested here.
"""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path

import pytest

from trainvitals.follow.follower import Follower
from trainvitals.follow.sources import Source

SHARED = Path(os.environ.get("TRAINVITALS_SHARED") or Path(__file__).parents[3] / "shared")
DATA = SHARED / "data"
with (Path(__file__).parent / "real.tsv").open() as file:
    ROWS = list(csv.DictReader(file, delimiter="\t"))


def read(path):
    """Return the number of steps, the last one and the last loss of all runs in a log."""
    follower = Follower([Source(str(path))], rate=math.inf)
    counts, last, losses = 0, None, []
    for run in follower.poll(final=True):
        counts += len({step.count for step in run.steps})
        last = run.steps[-1].step if run.steps else last
        losses += [step.values["loss"] for step in run.steps if "loss" in step.values]
    follower.close()
    return counts, last, losses[-1] if losses else None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"])
def test_says_what_others_counted(row):
    """Steps, last step and last loss are right."""
    path = DATA / row["file"]
    if not path.exists():
        pytest.skip(f"there is no {path}")

    count, step, loss = read(path)

    assert count == int(row["steps"])
    assert step == (None if row["last_step"] == "-" else int(row["last_step"]))
    expected = None if row["last_loss"] == "-" else float(row["last_loss"])
    assert loss == (expected if expected is None else pytest.approx(expected, rel=1e-9, nan_ok=True))


def test_the_share_of_files_with_known_numbers(capsys):
    """Of all logs of the folder that tell steps, so many are in the table."""
    if not DATA.is_dir():
        pytest.skip(f"there is no {DATA}")
    with (DATA / "MANIFEST.tsv").open() as manifest:
        named = {row["file"] for row in csv.DictReader(manifest, delimiter="\t", quoting=csv.QUOTE_NONE)}
    known = {row["file"] for row in ROWS}

    with capsys.disabled():
        with_steps = sum(row["steps"] != "0" for row in ROWS)
        print(f"\nreal.tsv: {len(known)} of {len(named)} files; {with_steps} of them tell steps")

    assert known <= named
