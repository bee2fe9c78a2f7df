"""Families about InfiniBand, RoCE and Ethernet."""

from __future__ import annotations

from trainvitals.metrics.family import Family

FAMILIES: tuple[Family, ...] = ()
