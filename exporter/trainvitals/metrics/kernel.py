"""Families about what the kernel complains of."""

from __future__ import annotations

from trainvitals.metrics.family import Family

FAMILIES: tuple[Family, ...] = ()
