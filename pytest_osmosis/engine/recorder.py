"""The books of an eval run: journal, ledger and counts. What is done is told, once, after the journal holds it."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, replace
from hashlib import blake2b
from typing import Any, TypeVar

from pytest_osmosis.engine.job import Job, Progress, Transcript
from pytest_osmosis.host.protocol import Key
from pytest_osmosis.host.secret_values import secrets_of
from pytest_osmosis.record.events import (
    JournalEvent,
    LoadedEvent,
    RemovalEvent,
    RescoredEvent,
    RowsEvent,
    ScoreEvent,
    SkipEvent,
)
from pytest_osmosis.record.journal import Journal, encode
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import Ledger, RunRecord
from pytest_osmosis.record.stored_rollouts import Made
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.verdicts.pass_rule import Outcome

E = TypeVar("E", bound=JournalEvent)

NO_RECORD = RunRecord(RunId(-1, -1))
"""Stands for the record of an event that belongs to no run."""


class Recorder:
    """Events in, records and outcomes out. `judging` knows its scorers once `loaded` has told them.

    `codes` are the digests of what scores by name, `kept` how many scores of each were kept from before.
    """

    def __init__(self, job: Job, journal: Journal, every: Callable[[RunId, Outcome], None]) -> None:
        self.judging = job.judging
        self.ledger = Ledger()
        self.blocking: frozenset[str] = frozenset()
        self.codes: Mapping[str, str] = {}
        self.kept = Counter[str]()
        self.is_rescored = False
        self._job = job
        self._counts: dict[str, Any] = asdict(Progress())
        self._describe = job.describe
        self._journal = journal
        self._every = every
        self._redaction = Redaction(secrets_of(job.setup, job.environ))
        self._lines: list[bytes] = []
        self._told: deque[tuple[RunId, Outcome]] = deque()
        self._works = True
        self._n_told = Counter[RunId]()

    def loaded(self, scorers: Sequence[str], blocking: Sequence[str], digests: Mapping[str, str]) -> None:
        """Enter that the user's code is loaded: its reward functions, those that block, the digests of their code."""
        self.judging = replace(self.judging, scorers=tuple(scorers))
        self.blocking = frozenset(blocking)
        self.codes = {name: _together(digest, self._job.circumstances) for name, digest in digests.items()}
        loaded: LoadedEvent = {"ev": "loaded", "scorers": list(scorers), "digests": self.codes}
        rows: RowsEvent = {"ev": "rows", "rows": {str(i): list(content) for i, content in self._job.contents.items()}}
        self._write(loaded)
        self._write(rows)

    def recall(self, record: RunRecord, kept: Mapping[str, Made]) -> RunRecord:
        """A stored rollout, and the scores of it that are kept: they count in this decision as if made in it."""
        self.ledger.records[record.run] = record
        for name, made in kept.items():
            scores = {} if made.value is None else {name: made.value}
            key = Key(record.run, record.attempt).to_json()
            event: ScoreEvent = {"ev": "score", **key, "ms": made.ms, "scores": scores, "errors": {}, "output": {}}
            removal: RemovalEvent = {**event, "removed": True, "name": name}
            record = self._write(removal if made.value is None else event)
            self.kept[name] += 1
        return record

    def rescored(self) -> None:
        """Enter that all stored rollouts are rescored, which completes what `loaded` began."""
        self.is_rescored = True
        event: RescoredEvent = {"ev": "rescored"}
        self._write(event)

    def enter(self, event: JournalEvent, raw: bytes) -> RunRecord:
        """Put an event into the journal (with this turn's others) and into the ledger."""
        self._lines.append(raw)
        return self.ledger.apply(event) or NO_RECORD

    def _write(self, event: JournalEvent) -> RunRecord:
        """Enter an event of the engine's own."""
        return self.enter(event, encode(event))

    def redacted(self, event: E) -> tuple[E, bytes]:
        """Return an event that no host can write, without secrets, and its line."""
        line = self._redaction.event(event)
        return json.loads(line), line.encode("ascii") + b"\n"

    def unscored_blocking(self, run: RunId) -> list[str]:
        """Return the functions that block and have given the run neither a score nor an error yet."""
        return [name for name in self._unscored(run) if name in self.blocking]

    def unscored_async(self, run: RunId) -> list[str]:
        """Return the other functions that have given the run neither a score nor an error yet."""
        return [name for name in self._unscored(run) if name not in self.blocking]

    def _unscored(self, run: RunId) -> list[str]:
        record = self.ledger.records[run]
        if record.removed:
            return []
        return [name for name in self.judging.scorers if name not in record.scores and name not in record.scorer_errors]

    @property
    def progress(self) -> Progress:
        """The counts so far, for any thread."""
        return Progress(**self._counts)

    @property
    def unmeasured(self) -> int:
        """How many runs were done and not measured."""
        return int(self._counts["unmeasured"])

    @property
    def n_done(self) -> int:
        """How many runs were done."""
        return int(self._counts["done"])

    def count(self, **added: float) -> None:
        """Add to counts of `progress`."""
        for name, n in added.items():
            self._counts[name] += n

    def done(self, record: RunRecord, transcript: Transcript) -> None:
        """A run ran to its end."""
        self._told.append((record.run, self._describe(record, self.judging, transcript)))
        if record.run.is_baseline:
            self.count(done=1, baseline=1)
            return
        unmeasured = record.status != "skipped" and not self.judging.measured(record)
        self.count(
            done=1,
            passed=self.judging.passed(record),
            unmeasured=unmeasured,
            removed=record.status == "skipped",
            score=self._deciding_score(record),
        )

    def _deciding_score(self, record: RunRecord) -> float:
        """What the one function that decides gave, 0.0 where there are several or it gave nothing."""
        deciding = self.judging.deciding
        return record.scores.get(deciding[0], 0.0) if len(deciding) == 1 and record.status == "finished" else 0.0

    def skip(self, run: RunId, reason: str) -> None:
        """A run will not be done."""
        event: SkipEvent = {"ev": "skip", **run.to_json(), "reason": reason}
        record = self._write(event)
        self._told.append((run, self._describe(record, self.judging, Transcript())))

    def give_up(self, runs: Iterable[RunId], reason: str) -> None:
        """Of `runs` those that nobody was told of are skipped, without a word on what is known of them."""
        waiting = {run for run, _ in self._told}
        for run in sorted(set(runs) - self._n_told.keys() - waiting):
            event: SkipEvent = {"ev": "skip", **run.to_json(), "reason": reason}
            self._write(event)
            self._told.append((run, Outcome("skipped", reason)))

    def settle(self, **counts: int | str | None) -> None:
        """Everything of this turn in one write to the journal, then to those who asked for it; `counts` hold now.

        `JournalError`, once, where the journal takes no more; what is told is told all the same.
        """
        self._counts.update(counts)
        lines, self._lines = b"".join(self._lines), []
        try:
            if lines and self._works:
                self._works = False  # should it fail, more would follow half a line
                self._journal.append(lines)
                self._works = True
        finally:
            while self._told:
                run, outcome = self._told.popleft()
                self._n_told[run] += 1
                self._every(run, outcome)

    def discrepancy(self, submitted: Set[RunId]) -> str | None:
        """What does not add up, run by run: each that was submitted was told once, and none else was begun."""
        lost = submitted - self._n_told.keys()
        twice = [run for run, times in self._n_told.items() if times > 1]
        strange = self.ledger.records.keys() - submitted
        found = {"never told": lost, "told twice": twice, "not asked for": strange}
        texts = [f"{plural(len(runs), 'run')} {what} ({min(runs)} is one)" for what, runs in found.items() if runs]
        return f"the runs do not add up: {', '.join(texts)}; this is a bug in pytest-osmosis" if texts else None

    def close(self) -> None:
        """Close the journal. `JournalError` where the disk does not take it."""
        self._journal.close()


def _together(*digests: str) -> str:
    return blake2b(json.dumps(digests).encode(), digest_size=8).hexdigest()
