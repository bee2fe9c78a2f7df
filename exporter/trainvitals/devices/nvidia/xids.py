"""XIDs: the numbers by which NVIDIA's driver reports errors, one row per code, with what to do next.

Sources: codes, meanings and actions from NVIDIA's "Xid Catalog" and "XID 144-150 Decode" (docs.nvidia.com/deploy/
xid-errors, as of October 2025, for A100 and newer), for codes that it calls unused from the older "XID Errors" (r555).
Its immediate actions became ours: RESTART_APP, RESET_GPU, RESTART_BM, IGNORE, ...; where it first says to ignore and
then to contact support, ours is mostly ``report``.  Categories and severities are ours: critical when the work on this
GPU cannot go on until somebody acts, warning when a program ended or somebody should look, info for all else.  The
catalogue names no action for 162 to 172; those are ours too.  That 13, 31, 43, 45, 68 and 109 are application-level
follows NVIDIA's k8s-device-plugin, which does not count them against the GPU; for 109 the catalogue asks for a reset.

A message of 144 to 150 reads::

    NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 ...)      unit, effect, ..., link, registers

In the first register the bits 20 to 25 say why a link went down (only NETIR_LINK_EVT).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Xid:
    """What a code means.  ``action`` is a key of :data:`ACTIONS`, severity is critical, warning or info."""

    code: int
    meaning: str
    category: str
    severity: str
    action: str


@dataclass(frozen=True, slots=True)
class LinkFault:
    """What a message of the codes 144 to 150 tells: the unit (``subcode``) and ``effect``, fatal or nonfatal.

    ``link`` is its number as text, ``cause`` why it went down (a value of :data:`CAUSES`); empty where not told.
    """

    subcode: str
    effect: str
    link: str
    cause: str


#: What to do next.
ACTIONS: dict[str, str] = {
    "nothing": "Nothing.",
    "follow_earlier": "Look for the XID before it: this one is a consequence.",
    "restart_application": (
        "Resume the training; when it comes again with other programs on the same GPU, run the diagnostics."
    ),
    "check_application": (
        "Look for a wrong access in the program (compute-sanitizer); when other programs fail on the same GPU too, run "
        "the diagnostics."
    ),
    "restart_then_reset": "Resume the training; only its program was hit. Reset the GPU between two jobs.",
    "reset_later": "Reset the GPU between two jobs; the repair is done then.",
    "reset_gpu": "Stop what uses the GPU and reset it (nvidia-smi --gpu-reset), or reboot the node; then resume.",
    "reboot_node": "Reboot the node; when it comes again, check seating, power and cooling, then replace the GPU.",
    "replace_gpu": "Take the node out, reset the GPU and run the diagnostics; replace the GPU when they fail.",
    "run_diagnostics": "Take the node out and run the diagnostics (dcgmi diag -r 3); replace the GPU when they fail.",
    "check_link": (
        "Look at the link's errors and reset the GPUs; when it comes again, reseat or replace GPU, bridge or cable."
    ),
    "check_power": "Check the power cables of the board.",
    "check_cooling": "Check fans and air flow.",
    "update_driver": "Update driver and firmware; report it to the vendor when it comes again.",
    "restart_vm": "Restart the virtual machine.",
    "see_subcode": "Read sub-code and effect in the kernel's log: fatal means reset the GPU, nonfatal mostly nothing.",
    "see_message": "Do what the message names: reset the GPU, drain it or reboot the node.",
    "drain": "Let the work that uses this GPU's links end, then reset it if the driver asks for it.",
    "report": "Keep the output of nvidia-bug-report.sh; ask the vendor when it comes again.",
}

#: What is assumed of a code that is not in the table.
UNKNOWN = Xid(0, "unknown", "unknown", "warning", "report")

_ROWS: tuple[Xid, ...] = (
    Xid(1, "commands to the GPU were corrupted", "driver", "warning", "report"),
    Xid(2, "commands to the GPU were corrupted", "driver", "warning", "report"),
    Xid(3, "commands to the GPU were corrupted", "driver", "warning", "report"),
    Xid(4, "commands to the GPU were corrupted, or a semaphore timed out", "driver", "warning", "report"),
    Xid(5, "unused", "driver", "info", "nothing"),
    Xid(6, "commands to the GPU were corrupted", "driver", "warning", "report"),
    Xid(7, "commands to the GPU were corrupted", "driver", "warning", "report"),
    Xid(8, "GPU stopped processing", "application", "warning", "restart_application"),
    Xid(9, "driver programmed the GPU wrongly", "driver", "warning", "report"),
    Xid(10, "unused", "driver", "info", "nothing"),
    Xid(11, "invalid commands of a program", "application", "warning", "restart_application"),
    Xid(12, "driver failed to handle an exception of the GPU", "driver", "warning", "report"),
    Xid(13, "program did something illegal on the GPU", "application", "warning", "check_application"),
    Xid(14, "unused", "driver", "info", "nothing"),
    Xid(15, "unused", "driver", "info", "nothing"),
    Xid(16, "display engine hangs", "display", "warning", "report"),
    Xid(17, "unused", "driver", "info", "nothing"),
    Xid(18, "bus mastering is off in the PCI configuration", "bus", "warning", "report"),
    Xid(19, "display engine error", "display", "warning", "report"),
    Xid(20, "commands to the video decoder were corrupted", "driver", "warning", "report"),
    Xid(21, "commands to the motion estimator were corrupted", "driver", "warning", "report"),
    Xid(22, "commands to the video processor were corrupted", "driver", "warning", "report"),
    Xid(23, "unused", "driver", "info", "nothing"),
    Xid(24, "semaphore of the GPU timed out", "driver", "warning", "report"),
    Xid(25, "invalid commands of a program", "application", "warning", "restart_application"),
    Xid(26, "frame buffer timed out", "memory", "warning", "report"),
    Xid(27, "video processor exception", "application", "warning", "restart_application"),
    Xid(28, "video processor exception", "application", "warning", "restart_application"),
    Xid(29, "video processor exception", "application", "warning", "restart_application"),
    Xid(30, "access to a semaphore of the GPU failed", "driver", "warning", "report"),
    Xid(31, "page fault on the GPU: a program used a wrong address", "application", "warning", "check_application"),
    Xid(32, "invalid or corrupted commands of a program", "application", "warning", "restart_application"),
    Xid(33, "micro-controller error", "hardware", "warning", "report"),
    Xid(34, "video processor exception", "application", "warning", "restart_application"),
    Xid(35, "video processor exception", "application", "warning", "restart_application"),
    Xid(36, "video processor exception", "application", "warning", "restart_application"),
    Xid(37, "driver firmware error", "driver", "info", "nothing"),
    Xid(38, "driver firmware error", "driver", "warning", "report"),
    Xid(39, "copy engine exception", "application", "warning", "restart_application"),
    Xid(40, "copy engine exception", "application", "warning", "restart_application"),
    Xid(41, "copy engine exception", "application", "warning", "restart_application"),
    Xid(42, "video processor exception", "application", "warning", "restart_application"),
    Xid(43, "GPU stopped a program after an error of its own", "application", "warning", "restart_application"),
    Xid(44, "graphics engine fault while it changed programs", "driver", "warning", "report"),
    Xid(45, "program was ended because of an earlier error", "application", "info", "follow_earlier"),
    Xid(46, "GPU stopped processing and does not answer in time", "hardware", "critical", "reset_gpu"),
    Xid(47, "video encoder exception", "application", "warning", "restart_application"),
    Xid(48, "memory error that could not be corrected (double bit)", "memory", "critical", "reset_gpu"),
    Xid(49, "unused", "driver", "info", "nothing"),
    Xid(50, "unused", "driver", "info", "nothing"),
    Xid(51, "unused", "driver", "info", "nothing"),
    Xid(52, "clocks changed because of the temperature", "thermal", "warning", "check_cooling"),
    Xid(53, "clocks lowered because of the temperature", "thermal", "warning", "check_cooling"),
    Xid(54, "auxiliary power is not connected", "power", "critical", "check_power"),
    Xid(55, "temperature could not be read", "thermal", "warning", "report"),
    Xid(56, "display engine error", "display", "warning", "report"),
    Xid(57, "memory interface could not be set up", "memory", "critical", "run_diagnostics"),
    Xid(58, "memory interface is not stable", "memory", "critical", "run_diagnostics"),
    Xid(59, "micro-controller error (older drivers)", "hardware", "warning", "reset_gpu"),
    Xid(60, "video processor exception", "application", "warning", "restart_application"),
    Xid(61, "micro-controller stopped at a breakpoint", "hardware", "warning", "reset_gpu"),
    Xid(62, "micro-controller halted", "hardware", "critical", "reset_gpu"),
    Xid(63, "a bad memory row was marked for replacement (or a page retired)", "memory", "info", "reset_later"),
    Xid(64, "a bad memory row could not be replaced (or a page retired)", "memory", "critical", "replace_gpu"),
    Xid(65, "video encoder exception", "application", "warning", "restart_application"),
    Xid(66, "illegal access by the driver", "driver", "info", "update_driver"),
    Xid(67, "illegal access by the driver", "driver", "info", "report"),
    Xid(68, "video decoder exception", "application", "warning", "restart_application"),
    Xid(69, "graphics engine class error", "application", "warning", "restart_application"),
    Xid(70, "copy engine exception", "application", "warning", "restart_application"),
    Xid(71, "copy engine exception", "application", "warning", "restart_application"),
    Xid(72, "copy engine exception", "application", "warning", "restart_application"),
    Xid(73, "video encoder exception", "application", "warning", "restart_application"),
    Xid(74, "NVLink error", "link", "critical", "check_link"),
    Xid(75, "copy engine exception", "application", "warning", "restart_application"),
    Xid(76, "copy engine exception", "application", "warning", "restart_application"),
    Xid(77, "copy engine exception", "application", "warning", "restart_application"),
    Xid(78, "virtual GPU did not start", "driver", "warning", "update_driver"),
    Xid(79, "GPU has fallen off the bus", "bus", "critical", "reboot_node"),
    Xid(80, "commands arrived at the GPU corrupted", "application", "warning", "restart_application"),
    Xid(81, "VGA subsystem error", "display", "warning", "report"),
    Xid(82, "JPEG engine exception", "application", "warning", "restart_application"),
    Xid(83, "video decoder exception", "application", "warning", "restart_application"),
    Xid(84, "video decoder exception", "application", "warning", "restart_application"),
    Xid(85, "copy engine exception", "application", "warning", "restart_application"),
    Xid(86, "optical flow engine exception", "application", "warning", "restart_application"),
    Xid(87, "report of the driver about itself", "driver", "info", "nothing"),
    Xid(88, "video decoder exception", "application", "warning", "restart_application"),
    Xid(89, "video decoder exception", "application", "warning", "restart_application"),
    Xid(90, "second-level cache error", "memory", "warning", "report"),
    Xid(91, "reserved", "driver", "info", "nothing"),
    Xid(92, "many memory errors, all corrected", "memory", "warning", "report"),
    Xid(93, "board's information ROM is written too often", "hardware", "info", "report"),
    Xid(94, "memory error that hit one program only (contained)", "memory", "warning", "restart_then_reset"),
    Xid(95, "memory error that may have hit any program (not contained)", "memory", "critical", "reset_gpu"),
    Xid(96, "video decoder exception", "application", "warning", "restart_application"),
    Xid(97, "video decoder exception", "application", "warning", "restart_application"),
    Xid(98, "video decoder exception", "application", "warning", "restart_application"),
    Xid(99, "JPEG engine exception", "application", "warning", "restart_application"),
    Xid(100, "JPEG engine exception", "application", "warning", "restart_application"),
    Xid(101, "JPEG engine exception", "application", "warning", "restart_application"),
    Xid(102, "JPEG engine exception", "application", "warning", "restart_application"),
    Xid(103, "JPEG engine exception", "application", "warning", "restart_application"),
    Xid(104, "JPEG engine exception", "application", "warning", "restart_application"),
    Xid(105, "JPEG engine exception", "application", "warning", "restart_application"),
    Xid(106, "test message of the management bus", "driver", "info", "nothing"),
    Xid(107, "test message of the management bus", "driver", "info", "nothing"),
    Xid(108, "address translation failed on the other side of an NVLink", "link", "info", "follow_earlier"),
    Xid(109, "change between programs timed out", "application", "warning", "restart_then_reset"),
    Xid(110, "security fault", "hardware", "critical", "reset_gpu"),
    Xid(111, "display bundle error", "display", "info", "nothing"),
    Xid(112, "display supervisor error", "display", "info", "nothing"),
    Xid(113, "display link training failed", "display", "info", "nothing"),
    Xid(114, "display pipeline ran empty", "display", "info", "nothing"),
    Xid(115, "display channel error", "display", "info", "nothing"),
    Xid(116, "display channel error", "display", "info", "nothing"),
    Xid(117, "display channel error", "display", "info", "nothing"),
    Xid(118, "display pixel pipeline error", "display", "info", "nothing"),
    Xid(119, "system processor of the GPU (GSP) did not answer in time", "driver", "critical", "reset_gpu"),
    Xid(120, "error of the system processor of the GPU (GSP)", "driver", "critical", "reset_gpu"),
    Xid(121, "error of the link between chips (C2C)", "link", "warning", "report"),
    Xid(122, "firmware flash could not be read", "hardware", "warning", "report"),
    Xid(123, "firmware flash could not be written", "hardware", "warning", "report"),
    Xid(124, "firmware flash could not be erased", "hardware", "warning", "report"),
    Xid(125, "board's information ROM failed", "hardware", "warning", "report"),
    Xid(126, "copy engine exception", "application", "warning", "restart_application"),
    Xid(127, "copy engine exception", "application", "warning", "restart_application"),
    Xid(128, "copy engine exception", "application", "warning", "restart_application"),
    Xid(129, "copy engine exception", "application", "warning", "restart_application"),
    Xid(130, "copy engine exception", "application", "warning", "restart_application"),
    Xid(131, "copy engine exception", "application", "warning", "restart_application"),
    Xid(132, "copy engine exception", "application", "warning", "restart_application"),
    Xid(133, "copy engine exception", "application", "warning", "restart_application"),
    Xid(134, "copy engine exception", "application", "warning", "restart_application"),
    Xid(135, "copy engine exception", "application", "warning", "restart_application"),
    Xid(136, "NVLink could not be trained", "link", "critical", "reset_gpu"),
    Xid(137, "page fault over NVLink: a program used a wrong address", "application", "warning", "check_application"),
    Xid(138, "deep learning accelerator error", "application", "warning", "restart_application"),
    Xid(139, "optical flow engine exception", "application", "warning", "restart_application"),
    Xid(140, "memory error from which the GPU did not recover", "memory", "critical", "reset_gpu"),
    Xid(141, "fast path of CUDA failed and the slow one is used", "driver", "info", "nothing"),
    Xid(142, "video encoder exception", "application", "warning", "report"),
    Xid(143, "GPU could not be initialized", "hardware", "critical", "reset_gpu"),
    Xid(144, "NVLink 5 error in unit SAW", "link", "warning", "see_subcode"),
    Xid(145, "NVLink 5 error in unit RLW", "link", "warning", "see_subcode"),
    Xid(146, "NVLink 5 error in unit TLW", "link", "warning", "see_subcode"),
    Xid(147, "NVLink 5 error in unit TREX", "link", "warning", "see_subcode"),
    Xid(148, "NVLink 5 error in unit NVLPW_CTRL", "link", "warning", "see_subcode"),
    Xid(149, "NVLink 5 error in unit NETIR", "link", "warning", "see_subcode"),
    Xid(150, "NVLink 5 error in unit MSE", "link", "warning", "see_subcode"),
    Xid(151, "change of an encryption key failed", "driver", "warning", "restart_vm"),
    Xid(152, "deep learning accelerator: address translation failed", "driver", "info", "nothing"),
    Xid(153, "deep learning accelerator timed out", "driver", "info", "nothing"),
    Xid(154, "driver asks for another recovery action", "hardware", "warning", "see_message"),
    Xid(155, "NVLink was taken down by software", "link", "warning", "reset_gpu"),
    Xid(156, "a part of the GPU was retired after errors", "hardware", "warning", "reset_later"),
    Xid(157, "a bad part of the GPU could not be retired", "hardware", "warning", "report"),
    Xid(158, "GPU did not answer in time, fatally", "hardware", "critical", "reset_gpu"),
    Xid(159, "bad answer on the bus between CPU and GPU (CHI)", "hardware", "warning", "follow_earlier"),
    Xid(160, "a memory channel was retired after errors", "memory", "info", "reset_later"),
    Xid(161, "a bad memory channel could not be retired", "memory", "warning", "report"),
    Xid(162, "power smoothing works again", "power", "info", "nothing"),
    Xid(163, "power smoothing is switched off", "power", "warning", "report"),
    Xid(164, "power smoothing is near the end of its life", "power", "warning", "report"),
    Xid(165, "power smoothing is at the end of its life", "power", "warning", "report"),
    Xid(166, "NVLink carried data before its encryption was set up", "link", "warning", "report"),
    Xid(167, "PCIe timed out, fatally", "bus", "critical", "reboot_node"),
    Xid(168, "GPU has less memory than it should after errors", "memory", "warning", "run_diagnostics"),
    Xid(169, "security processor of the GPU halted", "hardware", "critical", "reset_gpu"),
    Xid(170, "NVLink interrupt in confidential mode", "link", "warning", "report"),
    Xid(171, "details of XID 48: the error was in DRAM", "memory", "warning", "follow_earlier"),
    Xid(172, "details of XID 48: the error was in SRAM", "memory", "warning", "follow_earlier"),
)

XIDS: dict[int, Xid] = {row.code: row for row in _ROWS}

#: Why a link went down, by the number in the first register of NETIR_LINK_EVT: where to look.
CAUSES: dict[int, str] = {
    1: "report",
    **dict.fromkeys((2, 4, 10), "signal"),
    **dict.fromkeys((15, 17, 22, 38), "software"),
    **dict.fromkeys((16, 18), "software_or_signal"),
    **dict.fromkeys((21, *range(32, 38)), "peer"),
    40: "host",
    **dict.fromkeys((42, 43), "signal_or_cable"),
}
_LINK_FAULT = re.compile(
    r"(?:^|, ?)(?P<unit>[A-Z][A-Z0-9_/]{1,30}) (?:Link )?(?P<effect>Fatal|Non-?fatal) XC\d{1,3} i\d{1,3} "
    r"Link (?P<link>-?\d{1,3})(?: \((?:0x)?(?P<register>[0-9a-fA-F]{1,8})\b)?"
)
_RECOVERY = re.compile(r"recovery action changed from .{0,60} to \S{1,20} \((?P<action>[^)]{0,40})\)")
_RECOVERIES = {
    "none": ("info", "nothing"),
    "gpu reset required": ("critical", "reset_gpu"),
    "pf flr": ("critical", "reset_gpu"),
    "drain and reset": ("critical", "reset_gpu"),
    "drain p2p": ("warning", "drain"),
    "node reboot required": ("critical", "reboot_node"),
    "os reboot": ("critical", "reboot_node"),
}


def describe(code: int, text: str = "") -> Xid:
    """Return the row of a code, made more exact by the text of its message where that tells more.

    154 names the action that is asked for; 144 to 150 say whether they are fatal.
    """
    row = XIDS.get(code) or replace(UNKNOWN, code=code)
    if code == 154 and (match := _RECOVERY.search(text)) is not None:
        severity, action = _RECOVERIES.get(match["action"].lower(), (row.severity, row.action))
        return replace(row, severity=severity, action=action)
    fault = link_fault(code, text)
    if fault is None:
        return row
    if fault.effect == "fatal":
        return replace(row, severity="critical", action="reset_gpu")
    return replace(row, severity="info", action="nothing")


def link_fault(code: int, text: str) -> LinkFault | None:
    """Return what the message of one of the codes 144 to 150 tells; None for other codes and other forms."""
    if not 144 <= code <= 150:
        return None
    match = _LINK_FAULT.search(text)
    if match is None:
        return None
    link = match["link"].lstrip("0") or "0"
    cause = ""
    if match["unit"].startswith(("NETIR_LINK_EVT", "NETIR_LINK_DOWN")) and match["register"]:
        number = int(match["register"], 16) >> 20 & 0x3F
        cause = CAUSES.get(number, f"code_{number}") if number else ""
    return LinkFault(
        subcode=match["unit"],
        effect="fatal" if match["effect"] == "Fatal" else "nonfatal",
        # -1: the error belongs to no single link.
        link="" if link.startswith("-") else link,
        cause=cause,
    )
