"""The exporter, in which findings end some seconds after their cause: tests wait for the end, but not for minutes."""

from trainvitals.cli import app
from trainvitals.collect import data
from trainvitals.detect import nonfinite

data.HOLD = nonfinite.HOLD_SECONDS = 5.0

if __name__ == "__main__":
    app()
