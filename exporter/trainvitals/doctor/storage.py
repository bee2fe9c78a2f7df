"""File systems: each that matters is asked once, by a process that may get stuck."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

from trainvitals.doctor.base import Here, Result, absent, ok, problem
from trainvitals.host.mount_probe import MountProbe
from trainvitals.host.mounts import Choice, Mount, Mounts

#: Seconds that a file system gets to answer.
_PATIENCE = 6.0


def _make_probe() -> MountProbe:
    return MountProbe(timeout=_PATIENCE - 1)


def mounts(here: Here, make_probe: Callable[[], MountProbe] = _make_probe) -> Iterator[Result]:
    """Check that every file system answers; stuck ones are named."""
    settings = here.settings.storage
    found = Mounts(here.path("/proc")).read()
    chosen, _ = Choice(include=settings.include, exclude=settings.exclude, limit=settings.limit).of(found)
    if not chosen:
        yield absent("no file system that matters to a training")
        return
    probe = make_probe()
    probe.start()
    try:
        states = probe.ask(dict.fromkeys(chosen, "s"), _PATIENCE)
    finally:
        probe.stop()
    good = 0
    for mount, state in states.items():
        if state.finding is None:
            yield _stuck(mount)
        elif state.finding.trouble and state.finding.is_reached:
            yield _trouble(mount, state.finding.trouble)
        else:
            good += 1
    if good:
        remote = sum(mount.is_remote for mount in states)
        yield ok(f"{good} file systems answer, {remote} of all {len(states)} over a network")


def _stuck(mount: Mount) -> Result:
    return problem(
        f"{mount.fstype} does not answer within {_PATIENCE:g} s: whatever touches it hangs",
        "dmesg | grep -i 'not responding' | tail -n 5",
        mount.mountpoint,
    )


def _trouble(mount: Mount, trouble: str) -> Result:
    path = shlex.quote(mount.mountpoint)
    if trouble == "ESTALE":
        return problem("stale: the server has forgotten it", f"umount -l {path} && mount {path}", mount.mountpoint)
    return problem(f"cannot be asked: {trouble}", f"stat -f {path}", mount.mountpoint)
