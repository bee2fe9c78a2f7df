"""The dashboard "Run": one training run from its four gauges down to the disks of its nodes."""

from __future__ import annotations

from trainvitals.generate.dashboard_run_nodes import DEVICES, HOST
from trainvitals.generate.dashboard_run_pace import CHECKPOINTS, RANKS, SPEED
from trainvitals.generate.dashboard_run_top import BANNER, LEARNING, SIGNALS
from trainvitals.generate.panels import RUN, Annotation, Row

UID = "trainvitals-run"
TITLE = "Run"
TAG = "trainvitals"

ROWS: tuple[Row, ...] = (BANNER, SIGNALS, LEARNING, SPEED, RANKS, CHECKPOINTS, DEVICES, HOST)

ANNOTATIONS: tuple[Annotation, ...] = (
    Annotation(
        name="Run start",
        expr=f"1000 * max by (run) (trainvitals_start_timestamp_seconds{{{RUN}}})",
        title="{{run}} started",
        text="An attempt of the run began.",
        color="blue",
        at_value=True,
    ),
    Annotation(
        name="Checkpoint",
        expr=f"1000 * max by (run) (trainvitals_checkpoint_timestamp_seconds{{{RUN}}})",
        title="{{run}} checkpoint",
        text="A checkpoint was saved.",
        color="green",
        at_value=True,
    ),
    Annotation(
        name="Alert",
        expr=f'ALERTS{{{RUN},alertname=~"Trainvitals.+",alertstate="firing"}}',
        title="{{alertname}}",
        text="{{severity}} {{category}}, run {{run}}",
        color="red",
    ),
)
