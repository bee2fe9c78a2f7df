"""The check of devices: what the reading process tells is judged, whatever the vendor."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.devices.conftest import driver, stub
from tests.doctor.helpers import machine, only, outcomes, settings

from trainvitals.devices.vendors import VENDORS
from trainvitals.devices.wire import DRIVER, Message, encode
from trainvitals.doctor import devices, nvidia
from trainvitals.doctor.base import Outcome
from trainvitals.doctor.nvidia import ADVICE
from trainvitals.doctor.table import ADVICE as TABLE
from trainvitals.telemetry import DeviceSample

__all__ = ["driver", "stub"]

#: A value of each signal of the table.
EVERYTHING = {
    ("utilization_ratio",): 0.5,
    ("sm_activity_ratio",): 0.4,
    ("temperature_celsius", "memory"): 70.0,
    ("energy_joules_total",): 1.0,
    ("clock_limited", "power"): 0.0,
    ("ecc_errors_total", "corrected"): 0.0,
    ("remapped_rows", "correctable"): 0.0,
    ("pcie_transmit_bytes_total",): 1.0,
    ("link_up", "0"): 1.0,
    ("fabric_state", "completed"): 1.0,
    ("recovery_needed",): 0.0,
}


def sample(index=0, *without, **fields):
    """Return a device with every signal but those whose family is in ``without``."""
    values = {key: value for key, value in EVERYTHING.items() if key[0] not in without}
    more = fields.pop("values", {})
    return DeviceSample(
        index=index,
        uuid=f"GPU-{index}",
        vendor="nvidia",
        name="NVIDIA H100",
        pci_bus_id=f"0000:0{index + 1}:00.0",
        driver_version="575.57",
        values={**values, **more},
        **fields,
    )


def judged(message=None, bus=None, container="", **seen):
    """Return the results for what a reading process told."""
    return list(devices.judge(devices.Seen(message=message, **seen), ADVICE, bus, container))


def test_every_vendor_has_advice():
    """A vendor without a row would be examined by nobody."""
    assert set(VENDORS) == set(TABLE)


def test_devices_that_answer_are_one_line():
    """With every signal there is nothing more to say than their names."""
    answering, there = judged(Message(devices=[sample(0), sample(1)]))

    assert answering.why == "2 answer: NVIDIA H100; driver 575.57"
    assert there.subject == "signals"
    assert "NVLink" in there.why


@pytest.mark.parametrize(
    ("reason", "action"),
    [
        ("lost", "dmesg | grep -i nvrm | tail -n 20"),
        ("reset_required", "nvidia-smi --gpu-reset -i 5"),
        ("blocked", "ls -l /dev/nvidia*"),
    ],
)
def test_a_device_that_does_not_answer_is_named(reason, action):
    """Each reason has its command."""
    results = judged(Message(devices=[sample(0), sample(5).down(reason)]))

    found = {result.subject: result for result in results}
    assert found["device 5"].outcome is Outcome.PROBLEM
    assert found["device 5"].action == action
    assert found["answering"].why.startswith("1 answer")


def test_devices_that_the_driver_does_not_count_are_missing():
    """The PCI bus knows more than the driver."""
    bus = frozenset({"0000:01:00.0", "0000:02:00.0"})

    assert outcomes(judged(Message(devices=[sample(0)]), bus))["0000:02:00.0"] == "problem"
    assert set(outcomes(judged(Message(devices=[sample(0), sample(1)]), bus)).values()) == {"ok"}


@pytest.mark.parametrize(
    ("device", "title", "why", "action"),
    [
        (
            sample(0, "sm_activity_ratio", values={("hardware_info", "s", "b", "f", "0", "8.0"): 1.0}),
            "activity of SMs and tensor cores",
            "it takes Hopper or newer (compute capability 9.0)",
            "",
        ),
        (
            sample(0, "sm_activity_ratio", values={("mig_enabled",): 1.0}),
            "activity of SMs and tensor cores",
            "MIG is on: it is shown for each instance",
            "",
        ),
        (
            sample(0, "utilization_ratio", values={("mig_enabled",): 1.0}),
            "utilization",
            "MIG is on: the driver tells it for no device",
            "",
        ),
        (
            sample(3, "ecc_errors_total", values={("ecc_enabled",): 0.0}),
            "memory errors (ECC)",
            "ECC is off",
            "nvidia-smi -i 3 -e 1",
        ),
        (sample(0, "link_up"), "NVLink", "the driver 575.57 does not tell it for this device", ""),
        (
            sample(0, "temperature_celsius", values={("temperature_celsius", "gpu"): 50.0}),
            "temperature of the memory",
            "the driver 575.57 does not tell it for this device",
            "",
        ),
    ],
)
def test_a_signal_that_is_missing_has_a_reason(device, title, why, action):
    """It is no fault, and what would bring it is said."""
    found = {result.subject: result for result in judged(Message(devices=[device]))}

    assert (found[title].outcome, found[title].why, found[title].action) == (Outcome.ABSENT, why, action)
    assert title not in found["signals"].why


def test_a_signal_that_some_devices_lack_names_them():
    """The others have it."""
    found = {result.subject: result for result in judged(Message(devices=[sample(0), sample(1, "link_up")]))}

    assert found["NVLink"].why == "the driver 575.57 does not tell it for this device (devices 1)"


def test_values_for_root_alone_and_failed_reads_are_counted():
    """The first is a choice, the second a problem."""
    device = sample(0, failed={"no_permission": 2, "timeout": 1})

    found = {result.subject: result for result in judged(Message(devices=[device]))}

    assert (found["permission"].outcome, found["permission"].action) == (Outcome.OK, "sudo trainvitals doctor")
    assert found["reading (timeout)"].why == "1 values could not be read: timeout"


@pytest.mark.parametrize(
    ("asking", "words"),
    [(None, "did not start to ask"), (DRIVER, "the driver as a whole hangs"), (4, "it hangs")],
)
def test_a_silent_process_is_a_problem_with_a_name(asking, words):
    """What it asked last is what hangs."""
    result = only(judged(is_silent=True, asking=asking))

    assert result.outcome is Outcome.PROBLEM
    assert words in result.why
    assert result.subject == ("device 4" if asking == 4 else "")


def test_a_driver_that_does_not_answer_has_its_command():
    """A replaced driver must be loaded anew."""
    assert only(judged(Message(down="driver_not_loaded"))).action == "modprobe nvidia"
    assert only(judged(Message(down="lib_rm_version_mismatch"))).action.startswith("rmmod nvidia_uvm")
    assert only(judged(Message(down="unknown"))).why == "the driver does not answer: unknown"


def test_nothing_of_a_vendor_is_no_fault_unless_the_bus_has_its_devices():
    """In a container the devices must be handed in."""
    message = Message(absent="libnvidia-ml.so.1 was not found")
    bus = frozenset({"0000:01:00.0"})

    assert only(judged(message, None)).outcome is Outcome.ABSENT
    assert only(judged(message, frozenset())).outcome is Outcome.ABSENT
    assert only(judged(message, bus)).action == "nvidia-smi"
    assert only(judged(message, bus, "Docker")).action == "docker run --gpus all ..."


def test_a_process_that_ends_without_a_word_is_a_problem():
    """It could not even start."""
    assert only(judged()).why == "the process that reads them ended without a word"


def child_that_writes(*messages, then="pass"):
    """Return how a reading process is started that writes these messages."""
    script = f"import os; os.write(1, {b''.join(map(encode, messages))!r}); {then}"
    return lambda *_, **__: subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def test_the_second_reading_counts(tmp_path):
    """Differences need two; after them the process is ended."""
    first, second = Message(devices=[sample(0, "sm_activity_ratio")]), Message(devices=[sample(0)])
    start = child_that_writes(Message(at=0), first, Message(at=0), second, then="import time; time.sleep(1000)")

    results = list(devices.check("nvidia", ADVICE, start)(machine(tmp_path)))

    assert outcomes(results) == {"answering": "ok", "signals": "ok"}


def test_a_process_that_hangs_is_given_up(tmp_path, monkeypatch):
    """And killed."""
    monkeypatch.setattr(devices, "STILL", 1.0)
    monkeypatch.setattr(devices, "PATIENCE", 1.5)
    start = child_that_writes(Message(at=2), then="import time; time.sleep(1000)")

    result = only(devices.check("nvidia", ADVICE, start)(machine(tmp_path)))

    assert result.subject == "device 2"
    assert result.why.startswith("no answer: it hangs")


def test_devices_that_the_settings_expect_are_missed(tmp_path):
    """The bus may have lost one that nobody knows of."""
    start = child_that_writes(*[Message(devices=[sample(0), sample(1).down("lost")])] * 2)
    here = machine(tmp_path, settings=settings(devices={"expected": 2}))

    found = {result.subject: result for result in devices.check("nvidia", ADVICE, start)(here)}

    assert found["expected"].why == "1 answer, and devices.expected is 2"


def test_a_driver_that_is_to_be_left_alone_is_left_alone(tmp_path):
    """While the file of the settings exists it can be unloaded, also with the doctor at work."""

    def start(*_, **__):
        raise AssertionError("it was touched")

    here = machine(tmp_path, {"/run/pause": ""}, settings=settings(devices={"pause_file": "/run/pause"}))

    result = only(devices.check("nvidia", ADVICE, start)(here))

    assert (result.outcome, result.action) == (Outcome.OK, "rm /run/pause")
    assert only(nvidia.persistence(here)).outcome is Outcome.ABSENT


def examined(driver, tmp_path):
    """Return the results of the real reading process on the stub."""
    return list(devices.check("nvidia", ADVICE)(machine(tmp_path, environ=driver.environ)))


def test_a_healthy_driver_is_read_by_the_real_process(driver, tmp_path):
    """Eight devices, and the signals that this driver has."""
    driver.behave("count 8")

    found = {result.subject: result for result in examined(driver, tmp_path)}

    assert found["answering"].why == "8 answer: NVIDIA Stub 96GB; driver 999.12.34"
    assert "utilization" in found["signals"].why


def test_a_lost_device_is_found_by_the_real_process(driver, tmp_path):
    """The others are read."""
    driver.behave("return 3 * 15")

    found = {result.subject: result for result in examined(driver, tmp_path)}

    assert found["device 3"].why == "it does not answer: lost"
    assert found["answering"].why.startswith("7 answer")


def test_a_hung_device_is_named_by_the_real_process_and_the_others_are_read(driver, tmp_path, monkeypatch):
    """In bounded time; the process that hangs is killed, and another leaves that device alone."""
    monkeypatch.setattr(devices, "STILL", 3.0)
    driver.behave("hang 6 utilization")

    found = {result.subject: result for result in examined(driver, tmp_path)}

    assert found["device 6"].why.startswith("no answer: it hangs")
    assert found["answering"].why.startswith("7 answer")
    assert [result.subject for result in found.values() if result.outcome is Outcome.PROBLEM] == ["device 6"]
