"""The check-up of real logs, where those are at hand: every file gives a report or is told to hold none."""

from __future__ import annotations

import csv
import json

import pytest
from tests.follow.test_real import DATA

from trainvitals import detect
from trainvitals.diagnose.document import as_json
from trainvitals.diagnose.page import as_html
from trainvitals.diagnose.read import read
from trainvitals.diagnose.report import make


@pytest.mark.no_cover
def test_every_log_is_checked(capsys):
    """No detector, plot or document fails at any of them; how many tell anything is printed."""
    if not DATA.is_dir():
        pytest.skip(f"there is no {DATA}")
    with (DATA / "MANIFEST.tsv").open() as manifest:
        files = [row["file"] for row in csv.DictReader(manifest, delimiter="\t", quoting=csv.QUOTE_NONE)]
    runs = steps = 0
    failed = []
    for name in files:
        report = make(read([str(DATA / name)], detect.build))
        runs += bool(report.runs)
        steps += any(run.case.steps for run in report.runs)
        failed += [(name, complaint) for run in report.runs for complaint in run.case.complaints]
        document = json.loads(as_json(report))
        assert len(report.runs) == len(document["runs"])
        assert as_html(report).endswith("</html>\n")

    with capsys.disabled():
        print(f"\ndiagnose: {len(files)} files, {runs} of them tell of a run, {steps} tell steps")
    assert [] == failed
