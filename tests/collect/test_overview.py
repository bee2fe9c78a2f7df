"""What the page gets: gauges as the recording rules have them, the check list, events, devices; bounded and clean."""

from __future__ import annotations

import json
import math

import pytest
from tests.helpers import Node, run_trainer

from trainvitals import detect
from trainvitals.collect.faults import FaultSeen
from trainvitals.collect.overview import Overview
from trainvitals.collect.rank import Rank
from trainvitals.collect.ranks import RanksCollector
from trainvitals.collect.runs import Finding
from trainvitals.detect import Verdict, gauges
from trainvitals.generate import panels, records
from trainvitals.metrics import LOGGED_STATES
from trainvitals.telemetry import DeviceSample, Event, Identity, Step


def rank_of(number=0, *, run="demo", state="running", step=600, target=1200, world=1, uuid="", **more):
    """A rank as a poll leaves it."""
    identity = Identity(run=run, rank=number, world_size=world, target_steps=target, device_uuid=uuid)
    rank = Rank(identity, detect.build(), state=state, target_steps=target, started=100.0, heartbeat=990.0, **more)
    if step is not None:
        rank.last_step = Step(step, step, 995.0, {})
    return rank


def finding(signal, ratio, **more):
    """A verdict on a run."""
    return Finding(signal, "parameter", Verdict(ratio=ratio, **more), (0,))


def look(ranks, findings=(), *, devices=(), now=1000.0, overview=None):
    """Return what is shown of one run."""
    overview = overview or Overview(lambda: list(devices))
    overview.observe({"demo": list(ranks)}, {"demo": list(findings)}, now)
    return overview.snapshot(now)["runs"][0]


# The gauges: the cases of tests/rules/recording.yml that one node can have ------------------------------------------


def test_the_page_and_the_rules_take_the_same_phases_signals_and_colours():
    """A fact is written once; what PromQL and the panels write in their own way is compared."""
    assert records.TRAINING_PHASES.split("|") == list(gauges.TRAINING_PHASES)
    assert records.LEARNING_SIGNALS.split("|") == list(gauges.LEARNING_SIGNALS)
    assert panels.GOOD_WHEN_HIGH == ((None, "red"), (gauges.BAD, "orange"), (gauges.GOOD, "green"))
    assert panels.SIGNAL[1][0] == gauges.NOISE
    learning = next(record.expr for record in records.RECORDS if record.name == "run:trainvitals_learning:ratio")
    assert learning.startswith("clamp(2 * (1 - ")
    assert 1.0 / (1.0 - gauges.NOISE) == 2.0


def test_the_gauges_of_a_good_run():
    """Half of the way, half of a signal's threshold is still full learning, 12 of 15 seconds in training."""
    overview = Overview()
    ranks = [rank_of(0, world=2), rank_of(1, world=2, step=590)]
    findings = [finding("loss_spike", 0.5), finding("loss_nonfinite", 0.0)]
    for place in range(41):
        for rank in ranks:
            rank.phase_seconds = {"train": 12.0 * place, "data": 3.0 * place}
            rank.counters = {"steps": 15.0 * place, "tokens": 1500.0 * place}
        shown = look(ranks, findings, now=15.0 * place, overview=overview)

    assert shown["gauges"] == {"progress": 0.5, "learning": 1.0, "efficiency": 0.8, "health": 1.0}
    assert shown["rates"] == {"steps": 1.0, "tokens": 200.0}
    assert (shown["step"], shown["target"]) == (600, 1200)


def test_health_falls_with_ranks_and_with_their_devices():
    """One of two ranks died; of the device of the other nothing is heard."""
    down = DeviceSample(index=0, uuid="GPU-a", vendor="nvidia", up=False, reason="lost")
    half = look([rank_of(0), rank_of(1, state="died")])
    none = look([rank_of(0, uuid="GPU-a"), rank_of(1, state="died")], devices=[down])

    assert half["gauges"]["health"] == 0.5
    assert (half["because"]["well"], half["because"]["expected"]) == (1, 2)
    assert none["gauges"]["health"] == 0.0
    assert (none["because"]["devices_up"], none["because"]["devices"]) == (0, 1)


