"""Throttling of CPUs."""

from __future__ import annotations

import shutil

from tests.host.trees import plant

from trainvitals.host.throttle import CpuThrottle, Throttling


def cpu(number, package, core, core_counts, package_counts):
    """Return the files of one CPU; counts are (events, milliseconds)."""
    folder = f"devices/system/cpu/cpu{number}"
    return {
        f"{folder}/topology/physical_package_id": f"{package}\n",
        f"{folder}/topology/core_id": f"{core}\n",
        f"{folder}/thermal_throttle/core_throttle_count": f"{core_counts[0]}\n",
        f"{folder}/thermal_throttle/core_throttle_total_time_ms": f"{core_counts[1]}\n",
        f"{folder}/thermal_throttle/package_throttle_count": f"{package_counts[0]}\n",
        f"{folder}/thermal_throttle/package_throttle_total_time_ms": f"{package_counts[1]}\n",
    }


#: Two packages of two cores with two threads each; the threads of a core show the same counters.
TWO_PACKAGES = {
    **cpu(0, 0, 0, (1, 100), (10, 5000)),
    **cpu(1, 0, 1, (2, 250), (10, 5000)),
    **cpu(2, 1, 0, (4, 300), (7, 1500)),
    **cpu(3, 1, 1, (8, 350), (7, 1500)),
    **cpu(4, 0, 0, (1, 100), (10, 5000)),
    **cpu(5, 0, 1, (2, 250), (10, 5000)),
    **cpu(6, 1, 0, (4, 300), (7, 1500)),
    **cpu(10, 1, 1, (8, 350), (7, 1500)),
    "devices/system/cpu/cpufreq/boost": "1\n",
    "devices/system/cpu/cpuidle/current_driver": "intel_idle\n",
}


def test_cores_and_packages_count_once(tmp_path):
    """Threads share the counters of their core, cores those of their package."""
    assert CpuThrottle(plant(tmp_path, TWO_PACKAGES)).read() == {
        "core": Throttling(events=15, seconds=1.0),
        "package": Throttling(events=17, seconds=6.5),
    }


def test_a_cpu_that_goes_off_leaves_the_counters_to_its_sibling(tmp_path):
    """The other thread of the core speaks for it then."""
    throttle = CpuThrottle(plant(tmp_path, TWO_PACKAGES))
    before = throttle.read()

    shutil.rmtree(tmp_path / "devices/system/cpu/cpu0")

    assert throttle.read() == before


def test_a_cpu_without_counters_is_absent(tmp_path):
    """Those of AMD have none, nor have most virtual machines; and there may be no such folder at all."""
    plant(tmp_path, {"devices/system/cpu/cpu0/topology/core_id": "0\n"})

    assert CpuThrottle(str(tmp_path)).read() == {}
    assert CpuThrottle(str(tmp_path / "nowhere")).read() == {}


def test_an_older_kernel_tells_no_time(tmp_path):
    """Counts alone, and no 0 for the time."""
    files = {name: text for name, text in TWO_PACKAGES.items() if "total_time" not in name}

    assert CpuThrottle(plant(tmp_path, files)).read() == {
        "core": Throttling(events=15, seconds=None),
        "package": Throttling(events=17, seconds=None),
    }


def test_a_file_that_makes_no_sense_costs_itself(tmp_path):
    """The other core still counts."""
    files = dict(TWO_PACKAGES)
    files["devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"] = "N/A\n"

    assert CpuThrottle(plant(tmp_path, files)).read()["core"] == Throttling(events=14, seconds=1.0)
