"""Where a training that was started again goes on: what ``trainvitals run`` found for it."""

from __future__ import annotations

import contextlib
import os

#: The checkpoint to resume from; not set where there is none.
RESUME_FROM = "TRAINVITALS_RESUME_FROM"

#: When that was chosen, in seconds since 1970.
RESUME_SINCE = "TRAINVITALS_RESUME_SINCE"


def resume_path() -> str | None:
    """Return the checkpoint to resume from, a file or a folder; None for a start from the beginning.

    It was verified by ``trainvitals run --checkpoint-dir``; without that it is what ``TRAINVITALS_RESUME_FROM`` says.
    """
    return os.environ.get(RESUME_FROM) or None


def resume_since() -> float | None:
    """Return when it was chosen, in seconds since 1970; None where nobody said.

    Checkpoints that were saved later are of the same attempt: torchrun starts ranks again within one, when a member
    comes or goes.
    """
    with contextlib.suppress(ValueError):
        return float(os.environ.get(RESUME_SINCE, ""))
    return None
