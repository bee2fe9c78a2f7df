"""Maps from the series of other exporters to ours; a new one is a file and a row here."""

from __future__ import annotations

from trainvitals.generate.passthrough.amd import AMD
from trainvitals.generate.passthrough.base import Map, records
from trainvitals.generate.passthrough.dcgm import DCGM, MOORE_THREADS
from trainvitals.generate.passthrough.hygon import DCU, HCU
from trainvitals.generate.passthrough.mlu import MLU
from trainvitals.generate.passthrough.mx import MX
from trainvitals.generate.passthrough.npu import NPU
from trainvitals.generate.passthrough.others import ENFLAME, GAUDI, ILUVATAR, INTEL
from trainvitals.generate.rules import file_of_rules

__all__ = ["MAPS", "Map", "passthrough_files", "records"]

MAPS: tuple[Map, ...] = (NPU, AMD, DCGM, MX, MLU, ILUVATAR, DCU, HCU, GAUDI, ENFLAME, MOORE_THREADS, INTEL)


def passthrough_files() -> dict[str, str]:
    """Return a rule file for each exporter, by its name."""
    return {
        f"{one.job}.yml": file_of_rules(
            f"trainvitals-{one.job}", records(one), f"# {one.title}, as docs/passthrough.md says.\n"
        )
        for one in MAPS
    }
