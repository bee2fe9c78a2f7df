"""What people call the numbers that we know: one table from their names to ours.

Names are compared without regard to case, and ``-``, ``.`` and blanks count as ``_``.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

_SEPARATORS = re.compile(r"[-.\s]+")

#: Ours: what frameworks and people call it.  Sources: the Hugging Face Trainer ("train/..."), Lightning's "lr-Adam"
#: and "grad_2.0_norm_total", Megatron-LM ("lm loss", "learning-rate", "grad-norm"), torchtitan ("loss_metrics/..."),
#: DeepSpeed ("Train/Samples/..."), nanoGPT ("train/loss", "lr") and what tutorials of PyTorch write ("Loss/train").
_NAMES = {
    "loss": (
        "loss",
        "loss/train",
        "loss/training",
        "loss_metrics/global_avg_loss",
        "loss_step",
        "lm_loss",
        "train/loss",
        "train/samples/train_loss",
        "train/train_loss",
        "train_loss",
        "train_loss_step",
        "training/loss",
        "training_loss",
    ),
    "learning_rate": (
        "learning_rate",
        "lr",
        "lr/train",
        "optim/lr",
        "train/learning_rate",
        "train/lr",
        "train/samples/lr",
        "train_lr",
        "training/lr",
    ),
    "grad_norm": (
        "grad/norm",
        "grad_norm",
        "grad_norm/train",
        "grad_2_0_norm_total",
        "gradient_norm",
        "optim/grad_norm",
        "total_grad_norm",
        "train/grad_norm",
        "train_grad_norm",
        "training/grad_norm",
    ),
    # The number of the step itself, which some write among the values.
    "step": ("_step", "global_step", "step", "train/global_step", "trainer/global_step"),
}
_OURS = {theirs: ours for ours, names in _NAMES.items() for theirs in names}
#: What the LearningRateMonitor of Lightning calls the first group of the first optimizer.
_LIGHTNING_RATE = re.compile(r"lr_[a-z0-9]+(/pg1)?")

#: Ours are amounts of one step, added up; what people log under these names are totals as a rule.
_AMOUNTS = ("samples", "skipped", "tokens")

_SPLITS = {
    "dev": "validation",
    "eval": "validation",
    "evaluation": "validation",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "validation_metrics": "validation",
    "test": "test",
    "testing": "test",
}
_ALTERNATIVES = "|".join(sorted(_SPLITS, key=len, reverse=True))
_BEFORE = re.compile(rf"({_ALTERNATIVES})[/_ .-](.+)")
_BEHIND = re.compile(rf"(.+)/({_ALTERNATIVES})")


class Result(NamedTuple):
    """A number of an evaluation: the split ("validation" or "test") and what is left of its name."""

    split: str
    name: str


@functools.lru_cache(maxsize=256)
def ours(name: str) -> str:
    """Return our name of a value of training ("loss" for "Train/Loss"), or the name as it is.

    A name that would be added up becomes another one.

    >>> ours("Train/Loss"), ours("lr-AdamW"), ours("accuracy"), ours("tokens")
    ('loss', 'learning_rate', 'accuracy', 'logged_tokens')
    """
    if name in _AMOUNTS:
        return f"logged_{name}"
    plain = _SEPARATORS.sub("_", name.strip().lower())
    if plain not in _OURS and _LIGHTNING_RATE.fullmatch(plain):
        return "learning_rate"
    return _OURS.get(plain, name)


@functools.lru_cache(maxsize=256)
def result(name: str) -> Result | None:
    """Return split and name of a value of an evaluation, or None for one of training.

    >>> result("eval/loss"), result("Loss/test")
    (Result(split='validation', name='loss'), Result(split='test', name='loss'))
    """
    plain = name.strip()
    if found := _BEFORE.fullmatch(plain.lower()):
        split, rest = found[1], plain[found.start(2) :]
    elif found := _BEHIND.fullmatch(plain.lower()):
        split, rest = found[2], plain[: found.end(1)]
    else:
        return None
    return Result(_SPLITS[split], "loss" if rest.lower() == "loss" else rest)
