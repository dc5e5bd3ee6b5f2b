"""Reads and checks cassettes and exchange logs. In memory is where each exchange begins; bodies are read on demand."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BufferedReader
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import IO, Any, NamedTuple

from pytest_osmosis.cassettes.exchange import (
    CASSETTE,
    LOG,
    MOST_LINE_BYTES,
    ROLLOUT,
    Asker,
    Body,
    Fingerprint,
    Head,
    check_exchange,
    head_in,
    head_of,
    header,
    read_header,
    read_line,
    whole,
)
from pytest_osmosis.errors import CassetteError, Problem
from pytest_osmosis.files.reading import FileFault, open_file
from pytest_osmosis.formats.codec import ShapeFault
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.redaction import key_in, may_hold_key

READ_BYTES = 1 << 16
HASH_BITS = (1 << 64) - 1


class Stored(NamedTuple):
    """An exchange in a file: its head, and where its line begins."""

    head: Head
    file: CassetteFile
    offset: int


class CassetteFile:
    """A cassette or a log that is open to be read, from any thread. `is_log` tells logs."""

    def __init__(self, path: Path, file: BufferedReader, begin: int, *, is_log: bool) -> None:
        self.path = path
        self.is_log = is_log
        self._file = file
        self._begin = begin

    @classmethod
    def open(cls, path: Path) -> CassetteFile:
        """Open a file. Raises `FileFault`, and `CassetteError` if its header is another's."""
        file = open_file(path)
        line = file.readline(MOST_LINE_BYTES)
        try:
            is_log = read_header(line) == LOG if line.endswith(b"\n") else True  # its first line is being written
        except ShapeFault as fault:
            file.close()
            raise CassetteError.at(f"{shown(path)}:1", str(fault)) from None
        return cls(path, file, len(line), is_log=is_log)

    def heads(self) -> Iterator[tuple[int, Head]]:
        """Yield the head of each whole line after the header, with its offset. Raises `CassetteError`."""
        self._file.seek(self._begin)
        offset, number = self._begin, 2
        while (line := self._file.readline(MOST_LINE_BYTES)).endswith(b"\n"):
            try:
                yield offset, head_of(line)
            except ShapeFault as fault:
                raise CassetteError.at(f"{shown(self.path)}:{number}", str(fault)) from None
            offset, number = offset + len(line), number + 1

    def line_at(self, offset: int) -> bytes:
        """Return the line that begins at an offset."""
        parts: list[bytes] = []
        while part := os.pread(self._file.fileno(), READ_BYTES, offset):
            end = part.find(b"\n")
            if end >= 0:
                return b"".join((*parts, part[: end + 1]))
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def exchange_at(self, offset: int) -> dict[str, Any]:
        """Return the object on the line at an offset. Raises `CassetteError` if the file was changed meanwhile."""
        try:
            return read_line(self.line_at(offset))
        except (ShapeFault, OSError) as error:
            raise CassetteError.at(f"{shown(self.path)}, byte {offset}", str(error)) from None

    def close(self) -> None:
        self._file.close()


