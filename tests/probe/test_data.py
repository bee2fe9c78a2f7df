"""Watched loaders that are no PyTorch: what is counted, what is named, and that the program sees no difference."""

from __future__ import annotations

import copy
import gc
import json
import math
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Iterator, Sized

import pytest

import trainvitals
from trainvitals import rankfile
from trainvitals.probe import batches, watch
from trainvitals.probe import data as module
from trainvitals.rankfile import ledger

BATCHES = [{"x": [1.0, 2.0], "path": ["/d/a", "/d/b"]}, {"x": [3.0], "path": ["/d/c"]}]


class Loader:
    """Hands out ``items``; those that are exceptions are raised, and the next call goes on behind them."""

    def __init__(self, items):
        self.items = items
        self.epoch = None

    def set_epoch(self, epoch):
        """Remember the epoch."""
        self.epoch = epoch

    def __iter__(self):
        return Run(self.items)


class LongLoader(Loader):
    """The same with a length."""

    def __len__(self):
        return len(self.items)


class Run:
    """An iterator that goes on behind an error."""

    def __init__(self, items):
        self.items = list(items)

    def __iter__(self):
        return self

    def __next__(self):
        if not self.items:
            raise StopIteration
        item = self.items.pop(0)
        if isinstance(item, BaseException):
            raise item
        return item


def names_of(recorder, count):
    """Return what the ledger says of the batches for a step."""
    reader = ledger.LedgerReader(ledger.path_of_data(recorder.writer.path), os.getuid())
    try:
        return [batch.names for batch in reader.batches({count})]
    finally:
        reader.close()


def counters_of(recorder):
    """Return what the ledger counted."""
    reader = ledger.LedgerReader(ledger.path_of_data(recorder.writer.path), os.getuid())
    try:
        return reader.counters()
    finally:
        reader.close()


def events_of(recorded, kind):
    """Return the events of a kind."""
    return [event for line in recorded().events if (event := json.loads(line))["kind"] == kind]


# What the program sees ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recording", [True, False])
def test_the_batches_are_the_same_objects(request, recording):
    """In the same order, over any number of epochs, recorded or not."""
    if recording:
        request.getfixturevalue("probe")
    loader = trainvitals.data(BATCHES)

    for _ in range(3):
        assert [id(batch) for batch in loader] == [id(batch) for batch in BATCHES]


def test_it_behaves_like_the_loader():
    """Length, items, attributes, methods, isinstance, equality, repr, and setting what others set."""
    items = [1, 2, 3]
    loader = trainvitals.data(items)

    assert isinstance(loader, list)
    assert (len(loader), loader[1], 3 in loader, list(reversed(loader))) == (3, 2, True, [3, 2, 1])
    assert loader == items
    assert repr(loader) == "[1, 2, 3]"
    loader.append(4)
    assert items == [1, 2, 3, 4]

    inner = Loader([1])
    outer = trainvitals.data(inner)
    outer.set_epoch(5)
    outer.flag = "set"
    assert (inner.epoch, inner.flag, outer.epoch) == (5, "set", 5)
    del outer.flag
    assert not hasattr(inner, "flag")
    assert {outer: 1}[inner] == 1
    assert "set_epoch" in dir(outer)
    assert vars(outer) is vars(inner)


def test_it_has_no_more_than_the_loader_has():
    """A loader without a length must not seem to have one: frameworks ask."""
    loader = trainvitals.data(Loader([1]))

    assert not isinstance(loader, (Sized, Iterator))
    assert not hasattr(loader, "__len__")
    assert not hasattr(loader, "__getitem__")
    assert isinstance(trainvitals.data(LongLoader([1])), Sized)
    with pytest.raises(TypeError):
        len(loader)
    with pytest.raises(TypeError):
        hash(trainvitals.data([1]))


def test_twice_is_once():
    """A watched loader is not watched again."""
    loader = trainvitals.data(BATCHES)

    assert trainvitals.data(loader) is loader
    assert trainvitals.data(iterator := iter(loader)) is iterator


@pytest.mark.usefixtures("probe")
def test_a_generator_stays_one():
    """It can be asked for the next batch, closed, and used in a for loop."""
    loader = trainvitals.data(number for number in range(5))

    assert next(loader) == 0
    assert list(loader) == [1, 2, 3, 4]
    assert list(loader) == []

    closed = []

    def numbers():
        try:
            yield from range(5)
        finally:
            closed.append(True)

    loader = trainvitals.data(numbers())
    for _ in loader:
        break
    loader.close()
    assert closed == [True]


