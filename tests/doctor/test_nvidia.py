"""The checks that only NVIDIA has."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from tests.devices.conftest import driver, stub
from tests.doctor.helpers import machine, only

from trainvitals.doctor import nvidia
from trainvitals.doctor.base import Outcome

__all__ = ["driver", "stub"]


class Distribution:
    """An installed package with these files."""

    def __init__(self, version, *files):
        self.version = version
        self.files = [metadata.PackagePath(file) for file in files]


def package(tmp_path, **installed):
    """Return the result when these packages are installed."""

    def distribution(name):
        if name.replace("-", "_") not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name.replace("-", "_")]

    return only(nvidia.package(machine(tmp_path), distribution))


OURS = Distribution("13.590.48", "pynvml.py")


def test_the_right_package_is_fine(tmp_path):
    """Also beside a newer pynvml, which has no module of that name."""
    newer = Distribution("13.0.1", "pynvml_utils/__init__.py")

    assert package(tmp_path, nvidia_ml_py=OURS).why == "nvidia-ml-py 13.590.48"
    assert package(tmp_path, nvidia_ml_py=OURS, pynvml=newer).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("name", "file"), [("pynvml", "pynvml/__init__.py"), ("nvidia_ml_py3", "pynvml.py"), ("py3nvml", "pynvml.py")]
)
def test_a_package_that_took_the_name_is_a_problem(tmp_path, name, file):
    """An old copy is asked instead, whose structures do not fit the driver."""
    rival = name.replace("_", "-")
    result = package(tmp_path, nvidia_ml_py=OURS, **{name: Distribution("11.5.0", file)})

    assert result.outcome is Outcome.PROBLEM
    assert result.why.startswith(f"{rival} has a module pynvml of its own")
    assert f"pip uninstall -y {rival} && " in result.action
    assert result.action.endswith("pip install --force-reinstall nvidia-ml-py")


def test_a_foreign_module_on_the_path_is_a_problem_and_named(tmp_path):
    """Whatever put it there."""
    (tmp_path / "pynvml.py").write_text("NVML_SUCCESS = 0\n")
    script = (
        "from trainvitals.doctor import nvidia; from trainvitals.doctor.base import Here; "
        "print(*[(each.outcome.value, each.why) for each in nvidia.package(Here())])"
    )

    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.startswith("('problem', 'the installed module pynvml is not that of nvidia-ml-py")
    assert f"(it is {tmp_path / 'pynvml.py'})" in done.stdout


GPU = {"/sys/bus/pci/devices/0000:05:00.0/vendor": "0x10de\n", "/sys/bus/pci/devices/0000:05:00.0/class": "0x030200\n"}
DRIVER = {"/sys/module/nvidia/version": "575.57.08\n"}


def unloadable(_):
    """Find no library."""
    raise OSError("libnvidia-ml.so.1: cannot open shared object file")


def loadable(_):
    """Find the library."""


def test_no_library_is_a_problem_beside_a_device_only(tmp_path):
    """A node without GPUs has none."""
    none = machine(tmp_path / "a", {"/sys/bus/pci/devices/": ""})
    gpu = machine(tmp_path / "b", GPU)
    container = machine(tmp_path / "c", {**GPU, "/.dockerenv": ""})

    assert only(nvidia.library(none, unloadable)).outcome is Outcome.ABSENT
    assert only(nvidia.library(gpu, unloadable)).action == "ldconfig -p | grep libnvidia-ml.so.1"
    assert only(nvidia.library(container, unloadable)).action == "docker run --gpus all ..."


@pytest.mark.parametrize(
    ("version", "outcome"), [("575.57.08", Outcome.OK), ("580.95.05", Outcome.PROBLEM), ("1", Outcome.OK)]
)
def test_the_library_is_compared_with_the_driver(tmp_path, version, outcome):
    """After an upgrade without a reload nothing can be read; a name without a version says nothing."""
    path = tmp_path / f"libnvidia-ml.so.{version}"
    here = machine(tmp_path, {**DRIVER, "/proc/self/maps": f"7f00-7f01 r-xp 00000000 08:01 42    {path}\n"})

    result = only(nvidia.library(here, loadable))

    assert result.outcome is outcome
    assert str(path) in result.why
    assert result.action.startswith("rmmod") is (outcome is Outcome.PROBLEM)


def test_a_driver_that_is_not_loaded_is_a_problem_beside_a_device_only(tmp_path):
    """The kernel tells both."""
    assert only(nvidia.driver(machine(tmp_path / "a", {**GPU, **DRIVER}))).why == "version 575.57.08 is loaded"
    text = (
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build\nGCC version: gcc 12.2.0\n"
    )
    proc = machine(tmp_path / "d", {**GPU, "/proc/driver/nvidia/version": text})
    assert only(nvidia.driver(proc)).why == "version 570.86.10 is loaded"
    assert only(nvidia.driver(machine(tmp_path / "b", GPU))).action == "modprobe nvidia"
    assert only(nvidia.driver(machine(tmp_path / "c", {"/sys/bus/pci/devices/": ""}))).outcome is Outcome.ABSENT


def test_device_nodes_must_be_there_and_open(tmp_path):
    """A container's are often missing, and a user may not open them all."""
    nodes = {"/dev/nvidiactl": "", "/dev/nvidia0": "", "/dev/nvidia1": ""}
    here = machine(tmp_path / "a", nodes)

    assert only(nvidia.nodes(here)).why == "2 devices, all of them open to this user"
    closed = only(nvidia.nodes(here, lambda path, _: not path.endswith("nvidia1")))
    assert closed.action == f"ls -l {tmp_path}/a/dev/nvidia1"
    assert only(nvidia.nodes(machine(tmp_path / "b", DRIVER))).action == "nvidia-modprobe -c 0"
    inside = machine(tmp_path / "c", {**DRIVER, "/.dockerenv": ""})
    assert only(nvidia.nodes(inside)).action == "docker run --gpus all ..."
    assert only(nvidia.nodes(machine(tmp_path / "d"))).outcome is Outcome.ABSENT


