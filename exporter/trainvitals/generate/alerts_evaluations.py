"""Alerts of what evaluations say about the training.  Findings that are an info only raise no alert."""

from __future__ import annotations

from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert, tidy
from trainvitals.generate.texts import active, findings


def _statistic(signal: str, name: str) -> str:
    return f'max by (run) (trainvitals_signal_statistic{{signal="{signal}",statistic="{name}"}})'


_MISMATCH = tidy(active("evaluation_mismatch"))

EVALUATIONS: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsOverfitting",
        file="parameter",
        category="parameter",
        severity="warning",
        gauge="learning",
        signal="overfitting",
        # Below a rise of 3 % the finding is an info.
        expr=f"{tidy(active('overfitting'))} and on (run) {_statistic('overfitting', 'generalisation_loss')} >= 0.03",
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: training and validation loss part",
        summary_zh="训练 {{ $labels.run }}：训练损失与验证损失分叉",
        description=findings("overfitting", "The validation loss rises while the training loss falls") + ".",
        description_zh=findings("overfitting", "验证损失上升而训练损失下降") + "。",
        action=(
            "Data first: look for repeated samples, and add data or augmentation. "
            "Parameters: stop at the best evaluation and keep its checkpoint, train for fewer epochs, raise weight "
            "decay or dropout. "
            "Model: take a smaller one, or fewer trained parameters."
        ),
        action_zh=(
            "先查数据：检查重复样本，增加数据或数据增强。"
            "再查参数：停在最佳评估处并保留其检查点，减少训练轮数，提高权重衰减或 dropout。"
            "后查模型：换更小的模型，或减少可训练参数。"
        ),
        impact="Every step since the best evaluation costs device time and makes the model worse.",
        impact_zh="最佳评估之后的每一步都在花费设备时间，而模型越来越差。",
        diagnosis=(
            "The statistics `steps_since_best` and `seconds_since_best` say what was spent since. A metric that still "
            "improves speaks for calibration: the finding says so."
        ),
        diagnosis_zh=(
            "统计量 `steps_since_best` 和 `seconds_since_best` 给出此后花费的步数和时间。若某项指标仍在改善，"
            "更可能是置信度校准变差，告警正文会注明。"
        ),
    ),
    Alert(
        name="TrainvitalsForgetting",
        file="parameter",
        category="parameter",
        severity="warning",
        gauge="learning",
        signal="forgetting",
        # Up to 2 % on average the finding is an info.
        expr=f"{tidy(active('forgetting'))} and on (run) {_statistic('forgetting', 'decline')} >= 0.02",
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: benchmarks are worse than at the begin",
        summary_zh="训练 {{ $labels.run }}：基准评测低于训练初期",
        description=findings("forgetting", "What the model knew before is declining") + ".",
        description_zh=findings("forgetting", "模型原有能力正在下降") + "。",
        action=(
            "Data first: see whether prompt, chat template or evaluation changed; else mix 1 to 10 % of older data "
            "into the training. "
            "Parameters: lower the learning rate to a third or a half, train for fewer epochs. "
            "Model: train fewer parameters (a lower rank), or average with the model it began with."
        ),
        action_zh=(
            "先查数据：确认提示词、对话模板或评测是否改变；否则在训练中混入 1% 到 10% 的旧数据。"
            "再查参数：学习率降到三分之一或一半，减少训练轮数。"
            "后查模型：减少可训练参数（更低的秩），或与初始模型做权重平均。"
        ),
        impact="The model gains at the new task and loses at others, which nobody may have asked for.",
        impact_zh="模型在新任务上提升，却在其他任务上退步，而这未必是想要的结果。",
        diagnosis="The finding names the benchmarks. Two evaluations in a row are beyond two standard errors.",
        diagnosis_zh="告警正文列出退步的评测。连续两次评估的降幅都超过两个标准误才会触发。",
    ),
    Alert(
        name="TrainvitalsEvaluationMismatch",
        file="data",
        category="data",
        severity="warning",
        gauge="learning",
        signal="evaluation_mismatch",
        # Half the training loss or less is meant as a rule, and an info.
        expr=f"{_MISMATCH} unless on (run) {_statistic('evaluation_mismatch', 'factor')} <= 0.5",
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: the evaluation does not fit the training",
        summary_zh="训练 {{ $labels.run }}：评估与训练不一致",
        description=findings("evaluation_mismatch", "The validation loss is another quantity than the training loss")
        + ".",
        description_zh=findings("evaluation_mismatch", "验证损失与训练损失不是同一量") + "。",
        action=(
            "Data first: look for an empty or broken batch of the validation, and compare its samples with those of "
            "the training after all preprocessing. "
            "Parameters: look for an overflow in evaluation alone: precision, masks. "
            "Model: see that it is in evaluation mode, and that both losses are defined alike."
        ),
        action_zh=(
            "先查数据：检查验证集中的空批次或损坏批次，并比较预处理后的验证样本与训练样本。"
            "再查参数：检查仅在评估时出现的溢出：精度、掩码。"
            "后查模型：确认处于评估模式，且两个损失定义一致。"
        ),
        impact="Nothing that the evaluation says can be trusted, nor what is decided by it.",
        impact_zh="评估的结论以及据此作出的决定都不可信。",
        diagnosis="The statistic `nonfinite` counts evaluations without a number; `factor`: validation over training.",
        diagnosis_zh="统计量 `nonfinite` 是没有得到数值的评估次数；`factor` 是验证损失与训练损失之比。",
    ),
    Alert(
        name="TrainvitalsLeakageSuspected",
        file="data",
        category="data",
        severity="warning",
        gauge="learning",
        signal="leakage_suspected",
        expr=active("leakage_suspected"),
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: the validation is better than the training explains",
        summary_zh="训练 {{ $labels.run }}：验证结果好于训练所能解释的水平",
        description=findings("leakage_suspected", "Samples of the validation may be in the training data") + ".",
        description_zh=findings("leakage_suspected", "训练数据中可能含有验证样本") + "。",
        action=(
            "Data first: look for samples of the validation in what was added to the training, by hash and then for "
            "near-duplicates; drop them from the validation and evaluate the last checkpoints again. "
            "Parameters and model: nothing to change. A validation set that was changed looks the same."
        ),
        action_zh=(
            "先查数据：在新增的训练数据中查找验证样本，先按哈希，再查近似重复；从验证集中删除后重新评估最近的检查点。"
            "参数与模型：无需改动。更换验证集也会出现同样现象。"
        ),
        impact="The model looks better than it is.",
        impact_zh="模型看起来比实际更好。",
        diagnosis="The step of the finding is where the validation loss fell and the training loss did not follow.",
        diagnosis_zh="告警正文所指的步，是验证损失下降而训练损失没有随之下降的位置。",
    ),
    Alert(
        name="TrainvitalsMetricDecoupled",
        file="data",
        category="data",
        severity="warning",
        gauge="learning",
        signal="metric_decoupled",
        expr=active("metric_decoupled"),
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: the metric does not follow the loss",
        summary_zh="训练 {{ $labels.run }}：指标未随损失改善",
        description=findings("metric_decoupled", "The loss falls, and a metric of the evaluation does not follow")
        + ".",
        description_zh=findings("metric_decoupled", "损失下降，但评估指标没有改善") + "。",
        action=(
            "Data first: run the same evaluation on the first checkpoint, where the same result means a fault of the "
            "evaluation; then look at the worst slices and their weight. "
            "Parameters: leave the learning rate alone. "
            "Model: see whether the objective is what the metric counts."
        ),
        action_zh=(
            "先查数据：用第一个检查点运行同一评估，结果相同说明评估有误；再看最差的数据切片及其权重。"
            "再查参数：不要改学习率。"
            "后查模型：确认训练目标与指标一致。"
        ),
        impact="Device time goes into a number that nobody needs.",
        impact_zh="设备时间花在了一个没有意义的数字上。",
        diagnosis="The finding says which metric, and whether it is frozen, worse or flat.",
        diagnosis_zh="告警正文给出是哪个指标，以及它是完全不变、变差还是停滞。",
    ),
)
