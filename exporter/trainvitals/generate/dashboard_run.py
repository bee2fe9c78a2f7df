"""The dashboard "Run": one training run from its four gauges down to the disks of its nodes."""

from __future__ import annotations

from trainvitals.generate.dashboard_marks import MARKS, RANKS, RUNS
from trainvitals.generate.dashboard_run_checks import CHECK_LIST
from trainvitals.generate.dashboard_run_nodes import DEVICES, HOST
from trainvitals.generate.dashboard_run_pace import CHECKPOINTS, SPEED
from trainvitals.generate.dashboard_run_pace import RANKS as RANK_ROW
from trainvitals.generate.dashboard_run_top import BANNER, LEARNING
from trainvitals.generate.panels import Dashboard

RUN_IN_FULL = Dashboard(
    name="run",
    title="Run",
    title_zh="训练任务",
    description="One training run, from its four gauges down to the disks of its nodes.",
    description_zh="一个训练任务：从四个仪表到所在节点的磁盘。",
    rows=(BANNER, CHECK_LIST, LEARNING, SPEED, RANK_ROW, CHECKPOINTS, DEVICES, HOST),
    variables=(RUNS, RANKS),
    annotations=MARKS,
)
