"""A recorder in this process, without hooks into the interpreter that runs the tests."""

from __future__ import annotations

import glob
import threading
from collections.abc import Iterator

import pytest

from trainvitals import probe as probe_module
from trainvitals import rankfile
from trainvitals.probe.recorder import Recorder


class Recorded:
    """What one recorder left in the spool."""

    def __init__(self, folder: str) -> None:
        (path,) = glob.glob(f"{folder}/*{rankfile.RANK_SUFFIX}")
        reader = rankfile.Reader(path)
        self.identity, self.names = reader.read_text()
        state = reader.read_state()
        assert state is not None
        self.state = state
        self.records, self.invalid = reader.read_records(0)
        self.started = reader.header.started_monotonic
        reader.close()
        try:
            with open(path.removesuffix(rankfile.RANK_SUFFIX) + rankfile.EVENTS_SUFFIX, "rb") as file:
                self.events = file.read().splitlines()
        except FileNotFoundError:
            self.events = []

    @property
    def steps(self) -> list[tuple[int, dict[str, float]]]:
        """Step and values by name of each record."""
        return [
            (record.step, {self.names[index]: value for index, value in record.values.items()})
            for record in self.records
        ]


@pytest.fixture
def recorder(spool) -> Iterator[Recorder]:
    """Give a recorder."""
    recorder = Recorder(str(spool), {"run": "test", "rank": 0, "attempt": 0, "world_size": 1})
    yield recorder
    recorder.finish("ok")


@pytest.fixture
def recorded(spool, request):
    """Give a function that reads what was recorded so far."""

    def read() -> Recorded:
        if "recorder" in request.fixturenames:
            recorder = request.getfixturevalue("recorder")
            if not recorder.closed:
                # A quick step publishes its record only; counters follow with the next call of another kind.
                recorder.writer.write_state()
        return Recorded(str(spool))

    return read


@pytest.fixture
def probe(recorder, monkeypatch):
    """Give the module that a training calls, recording."""
    monkeypatch.setattr(probe_module, "_recorder", recorder)
    monkeypatch.setattr(probe_module, "_switched_off", None)
    monkeypatch.setattr(probe_module, "_told", set())
    monkeypatch.setattr(probe_module, "_thread", threading.get_ident())
    return probe_module
