"""All causes in one order: a line is told by the first row that knows it.

Harmless forms stand before the rows that they would be taken for, special rows before general ones.
"""

from __future__ import annotations

from trainvitals.follow.errors import collectives, data, devices, host, launch, program
from trainvitals.follow.errors.base import Cause

CAUSES: tuple[Cause, ...] = (
    *devices.CAUSES,
    *host.CAUSES,
    *launch.CAUSES,
    *data.CAUSES,
    *collectives.CAUSES,
    *program.CAUSES,
)

#: By name.
CAUSE: dict[str, Cause] = {cause.name: cause for cause in CAUSES}


def cause_of(line: str) -> tuple[Cause, dict[str, str]] | None:
    """Return what a line tells and the details in it, None for most.  ``line`` has no prefix of its rank any more."""
    for cause in CAUSES:
        for needle in cause.needles:
            if needle in line:
                match = cause.pattern.search(line)
                if match is not None:
                    return cause, {name: text for name, text in match.groupdict().items() if text}
                break
    return None
