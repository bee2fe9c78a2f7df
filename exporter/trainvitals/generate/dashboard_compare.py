"""The dashboard "Compare runs": curves over the step and over tokens, finals with their differences, what differs."""

from __future__ import annotations

from trainvitals.generate.dashboard_marks import MARKS, RUNS
from trainvitals.generate.dashboard_run_top import LOSS_OF_RUN, STEP_OF_RUN
from trainvitals.generate.panels import GOOD_WHEN_HIGH, RUN, Column, Dashboard, Row, against, lines, recorded, table

_TOKENS = f"sum by (run) (max by (run, rank) (trainvitals_tokens_total{{{RUN}}}))"
_AGE = (
    f"max by (run) (trainvitals_last_step_timestamp_seconds{{{RUN}}})"
    f" - on (run) min by (run) (trainvitals_start_timestamp_seconds{{{RUN}}})"
)
_NOTHING = ("no loss reported", "未上报损失")


def _last(name: str, how: str = "max") -> str:
    """Return the newest value in the chosen time, so that runs which ended are there too."""
    return f"{how} by (run) (last_over_time({name}{{{RUN}}}[$__range]))"


_LAST_LOSS = _last("trainvitals_loss", "avg")
_VALIDATION = (
    f'max by (run, split) (trainvitals_evaluation{{{RUN},name=~".*loss.*"}})'
    f' or max by (run, split) (trainvitals_evaluation{{{RUN},name=~".*perplexity.*|.*ppl.*"}})'
)
_LAST_VALIDATION = f'min by (run) (last_over_time(trainvitals_evaluation{{{RUN},name=~".*loss.*"}}[$__range]))'

CURVES = Row(
    title="",
    title_zh="",
    panels=(
        against(
            ("Loss against step", "损失随步数"),
            (
                (
                    "A line for each run. Points are as far apart as those over time; after a rollback a line goes "
                    "back. Runs that ended show while the time range covers them."
                ),
                "每个任务一条线。点的间隔与时间序列相同；回滚后曲线会折返。已结束的任务需时间范围覆盖才显示。",
            ),
            "none",
            (STEP_OF_RUN, ("step", "步数")),
            (LOSS_OF_RUN, ("loss", "损失")),
            empty=_NOTHING,
        ),
        against(
            ("Loss against tokens", "损失随 token 数"),
            (
                "Runs with other batch sizes compare at equal tokens, not at equal steps. Counted over all attempts.",
                "批大小不同的任务应在相同 token 数下比较，而不是相同步数。跨所有尝试累计。",
            ),
            "none",
            (_TOKENS, ("tokens", "token 数")),
            (LOSS_OF_RUN, ("loss", "损失")),
            empty=("no tokens reported", "未上报 token 数"),
        ),
    ),
)

FINALS = Row(
    title="Finals and differences",
    title_zh="最终结果与差异",
    panels=(
        table(
            ("Finals", "最终结果"),
            (
                (
                    "The newest values in the chosen time. Distances are to the lowest loss of the chosen runs: "
                    "noise between seeds is of the same size, so small ones mean nothing."
                ),
                "所选时间内的最新值。差值相对所选任务中的最低损失；不同随机种子之间也有同样大小的波动，差值小不说明问题。",
            ),
            Column(name="Run", name_zh="训练任务", label="run", link=("run", "run")),
            Column(name="Step", name_zh="步数", expr=_last("trainvitals_step"), decimals=0),
            Column(
                name="Tokens",
                name_zh="token 数",
                expr=f"sum by (run) (max by (run, rank) (last_over_time(trainvitals_tokens_total{{{RUN}}}[$__range])))",
                unit="short",
            ),
            Column(name="Loss", name_zh="损失", expr=_LAST_LOSS, decimals=4),
            Column(
                name="Above the lowest",
                name_zh="高于最低",
                expr=f"{_LAST_LOSS} - on () group_left () min({_LAST_LOSS} < +Inf)",
                decimals=4,
            ),
            Column(
                name="Validation loss",
                name_zh="验证损失",
                expr=_LAST_VALIDATION,
                decimals=4,
            ),
            Column(
                name="Validation above the lowest",
                name_zh="验证高于最低",
                expr=f"{_LAST_VALIDATION} - on () group_left () min({_LAST_VALIDATION} < +Inf)",
                decimals=4,
            ),
            Column(name="Learning rate", name_zh="学习率", expr=_last("trainvitals_learning_rate"), unit="sci"),
            Column(
                name="Steps per second",
                name_zh="步/秒",
                expr=f"max by (run) (avg_over_time({recorded('run:trainvitals_steps:rate5m')}[$__range]))",
                unit="short",
            ),
            Column(
                name="Goodput",
                name_zh="有效训练占比",
                expr=f"max by (run) (avg_over_time({recorded('run:trainvitals_goodput:ratio')}[$__range]))",
                unit="percentunit",
                decimals=0,
                thresholds=GOOD_WHEN_HIGH,
            ),
            sort="Step",
        ),
        table(
            ("What they are made of", "组成"),
            (
                (
                    "Hashes of code, settings and data: where two runs have another hash, they differ in it. "
                    "One difference at a time can be judged; see `trainvitals diff`."
                ),
                "代码、配置和数据的哈希：哈希不同即该项不同。一次只改一项才能判断原因；见 `trainvitals diff`。",
            ),
            Column(name="Subject", name_zh="项目", label="subject"),
            Column(name="Run", name_zh="训练任务", label="run"),
            Column(name="Hash", name_zh="哈希", label="hash"),
            source=f"max by (subject, run, hash) (trainvitals_lineage_info{{{RUN}}})",
            width=12,
            height=8,
            empty=("not reported", "未上报"),
        ),
        table(
            ("Framework and size", "框架与规模"),
            ("With what, and on how many ranks, each run was started.", "每个任务的框架与 rank 数。"),
            Column(name="Run", name_zh="训练任务", label="run"),
            Column(name="Framework", name_zh="框架", label="framework"),
            Column(name="Ranks", name_zh="rank 数", label="world_size"),
            Column(name="Attempt", name_zh="尝试", label="attempt"),
            source=f"max by (run, framework, world_size, attempt) (trainvitals_run_info{{{RUN}}})",
            width=12,
            height=8,
            empty=("no run", "没有任务"),
        ),
    ),
)

