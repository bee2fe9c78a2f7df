"""Which links of a device should work: those that have worked since the exporter started.

A board has links that nothing is plugged into, and nothing tells them from broken ones but their past.  A reader of
devices may be replaced at any time, so the past is kept here.  It begins with the exporter: a link that broke before is
missing in ``device_links_expected``, which differs from that of the other devices then, and from what it was.
"""

from __future__ import annotations

from dataclasses import replace

from trainvitals.telemetry import DeviceSample

#: Devices that are remembered; a node has far fewer.
_MOST = 256


class KnownLinks:
    """Remembers links by the UUID of their device.  Not thread-safe."""

    def __init__(self) -> None:
        self._worked: dict[str, set[str]] = {}

    def settle(self, device: DeviceSample) -> DeviceSample:
        """Return the sample without the links that never worked, and with ``links_expected``.

        One whose reader tells no state of links comes back as it is.
        """
        states = {key[1]: value for key, value in device.values.items() if key[0] == "link_up"}
        if not states:
            return device
        # The device that was seen last is the last to be forgotten.
        worked = self._worked.pop(device.uuid, set()) | {link for link, up in states.items() if up}
        self._worked[device.uuid] = worked
        if len(self._worked) > _MOST:
            del self._worked[next(iter(self._worked))]
        values = {key: value for key, value in device.values.items() if _belongs(key, worked)}
        values["links_expected",] = float(len(worked))
        return replace(device, values=values)


def _belongs(key: tuple[str, ...], worked: set[str]) -> bool:
    family, *labels = key
    if family.startswith("link_"):
        return labels[0] in worked
    return bool(worked) or not family.startswith("links_")
