"""Dashboard "Run", the pace: steps, phases, ranks, checkpoints and evaluations."""

from __future__ import annotations

from trainvitals.generate.panels import RANK, RUN, THROUGHPUT, Panel, Query, Row, lines
from trainvitals.generate.records import TRAINING_PHASES
from trainvitals.generate.thresholds import DEFAULTS

_STEP_TIME = (
    f"sum by (run) (rate(trainvitals_step_duration_seconds_sum{{{RANK}}}[$__rate_interval]))"
    f" / (sum by (run) (rate(trainvitals_step_duration_seconds_count{{{RANK}}}[$__rate_interval])) > 0)"
)
_TIME = f"rate(trainvitals_phase_seconds_total{{{RANK}}}[$__rate_interval])"
_WAITING = _TIME.replace("rank=~", 'phase="data",rank=~')
_BUCKETS = f"trainvitals_step_duration_seconds_bucket{{{RANK}}}"

SPEED = Row(
    title="Speed",
    panels=(
        lines(
            "Step time",
            "Mean time of a step, pauses for evaluation and checkpoints included.",
            "s",
            (_STEP_TIME, "{{run}}"),
            minimum=0.0,
        ),
        Panel(
            kind="heatmap",
            title="Step time, distribution",
            description="How many steps took how long; a second band is a second kind of step, or a slow rank.",
            unit="s",
            queries=(
                Query(
                    expr=f"sum by (le) (increase({_BUCKETS}[$__rate_interval]))",
                    legend="{{le}}",
                    format="heatmap",
                ),
            ),
        ),
        lines(
            "Throughput",
            "Tokens or samples per second, all ranks together, mean over 5 minutes.",
            "short",
            (THROUGHPUT, "{{run}} {{unit}}/s"),
            minimum=0.0,
        ),
        lines(
            "Phases",
            f"Where the wall time goes. Training proper is {TRAINING_PHASES.replace('|', ', ')}.",
            "percentunit",
            (f"sum by (phase) ({_TIME}) / ignoring (phase) group_left () (sum({_TIME}) > 0)", "{{phase}}"),
            width=12,
            stacked=True,
            minimum=0.0,
            maximum=1.0,
        ),
        lines(
            "Waiting for data, by rank",
            "Share of the time that a rank waits for its next batch. One rank alone: its node or its shard.",
            "percentunit",
            (f"sum by (run, rank) ({_WAITING}) / (sum by (run, rank) ({_TIME}) > 0)", "{{run}} rank {{rank}}"),
            width=12,
            thresholds=((None, "green"), (DEFAULTS.data_wait_ratio, "red")),
            minimum=0.0,
            maximum=1.0,
            empty="no data phase",
        ),
    ),
)

_PER_RANK = "by (run, rank, instance)"
RANKS = Row(
    title="Ranks",
    panels=(
        Panel(
            kind="table",
            title="Ranks",
            description="Every rank with its state, phase and pace. A rank that is alone in a phase holds up others.",
            unit="none",
            queries=tuple(
                Query(expr=expr, instant=True, format="table")
                for expr in (
                    f"max by (run, rank, instance, state) (trainvitals_rank_state{{{RANK}}} == 1)",
                    f"max by (run, rank, instance, phase) (trainvitals_phase{{{RANK}}} == 1)",
                    f"max {_PER_RANK} (trainvitals_step{{{RANK}}})",
                    f"max {_PER_RANK} (rank:trainvitals_step_age:seconds{{{RANK}}})",
                    (
                        f"sum {_PER_RANK} (rate(trainvitals_step_duration_seconds_sum{{{RANK}}}[5m]))"
                        f" / (sum {_PER_RANK} (rate(trainvitals_step_duration_seconds_count{{{RANK}}}[5m])) > 0)"
                    ),
                    f"max {_PER_RANK} (trainvitals_loss{{{RANK}}})",
                )
            ),
            width=24,
            height=9,
            transformations=(
                ("merge", {}),
                (
                    "organize",
                    {
                        "excludeByName": {"Time": True, "Value #A": True, "Value #B": True},
                        "indexByName": {
                            name: place
                            for place, name in enumerate(
                                (
                                    "run",
                                    "rank",
                                    "instance",
                                    "state",
                                    "phase",
                                    "Value #C",
                                    "Value #D",
                                    "Value #E",
                                    "Value #F",
                                )
                            )
                        },
                        "renameByName": {
                            "instance": "node",
                            "Value #C": "step",
                            "Value #D": "since last step",
                            "Value #E": "step time",
                            "Value #F": "loss",
                        },
                    },
                ),
            ),
            overrides={
                "since last step": {"unit": "s", "decimals": 0},
                "step time": {"unit": "s"},
                "step": {"decimals": 0},
            },
        ),
        lines(
            "Since the last step",
            "How long ago each living rank finished a step: a line that climbs is a rank that stands still.",
            "s",
            (f"rank:trainvitals_step_age:seconds{{{RANK}}}", "{{run}} rank {{rank}}"),
            width=12,
            thresholds=((None, "green"), (DEFAULTS.stall, "red")),
            minimum=0.0,
        ),
        lines(
            "Trouble",
            "Steps with a loss that was not finite, and steps that the loss scaler skipped, per minute.",
            "none",
            (
                f"60 * sum by (run) (rate(trainvitals_nonfinite_steps_total{{{RANK}}}[$__rate_interval]))",
                "{{run}} not finite",
            ),
            (
                f"60 * sum by (run) (rate(trainvitals_skipped_steps_total{{{RANK}}}[$__rate_interval]))",
                "{{run}} skipped",
            ),
            width=12,
            minimum=0.0,
        ),
    ),
)

CHECKPOINTS = Row(
    title="Checkpoints and evaluations",
    panels=(
        lines(
            "Last checkpoint and last evaluation",
            "Their steps beside the step of the run: the distance is the work that a failure would cost.",
            "none",
            (f"max by (run) (trainvitals_step{{{RUN}}})", "{{run}} step"),
            (f"max by (run) (trainvitals_checkpoint_step{{{RUN}}})", "{{run}} checkpoint"),
            (f"max by (run, split) (trainvitals_evaluation_step{{{RUN}}})", "{{run}} evaluation {{split}}"),
            decimals=0,
        ),
        lines(
            "Duration of a checkpoint",
            "How long the last save took, by rank.",
            "s",
            (f"trainvitals_checkpoint_duration_seconds{{{RANK}}}", "{{run}} rank {{rank}}"),
            minimum=0.0,
            empty="no checkpoint yet",
        ),
        lines(
            "Checkpoints",
            "Saves that went well and saves that failed.",
            "none",
            (f"sum by (run) (increase(trainvitals_checkpoints_total{{{RANK}}}[$__rate_interval]))", "{{run}} saved"),
            (
                f"sum by (run) (increase(trainvitals_checkpoint_failures_total{{{RANK}}}[$__rate_interval]))",
                "{{run}} failed",
            ),
            minimum=0.0,
        ),
    ),
)
