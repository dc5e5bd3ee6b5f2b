"""The engine's side of a host's pulse (`host.pulse`): it notices that no thread of a host can run, and asks why."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NamedTuple

from pytest_osmosis.host.protocol import Key
from pytest_osmosis.host.pulse import EVERY_S, StackFrame, key_in, read_beat, read_stacks
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.user_frames import is_ours, is_python

LOOK_S = 0.25
SILENT_S = 2.0
"""A host without a beat for this long is asked for its stacks."""
PATIENCE_S = 3.0
"""A host that does not answer for this long, once it was asked, has been stopped: its stacks stay unknown."""
STACK_BYTES = 1 << 16
"""The most that is read of an answer."""
ASK_S = 1.0
"""A host that does not answer is asked again after this long."""


class Silence(NamedTuple):
    """The state of a host whose threads cannot run, for at least `held_s`.

    `key` is the attempt whose code its main thread runs, None if that is not known. `left_s` is the time that each
    attempt had left when it began. `stack` is that of user code, as text.
    """

    held_s: float
    key: Key | None
    left_s: Mapping[Key, float]
    stack: str

    def to_json(self) -> dict[str, Any]:
        """Return the silence as JSON, attempts as [name of the run, number]."""
        return {
            "held_s": self.held_s,
            "key": None if self.key is None else [str(self.key.run), self.key.attempt],
            "left_s": [[str(key.run), key.attempt, left_s] for key, left_s in self.left_s.items()],
            "stack": self.stack,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Silence:
        """Return the silence that `to_json` wrote. Raises `ValueError` if it names a run that cannot be."""
        key = None if fields["key"] is None else _key(*fields["key"])
        left_s = {_key(run, attempt): left_s for run, attempt, left_s in fields["left_s"]}
        return cls(fields["held_s"], key, left_s, fields["stack"])


def _key(run: str, attempt: int) -> Key:
    named = RunId.named(run)
    if named is None:
        raise ValueError(f"{run!r} is not the name of a run")
    return Key(named, attempt)


class HostPulse:
    """The pulse in the file of one host."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._number = 0
        self._left_s: Mapping[Key, float] = {}
        self._beat_at = self._looked_at = self._first_asked_at = self._asked_at = 0.0
        self._n_bytes = self._read_to = os.fstat(file.fileno()).st_size

    def silence(self, now: float, ask: Callable[[], None]) -> Silence | None:
        """Return the silence of a host, None if its threads run, or its stacks are not known yet.

        `ask` sends the signal for its stacks.
        """
        if now - self._looked_at < LOOK_S:
            return None
        self._looked_at = now
        beat = read_beat(os.pread(self._file.fileno(), self._n_bytes, 0))
        if beat is not None and beat.number != self._number:
            self._number, self._left_s = beat
            self._beat_at, self._first_asked_at, self._asked_at = now, 0.0, 0.0
        if not self._number or now - self._beat_at < SILENT_S:
            return None
        stacks = read_stacks(self._answer()) if self._first_asked_at else []
        if not stacks and now - self._asked_at >= ASK_S:
            if not self._first_asked_at:  # what is there by now answers an earlier silence
                self._first_asked_at, self._read_to = now, os.fstat(self._file.fileno()).st_size
            self._asked_at = now
            ask()
        if not stacks and now - self._first_asked_at < PATIENCE_S:
            return None
        key = key_in(stacks[0]) if stacks else None
        return Silence(now - self._beat_at - EVERY_S, key, self._left_s, _shown(stacks))

    def _answer(self) -> str:
        """Return what the host wrote since it was first asked."""
        size = os.fstat(self._file.fileno()).st_size - self._read_to
        return os.pread(self._file.fileno(), min(size, STACK_BYTES), self._read_to).decode("utf-8", errors="replace")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


def _shown(stacks: Sequence[Sequence[StackFrame]]) -> str:
    """Return the first stack with user code, from its first frame on, without frames of this package; or ""."""
    for stack in stacks:
        theirs = [frame for frame in stack if not is_ours(frame.file)]
        first = next((i for i, frame in enumerate(theirs) if _is_users(frame)), None)
        if first is not None:
            return "".join(traceback.StackSummary.from_list([(*frame, None) for frame in theirs[first:]]).format())
    return ""


def _is_users(frame: StackFrame) -> bool:
    return not (is_python(frame.file) or frame.file.startswith("<"))
