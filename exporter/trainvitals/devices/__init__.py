"""Accelerators.  A vendor is one file here and one row in :mod:`trainvitals.devices.vendors`.

A vendor's library talks to a driver, and a driver can hang for ever.  So it is only ever called in a child process
(:mod:`~trainvitals.devices.worker`) that :mod:`~trainvitals.devices.supervisor` watches and replaces.  The
child imports this package: what stands here must stay small.
"""
