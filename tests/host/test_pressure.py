"""Pressure and shortage of memory."""

from __future__ import annotations

import errno

import pytest
from tests.host.trees import failing, plant

from trainvitals.host.pressure import Pressure, Shortage, Stall

CPU = "some avg10=1.50 avg60=0.60 avg300=0.37 total=5733827\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
MEMORY = "some avg10=0.00 avg60=0.00 avg300=0.00 total=9000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4000000\n"
IO = "some avg10=0.00 avg60=0.00 avg300=0.00 total=61500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=250000\n"
IRQ = "full avg10=0.00 avg60=0.00 avg300=0.00 total=77\n"


def test_totals_become_seconds(tmp_path):
    """Microseconds in the file; a whole machine that waits for a CPU does not exist, whatever the kernel writes."""
    proc = plant(tmp_path, {"pressure/cpu": CPU, "pressure/memory": MEMORY, "pressure/io": IO, "pressure/irq": IRQ})

    assert Pressure(proc).stalls() == {
        "cpu": Stall(some=5.733827, full=None),
        "memory": Stall(some=9.0, full=4.0),
        "io": Stall(some=61.5, full=0.25),
        "irq": Stall(some=None, full=0.000077),
    }


def test_a_kernel_without_pressure_has_none(tmp_path):
    """No folder; or a folder whose files answer EOPNOTSUPP, as with psi=0."""
    assert Pressure(str(tmp_path)).stalls() == {}
    assert Pressure("/proc", failing(errno.EOPNOTSUPP)).stalls() == {}


def test_an_older_kernel_has_no_line_for_all_tasks(tmp_path):
    """Before 5.13 the CPU had one line."""
    proc = plant(tmp_path, {"pressure/cpu": CPU.splitlines()[0]})

    assert Pressure(proc).stalls() == {"cpu": Stall(some=5.733827, full=None)}


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "N/A", "some", "some total=", "some total=-5", "some total=x avg10=1", "most total=5", b"\xff\xfe"],
)
def test_what_makes_no_sense_is_absent(tmp_path, text):
    """A line that is none of these costs itself, the other resources stay."""
    proc = plant(tmp_path, {"pressure/io": text, "pressure/memory": MEMORY})

    assert Pressure(proc).stalls() == {"memory": Stall(some=9.0, full=4.0)}


def test_an_error_is_an_error():
    """A file that is there and cannot be read is a failure."""
    with pytest.raises(OSError, match="injected"):
        Pressure("/proc", failing(errno.EIO)).stalls()


def test_kills_and_faults_are_counted(tmp_path):
    """From /proc/vmstat, which is longer than a page."""
    lines = "".join(f"filler_{number} {number}\n" for number in range(500))
    proc = plant(tmp_path, {"vmstat": f"pgfault 1000\npgmajfault 31\n{lines}oom_kill 2\n"})

    assert Pressure(proc).shortage() == Shortage(oom_kills=2, major_faults=31)


def test_a_kernel_that_does_not_count_kills_has_no_number(tmp_path):
    """Before 4.13 there was no such line; missing is not 0."""
    assert Pressure(plant(tmp_path, {"vmstat": "pgmajfault 31\n"})).shortage() == Shortage(None, 31)
    assert Pressure(str(tmp_path / "none")).shortage() == Shortage(None, None)


def test_this_machine_can_be_read():
    """Whatever it has, it is not negative."""
    for stall in Pressure().stalls().values():
        assert (stall.some or 0.0) >= 0.0
        assert (stall.full or 0.0) >= 0.0
    assert (Pressure().shortage().major_faults or 0) >= 0
