"""Families about faults that devices and their drivers report: XIDs and what comes with them."""

from __future__ import annotations

from trainvitals.metrics.family import Family

FAMILIES: tuple[Family, ...] = ()
