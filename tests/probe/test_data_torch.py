"""Watched DataLoaders and guarded data sets of PyTorch: workers, shuffling, damaged files, and the same weights."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import time

import pytest

import trainvitals
from trainvitals import probe as probe_module
from trainvitals.probe import guarded as guarded_module
from trainvitals.rankfile import ledger

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.utils.data import (  # noqa: E402
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
)

#: Forked workers start in milliseconds; the tests run no threads that a fork could leave locked.
FORK = "fork"


@pytest.fixture(autouse=True)
def as_after_init(request):
    """What init does: workers that are forked forget the recorder, and the events file has its first line."""
    if not probe_module._fork_hook_installed:
        probe_module._fork_hook_installed = True
        os.register_at_fork(after_in_child=probe_module._forget)
    if "recorder" in request.fixturenames:
        request.getfixturevalue("recorder").event("start", {})


class Files(Dataset):
    """One number per file; ``files`` lists them."""

    def __init__(self, files):
        self.files = files
        self.epoch = 0

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index]) as file:
            return torch.tensor([float(file.read())])


@pytest.fixture
def files(tmp_path):
    """Ten files, of which number 4 is damaged."""
    paths = [str(tmp_path / f"{index}.txt") for index in range(10)]
    for index, path in enumerate(paths):
        with open(path, "w") as file:
            file.write("damaged" if index == 4 else str(index))
    return paths


class Numbers(Dataset):
    """Its samples are their indices."""

    def __init__(self, length=40):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.tensor([index])


def loader_of(dataset, workers=0, **options):
    """Return a DataLoader whose workers are forked."""
    context = FORK if workers else None
    return DataLoader(dataset, num_workers=workers, multiprocessing_context=context, **options)


def names_of(recorder, count):
    """Return the names in the batches for a step."""
    reader = ledger.LedgerReader(ledger.path_of_data(recorder.writer.path), os.getuid())
    try:
        return [batch.names for batch in reader.batches({count})]
    finally:
        reader.close()


def counters_of(recorder):
    """Return what was counted."""
    reader = ledger.LedgerReader(ledger.path_of_data(recorder.writer.path), os.getuid())
    try:
        return reader.counters()
    finally:
        reader.close()


def errors_of(recorded):
    """Return the events about errors."""
    return [event for line in recorded().events if (event := json.loads(line))["kind"] == "data_error"]


# Indices ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"workers": 2}, {"workers": 2, "persistent_workers": True}])
def test_the_indices_of_each_batch_are_known(probe, recorder, options):
    """From the sampler, in the order in which batches are handed out, with any number of workers, over epochs."""
    loader = trainvitals.data(loader_of(Numbers(), batch_size=8, shuffle=True, **options))

    for _ in range(2):
        for batch in loader:
            probe.step(loss=1.0)
            assert names_of(recorder, recorder.writer.state.count) == [tuple(batch.flatten().tolist())]
    assert counters_of(recorder) == ledger.DataCounters(10, 80, 640, 0)


def test_single_samples_have_their_index(probe, recorder):
    """A loader without batches draws one index at a time."""
    for batch in trainvitals.data(loader_of(Numbers(5), batch_size=None, sampler=[3, 1, 4])):
        probe.step(loss=1.0)
        assert names_of(recorder, recorder.writer.state.count) == [(batch.item(),)]


def test_a_break_and_a_new_epoch_do_not_mix(probe, recorder):
    """What was fetched ahead and not handed out is forgotten."""
    loader = trainvitals.data(loader_of(Numbers(), workers=2, batch_size=4, shuffle=True, persistent_workers=True))
    for _ in range(3):
        for number, batch in enumerate(loader):
            probe.step(loss=1.0)
            assert names_of(recorder, recorder.writer.state.count) == [tuple(batch.flatten().tolist())]
            if number == 2:
                break


@pytest.mark.usefixtures("probe")
def test_batches_out_of_order_have_no_indices(recorder):
    """Then nobody knows which they are."""
    list(trainvitals.data(loader_of(Numbers(), workers=2, batch_size=8, in_order=False)))

    assert names_of(recorder, 1) == []
    assert counters_of(recorder).batches == 5


@pytest.mark.usefixtures("probe")
def test_the_loader_is_as_it_was(recorder):
    """Samplers are those of the user, during an epoch and after it."""
    sampler = RandomSampler(Numbers())
    inner = loader_of(Numbers(), batch_size=8, sampler=sampler)
    before = dict(vars(inner))
    outer = trainvitals.data(inner)

    iterator = iter(outer)
    next(iterator)
    assert {name: id(value) for name, value in vars(inner).items()} == {name: id(v) for name, v in before.items()}
    assert isinstance(outer, DataLoader)
    assert (len(outer), outer.batch_size, outer.sampler is sampler) == (5, 8, True)
    assert isinstance(iterator, torch.utils.data.dataloader._BaseDataLoaderIter)
    assert len(iterator) == 5
    assert recorder.writer.state.errors == 0


def test_the_sampler_can_be_told_the_epoch():
    """loader.sampler.set_epoch(...), as for every distributed training."""
    sampler = torch.utils.data.DistributedSampler(Numbers(), num_replicas=2, rank=1, seed=3)
    loader = trainvitals.data(loader_of(Numbers(), batch_size=4, sampler=sampler))
    orders = []
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        orders.append(torch.cat(list(loader)).flatten().tolist())

    sampler.set_epoch(1)
    assert orders[0] != orders[1] == list(sampler)


def test_other_iterators_keep_their_rules(probe, recorder):
    """A loader with an iterator of its own is measured, and its sampler left alone."""

    class Own(DataLoader):
        def _get_iterator(self):
            assert type(self.batch_sampler) is torch.utils.data.BatchSampler
            return super()._get_iterator()

    for _ in trainvitals.data(Own(Numbers(8), batch_size=4)):
        probe.step(loss=1.0)

    assert names_of(recorder, 1) == []
    assert counters_of(recorder).batches == 2


def test_a_loader_that_leaves_batches_out_has_no_indices(probe, recorder):
    """Who iterates in a way of its own may hand out anything."""

    class Every(DataLoader):
        def __iter__(self):
            yield from list(super().__iter__())[::2]

    for _ in trainvitals.data(Every(Numbers(16), batch_size=4)):
        probe.step(loss=1.0)

    assert names_of(recorder, 1) == []
    assert counters_of(recorder).batches == 2


@pytest.fixture(params=[False, True], ids=["alone", "watched"])
def accelerate(request, monkeypatch):
    """Accelerate, alone or while it is watched."""
    library = pytest.importorskip("accelerate", reason="Accelerate is not installed")
    if request.param:
        from trainvitals.frameworks import accelerate as adapter

        kind = library.data_loader.DataLoaderShard
        monkeypatch.setattr(kind, "__iter__", vars(kind)["__iter__"])
        adapter._watch_loader(kind)
    return library


@pytest.mark.parametrize("bad", [None, 0, 4])
def test_loaders_of_accelerate_have_their_indices(accelerate, probe, recorder, recorded, bad):
    """They fetch one batch ahead, and begin with the first request only; also while Accelerate itself is watched."""

    class Bad(Numbers):
        def __getitem__(self, index):
            if index == bad:
                raise ValueError("bad")
            return super().__getitem__(index)

    accelerator = accelerate.Accelerator(cpu=True)
    loader = trainvitals.data(accelerator.prepare(DataLoader(Bad(16), batch_size=4, shuffle=bad is None)))
    taken = []
    with contextlib.suppress(ValueError):
        for batch in loader:
            taken.append(tuple(batch.flatten().tolist()))
            probe.step(loss=1.0)

    assert len(taken) == {None: 4, 0: 0, 4: 0}[bad]
    assert [names_of(recorder, count) for count in range(1, len(taken) + 1)] == [[names] for names in taken]
    # Nobody can tell which batch an error is in.
    assert [event.get("ids") for event in errors_of(recorded)] == ([] if bad is None else [None])


def test_below_no_grad_nobody_is_suspected(probe, recorder):
    """An evaluation in plain PyTorch: its waiting is not the training's."""
    probe.step(loss=1.0)
    with torch.no_grad():
        list(trainvitals.data(loader_of(Numbers(8), batch_size=4)))

    assert names_of(recorder, 2) == []
    assert recorder.writer.state.phase_seconds[3] == 0.0


