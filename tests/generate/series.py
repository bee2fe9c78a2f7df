"""Which series exist, and which an expression selects."""

from __future__ import annotations

import re

from trainvitals.generate.records import RECORDS
from trainvitals.metrics import FAMILIES

#: What Prometheus itself makes.
OWN = {"up", "ALERTS"}


def series_names():
    """Return the names of all series that the exporter and the recording rules make."""
    names = {record.name for record in RECORDS} | OWN
    for family in FAMILIES.values():
        endings = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("",)
        names |= {family.name + ending for ending in endings}
    return names


def names_in(expression):
    """Return the names of the series that an expression selects."""
    plain = re.sub(r'"(?:\\.|[^"\\])*"', '""', expression)
    return {name for name in re.findall(r"[a-zA-Z_:][\w:]*", plain) if name.startswith("trainvitals_") or ":" in name}