def test_an_early_break_lets_the_iterator_go():
    """At once, without the garbage collector: workers end with their iterator."""
    run = Run([1, 2, 3])
    gone = weakref.ref(run)
    inner = Loader([])
    inner.__class__ = type("Once", (Loader,), {"__iter__": lambda self: self.__dict__.pop("run")})
    inner.run = run
    del run
    gc.disable()
    try:
        for _ in trainvitals.data(inner):
            break
        del _
        assert gone() is None
    finally:
        gc.enable()


def test_it_can_be_copied_and_pickled():
    """What comes out is watched again."""
    for loader in (
        pickle.loads(pickle.dumps(trainvitals.data([1, 2], on_error="skip"))),
        copy.copy(trainvitals.data([1, 2])),
        copy.deepcopy(trainvitals.data([1, 2])),
    ):
        assert type(loader).__mro__[1] is module.Watched
        assert list(loader) == [1, 2]


# What is measured ---------------------------------------------------------------------------------------------------


def test_waiting_is_data(probe, recorder):
    """The phase inside next() and in making the iterator is data; behind it, what was before."""
    seen = []

    class Asking(Loader):
        def __iter__(self):
            seen.append(probe.current_phase())
            for _ in range(2):
                seen.append(probe.current_phase())
                yield 1

    probe.step(loss=1.0)
    seen += [probe.current_phase() for _ in trainvitals.data(Asking([]))]

    assert seen == ["data", "data", "data", "train", "train"]
    assert probe.current_phase() == "train"
    assert recorder.writer.state.phase_seconds[3] > 0.0


@pytest.mark.parametrize("phase", ["data", "evaluation", "checkpoint"])
def test_waiting_within_these_stays_theirs(probe, recorder, phase):
    """An evaluation waits for its own data, and who counts already is not counted twice."""
    seen = []
    with probe.phase(phase):
        seen += [probe.current_phase() for _ in trainvitals.data(iter([1]))]
    assert seen == [phase]
    assert recorder.phases.current == rankfile.PHASES.index("init")
    assert recorder.writer.state.phase_seconds[3] > 0.0 or phase != "data"


def test_a_loader_within_a_loader_waits_once(probe, recorder, recorded):
    """Seconds count once, and all phases add up to the time since the start."""
    inner = trainvitals.data([1, 2, 3])
    with probe.phase("forward"):
        for _ in trainvitals.data(number for number in inner):
            assert probe.current_phase() == "forward"
            with probe.phase("backward"):
                pass
        assert probe.current_phase() == "forward"
    assert probe.current_phase() == "init"

    recorder.finish("ok")
    found = recorded()
    assert math.isclose(sum(found.state.phase_seconds), found.state.heartbeat - found.started, abs_tol=1e-9)
    assert counters_of(recorder).batches == 6


def test_a_prefetching_thread_does_not_wait_for_the_training(probe, recorder):
    """Batches of another thread are counted, its time is not."""
    probe.step(loss=1.0)
    loader = trainvitals.data([1, 2, 3])
    thread = threading.Thread(target=lambda: list(loader))
    thread.start()
    thread.join()

    assert recorder.writer.state.phase_seconds[3] == 0.0
    assert counters_of(recorder).batches == 3


def test_batches_samples_and_names_are_counted(probe, recorder):
    """Names go to the step that comes next; several batches of a step stand together."""
    loader = iter(trainvitals.data(BATCHES))
    next(loader)
    probe.step(1, loss=1.0)
    next(loader)
    for batch in trainvitals.data([{"idx": (7, 8)}]):
        assert batch
    probe.step(2, loss=1.0)

    assert names_of(recorder, 1) == [("/d/a", "/d/b")]
    assert names_of(recorder, 2) == [("/d/c",), (7, 8)]
    found = counters_of(recorder)
    assert (found.batches, found.samples) == (3, 5)


def test_an_evaluation_leaves_no_suspects(probe, recorder):
    """Its batches are counted and not named."""
    with probe.phase("evaluation"):
        list(trainvitals.data(BATCHES))

    assert names_of(recorder, 1) == []
    assert counters_of(recorder).batches == 2


@pytest.mark.usefixtures("probe")
@pytest.mark.parametrize(
    ("ids", "expected"),
    [("x", ("1.0", "2.0")), (lambda batch: batch["path"], ("/d/a", "/d/b")), (lambda _: iter([3, 4]), (3, 4))],
)
def test_ids_say_what_to_name(recorder, ids, expected):
    """A key of the batch, or a function."""
    next(iter(trainvitals.data(BATCHES, ids=ids)))

    assert names_of(recorder, 1) == [expected]


