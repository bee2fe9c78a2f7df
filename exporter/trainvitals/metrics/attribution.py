"""Families that map devices and ranks to the jobs that they belong to, and training processes to their ranks."""

from __future__ import annotations

from trainvitals.metrics.family import Family

FAMILIES: tuple[Family, ...] = ()
