"""Followers of existing logs: what a training wrote anyway becomes the steps and events that the probe would report.

``formats/`` knows what lines and records look like, one file each; ``tail`` the life of a file; ``sources`` which
files there are; ``run`` makes steps of what they say.  Nothing here knows a metric family, and nothing runs the
programs that wrote the logs.
"""