# The same training --------------------------------------------------------------------------------------------------


def train(wrap, guard, workers):
    """Train a small model and return its weights and the state of the random numbers."""
    torch.manual_seed(11)
    dataset = guard(TensorDataset(torch.randn(64, 6), torch.randn(64, 1)))
    loader = wrap(loader_of(dataset, workers, batch_size=8, shuffle=True))
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            trainvitals.step(loss=loss)
    return [weight.detach().clone() for weight in model.parameters()], torch.get_rng_state()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.usefixtures("probe")
def test_weights_are_the_same_bit_for_bit(recorder, workers):
    """With the loader watched and the data set guarded, and without; random numbers, too."""
    plain, plain_state = train(lambda loader: loader, lambda dataset: dataset, workers)
    watched, watched_state = train(trainvitals.data, trainvitals.guarded, workers)

    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert torch.equal(plain_state, watched_state)
    assert counters_of(recorder).batches == 24


# Damaged files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.usefixtures("probe")
def test_a_damaged_file_is_raised_as_before(recorder, recorded, files, workers):
    """With the files of the batch, as nobody knows more; batches before it are handed out."""
    taken = []
    with pytest.raises(ValueError, match="damaged"):
        taken.extend(trainvitals.data(loader_of(Files(files), workers, batch_size=2)))

    assert [batch.flatten().tolist() for batch in taken] == [[0.0, 1.0], [2.0, 3.0]]
    (event,) = errors_of(recorded)
    assert event["ids"] == [files[4], files[5]]
    assert (event["type"], event["policy"]) == ("ValueError", "raise")
    assert "could not convert string to float: 'damaged'" in event["message"]
    assert counters_of(recorder).errors == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_file_is_skipped(probe, recorder, recorded, files, workers):
    """The batch is left out, and the names of those behind it stay right."""
    taken = []
    for batch in trainvitals.data(loader_of(Files(files), workers, batch_size=2), on_error="skip"):
        taken.append(batch.flatten().tolist())
        probe.step(loss=1.0)

    assert taken == [[0.0, 1.0], [2.0, 3.0], [6.0, 7.0], [8.0, 9.0]]
    assert [names_of(recorder, count) for count in (2, 3)] == [[(2, 3)], [(6, 7)]]
    (event,) = errors_of(recorded)
    assert event["ids"] == [files[4], files[5]]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_missing_file_is_named(probe, recorded, files, workers):
    """The system says which; from a worker it comes as a text."""
    os.unlink(files[7])
    files[4] = files[3]
    list(trainvitals.data(loader_of(Files(files), workers, batch_size=2), on_error="skip"))

    (event,) = errors_of(recorded)
    assert event["file"] == files[7]
    assert probe.is_recording()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.usefixtures("probe")
