"""Checks a cassette before an eval is replayed: every line, and that it holds no secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pytest_osmosis.cassettes.exchange import API, ROLLOUT, Asker, Digests, Run
from pytest_osmosis.cassettes.reader import (
    CASSETTE,
    MOST_LINE_BYTES,
    Head,
    check_exchange,
    head_in,
    header,
    read_header,
    read_line,
)
from pytest_osmosis.errors import CassetteError, Problem
from pytest_osmosis.files.reading import FileFault, open_file
from pytest_osmosis.formats.codec import ShapeFault
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.redaction import key_in, may_hold_key

MOST_PROBLEMS = 20
RECORD = "--osmosis-record"
SHOWN_KEY_CHARS = 6


@dataclass(slots=True)
class CassetteContent:
    """The number of a cassette's exchanges, and its runs, each with the number of those of its rollout.

    `apis` are those that rollouts asked: "responses", or None for any other.
    """

    n_exchanges: int = 0
    runs: dict[Run, int] = field(default_factory=dict)
    apis: set[str | None] = field(default_factory=set)


def check_cassette(path: Path) -> CassetteContent:
    """Return the content of a cassette. Raises `CassetteError` with all problems, each with its line.

    A missing file is one. So are a line that is broken or torn, another schema version, an exchange that is there
    twice, one that continues a turn which is not there, one whose digest is not that of its request, and text that
    looks like a key.
    """
    content = CassetteContent()
    problems: list[Problem] = []
    n_more = 0
    try:
        with open_file(path) as file:
            for line, text in _problems(file, content):
                if len(problems) < MOST_PROBLEMS:
                    problems.append(Problem(f"{shown(path)}:{line}", text))
                else:
                    n_more += 1
    except FileFault as fault:
        advice = f"; record it: {RECORD}" if fault.missing else ""
        raise CassetteError([Problem(f"cassette {shown(path)}", f"{fault}{advice}")]) from None
    if n_more:
        problems.append(Problem(shown(path), f"{plural(n_more, 'further problem')}"))
    if problems:
        raise CassetteError(problems)
    return content


def _problems(file: IO[bytes], content: CassetteContent) -> Iterator[tuple[int, str]]:
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
    askers: dict[Asker, dict[int, int]] = {}
    asker: Asker | None = None
    digests = _CheckedDigests()
    number = 1
    while line := file.readline(MOST_LINE_BYTES):
        number += 1
        if not line.endswith(b"\n"):
            yield number, f"is torn: it has no end. Record the cassette again ({RECORD}), or get it from git again"
            return
        try:
            asker, api = _check_line(line, number, askers, digests)
        except ShapeFault as fault:
            yield number, f"{fault}{'; resolve the merge conflict' if line[:7] in CONFLICTS else ''}"
        else:
            content.runs[asker.run] = content.runs.get(asker.run, 0) + (asker.name == ROLLOUT)
            content.n_exchanges += 1
            if asker.name == ROLLOUT:
                content.apis.add(api)


CONFLICTS = (b"<<<<<<<", b"=======", b">>>>>>>")


EDITED = (
    "the digest is that of another request. Somebody edited it, or an answer before it: "
    f"record it again ({RECORD}), or get it from git again"
)


class _CheckedDigests:
    """Checks the digests of one asker after the other, as they are in a file that is sorted."""

    def __init__(self) -> None:
        self._asker: Asker | None = None
        self._digests = Digests()

    def are_right(self, head: Head, value: Mapping[str, Any]) -> bool:
        """Return False for a digest that is not the request's. What continues that request is not checked then."""
        if head.asker != self._asker:
            self._asker, self._digests = head.asker, Digests()
        digest = self._digests.of(head.turn, value["request"], value.get("reply"))
        if digest in (None, head.digest):
            return True
        self._digests = Digests()
        return False


def _check_line(
    line: bytes, number: int, askers: dict[Asker, dict[int, int]], digests: _CheckedDigests
) -> tuple[Asker, str | None]:
    """Return the asker of the exchange on a line, and the API that it asked. Raises `ShapeFault`."""
    value = read_line(line)
    if may_hold_key(line.decode("utf-8")) and (key := key_in(value)) is not None:
        raise ShapeFault(
            f'holds what looks like a key ("{key[:SHOWN_KEY_CHARS]}...", {len(key)} characters); '
            "revoke it if it is one, and remove it from the file and its history"
        )
    head = head_in(value)
    check_exchange(value)
    turns = askers.setdefault(head.asker, {})
    who = f"{head.asker.run}, {head.asker.name}, turn {head.turn}"
    if head.turn in turns:
        raise ShapeFault(f"{who} is there twice, first on line {turns[head.turn]}")
    turns[head.turn] = number
    continues = value["request"].get("continues")
    if continues is not None and (continues["turn"] not in turns or continues["turn"] >= head.turn):
        raise ShapeFault(f"{who} continues turn {continues['turn']}, which is not on an earlier line")
    if not digests.are_right(head, value):
        raise ShapeFault(f"{who}: {EDITED}")
    return head.asker, value["request"].get(API)
