"""NVIDIA: the package, the library, the driver, its device nodes, and why a signal may be missing."""

from __future__ import annotations

import ctypes
import glob
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from typing import Any

from trainvitals.devices.base import NoLibraryError
from trainvitals.devices.vendors import create
from trainvitals.doctor.base import Here, Result, absent, ok, problem
from trainvitals.doctor.container import inside
from trainvitals.doctor.devices import Advice, Reason, Signal, on_the_bus, paused
from trainvitals.telemetry import DeviceSample

LIBRARY = "libnvidia-ml.so.1"
#: Other packages that have installed a module of the same name; pynvml 12 and newer has only the name in common.
_RIVALS = ("nvidia-ml-py3", "pynvml", "py3nvml")
_MODULE = ("pynvml.py", "pynvml/__init__.py")
_HOPPER = 9.0
_NVRM = "dmesg | grep -i nvrm | tail -n 20"


def _capability(sample: DeviceSample) -> float | None:
    """Return the compute capability: the last label of hardware_info."""
    for family, *labels in sample.values:
        if family == "hardware_info" and labels:
            try:
                return float(labels[-1])
            except ValueError:
                return None
    return None


def _before_hopper(sample: DeviceSample) -> bool:
    capability = _capability(sample)
    return capability is not None and capability < _HOPPER


def _mig(sample: DeviceSample) -> bool:
    return sample.values.get(("mig_enabled",)) == 1.0


def _no_ecc(sample: DeviceSample) -> bool:
    return sample.values.get(("ecc_enabled",)) == 0.0


_ECC_OFF = Reason(_no_ecc, "ECC is off", "nvidia-smi -i {index} -e 1")

ADVICE = Advice(
    title="NVIDIA",
    signals=(
        Signal(
            "utilization", (("utilization_ratio",),), (Reason(_mig, "MIG is on: the driver tells it for no device"),)
        ),
        Signal(
            "activity of SMs and tensor cores",
            (("sm_activity_ratio",), ("tensor_activity_ratio",)),
            (
                Reason(_mig, "MIG is on: it is shown for each instance"),
                Reason(_before_hopper, "it takes Hopper or newer (compute capability 9.0)"),
            ),
        ),
        Signal("temperature of the memory", (("temperature_celsius", "memory"),)),
        Signal("energy", (("energy_joules_total",),)),
        Signal("why clocks are held down", (("clock_limited",), ("clock_limited_seconds_total",))),
        Signal("memory errors (ECC)", (("ecc_errors_total",),), (_ECC_OFF,)),
        Signal(
            "repairs of the memory",
            (("remapped_rows",), ("retired_pages",)),
            (_ECC_OFF, Reason(_mig, "MIG is on: the driver does not tell it")),
        ),
        Signal("PCIe traffic", (("pcie_transmit_bytes_total",), ("pcie_transmit_bytes_per_second",))),
        Signal("NVLink", (("link_up",),)),
        Signal("fabric of NVSwitches", (("fabric_state",),)),
        Signal("recovery that the driver asks for", (("recovery_needed",),)),
    ),
    driver={
        "driver_not_loaded": "modprobe nvidia",
        "lib_rm_version_mismatch": "rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia",
    },
    device={
        "reset_required": "nvidia-smi --gpu-reset -i {index}",
        "blocked": "ls -l /dev/nvidia*",
    },
    look=_NVRM,
    installed="nvidia-smi",
    in_container="docker run --gpus all ...",
)


def package(
    _: Here,
    distribution: Callable[[str], metadata.Distribution] = metadata.distribution,
    find: Callable[[str], Any] = importlib.util.find_spec,
) -> Iterator[Result]:
    """Check that the module pynvml is that of nvidia-ml-py: other packages have installed one of that name."""
    owners = [name for name in _RIVALS if _owns(name, distribution)]
    install = f"{sys.executable} -m pip install --force-reinstall nvidia-ml-py"
    if owners:
        yield problem(
            f"{' and '.join(owners)} has a module pynvml of its own, which may hide that of nvidia-ml-py",
            f"{sys.executable} -m pip uninstall -y {' '.join(owners)} && {install}",
        )
        return
    try:
        create("nvidia")
    except NoLibraryError as error:
        spec = find("pynvml")
        where = f" (it is {spec.origin})" if spec is not None and spec.origin else ""
        yield problem(f"{error}{where}", install)
        return
    yield ok(f"nvidia-ml-py {distribution('nvidia-ml-py').version}")


