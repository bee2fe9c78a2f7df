"""Alerts of the category parameter: what a detector found in the curves of a run."""

from __future__ import annotations

from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import active, findings

PARAMETER: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsLossNonfinite",
        file="parameter",
        category="parameter",
        severity="critical",
        gauge="learning",
        signal="loss_nonfinite",
        expr=active("loss_nonfinite"),
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: the loss is NaN or infinite",
        summary_zh="训练 {{ $labels.run }}：损失为 NaN 或无穷大",
        description=findings("loss_nonfinite", "A rank reported a loss that is not finite") + ".",
        description_zh=findings("loss_nonfinite", "有 rank 报告了非有限的损失") + "。",
        action=(
            "Data first: look at the batch of that step for NaN, infinities, empty samples and damaged files, and "
            "drop it. "
            "Parameters: resume from the last checkpoint before that step with half the learning rate, gradients "
            "clipped "
            "to norm 1 and a longer warm-up; train in bf16 instead of fp16. "
            "Model: look for divisions by zero, logarithms or roots of 0, and attention rows with every token masked."
        ),
        action_zh=(
            "先查数据：检查该步的批次是否含 NaN、无穷大、空样本或损坏文件，并剔除。"
            "再查参数：从该步之前的最后一个检查点恢复，学习率减半，梯度裁剪到范数 1，延长预热；用 bf16 代替 fp16。"
            "后查模型：查找除以零、对 0 取对数或开方，以及整行被掩码的注意力。"
        ),
        impact="Without skipped steps, one such loss makes every weight NaN: all steps after it are lost.",
        impact_zh="若不跳过该步，一次这样的损失就会使全部权重变成 NaN，此后的训练全部作废。",
        diagnosis=(
            "The finding says rank and first step. One rank only: its batch or its device. All ranks in one step: the "
            "learning rate or the precision. `trainvitals_grad_norm` that grows before that step means instability."
        ),
        diagnosis_zh=(
            "告警正文给出 rank 和最早的步。仅一个 rank：查它的批次或设备。所有 rank 在同一步出现："
            "查学习率或精度。若 `trainvitals_grad_norm` 在该步之前持续增大，说明训练已不稳定。"
        ),
    ),
    Alert(
        name="TrainvitalsLossSpike",
        file="parameter",
        category="parameter",
        severity="warning",
        gauge="learning",
        signal="loss_spike",
        expr=active("loss_spike"),
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: the loss has jumped out of its noise",
        summary_zh="训练 {{ $labels.run }}：损失出现突增",
        description=findings("loss_spike", "The loss rose above its own noise and stays there") + ".",
        description_zh=findings("loss_spike", "损失超出自身噪声并持续偏高") + "。",
        action=(
            "Wait some hundred steps: many spikes heal. Data first: if it does not fall back, look at the batches "
            "from that "
            "step on, and skip them when they are odd. "
            "Parameters: resume from the last checkpoint before that step with half the learning rate, gradients "
            "clipped "
            "to norm 1 and Adam's beta2 at 0.95. "
            "Model: normalise embeddings or queries and keys if spikes come back."
        ),
        action_zh=(
            "先等几百步：许多突增会自行恢复。先查数据：若未回落，检查该步起的批次，异常则跳过。"
            "再查参数：从该步之前的最后一个检查点恢复，学习率减半，梯度裁剪到范数 1，Adam 的 beta2 设为 0.95。"
            "后查模型：若反复出现，对嵌入或查询、键做归一化。"
        ),
        impact="Steps are lost until the loss is back; a spike that does not heal ends in divergence.",
        impact_zh="损失恢复之前的步都是浪费；不能自行恢复的突增会演变为发散。",
        diagnosis=(
            "Compare the loss with `trainvitals_grad_norm` and `trainvitals_learning_rate` at that step. A norm that "
            "rises "
            "before the loss speaks for the learning rate; a single rank, or the same steps after a resume, for the "
            "data."
        ),
        diagnosis_zh=(
            "对照该步的损失、`trainvitals_grad_norm` 和 `trainvitals_learning_rate`。梯度范数先于损失上升，"
            "多为学习率问题；只有一个 rank 突增，或恢复训练后在相同的步再次突增，多为数据问题。"
        ),
    ),
)
