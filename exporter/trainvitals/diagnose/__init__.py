"""The check-up of runs by their logs: ``trainvitals diagnose``.

It reads with the followers and judges with the detectors of the exporter; what it adds is the report.
"""