@pytest.mark.usefixtures("probe")
@pytest.mark.parametrize(
    ("batch", "names"),
    [
        ({"path": "a", "idx": [1]}, ("a",)),
        ({"idx": [1, 2], "label": [0, 1]}, (1, 2)),
        ({"__key__": ["k1", "k2"], "__url__": ["s.tar", "s.tar"]}, ("s.tar", "k1", "k2")),
        ([{"path": "a"}, {"path": "b"}], ("a", "b")),
        ({"label": [0, 1]}, None),
        ("text", None),
        (7, None),
        ([], None),
        (None, None),
    ],
)
def test_names_are_found_in_batches(recorder, batch, names):
    """Files before numbers, the shard of WebDataset once; nothing in what has no names."""
    list(trainvitals.data([batch]))

    assert names_of(recorder, 1) == ([] if names is None else [names])
    assert recorder.writer.state.errors == 0


@pytest.mark.usefixtures("probe")
def test_keys_may_change_from_batch_to_batch(recorder):
    """A mixture of data sets: what one lacks is looked for anew."""
    list(trainvitals.data([{"path": ["a"]}, {"idx": [1]}, {"idx": [2]}]))

    assert names_of(recorder, 1) == [("a",), (2,)]


@pytest.mark.parametrize(
    ("batch", "samples"),
    [([1, 2, 3], 3), (([1, 2], "ab"), 2), ({"text": ["a", "b", "c"]}, 3), ("text", None), (None, None), ({}, None)],
)
def test_the_number_of_samples_is_seen(batch, samples):
    """The length of lists; nothing of what has none."""
    assert batches.size_of(batch) == (samples, 0)


@pytest.mark.usefixtures("probe")
def test_the_batch_size_can_be_told(recorder):
    """A number or a function; one that returns none counts nothing."""
    for size in (7, len, lambda _: "many"):
        list(trainvitals.data([[1, 2]], batch_size=size))

    assert counters_of(recorder).samples == 7 + 2


# Errors -------------------------------------------------------------------------------------------------------------


def broken(position=1, length=4, error=None):
    """Return items with an error among them."""
    items = list(range(length))
    items[position] = error or OSError(2, "No such file or directory", "/data/damaged.bin")
    return items


def test_raise_is_as_before(probe, recorder, recorded):
    """The same exception object with its traceback, recorded once, with its file."""
    items = broken()
    taken = []
    with pytest.raises(OSError, match="damaged") as caught:
        taken.extend(trainvitals.data(Loader(items)))

    assert taken == [0]
    assert caught.value is items[1]
    assert caught.traceback[-1].name == "__next__"
    assert caught.value.__context__ is None
    (event,) = events_of(recorded, "data_error")
    assert {"type": "FileNotFoundError", "file": "/data/damaged.bin", "position": 1, "policy": "raise"}.items() <= (
        event.items()
    )
    assert counters_of(recorder).errors == 1
    assert probe.current_phase() == "init"


@pytest.mark.parametrize("recording", [True, False])
def test_skip_goes_on(request, recording):
    """The batch is left out, whether the process is recorded or not."""
    if recording:
        request.getfixturevalue("probe")

    assert list(trainvitals.data(Loader(broken()), on_error="skip")) == [0, 2, 3]


@pytest.mark.usefixtures("probe")
def test_a_generator_that_raised_is_finished(recorder):
    """There is nothing to skip to: an epoch must not end early in silence."""

    def numbers():
        yield 1
        raise ValueError("bad line")

    with pytest.raises(ValueError, match="bad line"):
        list(trainvitals.data(numbers(), on_error="skip"))
    assert counters_of(recorder).errors == 1


class Hidden(Loader):
    """Its iterator is no generator, but one drives it."""

    def __iter__(self):
        def inner():
            yield 1
            raise ValueError("bad line")

        return map(abs, inner())


def test_an_iterator_that_ends_with_its_error_raises_it():
    """What seemed to go on and was at its end: the error is raised after all."""
    with pytest.raises(ValueError, match="bad line") as caught:
        list(trainvitals.data(Hidden([]), on_error="skip"))
    assert caught.value.__context__ is None


def test_an_error_in_the_last_batch_is_skipped_where_the_length_is_known():
    """Then the end is the end."""
    assert list(trainvitals.data(LongLoader(broken(3)), on_error="skip")) == [0, 1, 2]


