"""Tensors: values of the host are read at once, values of a device without ever waiting for it."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from tests.helpers import Node, run_trainer

from trainvitals.probe.tensors import ROWS, TensorReader

# A stand-in for torch with devices that work later -------------------------------------------------------------------


class Device:
    """A device: work waits in its queue until the test lets it run."""

    def __init__(self, kind, index=0):
        self.type, self.index = kind, index
        self.queue = []
        self.done = 0

    def run(self, count=None):
        """Do the work that waits, or so much of it."""
        for _ in range(len(self.queue) if count is None else count):
            self.queue.pop(0)()
            self.done += 1


def waits(*_, **__):
    """Fail: this call would wait for the device."""
    raise AssertionError("a call that waits for the device")


class Tensor:
    """A tensor; whatever reads its value, or computes with it, is an error."""

    is_complex_number = False

    def __init__(self, value, device, elements=1):
        self._value, self.device, self._elements = value, device, elements

    def numel(self):
        """Return the number of elements."""
        return self._elements

    def is_complex(self):
        """Whether the number has two parts."""
        return self.is_complex_number

    def detach(self):
        """Return the value without its history."""
        return self

    def reshape(self, shape):
        """Return the same value in another shape."""
        assert shape == ()
        return self

    def __getattr__(self, name):
        raise AssertionError(f"{name} of a tensor")

    __float__ = __int__ = __bool__ = __index__ = __len__ = __iter__ = __str__ = __repr__ = __format__ = waits
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __eq__ = __lt__ = __gt__ = __le__ = __ge__ = waits
    __hash__ = None
    __dlpack__ = __torch_function__ = waits


class Cell:
    """One place in a pinned row."""

    def __init__(self):
        self.value = math.nan

    def copy_(self, tensor, *, non_blocking):
        """Put the copy into the queue of the tensor's device."""
        assert non_blocking is True
        value = tensor._value
        tensor.device.queue.append(lambda: setattr(self, "value", value))

    def __float__(self):
        return self.value


class Torch:
    """The part of torch that the reader uses."""

    Tensor = Tensor
    float32 = "float32"

    def __init__(self):
        self.capturing = False
        self.pinned = []
        self.queries = 0
        self.fake = SimpleNamespace(
            Event=lambda: Event(self),
            current_stream=lambda device: device,
            is_current_stream_capturing=lambda: self.capturing,
        )

    def empty(self, shape, *, dtype, device, pin_memory):
        """Return pinned rows."""
        assert (dtype, device, pin_memory) == ("float32", "cpu", True)
        self.pinned.append(shape)
        return defaultdict(Cell)

    @contextmanager
    def no_grad(self):
        """Do nothing."""
        yield

    @contextmanager
    def inference_mode(self, mode):
        """Do nothing."""
        assert mode is False
        yield


class Event:
    """A mark in the queue of a device."""

    def __init__(self, torch):
        self._torch = torch
        self._device = None

    def record(self, stream):
        """Take the place behind everything that waits now."""
        self._device, self._place = stream, stream.done + len(stream.queue)

    def query(self):
        """Whether the device has come so far."""
        assert not self._torch.capturing, "a query breaks a capture"
        self._torch.queries += 1
        return self._device.done >= self._place

    synchronize = wait = elapsed_time = waits


@pytest.fixture
def torch(monkeypatch):
    """Put the stand-in where the probe looks for torch."""
    torch = Torch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


@pytest.fixture
def device():
    """Give a device of the stand-in."""
    return Device("fake")


