"""The kinds of messages that the kernel's log is searched for, one row per kind.

The forms are those of the sources of the kernel and its drivers: ``kernel_rc.c``, ``osapi.c`` and ``nvswitch`` of
NVIDIA's open-gpu-kernel-modules (XID, SXID, fallen off the bus, initialization), ``mm/oom_kill.c``,
``kernel/hung_task.c``, ``kernel/watchdog.c``, ``net/sunrpc/clnt.c``, ``drivers/pci/pcie/aer.c`` and ``dpc.c``,
``drivers/edac``, ``arch/x86/kernel/cpu/mce``, ``drivers/net/ethernet/mellanox/mlx5``, ``block/blk-core.c``, ext4, XFS,
Btrfs.  Old and new wordings are both known, and where one event writes several lines, one of them counts.

Patterns match from the start of a message: names of programs, files and devices come later in it, so that a program
cannot pass for a driver by its name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from re import Pattern

#: A PCI address is the place of a message.
PCI = r"(?:PCI:)?(?P<place>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_CARD = PCI.removeprefix("(?:PCI:)?")
#: Driver and card come before it: "mlx5_core 0000:3b:00.0 ens1np0: Link down", "e1000e: eth0 NIC Link is Up".
_LINK = r"(?:\S{1,40} ){0,4}(?P<place>(?!NIC )[\w.@-]{1,16})(?: \(\w{1,20}\))?:? (?:NIC )?Link (?:is )?"
#: Names of training processes at the start of a message, and libraries in which only they end.
_TRAINING_NAME = r"(?:traps: )?(?:python|pt_|torch|ray(?:::|let)|accelerate|deepspeed)"
_TRAINING_LIBRARY = r"lib(?:nccl|cuda|torch|c10|cudnn|cublas|cufft|cusparse|nvrtc|nvshmem|nvJitLink|rccl|hccl|ascend)"
#: Drives without a medium in them, as virtual machines and consoles have, and requests that a disk may refuse.
_NO_MEDIUM = r"(?:fd|sr)\d"
_MAY_BE_REFUSED = r"[^(]{0,80}\((?:DISCARD|SECURE_ERASE|WRITE_ZEROES|WRITE_SAME)\)"
#: A bank's status: bit 61, in the first of 16 digits, says that the error was not corrected (Intel SDM 3B, 17.3.2.2).
_BANK = r"Bank \d{1,4}: "
_NOT_CORRECTED = "[2367abefABEF]"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of message: one of ``needles`` is in every one, ``pattern`` names the place in it, if it has one."""

    name: str
    severity: str
    needles: tuple[str, ...]
    pattern: Pattern[str] = field(repr=False)
    meaning: str
    action: str


def _kinds(*rows: tuple[str, str, str | tuple[str, ...], str, str, str]) -> tuple[Kind, ...]:
    kinds = []
    for name, severity, words, pattern, meaning, action in rows:
        needles = (words,) if isinstance(words, str) else words
        kinds.append(Kind(name, severity, needles, re.compile(pattern, re.DOTALL), meaning, action))
    return tuple(kinds)


#: Messages about a device, which have families of their own.
DEVICE_KINDS: tuple[Kind, ...] = _kinds(
    (
        "xid",
        "",
        "Xid (",
        rf"NVRM: Xid \({PCI}[^)]{{0,40}}\): ?(?P<code>\d{{1,5}})(?:, ?(?P<text>.*)|\s*$)",
        "An error that the NVIDIA driver numbers.",
        "See the table of XIDs.",
    ),
    (
        "sxid",
        "",
        "SXid (",
        rf"(?:NVRM: )?(?:nvidia-nvswitch\d{{1,3}}: )?SXid \({PCI}\): ?(?P<code>\d{{1,6}})(?:, ?(?P<text>.*)|\s*$)",
        "An error of an NVSwitch that its driver numbers.",
        "Fatal: stop the work and reset GPUs and switches together, or reboot the node.",
    ),
    (
        "fallen_off_bus",
        "",
        "fallen off the bus",
        rf"NVRM: (?:The NVIDIA )?GPU (?:at )?{PCI}.{{0,300}}fallen off the bus",
        "The GPU no longer answers on PCIe.",
        "Reboot the node; check seating, power and temperature when it comes again.",
    ),
    (
        "gpu_identity",
        "",
        "NVRM: GPU at",
        rf"NVRM: GPU at {PCI}: (?P<text>GPU-[0-9a-fA-F-]{{36}})",
        "The driver tells the UUID of a GPU before its first XID.",
        "Nothing.",
    ),
)

