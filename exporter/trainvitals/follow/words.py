"""What people call steps, losses and times in lines that they print themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: The higher, the surer; of two that are equally sure, the greater number counts more finely.
STEPS = {
    "global_step": 3,
    "step": 2,
    "steps": 2,
    "iter": 2,
    "iteration": 2,
    "iters": 2,
    "update": 2,
    "it": 1,
    "batch": 1,
}
EPOCHS = frozenset({"epoch", "ep"})
SECONDS = {
    "iter time": "step_seconds", "iter_time": "step_seconds", "step time": "step_seconds", "step_time": "step_seconds",
    "batch time": "step_seconds", "batch_cost": "step_seconds", "data time": "data_seconds",
    "data_time": "data_seconds", "reader_cost": "data_seconds", "dt": "step_seconds", "in s": "step_seconds",
    "avg_batch_cost": "step_seconds",
}  # fmt: skip
SPEEDS = {
    "tok/s": "tokens_per_second", "tok/sec": "tokens_per_second", "tokens/s": "tokens_per_second",
    "tokens/sec": "tokens_per_second", "tps": "tokens_per_second", "tokens_per_sec": "tokens_per_second",
    "tokens/s/device": "tokens_per_second_per_device", "tokens_per_second_per_gpu": "tokens_per_second_per_device",
    "consumed_samples": "total_samples", "num_consumed_tokens": "total_tokens",
}  # fmt: skip
#: What is no value, though a number stands behind it.
NO_VALUES = frozenset({"eta", "line", "v_num", "rank", "pid", "seed", "s"})
#: The loss, where several are told and none is just called so: the first of these, else the first that is no part of
#: the balance of experts.
_LOSSES = (
    "total_loss", "train/total_loss", "lm_loss", "reduced_train_loss", "train/crossentropyloss", "ce_loss", "step_loss",
    "avg_loss", "loss_total", "total loss", "avg loss",
)  # fmt: skip
_BESIDE = re.compile(r"balanc|aux|z_loss|scale|kl_|_kl|router|mtp|weight|smooth|best")
#: What may stand behind "loss" in the name of one.
_OF_LOSS = frozenset({"is", "value", "avg", "mean", "train", "total"})
#: Chinese words, longer ones first: ours.
_CHINESE = (
    ("验证损失", " val_loss "), ("测试损失", " test_loss "), ("训练损失", " train_loss "), ("平均损失", " loss "),
    ("损失值", " loss "), ("损失", " loss "), ("验证集准确率", " val_accuracy "), ("验证准确率", " val_accuracy "),
    ("测试准确率", " test_accuracy "), ("训练准确率", " accuracy "), ("准确率", " accuracy "), ("学习率", " lr "),
    ("梯度范数", " grad_norm "), ("迭代次数", " iter "), ("迭代", " iter "), ("步数", " step "), ("步骤", " step "),
    ("轮次", " epoch "), ("轮数", " epoch "), ("：", ": "), ("，", ", "), ("；", "; "), ("（", " ("), ("）", ") "),
)  # fmt: skip
#: Words with a number between their parts, and those that are parts of others.
_CHINESE_COUNTS = (
    (re.compile(r"第\s?(\d{1,12})\s?(?:轮|个epoch)"), r" epoch \1 "),
    (re.compile(r"第\s?(\d{1,12})\s?步"), r" step \1 "),
    (re.compile("轮"), " epoch "),
    (re.compile("步"), " step "),
)


def translated(line: str) -> str:
    """Return a line with the Chinese words for steps, losses and the like in English.

    >>> translated("第 3 轮，损失：2.5")
    ' epoch 3 , loss: 2.5'
    """
    for chinese, word in _CHINESE:
        line = line.replace(chinese, word)
    for pattern, words in _CHINESE_COUNTS:
        line = pattern.sub(words, line)
    return re.sub(r" +([:=])", r"\1", line)


def main_loss(found: Iterable[str]) -> str | None:
    """Return which of these names is that of the loss, if none is just called so.

    >>> main_loss(["load_balancing_loss", "cls_loss", "total_loss"]), main_loss(["loss scale", "aux_loss"])
    ('total_loss', None)
    """
    losses = [name for name in found if _is_loss(name.lower())]
    known = (name for ours in _LOSSES for name in losses if name.lower() == ours)
    return next(known, losses[0] if losses else None)


def _is_loss(name: str) -> bool:
    first, _, last = name.rpartition(" ")
    return ("loss" in last or ("loss" in first and last in _OF_LOSS)) and _BESIDE.search(name) is None
