"""The cassette of an eval: from where recorded answers are given again, and where new ones go.

Hosts answer from it, and the engine keeps what they report in the exchange log of the run directory, of which the
cassette is made at the end.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from pytest_osmosis.cassettes.exchange import CASSETTE, MOST_LINE_BYTES, read_header
from pytest_osmosis.cassettes.reader import CassetteReader, check_cassette
from pytest_osmosis.cassettes.writer import write_cassette
from pytest_osmosis.config import EvalConfig
from pytest_osmosis.errors import CassetteError
from pytest_osmosis.files.reading import FileFault, open_file, something_at
from pytest_osmosis.formats import CassetteMode
from pytest_osmosis.formats.codec import ShapeFault
from pytest_osmosis.host.protocol import CassetteFields
from pytest_osmosis.record.manifest import StoredCassette
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.text.names import listed, shown
from pytest_osmosis.text.numbers import count, plural

RECORDED = (None, "model", "agent")
"""The boundaries of rollouts that are recorded: they would break again in a replay. Outages and timeouts would not."""
MOST_NAMED = 5


class EvalCassette(Struct, frozen=True):
    """The cassette of an eval, and its use.

    With `mode` "record" every request is sent and its answer recorded; with "new" recorded answers are given again, and
    new ones are added; with "replay" no model is asked. Of a cassette that is read, `runs` are those that it holds,
    with the number of answers of each rollout, and `digest` is that of its content.
    """

    mode: CassetteMode
    path: Path
    runs: Mapping[RunId, int] = {}
    digest: str | None = None

    @property
    def is_written(self) -> bool:
        """True if the eval makes a cassette."""
        return self.mode in ("record", "new")

    def log(self, directory: RunDirectory) -> Path | None:
        """Return the exchange log to which the engine appends, None if nothing is kept."""
        return directory.exchanges if self.is_written else None

    def setup(self, directory: RunDirectory) -> CassetteFields:
        """Return what hosts have to know. A run that is resumed finds the exchanges of earlier sessions in its log."""
        paths = [directory.exchanges] if self.is_written else []
        if self.mode != "record":
            paths = [self.path, *paths]
        needed = [str(self.path)] if self.digest is not None else []
        return {"mode": self.mode, "paths": list(map(str, paths)), "needed": needed}

    def to_json(self) -> StoredCassette:
        return {"mode": self.mode, "path": shown(self.path)}


def eval_cassette(config: EvalConfig, *, replay: bool, reads: bool) -> EvalCassette | None:
    """Return the cassette of an eval, None if it uses none. `replay` overrides the config.

    With `reads` it is checked. Raises `CassetteError` if it is broken, or missing and all answers should come from it.
    """
    name = f"{config.path.stem}{'' if config.entry is None else f'.{config.entry}'}.jsonl"
    record = config.cassette.record
    path = config.workspace / (config.cassette.path or f"cassettes/{name}")
    mode: CassetteMode = "replay" if replay else "record" if record == "all" else "new"
    if not replay and record == "off":
        return None
    if not reads or (mode != "replay" and not something_at(path)):
        return EvalCassette(mode, path)
    return EvalCassette(mode, path, check_cassette(path), _digest(path))


def is_cassette(path: Path) -> bool:
    """Return True for a file that begins as a cassette does."""
    try:
        with open_file(path) as file:
            return read_header(file.readline(MOST_LINE_BYTES)) == CASSETTE
    except (FileFault, ShapeFault):
        return False


def cassette_line(cassette: EvalCassette) -> str:
    match cassette.mode:
        case "replay":
            return f"replays {shown(cassette.path)}: no model is asked"
        case "record":
            return f"records into {shown(cassette.path)}: every answer replaces the recorded one"
        case "new":
            return f"records into {shown(cassette.path)}: only what is missing is asked for"


def missing_text(cassette: EvalCassette, runs: Sequence[RunId]) -> str | None:
    """Return which of the selected `runs` the cassette of a replay lacks, None if it has all of them."""
    missing = [run for run in runs if run not in cassette.runs]
    if cassette.mode != "replay" or not missing:
        return None
    are = "is" if len(missing) == 1 else "are"
    names = listed(map(str, missing), MOST_NAMED)
    return f"{count(len(missing))} of {plural(len(runs), 'run')} {are} not in {shown(cassette.path)}: {names}"


def check_replay(cassette: EvalCassette, runs: Sequence[RunId], most: int) -> None:
    """Raise `CassetteError` if a replay has no answers for too many of `runs`: for all, or more than `most` of them."""
    held = sum(run in cassette.runs for run in runs)
    text = missing_text(cassette, runs)
    if text is not None and (not held or len(runs) - held > most):
        fix = "record them (--osmosis-record=new), or select others (-k, --osmosis-limit)"
        raise CassetteError.at("--osmosis-replay", f"{text}; {fix}")


def unrecorded_text(cassette: EvalCassette | None, record: RunRecord, details: str) -> str | None:
    """Return what a run of a replay asked in place of what is recorded, with the difference; None if all was recorded.

    A run that the cassette does not hold at all is missing, and has not changed. `details` are those of the rollout.
    """
    if cassette is None or cassette.mode != "replay" or record.run not in cassette.runs:
        return None
    if record.boundary == "provider":
        return f"{record.error}\n{details}".rstrip()
    broken = (error for error in record.scorer_errors.values() if error.boundary == "provider")
    return next((f"{error.message}\n{error.details}".rstrip() for error in broken), None)


def unasked_text(cassette: EvalCassette, records: Iterable[RunRecord]) -> str | None:
    """Return how many answers of a replay nobody asked for, though their rollouts ended well; None if all were.

    An agent that asks less than it did may have made up the rest.
    """
    if cassette.mode != "replay":
        return None
    ended = [record for record in records if record.rolled and record.boundary is None]
    left = {each.run: cassette.runs.get(each.run, 0) - each.stored.requests for each in ended}
    asked_less = [run for run, n in left.items() if n > 0]
    if not asked_less:
        return None
    n_left, n_held = sum(left[run] for run in asked_less), sum(cassette.runs.get(each.run, 0) for each in ended)
    were = "was" if n_left == 1 else "were"
    names = listed(map(str, asked_less), MOST_NAMED)
    return (
        f"{count(n_left)} of {plural(n_held, 'recorded answer')} {were} not asked for: {names} asked less than recorded"
    )


class FinishedCassette(NamedTuple):
    """A cassette at the end of an eval run: the digest of its content, the rollouts that were not recorded by reason,
    and why it could not be written."""

    digest: str | None = None
    unrecorded: Mapping[str, int] = {}
    failure: str | None = None


def finish_cassette(cassette: EvalCassette, directory: RunDirectory, records: Iterable[RunRecord]) -> FinishedCassette:
    """Make the cassette of what an eval run exchanged; `records` are those of its selected runs.

    A rollout that broke at an outage is not recorded, and what the cassette held of it stays.
    """
    if not cassette.is_written:
        return FinishedCassette(cassette.digest)
    ended = [record for record in records if record.rolled or record.started]
    recorded = {record.run for record in ended if record.rolled and record.boundary in RECORDED}
    left_out = (record for record in ended if not record.rolled or record.boundary not in RECORDED)
    unrecorded = Counter("not ended" if record.boundary is None else record.boundary for record in left_out)
    if not recorded:
        return FinishedCassette(cassette.digest, unrecorded)
    try:
        with CassetteReader.open([directory.exchanges]) as log:  # an earlier session may not have recorded its runs
            recorded &= log.runs()
        write_cassette(cassette.path, directory.exchanges, recorded)
        return FinishedCassette(_digest(cassette.path), unrecorded)
    except CassetteError as error:
        kept = f"; its exchanges are in {shown(directory.exchanges)}" if something_at(directory.exchanges) else ""
        return FinishedCassette(None, unrecorded, f"the cassette was not written: {error}{kept}")


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file. Raises `CassetteError` if it cannot be read."""
    try:
        with open_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileFault, OSError) as error:
        raise CassetteError.at(shown(path), str(error)) from None
