"""The life of a run under supervision: attempts, and what happens between two of them.

What it remembers is in a file (:mod:`trainvitals.supervise.state`).  One that is started again finds its attempt:

- the processes still run: it watches them to their end, and copies their output from where it had got to;
- they ended meanwhile: the shell around them has written down how, and that is judged as always;
- the node was started anew: that is a failure like others.

Restarts are counted on in each case.  After a run that finished or was given up, the count begins anew.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from trainvitals import rankfile
from trainvitals.probe import stacks
from trainvitals.probe.identity import attempt as attempt_of_launchers
from trainvitals.supervise import cause, devices, evidence, resources, resume, wishes
from trainvitals.supervise.attempt import Attempt, Outcome
from trainvitals.supervise.cause import Failure
from trainvitals.supervise.choose import Choice, NoneLeftError, choose, from_step, given
from trainvitals.supervise.console import Console, Scan, same_place
from trainvitals.supervise.decide import Decision, Past, decide
from trainvitals.supervise.kernel import Kernel
from trainvitals.supervise.launch import Child, Outputs, start
from trainvitals.supervise.record import Records, quietly
from trainvitals.supervise.settings import Settings
from trainvitals.supervise.signals import Signals
from trainvitals.supervise.state import State, Store
from trainvitals.supervise.watch import Ranks

#: Exit statuses beside those of the command: 128 and the signal when it was told to end; a failure that another
#: attempt would meet again (EX_SOFTWARE of sysexits.h); resources that did not come in time (EX_TEMPFAIL).
GIVEN_UP, NO_RESOURCES = 70, 75
#: Seconds between two saves of how far the output was copied.
_SAVE = 5.0
_LOOK_FOR_RESOURCES = 1.0


class Supervisor:
    """Runs a command to its end.  ``environ`` is the command's, ``tell`` takes lines for the user.

    ``kernel_of`` makes a reader of the kernel's log from a wall time on, ``scan_of`` one of errors in the output.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        records: Records,
        environ: Mapping[str, str],
        *,
        kernel_of: Callable[[float], Kernel],
        scan_of: Callable[[], Scan | None],
        tell: Callable[[str], None],
        roster: devices.Roster | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._store, self._records, self._environ = settings, store, records, dict(environ)
        self._kernel_of, self._scan_of, self._tell, self._clock = kernel_of, scan_of, tell, clock
        self._roster = roster or devices.Roster()
        self._signals = Signals()
        self._state = store.load()
        if not self._state.is_of_this_boot():
            self._state.excluded = []  # A node that was started anew has reset its devices.
        self._saved = 0.0
        self._choice = Choice()
        self._attempt: Attempt | None = None
        self._evidence: evidence.Evidence | None = None

    def run(self) -> int:
        """Supervise to the end; return the exit status."""
        self._signals.catch()
        try:
            return self._run()
        except NoneLeftError as error:
            return self._give_up(str(error), GIVEN_UP)
        except OSError as error:
            return self._give_up(str(error), NO_RESOURCES)

    def _run(self) -> int:
        running = self._found_again()
        if not running:
            self._begin()
        while True:
            if not running:
                if self._signals.told:
                    return self._preempted(Outcome(0, told=self._signals.told))
                self._start()
            running = False
            outcome = self._watch()
            if outcome.told:
                return self._preempted(outcome)
            if outcome.failure is not None:
                status = self._after(outcome.failure)
            elif (wish := wishes.take(self._store.folder)) is not None:
                status = self._grant(wish)
            else:
                status = self._finished()
            if status is not None:
                return status

    # Beginnings ------------------------------------------------------------------------------------------------------

    def _found_again(self) -> bool:
        """Take up the attempt that a supervisor before this one has left; return whether there is one."""
        state = self._state
        if state.phase != "running":
            return False
        if not state.is_of_this_boot():
            self._tell(f"attempt {state.attempt} ended with the node; the run goes on")
            state.pid, state.started = 0, 0
        else:
            self._tell(f"found attempt {state.attempt} again (process {state.pid}); watching it to its end")
        child = Child(state.pid, state.started, state.mark, self._status_file())
        self._observe(child, (state.offsets[0], state.offsets[1]))
        return True

    def _begin(self) -> None:
        """Begin a run anew, or go on with one that was told to end or waited for its restart."""
        state, command = self._state, list(self._settings.command)
        if state.phase not in {"waiting", "preempted", "released"} or state.command != command:
            self._state = State(command=command, attempt=state.attempt, rejected=state.rejected)
        elif state.phase == "waiting":
            self._tell(f"going on after attempt {state.attempt}; {state.restarts} restarts so far")
        self._state.checkpoints = self._settings.checkpoints or ""
        self._state.resume_flag = self._settings.resume_flag or ""
        self._choice = self._choose({})

    def _start(self) -> None:
        """Start the next attempt."""
        state, settings = self._state, self._settings
        wishes.withdraw(self._store.folder)  # It was about an attempt that failed meanwhile.
        state.attempt = max(state.attempt + 1, attempt_of_launchers(self._environ) if state.attempt < 0 else 0)
        choice = self._choice
        command = resume.with_flag(settings.command, settings.resume_flag, choice.path)
        environ = resume.environment(self._environ, attempt=state.attempt, checkpoint=choice.path, now=self._clock())
        environ.update(self._own_variables())
        command = self._without_lost_devices(command, environ)
        state.mark, state.began = f"{os.getpid()}-{secrets.token_hex(8)}", self._clock()
        state.boot, state.resumed, state.offsets = rankfile.boot_id(), choice.step, [0, 0]
        outputs = self._outputs()
        for path in {outputs.out, outputs.err, self._error_file()}:
            with contextlib.suppress(OSError):
                os.unlink(path)
        child = start(command, environ, outputs=outputs, status_file=self._status_file(), mark=state.mark)
        self._record_resumption()
        state.pid, state.started, state.phase = child.pid, child.started, "running"
        self._save()
        if choice.path is not None:
            self._tell(f"attempt {state.attempt} resumes from {choice.path}" + _at(choice.step))
        self._observe(child, (0, 0))

    def _record_resumption(self) -> None:
        """Complete the record of an end that the supervisor was told: only now is it known where the run goes on."""
        state, step = self._state, self._choice.step
        incident = state.incident
        if incident is not None and state.phase == "preempted" and step is not None:
            lost = None if state.last_step is None else max(0, state.last_step - step)
            quietly(lambda: self._records.update_incident(incident, resume_step=step, steps_lost=lost))

    def _own_variables(self) -> dict[str, str]:
        folder = self._store.path("stacks")
        with contextlib.suppress(OSError):
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder, mode=0o700, exist_ok=True)
        return {
            stacks.FOLDER: folder,
            # torchrun copies there what the rank that failed first has written.
            "TORCHELASTIC_ERROR_FILE": self._error_file(),
            **evidence.recorder_environment(self._environ, folder),
            # Its output goes to a file: somebody who watches a terminal wants each line at once.
            **({"PYTHONUNBUFFERED": "1"} if sys.stdout is not None and sys.stdout.isatty() else {}),
        }

    def _without_lost_devices(self, command: list[str], environ: dict[str, str]) -> list[str]:
        if not self._state.excluded:
            return command
        usable = self._roster.usable(environ, self._state.excluded)
        asked = devices.processes_per_node(command)
        count = resources.processes_now(asked, len(usable), self._settings.processes)
        environ[devices.VISIBLE] = ",".join(usable)
        return command if count is None else devices.with_processes(command, count)

    def _observe(self, child: Child, offsets: tuple[int, int]) -> None:
        state = self._state
        console = Console(self._outputs(), scan=self._scan_of(), offsets=offsets)
        ranks = Ranks(self._settings.spool, self._settings.name, state.attempt, since=state.began - 1.0)
        self._attempt = Attempt(
            child,
            console,
            ranks,
            self._kernel_of(state.began),
            settings=self._settings,
            roster=self._roster,
            error_file=self._error_file(),
            on_look=self._on_look,
            before_kill=self._before_kill,
            clock=self._clock,
        )

    # While it runs ---------------------------------------------------------------------------------------------------

    def _watch(self) -> Outcome:
        assert self._attempt is not None  # noqa: S101  _observe has made it.
        self._evidence = evidence.Evidence(self._store.path("incidents"), self._incident_name())
        return self._attempt.watch(self._signals)

    def _on_look(self) -> None:
        """Notice the first step after an incident; remember how far the output is copied."""
        attempt, state = self._attempt, self._state
        if attempt is None:
            return
        step = attempt.ranks.step()
        if step is not None and state.incident is not None:
            incident, last = state.incident, state.last_time
            first = min((rank.times[min(rank.times)] for rank in attempt.ranks if rank.times), default=None)
            if first is not None and last is not None:
                quietly(lambda: self._records.update_incident(incident, seconds_to_recover=max(0.0, first - last)))
            state.incident = None
            self._save()
        now = time.monotonic()
        if list(attempt.console.offsets) != state.offsets and now - self._saved > _SAVE:
            self._save()

    def _before_kill(self, failure: Failure) -> None:
        """Keep what only live processes can tell."""
        attempt = self._attempt
        if attempt is None or self._evidence is None:
            return
        evidence.ask_for_dumps(self._environ, attempt.ranks, time.sleep)
        if failure.cause == cause.HANG:
            self._evidence.keep_stacks(list(attempt.ranks), self._store.path("stacks"))

    # Afterwards ------------------------------------------------------------------------------------------------------

    def _after(self, failure: Failure) -> int | None:
        """Record a failure, decide, and wait for what the next attempt needs; return a status to end with."""
        attempt, state = self._attempt, self._state
        assert attempt is not None  # noqa: S101  As above.
        steps = attempt.ranks.saved()
        state.excluded += [uuid for uuid in failure.devices if uuid not in state.excluded]
        if failure.onset is not None:
            self._reject(failure.onset, steps)
        self._choice = self._choose(steps)
        folder = self._settings.checkpoints
        if folder is not None and not resources.has_room(folder, self._choice.path):
            failure = cause.of_full_disk(failure, folder, attempt.ranks)
        state.past.append(self._past(failure))
        decision = decide(state.past, self._settings.limits, state.restarts)
        if decision.before is not None and decision.before != failure.onset:
            self._reject(decision.before, steps)
            self._choice = self._choose(steps)
        self._record(failure, decision, attempt)
        what = failure.text + _at(failure.step, "after")
        if decision.action == "stop":
            self._tell(f"attempt {state.attempt} failed: {what}")
            return self._give_up(decision.why + (f"; {failure.action}" if failure.action else ""), GIVEN_UP)
        state.restarts += 1
        state.phase = "waiting"
        self._save()
        self._tidy()
        where = "the beginning" if self._choice.path is None else f"{self._choice.path}{_at(self._choice.step)}"
        pause = f" in {decision.pause:.0f} s" if decision.pause else ""
        limit = self._settings.limits.max_restarts
        self._tell(f"attempt {state.attempt} failed: {what}")
        self._tell(f"restart {state.restarts} of {limit}{pause} from {where}: {decision.why}")
        return self._wait(decision)

    def _past(self, failure: Failure) -> Past:
        state, step = self._state, self._choice.step if self._choice.checkpoint is not None else None
        progress = failure.step is not None and (state.furthest is None or failure.step > state.furthest)
        if self._settings.checkpoints is not None:
            progress = step is not None and step > (state.resumed or 0)
        state.furthest = max((one for one in (state.furthest, failure.step) if one is not None), default=None)
        return Past(
            cause=failure.cause,
            signature=failure.signature,
            step=failure.step,
            onset=failure.onset,
            resumed=state.resumed,
            progress=progress,
            data=failure.data,
            category=failure.category,
        )

    def _reject(self, step: int, steps: Mapping[str, int]) -> None:
        """Never again resume from what was saved at a step or later until now."""
        found = from_step(self._settings.checkpoints, step, steps)
        self._state.rejected += [mark for mark in found if mark not in self._state.rejected]

    def _choose(self, steps: Mapping[str, int]) -> Choice:
        settings, state = self._settings, self._state
        chosen = choose(settings.checkpoints, steps=steps, rejected=state.rejected, tell=self._tell)
        if chosen.checkpoint is None and settings.resume_from is not None:
            return given(settings.resume_from)
        return chosen

    def _record(self, failure: Failure, decision: Decision, attempt: Attempt) -> None:
        state, choice = self._state, self._choice
        last = attempt.ranks.last_time()
        lost = None if failure.step is None or choice.step is None else max(0, failure.step - choice.step)
        since = (
            attempt.ranks.time_of(choice.step) if choice.checkpoint is not None and choice.step is not None else None
        )
        columns: dict[str, object] = {
            "category": failure.category,
            "rank": failure.rank,
            "device": failure.devices[0] if failure.devices else "",
            "last_step": failure.step,
            "resume_step": None if decision.action == "stop" else choice.step,
            "steps_lost": lost,
            "seconds_lost": None if last is None else max(0.0, last - (since or state.began)),
            "decision": f"{decision.action}: {decision.why}",
            "text": failure.text,
            "evidence": "" if self._evidence is None else self._evidence.folder,
            "details": {
                "exit_code": failure.exit_code,
                "onset": failure.onset,
                "data": failure.data,
                "devices": list(failure.devices),
                "resume_path": choice.path,
                "passed_over": [f"{one.path}: {one.why}" for one in choice.passed],
            },
        }
        state.incident = self._write_incident(failure.cause, failure.detected, columns)
        state.last_time, state.last_step = last or failure.detected, failure.step
        if self._evidence is not None:
            self._evidence.keep_lines(attempt.console.lines)
            self._evidence.keep_dumps({**self._environ, **self._dump_variables()}, state.began)
            self._evidence.keep_failure(failure, {"decision": decision.action, "why": decision.why, **columns})

    def _dump_variables(self) -> dict[str, str]:
        return evidence.recorder_environment(self._environ, self._store.path("stacks"))

    def _write_incident(self, name: str, moment: float, columns: dict[str, object]) -> int | None:
        key, run, number = f"supervisor:{self._state.mark}", self._settings.name, self._state.attempt
        found = quietly(
            lambda: self._records.record_incident(run, name, attempt=number, detected=moment, key=key, **columns)
        )
        return found if isinstance(found, int) else None

    def _wait(self, decision: Decision) -> int | None:
        """Wait as was decided; return a status to end with when what is needed does not come."""
        self._signals.sleep(decision.pause)
        folder, newest = self._settings.checkpoints, self._choice.path
        if decision.action == "wait_space" and folder is not None:
            return self._wait_for("space in " + folder, lambda: resources.has_room(folder, newest))
        if decision.action == "wait_devices" and self._roster.present():
            return self._wait_for("enough devices", self._has_devices)
        return None

    def _has_devices(self) -> bool:
        asked = devices.processes_per_node(self._settings.command)
        usable = self._roster.usable(self._environ, self._state.excluded)
        return resources.processes_now(asked, len(usable), self._settings.processes) is not None

    def _wait_for(self, what: str, is_there: Callable[[], bool]) -> int | None:
        if is_there():
            return None
        self._tell(f"waiting up to {self._settings.wait:.0f} s for {what}")
        deadline = time.monotonic() + self._settings.wait
        while not is_there():
            if self._signals.told:
                return None
            if time.monotonic() > deadline:
                return self._give_up(f"{what}: not there after {self._settings.wait:.0f} s", NO_RESOURCES)
            self._signals.sleep(_LOOK_FOR_RESOURCES)
        return None

    # Wishes ----------------------------------------------------------------------------------------------------------

    def _grant(self, wish: wishes.Wish) -> int | None:
        """Do what somebody wants behind a clean end; return a status to end with."""
        state, attempt = self._state, self._attempt
        assert attempt is not None  # noqa: S101  It has just ended.
        steps, step, last = attempt.ranks.saved(), attempt.ranks.step(), attempt.ranks.last_time()
        if wish.what == "rollback" and wish.step is not None:
            self._reject(wish.step + 1, steps)
        if wish.what == "scale" and wish.least and wish.most:
            command = devices.with_processes(self._settings.command, wish.most)
            span = (wish.least, wish.most)
            self._settings = replace(self._settings, command=tuple(command), processes=span)
            state.command = command
        self._choice = self._choose(steps)
        text = f"{wish.what} ordered by {wish.by or 'nobody known'}" + _at(step, "after")
        columns: dict[str, object] = {
            "category": "parameter",
            "last_step": step,
            "resume_step": self._choice.step,
            "decision": "obey",
            "text": text,
        }
        state.incident = self._write_incident(f"ordered_{wish.what}", self._clock(), columns)
        state.last_time, state.last_step = last, step
        state.phase = "waiting"
        self._save()
        self._tidy()
        self._tell(f"attempt {state.attempt} ended: {text}")
        return self._hold() if wish.what == "release" else None

    def _hold(self) -> int | None:
        """Wait without a training until somebody wants it to go on; return a status to end with when told to end."""
        name = self._settings.name
        self._state.phase = "released"
        self._save()
        self._tell(
            f"the devices are free; `trainvitals ctl {name} resume` goes on, here or where this is started again"
        )
        while not self._signals.told:
            found = wishes.take(self._store.folder)
            if found is not None and found.what == "resume":
                self._state.phase = "waiting"
                self._choice = self._choose({})
                return None
            self._signals.sleep(_LOOK_FOR_RESOURCES)
        return self._preempted(Outcome(0, told=self._signals.told))

    # Ends ------------------------------------------------------------------------------------------------------------

    def _finished(self) -> int:
        self._state.phase = "finished"
        self._save()
        self._tidy()
        return 0

    def _tidy(self) -> None:
        """Remove the files of an attempt that is over; close what was open for it."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.console.remove()
            attempt.ranks.close()
            attempt.kernel.close()
        for path in (self._status_file(), self._error_file()):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _preempted(self, outcome: Outcome) -> int:
        """End as told; the next supervisor of this run goes on from the newest checkpoint."""
        attempt, state = self._attempt, self._state
        number = outcome.told
        if attempt is not None:
            name = "preempted" if number == signal.SIGTERM else "interrupted"
            step, last = attempt.ranks.step(), attempt.ranks.last_time()
            text = f"told to end by signal {number}" + _at(step, "after")
            columns: dict[str, object] = {"category": "resource", "last_step": step, "text": text, "decision": "obey"}
            state.incident = self._write_incident(name, self._clock(), columns)
            state.last_time, state.last_step = last, step
            self._tell(f"attempt {state.attempt} ended: {text}; start the same command again to go on")
        state.phase = "preempted"
        self._save()
        self._tidy()
        return 128 + number

    def _give_up(self, why: str, status: int) -> int:
        self._state.phase = "stopped"
        self._save()
        self._tidy()
        self._tell(f"stopped: {why}")
        if self._evidence is not None and os.path.isdir(self._evidence.folder):
            self._tell(f"evidence: {self._evidence.folder}")
        return status

    # Places ----------------------------------------------------------------------------------------------------------

    def _outputs(self) -> Outputs:
        out = self._store.path(f"attempt-{self._state.attempt}.out")
        return Outputs(out, out if same_place(1, 2) else self._store.path(f"attempt-{self._state.attempt}.err"))

    def _status_file(self) -> str:
        return self._store.path(f"attempt-{self._state.attempt}.status")

    def _error_file(self) -> str:
        return self._store.path("error.json")

    def _incident_name(self) -> str:
        stamp = time.strftime("%Y%m%dT%H%M%S", time.localtime(self._clock()))
        return f"{stamp}-attempt-{self._state.attempt}"

    def _save(self) -> None:
        if self._attempt is not None:
            self._state.offsets = list(self._attempt.console.offsets)
        self._saved = time.monotonic()
        self._store.save(self._state)


def _at(step: int | None, word: str = "of") -> str:
    return "" if step is None else f" ({word} step {step})"
