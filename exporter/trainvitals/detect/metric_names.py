"""What people call the metrics of an evaluation, and which way is better: one table.

Names are compared without regard to case; ``-``, ``.``, ``/``, ``@``, ``,``, ``:`` and blanks count as ``_``, and what
is before the last part of a name only says of what it is the metric ("bbox_mAP", "overall_f1", "eval/macro_f1").
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping

#: Ultralytics says of boxes, masks and poses at the end: "metrics/mAP50-95(B)".
_KIND = re.compile(r"\([bmp]\)$")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SEPARATORS = re.compile(r"[-./@,:\s]+")

#: Higher is better.  Sources: scikit-learn's scorers, Keras' metrics, Hugging Face evaluate and its seqeval, COCO's
#: and Ultralytics' detection metrics, lm-evaluation-harness (acc, acc_norm, exact_match, pass@1), TRL (rewards).
_UP = _words(
    """
    acc acc_norm accuracy ap ap50 ap75 auc aupr auprc auroc average_precision balanced_accuracy binary_accuracy
    bertscore bleu bleu4 bleu_4 categorical_accuracy chrf cider cosine_similarity dice em exact_match exact_match_score
    f1 f1_score fwiou gleu hota iou jaccard kappa map map50 map50_95 map75 map_0_5 map_0_5_0_95 map_50 map_50_95 map_75
    matthews_correlation matthews_corrcoef mcc mean_average_precision meteor miou mrr ndcg pass_1 pass_10 pearson
    pearsonr pq psnr r2 r2_score rewards_accuracies rewards_margins reward roc_auc rouge rouge1 rouge2 rougel rougelsum
    rouge_1 rouge_2 rouge_l sacrebleu score sparse_categorical_accuracy spearman spearmanr ssim success_rate top1
    top1_acc top5 top5_acc top_1 top_5 top_1_accuracy top_5_accuracy win_rate
    """
)
#: Lower is better.  Sources as above, and jiwer and fairseq (wer, cer), TorchMetrics (fid, lpips), BPB of language
#: models.  Losses are not in it: the detectors know them by themselves.
_DOWN = _words(
    """
    cer eer error error_rate fid kid lpips mae mape mean_absolute_error mean_squared_error mer mse msle per rmse smape
    ter top1_err top5_err uer wer
    """
)
#: What is logged beside the loss where a reward is what is learnt, by the words of its name.  Such a loss may rise as
#: rewards do (that of a value function), and its level says nothing.  Sources: TRL, Stable-Baselines3, CleanRL, RLlib,
#: verl, Spinning Up, Tianshou.
_REWARD = _words("rew reward rewards return returns")
_REWARDS = _words(
    "averageepret critic_score_mean env_score_mean ep_len_mean ep_ret epret epsilon exploration_rate"
    " rollout_ep_len_mean rollout_exploration_rate"
)
#: With one of these it is a part of a loss of preferences, or of the training of a model of rewards: these fall.
_NO_REWARD = _words("accuracies chosen loss margin margins model neg pos rejected")
#: The losses of two models that are trained against each other: where one falls the other may rise, and their sum says
#: nothing.  Sources: PyTorch's DCGAN example, pix2pix, StyleGAN, HiFi-GAN, VITS.
_GENERATOR = _words("errg g gen generator gloss lossg")
_DISCRIMINATOR = _words("d dis disc discriminator dloss errd lossd")
#: What may stand before a metric that speaks for the whole evaluation; everything else is a class, a slice or a size
#: of objects ("T168_f1", "bbox_mAP_s"), and one of many such may do anything.
_WHOLE = _words(
    """
    all avg b bbox bin binary box dev eval macro mask mean metrics micro m overall pascalvoc coco segm total val valid
    validation weighted
    """
)
#: Benchmarks of what a language model knew before (lm-evaluation-harness, Open LLM Leaderboard, OpenCompass).
BENCHMARKS = _words(
    """
    agieval anli arc arc_challenge arc_easy bbh blimp boolq c4 ceval cmmlu commonsense_qa copa drop gpqa gsm8k hellaswag
    humaneval ifeval lambada lambada_openai logiqa math mathqa mbpp mmlu mmlu_pro mt_bench natural_questions nq
    openbookqa piqa pile pubmedqa qasper race sciq siqa social_iqa squad squadv2 superglue swag triviaqa truthfulqa
    truthfulqa_mc1 truthfulqa_mc2 webqs wikitext wikitext103 winogrande wmt wsc xcopa xnli xwinograd
    """
)


@functools.lru_cache(maxsize=1024)
def plain(name: str) -> str:
    """Return a name as it is compared.

    >>> plain("metrics/mAP_0.5:0.95")
    'metrics_map_0_5_0_95'
    """
    return _SEPARATORS.sub("_", name.strip().lower()).strip("_")


@functools.lru_cache(maxsize=1024)
def _is_reward(name: str) -> bool:
    words = frozenset(plain(name).split("_"))
    return plain(name) in _REWARDS or (not words.isdisjoint(_REWARD) and words.isdisjoint(_NO_REWARD))


@functools.lru_cache(maxsize=1024)
def is_loss(name: str) -> bool:
    """Whether a name is that of a loss, or of a part of one.

    >>> is_loss("loss_G"), is_loss("train/box_loss"), is_loss("errD"), is_loss("loss_scale"), is_loss("lossless")
    (True, True, True, False, False)
    """
    words = plain(name).split("_")
    return "scale" not in words and not {"loss", "losses", "lossd", "lossg", "errd", "errg"}.isdisjoint(words)


@functools.lru_cache(maxsize=1024)
def _side(name: str) -> int:
    """Return whose loss it is of two models against each other: 1 the generator's, -1 the discriminator's, else 0."""
    words = plain(name).split("_")
    return (not _GENERATOR.isdisjoint(words)) - (not _DISCRIMINATOR.isdisjoint(words))


def need_not_fall(names: Iterable[str]) -> bool:
    """Whether the loss beside such names may rise though all is well: there is a reward, or two models play a game.

    >>> need_not_fall(["loss", "rollout/ep_rew_mean"]), need_not_fall(["loss", "rewards/margins"])
    (True, False)
    >>> need_not_fall(["loss", "loss_G", "loss_D"]), need_not_fall(["loss", "d_loss"])
    (True, False)
    """
    known = list(names)
    return any(map(_is_reward, known)) or {1, -1} <= set(map(_side, known))


class Companions:
    """The names that a training logs beside its loss, as far as they were seen: some tell what kind of loss it is.

    They may come with the loss, or as steps of their own (TensorBoard); the later ones of a long run say nothing new.
    """

    _MOST = 256

    def __init__(self) -> None:
        #: In order, so that what is saved of it is the same each time.
        self._seen: dict[str, None] = {}
        #: Whether the loss need not fall: see :func:`need_not_fall`.
        self.free = False

    def take(self, names: Mapping[str, object]) -> bool:
        """Look at the names of a step or of a block; return whether the loss need not fall."""
        if not names.keys() <= self._seen.keys() and len(self._seen) < self._MOST:
            self._seen.update(dict.fromkeys(names))
            self.free = need_not_fall(self._seen)
        return self.free


@functools.lru_cache(maxsize=1024)
def split_name(name: str) -> tuple[str, int]:
    """Return what is before the metric in a name, and its direction: 1 up, -1 down, 0 unknown.

    >>> split_name("bbox_mAP_50"), split_name("eval_wer"), split_name("mmlu/acc,none"), split_name("runtime")
    (('bbox', 1), ('eval', -1), ('mmlu', 1), ('runtime', 0))
    """
    whole = plain(name)
    # lm-evaluation-harness names the filter behind a comma: "acc,none".
    whole = _KIND.sub("", whole.removesuffix("_none"))
    parts = whole.split("_")
    for start in range(len(parts)):
        rest = "_".join(parts[start:])
        if rest in _UP or rest in _DOWN:
            return "_".join(parts[:start]), 1 if rest in _UP else -1
    return whole, 0


def direction(name: str) -> int:
    """Return which way a metric is better: 1 up, -1 down, 0 unknown or a loss.

    >>> direction("top1_acc"), direction("rmse"), direction("loss")
    (1, -1, 0)
    """
    return split_name(name)[1]


def is_whole(name: str) -> bool:
    """Whether a metric speaks for the whole evaluation, and not for one class or slice of it.

    >>> is_whole("overall_f1"), is_whole("T168_f1"), is_whole("bbox_mAP_s")
    (True, False, False)
    """
    before, known = split_name(name)
    return known != 0 and all(part in _WHOLE for part in before.split("_") if part)


def main_metrics(values: Mapping[str, float]) -> list[tuple[str, int]]:
    """Return the names of the metrics that speak for the whole evaluation and are finite, and their directions."""
    return [(name, direction(name)) for name, value in values.items() if is_whole(name) and math.isfinite(value)]
