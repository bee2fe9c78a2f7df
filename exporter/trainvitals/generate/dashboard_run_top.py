"""Dashboard "Run", the verdict and the curves: four gauges, the newest numbers, loss and what moves it."""

from __future__ import annotations

from trainvitals.generate.panels import (
    GOOD_WHEN_HIGH,
    HELP,
    NEUTRAL,
    RANK,
    RUN,
    THROUGHPUT,
    WELL,
    Panel,
    Query,
    Row,
    Texts,
    Thresholds,
    against,
    lines,
    recorded,
    stat,
)
from trainvitals.generate.thresholds import DEFAULTS


def gauge(title: Texts, what: str, description_zh: str, thresholds: Thresholds, empty: Texts) -> Panel:
    """Return one of the four gauges of the chosen runs."""
    name = f"run:trainvitals_{what}:ratio"
    return Panel(
        kind="gauge",
        title=title[0],
        title_zh=title[1],
        description=HELP[name],
        description_zh=description_zh,
        unit="percentunit",
        queries=(Query(expr=recorded(name), legend="{{run}}"),),
        width=6,
        height=6,
        thresholds=thresholds,
        minimum=0.0,
        maximum=1.0,
        decimals=0,
        empty=empty[0],
        empty_zh=empty[1],
    )


BANNER = Row(
    title="",
    title_zh="",
    panels=(
        gauge(
            ("Progress", "进度"),
            "progress",
            "已完成步数与计划步数之比；没有 target_steps 时不显示。",
            NEUTRAL,
            ("no target_steps", "没有 target_steps"),
        ),
        gauge(
            ("Learning", "学习"),
            "learning",
            "所有学习类信号都低于阈值一半时为 1，到达阈值时降为 0。",
            GOOD_WHEN_HIGH,
            ("no step yet", "尚无训练步"),
        ),
        gauge(
            ("Efficiency", "效率"),
            "efficiency",
            "最近 5 分钟真正用于训练的时间占比（不含启动、数据、检查点、评测）；已知设备利用率且更小时取后者。",
            GOOD_WHEN_HIGH,
            ("not running", "未在运行"),
        ),
        gauge(
            ("Health", "健康"),
            "health",
            "运行或已完成的 rank 占应有 rank 的比例；有响应的设备占比更小时取后者。日志静默时状态未知。",
            GOOD_WHEN_HIGH,
            ("no run", "没有任务"),
        ),
        stat(
            ("Step", "步数"),
            ("Number of the last optimizer step.", "最近一次优化器更新的步数。"),
            "none",
            f"max by (run) (trainvitals_step{{{RUN}}})",
            decimals=0,
            empty=("no step yet", "尚无训练步"),
        ),
        stat(
            ("Remaining", "剩余时间"),
            (HELP["run:trainvitals_remaining:seconds"], "按最近 15 分钟的速度（含停顿）到最后一步还需的时间。"),
            "s",
            recorded("run:trainvitals_remaining:seconds"),
            empty=("not running, or no target_steps", "未在运行，或没有 target_steps"),
        ),
        stat(
            ("Loss", "损失"),
            ("Loss of the last step, mean over the ranks.", "最近一步的损失，各 rank 的平均值。"),
            "none",
            f"avg by (run) (trainvitals_loss{{{RUN}}})",
            empty=("no loss reported", "未上报损失"),
        ),
        stat(
            ("Throughput", "吞吐"),
            ("Tokens or samples per second, all ranks together.", "每秒 token 数或样本数，所有 rank 合计。"),
            "short",
            THROUGHPUT,
            decimals=1,
            legend="{{run}} {{unit}}/s",
            empty=("no tokens or samples reported", "未上报 token 或样本数"),
        ),
        stat(
            ("Waiting for data", "等待数据"),
            (HELP["run:trainvitals_data_wait:ratio"], "最近 5 分钟训练等待输入数据的时间占比。"),
            "percentunit",
            recorded("run:trainvitals_data_wait:ratio"),
            thresholds=((None, "green"), (0.1, "yellow"), (DEFAULTS.data_wait_ratio, "red")),
            empty=("no data phase", "没有数据阶段"),
        ),
        stat(
            ("Ranks that live", "存活 rank"),
            ("Training processes that live, on all nodes.", "所有节点上仍存活的训练进程数。"),
            "none",
            f"sum by (run) (trainvitals_rank_up{{{RUN}}})",
            thresholds=WELL,
            decimals=0,
            empty=("no rank known", "没有已知 rank"),
        ),
    ),
)

STEP_OF_RUN = f"max by (run) (trainvitals_step{{{RUN}}})"
LOSS_OF_RUN = f"avg by (run) (trainvitals_loss{{{RUN}}})"

LEARNING = Row(
    title="Learning",
    title_zh="学习",
    panels=(
        lines(
            ("Loss", "损失"),
            (
                "Training loss of each rank; a gap is a loss that is not finite.",
                "每个 rank 的训练损失；断开处为 NaN 或无穷。",
            ),
            "none",
            (f"trainvitals_loss{{{RANK}}}", "{{run}} rank {{rank}}"),
            width=12,
            height=10,
            empty=("no loss reported", "未上报损失"),
        ),
        against(
            ("Loss against step", "损失随步数"),
            (
                (
                    "Loss over the step number. Points are those of the panels over time: what happened between two of "
                    "them shows in the signals. After a rollback the line goes back."
                ),
                "损失随步数的变化。点的间隔与时间序列相同，两点之间发生的事看信号；回滚后曲线会折返。",
            ),
            "none",
            (STEP_OF_RUN, ("step", "步数")),
            (LOSS_OF_RUN, ("loss", "损失")),
            empty=("no loss reported", "未上报损失"),
        ),
        lines(
            ("Learning rate", "学习率"),
            ("Learning rate of the last step.", "最近一步的学习率。"),
            "sci",
            (f"max by (run) (trainvitals_learning_rate{{{RUN}}})", "{{run}}"),
            empty=("no learning rate reported", "未上报学习率"),
        ),
        lines(
            ("Gradient norm", "梯度范数"),
            (
                (
                    "Gradient norm before clipping, as the training reports it. "
                    "Growth before the loss jumps is instability."
                ),
                "训练上报的裁剪前梯度范数。损失突跳之前持续增长说明不稳定。",
            ),
            "none",
            (f"trainvitals_grad_norm{{{RANK}}}", "{{run}} rank {{rank}}"),
            logarithmic=True,
            empty=("no gradient norm reported", "未上报梯度范数"),
        ),
        lines(
            ("Evaluation", "评测"),
            (
                "Results of the last evaluation, by split and quantity.",
                "最近一次评测的结果，按数据集和指标划分。",
            ),
            "none",
            (f"max by (run, split, name) (trainvitals_evaluation{{{RUN}}})", "{{run}} {{split}} {{name}}"),
            empty=("no evaluation yet", "尚无评测"),
        ),
    ),
)
