"""Recording rules: the four gauges of each run, from 0 to 1, and the few numbers that the dashboard shows beside them.

A run can have ranks on several nodes, and after a move to another node the old one still shows the ended attempt.
So everything is taken over ranks of the newest attempt, and each rank counts once.
Names are level:metric:operation.
At 10,000 ranks a series of each costs every rule that looks at it some hundredths of a second (docs/fleet.md).  So what
several rules need of each rank is recorded once, and alerts that may come an evaluation later go by that.
"""

from __future__ import annotations

from trainvitals.detect import gauges
from trainvitals.generate.rules import MINUTE, Record, indent, tidy

#: What identifies a rank in one exporter.
RANK = "on (job, instance, run, rank)"

#: As matchers; see :mod:`trainvitals.detect.gauges`, which says the same of one node.
TRAINING_PHASES = "|".join(gauges.TRAINING_PHASES)
LEARNING_SIGNALS = "|".join(gauges.LEARNING_SIGNALS)

#: When the newest attempt of each run began; ranks of one start minutes apart.
START = "run:trainvitals_start_timestamp_seconds:max"
#: Ranks of the newest attempt: they live, or they ended after its start.
CURRENT = tidy(
    """
    trainvitals_rank_up == 1
    or
    trainvitals_heartbeat_timestamp_seconds
      >= on (run) group_left () max by (run) (trainvitals_start_timestamp_seconds)
    """
)

#: The same, recorded; in another group of rules it is that of the evaluation before.
CURRENT_RANKS = "rank:trainvitals_newest_attempt:bool"
#: How many of these ended in a state that is no good end.
ENDED = "run:trainvitals_ranks_ended:count"
#: How many ranks are shown, by any exporter.
SHOWN = "run:trainvitals_ranks_shown:count"
#: The target of a run, and the step of the newest attempt.
TARGET = "run:trainvitals_target_steps:max"
STEP = "run:trainvitals_step:max"
#: What a failure would cost.
UNSAVED = "run:trainvitals_unsaved:seconds"
#: Seconds per second of each phase, over all ranks.
PHASES = "run:trainvitals_phase_seconds:rate5m"
STEP_AGE = "rank:trainvitals_step_age:seconds"
PACE = "run:trainvitals_steps:rate5m"
DATA_WAIT = "run:trainvitals_data_wait:ratio"


def ranks_in(states: str, run: str = "") -> str:
    """Return the ranks of the newest attempt that are in one of some states; ``run`` is a matcher more."""
    selector = f'state=~"{states}"{run}'
    return f"(trainvitals_rank_state{{{selector}}} == 1)\nand {RANK} (\n{indent(CURRENT)}\n)"


def step_age(matchers: str = "") -> str:
    """Return the seconds since the last step, or since the start while there is none, of each rank that lives.

    Both times come from the node's clock, so the clock of Prometheus does not matter.  What a log says may be buffered
    for long: there the seconds go to the newest datum, and not to now.
    """
    body = "{" + matchers + "}" if matchers else ""
    begun = f"(trainvitals_last_step_timestamp_seconds{body} or trainvitals_start_timestamp_seconds{body})"
    return tidy(
        f"""
        (
          trainvitals_log_newest_timestamp_seconds - on (job, instance, run) group_right () {begun}
          or
          trainvitals_snapshot_timestamp_seconds - on (job, instance) group_right () {begun}
        )
        and {RANK} (trainvitals_rank_up == 1)
        """
    )


def _by_device(expr: str) -> str:
    """Return the mean of a device series over the devices that the living ranks of a run compute on.

    By uuid alone: another exporter may read the devices than the one that reads the ranks.
    """
    return tidy(
        f"""
        avg by (run) (
          (trainvitals_rank_info{{uuid!=""}} and {RANK} trainvitals_rank_up == 1)
          * on (uuid) group_left ()
          max by (uuid) ({expr})
        )
        """
    )


