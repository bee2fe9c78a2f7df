"""A finding says what changed before it, and what broke at the same time; in words that do not change."""

from __future__ import annotations

from dataclasses import replace

from tests.collect.test_keeper import LOSSES, Node, Trainer, lines

from trainvitals import detect
from trainvitals.collect.faults import FaultLog
from trainvitals.collect.runs import Runs
from trainvitals.collect.same_minute import SameMinute
from trainvitals.telemetry import DeviceSample, Fault

GPU = "GPU-1"


def evidence(node, signal="loss_nonfinite"):
    """Return what a finding says, on each scrape anew."""
    found = [name for name in node.scrape() if name.startswith("trainvitals_finding_info") and signal in name]
    assert len(found) == 1
    return found[0].split('evidence="')[1].split('"')[0]


def last_step(node):
    """Return the time of the last step."""
    (rank,) = node.runs.ranks()
    return rank.last_step.time


def break_down(trainer):
    """Report a loss that is NaN after two changes."""
    trainer.steps(LOSSES[:50])
    trainer.event("change", name="data", old="v2", new="v3").steps(LOSSES[50:60])
    trainer.event("change", name="mixture", old="a:1", new="a:2").steps([float("nan")] * 3)


def test_a_finding_names_the_changes_before_it(tmp_path):
    """The nearest first; a change behind it is none of its causes, and its words stay."""
    node = Node(tmp_path)
    trainer = Trainer(node)
    break_down(trainer)
    first = evidence(node)
    assert first.endswith("; before it: mixture a:1 -> a:2 at step 60; data v2 -> v3 at step 50")
    trainer.event("change", name="late", old="", new="x").steps([float("nan")] * 3)
    assert evidence(node) == first
    node.now += 100.0
    assert evidence(node) == first


def test_a_finding_without_a_change_says_none(tmp_path):
    """There is nothing to add."""
    node = Node(tmp_path)
    Trainer(node).steps([*LOSSES[:50], float("nan")])
    assert "before it" not in evidence(node)


def test_a_finding_names_faults_of_its_device_in_the_same_minute(tmp_path):
    """Those of other devices, and of another hour, are none of it."""
    faults = FaultLog(patience=0.0)
    node = Node(tmp_path)
    node.runs = Runs(detect.build, node.keeper, faults.near)
    node.ranks._runs = node.runs
    faults.know({"0000:05:00.0": ("3", GPU), "0000:06:00.0": ("4", "GPU-2")})
    trainer = Trainer(node, device_uuid=GPU)
    trainer.steps([*LOSSES[:50], float("nan")])
    node.scrape()
    moment = last_step(node)
    for pci, code, seconds in (("0000:05:00.0", 94, 20.0), ("0000:06:00.0", 79, 20.0), ("0000:05:00.0", 31, -4000.0)):
        faults.add(Fault("driver", pci, code, moment + seconds))
    text = evidence(node)
    assert "in the same minute: XID 94 on device 3 (" in text
    assert "XID 79" not in text
    assert "XID 31" not in text


def test_a_fault_that_is_told_a_little_later_is_named(tmp_path):
    """Steps and faults come by different ways."""
    faults = FaultLog(patience=0.0)
    node = Node(tmp_path)
    node.runs = Runs(detect.build, node.keeper, faults.near)
    node.ranks._runs = node.runs
    faults.know({"0000:05:00.0": ("3", GPU)})
    Trainer(node, device_uuid=GPU).steps([*LOSSES[:50], float("nan")])
    assert "same minute" not in evidence(node)
    faults.add(Fault("driver", "0000:05:00.0", 94, last_step(node)))
    assert "XID 94 on device 3" in evidence(node)
    for _ in range(10):
        before = evidence(node)
    faults.add(Fault("driver", "0000:05:00.0", 48, last_step(node)))
    assert evidence(node) == before


def test_a_finding_names_a_device_that_stopped_to_answer_and_what_the_kernel_said(tmp_path):
    """In the same minute; other devices, notices, and what was at another time, are none of it."""
    node = Node(tmp_path)
    devices, kernel = [], []
    node.runs = Runs(detect.build, node.keeper, SameMinute(FaultLog(), lambda: devices, lambda: kernel))
    node.ranks._runs = node.runs
    Trainer(node, device_uuid=GPU).steps([*LOSSES[:50], float("nan")])
    node.scrape()
    moment = last_step(node)
    for index, uuid, since in ((3, GPU, moment - 20.0), (4, "GPU-2", moment), (5, GPU, moment - 90.0)):
        lost = DeviceSample(index=index, uuid=uuid, vendor="nvidia", up=False, reason="lost")
        devices.append(replace(lost, down_since=since))
    kernel += [("oom_kill", "python", moment + 10.0), ("hung_task", "", moment - 100.0), ("link_up", "eth0", moment)]

    assert evidence(node).endswith("in the same minute: device 3 stopped to answer (lost); kernel: oom kill (python)")


def test_a_rank_whose_device_nobody_knows_may_have_any(tmp_path):
    """As a training without a device of its own, or an older probe."""
    del tmp_path
    lost = DeviceSample(index=3, uuid=GPU, vendor="nvidia", up=False, reason="hung", down_since=1000.0)
    near = SameMinute(FaultLog(), lambda: [lost], tuple)
    assert near(1030.0, "", "") == ["device 3 stopped to answer (hung)"]
    assert near(1030.0, "GPU-9", "") == []
    assert near(1090.0, "", "") == []


def test_a_finding_names_errors_of_the_log(tmp_path):
    """Which stand beside the loss in the same log."""
    node = Node(tmp_path)
    text = lines(1, 30) + "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"
    node.write(text + lines(31, 32, float("nan")))
    assert "in the same minute: device out of memory" in evidence(node)
    assert "same minute" not in evidence(node, "log_error")


def test_changes_are_known_after_a_restart_of_the_exporter(tmp_path):
    """Also those that no file holds any more."""
    node = Node(tmp_path)
    trainer = Trainer(node)
    break_down(trainer)
    before = evidence(node)
    node.stop()
    node.start()
    assert evidence(node) == before
