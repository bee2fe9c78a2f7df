"""``trainvitals ctl``: act on a run that goes on."""
