"""Families about runs and ranks, from rank files and from logs that are followed."""

from __future__ import annotations

from trainvitals.metrics.family import Family, rows

#: The states of a rank with the probe, and of one that is known from a log: where nothing tells whether the process
#: lives, it can be silent, but nobody can say that it died.
PROBED_STATES = ("running", "finished", "failed", "died")
LOGGED_STATES = ("running", "finished", "silent", "failed")

_RUN = ("run",)
_RANK = ("run", "rank")

FAMILIES: tuple[Family, ...] = (
    Family(
        name="trainvitals_run_info",
        type="gauge",
        labels=("run", "attempt", "framework", "world_size"),
        help="A run with a rank or a log on this node: its newest attempt, its framework and its number of ranks.",
        source="ranks",
    ),
    Family(
        name="trainvitals_rank_info",
        type="gauge",
        labels=("run", "rank", "local_rank", "node_rank", "attempt", "uuid", "pci_bus_id"),
        help="A rank and, when the process told it, the device that it computes on; join device series with it.",
        source="ranks",
    ),
    *rows(
        "ranks",
        _RANK,
        (
            "rank_up",
            "gauge",
            "1 while the training process lives, 0 when it has ended; absent for a silent log.",
        ),
        (
            "rank_state",
            "gauge",
            "1 for the state of the rank: running, finished, silent, failed or died.",
            "state",
        ),
        ("probe_disabled", "gauge", "1 when the probe switched itself off after errors of its own."),
        ("probe_errors_total", "counter", "Errors inside the probe; the training never sees them."),
        ("probe_dropped_total", "counter", "Values and events that the probe could not take."),
        ("start_timestamp_seconds", "gauge", "When the current attempt of this rank started."),
        ("step", "gauge", "Number of the last optimizer step."),
        ("target_steps", "gauge", "Planned number of steps of the run."),
        ("steps_total", "counter", "Optimizer steps done, over all attempts seen."),
        ("last_step_timestamp_seconds", "gauge", "When the last optimizer step ended."),
        ("heartbeat_timestamp_seconds", "gauge", "When the training last called the probe, or its log last grew."),
        (
            "step_duration_seconds",
            "histogram",
            "Time from the end of one step to the end of the next, pauses for evaluation and checkpoints included.",
        ),
        ("skipped_steps_total", "counter", "Steps that the loss scaler skipped."),
        ("nonfinite_steps_total", "counter", "Steps whose loss was NaN or infinite."),
        ("samples_total", "counter", "Samples trained on by this rank."),
        ("tokens_total", "counter", "Tokens trained on by this rank."),
        ("batches_total", "counter", "Batches that the watched data loaders handed out."),
        ("batch_samples_total", "counter", "Samples in these batches, as far as their number could be seen."),
        ("batch_bytes_total", "counter", "Bytes of the arrays in these batches."),
        ("data_errors_total", "counter", "Samples and batches that could not be read or that a check complained of."),
        ("loss", "gauge", "Training loss of the last step that reported one; NaN when it was NaN."),
        ("learning_rate", "gauge", "Learning rate of the last step that reported one."),
        ("grad_norm", "gauge", "Gradient norm of the last step that reported one."),
        ("value", "gauge", "Last value of any other quantity that the training reports.", "name"),
        ("phase", "gauge", "1 for the phase that the rank is in.", "phase"),
        (
            "phase_seconds_total",
            "counter",
            "Wall time spent in each phase; all phases add up to the wall time.",
            "phase",
        ),
        ("checkpoint_step", "gauge", "Step of the last checkpoint that was saved."),
        ("checkpoint_timestamp_seconds", "gauge", "When the last checkpoint was saved."),
        ("checkpoint_duration_seconds", "gauge", "How long the last save of a checkpoint took."),
        ("checkpoints_total", "counter", "Checkpoints saved."),
        ("checkpoint_failures_total", "counter", "Checkpoints whose save raised an exception."),
        ("events_total", "counter", "Events that the training reported, by kind.", "kind"),
    ),
    Family(
        name="trainvitals_evaluation",
        type="gauge",
        labels=("run", "rank", "split", "name"),
        help="Result of the last evaluation on a split, by the name of the quantity.",
        source="ranks",
    ),
    Family(
        name="trainvitals_evaluation_step",
        type="gauge",
        labels=("run", "rank", "split"),
        help="Step of the last evaluation on a split.",
        source="ranks",
    ),
    *rows(
        "ranks",
        _RUN,
        ("world_size", "gauge", "Ranks that the newest attempt of the run was started with."),
        (
            "eta_seconds",
            "gauge",
            "Time that is left after the last step, pauses included: with this probability it will be less.",
            "probability",
        ),
        ("signal_ratio", "gauge", "Statistic of a signal over its threshold: 1 or more is active.", "signal"),
    ),
    Family(
        name="trainvitals_signal_statistic",
        type="gauge",
        labels=("run", "signal", "statistic"),
        help="The numbers behind a signal.",
        source="ranks",
    ),
    Family(
        name="trainvitals_finding_info",
        type="gauge",
        labels=("run", "signal", "category", "severity", "location", "evidence"),
        help="A signal that is active: where, since which step and with which numbers.",
        source="ranks",
    ),
    *rows(
        "ranks",
        (),
        ("rank_files", "gauge", "Rank files that are being read."),
        ("rank_files_rejected", "gauge", "Files in the spool that cannot be used now, by reason.", "reason"),
        ("records_lost_total", "counter", "Step records that were overwritten before they were read."),
        ("records_invalid_total", "counter", "Step records and states whose checksum was wrong."),
        (
            "values_rejected_total",
            "counter",
            "Values that were dropped because they are impossible, by family.",
            "family",
        ),
        ("labels_cleaned_total", "counter", "Label values that were cut or cleaned."),
        ("event_lines_rejected_total", "counter", "Lines of events files that are not an event."),
    ),
)