#: All others, in the order in which they are tried; docs/kernel.md has a row for each.
KINDS: tuple[Kind, ...] = _kinds(
    (
        "gpu_init_failed",
        "critical",
        "RmInitAdapter failed",
        rf"NVRM: (?:GPU {PCI}: )?RmInitAdapter failed",
        "The driver could not start a GPU.",
        "Reboot the node; when it comes again, run the vendor's diagnostics.",
    ),
    (
        "gpu_driver_lost",
        "critical",
        "global fatal error",
        r"(?:NVRM|nvidia-uvm): .{0,120}global fatal error",
        "The driver of unified memory gave up after a fault of a GPU.",
        "Reboot the node.",
    ),
    (
        "gpu_driver_mismatch",
        "warning",
        "API mismatch",
        r"NVRM: API mismatch",
        "Library and kernel module of the driver are of different versions.",
        "Restart what runs, or reboot the node, after an update of the driver.",
    ),
    (
        "gpu_rdma_error",
        "warning",
        "nvidia-peermem",
        r"nvidia-peermem .{0,120}ERROR",
        "GPU memory went away under a network card that used it.",
        "Look whether the training ended at that time; otherwise update driver and nvidia-peermem.",
    ),
    (
        "oom_kill",
        "critical",
        "Out of memory: Kill",
        r"Out of memory: Kill(?:ed)? process \d",
        "The node ran out of memory and the kernel killed a process.",
        "Lower the number of data-loader workers or what they keep; look for a leak.",
    ),
    (
        "cgroup_oom_kill",
        "critical",
        "Memory cgroup out of memory: Kill",
        r"Memory cgroup out of memory: Kill(?:ed)? process \d",
        "A job or container reached its memory limit and the kernel killed a process of it.",
        "Raise the limit of the job, or lower the number of data-loader workers.",
    ),
    (
        "hung_task",
        "warning",
        "blocked for more than",
        r"INFO: task .{1,64}?:\d+ (?:<[^>]{0,64}> )?blocked for more than \d",
        "A process waits in the kernel for minutes, mostly for storage or a driver.",
        "Look at file systems that are stuck, then at GPU and network drivers.",
    ),
    (
        "soft_lockup",
        "critical",
        "soft lockup",
        r"(?:watchdog: )?BUG: soft lockup - CPU",
        "A CPU was busy in the kernel for many seconds.",
        "Look at what ran on it; reboot the node when it goes on.",
    ),
    (
        "hard_lockup",
        "critical",
        "hard LOCKUP",
        r"(?:NMI )?[Ww]atchdog: .{0,60}hard LOCKUP",
        "A CPU no longer answers interrupts.",
        "Reboot the node; check firmware and hardware when it comes again.",
    ),
    (
        "rcu_stall",
        "warning",
        "rcu",
        r"(?:rcu: )?INFO: rcu\S* (?:self-)?detected .{0,30}stall",
        "A CPU or task held up the kernel's bookkeeping.",
        "Look for lockups beside it; reboot the node when it goes on.",
    ),
    (
        "kernel_bug",
        "critical",
        ("BUG: ", "kernel BUG at", "general protection fault", "Unable to handle kernel"),
        r"(?:BUG: unable to handle|BUG: kernel NULL|kernel BUG at|general protection fault|Unable to handle kernel)",
        "The kernel itself failed.",
        "Reboot the node; keep the log for whoever looks after the kernel and its modules.",
    ),
    (
        "nfs_not_responding",
        "warning",
        "not responding",
        r"nfs: server (?P<place>\S{1,255}) not responding",
        "A file server does not answer.",
        "Look at the server and the network to it; processes that use it hang until then.",
    ),
    (
        "nfs_ok",
        "info",
        "nfs: server",
        r"nfs: server (?P<place>\S{1,255}) OK",
        "A file server answers again.",
        "Nothing.",
    ),
    (
        "machine_check",
        "critical",
        "[Hardware Error]: ",
        (
            r"(?:mce: )?\[Hardware Error\]: CPU ?\d{1,5}: Machine Check"
            rf"(?: Exception: |: [0-9a-f]{{1,16}} {_BANK}{_NOT_CORRECTED})"
            r"|\[Hardware Error\]: (?:System Fatal error|Uncorrected, software \w{1,20} error)\."
            r"|\{\d{1,9}\}\[Hardware Error\]: event severity: (?:fatal|recoverable)"
        ),
        "CPU or firmware report a hardware error that was not corrected.",
        "Stop the work and read the error with rasdaemon or in the log of the BMC; replace what fails.",
    ),
    (
        "machine_check_corrected",
        "warning",
        "[Hardware Error]: ",
        (
            r"(?:mce: )?\[Hardware Error\]: Machine check events logged"
            r"|\{\d{1,9}\}\[Hardware Error\]: event severity: corrected"
        ),
        "CPU or firmware report a hardware error that was corrected, or do not say.",
        "Read it with rasdaemon or in the log of the BMC; watch how many, and replace what fails when they go on.",
    ),
    (
        "memory_corrected",
        "warning",
        " CE ",
        r"EDAC (?P<place>MC\d{1,3}): \d{1,9} CE ",
        "A memory error of the node, corrected.",
        "Watch how many; plan to replace the module when they go on.",
    ),
    (
        "memory_uncorrected",
        "critical",
        " UE ",
        r"EDAC (?P<place>MC\d{1,3}): \d{1,9} UE ",
        "A memory error of the node that could not be corrected.",
        "Stop the work and replace the memory module that the message names.",
    ),
    (
        "pcie_corrected",
        "warning",
        "severity=Correct",
        rf"\S{{1,40}} {_CARD}: (?:AER: )?PCIe Bus Error: severity=Correct",
        "An error of a PCIe link, corrected.",
        "Watch how many; reseat card or riser when they go on.",
    ),
    (
        "pcie_uncorrected",
        "critical",
        "severity=Uncorrect",
        rf"\S{{1,40}} {_CARD}: (?:AER: )?PCIe Bus Error: severity=Uncorrect",
        "An error of a PCIe link that could not be corrected.",
        "Look what happened to the device; reseat or replace card and riser.",
    ),
    (
        "pcie_contained",
        "critical",
        "DPC: containment event",
        rf"pcieport {_CARD}: DPC: containment event",
        "A PCIe port took its link down to contain an error.",
        "Look which device is behind the port; reboot the node when it stays away.",
    ),
    (
        "pcie_removed",
        "warning",
        "pciehp: Slot(",
        rf"pcieport {_CARD}: pciehp: Slot\(\S{{1,16}}\): (?:Link Down|Card not present)",
        "A card or disk behind a PCIe port went away; clouds also detach volumes so.",
        "If nobody detached it, reboot the node; check seating and power.",
    ),
    (
        "nic_health",
        "critical",
        "mlx5_core",
        (
            rf"mlx5_core {_CARD}: .{{0,160}}(?:health compromised|firmware internal error|handling bad device"
            r"|Fatal error|fw_fatal_reporter_err_work)"
        ),
        "The firmware of a network card failed or does not answer.",
        "Look whether the port came back; otherwise reset the card or reboot the node, then update its firmware.",
    ),
    (
        "nic_cable",
        "warning",
        "Port module event[error]",
        rf"mlx5_core {_CARD}: Port module event\[error\]",
        "A network card complains of a cable or module.",
        "Reseat or replace cable or module.",
    ),
    (
        "nic_command_failed",
        "info",
        "mlx5_cmd_",
        rf"(?:mlx5_core {_CARD}: )?mlx5_cmd_(?:out_err|check):\d{{1,6}}:\(pid \d{{1,10}}\): .{{1,80}} failed",
        "A network card refused a command, often because a counter was read that it does not have (ACCESS_REG).",
        "Harmless by itself; stop whoever reads that counter, as it floods the log.",
    ),
    (
        "link_down",
        "warning",
        "Link ",
        rf"{_LINK}[Dd]own",
        "A network interface lost its link.",
        "Check cable, module and switch port.",
    ),
    (
        "link_up",
        "info",
        "Link ",
        rf"{_LINK}[Uu]p",
        "A network interface has its link again.",
        "Nothing.",
    ),
    (
        "disk_error",
        "critical",
        "error, dev ",
        (
            r"(?:\w{1,40}: )?(?:critical \w{1,20} error|I/O error), "
            rf"dev (?P<place>(?!{_NO_MEDIUM})[\w!-]{{1,64}})(?!{_MAY_BE_REFUSED})"
        ),
        "A disk did not do what it was asked.",
        "Look at the state of the disk (smartctl, nvme smart-log); replace it.",
    ),
    (
        "nvme_error",
        "warning",
        "nvme nvme",
        r"nvme (?P<place>nvme\d{1,4}): (?:I/O .{0,80}timeout|controller is down|Device not ready|Removing after probe)",
        "An NVMe disk does not answer.",
        "Look whether it came back; check firmware, seating and PCIe errors.",
    ),
    (
        "filesystem_error",
        "critical",
        ("EXT4-fs error", "BTRFS", "XFS ("),
        (
            r"(?:(?:EXT4-fs error|BTRFS (?:error|critical)) \(device |"
            r"XFS \((?=[^)]{1,64}\): .{0,200}(?:[Cc]orruption|I/O [Ee]rror|[Ss]hut(?:ting)? ?down)))"
            r"(?P<place>[^):\s]{1,64})"
        ),
        "A file system is damaged or lost its disk.",
        "Stop what writes to it; check the disk, then repair the file system.",
    ),
    (
        "filesystem_read_only",
        "critical",
        ("read-only", "readonly"),
        (
            r"\S{1,20} (?:\w{1,20} )?\((?:device )?(?P<place>[^):\s]{1,64})\): "
            r"(?:Remounting filesystem read-only|forced readonly)"
        ),
        "A file system can no longer be written to.",
        "Checkpoints fail from here on: move the run; check the disk, then repair the file system.",
    ),
    (
        "segfault",
        "warning",
        ("]: segfault at ", "traps: "),
        (
            rf"(?:(?={_TRAINING_NAME})|(?=.{{0,300}} in {_TRAINING_LIBRARY}))(?:traps: )?.{{1,16}}?\[\d{{1,10}}\]:? "
            r"(?:segfault at |general protection |trap )(?:.{0,200}? in (?P<place>[\w.+-]{1,64})\[)?"
        ),
        "A training process ended at a wrong memory access: the program or a library, not the hardware.",
        "Read the end of the training's log; look at the library that the message names.",
    ),
    (
        "cpu_throttled",
        "warning",
        ("above threshold", "critical temperature"),
        (
            r"(?:mce: )?CPU\d{1,5}: (?:Core|Package) temperature(?:/speed)? (?:is )?above threshold"
            r"|thermal \S{1,40}: .{0,60}critical temperature reached"
        ),
        "A CPU runs slower because it is too hot.",
        "Check fans, air flow and the temperature of the room.",
    ),
)
