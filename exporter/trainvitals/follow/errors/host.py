"""Errors of the node: memory, shared memory, storage, processes that were killed.

Wordings of the kernel (``mm/oom_kill.c``), of the C library's ``strerror``, of PyTorch's ``torch/utils/data``,
of Ray.
"""

from __future__ import annotations

from trainvitals.follow.errors.base import Level, causes

_OS_ERROR = r"(?:\[Errno \d{1,3}\] |: |\()"
_FILE = r"(?::? '(?P<file>[^'\n]{1,400})')?"
#: A kernel's line tells of many programs; these are the ones that train.
_TRAINERS = r"(?:python|pt_|torch|ray(?:::|let)|accelerate|deepspeed)"

CAUSES = causes(
    (
        "shared_memory_full",
        "resource",
        Level.ROOT,
        ("us error", "shared memory", "/dev/shm", "unable to mmap"),
        (
            r"[Uu]nexpected bus error encountered in worker"
            r"|(?:\(pid (?P<pid>\d{1,10})\) is killed by signal: (?P<signal>Bus error))"
            r"|^(?:.{0,120}: line \d{1,6}: {1,8}\d{1,10} )?Bus error(?: \(core dumped\))?(?:$|\s{2,})"
            r"|No space left on device.{0,40}/dev/shm|/dev/shm.{0,120}No space left"
            r"|unable to (?:open|allocate|mmap|write to) .{0,80}(?:shared memory|torch_\d)"
        ),
        (
            "RuntimeError: DataLoader worker (pid 7321) is killed by signal: Bus error. It is possible that "
            "dataloader's workers "
            "are out of shared memory."
        ),
        "Data-loader workers ran out of shared memory.",
        "Enlarge /dev/shm (`--shm-size`, an emptyDir of medium Memory), or lower num_workers and prefetch_factor.",
    ),
    (
        "host_out_of_memory",
        "resource",
        Level.ROOT,
        (
            "ut of memory",
            "ut Of Memory",
            "oom-kill",
            "OOMKilled",
            "MemoryError",
            "allocate memory",
            "low on memory",
            "emory limit",
        ),
        (
            r"[Oo]ut of memory: Kill(?:ed)? process (?P<pid>\d{1,10})(?:.{0,20}?\((?P<program>[^)]{1,40})\))?"
            r"|Detected \d{1,9} oom-kill event|oom[-_]kill event|(?:: |^)OOMKilled|[Rr]eason: {1,9}OOMKilled"
            r"|task.{0,40}: Out Of Memory"
            r"|^(?:\w{1,40}\.){0,4}_?(?:Array)?MemoryError(?:$|: )"
            r"|can't allocate memory: you tried to allocate (?P<wanted>\d{1,19}) bytes"
            rf"|{_OS_ERROR}Cannot allocate memory|killed due to the node running low on memory|[Ee]xceeded (?:job "
            rf"|step )?memory limit"
        ),
        (
            "slurmstepd: error: Detected 2 oom-kill event(s) in StepId=3112.0. Some of the step tasks have been "
            "OOM Killed."
        ),
        "The node or the job had no memory left and a process was killed.",
        "Lower num_workers and what they keep, look for a leak, or ask for more memory.",
    ),
    (
        "worker_terminated",
        "resource",
        Level.CASCADE,
        ("is killed by signal: Terminated",),
        r"\(pid (?P<pid>\d{1,10})\) is killed by signal: (?P<signal>Terminated)",
        "RuntimeError: DataLoader worker (pid 7321) is killed by signal: Terminated.",
        "A data-loader worker was told to end.",
        "Look for what stopped the run.",
    ),
    (
        "worker_killed",
        "resource",
        Level.BLAMED,
        ("DataLoader ", "is killed by signal"),
        (
            r"\(pid (?P<pid>\d{1,10})\) is killed by signal: (?P<signal>[\w ]{1,40})"
            r"|DataLoader worker \(pid\(?s?\)? [\d, ]{1,200}\) exited unexpectedly"
            r"|DataLoader \d{1,5} workers exit unexpectedly"
        ),
        "RuntimeError: DataLoader worker (pid 7321) is killed by signal: Killed.",
        "A data-loader worker died without a word: mostly the kernel killed it for its memory.",
        "Look for `Out of memory: Killed process` on the node; lower num_workers and what they keep.",
    ),
    (
        "disk_full",
        "resource",
        Level.ROOT,
        ("No space left",),
        rf"{_OS_ERROR}No space left on device{_FILE}",
        "OSError: [Errno 28] No space left on device: '/ckpt/step_900/rank5.pt'",
        "A file system is full (or out of inodes).",
        "Delete old checkpoints (`df -h`, `df -i`); keep fewer; then resume from the last whole one.",
    ),
    (
        "quota_exceeded",
        "resource",
        Level.ROOT,
        ("uota exceeded",),
        rf"{_OS_ERROR}Disk quota exceeded{_FILE}|EDQUOT",
        "OSError: [Errno 122] Disk quota exceeded: '/home/u7/out/log.txt'",
        "The user's or project's share of a file system is used up.",
        "Delete what is no longer needed, or write elsewhere; then resume.",
    ),
    (
        "filesystem_read_only",
        "resource",
        Level.ROOT,
        ("ead-only file system",),
        rf"{_OS_ERROR}Read-only file system{_FILE}",
        "OSError: [Errno 30] Read-only file system: '/data/cache/index.npy'",
        "A file system cannot be written to: mounted so, or after an error of its disk.",
        "Look at mount and kernel log; write elsewhere.",
    ),
    (
        "filesystem_failed",
        "resource",
        Level.ROOT,
        ("tale", "nput/output error", "ransport endpoint", "emote I/O error"),
        (
            rf"{_OS_ERROR}(?:Stale (?:NFS )?file handle|Input/output error|Remote I/O error"
            rf"|Transport endpoint is not connected|Cannot send after transport endpoint shutdown){_FILE}"
        ),
        "OSError: [Errno 116] Stale file handle: '/mnt/nfs/shard-000017.tar'",
        "A file system lost its server or its disk.",
        "Look at server, mount and kernel log of the node; mount again, then resume.",
    ),
    (
        "permission_denied",
        "parameter",
        Level.ROOT,
        ("ermission denied",),
        rf"(?:PermissionError: |cannot |can't |failed ).{{0,200}}Permission denied{_FILE}",
        "PermissionError: [Errno 13] Permission denied: '/ckpt/step_900'",
        "The program may not read or write a file.",
        "Check owner and mode of the folder, and as whom the job runs.",
    ),
    (
        "too_many_files",
        "parameter",
        Level.ROOT,
        ("oo many open files", "items of ancdata", "start new thread"),
        rf"{_OS_ERROR}Too many open files{_FILE}|received \d items of ancdata|can't start new thread",
        "OSError: [Errno 24] Too many open files: '/data/part-00311'",
        "A process reached its limit of open files or threads.",
        "Raise `ulimit -n` and `ulimit -u`, lower num_workers, or set the sharing strategy to file_system.",
    ),
    (
        "segfault",
        "resource",
        Level.BLAMED,
        ("egmentation fault", "segfault at", "SIGSEGV", "Illegal instruction"),
        (
            r"Fatal Python error: (?:Segmentation fault|Illegal instruction)"
            r"|Segmentation fault(?: \(core dumped\))?\s*$"
            r"|`Segmentation fault` is detected|Signal: Segmentation fault|Caught signal 11|\*\*\* SIGSEGV"
            r"|SIGSEGV\b.{0,40}received"
            rf"|{_TRAINERS}.{{0,16}}?\[(?P<pid>\d{{1,10}})\]: segfault at "
        ),
        "Fatal Python error: Segmentation fault",
        "A process ended at a wrong memory access: a library in native code, not the script.",
        "Read the stack below it; compare versions of the libraries with a run that works.",
    ),
    (
        "hung_task",
        "resource",
        Level.BLAMED,
        ("blocked for more than",),
        r"INFO: task (?P<program>.{1,64}?):(?P<pid>\d{1,10}).{0,80} blocked for more than (?P<seconds>\d{1,6})",
        "INFO: task python:7321 blocked for more than 122 seconds.",
        "A process waits in the kernel for minutes, mostly for storage or a driver.",
        "Look at file systems that are stuck, then at GPU and network drivers.",
    ),
    (
        "kernel_panic",
        "resource",
        Level.ROOT,
        ("Kernel panic", "kernel BUG", "BUG: unable to handle"),
        r"Kernel panic - not syncing|kernel BUG at|BUG: unable to handle",
        "Kernel panic - not syncing: Fatal exception",
        "The kernel of the node failed.",
        "Reboot the node; keep the record for whoever looks after it.",
    ),
    (
        "process_killed",
        "resource",
        Level.BLAMED,
        ("Killed", "SIGKILL", "137"),
        (
            r"^(?:.{0,120}: line \d{1,6}: {1,8}(?P<pid>\d{1,10}) )?Killed(?:$| {2,})"
            r"|[Ss]ignal 9 \(SIGKILL\) received by PID (?P<process>\d{1,10})"
            r"|process rank (?P<rank>\d{1,6}) with PID \d{1,10} on node (?P<host>\S{1,80}) exited on signal 9\b"
            r"|\b[Ee]xit(?:ed)?(?: with)?(?: exit)? (?:code|status)[ :=]{1,3}137\b"
        ),
        "run.sh: line 12:  7321 Killed                  python train.py",
        "A process was killed (SIGKILL): by the kernel for memory, by the scheduler, or by hand.",
        "Look for `Out of memory: Killed process` in the kernel log of the node, then for limits of the job.",
    ),
)