class CassetteReader:
    """The exchanges in several files, of which those in later ones count before equal ones."""

    def __init__(self, files: Sequence[CassetteFile], found: Sequence[tuple[int, int, int]]) -> None:
        self.files = files
        self._hashes = array("Q", (each[0] for each in found))
        self._numbers = array("B", (each[1] for each in found))
        self._offsets = array("Q", (each[2] for each in found))

    @classmethod
    def open(cls, paths: Iterable[Path]) -> CassetteReader:
        """Open files, of which some may be missing, and find their exchanges. Raises `CassetteError`."""
        files: list[CassetteFile] = []
        try:
            for path in paths:
                try:
                    files.append(CassetteFile.open(path))
                except FileFault as fault:
                    if not fault.missing:
                        raise CassetteError.at(shown(path), str(fault)) from None
            found = [
                (hash(head.asker) & HASH_BITS, number, offset)
                for number, file in enumerate(files)
                for offset, head in file.heads()
            ]
        except BaseException:
            for file in files:
                file.close()
            raise
        return cls(files, sorted(found))

    def __enter__(self) -> CassetteReader:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def at(self, asker: Asker) -> AskerAnswers:
        """Return the answers for one asker, none of which is used yet."""
        return AskerAnswers(list(self._stored(asker)))

    def runs(self) -> set[RunId]:
        """Return the runs of which there are exchanges. This reads all files again."""
        return {head.asker.run for file in self.files for _, head in file.heads()}

    def close(self) -> None:
        for file in self.files:
            file.close()

    def _stored(self, asker: Asker) -> Iterator[Stored]:
        wanted = hash(asker) & HASH_BITS
        for index in range(bisect_left(self._hashes, wanted), bisect_right(self._hashes, wanted)):
            file, offset = self.files[self._numbers[index]], self._offsets[index]
            with suppress(ShapeFault, OSError):
                head = head_of(file.line_at(offset))
                if head.asker == asker:
                    yield Stored(head, file, offset)


class AskerAnswers:
    """The answers of one asker in one run. Each is used once. May be used from any thread."""

    def __init__(self, stored: Sequence[Stored]) -> None:
        self._every = {(each.file, each.head.call, each.head.turn): each for each in stored}
        self._unused = _latest(stored)
        self.n = sum(map(len, self._unused.values()))
        self._using = Lock()  # protects _unused: code that holds the host's loop is served in another thread

    @property
    def left(self) -> list[Stored]:
        """The exchanges that were not used, by turn."""
        with self._using:
            return sorted((each for equal in self._unused.values() for each in equal), key=lambda each: each.head.turn)

    def take(self, turn: int, digest: str) -> Stored | None:
        """Return the exchange of a request: that of the turn, or else the first with its digest; None without one."""
        with self._using:
            equal = self._unused.get(digest, [])
            index = next((index for index, each in enumerate(equal) if each.head.turn == turn), 0)
            return equal.pop(index) if equal else None

    def request(self, stored: Stored) -> Body:
        """Return the whole request of an exchange. Raises `CassetteError`."""
        chain = [stored.file.exchange_at(stored.offset)]
        while (continues := chain[-1]["request"].get("continues")) is not None:
            earlier = self._every.get((stored.file, stored.head.call, continues["turn"]))
            if earlier is None or earlier.head.turn >= chain[-1]["turn"]:
                raise CassetteError.at(shown(stored.file.path), f"{stored.head.asker} continues no turn of it")
            chain.append(stored.file.exchange_at(earlier.offset))
        value = chain.pop()
        request: Body = value["request"]
        while chain:
            request = whole(chain[-1]["request"], request, value.get("reply"))
            value = chain.pop()
        return request


def answer_of(stored: Stored) -> Mapping[str, Any]:
    """Return the object of an exchange, with its `reply` or its `error`. Raises `CassetteError`."""
    value = stored.file.exchange_at(stored.offset)
    try:
        check_exchange(value)
    except ShapeFault as fault:
        raise CassetteError.at(shown(stored.file.path), f"{stored.head.asker}: {fault}") from None
    return value


def _latest(stored: Iterable[Stored]) -> dict[str, list[Stored]]:
    """Return the exchanges by digest, equal requests in their order. Of an exchange that is there twice, the last."""
    latest: dict[tuple[str, int], Stored] = {}
    counts: Counter[str] = Counter()
    for each in stored:
        counts[each.head.digest] += not each.file.is_log
        latest[each.head.digest, each.head.nth if each.file.is_log else counts[each.head.digest]] = each
    by_digest: dict[str, list[Stored]] = {}
    for digest, nth in sorted(latest):
        by_digest.setdefault(digest, []).append(latest[digest, nth])
    return by_digest


# -- the check before a replay ------------------------------------------------------------------------------


MOST_PROBLEMS = 20
RECORD = "--osmosis-record"
SHOWN_KEY_CHARS = 6


