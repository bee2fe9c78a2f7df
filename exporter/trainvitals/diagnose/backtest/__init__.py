"""What rules would have said on runs of the past: ``trainvitals backtest``.

Each run is read once and judged twice: by the rules in question, and by the defaults.
"""
