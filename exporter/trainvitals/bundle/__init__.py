"""``trainvitals up``: the whole bundle on this machine, as children of one process that cleans up after itself."""