# A device that works later ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("torch")
def test_a_value_of_a_device_appears_with_the_number_of_its_step(recorder, recorded, device):
    """Two steps later, in a record of its own, with the count of its step; nothing waits for it."""
    recorder.step(10, {"loss": Tensor(0.5, device), "lr": 1.0})
    recorder.step(11, {"loss": Tensor(0.25, device), "lr": 1.0})
    device.run(1)
    recorder.step(12, {"loss": Tensor(0.125, device), "lr": 1.0})
    device.run()
    recorder.step(13, {"lr": 1.0})

    found = recorded()
    assert found.steps == [
        (10, {"lr": 1.0}),
        (11, {"lr": 1.0}),
        (10, {"loss": 0.5}),
        (12, {"lr": 1.0}),
        (11, {"loss": 0.25}),
        (12, {"loss": 0.125}),
        (13, {"lr": 1.0}),
    ]
    assert [record.count for record in found.records] == [1, 2, 1, 3, 2, 3, 4]
    assert (found.state.count, found.state.step) == (4, 13)
    assert (found.state.dropped, found.state.errors) == (0, 0)


def test_memory_is_pinned_once(recorder, torch, device):
    """It is slow and may wait for the device: at the first tensor, and never again."""
    for number in range(50):
        recorder.step(number, {"loss": Tensor(1.0, device), "grad_norm": Tensor(2.0, device)})
        device.run()

    assert torch.pinned == [(8, 64)]


@pytest.mark.usefixtures("torch")
def test_a_device_that_hangs_costs_values_and_nothing_else(recorder, recorded, device):
    """At most as many steps as there are rows wait; the values of later ones are dropped and counted."""
    for number in range(100):
        recorder.step(number, {"loss": Tensor(float(number), device), "lr": 1.0})
    assert len(recorder._tensors._pending) == ROWS
    assert recorded().state.dropped == 100 - ROWS
    assert recorded().state.count == 100

    device.run()
    for number in (100, 101):
        recorder.step(number, {"loss": Tensor(float(number), device), "lr": 1.0})
        device.run()
    recorder.step(102, {"lr": 1.0})

    late = [(step, values["loss"]) for step, values in recorded().steps if "loss" in values]
    assert late == [(number, float(number)) for number in (*range(ROWS), 100, 101)]


@pytest.mark.usefixtures("torch")
def test_losses_that_are_not_finite_are_counted_when_they_arrive(recorder, recorded, device):
    """And not in a step that the loss scaler skipped."""
    recorder.step(1, {"loss": Tensor(math.nan, device)})
    recorder.step(2, {"loss": Tensor(math.inf, device), "skipped": True})
    recorder.step(3, {"loss": Tensor(1.0, device), "tokens": Tensor(5.0, device), "skipped": Tensor(1.0, device)})
    device.run()
    recorder.step(4, {"lr": 1.0})

    found = recorded()
    assert (found.state.nonfinite, found.state.skipped, found.state.tokens) == (1, 2, 5.0)


def test_a_capture_drops_values_and_is_not_disturbed(recorder, recorded, torch, device):
    """During a CUDA graph capture nothing is copied, recorded or asked; afterwards all goes on."""
    recorder.step(1, {"loss": Tensor(1.0, device)})
    device.run()
    torch.capturing = True
    for number in (2, 3):
        recorder.step(number, {"loss": Tensor(9.0, device), "lr": 0.1})
    assert device.queue == []
    torch.capturing = False
    recorder.step(4, {"loss": Tensor(4.0, device)})
    device.run()
    recorder.step(5, {"lr": 0.1})

    found = recorded()
    assert [(step, values["loss"]) for step, values in found.steps if "loss" in values] == [(1, 1.0), (4, 4.0)]
    assert found.state.dropped == 2


@pytest.mark.usefixtures("torch")
def test_each_device_has_an_event_of_its_own(recorder, recorded):
    """A model over two devices: an event of one says nothing of a copy from the other."""
    first, second = Device("fake", 0), Device("fake", 1)
    recorder.step(1, {"loss": Tensor(0.5, second), "aux": Tensor(0.25, first)})
    first.run()
    recorder.step(2, {"lr": 1.0})
    assert [values for _, values in recorded().steps] == [{}, {"lr": 1.0}]
    second.run()
    recorder.step(3, {"lr": 1.0})

    assert [(step, values) for step, values in recorded().steps if values != {"lr": 1.0}] == [
        (1, {}),
        (1, {"loss": 0.5}),
        (1, {"aux": 0.25}),
    ]


