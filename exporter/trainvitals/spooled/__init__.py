"""What a rank file and the events file beside it say, in the words of :mod:`trainvitals.telemetry`.

Both the exporter, which reads them as they grow, and the check-up, which reads them once, need it.
"""
