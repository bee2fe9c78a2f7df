"""Alerts of what the training loss says beside spikes and NaN.  A plateau is an answer, and tells nobody at night."""

from __future__ import annotations

from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import active, findings

LEARNING: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsLossNotFalling",
        file="parameter",
        category="parameter",
        severity="warning",
        gauge="learning",
        signal="loss_not_falling",
        expr=active("loss_not_falling"),
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: the loss does not fall",
        summary_zh="训练 {{ $labels.run }}：损失没有下降",
        description=findings("loss_not_falling", "The run has not learnt since it began") + ".",
        description_zh=findings("loss_not_falling", "训练开始以来模型没有学到东西") + "。",
        action=(
            "Data first: see that inputs and labels belong together, and that labels are not all alike. "
            "Parameters: try a learning rate three times as high, and one a tenth as high; see that the optimizer has "
            "the weights and that none is frozen. "
            "Model: train on one batch until its loss is near 0; where that fails, look at the initialisation and for "
            "dead units."
        ),
        action_zh=(
            "先查数据：确认输入与标签对应，且标签不全相同。"
            "再查参数：分别试三倍和十分之一的学习率；确认优化器持有权重且没有被冻结。"
            "后查模型：只用一个批次训练到损失接近 0；做不到则检查初始化和失活单元。"
        ),
        impact="All device time of this run is spent for nothing.",
        impact_zh="该训练占用的设备时间全部白费。",
        diagnosis="The statistic `fall` is the share of the first loss that is gone, `level` where it stands.",
        diagnosis_zh="统计量 `fall` 是损失相对初值下降的比例，`level` 是当前水平。",
    ),
    Alert(
        name="TrainvitalsLossDiverged",
        file="parameter",
        category="parameter",
        severity="critical",
        gauge="learning",
        signal="loss_diverged",
        expr=active("loss_diverged"),
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: the loss is far above what it was",
        summary_zh="训练 {{ $labels.run }}：损失远高于此前水平",
        description=findings("loss_diverged", "The loss has left the level that it had reached and does not come back")
        + ".",
        description_zh=findings("loss_diverged", "损失偏离已达到的水平且没有恢复") + "。",
        action=(
            "Data first: look at what the batches since that step were made of. "
            "Parameters: go back to the newest checkpoint before that step, with half the learning rate, a longer "
            "warm-up and gradients clipped to norm 1. "
            "Model: look at the norms of activations and logits."
        ),
        action_zh=(
            "先查数据：检查该步之后的批次来自哪些数据。"
            "再查参数：回到该步之前最新的检查点，学习率减半，延长预热，梯度裁剪到范数 1。"
            "后查模型：检查激活值与 logits 的范数。"
        ),
        impact="The steps since then are lost, and each further one costs device time.",
        impact_zh="发散以来的步已作废，继续训练只会浪费设备时间。",
        diagnosis="See what changed before that step: the learning rate, the batch, the data, a restart.",
        diagnosis_zh="查看该步之前改动了什么：学习率、批大小、数据，或是否重启过。",
    ),
    Alert(
        name="TrainvitalsLossDrift",
        file="parameter",
        category="parameter",
        severity="warning",
        gauge="learning",
        signal="loss_drift",
        expr=active("loss_drift"),
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: the loss rises slowly",
        summary_zh="训练 {{ $labels.run }}：损失缓慢上升",
        description=findings("loss_drift", "The loss is above its level of some hundred steps before") + ".",
        description_zh=findings("loss_drift", "损失高于数百步之前的水平") + "。",
        action=(
            "Data first: see whether another source, mixture or length of sequences began there. "
            "Parameters: lower the learning rate to two thirds and see the gradient norm: where it rises too, go back "
            "to a checkpoint before the rise. "
            "Model: look at the largest logits."
        ),
        action_zh=(
            "先查数据：确认此处是否开始使用新的数据源、配比或序列长度。"
            "再查参数：学习率降到三分之二并观察梯度范数；若同样上升，回到上升之前的检查点。"
            "后查模型：检查最大的 logits。"
        ),
        impact="A slow rise is often the beginning of a divergence.",
        impact_zh="缓慢上升往往是发散的前兆。",
        diagnosis="The statistic `errors` is the rise in standard errors; `baseline` the level before.",
        diagnosis_zh="统计量 `errors` 是以标准误计的升幅，`baseline` 是此前的水平。",
    ),
    Alert(
        name="TrainvitalsLossCollapsed",
        file="parameter",
        category="parameter",
        severity="critical",
        gauge="learning",
        signal="loss_collapsed",
        expr=active("loss_collapsed"),
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: the loss is exactly 0",
        summary_zh="训练 {{ $labels.run }}：损失恰好为 0",
        description=findings("loss_collapsed", "The loss fell to exactly 0 from one step to the next") + ".",
        description_zh=findings("loss_collapsed", "损失在一步之间降为恰好 0") + "。",
        action=(
            "Data first: look for batches whose labels are all masked. "
            "Parameters: train in bf16 or float32 instead of fp16, and see what the trainer logs in place of NaN. "
            "Model: resume from the newest checkpoint before that step; the weights since are suspect."
        ),
        action_zh=(
            "先查数据：检查标签是否全部被掩码。"
            "再查参数：用 bf16 或 float32 代替 fp16，并确认训练框架用什么代替 NaN。"
            "后查模型：从该步之前最新的检查点恢复；此后的权重不可信。"
        ),
        impact="Nothing is learnt any more, and the weights may be NaN.",
        impact_zh="模型不再学习，权重可能已是 NaN。",
        diagnosis="A gradient norm that is NaN, or stands still at the clipping norm, means that the loss was NaN.",
        diagnosis_zh="若梯度范数为 NaN，或恒等于裁剪范数，说明真实的损失是 NaN。",
    ),
    Alert(
        name="TrainvitalsGradientAnomaly",
        file="parameter",
        category="parameter",
        severity="warning",
        gauge="learning",
        signal="gradient_anomaly",
        expr=active("gradient_anomaly"),
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: gradients explode, vanish or overflow",
        summary_zh="训练 {{ $labels.run }}：梯度爆炸、消失或溢出",
        description=findings("gradient_anomaly", "The norm of the gradients, or the loss scale, is out of its range")
        + ".",
        description_zh=findings("gradient_anomaly", "梯度范数或损失缩放超出正常范围") + "。",
        action=(
            "Data first: look at the batches of these steps. "
            "Parameters: exploding: lower the learning rate and clip to a smaller norm; vanishing: raise the learning "
            "rate and see that nothing is frozen; a loss scale that falls: train in bf16. "
            "Model: look for the layer with the largest norm."
        ),
        action_zh=(
            "先查数据：检查这些步的批次。"
            "再查参数：梯度爆炸时降低学习率并减小裁剪范数；"
            "梯度消失时提高学习率并确认没有冻结；损失缩放下降时改用 bf16。"
            "后查模型：找出范数最大的层。"
        ),
        impact="Steps are skipped or do harm; a NaN often follows.",
        impact_zh="这些步会被跳过或损害模型，之后往往出现 NaN。",
        diagnosis="The finding says which of these it is, and since when.",
        diagnosis_zh="告警正文说明属于哪一种情况，以及从哪一步开始。",
    ),
    Alert(
        name="TrainvitalsStopLoss",
        file="parameter",
        category="parameter",
        severity="warning",
        gauge="learning",
        signal="stop_loss",
        expr=active("stop_loss"),
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: what was agreed to stop it by has come true",
        summary_zh="训练 {{ $labels.run }}：已满足事先约定的停止条件",
        description=findings("stop_loss", "A rule that was agreed before the run is met") + ".",
        description_zh=findings("stop_loss", "训练前约定的停止规则已满足") + "。",
        action=(
            "Data first: see whether better or other data is at hand; it buys more than further steps do. "
            "Parameters: if the learning rate can still come down, begin its decay; else stop, as was agreed, and keep "
            "the best checkpoint. "
            "Model: where the loss is not good enough, a larger one."
        ),
        action_zh=(
            "先查数据：是否有更好或不同的数据，其收益高于继续训练。"
            "再查参数：若学习率还能下降，开始衰减；否则按约定停止并保留最佳检查点。"
            "后查模型：损失仍不够好时换更大的模型。"
        ),
        impact="Each further device-hour buys less than was agreed to be worth it.",
        impact_zh="继续训练，每个设备小时换来的收益已低于事先约定的下限。",
        diagnosis=(
            "The rule is `detectors.stop_loss` in the settings of the exporter; without one this never fires. The "
            "statistics say what an hour of one device buys (`gain`, `gain_upper`) and what was spent "
            "(`device_hours`)."
        ),
        diagnosis_zh=(
            "规则写在导出器配置的 `detectors.stop_loss` 中；没有配置就不会触发。"
            "统计量给出一个设备小时带来的收益（`gain`、`gain_upper`）和已花费的设备小时（`device_hours`）。"
        ),
    ),
)
