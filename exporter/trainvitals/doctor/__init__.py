"""``trainvitals doctor``: what can be read on this machine, what not, why, and what to do about it.

``base`` says what a check is, ``table`` lists them all, ``run`` makes them without ever waiting for one that hangs,
``report`` shows what they found; every other file is one subject.
"""
