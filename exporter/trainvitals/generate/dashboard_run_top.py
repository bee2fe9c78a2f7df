"""Dashboard "Run", the verdict: four gauges, the newest numbers, what the detectors found, the curves."""

from __future__ import annotations

from trainvitals.generate.panels import (
    GOOD_WHEN_HIGH,
    HELP,
    RANK,
    RUN,
    SIGNAL,
    THROUGHPUT,
    Panel,
    Query,
    Row,
    Thresholds,
    lines,
    recorded,
    stat,
)
from trainvitals.generate.thresholds import DEFAULTS


def _gauge(title: str, what: str, thresholds: Thresholds, empty: str) -> Panel:
    name = f"run:trainvitals_{what}:ratio"
    return Panel(
        kind="gauge",
        title=title,
        description=HELP[name],
        unit="percentunit",
        queries=(Query(expr=recorded(name), legend="{{run}}"),),
        width=6,
        height=6,
        thresholds=thresholds,
        minimum=0.0,
        maximum=1.0,
        decimals=0,
        empty=empty,
    )


BANNER = Row(
    title="",
    panels=(
        _gauge("Progress", "progress", ((None, "blue"),), "no target_steps"),
        _gauge("Learning", "learning", GOOD_WHEN_HIGH, "no step yet"),
        _gauge("Efficiency", "efficiency", GOOD_WHEN_HIGH, "not running"),
        _gauge("Health", "health", GOOD_WHEN_HIGH, "no run"),
        stat(
            "Step",
            "Number of the last optimizer step.",
            "none",
            f"max by (run) (trainvitals_step{{{RUN}}})",
            decimals=0,
            empty="no step yet",
        ),
        stat(
            "Remaining",
            HELP["run:trainvitals_remaining:seconds"],
            "s",
            recorded("run:trainvitals_remaining:seconds"),
            empty="not running, or no target_steps",
        ),
        stat(
            "Loss", "Loss of the last step, mean over the ranks.", "none", f"avg by (run) (trainvitals_loss{{{RUN}}})"
        ),
        stat("Throughput", "Tokens or samples per second, all ranks together.", "short", THROUGHPUT, decimals=1),
        stat(
            "Waiting for data",
            HELP["run:trainvitals_data_wait:ratio"],
            "percentunit",
            recorded("run:trainvitals_data_wait:ratio"),
            thresholds=((None, "green"), (0.1, "yellow"), (DEFAULTS.data_wait_ratio, "red")),
            empty="no data phase",
        ),
        stat(
            "Ranks that live",
            "Training processes that live, on all nodes.",
            "none",
            f"sum by (run) (trainvitals_rank_up{{{RUN}}})",
            thresholds=((None, "red"), (1, "green")),
            decimals=0,
        ),
    ),
)

SIGNALS = Row(
    title="Signals",
    panels=(
        Panel(
            kind="statetimeline",
            title="Signals",
            description="Each signal as a share of its threshold: green below half, yellow above, red where active.",
            unit="percentunit",
            queries=(
                Query(expr=f"max by (run, signal) (trainvitals_signal_ratio{{{RUN}}})", legend="{{run}} {{signal}}"),
            ),
            width=12,
            height=7,
            thresholds=SIGNAL,
            minimum=0.0,
            maximum=1.0,
        ),
        Panel(
            kind="table",
            title="Findings",
            description="Signals that are active now: where, since which step, and the numbers.",
            unit="none",
            queries=(Query(expr=f"trainvitals_finding_info{{{RUN}}}", instant=True, format="table"),),
            width=12,
            height=7,
            empty="nothing found",
            transformations=(
                (
                    "organize",
                    {
                        "excludeByName": {"Time": True, "Value": True, "__name__": True, "job": True},
                        "indexByName": {
                            "run": 0,
                            "signal": 1,
                            "location": 2,
                            "evidence": 3,
                            "category": 4,
                            "instance": 5,
                        },
                        "renameByName": {"instance": "node"},
                    },
                ),
            ),
        ),
    ),
)

_LOSS_AGAINST_STEP = Panel(
    kind="xychart",
    title="Loss against step",
    description=(
        "Loss over the step number. Points are those of the panels over time: what happened between two of them "
        "shows in the signals. After a rollback the line goes back."
    ),
    unit="none",
    queries=(
        Query(expr=f"max by (run) (trainvitals_step{{{RUN}}})", format="table"),
        Query(expr=f"avg by (run) (trainvitals_loss{{{RUN}}})", format="table"),
    ),
    width=12,
    transformations=(
        ("merge", {}),
        (
            "organize",
            {
                "excludeByName": {"Time": True},
                # The XY chart takes the first number as x.
                "indexByName": {"Time": 0, "run": 1, "Value #A": 2, "Value #B": 3},
                "renameByName": {"Value #A": "step", "Value #B": "loss"},
            },
        ),
        ("partitionByValues", {"fields": ["run"], "keepFields": False, "naming": {"asLabels": True}}),
    ),
)

LEARNING = Row(
    title="Learning",
    panels=(
        lines(
            "Loss",
            "Training loss of each rank; a gap is a loss that is not finite.",
            "none",
            (f"trainvitals_loss{{{RANK}}}", "{{run}} rank {{rank}}"),
            width=12,
        ),
        _LOSS_AGAINST_STEP,
        lines(
            "Learning rate",
            "Learning rate of the last step.",
            "sci",
            (f"max by (run) (trainvitals_learning_rate{{{RUN}}})", "{{run}}"),
        ),
        lines(
            "Gradient norm",
            "Gradient norm before clipping, as the training reports it. Growth before the loss jumps is instability.",
            "none",
            (f"trainvitals_grad_norm{{{RANK}}}", "{{run}} rank {{rank}}"),
            logarithmic=True,
        ),
        lines(
            "Evaluation",
            "Results of the last evaluation, by split and quantity.",
            "none",
            (f"max by (run, split, name) (trainvitals_evaluation{{{RUN}}})", "{{run}} {{split}} {{name}}"),
        ),
    ),
)
