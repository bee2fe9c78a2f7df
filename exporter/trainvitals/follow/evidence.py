"""Whether a table or records with a column called "step" are those of a training, or of a recipe, a price, a data set.

Names of numbers that only a training has are enough.  Without one, the steps must rise from row to row, and nothing
but numbers may stand beside them; and a name that counts other things as well ("steps" of a day, "epoch" of Unix,
"update" of a record) is no step then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from trainvitals import names

_KNOWN = re.compile(
    r"loss|perplexity|accuracy|learning_rate|grad(?:ient)?_norm|reward|entropy|precision|recall"
    r"|(?:^|[/_@. -])(?:lr\d?|acc\d?|ppl|bp[bc]|map\w*|f1|auc|mse|mae|rmse|m?iou|dice|bleu|rouge\w*|[wc]er|elbo|kl|nll"
    r"|mfu|return|returns|wps|tgs|tflops|tokens_per_\w+)(?:$|[/_@. -])",
    re.IGNORECASE,
)
_WEAK = frozenset({"epoch", "epochs", "steps", "update", "iters"})


def is_known(name: str) -> bool:
    """Whether only trainings have numbers of this name.

    >>> is_known("val_acc"), is_known("Train Loss"), is_known("price"), is_known("id")
    (True, True, False, False)
    """
    return names.ours(name) in {"loss", "learning_rate", "grad_norm"} or _KNOWN.search(name) is not None


def counts_steps(name: str, steps: Sequence[float], beside: Sequence[object]) -> bool:
    """Whether numbers under a name are steps of a training of which no other name is known.

    ``beside`` are the values that stand in the same rows, but for their times.
    """
    if name.strip().lower() in _WEAK or any(isinstance(value, str) for value in beside):
        return False
    return are_steps(steps, beside)


def are_steps(steps: Sequence[float], beside: Sequence[object]) -> bool:
    """Whether steps go on from row to row, and no sentences and lists stand beside them, as in a set of data."""
    if len(steps) < 2 or steps[-1] <= steps[0] or any(first > second for first, second in pairwise(steps)):
        return False
    return not any(isinstance(value, (list, dict)) or (isinstance(value, str) and " " in value) for value in beside)
