"""Dashboard "Run", the pace: steps, phases, ranks, checkpoints and evaluations."""

from __future__ import annotations

from trainvitals.generate.panels import RANK, RUN, THROUGHPUT, Column, Panel, Query, Row, lines, table
from trainvitals.generate.records import TRAINING_PHASES
from trainvitals.generate.thresholds import DEFAULTS

_STEP_TIME = (
    f"sum by (run) (rate(trainvitals_step_duration_seconds_sum{{{RANK}}}[$__rate_interval]))"
    f" / (sum by (run) (rate(trainvitals_step_duration_seconds_count{{{RANK}}}[$__rate_interval])) > 0)"
)
_TIME = f"rate(trainvitals_phase_seconds_total{{{RANK}}}[$__rate_interval])"
_WAITING = _TIME.replace("rank=~", 'phase="data",rank=~')
_BUCKETS = f"trainvitals_step_duration_seconds_bucket{{{RANK}}}"
_TRAINING = TRAINING_PHASES.replace("|", ", ")

SPEED = Row(
    title="Speed",
    title_zh="速度",
    panels=(
        lines(
            ("Step time", "步时"),
            (
                "Mean time of a step, pauses for evaluation and checkpoints included.",
                "每步平均用时，含评测和检查点的停顿。",
            ),
            "s",
            (_STEP_TIME, "{{run}}"),
            minimum=0.0,
            empty=("no step of late", "近期没有训练步"),
        ),
        Panel(
            kind="heatmap",
            title="Step time, distribution",
            title_zh="步时分布",
            description="How many steps took how long; a second band is a second kind of step, or a slow rank.",
            description_zh="不同用时的步数；出现第二条带说明有另一类步，或有慢 rank。",
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
            ("Throughput", "吞吐"),
            (
                "Tokens or samples per second, all ranks together, mean over 5 minutes.",
                "每秒 token 数或样本数，所有 rank 合计，5 分钟平均。",
            ),
            "short",
            (THROUGHPUT, "{{run}} {{unit}}/s"),
            minimum=0.0,
            empty=("no tokens or samples reported", "未上报 token 或样本数"),
        ),
        lines(
            ("Phases", "阶段"),
            (
                f"Where the wall time goes. Training proper is {_TRAINING}.",
                f"时间花在哪里。真正的训练阶段：{_TRAINING}。",
            ),
            "percentunit",
            (f"sum by (phase) ({_TIME}) / ignoring (phase) group_left () (sum({_TIME}) > 0)", "{{phase}}"),
            width=12,
            stacked=True,
            minimum=0.0,
            maximum=1.0,
            empty=("no rank lives", "没有存活的 rank"),
        ),
        lines(
            ("Waiting for data, by rank", "各 rank 等待数据"),
            (
                "Share of the time that a rank waits for its next batch. One rank alone: its node or its shard.",
                "rank 等待下一批数据的时间占比。只有一个 rank 高：看它的节点或分片。",
            ),
            "percentunit",
            (f"sum by (run, rank) ({_WAITING}) / (sum by (run, rank) ({_TIME}) > 0)", "{{run}} rank {{rank}}"),
            width=12,
            thresholds=((None, "green"), (DEFAULTS.data_wait_ratio, "red")),
            minimum=0.0,
            maximum=1.0,
            empty=("no data phase", "没有数据阶段"),
        ),
    ),
)

