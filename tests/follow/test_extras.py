"""What followed logs need beyond the exporter, and files that take long to read."""

from __future__ import annotations

import shutil
import sys
import time

from tests.follow.helpers import LOGS

from trainvitals.follow.base import SURE, FileFormat, Row
from trainvitals.follow.formats.tensorboard import TensorBoard
from trainvitals.follow.reader import Reader

EVENTS = LOGS / "tensorboard/events.out.tfevents.1772000000.node.1.0"


def test_a_missing_library_is_named(monkeypatch):
    """The user is told what to install, at every poll; the exporter goes on."""
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    reader = Reader(str(EVENTS), [TensorBoard()])

    assert [item for items in reader.poll(1 << 20, 1.0) for item in items] == []
    assert "pip install 'trainvitals[logs]'" in reader.problem


class Slow(FileFormat):
    """A format whose files take long to read."""

    name = "slow"

    def __init__(self):
        self.readings = 0

    def sniff(self, head, path):  # noqa: ARG002
        """Know everything."""
        return SURE

    def read(self, path):  # noqa: ARG002
        """Take a tenth of a second."""
        self.readings += 1
        time.sleep(0.1)
        return [Row(step, {"loss": 1.0}) for step in range(self.readings)]


def test_a_file_that_takes_long_is_read_seldom(tmp_path):
    """A reading that took a second is not repeated for twenty, however often the file changes."""
    path = tmp_path / "large.db"
    shutil.copy(EVENTS, path)
    log_format = Slow()
    reader = Reader(str(path), [log_format])
    for second in range(30):
        with path.open("ab") as file:
            file.write(b"x")
        for _ in reader.poll(1 << 20, 1000.0 + second):
            pass

    assert 2 <= log_format.readings <= 16
