"""Dashboard "Run", the check list: six questions about the learning, each fine, to be watched, or to be acted on."""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.generate.alerts import ALERTS
from trainvitals.generate.panels import CHECKS, RUN, SIGNAL, Column, Panel, Row, stat, states, table


@dataclass(frozen=True, kw_only=True)
class Check:
    """One question, and the signals of the detectors that answer it."""

    title: str
    title_zh: str
    signals: tuple[str, ...]
    description: str
    description_zh: str


#: The same six as in the check-up (`trainvitals diagnose`); a test compares them.
SIX: tuple[Check, ...] = (
    Check(
        title="Loss hardly falls",
        title_zh="损失几乎不降",
        signals=("loss_not_falling",),
        description="The loss should fall below that of the start. Look at labels, learning rate, frozen weights.",
        description_zh="损失应低于起始水平。检查：标签、学习率、被冻结的参数。",
    ),
    Check(
        title="Loss jumps or is NaN",
        title_zh="损失突跳或 NaN",
        signals=("loss_nonfinite", "loss_collapsed", "loss_diverged", "loss_spike", "loss_drift", "gradient_anomaly"),
        description="Spikes, divergence, NaN, and gradients out of the usual. Look at the batch and the learning rate.",
        description_zh="突跳、发散、NaN 以及梯度异常。检查：该批数据、学习率。",
    ),
    Check(
        title="Training good, validation bad",
        title_zh="训练好、验证差",
        signals=("overfitting", "evaluation_mismatch", "leakage_suspected"),
        description="The validation should follow the training. Look at splits, leaks, regularization.",
        description_zh="验证应跟随训练。检查：数据划分、数据泄漏、正则化。",
    ),
    Check(
        title="New skill up, old skill down",
        title_zh="新能力升、旧能力降",
        signals=("forgetting",),
        description="Fixed benchmarks against their first values. Look at the mixture of data and the learning rate.",
        description_zh="固定基准与最初结果相比。检查：数据配比、学习率。",
    ),
    Check(
        title="Loss falls, metric does not",
        title_zh="损失降、指标不升",
        signals=("metric_decoupled",),
        description="The metric that counts should move with the loss. Look at what the loss rewards.",
        description_zh="业务指标应随损失改善。检查：损失函数与目标是否一致。",
    ),
    Check(
        title="Long effort, flat return",
        title_zh="投入长、收益平",
        signals=("plateau", "stop_loss"),
        description="What one more hour buys. Look at the schedule, or end early.",
        description_zh="再多训练一小时能换来什么。检查：学习率计划，或提前结束。",
    ),
)

#: Signals whose alert is a warning at least; the others never ask to act.
_URGENT = {alert.signal for alert in ALERTS if alert.signal and alert.severity != "info"}


def ratio(check: Check) -> str:
    """Return the largest ratio of the signals of a check; those that are mere information stay below 1."""
    urgent = [signal for signal in check.signals if signal in _URGENT]
    mild = [signal for signal in check.signals if signal not in _URGENT]
    parts = []
    if urgent:
        parts.append(f'trainvitals_signal_ratio{{{RUN},signal=~"{"|".join(urgent)}"}}')
    if mild:
        parts.append(f'clamp_max(trainvitals_signal_ratio{{{RUN},signal=~"{"|".join(mild)}"}}, 0.9)')
    return f"max by (run) ({' or '.join(parts)})"


def _tile(check: Check) -> Panel:
    return stat(
        (check.title, check.title_zh),
        (
            f"{check.description} Signals: {', '.join(check.signals)}.",
            f"{check.description_zh} 信号：{'、'.join(check.signals)}。",
        ),
        "none",
        ratio(check),
        states=CHECKS,
        thresholds=SIGNAL,
        empty=("cannot say yet", "暂无法判断"),
    )


CHECK_LIST = Row(
    title="Check list",
    title_zh="检查清单",
    panels=(
        *(_tile(check) for check in SIX),
        states(
            ("Signals", "信号"),
            (
                "Each signal as a share of its threshold: green below half, yellow above, red where active.",
                "每个信号与其阈值之比：不到一半为绿，超过一半为黄，激活为红。",
            ),
            "percentunit",
            (f"max by (run, signal) (trainvitals_signal_ratio{{{RUN}}})", "{{run}} {{signal}}"),
            width=12,
            height=8,
            thresholds=SIGNAL,
            minimum=0.0,
            maximum=1.0,
            empty=("no step yet", "尚无训练步"),
        ),
        table(
            ("Findings", "发现的问题"),
            (
                "Signals that are active now: where, since which step, and the numbers.",
                "当前激活的信号：位置、起始步和数据依据。",
            ),
            Column(name="Run", name_zh="训练任务", label="run"),
            Column(name="Signal", name_zh="信号", label="signal"),
            Column(name="Where", name_zh="位置", label="location"),
            Column(name="Evidence", name_zh="依据", label="evidence"),
            Column(name="Category", name_zh="类别", label="category"),
            Column(name="Node", name_zh="节点", label="instance", link=("node", "instance")),
            source=f"max by (run, signal, location, evidence, category, instance) (trainvitals_finding_info{{{RUN}}})",
            width=12,
            height=8,
            empty=("nothing found", "未发现问题"),
        ),
    ),
)
