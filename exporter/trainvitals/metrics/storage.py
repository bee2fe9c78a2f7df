"""Families about file systems and disks."""

from __future__ import annotations

from trainvitals.metrics.family import Family

FAMILIES: tuple[Family, ...] = ()