def test_a_guard_replaces_the_sample(recorder, recorded, files, workers):
    """By its neighbour; index and file are told and counted once, also from a worker, and no batch is lost."""
    dataset = trainvitals.guarded(Files(files))
    taken = torch.cat(list(trainvitals.data(loader_of(dataset, workers, batch_size=2)))).flatten().tolist()

    assert taken == [0.0, 1.0, 2.0, 3.0, 5.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    (event,) = errors_of(recorded)
    assert (event["index"], event["file"], event["policy"]) == (4, files[4], "skip")
    assert ("worker" in event) == bool(workers)
    assert counters_of(recorder).errors == 1


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.usefixtures("probe")
def test_a_guard_that_raises_is_counted_once(recorder, recorded, files, workers):
    """It knows the index; the loader around it knows that somebody has counted."""
    dataset = trainvitals.guarded(Files(files), on_error="raise")
    with pytest.raises(ValueError, match="damaged"):
        list(trainvitals.data(loader_of(dataset, workers, batch_size=2)))

    assert errors_of(recorded)[0]["index"] == 4
    assert counters_of(recorder).errors == 1


@pytest.mark.usefixtures("probe")
def test_a_guard_needs_no_watched_loader(recorder, recorded, files):
    """The worker makes the data file, in which it counts."""
    list(loader_of(trainvitals.guarded(Files(files)), 2, batch_size=2))

    assert errors_of(recorded)[0]["file"] == files[4]
    assert counters_of(recorder) == ledger.DataCounters(0, 0, 0, 1)


@pytest.mark.usefixtures("probe")
def test_a_guard_works_in_spawned_workers(recorder, recorded, files):
    """It travels there with the name of the rank file."""
    dataset = trainvitals.guarded(Files(files))
    loader = DataLoader(dataset, batch_size=5, num_workers=1, multiprocessing_context="spawn")
    assert len(list(trainvitals.data(loader))) == 2

    assert errors_of(recorded)[0]["file"] == files[4]
    assert counters_of(recorder).errors == 1


def test_a_guard_behaves_like_the_data_set(files):
    """Length, attributes, methods, isinstance, subsets and sums."""
    inner = Files(files)
    dataset = trainvitals.guarded(inner)
    dataset.epoch = 3

    assert isinstance(dataset, (Files, Dataset))
    assert (len(dataset), dataset.files is files, inner.epoch) == (10, True, 3)
    assert trainvitals.guarded(dataset) is dataset
    assert [sample.item() for sample in Subset(dataset, [3, 4])] == [3.0, 5.0]
    assert ConcatDataset([dataset, dataset])[14].item() == 5.0
    assert pickle.loads(pickle.dumps(dataset))[4].item() == 5.0
    with pytest.raises(IndexError):
        dataset[10]
    assert not hasattr(trainvitals.guarded(Numbers()), "__getitems__")


class Rows:
    """Can be asked for several samples at once."""

    asked = 0

    def __len__(self):
        return 6

    def __getitem__(self, index):
        if index == 2:
            raise OSError(5, "Input/output error", "/d/rows")
        return index

    def __getitems__(self, indices):
        Rows.asked += 1
        return [self[index] for index in indices]


@pytest.mark.usefixtures("probe")
def test_whole_batches_are_guarded(recorded):
    """One that fails is asked for again, sample by sample."""
    taken = [batch.tolist() for batch in trainvitals.data(loader_of(trainvitals.guarded(Rows()), batch_size=3))]

    assert taken == [[0, 1, 3], [3, 4, 5]]
    assert Rows.asked == 2
    assert errors_of(recorded)[0]["file"] == "/d/rows"


@pytest.mark.usefixtures("probe")
def test_a_check_of_samples_replaces_them(recorded):
    """What is malformed is treated like what cannot be read."""
    dataset = trainvitals.guarded(Numbers(4), check=lambda sample: "two" if sample.item() == 2 else None)

    assert [dataset[index].item() for index in range(4)] == [0, 1, 3, 3]
    (event,) = errors_of(recorded)
    assert (event["type"], event["message"], event["index"]) == ("BadSampleError", "two", 2)


class AllBad(Numbers):
    """Nothing can be read."""

    def __getitem__(self, index):
        raise ValueError(f"bad {index}")


def test_a_guard_gives_up(probe, recorder):
    """After sixteen neighbours the first error is raised."""
    with pytest.raises(ValueError, match="bad 7"):
        trainvitals.guarded(AllBad())[7]
    assert counters_of(recorder).errors == 17
    with pytest.raises(ValueError, match="bad 0"):
        trainvitals.guarded(AllBad(1))[0]
    assert probe.is_recording()


@pytest.mark.parametrize("error", [MemoryError(), StopIteration(), KeyboardInterrupt()])
def test_what_is_no_bad_sample_passes(probe, recorded, error):
    """A lack of memory is not the fault of one sample."""

    class Raising(Numbers):
        def __getitem__(self, index):
            raise error

    with pytest.raises(type(error)):
        trainvitals.guarded(Raising())[0]
    assert errors_of(recorded) == []
    assert probe.is_recording()


class Stream(IterableDataset):
    """A stream with an error in it."""

    def __iter__(self):
        yield from (torch.tensor(1), torch.tensor(2))
        raise ValueError("bad record")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.usefixtures("probe")
def test_an_error_in_a_stream_is_raised(recorder, workers):
    """It ends the stream, and in a worker silently so: nothing is skipped."""
    loader = trainvitals.data(loader_of(Stream(), workers, batch_size=2), on_error="skip")
    with pytest.raises(ValueError, match="bad record"):
        list(loader)
    assert counters_of(recorder).errors == 1


def test_a_stream_is_not_guarded(capsys):
    """It has no indices; it comes back as it is, with a word on standard error."""
    stream = Stream()

    assert trainvitals.guarded(stream) is stream
    capsys.readouterr()


def test_a_dead_worker_is_not_skipped(probe, recorder):
    """There is nothing behind it."""

    class Dying(Numbers):
        def __getitem__(self, index):
            os._exit(1)

    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(trainvitals.data(loader_of(Dying(), 1, batch_size=8), on_error="skip"))
    assert counters_of(recorder).errors == 1
    assert probe.is_recording()


@pytest.mark.parametrize("name", ["_tell", "reduced"])
@pytest.mark.usefixtures("probe")
def test_errors_of_ours_never_reach_the_program(monkeypatch, files, name):
    """What the guard does for the record fails: the samples are the same."""
    if name == "reduced":
        dataset = trainvitals.guarded(Files(files))
        monkeypatch.setattr(guarded_module.probe, "rank_file", lambda: None)
        assert pickle.loads(pickle.dumps(dataset))[4].item() == 5.0
        return
    monkeypatch.setattr(guarded_module.batches, "describe", functools.partial(int, "x"))
    assert trainvitals.guarded(Files(files))[4].item() == 5.0


def test_names_in_tensors_are_read_on_the_host_only(probe, recorder):
    """Whole numbers in the memory of the host; of anything else not even the text."""
    meta = torch.empty(2, dtype=torch.int64, device="meta")
    for ids in (torch.tensor([5, 6]), torch.tensor([0.5]), meta, [meta, meta]):
        next(iter(trainvitals.data([{"idx": ids}])))
        probe.step(loss=1.0)

    assert [names_of(recorder, count) for count in (1, 2, 3, 4)] == [[(5, 6)], [], [], [("<Tensor>", "<Tensor>")]]
    assert recorder.writer.state.errors == 0


def test_a_slow_loader_shows_as_waiting(probe, recorder):
    """Nine tenths of the time here are in the data set."""

    class Slow(Numbers):
        def __getitem__(self, index):
            time.sleep(0.02)
            return super().__getitem__(index)

    probe.step(loss=1.0)
    for _ in trainvitals.data(loader_of(Slow(10), batch_size=1)):
        probe.step(loss=1.0)

    seconds = recorder.writer.state.phase_seconds
    assert seconds[3] >= 0.2
    assert seconds[3] > seconds[2]
