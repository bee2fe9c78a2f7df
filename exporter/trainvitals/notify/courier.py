"""Hands messages to the targets of a receiver: at their pace, each part once, and honest about what was not taken."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trainvitals.notify.bucket import Bucket
from trainvitals.notify.channels.base import LATER, REASONS, REFUSED, Answer, Channel, Note, Post
from trainvitals.notify.group import Group
from trainvitals.notify.memory import Memory
from trainvitals.notify.message import Style, notes

log = logging.getLogger(__name__)


@dataclass
class Target:
    """One robot of one receiver, and what became of its messages."""

    name: str
    channel: Channel
    bucket: Bucket
    sent: int = 0
    suppressed: int = 0
    failed: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(REASONS, 0)))
    #: Wall time of the last message that was accepted.
    last: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What Alertmanager is told: accepted (``kind`` empty), try again, or never; and after how many seconds."""

    kind: str
    text: str
    after: float = 0.0


class Courier:
    """Delivers to the targets of all receivers.  ``clock`` gives wall time.

    One message is on its way once at a time: who sends it again meanwhile waits for the first one's fate.
    """

    def __init__(
        self,
        targets: dict[str, Sequence[Target]],
        styles: dict[str, Style],
        memory: Memory,
        post: Post,
        *,
        longest_wait: float,
        timeout: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.targets = targets
        self.styles = styles
        self.memory = memory
        self._post = post
        self._longest_wait = longest_wait
        self._timeout = timeout
        self._clock = clock
        self._running: dict[str, asyncio.Lock] = {}
        #: Messages by what became of them.
        self.messages: Counter[str] = Counter()

    async def deliver(self, receiver: str, group: Group) -> Outcome:
        """Deliver a message.  Raises KeyError for a receiver that nobody knows."""
        targets, mark = self.targets[receiver], f"{receiver} {group.mark}"
        lock = self._running.setdefault(mark, asyncio.Lock())
        try:
            async with lock:
                if self.memory.is_done(mark):
                    for target in targets:
                        target.suppressed += 1
                    self.messages["duplicate"] += 1
                    return Outcome("", "sent before")
                answers = await asyncio.gather(*(self._to(target, receiver, group, mark) for target in targets))
                outcome = _worst(targets, answers)
                if not outcome.kind:
                    self.memory.finish(mark)
                self.messages[outcome.kind or "sent"] += 1
                return outcome
        finally:
            if not lock.locked():
                self._running.pop(mark, None)

    async def _to(self, target: Target, receiver: str, group: Group, mark: str) -> Answer:
        channel = target.channel
        parts = notes(group, self.styles[receiver], channel.write, channel.limit)
        for number, (note, text) in enumerate(parts):
            part = f"{target.name}/{number}"
            if self.memory.has(mark, part):
                target.suppressed += 1
                continue
            answer = await self._send(target, note, text)
            if answer.kind:
                target.failed[answer.reason] += 1
                log.warning("%s: not sent: %s: %s", target.name, answer.reason, answer.text)
                return answer
            self.memory.accept(mark, part)
            target.sent += 1
            target.last = self._clock()
        return Answer()

    async def _send(self, target: Target, note: Note, text: str) -> Answer:
        """Send a part when it is its turn; what goes wrong on the way is no refusal."""
        ready = asyncio.get_running_loop().time() + self._longest_wait
        while wait := target.bucket.take():
            if asyncio.get_running_loop().time() + wait > ready:
                return Answer(LATER, "rate", "too many messages at once", wait)
            await asyncio.sleep(wait)
        answer = await self._try(target.channel, note, text)
        if answer.pause:
            target.bucket.pause(answer.pause)
        return answer

    async def _try(self, channel: Channel, note: Note, text: str) -> Answer:
        try:
            return await asyncio.wait_for(channel.send(note, text, self._post, self._clock()), self._timeout)
        except (TimeoutError, asyncio.TimeoutError):  # Two classes before Python 3.11.
            reason, said = "timeout", f"no answer within {self._timeout:g} s"
        except OSError as error:
            # Without the address, which holds a secret.
            reason, said = "unreachable", error.strerror or type(error).__name__
        except ImportError as error:
            reason, said = "library", f"{error.name} is missing: pip install 'trainvitals[apprise]'"
        except ValueError as error:
            reason, said = "secret", str(error)
        return Answer(LATER, reason, said)


def _worst(targets: Sequence[Target], answers: Sequence[Answer]) -> Outcome:
    """Return what to say: to come again as long as anybody may still take it."""
    said = "; ".join(
        f"{target.name}: {answer.reason}" for target, answer in zip(targets, answers, strict=True) if answer.kind
    )
    waits = [answer.pause for answer in answers if answer.kind == LATER]
    if waits:
        return Outcome(LATER, said, max(waits))
    if any(answer.kind == REFUSED for answer in answers):
        return Outcome(REFUSED, said)
    return Outcome("", "sent")