def test_efficiency_is_the_utilization_of_the_devices_where_that_is_smaller():
    """The mean over the last five minutes and over the devices of the run's ranks; others do not count."""
    devices = [DeviceSample(index=number, uuid=f"GPU-{number}", vendor="nvidia") for number in range(3)]
    ranks = [rank_of(number, uuid=f"GPU-{number}") for number in range(2)]
    overview = Overview(lambda: devices)
    for place in range(10):
        for number, device in enumerate(devices):
            device.set("utilization_ratio", (0.2, 0.4, 0.9)[number] + (0.1 if place % 2 else 0.0))
        for rank in ranks:
            rank.phase_seconds = {"train": 9.0 * place, "data": 1.0 * place}
        shown = look(ranks, now=1000.0 + 10.0 * place, overview=overview)

    assert shown["gauges"]["efficiency"] == pytest.approx(0.35)
    assert (shown["because"]["training"], shown["because"]["busy"]) == (0.9, 0.35)


@pytest.mark.parametrize(("ratio", "expected"), [(0.0, 1.0), (0.5, 1.0), (0.75, 0.5), (1.0, 0.0), (7.5, 0.0)])
def test_learning_falls_from_half_of_a_threshold_to_all_of_it(ratio, expected):
    """2 * (1 - ratio), between 0 and 1."""
    assert look([rank_of()], [finding("overfitting", ratio)])["gauges"]["learning"] == expected


def test_waits_and_stalls_are_not_a_matter_of_learning():
    """Resource signals and data starvation do not lower it; alone they do not show it either."""
    shown = look([rank_of()], [finding("stall", 5.0), finding("data_starvation", 5.0), finding("slowdown", 5.0)])

    assert "learning" not in shown["gauges"]


def test_what_is_not_known_is_absent():
    """A rank that reports nothing yet: no step, no progress, no learning, no efficiency."""
    shown = look([rank_of(step=None, target=None, phase_seconds={})])

    assert shown["gauges"] == {"health": 1.0}
    assert {"step", "target", "remaining"}.isdisjoint(shown)
    assert shown["values"] == {}


def test_a_silent_log_has_no_health():
    """Nothing is known of it; while it speaks, it speaks for all ranks."""
    silent = look([rank_of(state="silent", states=LOGGED_STATES, world=8)])
    speaking = look([rank_of(state="running", states=LOGGED_STATES, world=8)])

    assert "health" not in silent["gauges"]
    assert speaking["gauges"]["health"] == 1.0
    assert (speaking["because"]["expected"], speaking["is_log"]) == (1, True)


def test_ranks_that_ended_before_the_newest_attempt_do_not_count():
    """They ended before another started: progress and health are those of the attempt that lives."""
    old, new = rank_of(0, state="died", step=900), rank_of(1, step=300)
    old.heartbeat, new.started = 400.0, 500.0

    shown = look([old, new])

    assert shown["gauges"]["progress"] == 0.25
    assert shown["gauges"]["health"] == 1.0


# The rest -----------------------------------------------------------------------------------------------------------


def test_the_state_is_the_worst_of_the_ranks():
    """A rank that died is what one wants to see."""
    assert look([rank_of(0, state="finished"), rank_of(1, state="died"), rank_of(2)])["state"] == "died"


def test_the_check_list_tells_fine_watch_act_and_cannot_say():
    """Half of the threshold is a look, an active signal is an act unless it is mere information."""
    findings = [
        finding("loss_spike", 0.49),
        finding("plateau", 0.5),
        finding("loss_nonfinite", 3.0, since_step=7, evidence="since step 7: NaN", severity="critical", action="look"),
        finding("stop_loss", 1.0, evidence="as agreed", severity="info"),
    ]
    rows = {row["signal"]: row for row in look([rank_of()], findings)["signals"]}

    assert rows["loss_spike"] == {"signal": "loss_spike", "state": "fine", "ratio": 0.49}
    assert rows["plateau"] == {"signal": "plateau", "state": "watch", "ratio": 0.5}
    assert rows["loss_nonfinite"] == {
        "signal": "loss_nonfinite",
        "state": "act",
        "ratio": 3.0,
        "category": "parameter",
        "severity": "critical",
        "where": "rank 0",
        "evidence": "since step 7: NaN",
        "since": 7,
        "action": "look",
    }
    assert rows["stop_loss"]["state"] == "watch"
    assert rows["overfitting"]["state"] == "cannot_say"
    assert "evaluations" in rows["overfitting"]["needs"]
    assert list(rows)[:2] == ["stall", "straggler"]
    assert list(rows)[-2:] == ["data_error", "log_error"]


