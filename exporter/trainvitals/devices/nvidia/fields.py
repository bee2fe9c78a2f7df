"""NVML's numbered fields of one GPU: many in one call, and what to do when one of them spoils it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from trainvitals.devices.nvidia.errors import (
    FUNCTION_NOT_FOUND,
    LASTING,
    NOT_SUPPORTED,
    NOT_UNDERSTOOD,
    Effect,
    meaning,
)

#: Number of the field, and scope (a link, a kind of power; else 0).
Key = tuple[int, int]
#: A float is the value, an int the error code of this field.
Answers = dict[Key, float | int]

#: Member of the union in a field value, by its type code (nvml.h, nvmlValueType_t).
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
#: After a batch of which not even a single field could be read, so many failures are taken as they are.
_PATIENCE = 15


class Fields:
    """Asks for fields in as few calls as the driver allows.

    A call that fails as a whole, or answers no field at all, is split until it is known which field does that.  When
    it happens a second time running, that field is left out for as long as the handle lives; fields that work only
    apart are asked for apart.  DCGM#265 is such a case: error counts of memory and of links, asked together.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._ready: Answers = {}
        self._absent: dict[Key, int] = {}
        self._left_out: set[Key] = set()
        self._group: dict[Key, int] = {}
        self._suspects: set[Sequence[Key]] = set()
        self._patience = 0

    def prepare(self, wanted: Iterable[Key]) -> None:
        """Ask for ``wanted`` now; :meth:`get` answers from it until the next call of this.

        Raises NVMLError when the device or the driver is gone.
        """
        self._ready = {}
        self._ready = self.ask(wanted)

    def get(self, key: Key) -> float | int:
        """Return one field.  Raises as :meth:`ask`."""
        answer = self._ready.get(key)
        return self.ask([key])[key] if answer is None else answer

    def ask(self, wanted: Iterable[Key]) -> Answers:
        """Return fields in the order of ``wanted``.  Raises NVMLError when the device or the driver is gone."""
        keys = list(dict.fromkeys(wanted))
        answers: Answers = {}
        groups: dict[int, list[Key]] = {}
        for key in keys:
            if key in self._left_out:
                answers[key] = NOT_SUPPORTED
            elif key in self._absent:
                answers[key] = self._absent[key]
            else:
                groups.setdefault(self._group.get(key, 0), []).append(key)
        for group in groups.values():
            answers |= self._batch(tuple(group))
        self._absent |= {
            key: answer for key, answer in answers.items() if isinstance(answer, int) and answer in LASTING
        }
        return {key: answers[key] for key in keys}

    def forget_absent(self) -> None:
        """Ask again for what this device did not have."""
        self._absent.clear()

    def _batch(self, keys: Sequence[Key]) -> Answers:
        answers, good = self._call(keys)
        if good:
            self._suspects.discard(keys)
            return answers
        if len(keys) == 1 or FUNCTION_NOT_FOUND in answers.values():
            return answers
        if self._patience:
            self._patience -= 1
            return answers
        half = len(keys) // 2
        pieces = [*self._split(keys[:half]), *self._split(keys[half:])]
        if not any(good for _, good in pieces):
            # It is not one of them that spoils it.
            self._patience = _PATIENCE
        elif keys in self._suspects:
            self._suspects.discard(keys)
            self._part(pieces)
        else:
            self._suspects.add(keys)
        return {key: answer for piece, _ in pieces for key, answer in piece.items()}

    def _split(self, keys: Sequence[Key]) -> list[tuple[Answers, bool]]:
        answers, good = self._call(keys)
        if good or len(keys) == 1:
            return [(answers, good)]
        half = len(keys) // 2
        return [*self._split(keys[:half]), *self._split(keys[half:])]

    def _part(self, pieces: list[tuple[Answers, bool]]) -> None:
        """Leave out those that fail alone; where there is none, keep the pieces apart."""
        bad = [key for piece, good in pieces if not good for key in piece]
        self._left_out.update(bad)
        if not bad:
            for piece, _ in pieces:
                self._group |= dict.fromkeys(piece, max(self._group.values(), default=0) + 1)

    def _call(self, keys: Sequence[Key]) -> tuple[Answers, bool]:
        """Return the answers, and whether at least one of them is a value."""
        try:
            raw = self._nvml.nvmlDeviceGetFieldValues(self._handle, list(keys))
        except self._nvml.NVMLError as error:
            if meaning(error.value)[1] not in {Effect.ABSENT, Effect.FIELD}:
                raise
            return dict.fromkeys(keys, error.value), False
        answers = {key: self._value(value) for key, value in zip(keys, raw, strict=True)}
        for answer in answers.values():
            if isinstance(answer, int) and meaning(answer)[1] not in {Effect.ABSENT, Effect.FIELD}:
                raise self._nvml.NVMLError(answer)
        return answers, any(isinstance(answer, float) for answer in answers.values())

    def _value(self, answer: Any) -> float | int:
        code = int(answer.nvmlReturn)
        if code == self._nvml.NVML_ERROR_INVALID_ARGUMENT:
            # A driver that is older than the field calls it so.
            return NOT_SUPPORTED
        if code:
            return code
        if not 0 <= answer.valueType < len(_MEMBERS):
            return NOT_UNDERSTOOD
        return float(getattr(answer.value, _MEMBERS[answer.valueType]))
