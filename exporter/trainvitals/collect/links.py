"""Which links of a device should work: those that have worked since the exporter started.

A board has links that nothing is plugged into, and nothing tells them from broken ones but their past.  A reader of
devices may be replaced at any time, so the past is kept here.  It begins with the exporter: a link that broke before is
missing in ``device_links_expected``, which differs from that of the other devices then, and from what it was.

Eight devices have 144 links, and nearly always all of them work.  So they are counted, and one is shown by itself from
the time on at which it did not work.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from trainvitals.telemetry import DeviceSample

#: Devices that are remembered; a node has far fewer.
_MOST = 256


@dataclass
class _Past:
    """The links of a device that have worked, and those of them that did not work later."""

    worked: set[str] = field(default_factory=set)
    broke: set[str] = field(default_factory=set)


class KnownLinks:
    """Remembers links by the UUID of their device, or else its index.  Not thread-safe."""

    def __init__(self) -> None:
        self._pasts: dict[str, _Past] = {}

    def settle(self, device: DeviceSample) -> DeviceSample:
        """Return the sample without the links that never worked, and with ``links_expected`` and ``links_up``.

        One whose reader tells no state of links comes back as it is.
        """
        states = {key[1]: bool(value) for key, value in device.values.items() if key[0] == "link_up"}
        if not states:
            return device
        # The device that was seen last is the last to be forgotten.
        name = device.uuid or str(device.index)
        past = self._pasts[name] = self._pasts.pop(name, _Past())
        if len(self._pasts) > _MOST:
            del self._pasts[next(iter(self._pasts))]
        up = {link for link, works in states.items() if works}
        past.worked |= up
        past.broke |= past.worked & states.keys() - up
        values = {key: value for key, value in device.values.items() if _belongs(key, past)}
        values["links_expected",] = float(len(past.worked))
        if past.worked <= states.keys():
            values["links_up",] = float(len(up))
        return replace(device, values=values)


def _belongs(key: tuple[str, ...], past: _Past) -> bool:
    family, *labels = key
    if family == "link_up":
        return labels[0] in past.broke
    if family.startswith("link_"):
        return labels[0] in past.worked
    return bool(past.worked) or not family.startswith("links_")