def _smaller(one: str, other: str) -> str:
    """Return the smaller of two ratios per run, or the one that is there."""
    labelled = [
        f'label_replace(\n{indent(expr)},\n  "part", "{part}", "", ""\n)' for part, expr in enumerate((one, other))
    ]
    return f"min by (run) (\n{indent(labelled[0])}\n  or\n{indent(labelled[1])}\n)"


def _share_of_phases(phases: str) -> str:
    """Return the share of the last five minutes that went into some phases; ranks that ended do not count."""
    return f'sum by (run) ({PHASES}{{phase=~"{phases}"}}) / (sum by (run) ({PHASES}) > 0)'


# By the node's clock or the log's, and up to the last step, so that a stall adds none.
_UNSAVED = f"""
max by (run) (trainvitals_last_step_timestamp_seconds)
- on (run)
(
  max by (run) (trainvitals_checkpoint_timestamp_seconds) > {START}
  or
  {START}
)
"""

# The few that ended so are found first, and only they are joined.
_ENDED = f"""
count by (run, state) (
  (trainvitals_rank_state{{state=~"died|failed"}} == 1)
  and {RANK} trainvitals_heartbeat_timestamp_seconds >= on (run) group_left () {START}
)
"""

_RANKS_WELL = f"""
clamp_max(
  (
    count by (run) (count by (run, rank) (
      (trainvitals_rank_state{{state=~"running|finished"}} == 1) and {RANK} {CURRENT_RANKS}
    ))
    or 0 * max by (run) (trainvitals_world_size)
  )
  / ((
    max by (run) (trainvitals_world_size) unless on (run) trainvitals_log_info
    or max by (run) (trainvitals_log_info)
  ) > 0),
  1
)
unless on (run) trainvitals_rank_state{{state="silent"}} == 1
"""

_TRAINING_TIME = _share_of_phases(TRAINING_PHASES)

_GOODPUT = f"""
clamp_max(
  sum by (run) ({PHASES}{{phase=~"{TRAINING_PHASES}"}})
  / (max by (run) (trainvitals_world_size) > 0),
  1
)
and on (run) trainvitals_rank_state{{state!="finished"}} == 1
"""

