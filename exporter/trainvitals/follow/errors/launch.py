"""What launchers and schedulers write: torchelastic, DeepSpeed, Ray, Slurm, Kubernetes.

Wordings of ``torch/distributed/elastic``, ``slurmstepd`` and ``srun``, the kubelet's reasons, Ray's ``exceptions.py``.
"""

from __future__ import annotations

from trainvitals.follow.errors.base import Level, causes

CAUSES = causes(
    (
        "time_limit",
        "resource",
        Level.ROOT,
        ("DUE TO TIME LIMIT", "DUE to time limit", "DeadlineExceeded", "due to time limit"),
        (
            r"(?:(?:JOB|STEP|TASK) (?P<job>[\w.]{1,40}) ON (?P<host>\S{1,80}) )?CANCELLED AT .{1,40} DUE TO TIME"
            r" LIMIT|DeadlineExceeded"
        ),
        "slurmstepd: error: *** JOB 3112 ON node-7 CANCELLED AT 2026-03-02T04:00:21 DUE TO TIME LIMIT ***",
        "The scheduler ended the job at its time limit.",
        "Resume from the last checkpoint; ask for more time, or save before the limit (`--signal=B:USR1@600`).",
    ),
    (
        "preempted",
        "resource",
        Level.ROOT,
        ("PREEMPT", "REQUEUE", "reempted", "pot interruption"),
        (
            r"(?:(?:JOB|STEP) (?P<job>[\w.]{1,40}) ON (?P<host>\S{1,80}) )?CANCELLED AT .{1,40} DUE TO (?:PREEMPT"
            r"|JOB REQUEUE)"
            r"|\b[Pp]reempted by |job is preempted|[Rr]eason: {1,9}Preempt|[Ss]pot interruption"
        ),
        "slurmstepd: error: *** JOB 3112 ON node-7 CANCELLED AT 2026-03-02T04:00:21 DUE TO PREEMPTION ***",
        "The scheduler took the nodes for another job, or put the job back into its queue.",
        "Resume from the last checkpoint; ask for a queue that is not preempted, or save more often.",
    ),
    (
        "node_failed",
        "resource",
        Level.ROOT,
        ("NODE FAIL", "Node failure", "NodeLost", "node failure"),
        (
            r"CANCELLED AT .{1,40} DUE TO NODE FAIL|(?:srun: error: "
            r"|slurmstepd: error: ).{0,60}[Nn]ode failure(?: on (?P<host>\S{1,80}))?|NodeLost"
        ),
        (
            "slurmstepd: error: *** JOB 3112 ON node-7 CANCELLED AT 2026-03-02T04:00:21 DUE TO NODE FAILURE, SEE "
            "SLURMCTLD LOG ***"
        ),
        "The scheduler lost a node of the job.",
        "Resume without that node; look at its kernel log.",
    ),
    (
        "evicted",
        "resource",
        Level.ROOT,
        ("Evicted", "The node was low on resource", "evicted"),
        (
            r"(?:[Rr]eason: |Status:? {1,9})Evicted|The node was low on resource: (?P<resource>[\w-]{1,40})"
            r"|The node had condition: "
        ),
        "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi",
        "The kubelet ended the pod because the node was short of something.",
        "Request what the pod needs, above all memory and ephemeral-storage; write caches to a volume.",
    ),
    (
        "job_cancelled",
        "resource",
        Level.SYMPTOM,
        ("CANCELLED AT",),
        r"(?:JOB|STEP|TASK) (?P<job>[\w.]{1,40}) ON (?P<host>\S{1,80}) CANCELLED AT ",
        "slurmstepd: error: *** STEP 3112.0 ON node-7 CANCELLED AT 2026-03-02T04:00:21 ***",
        "Somebody or something cancelled the job (scancel), often after a hang or an error.",
        "See who cancelled it and what came before; resume from the last checkpoint.",
    ),
    (
        "interrupted",
        "resource",
        Level.SYMPTOM,
        ("SIGINT", "Received 2 death signal", "got signal: 2", "KeyboardInterrupt"),
        (
            r"Received (?:Signals\.)?(?:SIGINT|2) death signal|Process (?P<pid>\d{1,10}) got signal: 2\b"
            r"|^KeyboardInterrupt(?:$|: )|[Ss]ignal 2 \(SIGINT\) received by PID|Detected KeyboardInterrupt"
        ),
        (
            "W0302 04:00:21.123000 4171 torch/distributed/elastic/agent/server/api.py:723] Received Signals.SIGINT "
            "death signal"
        ),
        "Somebody interrupted the program.",
        "Nothing, if it was meant; resume from the last checkpoint.",
    ),
    (
        "terminated",
        "resource",
        Level.SYMPTOM,
        ("death signal", "got signal: ", "receiving SIGTERM", "Termination signal"),
        (
            r"Received (?:Signals\.)?(?P<signal>SIG\w{1,8}|\d{1,2}) death signal"
            r"|Process (?P<pid>\d{1,10}) got signal: (?P<number>\d{1,2})"
            r"|exiting program after receiving SIGTERM|`Termination signal` is detected"
        ),
        (
            "W0302 04:00:21.123000 4171 torch/distributed/elastic/agent/server/api.py:739] Received 15 death "
            "signal, shutting down workers"
        ),
        "The launcher was told to end: by the scheduler, by an operator or by another node's launcher.",
        "See who ended it: the scheduler's record, other nodes' logs; a hang before it is the reason to look for.",
    ),
    (
        "peers_stopped",
        "resource",
        Level.NOTICE,
        ("closing signal", "Killing subprocess", "SIGTERM) received"),
        (
            r"Sending process (?P<pid>\d{1,10}) closing signal|Killing subprocess (?P<process>\d{1,10})"
            r"|[Ss]ignal 15 \(SIGTERM\) received by PID"
        ),
        (
            "W0302 04:00:21.123000 4171 torch/distributed/elastic/multiprocessing/api.py:908] Sending process 4188 "
            "closing signal SIGTERM"
        ),
        "The launcher ends the other processes of the node.",
        "Look for the process that ended first.",
    ),
    (
        "child_failed",
        "parameter",
        Level.CASCADE,
        ("failed (exitcode", "ChildFailedError", "with return code", "status failed cmd", "exit with exception"),
        (
            r"failed \(exitcode: (?P<exit_code>-?\d{1,5})\) local_rank: (?P<local_rank>\d{1,4}) \(pid:"
            r" (?P<pid>\d{1,10})\)"
            r"|Container rank (?P<rank>\d{1,6}) status failed cmd .{0,6000}? code (?P<status_code>-?\d{1,5}) log "
            r"|Worker process (?P<process>\d{1,10}) exit with exception"
            r"|exits with return code = (?P<return_code>-?\d{1,5})|^(?:\w{1,40}\.){0,8}ChildFailedError:"
        ),
        (
            "E0302 04:00:21.123000 4171 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1) "
            "local_rank: 3 "
            "(pid: 4191) of binary: /opt/venv/bin/python"
        ),
        "The launcher reports that a process of a rank ended with an error.",
        "Read the traceback of the rank that it names first.",
    ),
    (
        "task_exited",
        "parameter",
        Level.CASCADE,
        ("srun: error: ", "Job step aborted"),
        (
            r"srun: error: (?P<host>[^\s:]{1,80}): tasks? (?P<ranks>[\d,-]{1,80}): (?:Exited with exit code"
            r" (?P<exit_code>\d{1,3})"
            r"|Killed|Terminated|Aborted|Segmentation fault|Bus error)|Job step aborted"
        ),
        "srun: error: node-7: task 5: Exited with exit code 1",
        "Slurm reports that a task ended with an error.",
        "Read the log of that task first.",
    ),
    (
        "actor_died",
        "resource",
        Level.CASCADE,
        ("ActorError", "ActorDiedError", "WorkerCrashedError", "actor died", "actor is dead", "RayTaskError"),
        r"(?:Ray)?Actor(?:Died)?Error: |RayTaskError\(|WorkerCrashedError|The actor (?:died|is dead)",
        "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.",
        "A process of Ray ended.",
        "Read the log of that process: an error of its own, or killed for memory.",
    ),
    (
        "subprocess_failed",
        "parameter",
        Level.CASCADE,
        ("CalledProcessError", "ProcessExitedException", "ProcessRaisedException"),
        (
            r"^(?:\w{1,40}\.){0,6}(?:CalledProcessError: (?:.{0,4000}(?:exit status (?P<exit_code>\d{1,3})"
            r"|died with <Signals\.(?P<signal>\w{1,10})))?"
            r"|Process(?:Exited|Raised)Exception)"
        ),
        (
            "subprocess.CalledProcessError: Command '['/opt/venv/bin/python', 'train.py']' returned non-zero exit "
            "status 1."
        ),
        "A launcher reports that the program that it started failed.",
        "Read the error of that program, which stands before it.",
    ),
    (
        "aborted",
        "resource",
        Level.CASCADE,
        ("terminate called", "Aborted", "SIGABRT", "abort signal"),
        (
            r"terminate called (?:after throwing an instance of|without an active exception)"
            r"|Fatal Python error: Aborted|Aborted \(core dumped\)|`Process abort signal` is detected"
            r"|\(SIGABRT\) received"
        ),
        "terminate called after throwing an instance of 'c10::Error'",
        "A process gave up after an error in native code.",
        "Read the lines around it: `what():` names the error.",
    ),
)