_PER_RANK = "by (run, rank, instance)"
RANKS = Row(
    title="Ranks",
    title_zh="各 rank",
    panels=(
        table(
            ("Ranks", "Rank 列表"),
            (
                "Every rank with its state, phase and pace. A rank that is alone in a phase holds up others.",
                "每个 rank 的状态、阶段和速度。独自停在某个阶段的 rank 会拖住其他 rank。",
            ),
            Column(name="Run", name_zh="训练任务", label="run"),
            Column(name="Rank", name_zh="Rank", label="rank"),
            Column(name="Node", name_zh="节点", label="instance", link=("node", "instance")),
            Column(name="State", name_zh="状态", label="state"),
            Column(name="Phase", name_zh="阶段", label="phase"),
            Column(name="Step", name_zh="步数", expr=f"max {_PER_RANK} (trainvitals_step{{{RANK}}})", decimals=0),
            Column(
                name="Since last step",
                name_zh="距上一步",
                expr=f"max {_PER_RANK} (rank:trainvitals_step_age:seconds{{{RANK}}})",
                unit="s",
                decimals=0,
                thresholds=((None, "green"), (DEFAULTS.stall, "red")),
            ),
            Column(
                name="Step time",
                name_zh="步时",
                expr=(
                    f"sum {_PER_RANK} (rate(trainvitals_step_duration_seconds_sum{{{RANK}}}[5m]))"
                    f" / (sum {_PER_RANK} (rate(trainvitals_step_duration_seconds_count{{{RANK}}}[5m])) > 0)"
                ),
                unit="s",
            ),
            Column(name="Loss", name_zh="损失", expr=f"max {_PER_RANK} (trainvitals_loss{{{RANK}}})"),
            hidden=(
                f"max by (run, rank, instance, state) (trainvitals_rank_state{{{RANK}}} == 1)",
                f"max by (run, rank, instance, phase) (trainvitals_phase{{{RANK}}} == 1)",
            ),
        ),
        lines(
            ("Since the last step", "距上一步的时间"),
            (
                "How long ago each living rank finished a step: a line that climbs is a rank that stands still.",
                "每个存活 rank 距上次完成一步的时间：持续上升的线就是停滞的 rank。",
            ),
            "s",
            (f"rank:trainvitals_step_age:seconds{{{RANK}}}", "{{run}} rank {{rank}}"),
            width=12,
            thresholds=((None, "green"), (DEFAULTS.stall, "red")),
            minimum=0.0,
            empty=("no rank lives", "没有存活的 rank"),
        ),
        lines(
            ("Trouble", "异常步"),
            (
                "Steps with a loss that was not finite, and steps that the loss scaler skipped, per minute.",
                "每分钟损失为 NaN 或无穷的步数，以及被损失缩放跳过的步数。",
            ),
            "none",
            (
                f"60 * sum by (run) (rate(trainvitals_nonfinite_steps_total{{{RANK}}}[$__rate_interval]))",
                "{{run}} not finite",
                "{{run}} 非有限",
            ),
            (
                f"60 * sum by (run) (rate(trainvitals_skipped_steps_total{{{RANK}}}[$__rate_interval]))",
                "{{run}} skipped",
                "{{run}} 跳过",
            ),
            width=12,
            minimum=0.0,
        ),
    ),
)

CHECKPOINTS = Row(
    title="Checkpoints and evaluations",
    title_zh="检查点与评测",
    panels=(
        lines(
            ("Last checkpoint and last evaluation", "最近检查点与评测"),
            (
                "Their steps beside the step of the run: the distance is the work that a failure would cost.",
                "它们的步数与当前步数：差距就是发生故障时会丢失的工作。",
            ),
            "none",
            (f"max by (run) (trainvitals_step{{{RUN}}})", "{{run}} step", "{{run}} 步数"),
            (f"max by (run) (trainvitals_checkpoint_step{{{RUN}}})", "{{run}} checkpoint", "{{run}} 检查点"),
            (
                f"max by (run, split) (trainvitals_evaluation_step{{{RUN}}})",
                "{{run}} evaluation {{split}}",
                "{{run}} 评测 {{split}}",
            ),
            decimals=0,
        ),
        lines(
            ("Duration of a checkpoint", "检查点用时"),
            ("How long the last save took, by rank.", "最近一次保存所用时间，按 rank。"),
            "s",
            (f"trainvitals_checkpoint_duration_seconds{{{RANK}}}", "{{run}} rank {{rank}}"),
            minimum=0.0,
            empty=("no checkpoint yet", "尚无检查点"),
        ),
        lines(
            ("Checkpoints", "检查点次数"),
            ("Saves that went well and saves that failed.", "成功与失败的保存次数。"),
            "none",
            (
                f"sum by (run) (increase(trainvitals_checkpoints_total{{{RANK}}}[$__rate_interval]))",
                "{{run}} saved",
                "{{run}} 成功",
            ),
            (
                f"sum by (run) (increase(trainvitals_checkpoint_failures_total{{{RANK}}}[$__rate_interval]))",
                "{{run}} failed",
                "{{run}} 失败",
            ),
            minimum=0.0,
        ),
    ),
)
