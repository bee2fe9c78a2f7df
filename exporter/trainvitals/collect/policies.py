"""Policies: when a signal has been on for so long, the exporter gives an order by itself.  Off unless settings say so.

A finding that is only information gives no order.  Once an order was obeyed, the same policy gives none again to this
attempt of the run, also when the exporter was started again meanwhile: the ranks have said what they obeyed, and by
whom.  One that was not obeyed is given again after the same time, three times in all.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from trainvitals.collect import data, log_errors
from trainvitals.collect.rank import Rank
from trainvitals.collect.runs import Finding
from trainvitals.config import ConfigError, PolicySettings
from trainvitals.detect import rules, stall, straggler
from trainvitals.output import printable
from trainvitals.steer.giving import Done, NotDoneError
from trainvitals.steer.steering import Steering

log = logging.getLogger(__name__)

TRIES = 3
#: Between two tries, at least so many seconds.
_PAUSE = 10.0
_Key = tuple[str, int]


@dataclass
class _Watch:
    """One policy on one run: its attempt, since when the signal is on, and what became of the order."""

    attempt: tuple[int, float]
    since: float | None = None
    tries: int = 0
    work: Future[Done] | None = None
    is_obeyed: bool = False


class Policies:
    """Looks at the findings of each round.  For one thread; orders are given in others.

    Raises ConfigError for a signal that nobody knows.
    """

    def __init__(self, policies: Sequence[PolicySettings], steering: Steering) -> None:
        signals = [stall.SIGNAL, straggler.SIGNAL, *rules.known(), data.SIGNAL, log_errors.SIGNAL]
        for place, policy in enumerate(policies):
            if policy.signal not in signals:
                raise ConfigError(f"orders.policies.{place}.signal: {rules.unknown(policy.signal, signals)}")
        self._policies, self._steering = policies, steering
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="policy")
        self._watches: dict[_Key, _Watch] = {}

    def observe(
        self, by_run: Mapping[str, Sequence[Rank]], findings: Mapping[str, Sequence[Finding]], now: float
    ) -> None:
        """Take over one round; ``now`` is wall time in seconds."""
        live = {run: up for run, ranks in by_run.items() if (up := [rank for rank in ranks if rank.up])}
        for run, ranks in live.items():
            on = {one.signal for one in findings[run] if one.verdict.active and one.verdict.severity != "info"}
            attempt = max(rank.identity.attempt for rank in ranks), min(rank.started for rank in ranks)
            for place, policy in enumerate(self._policies):
                watch = self._watches.get((run, place))
                if watch is None or watch.attempt[0] != attempt[0] or watch.attempt[1] < attempt[1]:
                    watch = self._watches[run, place] = _Watch(
                        attempt, is_obeyed=_was_obeyed(policy, ranks, attempt[1])
                    )
                self._look(run, policy, watch, now, is_on=policy.signal in on)
        self._watches = {key: watch for key, watch in self._watches.items() if key[0] in by_run}

    def close(self) -> None:
        """Let the threads end; they do as soon as nobody waits for ranks any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _look(self, run: str, policy: PolicySettings, watch: _Watch, now: float, *, is_on: bool) -> None:
        if watch.work is not None:
            if not watch.work.done():
                return
            watch.is_obeyed = _tell(run, policy, watch.work)
            watch.work, watch.since = None, now + max(0.0, _PAUSE - policy.after)
        if not is_on:
            watch.since = None
            return
        if watch.since is None:
            watch.since = now
        if watch.is_obeyed or watch.tries >= TRIES or now - watch.since < policy.after:
            return
        watch.tries += 1
        values: dict[str, Any] = {"checkpoint": True} if policy.checkpoint else {}
        log.warning(
            "policy: %s has been on in %s for %.0f s: %s is ordered",
            policy.signal,
            printable(run),
            policy.after,
            policy.order,
        )
        watch.work = self._threads.submit(self._steering.give, run, policy.order, values, by=_giver(policy))


def _giver(policy: PolicySettings) -> str:
    """Return who gives its order, as the record says."""
    return f"policy {policy.signal}"


def _was_obeyed(policy: PolicySettings, ranks: Sequence[Rank], started: float) -> bool:
    """Whether ranks have obeyed a policy since their attempt began."""
    return any(rank.obeyed.get((_giver(policy), policy.order), -math.inf) >= started for rank in ranks)


def _tell(run: str, policy: PolicySettings, work: Future[Done]) -> bool:
    """Log what became of an order; return whether it was obeyed."""
    try:
        done = work.result()
    except NotDoneError as error:
        log.error("policy: %s is not obeyed by %s: %s", policy.order, printable(run), printable(str(error)))
        return False
    except Exception:
        log.exception("policy: %s cannot be ordered", policy.order)
        return False
    log.warning("policy: %s obeyed %s behind step %d", printable(run), policy.order, done.order.at)
    return True
