"""``trainer_state.json`` of the Hugging Face Trainer: the whole history, as of the last checkpoint.

Source: transformers.trainer_callback.TrainerState.  It is written at checkpoints and at the end only, so it is no live
view of a run; it is what is left of one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from trainvitals.follow.base import NO, SURE, Facts, FileFormat, Item
from trainvitals.follow.record import Records
from trainvitals.telemetry import Event

#: A state of a million steps has 200 MB; what is larger is none.
_LARGEST = 1 << 30
_MARK = re.compile(rb'"(?:log_history|is_world_process_zero|best_model_checkpoint|num_train_epochs)"\s*:')


class TrainerState(FileFormat):
    """See the module."""

    name = "trainer-state"
    framework = "transformers"

    def sniff(self, head: bytes, path: str) -> int:  # noqa: ARG002
        """Return how sure it is; see :class:`Format`."""
        return SURE if head.lstrip().startswith(b"{") and _MARK.search(head) else NO

    def read(self, path: str) -> Iterable[Item]:
        """Return its history.  Raises ValueError for what is no whole state."""
        with open(path, "rb") as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise ValueError("more than 1 GiB")
        try:
            state = json.loads(text)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        history = state.get("log_history") if isinstance(state, dict) else None
        if not isinstance(history, list):
            raise ValueError("no log_history")  # noqa: TRY004  its contract
        target, step = state.get("max_steps"), state.get("global_step")
        if isinstance(target, int) and target > 0:
            yield Facts(target_steps=target)
        records = Records()
        for entry in history:
            if isinstance(entry, dict):
                yield from records.rows(entry)
        if isinstance(step, int) and step > 0 and "checkpoint-" in path:
            yield Event(0.0, "checkpoint", step, {"action": "save", "ok": True, "path": path.rpartition("/")[0]})
