"""Appends to exchange logs, and writes the cassette of an eval from the log of a run.

The exchanges of one asker are put into an order that does not depend on which of them ended first: those that were in
flight together are sorted by their messages. Turns are numbered anew in that order, and each request is stored as the
continuation of an earlier one of the same asker.
"""

from __future__ import annotations

import filecmp
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from pytest_osmosis.cassettes.exchange import (
    CASSETTE,
    LOG,
    ROLLOUT,
    Asker,
    Body,
    Continuations,
    Fingerprint,
    Head,
    encoded,
    header,
    whole,
)
from pytest_osmosis.cassettes.reader import CassetteFile, Stored, answer_of
from pytest_osmosis.errors import CassetteError
from pytest_osmosis.files.reading import FileFault
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.names import shown


def write_cassette(path: Path, log: Path, runs: Iterable[RunId]) -> Path:
    """Write the cassette at `path` from the exchange log of an eval run that rolled out `runs`. Return its real path.

    The cassette keeps what it holds of other runs, unless a judge was asked about them anew. The file is replaced as a
    whole, unless it would hold the same bytes. Raises `CassetteError`.
    """
    path = Path(os.path.realpath(path))
    rolled_out = set(runs)
    with _opened(log) as recorded, _opened(path) as before:
        calls = {} if recorded is None else _last_calls(recorded, rolled_out)
        kept = {} if before is None else _kept(before, rolled_out, calls)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
        try:
            with _writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(temporary, calls, kept)
                if before is None or not filecmp.cmp(path, temporary, shallow=False):
                    temporary.replace(path)
        finally:
            with suppress(OSError):  # there may be no folder
                temporary.unlink(missing_ok=True)
    return path


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """A context that raises `CassetteError` if the disk takes no more."""
    try:
        yield
    except OSError as error:
        raise CassetteError.at(shown(path), f"cannot be written: {error.strerror}") from error


def _opened(path: Path) -> closing[CassetteFile] | nullcontext[None]:
    """Return a context with the file at `path`, or with None if there is none."""
    try:
        return closing(CassetteFile.open(path))
    except FileFault as fault:
        if fault.missing:
            return nullcontext()
        raise CassetteError.at(shown(path), str(fault)) from None


def _last_calls(log: CassetteFile, rolled_out: Collection[RunId]) -> dict[Asker, list[Stored]]:
    """Return the exchanges of the last call of each asker, of each run's last attempt.

    Rollouts that did not end are left out.
    """
    attempts: dict[RunId, int] = {}
    calls: dict[Asker, tuple[int, str, list[Stored]]] = {}
    for offset, head in log.heads():
        asker = head.asker
        attempts[asker.run] = max(head.attempt, attempts.get(asker.run, 0))
        call = calls.get(asker)
        if call is None or call[:2] != (head.attempt, head.call):
            if call is not None and call[0] > head.attempt:
                continue  # a late line of an attempt that was given up
            call = calls[asker] = (head.attempt, head.call, [])
        call[2].append(Stored(head, log, offset))
    return {
        asker: exchanges
        for asker, (attempt, _, exchanges) in calls.items()
        if attempt == attempts[asker.run] and (asker.run in rolled_out or asker.name != ROLLOUT)
    }


def _kept(file: CassetteFile, rolled_out: Collection[RunId], anew: Collection[Asker]) -> dict[Asker, list[Stored]]:
    kept: dict[Asker, list[Stored]] = {}
    for offset, head in file.heads():
        if head.asker.run not in rolled_out and head.asker not in anew:
            kept.setdefault(head.asker, []).append(Stored(head, file, offset))
    return kept


def _write(path: Path, calls: Mapping[Asker, Sequence[Stored]], kept: Mapping[Asker, Sequence[Stored]]) -> None:
    with path.open("wb") as file:
        file.write(header(CASSETTE))
        for asker in sorted({*calls, *kept}, key=lambda asker: asker.order):
            if asker in kept:
                file.writelines(each.file.line_at(each.offset) for each in kept[asker])
            else:
                file.writelines(_lines(asker, calls[asker]))
        file.flush()
        os.fsync(file.fileno())