def test_events_come_once_and_the_newest_first():
    """A checkpoint, a failed one, a finding that comes and goes, a death."""
    overview, rank = Overview(), rank_of()
    rank.checkpoint = Event(500.0, "checkpoint", 400, {"seconds": 12.3456})
    look([rank], now=1000.0, overview=overview)
    rank.checkpoint_failures = 1
    found = finding("loss_nonfinite", 2.0, since_step=450, evidence="since step 450: NaN")
    look([rank], [found], now=1010.0, overview=overview)
    look([rank], [found], now=1020.0, overview=overview)
    rank.state, rank.heartbeat = "died", 1025.0
    shown = look([rank], now=1030.0, overview=overview)

    assert [(row["kind"], row.get("step"), row["time"]) for row in shown["events"]] == [
        ("over", None, 1030.0),
        ("ended", None, 1025.0),
        ("checkpoint_failed", None, 1010.0),
        ("finding", 450, 1010.0),
        ("checkpoint", 400, 500.0),
    ]
    assert shown["events"][-1]["text"] == "12.3 s"
    assert shown["events"][1] == {"time": 1025.0, "kind": "ended", "level": "act", "state": "died"}


def test_restarts_and_changes_are_events():
    """They are told by the watch of changes, in its words."""
    rank = rank_of()
    rank.changes.watch.note("attempt", 300.0, ("attempt", "0", "1"), step=120)
    rank.changes.watch.note("learning_rate", 600.0, ("learning_rate", "0.001", "0.003"), step=240)

    first, second = look([rank])["events"]

    assert first == {"time": 600.0, "kind": "change", "step": 240, "text": "learning rate 0.001 -> 0.003 at step 240"}
    assert second == {"time": 300.0, "kind": "restart", "step": 120, "text": "restart (attempt 1) at step 120"}


def test_devices_say_how_they_are_and_who_has_them():
    """What could not be read is not there; what is impossible neither."""
    good = DeviceSample(index=1, uuid="GPU-b", vendor="nvidia", name="H100")
    good.set("utilization_ratio", 0.25)
    good.set("temperature_celsius", 61.0, "gpu")
    good.set("temperature_celsius", 70.0, "memory")
    good.set("memory_used_bytes", 3.0 * 2**30)
    good.set("memory_total_bytes", 80.0 * 2**30)
    good.set("power_watts", 300.0, "instant")
    good.set("power_watts", 280.5, "average")
    good.set("power_limit_watts", 1e9)
    good.set("clock_limited", 1.0, "sw_thermal")
    good.set("clock_limited", 1.0, "idle")
    lost = DeviceSample(index=2, uuid="GPU-c", vendor="nvidia").down("lost")
    fault = FaultSeen(900.0, "2", 79, 3, "critical", "GPU fell off the bus")
    overview = Overview(lambda: [good, lost], lambda: [fault])
    overview.observe({"demo": [rank_of(5, uuid="GPU-b")]}, {}, 1000.0)

    shown = overview.snapshot(1000.0)

    assert shown["devices"] == [
        {
            "index": 1,
            "uuid": "GPU-b",
            "vendor": "nvidia",
            "name": "H100",
            "up": True,
            "utilization": 0.25,
            "temperature": 61.0,
            "memory_used": pytest.approx(3.0 * 2**30, rel=1e-3),
            "memory_total": pytest.approx(80.0 * 2**30, rel=1e-3),
            "power": 280.5,
            "slowed": ["sw_thermal"],
            "run": "demo",
            "rank": 5,
        },
        {"index": 2, "uuid": "GPU-c", "vendor": "nvidia", "name": "", "up": False, "reason": "lost"},
    ]
    assert shown["faults"] == [
        {"time": 900.0, "device": "2", "code": 79, "count": 3, "level": "act", "text": "GPU fell off the bus"}
    ]


