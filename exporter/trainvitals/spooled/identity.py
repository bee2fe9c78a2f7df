"""Who a rank is, as its file says."""

from __future__ import annotations

from collections.abc import Mapping

from trainvitals.telemetry import Identity, pci_address


def identity_of(fields: Mapping[str, object]) -> Identity:
    """Build an identity from what a file says; wrong types fall back to the defaults.

    Texts are bounded by the size of their area, and cleaned where they become labels.
    """

    def text(name: str) -> str:
        value = fields.get(name)
        return value if isinstance(value, str) else ""

    def number(name: str, default: int) -> int:
        value = fields.get(name)
        return value if isinstance(value, int) and 0 <= value < 2**31 else default

    target = number("target_steps", 0)
    return Identity(
        run=text("run") or "unknown",
        rank=number("rank", 0),
        local_rank=number("local_rank", 0),
        world_size=number("world_size", 1),
        attempt=number("attempt", 0),
        framework=text("framework"),
        target_steps=target or None,
        device_uuid=text("device_uuid"),
        node_rank=str(number("node_rank", 0)) if "node_rank" in fields else "",
        pci_bus_id=pci_address(text("pci_bus_id")),
    )