def on_the_stub(driver, check):
    """Return outcome, sentence and action of a check, in a process that finds the stub."""
    script = (
        "from trainvitals.doctor import nvidia; from trainvitals.doctor.base import Here; "
        f"print(*[f'{{each.outcome.value}}|{{each.why}}|{{each.action}}' for each in nvidia.{check}(Here())])"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=driver.environ, capture_output=True, text=True, check=True)
    return done.stdout.strip().split("|")


def persistence(driver):
    """Return outcome, sentence and action on the stub, in a process that finds it."""
    script = (
        "from trainvitals.doctor import nvidia; from trainvitals.doctor.base import Here; "
        "print(*[f'{each.outcome.value}|{each.why}|{each.action}' for each in nvidia.persistence(Here())])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=driver.environ, capture_output=True, text=True, check=True
    )
    return done.stdout.strip().split("|")


def test_devices_without_persistence_mode_are_named(driver):
    """It works, and could be better."""
    driver.behave("value 2 persistence 0", "value 5 persistence 0", "return 1 persistence 3")
    outcome, why, action = persistence(driver)

    assert outcome == "ok"
    assert why.startswith("off on devices 2, 5")
    assert action == "nvidia-smi -pm 1"


def test_persistence_mode_that_cannot_be_asked_is_no_fault(driver):
    """Other checks say what is wrong with the driver."""
    driver.behave("unloaded")

    assert persistence(driver)[0] == "not here"


def test_persistence_mode_that_is_on_needs_no_advice(driver):
    """Nothing to do."""
    driver.behave("count 8")

    assert persistence(driver) == ["ok", "on, or not told", ""]


def test_the_path_of_the_library_is_found_in_the_map_of_the_process(driver):
    """The linker's choice, and not a guess."""
    folder = Path(driver.environ["LD_LIBRARY_PATH"])

    assert on_the_stub(driver, "library") == ["ok", os.path.realpath(folder / "libnvidia-ml.so.1"), ""]
