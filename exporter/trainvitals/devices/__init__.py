"""Accelerators.  A vendor is one file here and one row in :mod:`trainvitals.devices.vendors`.

A vendor's library talks to a driver, and a driver can hang for ever.  So it is only ever called in a child process
(:mod:`~trainvitals.devices.worker`), which says on its :mod:`~trainvitals.devices.wire` what it is about to ask.
:mod:`~trainvitals.devices.supervisor` decides about the children: :mod:`~trainvitals.devices.child` is one of them,
:mod:`~trainvitals.devices.crew` are all, :mod:`~trainvitals.devices.quarantine` has the devices that are left alone;
:mod:`~trainvitals.devices.board` and :mod:`~trainvitals.devices.roster` keep what is known, and
:mod:`~trainvitals.devices.pci` knows what should be here, :mod:`~trainvitals.devices.detect` starts the vendors that
are.  Those that are read through command line tools share :mod:`~trainvitals.devices.tools`, which runs them,
:mod:`~trainvitals.devices.plausible`, which says what is a value, and :mod:`~trainvitals.devices.errands`.  The child
imports this package: what stands here must stay small.
"""
