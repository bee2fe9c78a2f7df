"""What the tests of the doctor need: a machine made of files, and results by subject."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from trainvitals.config import Settings
from trainvitals.doctor.base import Here, Result


def machine(root: Path, files: Mapping[str, str] | None = None, **values: object) -> Here:
    """Return a machine whose kernel shows these files (a path that ends in "/" is a folder) and nothing else."""
    for path, text in (files or {}).items():
        place = root / path.lstrip("/")
        if path.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
    return Here(root=str(root), **{"environ": {}, **values})


def settings(**sections: dict[str, object]) -> Settings:
    """Return settings as a file with these sections would give them."""
    return Settings.model_validate(sections)


def outcomes(results: Iterable[Result]) -> dict[str, str]:
    """Return the outcome by subject."""
    return {result.subject: result.outcome.value for result in results}


def only(results: Iterable[Result]) -> Result:
    """Return the one result."""
    (result,) = results
    return result
