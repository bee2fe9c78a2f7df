"""What people call the numbers that we know."""

from __future__ import annotations

import pytest

from trainvitals.names import ours, result


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        ("loss", "loss"),
        ("Loss/train", "loss"),
        ("train/loss", "loss"),
        ("train_loss", "loss"),
        ("lm loss", "loss"),
        ("loss_metrics/global_avg_loss", "loss"),
        ("Train/Samples/train_loss", "loss"),
        ("learning-rate", "learning_rate"),
        ("lr", "learning_rate"),
        ("lr-AdamW", "learning_rate"),
        ("lr-AdamW/pg1", "learning_rate"),
        ("lr-AdamW/pg2", "lr-AdamW/pg2"),
        ("train/grad_norm", "grad_norm"),
        ("grad-norm", "grad_norm"),
        ("grad_2.0_norm_total", "grad_norm"),
        ("train/global_step", "step"),
        ("trainer/global_step", "step"),
        ("accuracy", "accuracy"),
        ("tokens", "logged_tokens"),
        ("loss/kl", "loss/kl"),
        ("", ""),
        ("损失", "损失"),
    ],
)
def test_names_of_training(theirs, expected):
    """Known ones become ours, others stay exactly as they are."""
    assert ours(theirs) == expected


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        ("eval/loss", ("validation", "loss")),
        ("eval_loss", ("validation", "loss")),
        ("val_Accuracy", ("validation", "Accuracy")),
        ("Loss/val", ("validation", "loss")),
        ("validation/bleu/de", ("validation", "bleu/de")),
        ("validation_metrics/loss", ("validation", "loss")),
        ("test_acc", ("test", "acc")),
        ("acc/test", ("test", "acc")),
        ("value_loss", None),
        ("evaluate", None),
        ("loss", None),
        ("train/loss", None),
        ("val", None),
        ("val/", None),
    ],
)
def test_names_of_evaluations(theirs, expected):
    """The split and what is left; what only begins alike is no evaluation."""
    assert result(theirs) == expected
