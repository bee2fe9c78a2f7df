"""The exporter, in which findings end some seconds after their cause: tests wait for the end, but not for minutes."""

from trainvitals.cli import app
from trainvitals.collect import data
from trainvitals.detect.nonfinite import NonfiniteLoss, NonfiniteSettings

data.HOLD = 5.0
NonfiniteLoss.__init__.__defaults__ = (NonfiniteSettings(hold_seconds=5.0),)

if __name__ == "__main__":
    app()