class _Recorded(NamedTuple):
    """An exchange of a call, with its whole request."""

    head: Head
    request: Body
    answer: Mapping[str, Any]


def _lines(asker: Asker, call: Sequence[Stored]) -> Iterator[bytes]:
    continuations = Continuations()
    for turn, each in enumerate(_in_order(_recorded(call)), 1):
        answer = {name: each.answer[name] for name in ("reply", "error") if name in each.answer}
        fingerprint = Fingerprint.of(each.request)
        yield encoded(asker, turn, fingerprint.digest, continuations.shortened(each.request, fingerprint), answer)
        continuations.add(turn, fingerprint, answer["reply"]["message"] if "reply" in answer else None)


def _recorded(call: Sequence[Stored]) -> Iterator[_Recorded]:
    """Yield the exchanges of a call by turn. Those that continue one which was lost with its host are left out."""
    requests: dict[int, tuple[Body, Mapping[str, Any] | None]] = {}
    for stored in sorted(call, key=lambda each: each.head.turn):
        answer = answer_of(stored)
        request = answer["request"]
        if (continues := request.get("continues")) is not None:
            earlier = requests.get(continues["turn"])
            if earlier is None:
                continue
            request = whole(request, *earlier)
        requests[stored.head.turn] = request, answer.get("reply")
        yield _Recorded(stored.head, request, answer)


def _in_order(exchanges: Iterable[_Recorded]) -> Iterator[_Recorded]:
    """Yield exchanges, which come by turn, with those that were in flight together sorted by their messages.

    Equal requests stay in the order in which they were sent, so that each gets its own answer again.
    """
    together: list[_Recorded] = []
    for each in exchanges:
        if each.head.after == each.head.turn - 1:  # all earlier ones had ended
            yield from _sorted(together)
            together = []
        together.append(each)
    yield from _sorted(together)


def _sorted(together: list[_Recorded]) -> list[_Recorded]:
    return sorted(together, key=lambda each: (len(each.request["messages"]), each.head.digest, each.head.turn))


SYNC_INTERVAL_S = 1.0
READ_BYTES = 1 << 16


class ExchangeLog:
    """A log at `path`, which is made, for its owner alone, with the first lines. Only one process appends to it.

    Without a path lines are dropped. `n_sent` counts the exchanges whose answers did not come from a store.
    """

    def __init__(self, path: Path | None) -> None:
        self.n_sent = 0
        self._path = path
        self._lines: list[bytes] = []
        self._file: FileIO | None = None
        self._synced = 0.0

    def add(self, line: bytes, *, sent: bool) -> None:
        """Take the line of an exchange, which `write` writes."""
        self.n_sent += sent
        if self._path is not None:
            self._lines.append(line)

    def write(self) -> None:
        """Append the lines that were added. Raises `CassetteError`, once, if the disk takes no more."""
        if not self._lines or self._path is None:
            return
        lines, self._lines = b"".join(self._lines), []
        try:
            with _writing(self._path):
                file = self._file = self._file or _opened_log(self._path)
                view = memoryview(lines if file.tell() else header(LOG) + lines)
                while view:
                    view = view[file.write(view) :]
                if time.monotonic() - self._synced > SYNC_INTERVAL_S:
                    os.fsync(file.fileno())
                    self._synced = time.monotonic()
        except CassetteError:
            with suppress(CassetteError):
                self.close()
            self._path = None
            raise

    def close(self) -> None:
        """Force the lines to the disk. Raises `CassetteError` if it takes no more."""
        file, self._file = self._file, None
        if file is not None and self._path is not None:
            with _writing(self._path), file:
                os.fsync(file.fileno())


def _opened_log(path: Path) -> FileIO:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
    file.truncate(_end_of_lines(file))  # a crash may have torn the last line
    file.seek(0, os.SEEK_END)
    return file


def _end_of_lines(file: FileIO) -> int:
    """Return the position after the last whole line."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        begin = max(0, end - READ_BYTES)
        file.seek(begin)
        if (at := file.read(end - begin).rfind(b"\n")) >= 0:
            return begin + at + 1
        end = begin
    return 0