@pytest.mark.usefixtures("torch")
def test_evaluations_of_a_device_come_late_too(recorder, recorded, device):
    """With the step at which they were reported."""
    recorder.step(7, {"lr": 1.0})
    recorder.evaluate(None, "validation", {"accuracy": Tensor(0.5, device), "loss": 2.0})
    device.run()
    recorder.step(8, {"lr": 1.0})

    import json

    documents = [json.loads(line) for line in recorded().events]
    assert [(document["step"], document["values"]) for document in documents] == [
        (7, {"loss": 2.0}),
        (7, {"accuracy": 0.5}),
    ]


@pytest.mark.usefixtures("torch")
def test_tensors_in_odd_places_are_never_read(recorder, recorded, device):
    """As the number of a step, in an event, as a path."""
    tensor = Tensor(5.0, device)
    recorder.step(tensor, {"lr": 1.0})
    recorder.evaluate(tensor, "validation", {"accuracy": 1.0})
    recorder.event("note", {"tensor": tensor, "nested": [{"tensor": tensor}]})
    recorder.end_checkpoint(recorder.begin_checkpoint(tensor), tensor, "save", None)

    found = recorded()
    assert (found.state.dropped, found.state.errors) == (3, 0)
    assert [step for step, _ in found.steps] == [0]
    assert b'"nested":[{"tensor":"<Tensor>"}]' in found.events[1]
    assert b'"path":"<Tensor>"' in found.events[2]


@pytest.mark.usefixtures("torch")
def test_what_is_no_scalar_of_this_process_is_dropped(recorder, recorded, device):
    """Wrong shapes, complex and empty tensors, tensors without data, sharded tensors and pending collectives."""

    class DTensor(Tensor):
        numel = detach = reshape = is_complex = waits

    class MyShardedTensor(DTensor):
        pass

    class AsyncCollectiveTensor(Tensor):
        numel = detach = reshape = is_complex = waits

    class Complex(Tensor):
        is_complex_number = True

    class Loss(Tensor):
        pass

    tensors = {
        "vector": Tensor(1.0, device, 3),
        "empty": Tensor(1.0, device, 0),
        "complex": Complex(1.0, device),
        "meta": Tensor(1.0, Device("meta")),
        "sharded": DTensor(1.0, device),
        "my sharded": MyShardedTensor(1.0, device),
        "collective": AsyncCollectiveTensor(1.0, Device("cpu")),
        "unknown device": Tensor(1.0, Device("abacus")),
        "subclass": Loss(7.0, device),
    }
    recorder.step(1, tensors)
    device.run()
    recorder.step(2, {})

    found = recorded()
    assert [values for _, values in found.steps if values] == [{"subclass": 7.0}]
    assert (found.state.dropped, found.state.errors) == (8, 0)


def test_more_tensors_than_a_row_holds_are_dropped(torch, device):
    """64 values a step."""
    reader = TensorReader(torch)
    reader.take({f"v{index}": Tensor(1.0, device) for index in range(65)}, waits)

    assert (reader.dropped, reader.waiting) == (65, False)


def test_a_device_that_fails_costs_the_values(torch, recorder, recorded, device):
    """Pinned memory that cannot be had, a copy that fails: values are dropped, the probe stays on."""

    def fails(*_, **__):
        raise RuntimeError("device-side assert triggered")

    torch.empty, empty = fails, torch.empty
    for number in range(5):
        recorder.step(number, {"loss": Tensor(1.0, device), "lr": 1.0})
    torch.empty = empty
    recorder.step(5, {"loss": Tensor(1.0, device), "lr": 1.0})

    found = recorded()
    assert (found.state.dropped, found.state.errors, found.state.count) == (5, 0, 6)