def check_cassette(path: Path) -> dict[RunId, int]:
    """Return the runs of a cassette, each with the number of exchanges of its rollout.

    Raises `CassetteError` with all problems, each with its line. A missing file is one. So are a line that is broken or
    torn, another schema version, an exchange that is there twice, one that continues a turn which is not there, one
    whose digest is not that of its request, and text that looks like a key.
    """
    runs: dict[RunId, int] = {}
    try:
        with open_file(path) as file:
            found = _problems(file, runs)
            problems = [Problem(f"{shown(path)}:{line}", text) for line, text in islice(found, MOST_PROBLEMS)]
            n_more = sum(1 for _ in found)
    except FileFault as fault:
        advice = f"; record it: {RECORD}" if fault.missing else ""
        raise CassetteError.at(f"cassette {shown(path)}", f"{fault}{advice}") from None
    if n_more:
        problems.append(Problem(shown(path), plural(n_more, "further problem")))
    if problems:
        raise CassetteError(problems)
    return runs


def _problems(file: IO[bytes], runs: dict[RunId, int]) -> Iterator[tuple[int, str]]:
    """Yield the lines that are wrong, and why. Nothing is said of a file whose header is wrong."""
    line = file.readline(MOST_LINE_BYTES)
    try:
        if read_header(line) != CASSETTE:
            raise ShapeFault(
                f"is an exchange log, not a cassette, which begins with {header(CASSETTE).decode().strip()}"
            )
    except ShapeFault as fault:
        yield 1, str(fault)
        return
    checker = _Checker()
    number = 1
    while line := file.readline(MOST_LINE_BYTES):
        number += 1
        if not line.endswith(b"\n"):
            yield number, f"is torn: it has no end. Record the cassette again ({RECORD}), or get it from git again"
            return
        try:
            asker = checker.check(line, number)
        except ShapeFault as fault:
            yield number, f"{fault}{'; resolve the merge conflict' if line[:7] in CONFLICTS else ''}"
        else:
            runs[asker.run] = runs.get(asker.run, 0) + (asker.name == ROLLOUT)


CONFLICTS = (b"<<<<<<<", b"=======", b">>>>>>>")


EDITED = (
    "the digest is that of another request. Somebody edited it, or an answer before it: "
    f"record it again ({RECORD}), or get it from git again"
)


class _Checker:
    """Checks one line after the other. The requests are those of one asker, as the file is sorted."""

    def __init__(self) -> None:
        self._lines: dict[Asker, dict[int, int]] = {}
        self._asker: Asker | None = None
        self._requests: dict[int, tuple[Body, Mapping[str, Any] | None]] = {}

    def check(self, line: bytes, number: int) -> Asker:
        """Return the asker of the exchange on a line. Raises `ShapeFault`."""
        value = read_line(line)
        if may_hold_key(line.decode("utf-8")) and (key := key_in(value)) is not None:
            raise ShapeFault(
                f'holds what looks like a key ("{key[:SHOWN_KEY_CHARS]}...", {len(key)} characters); '
                "revoke it if it is one, and remove it from the file and its history"
            )
        head = head_in(value)
        check_exchange(value)
        lines = self._lines.setdefault(head.asker, {})
        who = f"{head.asker.run}, {head.asker.name}, turn {head.turn}"
        if head.turn in lines:
            raise ShapeFault(f"{who} is there twice, first on line {lines[head.turn]}")
        lines[head.turn] = number
        continues = value["request"].get("continues")
        if continues is not None and (continues["turn"] not in lines or continues["turn"] >= head.turn):
            raise ShapeFault(f"{who} continues turn {continues['turn']}, which is not on an earlier line")
        if head.asker != self._asker:
            self._asker, self._requests = head.asker, {}
        request = value["request"]
        if continues is not None:
            earlier = self._requests.get(continues["turn"])  # what continues a request that was edited is not checked
            request = None if earlier is None else whole(request, *earlier)
        if request is not None:
            if Fingerprint.of(request).digest != head.digest:
                raise ShapeFault(f"{who}: {EDITED}")
            self._requests[head.turn] = request, value.get("reply")
        return head.asker
