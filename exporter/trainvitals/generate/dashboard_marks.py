"""What several dashboards share: the choices on top, and the marks over time."""

from __future__ import annotations

from trainvitals.generate.panels import NODE, RUN, Annotation, Variable

# Info series that are always there: a run without a loss or a node without a device is one too.
RUNS = Variable(
    name="run", label="Run", label_zh="训练任务", query="label_values(trainvitals_run_info, run)", everything=".+"
)
RANKS = Variable(
    name="rank",
    label="Rank",
    label_zh="Rank",
    query='label_values(trainvitals_rank_info{run=~"$run"}, rank)',
    everything=".*",
    numeric=True,
)
NODES = Variable(
    name="instance",
    label="Node",
    label_zh="节点",
    query="label_values(trainvitals_build_info, instance)",
    everything=".+",
)
DEVICES = Variable(
    name="device",
    label="Device",
    label_zh="设备",
    query='label_values(trainvitals_device_info{instance=~"$instance"}, device)',
    everything=".*",
    numeric=True,
)

STARTED = Annotation(
    name="Starts",
    name_zh="启动",
    expr=f"1000 * max by (run) (trainvitals_start_timestamp_seconds{{{RUN}}})",
    title="{{run}} started",
    title_zh="{{run}} 启动",
    text="An attempt of the run began: the first, or a restart.",
    text_zh="训练任务开始了一次尝试：首次启动或重启。",
    color="blue",
    at_value=True,
)
SAVED = Annotation(
    name="Checkpoints",
    name_zh="检查点",
    expr=f"1000 * max by (run) (trainvitals_checkpoint_timestamp_seconds{{{RUN}}})",
    title="{{run}} checkpoint",
    title_zh="{{run}} 检查点",
    text="A checkpoint was saved.",
    text_zh="已保存一个检查点。",
    color="green",
    at_value=True,
)
CHANGED = Annotation(
    name="Changes",
    name_zh="变更",
    expr=f"1000 * max by (run, kind) (trainvitals_last_change_timestamp_seconds{{{RUN}}})",
    title="{{run}} change: {{kind}}",
    title_zh="{{run}} 变更：{{kind}}",
    text="Something that the training is made of changed.",
    text_zh="训练的代码、配置、数据或环境发生了变化。",
    color="purple",
    at_value=True,
)


def _alerted(matcher: str, whose: str, whose_zh: str) -> Annotation:
    """Return the mark of our alerts that a matcher selects; ``whose`` says in words what they are about."""
    return Annotation(
        name="Alerts",
        name_zh="告警",
        expr=f'ALERTS{{{matcher},alertname=~"Trainvitals.+",alertstate="firing"}}',
        title="{{alertname}}",
        title_zh="{{alertname}}",
        text=f"{{{{severity}}}} {{{{category}}}}, {whose}",
        text_zh=f"{{{{severity}}}} {{{{category}}}}，{whose_zh}",
        color="red",
    )


ALERTED = _alerted(RUN, "run {{run}}", "训练任务 {{run}}")
NODE_ALERTED = _alerted(NODE, "node {{instance}} {{device}}", "节点 {{instance}} {{device}}")

#: Of a run.
MARKS: tuple[Annotation, ...] = (STARTED, SAVED, CHANGED, ALERTED)