def _owns(name: str, distribution: Callable[[str], metadata.Distribution]) -> bool:
    try:
        files: Iterable[Any] = distribution(name).files or ()
    except metadata.PackageNotFoundError:
        return False
    return any(str(file) in _MODULE for file in files)


def library(here: Here, load: Callable[[str], Any] = ctypes.CDLL) -> Iterator[Result]:
    """Find the driver's library as the reading process does, and compare it with the driver in the kernel."""
    bus = on_the_bus("nvidia", here)
    try:
        load(LIBRARY)
    except OSError as error:
        if bus:
            action = ADVICE.in_container if inside(here) else f"ldconfig -p | grep {LIBRARY}"
            yield problem(f"{LIBRARY} was not found, though the PCI bus has {len(bus)} devices: {error}", action)
        else:
            yield absent(f"{LIBRARY} was not found")
        return
    path = _loaded(here)
    there = re.search(r"\.so\.(\d+\.\d+[\d.]*)$", path)
    driver = _driver_version(here)
    if there and driver and there[1] != driver:
        why = f"{path} does not fit the driver {driver} in the kernel: the driver was upgraded without a reload"
        yield problem(why, ADVICE.driver["lib_rm_version_mismatch"])
    else:
        yield ok(path)


def _loaded(here: Here) -> str:
    """Return which file the dynamic linker took."""
    with open(here.path("/proc/self/maps"), encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.partition("/")[1] + line.partition("/")[2].strip()
            if "libnvidia-ml.so" in path:
                return os.path.realpath(path)
    return LIBRARY


def _driver_version(here: Here) -> str:
    text = here.text("/sys/module/nvidia/version") or here.text("/proc/driver/nvidia/version") or ""
    found = re.search(r"(?:^|Kernel Module\s.*?)(\d+\.\d+[\d.]*)", text)
    return found[1] if found else ""


def driver(here: Here) -> Iterator[Result]:
    """Check that the driver is in the kernel."""
    version = _driver_version(here)
    bus = on_the_bus("nvidia", here)
    if version:
        yield ok(f"version {version} is loaded")
    elif bus:
        yield problem(f"it is not loaded, though the PCI bus has {len(bus)} devices", "modprobe nvidia")
    else:
        yield absent("no NVIDIA device on the PCI bus, and no driver")


def nodes(here: Here, access: Callable[[str, int], bool] = os.access) -> Iterator[Result]:
    """Check that this user may open the device nodes."""
    found = sorted(glob.glob(here.path("/dev/nvidia[0-9]*")))
    control = here.path("/dev/nvidiactl")
    if not found and not os.path.exists(control):
        if _driver_version(here):
            action = ADVICE.in_container if inside(here) else "nvidia-modprobe -c 0"
            yield problem("the driver is loaded, and there is no /dev/nvidia0", action)
        else:
            yield absent("no /dev/nvidia*")
        return
    closed = [path for path in [control, *found] if not access(path, os.R_OK | os.W_OK)]
    if closed:
        yield problem(f"this user may not open {', '.join(closed)}", f"ls -l {' '.join(closed)}")
    else:
        yield ok(f"{len(found)} devices, all of them open to this user")


def persistence(here: Here, module: str = "pynvml") -> Iterator[Result]:
    """Check that devices stay initialised: else the first call after a pause takes seconds, and counters begin anew."""
    if paused(here):
        yield absent("not asked: the devices are to be left alone")
        return
    try:
        nvml = importlib.import_module(module)
        nvml.nvmlInit()
    except Exception as error:  # Missing, foreign, or a driver that does not answer: other checks say so.
        yield absent(f"cannot be asked: {error}")
        return
    off = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            if nvml.nvmlDeviceGetPersistenceMode(nvml.nvmlDeviceGetHandleByIndex(index)) == 0:
                off.append(str(index))
        except nvml.NVMLError:
            continue
    if off:
        why = f"off on devices {', '.join(off)}: an idle device is shut down, and starting it anew takes seconds"
        yield ok(why, "nvidia-smi -pm 1")
    else:
        yield ok("on, or not told")