@pytest.mark.usefixtures("probe")
def test_errors_in_a_row_have_an_end(recorder):
    """A disk that is gone fails for ever: the seventeenth is raised."""
    items = [OSError("gone") for _ in range(100)]
    with pytest.raises(OSError, match="gone") as caught:
        list(trainvitals.data(Loader(items), on_error="skip"))

    assert caught.value is items[16]
    assert counters_of(recorder).errors == 17


@pytest.mark.parametrize("errors", [0, 1])
def test_complaints_in_a_row_have_an_end(errors):
    """A check that likes nothing of a stream without an end: the seventeenth batch is handed out, errors among them."""

    class Endless(Run):
        def __next__(self):
            self.items.append(len(self.items))
            if errors and len(self.items) % 2:
                raise ValueError("gone")
            return len(self.items)

    loader = trainvitals.data(Endless([]), check=lambda _: "odd", on_error="skip")
    if errors:
        with pytest.raises(ValueError, match="gone"):
            next(loader)
    else:
        assert (next(loader), next(loader)) == (17, 18)


def test_a_good_batch_ends_the_row(recorder, probe):
    """Then the check is believed again; what was handed out all the same is no longer called skipped."""
    items = [*range(17), 100, 1, 200]
    taken = list(trainvitals.data(items, check=lambda item: "small" if item < 50 else None, on_error="skip"))

    assert taken == [16, 100, 200]
    assert counters_of(recorder).errors == 18
    assert probe.is_recording()


@pytest.mark.usefixtures("recorder")
def test_what_is_no_error_passes(probe, recorded):
    """Ctrl-C is nobody's data error."""
    with pytest.raises(KeyboardInterrupt):
        list(trainvitals.data(Loader([KeyboardInterrupt()]), on_error="skip"))

    assert events_of(recorded, "data_error") == []
    assert probe.current_phase() == "init"


def test_a_thousand_errors_leave_room_for_other_events(probe, recorder, recorded):
    """The first are told one by one, all are counted, and checkpoints are still recorded."""
    items = [item for number in range(1000) for item in (ValueError("x" * 300), number)]
    assert len(list(trainvitals.data(Loader(items), on_error="skip"))) == 1000
    with probe.checkpoint(1, "/c"):
        pass

    assert [event["number"] for event in events_of(recorded, "data_error")] == [*range(1, 65), 128, 256, 512]
    assert counters_of(recorder).errors == 1000
    assert len(events_of(recorded, "checkpoint")) == 1


@pytest.mark.usefixtures("probe")
def test_damaged_data_takes_half_of_the_events_at_most(recorder, recorded):
    """However much there is to tell."""
    for _ in range(3000):
        recorder.event("data_error", {"message": "x" * 300})
    for _ in range(100):
        recorder.event("change", {"message": "x" * 300})

    assert 500_000 < sum(map(len, recorded().events[:-100])) < 524_288
    assert len(events_of(recorded, "change")) == 100


@pytest.mark.parametrize(
    ("error", "file"),
    [
        (OSError(5, "Input/output error", b"/d/\xff.bin"), "/d/\ufffd.bin"),
        (ValueError("cannot identify image file '/d/x.jpg'"), "/d/x.jpg"),
        (RuntimeError('Caught ValueError in worker 0.\nTraceback\nValueError: bad header in "y.npy"\n'), "y.npy"),
        (ValueError("bad"), None),
        (ValueError("it isn't, or 'is' it"), None),
        (ValueError(), None),
    ],
)
def test_the_file_of_an_error_is_found(error, file):
    """In the exception, or in quotes in its message."""
    assert batches.describe(error).get("file") == file


def test_the_file_of_a_cause_is_found():
    """Libraries wrap what the system said."""
    error = RuntimeError("cannot load")
    error.__cause__ = FileNotFoundError(2, "No such file", "/d/z")

    assert batches.describe(error)["file"] == "/d/z"


# Checks -------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("probe")
@pytest.mark.parametrize(("policy", "left"), [("raise", [1, -2, 3]), ("skip", [1, 3])])
def test_a_check_names_bad_batches(recorder, recorded, policy, left):
    """It is recorded; with skip, the batch is left out."""
    loader = trainvitals.data(
        [1, -2, 3], check=lambda batch: "negative" if batch < 0 else None, on_error=policy, ids=lambda batch: [batch]
    )

    assert list(loader) == left
    (event,) = events_of(recorded, "data_error")
    assert (event["message"], event["ids"], event["position"]) == ("negative", [-2], 1)
    assert counters_of(recorder).errors == 1