OVER_TIME = Row(
    title="Curves",
    title_zh="曲线",
    panels=(
        lines(
            ("Validation", "验证"),
            (
                "Loss of the evaluations, else their perplexity, by split, over time.",
                "各数据集的评测损失（没有时为困惑度）随时间变化。",
            ),
            "none",
            (_VALIDATION, "{{run}} {{split}}"),
            width=12,
            height=10,
            empty=("no evaluation yet", "尚无评测"),
        ),
        against(
            ("Validation loss against step", "验证损失随步数"),
            (
                "Lowest loss of the evaluations over the step of the evaluation, a line for each run.",
                "评测中的最低损失随评测步数变化，每个任务一条线。",
            ),
            "none",
            (f"max by (run) (trainvitals_evaluation_step{{{RUN}}})", ("step", "步数")),
            (
                f'min by (run) (trainvitals_evaluation{{{RUN},name=~".*loss.*"}})',
                ("validation loss", "验证损失"),
            ),
            empty=("no evaluation yet", "尚无评测"),
        ),
        against(
            ("Loss against time in training", "损失随训练时长"),
            (
                "Time from the start of the newest attempt to the last step.",
                "从最近一次尝试启动到最近一步的时间。",
            ),
            "none",
            (_AGE, ("seconds", "秒")),
            (LOSS_OF_RUN, ("loss", "损失")),
            empty=_NOTHING,
        ),
        against(
            ("Learning rate against step", "学习率随步数"),
            ("Schedules of the chosen runs.", "所选任务的学习率计划。"),
            "sci",
            (STEP_OF_RUN, ("step", "步数")),
            (f"max by (run) (trainvitals_learning_rate{{{RUN}}})", ("learning rate", "学习率")),
            empty=("no learning rate reported", "未上报学习率"),
        ),
        lines(
            ("Gradient norm", "梯度范数"),
            ("Mean over the ranks.", "各 rank 的平均值。"),
            "none",
            (f"avg by (run) (trainvitals_grad_norm{{{RUN}}})", "{{run}}"),
            width=12,
            logarithmic=True,
            empty=("no gradient norm reported", "未上报梯度范数"),
        ),
        lines(
            ("Steps per second", "每秒步数"),
            ("Mean over 5 minutes.", "5 分钟平均。"),
            "short",
            (recorded("run:trainvitals_steps:rate5m"), "{{run}}"),
            width=12,
            minimum=0.0,
        ),
    ),
)

COMPARE = Dashboard(
    name="compare",
    title="Compare runs",
    title_zh="任务对比",
    description="Several runs beside each other: loss over the step and over tokens, finals, and what differs.",
    description_zh="多个训练任务并排对比：损失随步数与 token 数、最终结果及差异。",
    rows=(CURVES, FINALS, OVER_TIME),
    variables=(RUNS,),
    annotations=MARKS,
    span="24h",
)