@pytest.mark.usefixtures("torch")
def test_the_end_waits_for_nothing(recorder, recorded, device):
    """What has arrived is written, what has not is dropped and counted."""
    recorder.step(1, {"loss": Tensor(1.0, device)})
    device.run()
    recorder.step(2, {"lr": 1.0})
    recorder.step(3, {"loss": Tensor(3.0, device)})
    recorder.step(4, {"loss": Tensor(4.0, device), "a": Tensor(4.0, device)})
    device.run(1)
    recorder.finish("ok")

    found = recorded()
    assert [values["loss"] for _, values in found.steps if "loss" in values] == [1.0, 3.0]
    assert found.state.dropped == 2
    assert found.state.flags == 1


def test_a_device_that_is_broken_at_the_end_does_not_hide_a_clean_end(torch, recorder, recorded, device):
    """The event of a dead device raises."""
    recorder.step(1, {"loss": Tensor(1.0, device)})
    torch.fake.Event.query = waits
    recorder._tensors._pending[0].event.query = waits
    recorder.finish("ok")

    assert recorded().state.flags == 1


def test_a_loop_of_floats_asks_no_device(recorder, torch, device):
    """Once nothing is on its way, no event is asked, and the quick way is back."""
    recorder.step(1, {"loss": Tensor(1.0, device)})
    device.run()
    for number in range(2, 10):
        recorder.step(number, {"loss": 1.0})

    assert torch.queries == 1
    assert recorder.step != recorder._learn


# PyTorch itself ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pytorch():
    """Give PyTorch, where it is installed."""
    return pytest.importorskip("torch")


def test_tensors_of_the_host_are_numbers(pytorch, recorder, recorded):
    """Any type of number, with a gradient or not, of any shape with one element."""
    parameter = pytorch.nn.Parameter(pytorch.tensor(1.5))
    recorder.step(
        1,
        {
            "plain": pytorch.tensor(0.5),
            "double": pytorch.tensor(0.1, dtype=pytorch.float64),
            "half": pytorch.tensor(0.5, dtype=pytorch.float16),
            "bfloat16": pytorch.tensor(1.0078125, dtype=pytorch.bfloat16),
            "integer": pytorch.tensor(2**40),
            "boolean": pytorch.tensor(True),
            "shaped": pytorch.tensor([[[7.0]]]),
            "parameter": parameter,
            "gradient": parameter * 2,
            "nan": pytorch.tensor(math.inf),
        },
    )
    assert parameter.grad is None
    assert recorded().steps == [
        (
            1,
            {
                "plain": 0.5,
                "double": 0.1,
                "half": 0.5,
                "bfloat16": 1.0078125,
                "integer": 2.0**40,
                "boolean": 1.0,
                "shaped": 7.0,
                "parameter": 1.5,
                "gradient": 3.0,
                "nan": math.inf,
            },
        )
    ]


