"""The small, real training run of ``trainvitals up --demo``: :mod:`trainvitals.bundle.demo.train` is the loop."""