@pytest.mark.parametrize("name", ["ids", "check", "batch_size"])
def test_functions_of_the_user_that_raise_are_asked_no_more(probe, recorder, capsys, name):
    """After three errors, with a word on standard error; the probe itself goes on."""
    asked = []

    def function(batch):
        asked.append(batch)
        raise ZeroDivisionError

    assert list(trainvitals.data(list(range(10)), **{name: function})) == list(range(10))
    assert asked == [0, 1, 2]
    assert f"given as {name}=" in capsys.readouterr().err
    assert recorder.writer.state.errors == 0
    assert probe.is_recording()


# Losses -------------------------------------------------------------------------------------------------------------


def test_a_nan_leaves_the_names_of_its_batches(probe, recorded):
    """One line: the batches of that step, and those before it."""
    for number, batch in enumerate(trainvitals.data([{"path": [f"/d/{n}"]} for n in range(6)])):
        assert batch
        probe.step(10 * number, loss=float("nan") if number == 3 else 1.0)

    (event,) = events_of(recorded, "data")
    assert (event["action"], event["reason"]) == ("batch", "loss_nonfinite")
    assert [(batch["step"], batch["count"], batch["ids"]) for batch in event["batches"]] == [
        (30, 4, ["/d/3"]),
        (20, 3, ["/d/2"]),
        (10, 2, ["/d/1"]),
        (0, 1, ["/d/0"]),
    ]


def test_an_odd_loss_leaves_the_names_of_its_batches(probe, recorded):
    """After 64 losses it is known what is usual."""
    for number, batch in enumerate(trainvitals.data([{"path": [f"/d/{n}"]} for n in range(200)])):
        assert batch
        probe.step(loss=9.0 if number in (30, 150) else 2.0 + number % 7 / 10)

    (event,) = events_of(recorded, "data")
    assert event["reason"] == "loss_outlier"
    assert event["batches"][0]["ids"] == ["/d/150"]


def test_an_event_of_the_program_leaves_the_names(probe, recorded):
    """Somebody saw something odd, and says so."""
    for number, batch in enumerate(trainvitals.data([{"path": [f"/d/{n}"]} for n in range(3)])):
        assert batch
        probe.step(number, loss=1.0)
    probe.event("odd", "reward hacking?")

    (event,) = events_of(recorded, "data")
    assert event["reason"] == "event"
    assert event["batches"][0]["ids"] == ["/d/2"]


def test_an_event_does_not_hide_a_loss(probe, recorded):
    """A line about an event comes first; the NaN that follows has its own, and each step its number."""
    for number, _ in enumerate(trainvitals.data({"path": [f"/d/{index}"]} for index in range(5))):
        probe.step(100 + number, {"loss": 1.0 if number < 3 else float("nan")})
        if number == 2:
            probe.event("odd")

    lines = events_of(recorded, "data")
    assert [(line["reason"], line["batches"][0]["step"]) for line in lines] == [("event", 102), ("loss_nonfinite", 103)]


def test_lines_about_batches_are_bounded(probe, recorder, recorded):
    """However many losses are NaN, and however long the names are."""
    names = [f"/d/{'x' * 200}{index}" for index in range(300)]
    for _ in trainvitals.data([{"path": names}] * 8000):
        probe.step(loss=float("nan"))

    found = events_of(recorded, "data")
    assert 1 < len(found) <= 64
    assert max(map(len, recorded().events)) <= 4096
    assert recorder.writer.state.dropped == 0


@pytest.mark.usefixtures("probe", "recorder")
def test_indices_become_files_where_the_data_set_lists_them():
    """As torchvision's folders do: (path, class)."""

    class Folder:
        samples = (("/d/cat/1.jpg", 0), ("/d/dog/2.jpg", 1))

    assert batches.file_of(Folder(), 1) == "/d/dog/2.jpg"
    assert batches.file_of(Folder(), 2) == 2
    assert batches.file_of(None, 1) == 1


