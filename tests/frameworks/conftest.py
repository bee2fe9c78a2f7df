"""A probe that records in this process."""

from tests.probe.conftest import probe, recorded, recorder

__all__ = ["probe", "recorded", "recorder"]