def test_numbers_that_json_does_not_know_are_words():
    """A loss that is NaN is shown as that."""
    rank = rank_of(values={"loss": math.nan, "grad_norm": math.inf, "learning_rate": 0.00030000001})

    shown = look([rank])

    assert shown["values"] == {"loss": "nan", "learning_rate": 0.0003, "grad_norm": "inf"}
    assert "NaN" not in json.dumps(shown, default=lambda curve: curve())


def test_what_a_run_says_is_bounded_and_cleaned():
    """Thousands of runs and ranks, names of any length that turn the direction of text."""
    overview = Overview()
    ranks = {f"r{number}": [rank_of(run=f"r{number}")] for number in range(100)}
    ranks["\u202eevil\x00" + "x" * 5000] = [rank_of(number, run="evil") for number in range(500)]
    for run in ranks.values():
        run[0].curve.take([Step(number, number, 0.0, {"loss": float(number % 7)}) for number in range(5000)])
    overview.observe(ranks, {}, 1000.0)

    shown = overview.snapshot(1000.0)

    assert (len(shown["runs"]), shown["more_runs"]) == (64, 37)
    assert sum(len(run["curve"]()["steps"]) for run in shown["runs"]) <= 9600
    assert len(json.dumps(shown, default=lambda curve: curve())) < 1_000_000
    evil = Overview()
    evil.observe({"\u202eevil\x00" + "x" * 5000: [rank_of(number) for number in range(500)]}, {}, 1000.0)
    (run,) = evil.snapshot(1000.0)["runs"]
    assert run["run"] == " evil " + "x" * 250
    assert (len(run["ranks"]), run["ranks_here"]) == (64, 500)


def test_runs_that_ask_for_somebody_come_first():
    """Then those that died, then those that live, by name."""
    overview = Overview()
    runs = {
        "a-finished": [rank_of(state="finished")],
        "c-running": [rank_of()],
        "b-running": [rank_of()],
        "y-died": [rank_of(state="died")],
        "z-found": [rank_of()],
    }
    overview.observe(runs, {"z-found": [finding("loss_spike", 1.5, evidence="up")]}, 1000.0)

    names = [run["run"] for run in overview.snapshot(1000.0)["runs"]]

    assert names == ["z-found", "y-died", "b-running", "c-running", "a-finished"]


def test_a_real_training_is_shown(spool):
    """From its rank file to the page: curve, finding, event, end."""
    script = """
        import trainvitals

        trainvitals.init(target_steps=40)
        for number in range(20):
            trainvitals.step(number, loss=float("nan") if number == 15 else 4.0 - number / 8)
        trainvitals.finish()
    """
    node, overview = Node(spool), Overview()
    node.collector = RanksCollector(node.spool, node.runs, node.clock, overview=overview)
    run_trainer(script, spool)
    node.scrape()

    (run,) = overview.snapshot(node.clock())["runs"]

    assert (run["run"], run["state"], run["step"]) == ("test", "finished", 19)
    assert run["gauges"] == {"progress": 0.475, "learning": 0.0, "health": 1.0}
    curve = run["curve"]()
    assert curve["steps"] == [*range(15), *range(16, 20)]
    assert curve["values"][:3] == [4.0, 3.875, 3.75]
    assert curve["bad"] == [[15, 15]]
    assert [row["signal"] for row in run["signals"] if row["state"] == "act"] == ["loss_nonfinite"]
    assert {row["kind"] for row in run["events"]} == {"finding", "ended"}


def test_a_page_that_fails_costs_no_family(spool):
    """The families are whole, and the failure is logged once."""

    class Broken(Overview):
        def observe(self, *_):
            raise ValueError("odd")

    node = Node(spool)
    node.collector = RanksCollector(node.spool, node.runs, node.clock, overview=Broken())

    assert "trainvitals_rank_files" in node.scrape()
    assert "trainvitals_rank_files" in node.scrape()