# Our own failures ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("probe")
@pytest.mark.parametrize("name", ["begin", "end", "take", "error", "tell", "_look"])
def test_errors_of_ours_never_reach_the_program(recorder, monkeypatch, name):
    """Each part raises; batches, exceptions and policies stay what they are, and the error is counted."""

    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(watch.Watch, name, fail)
    loader = trainvitals.data(Loader([{"idx": [1]}, ValueError("bad"), {"idx": [2]}]), on_error="skip")
    taken = []
    for batch in loader:
        taken.append(batch)
        trainvitals.step(loss=float("nan"))
        trainvitals.event("odd")

    assert taken == [{"idx": [1]}, {"idx": [2]}]
    assert recorder.writer.state.errors >= 1


@pytest.mark.usefixtures("probe", "recorder")
def test_odd_batches_cost_nothing():
    """Batches whose attributes raise, or lie."""

    class Odd:
        def __getattr__(self, name):
            raise RuntimeError(name)

        def __eq__(self, _):
            raise RuntimeError

        __hash__ = None

    odd = Odd()
    assert next(iter(trainvitals.data([odd]))) is odd


class Angry:
    """Raises whatever it is asked for."""

    def __getattr__(self, name):
        """Raise."""
        raise RuntimeError(name)


class AngryDict(dict):
    """A dict that cannot be read."""

    def values(self):
        """Raise."""
        raise RuntimeError

    __getitem__ = values


class AngryError(Exception):
    """An error that cannot be told."""

    @property
    def filename(self):
        """Raise."""
        raise RuntimeError

    def __str__(self):
        """Raise."""
        raise RuntimeError


def test_the_programs_own_errors_are_none_of_ours(probe, recorder, recorded):
    """Batches and exceptions that raise when they are looked at do not switch the probe off."""
    items = [Angry(), AngryDict(path=[1]), {"idx": Angry()}, {"path": Angry()}, Angry(), AngryError(), AngryError()]
    taken = list(trainvitals.data(LongLoader(items), on_error="skip"))

    assert [left is right for left, right in zip(taken, items[:5], strict=True)] == [True] * 5
    assert probe.is_recording()
    assert recorder.writer.state.errors == 0
    assert 0 < recorder.writer.state.dropped <= 5
    assert counters_of(recorder).batches == 5
    assert [event["type"] for event in events_of(recorded, "data_error")] == ["AngryError"] * 2


def test_an_iterator_that_cannot_be_asked_raises_its_own_error():
    """Whether more is behind an error is not known then."""

    class Mute(Run):
        def __getattr__(self, name):
            raise RuntimeError(name)

    with pytest.raises(OSError, match="bad"):
        list(trainvitals.data(Mute([OSError("bad"), 1]), on_error="skip"))


@pytest.mark.usefixtures("probe")
def test_an_iterator_in_a_batch_is_not_used_up(recorder):
    """It is the program's to read; one that ids= returns was made for us."""
    rows = iter([1, 2])
    next(iter(trainvitals.data([{"idx": rows}])))

    assert list(rows) == [1, 2]
    assert names_of(recorder, 1) == []


@pytest.mark.usefixtures("probe")
def test_addresses_lose_what_opens_them(recorder, recorded):
    """Logins and signatures of addresses, in names and in messages."""
    batch = {"__url__": ["https://me:pw@host/a.tar?sig=abc", "https://host/b.tar"], "__key__": ["k1", "k2"]}
    items = [batch, OSError("403 for url: https://host/c.tar?X-Amz-Signature=abc")]
    list(trainvitals.data(LongLoader(items), on_error="skip"))

    assert names_of(recorder, 1) == [("https://host/a.tar", "https://host/b.tar", "k1", "k2")]
    (event,) = events_of(recorded, "data_error")
    assert event["message"] == "403 for url: https://host/c.tar"


def test_no_loader_is_no_loader():
    """A program may have none for its evaluation, and asks whether it is None."""
    assert trainvitals.data(None) is None


@pytest.mark.usefixtures("recorder")
def test_a_full_spool_costs_the_names_only(probe, monkeypatch, capsys):
    """No room for the data file: the rest is recorded."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ledger, "make", full)
    assert len(list(trainvitals.data(BATCHES))) == 2
    assert probe.is_recording()
    assert "names of samples are not recorded" in capsys.readouterr().err


def test_memory_stays_bounded(probe, recorder):
    """Over 100,000 batches with new names each."""

    def endless():
        for number in range(100_000):
            yield {"path": [f"/data/{number}/{index}" for index in range(4)]}

    before = 0
    for number, _ in enumerate(trainvitals.data(endless())):
        probe.step(number, {"loss": 1.0})
        if number == 2000:
            before = sys.getallocatedblocks()
    assert sys.getallocatedblocks() - before < 1000
    assert counters_of(recorder).batches == 100_000
