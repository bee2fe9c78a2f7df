"""A machine with cards of AMD: a tree as sysfs has it, and amd-smi as a test wants it."""

from __future__ import annotations

from pathlib import Path

from trainvitals.devices.amd.reader import Amd
from trainvitals.devices.tools import MISSING, Answer

FOLDER = Path(__file__).parent

#: An accelerator without a sensor at its edge (as MI300): file and text.
INSTINCT = {
    "vendor": "0x1002",
    "device": "0x74a7",
    "class": "0x120000",
    "unique_id": "5c1e90ab34d7f602",
    "product_name": "AMD Instinct Example 3",
    "product_number": "102-E31407-20",
    "serial_number": "692345001177",
    "vbios_version": "113-E3140700-102",
    "gpu_busy_percent": "87",
    "mem_busy_percent": "34",
    "mem_info_vram_total": "206141652992",
    "mem_info_vram_used": "171900993536",
    "current_link_speed": "32.0 GT/s PCIe",
    "current_link_width": "16",
    "max_link_speed": "32.0 GT/s PCIe",
    "max_link_width": "16",
    "pcie_replay_count": "3",
    "pp_dpm_sclk": "0: 500Mhz\n1: 1340Mhz *\n2: 2100Mhz",
    "pp_dpm_mclk": "0: 900Mhz\n1: 1300Mhz *",
    "ras/umc_err_count": "ue: 1\nce: 40\nde: 2",
    "ras/gfx_err_count": "ue: 0\nce: 7",
    "ras/features": "feature mask: 0x1fff",
    "ras/gpu_vram_bad_pages": "0x00a1b2c3 : 0x00001000 : R\n0x00a1b2c4 : 0x00001000 : R\n0x00b00000 : 0x00001000 : P",
    "drm/renderD131/dev": "226:131",
    "hwmon/hwmon7/name": "amdgpu",
    "hwmon/hwmon7/temp2_label": "junction",
    "hwmon/hwmon7/temp2_input": "71000",
    "hwmon/hwmon7/temp2_crit": "100000",
    "hwmon/hwmon7/temp2_emergency": "105000",
    "hwmon/hwmon7/temp3_label": "mem",
    "hwmon/hwmon7/temp3_input": "63000",
    "hwmon/hwmon7/temp3_crit": "105000",
    "hwmon/hwmon7/power1_input": "641500000",
    "hwmon/hwmon7/power1_cap": "750000000",
    "hwmon/hwmon7/power1_cap_min": "0",
    "hwmon/hwmon7/power1_cap_max": "750000000",
    "hwmon/hwmon7/power1_cap_default": "750000000",
    "hwmon/hwmon7/freq1_label": "sclk",
    "hwmon/hwmon7/freq1_input": "1340000000",
    "hwmon/hwmon7/freq2_label": "mclk",
    "hwmon/hwmon7/freq2_input": "1300000000",
}

#: An older one with three sensors (as MI200 and Radeon), a mean of its power, and an idle link.
RADEON = {
    "vendor": "0x1002",
    "device": "0x7448",
    "class": "0x030000",
    "unique_id": "9e0000001234abcd",
    "gpu_busy_percent": "0",
    "mem_busy_percent": "0",
    "mem_info_vram_total": "48301604864",
    "mem_info_vram_used": "29163520",
    "current_link_speed": "2.5 GT/s PCIe",
    "current_link_width": "16",
    "max_link_speed": "16.0 GT/s PCIe",
    "max_link_width": "16",
    "hwmon/hwmon3/temp1_label": "edge",
    "hwmon/hwmon3/temp1_input": "39000",
    "hwmon/hwmon3/temp1_crit": "100000",
    "hwmon/hwmon3/temp1_emergency": "105000",
    "hwmon/hwmon3/temp2_label": "junction",
    "hwmon/hwmon3/temp2_input": "44000",
    "hwmon/hwmon3/temp3_label": "mem",
    "hwmon/hwmon3/temp3_input": "52000",
    "hwmon/hwmon3/power1_average": "18000000",
    "hwmon/hwmon3/power1_cap": "241000000",
    "hwmon/hwmon3/freq1_label": "sclk",
    "hwmon/hwmon3/freq1_input": "12000000",
    "hwmon/hwmon3/freq2_label": "mclk",
    "hwmon/hwmon3/freq2_input": "96000000",
}


def text(name):
    """Return what amd-smi prints: a fixture."""
    return (FOLDER / f"{name}.json").read_text()


class Machine:
    """Cards below ``root``; ``static`` and ``metric`` are the answers of amd-smi, ``now`` is the clock."""

    def __init__(self, root):
        self.root = root
        self.static = self.metric = Answer(reason=MISSING)
        self.now = 500.0
        self.calls = []
        for folder in ("class/drm", "bus/pci/devices"):
            (root / folder).mkdir(parents=True)

    def add(self, address, number, files=INSTINCT, **changes):
        """Put a card in; a change of None takes a file away, and names have __ for /."""
        device = self.root / "devices" / "pci0000:00" / address
        for name, content in {**files, **{key.replace("__", "/"): value for key, value in changes.items()}}.items():
            if content is not None:
                path = device / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{content}\n")
        card = self.root / "class" / "drm" / f"card{number}"
        card.mkdir()
        (card / "device").symlink_to(device)
        (self.root / "bus" / "pci" / "devices" / address).symlink_to(device)
        return device

    def remove(self, address, number):
        """Take a card out, as the kernel does when it falls off the bus."""
        (self.root / "class" / "drm" / f"card{number}" / "device").unlink()
        (self.root / "class" / "drm" / f"card{number}").rmdir()
        (self.root / "bus" / "pci" / "devices" / address).unlink()

    def __call__(self, command):
        """Answer as amd-smi."""
        self.calls.append(" ".join(command))
        answer = {"static": self.static, "metric": self.metric}[command[1]]
        return answer if isinstance(answer, Answer) else Answer(answer)

    def reader(self):
        """Return a reader that is connected."""
        reader = Amd(self, root=str(self.root), clock=lambda: self.now)
        reader.open()
        return reader


def read(reader):
    """Return the samples of one round by their index."""
    return {index: reader.read(index) for index in reader.devices()}
