"""What people call their metrics."""

from __future__ import annotations

import pytest

from trainvitals.detect.metric_names import Companions, direction, is_whole, main_metrics, need_not_fall


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("accuracy", 1),
        ("Accuracy", 1),
        ("eval_accuracy", 1),
        ("sparse_categorical_accuracy", 1),
        ("macro-F1", 1),
        ("f1_score", 1),
        ("metrics/mAP50-95(B)", 1),
        ("mAP_0.5:0.95", 1),
        ("bbox_mAP_50", 1),
        ("metrics/mAP50(M)", 1),
        ("bleu-4", 1),
        ("rouge_L", 1),
        ("rewards/accuracies", 1),
        ("mmlu/acc,none", 1),
        ("humaneval/pass@1", 1),
        ("AUROC", 1),
        ("wer", -1),
        ("eval/CER", -1),
        ("val_mae", -1),
        ("RMSE", -1),
        ("fid", -1),
        ("error_rate", -1),
        ("loss", 0),
        ("runtime", 0),
        ("samples_per_second", 0),
        ("number", 0),
        ("epoch", 0),
        ("", 0),
        ("/", 0),
    ],
)
def test_direction(name, way):
    """Up, down, or not known."""
    assert direction(name) == way


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("overall_f1", True),
        ("macro_f1", True),
        ("bbox_mAP", True),
        ("metrics/mAP50(B)", True),
        ("T168_f1", False),
        ("bbox_mAP_s", False),
        ("car_AP", False),
        ("loss", False),
    ],
)
def test_whole(name, whole):
    """A class, a slice or a size of objects does not speak for the whole."""
    assert is_whole(name) is whole


def test_main_metrics_are_numbers():
    """NaN says nothing."""
    values = {"loss": 1.0, "f1": 0.5, "wer": 0.2, "accuracy": float("nan"), "runtime": 3.0}
    assert main_metrics(values) == [("f1", 1), ("wer", -1)]


@pytest.mark.parametrize(
    ("names", "free"),
    [
        (["loss", "ep_rew_mean"], True),
        (["loss", "episode_return"], True),
        (["loss", "train/reward_mean"], True),
        (["loss", "rewards/accuracy_reward"], True),
        (["loss", "rewards/accuracies", "rewards/chosen", "rewards/rejected", "rewards/margins"], False),
        (["loss", "reward_loss"], False),
        (["loss", "score", "f1_score"], False),
        (["Loss_G", "Loss_D"], True),
        (["errG", "errD", "D(x)"], True),
        (["gen_loss", "disc_loss"], True),
        (["loss/g/total", "loss/d/total"], True),
        (["loss_g"], False),
        (["lr", "loss", "grad_norm"], False),
    ],
)
def test_which_losses_need_not_fall(names, free):
    """Beside a reward, or of two models against each other."""
    assert need_not_fall(names) is free
    seen = Companions()
    assert [seen.take({name: 1.0}) for name in names][-1] is free