#: A group is evaluated from above to below, so what others need stands first.  What goes over minutes is recorded once
#: a minute: at 10,000 ranks that is most of what all recordings take.
RECORDS: tuple[Record, ...] = (
    Record(
        name=START,
        expr="max by (run) (trainvitals_start_timestamp_seconds)",
        help="When the newest attempt of the run began: the last of its ranks.",
    ),
    Record(
        name=CURRENT_RANKS,
        expr=f"""
        (
          trainvitals_rank_up == 1
          or
          trainvitals_heartbeat_timestamp_seconds >= on (run) group_left () {START}
        ) ^ 0
        """,
        help="1 for each rank of the newest attempt of a run: it lives, or ended after that attempt's start.",
        labels=("job", "instance", "run", "rank"),
    ),
    Record(
        name=ENDED,
        expr=_ENDED,
        help="Ranks of the newest attempt that died or failed; absent while there is none.",
        labels=("run", "state"),
    ),
    Record(
        name=SHOWN,
        expr="count by (run) (count by (run, rank) (trainvitals_rank_up))",
        help="Ranks of the run that any exporter shows.",
    ),
    Record(
        name=TARGET,
        expr="max by (run) (trainvitals_target_steps)",
        help="Planned number of steps of the run.",
    ),
    Record(
        name=STEP,
        expr=f"max by (run) (trainvitals_step and {RANK} {CURRENT_RANKS})",
        help="Last step of the newest attempt of the run.",
    ),
    Record(
        name=UNSAVED,
        every=MINUTE,
        expr=_UNSAVED,
        help="Time from the newest checkpoint of the run, or from its start, to its last step: what a failure costs.",
    ),
    Record(
        name=PHASES,
        every=MINUTE,
        expr="sum by (run, phase) (max by (run, rank, phase) (rate(trainvitals_phase_seconds_total[5m])))",
        help="Seconds that the ranks of a run spend in each phase, per second of the last 5 minutes.",
        labels=("run", "phase"),
    ),
    Record(
        name="run:trainvitals_progress:ratio",
        expr=f"clamp_max({STEP} / ({TARGET} > 0), 1)",
        help="Gauge progress: steps done over steps planned; absent without target_steps.",
    ),
    Record(
        name="run:trainvitals_learning:ratio",
        expr=f'clamp(2 * (1 - max by (run) (trainvitals_signal_ratio{{signal=~"{LEARNING_SIGNALS}"}})), 0, 1)',
        help=(
            "Gauge learning: 1 while every learning signal is below half of its threshold, falling to 0 at the "
            "threshold; "
            "the noise of a good run moves signals below the half."
        ),
    ),
    Record(
        name="run:trainvitals_efficiency:ratio",
        every=MINUTE,
        expr=_smaller(_TRAINING_TIME, _by_device("avg_over_time(trainvitals_device_utilization_ratio[5m])")),
        help=(
            "Gauge efficiency: share of the last 5 minutes in training proper (not start, data, checkpoint, "
            "evaluation); "
            "or the utilization of the ranks' devices, where known and smaller."
        ),
    ),
    Record(
        name="run:trainvitals_health:ratio",
        every=MINUTE,
        expr=_smaller(_RANKS_WELL, _by_device("trainvitals_device_up")),
        help=(
            "Gauge health: ranks that run or finished over ranks expected, or the share of their devices that answer "
            "where smaller; ranks on nodes that are not scraped count as missing. "
            "The log of a run speaks for all its ranks; of a silent one nothing is known."
        ),
    ),
    Record(
        name=PACE,
        every=MINUTE,
        expr="max by (run) (rate(trainvitals_steps_total[5m]))",
        help="Steps per second.",
    ),
    Record(
        name="run:trainvitals_tokens:rate5m",
        every=MINUTE,
        expr="sum by (run) (max by (run, rank) (rate(trainvitals_tokens_total[5m])))",
        help="Tokens per second, all ranks together.",
    ),
    Record(
        name="run:trainvitals_samples:rate5m",
        every=MINUTE,
        expr="sum by (run) (max by (run, rank) (rate(trainvitals_samples_total[5m])))",
        help="Samples per second, all ranks together.",
    ),
    Record(
        name="run:trainvitals_remaining:seconds",
        every=MINUTE,
        # deriv, not rate: over a young series rate() divides by the whole window and promises too long a time.
        expr=f"""
        clamp_min({TARGET} - {STEP}, 0)
        / (max by (run) (deriv(trainvitals_step[15m]) and {RANK} trainvitals_rank_up == 1) > 0)
        """,
        help="Seconds until the last step, at the pace of the last 15 minutes, pauses included.",
    ),
    Record(
        name=DATA_WAIT,
        every=MINUTE,
        expr=_share_of_phases("data"),
        help="Share of the last 5 minutes that the training waited for its input.",
    ),
    Record(
        name="run:trainvitals_goodput:ratio",
        every=MINUTE,
        expr=_GOODPUT,
        help=(
            "Goodput: of the time of all ranks that the run was started with, the share of the last 5 minutes in "
            "training proper; ranks that died or failed count as lost until a restart. "
            "Absent once every rank finished, while no exporter shows the run, and for logs. "
            "Work that is done again after a restart counts twice."
        ),
    ),
    Record(
        name="run:trainvitals_checkpoint_step:max",
        every=MINUTE,
        expr="max by (run) (trainvitals_checkpoint_step)",
        help="Step of the newest checkpoint of the run.",
    ),
    Record(
        name=STEP_AGE,
        every=MINUTE,
        expr=step_age(),
        help="Seconds since the last step of a rank that lives, or since its start while there is none.",
        labels=("job", "instance", "run", "rank"),
    ),
)
