"""Where a training that was started again goes on: what ``trainvitals run`` found for it."""

from __future__ import annotations

import os

#: The checkpoint to resume from; not set where there is none.
RESUME_FROM = "TRAINVITALS_RESUME_FROM"


def resume_path() -> str | None:
    """Return the checkpoint to resume from, a file or a folder; None for a start from the beginning.

    It was verified by ``trainvitals run --checkpoint-dir``; without that it is what ``TRAINVITALS_RESUME_FROM`` says.
    """
    return os.environ.get(RESUME_FROM) or None
