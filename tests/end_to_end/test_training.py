"""The whole way: a real torchrun training, the exporter, Prometheus, Alertmanager, a mail and a webhook call."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import psutil
import pytest
from tests.end_to_end.stack import Stack, fetch, until

pytestmark = pytest.mark.end_to_end

ROOT = Path(__file__).parents[2]
STEPS = 1200
BAD_STEP = 700


@pytest.fixture(scope="session")
def newest(tmp_path_factory):
    """Prometheus and Alertmanager of Debian's unstable suite, unpacked beside the system's."""
    tool = ROOT.parent / "shared" / "tools" / "debian-suite"
    if not tool.exists():
        pytest.skip("no tool here that unpacks a newer Debian suite")
    folder = tmp_path_factory.mktemp("sid")
    command = [str(tool), "sid", str(folder), "prometheus", "promtool", "prometheus-alertmanager"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        pytest.skip(f"Debian's unstable suite cannot be had: {done.stderr.strip()[-200:]}")
    version = subprocess.run([folder / "usr/bin/prometheus", "--version"], capture_output=True, text=True, check=False)
    print("newest:", (version.stdout or version.stderr).splitlines()[0])
    return folder / "usr" / "bin"


@pytest.fixture(params=["system", pytest.param("newest", marks=pytest.mark.newest)])
def stack(request, tmp_path):
    """The stack, once with the system's programs and once with Debian's newest."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    programs = None
    if request.param == "newest":
        programs = request.getfixturevalue("newest")
    elif not (shutil.which("prometheus") and (shutil.which("prometheus-alertmanager") or shutil.which("alertmanager"))):
        pytest.skip("Prometheus or Alertmanager is not installed")
    with Stack(tmp_path, programs, flags=["--simulate-devices=2"]) as running:
        yield running


def test_one_bad_step_reaches_mail_and_webhook_and_a_healthy_run_reaches_nobody(stack):
    """A loss that is NaN in one step between two scrapes is mailed with run, rank, step and action; nothing else is."""
    bad = stack.train("broken", STEPS=str(STEPS), BAD_STEP=str(BAD_STEP), BAD_RANK="1", PACE="0.03")
    good = stack.train("healthy", STEPS=str(STEPS), PACE="0.03")
    until(lambda: stack.value('max(trainvitals_step{run="broken"})'), what="the first steps")

    message = until(
        lambda: [text for text in stack.mailbox.texts() if "TrainvitalsLossNonfinite" in text or "NaN" in text],
        seconds=180,
        what="the mail",
    )[0]
    alert = until(
        lambda: [alert for alert in stack.webhook.alerts() if alert["labels"]["run"] == "broken"], what="the webhook"
    )[0]
    check_queries_of_dashboard(stack)
    for child, run in ((bad, "broken"), (good, "healthy")):
        assert child.wait(timeout=180) == 0, stack.log(f"train-{run}")
    until(lambda: stack.value('sum(trainvitals_rank_state{state="finished"})') == 4, what="the clean ends")

    for text in ("broken", "rank 1", f"step {BAD_STEP}", "NaN"):
        assert text in message
    assert "TrainvitalsLossNonfinite" == alert["labels"]["alertname"]
    assert "parameter" == alert["labels"]["category"]
    assert "critical" == alert["labels"]["severity"]
    assert "rank 1" in alert["annotations"]["description"]
    assert f"step {BAD_STEP}" in alert["annotations"]["description"]
    assert alert["annotations"]["action"] in " ".join(message.split())
    assert stack.value('sum(trainvitals_nonfinite_steps_total{run="broken"})') == 1
    assert stack.value('sum(trainvitals_nonfinite_steps_total{run="healthy"})') == 0
    assert stack.value("sum(trainvitals_steps_total)") == 4 * STEPS
    assert {"TrainvitalsLossNonfinite"} == {alert["labels"]["alertname"] for alert in stack.webhook.alerts()}
    assert not [text for text in stack.mailbox.texts() if "healthy" in text]


#: Queries of the dashboard that find nothing of these two runs, with the reason.
EMPTY = {
    "run/Check list/New skill up, old skill down": "no fixed benchmarks are evaluated",
    "run/Check list/Loss falls, metric does not": "too few evaluations to judge a metric",
    "run/annotation/Changes": "nothing is changed",
}


def check_queries_of_dashboard(stack):
    """Every query of the dashboard returns data on this Prometheus, but for the few with a reason."""
    from trainvitals.generate.dashboard import queries

    until(lambda: stack.value("count(trainvitals_evaluation)") == 4, what="an evaluation")
    empty = []
    for title, query in queries("run", run="broken|healthy"):
        if title in EMPTY:
            continue
        try:
            until(lambda query=query: stack.query(query), seconds=15, what=title)
        except AssertionError:
            empty.append(f"{title}: {query}")
    assert not empty, "\n".join(empty)


def test_a_killed_rank_is_a_death_and_costs_nothing_else(stack):
    """SIGKILL of one rank is seen as a death within seconds; the alert names it."""
    child = stack.train("killed", STEPS="100000", PACE="0.03")
    until(lambda: stack.value('min(trainvitals_step{run="killed"})'), what="the first steps")
    ranks = [
        rank for rank in psutil.Process(child.pid).children(recursive=True) if "trainer.py" in " ".join(rank.cmdline())
    ]
    ranks[0].kill()

    alert = until(
        lambda: [a for a in stack.webhook.alerts() if a["labels"]["alertname"] == "TrainvitalsRankDied"],
        seconds=90,
        what="the alert",
    )[0]
    child.wait(timeout=60)

    assert "killed" == alert["labels"]["run"]
    assert "resource" == alert["labels"]["category"]
    assert "trainvitals_host_memory_available_bytes" in fetch(f"{stack.exporter}/metrics")
