"""The journal, ledger and counts of an eval run. Each run that is done is reported once, after the journal holds it."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Literal, TypeVar

from msgspec.structs import asdict, replace

from pytest_osmosis.engine.job import Job
from pytest_osmosis.errors import JournalError
from pytest_osmosis.formats.events import (
    EndedEvent,
    HandedOutEvent,
    JournalEvent,
    LoadedEvent,
    RemovalEvent,
    ScoreEvent,
    ScoringError,
    score_event,
)
from pytest_osmosis.host.protocol import Key, ReadyEvent, secrets_of
from pytest_osmosis.record.journal import Journal, with_checksum
from pytest_osmosis.record.lifecycle import Stop, ending_of
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import Ledger, RunCounts, RunRecord, left_out
from pytest_osmosis.record.stored_rollouts import Resumption, StoredScore
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.verdicts.pass_rule import Outcome, PassRule, Transcript, score_floor

E = TypeVar("E", bound=JournalEvent)
Caller = Literal["host", "scorer", "group"]
"""The caller of a function: a host on its event loop, a scorer, or the host that scores all runs of a row together."""

NO_RECORD = RunRecord(RunId(-1, -1))


class RunReports:
    """Counts runs, and reports those that are done or skipped: `send` calls `every` with the outcomes so far.

    `sent` counts how often each run was reported.
    """

    def __init__(self, job: Job, every: Callable[[RunId, Outcome], None]) -> None:
        self.sent = Counter[RunId]()
        self._describe = job.describe
        self._every = every
        self._counts: dict[str, Any] = asdict(RunCounts())
        self._outcomes: deque[tuple[RunId, Outcome]] = deque()
        self._n_without_score, self._lowest_score = 0, 0.0

    @property
    def reported(self) -> set[RunId]:
        """The runs that were reported, or will be."""
        return self.sent.keys() | {run for run, _ in self._outcomes}

    def add(self, record: RunRecord, pass_rule: PassRule, transcript: Transcript) -> None:
        self._outcomes.append((record.run, self._describe(record, pass_rule, transcript)))

    def give_up(self, run: RunId, reason: str) -> None:
        """Report a run without a look at its record."""
        self._outcomes.append((run, Outcome("skipped", reason)))

    def send(self) -> None:
        while self._outcomes:
            run, outcome = self._outcomes.popleft()
            self.sent[run] += 1
            self._every(run, outcome)

    def update(self, counts: Mapping[str, int | str | None]) -> None:
        self._counts.update(counts)

    @property
    def progress(self) -> RunCounts:
        """The counts so far, for any thread."""
        return RunCounts(**self._counts)

    @property
    def n_done(self) -> int:
        return int(self._counts["done"])

    @property
    def n_rolled_out(self) -> int:
        """The number of runs that are done and that this session rolled out."""
        return int(self._counts["done"] - self._counts["stored"])

    @property
    def n_unmeasured(self) -> int:
        return int(self._counts["unmeasured"])

    def count(self, **added: float) -> None:
        for name, n in added.items():
            self._counts[name] += n

    def done(self, record: RunRecord, pass_rule: PassRule, transcript: Transcript) -> None:
        """Report a run that failed or has all its scores."""
        self.add(record, pass_rule, transcript)
        if record.run.is_baseline:
            self.count(done=1, baseline=1)
            return
        removed = record.status == "skipped"
        self.count(
            done=1,
            passed=pass_rule.passed(record),
            unmeasured=not removed and not pass_rule.measured(record),
            removed=removed,
            score=0.0 if removed else self._rise(record, pass_rule),
        )

    def _rise(self, record: RunRecord, pass_rule: PassRule) -> float:
        """Return by how much a run changes the sum of scores, in which those without one have the lowest so far."""
        deciding = pass_rule.deciding
        if len(deciding) != 1:
            return 0.0
        if record.status != "finished" or (value := record.scores.get(deciding[0])) is None:
            self._n_without_score += 1
            return self._lowest_score
        fall = score_floor([self._lowest_score, value]) - self._lowest_score
        self._lowest_score += fall
        return value + fall * self._n_without_score


class Recorder:
    """Takes events, and makes records of them. `reports` has the counts and outcomes that follow.

    After `loaded`, `pass_rule` knows its functions, `grouped` names those that score all runs of a row together, and
    `codes` holds digests of their code. The journal holds nothing before `begin`, so that a
    session that never begins leaves no trace. `kept` counts the reused scores of each function.
    """

    def __init__(self, job: Job, journal: Journal, every: Callable[[RunId, Outcome], None]) -> None:
        self.pass_rule = job.pass_rule
        self.ledger = Ledger() if job.resume is None else job.resume.resumption.progress.ledger.copy()
        self.grouped: frozenset[str] = frozenset()
        self._called_by: Mapping[Caller, Sequence[str]] = {}
        self.codes: Mapping[str, str] = {}
        self.kept = Counter[str]()
        self.is_rescored = False
        self._job = job
        self.reports = RunReports(job, every)
        self._journal = journal
        self._redaction = Redaction(secrets_of(job.setup.code, job.environ.merged))
        self._lines: list[bytes] = []
        self._journal_works = True
        self._loaded: LoadedEvent | None = None
        self.has_begun = False
        self._earlier = frozenset(self.ledger.records)
        self._preface: list[bytes] = []
        self._has_changed = False
        self._unwritten: list[bytes] = []
        self._n_unwritten = 0
        self._again: dict[RunId, frozenset[str]] = {}
        self._n_unheard = 0
        self._error: JournalError | None = None

    def enter(self, event: JournalEvent, raw: bytes) -> RunRecord:
        """Put an event into the journal (with the others of this turn) and into the ledger."""
        self._write_preface()
        if event["ev"] == "score" and self.pass_rule.score_ranges:
            event, raw = self._in_range(event, raw)
        self._lines.append(raw)
        self._n_unwritten += event["ev"] == "rollout"
        record = self.ledger.apply(event) or NO_RECORD
        if event["ev"] == "score" and record.run in self._again:
            self._again[record.run] -= {*event["scores"], *event["errors"]}
        return record

    def _in_range(self, event: ScoreEvent, raw: bytes) -> tuple[ScoreEvent, bytes]:
        """Return an event in which a score outside of the declared range of its function is an error."""
        scores, outside = event["scores"], dict[str, ScoringError]()
        for name, score in scores.items():
            if (message := self.pass_rule.range_error(name, score)) is not None:
                outside[name] = {"message": message, "details": ""}
        if not outside:
            return event, raw
        within = {name: score for name, score in scores.items() if name not in outside}
        return self.redacted(event | {"scores": within, "errors": {**event["errors"], **outside}})

    def _enter_own(self, event: JournalEvent) -> RunRecord:
        return self.enter(*self.redacted(event))

    def redacted(self, event: E) -> tuple[E, bytes]:
        """Return an event of the engine itself without secrets, and its line."""
        line = self._redaction.event(event)
        return json.loads(line), line.encode("ascii") + b"\n"

    def loaded(self, code: ReadyEvent, rollout_code: Mapping[str, str] | None) -> None:
        """Take what the user's code holds: its reward functions, those that block, the digests of their code.

        `rollout_code` holds the digests of the code of rollouts, None if none are made.
        """
        scorers, blocking = tuple(code["scorers"]), frozenset(code["sync"])
        self.pass_rule = replace(self.pass_rule, scorers=scorers)
        self.grouped = frozenset(code.get("grouped", ()))
        callers: Mapping[Caller, Set[str]] = {
            "scorer": blocking,
            "group": self.grouped,
            "host": {*scorers} - blocking - self.grouped,
        }
        self._called_by = {caller: [name for name in scorers if name in names] for caller, names in callers.items()}
        environment = self._job.score_inputs.environment
        self.codes = {
            name: blake2b(json.dumps((digest, environment)).encode(), digest_size=8).hexdigest()
            for name, digest in code["digests"].items()
        }
        self._loaded = {"ev": "loaded", "scorers": list(scorers), "digests": self.codes}
        if rollout_code is not None:
            self._loaded["rollout_code"] = rollout_code
        if self._job.result_facts:
            self._loaded["result_facts"] = self._job.result_facts

    def begin(self) -> None:
        """Enter that the session begins. Without loaded code it does not begin; nothing is entered twice."""
        if self.has_begun or self._loaded is None:
            return
        self.has_begun = True
        known, inputs = self.ledger.rows, self._job.score_inputs  # none are known unless the session is a further one
        rows = {row: content for row, content in inputs.rows.items() if known.get(row) != content.whole}
        events: list[JournalEvent] = [self._loaded]
        if self._job.rescore is None:
            resumed = self._job.resume is not None and not self._job.resume.resumption.progress.is_empty
            machine = platform.node()
            events.insert(0, {"ev": "began", "at": _now(), "pid": os.getpid(), "machine": machine, "resumed": resumed})
        if rows or not known:
            contents = {str(row): content for row, content in rows.items()}
            digests = {str(row): digest for row, digest in inputs.published.items() if row in rows}
            events.append({"ev": "rows", "rows": contents, "digests": digests})
        for own in events:
            event, raw = self.redacted(own)
            self.ledger.apply(event)
            self._preface.append(raw)
        if self._job.resume is None:
            self._write_preface()

    def _write_preface(self) -> None:
        """Write that the session began. A resumed one that changes nothing leaves the journal as it is."""
        self._lines += self._preface
        self._preface = []

    def ended(self, stop: Stop | None, baseline_stopped: str | None, *, all_done: bool) -> None:
        """Enter how a session that rolled out has ended, and why no further run of the baseline's model began."""
        if not self.has_begun or self._job.rescore is not None:
            return
        status, resume = ending_of(stop, all_done=all_done), self._job.resume
        reason = None if status == "finished" or stop is None else stop.text
        if resume is not None:
            before, part = resume.resumption.progress.ending, resume.resumption.part
            if self._preface and (status != "finished" or part or before == "finished"):
                return
            if status == "finished" and part and before != "finished":
                status, reason = before or "stopped", "only a part of the plan was resumed"
        event: EndedEvent = {"ev": "ended", "at": _now(), "status": status, "reason": reason}
        if stop is not None:
            event["stop"] = {"reason": stop.reason, "text": stop.text}
        if baseline_stopped is not None:
            event["baseline_stopped"] = baseline_stopped
        self._enter_own(event)

    def recall_again(self, run: RunId, resumption: Resumption) -> None:
        """Let functions that failed to score a stored rollout score it again, if the session does that."""
        failed = resumption.scored_again(self.ledger.records[run])
        if names := failed.intersection(self.pass_rule.scorers):
            self._again[run] = names

    def is_scored(self, run: RunId) -> bool:
        """Return True if a rollout that ended well has all its scores, or the errors of functions."""
        record = self.ledger.records[run]
        return record.scored and (record.removed or not self._again.get(run))

    def recall(self, record: RunRecord, kept: Mapping[str, StoredScore], ground_truth: object) -> RunRecord:
        """Enter a stored rollout with the scores that are reused."""
        self.ledger.records[record.run] = replace(record, skip_reason=None)  # that of a session that left it out
        key = Key(record.run, record.attempt).to_json()
        for name, score in kept.items():
            scores = {} if score.value is None else {name: score.value}
            event = score_event(key, score.ms, scores, {}, ground_truth)
            event |= score.notes.to_json()  # type: ignore[typeddict-item]  # it lacks required fields
            if score.judges:
                event["judges"] = score.judges
            removal: RemovalEvent = {**event, "removed": True, "name": name}
            record = self._enter_own(removal if score.value is None else event)
            self.kept[name] += 1
        return record

    def rescored(self) -> None:
        """Enter that all stored rollouts are rescored, which completes what `loaded` began."""
        self.is_rescored = True
        self._enter_own({"ev": "rescored"})

    def unscored(self, run: RunId, caller: Caller) -> list[str]:
        """Return the functions that `caller` calls and that have given the run neither a score nor an error yet."""
        if not (called := self._called_by[caller]):
            return []
        record, again = self.ledger.records[run], self._again.get(run, ())
        if record.removed:
            return []
        scores, errors = record.scores, record.scorer_errors
        return [name for name in called if name in again or (name not in scores and name not in errors)]

    def score_again(self, run: RunId) -> None:
        """Let grouped functions score a run again, because they score others of its row."""
        self._again[run] = self._again.get(run, frozenset()) | self.grouped

    def keep_scores(self, run: RunId) -> None:
        """Keep the scores that a run has: its functions do not score it again."""
        self._again.pop(run, None)

    def skip(self, run: RunId, reason: str) -> None:
        self.reports.add(self._enter_skip(run, reason), self.pass_rule, Transcript())

    def give_up(self, runs: Iterable[RunId], reason: str) -> None:
        """Skip those of `runs` that were not reported, without a look at their records."""
        for run in sorted(set(runs) - self.reports.reported):
            self._enter_skip(run, reason)
            self.reports.give_up(run, reason)

    def _enter_skip(self, run: RunId, reason: str) -> RunRecord:
        rescore = self._job.rescore
        if rescore is not None and (stored := rescore.rollouts.records.get(run)) is not None:  # it began at least
            self.ledger.records.setdefault(run, left_out(stored))
        return self._enter_own({"ev": "skip", **run.to_json(), "reason": reason})

    def hand_out(self, n: int) -> bool:
        """Write that hosts have `n` runs that they have not begun, before they get them, as the engine may be killed.

        Return False if that fails: no host may begin one. The next `settle` raises the error.
        """
        try:
            self._write(n)
        except JournalError as error:
            self._error = error
        return self._journal_works

    def lose(self, n: int) -> None:
        """Note that hosts were lost with `n` runs that they may have begun."""
        self._n_unheard += n

    def settle(self, n_handed_out: int, **counts: int | str | None) -> None:
        """Write the events of this turn to the journal at once, then report outcomes; `counts` hold now.

        Hosts have `n_handed_out` runs that they have not begun. Raises `JournalError`, once, if the journal cannot be
        written; outcomes are reported all the same.
        """
        self.reports.update(counts)
        try:
            self._write(n_handed_out)
            if self._error is not None:
                error, self._error = self._error, None
                raise error
        finally:
            self.reports.send()

    def _write(self, n_handed_out: int) -> None:
        """Write the events so far to the journal. Raises `JournalError`, once, if that fails."""
        n_unheard = n_handed_out + self._n_unheard
        if self.has_begun and n_unheard != self.ledger.unheard:
            event: HandedOutEvent = {"ev": "handed_out", "n": n_unheard}
            self.enter(event, b'{"ev":"handed_out","n":%d}\n' % n_unheard)
        lines, self._lines = b"".join(map(with_checksum, self._lines)), []
        try:
            if lines and self._journal_works:
                self._journal_works = False  # if it fails, no other line may follow, because the order would be lost
                if self._job.resume is not None and not self._has_changed:
                    self._has_changed = True
                    self._job.resume.on_change()
                self._journal.append(lines)
                self._journal_works, self._n_unwritten, lines = True, 0, b""
        finally:
            self._unwritten += [lines] if lines else []

    def discrepancy(self, submitted: Set[RunId]) -> str | None:
        """Return what is wrong with the reports: each run that was submitted must be reported once, and no other."""
        runs_by_error = {
            "never reported": submitted - self.reports.sent.keys(),
            "reported twice": [run for run, times in self.reports.sent.items() if times > 1],
            "not submitted": self.ledger.records.keys() - submitted - self._earlier,
        }
        errors = [(error, runs) for error, runs in runs_by_error.items() if runs]
        texts = [f"{plural(len(runs), 'run')} {error} (such as {min(runs)})" for error, runs in errors]
        return f"internal accounting error, please report it: {', '.join(texts)}" if texts else None

    def close(self) -> None:
        """Close the journal. What it could not take earlier is tried once more. Raises `JournalError` if that fails."""
        try:
            if self._unwritten:
                self._journal.append(b"".join(self._unwritten))
        except JournalError as error:
            n = self._n_unwritten
            if not n:
                raise
            are, them = ("is", "it") if n == 1 else ("are", "them")
            lost = f"{plural(n, 'rollout')} that ended {are} not stored, so resuming makes {them} again"
            raise JournalError(f"{error}; {lost}; free some space") from error
        finally:
            self._journal.close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
