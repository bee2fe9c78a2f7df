"""Families about what changed in a run, and what it is made of."""

from __future__ import annotations

from trainvitals.metrics.family import Family, rows

FAMILIES: tuple[Family, ...] = (
    *rows(
        "ranks",
        ("run",),
        ("changes_total", "counter", "Changes seen in the run on this node, by kind, over all attempts seen.", "kind"),
        ("last_change_step", "gauge", "Step since which the last change of a kind counts.", "kind"),
        ("last_change_timestamp_seconds", "gauge", "When the last change of a kind was made.", "kind"),
    ),
    Family(
        name="trainvitals_last_change_info",
        type="gauge",
        labels=("run", "kind", "name", "old", "new"),
        help="What changed in the last change of a kind: its name, the value before and the value after.",
        source="ranks",
    ),
    Family(
        name="trainvitals_lineage_info",
        type="gauge",
        labels=("run", "subject", "hash"),
        help="Hash of what the run is made of on this node; nodes with different ones run different code or settings.",
        source="ranks",
    ),
)