def test_tensors_that_are_no_number_are_dropped(pytorch, recorder, recorded):
    """Counted, and no error of ours."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = pytorch.tensor(1.0)
    tensors = {
        "vector": pytorch.ones(3),
        "empty": pytorch.ones(0),
        "complex": pytorch.tensor(1j),
        "meta": pytorch.tensor(1.0, device="meta"),
        "fake": fake,
        "nested": pytorch.nested.nested_tensor([pytorch.ones(1), pytorch.ones(2)], layout=pytorch.jagged),
    }
    recorder.step(1, tensors)
    recorder.step(2, {"loss": pytorch.tensor(0.5), **tensors})

    found = recorded()
    assert found.steps == [(1, {}), (2, {"loss": 0.5})]
    assert (found.state.dropped, found.state.errors) == (12, 0)


def test_steps_with_tensors_of_different_shapes_are_no_error(pytorch, recorder, recorded):
    """Nothing is ever computed with them, not even to find out what they are."""
    recorder.step(1, {"a": 1.0, "b": 2.0})
    recorder.step(2, {"a": pytorch.ones(3), "b": pytorch.ones(4)})
    recorder.step(3, {"a": pytorch.tensor(3.0), "b": 2.0})

    found = recorded()
    assert found.steps == [(1, {"a": 1.0, "b": 2.0}), (2, {}), (3, {"a": 3.0, "b": 2.0})]
    assert found.state.errors == 0


def test_the_graph_of_a_loss_is_not_kept(pytorch, recorder):
    """A tensor with a history would keep all activations alive."""
    import gc
    import weakref

    weight = pytorch.ones(3, requires_grad=True)
    loss = (weight * 2).sum()
    ghost = weakref.ref(loss)
    recorder.step(1, {"loss": loss})
    del loss
    gc.collect()

    assert ghost() is None


class LateTensor:
    """A tensor of the host that answers for another device."""

    class device:  # noqa: N801
        """The kind is all that is asked for."""

        type = "late"

    def __init__(self, tensor):
        self._tensor = tensor

    def numel(self):
        """Return the number of elements."""
        return self._tensor.numel()

    def is_complex(self):
        """Whether the number has two parts."""
        return self._tensor.is_complex()

    def detach(self):
        """Return the tensor inside."""
        return self._tensor.detach()


class LateDevice:
    """PyTorch with one device more, whose work is always done."""

    Tensor = LateTensor

    def __init__(self, torch):
        self._torch = torch
        event = SimpleNamespace(record=lambda _: None, query=lambda: True)
        self.late = SimpleNamespace(Event=lambda: event, current_stream=lambda device: device)
        self.no_grad, self.inference_mode, self.float32 = torch.no_grad, torch.inference_mode, torch.float32

    def empty(self, *arguments, pin_memory, **options):
        """Leave out the pinning, for which a host without a device has no use."""
        assert pin_memory is True
        return self._torch.empty(*arguments, **options)


@pytest.mark.parametrize("first", ["inference", "training"])
def test_rows_can_be_written_in_and_out_of_inference_mode(pytorch, recorder, recorded, first):
    """The first tensor may come from an evaluation, the next from the training, and the other way round."""
    recorder._tensors = TensorReader(LateDevice(pytorch))

    def evaluation(number):
        with pytorch.inference_mode():
            recorder.step(number, {"loss": LateTensor(pytorch.tensor([0.5], dtype=pytorch.bfloat16) * 1)})

    def training(number):
        loss = LateTensor(pytorch.tensor(0.25, requires_grad=True) * 1)
        with pytorch.device("meta"):
            recorder.step(number, {"loss": loss})

    kinds = (evaluation, training) if first == "inference" else (training, evaluation)
    for number in range(6):
        kinds[number % 2](number)
    recorder.step(6, {})

    found = recorded()
    assert [step for step, values in found.steps if "loss" in values] == list(range(6))
    assert {values["loss"] for _, values in found.steps if values} == {0.25, 0.5}
    assert (found.state.dropped, found.state.errors) == (0, 0)


def test_a_sharded_tensor_is_never_gathered(spool, pytorch):
    """A DTensor of a real process group, replicated, sharded or partial; a collective of ours could hang a training."""
    if not pytorch.distributed.is_available():
        pytest.skip("PyTorch without torch.distributed")
    script = """
        import torch, torch.distributed as dist, trainvitals
        from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, init_device_mesh

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        mesh = init_device_mesh("cpu", (1,))
        trainvitals.init()
        tensors = {
            type(placement).__name__: DTensor.from_local(torch.ones(1), mesh, [placement], run_check=False)
            for placement in (Replicate(), Shard(0), Partial())
        }
        trainvitals.step(1, {name: 1.0 for name in tensors})
        from torch.distributed.tensor.debug import CommDebugMode

        with CommDebugMode() as counted:
            for number in range(2, 5):
                trainvitals.step(number, tensors)
            trainvitals.event("note", tensor=tensors["Partial"])
            trainvitals.evaluate(5, **tensors)
        print(counted.get_total_counts())
        trainvitals.finish()
        dist.destroy_process_group()
    """
    done = run_trainer(script, spool)

    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    scrape = Node(spool).scrape()
    assert scrape['trainvitals_probe_dropped_total{rank="0",run="test"}'] == 12.0
    assert scrape['trainvitals_probe_errors_total{rank="0",run="test"}'] == 0.0
    assert scrape['trainvitals_steps_total{rank="0",run="test"}'] == 4.0
