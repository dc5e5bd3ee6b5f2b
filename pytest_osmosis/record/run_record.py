"""`RunRecord`, the fold of a run's events (see `events`), and `Ledger`, the records of an eval run.

A later attempt replaces an earlier one. Of two events about the same score, the later one counts. A `skip` belongs to
the run and has no attempt. A `loaded` that follows a `began` resumes the eval run: scores with unchanged code and row
stay. Any other further `loaded` begins a rescoring: it scores all rollouts again, and counts only if its `rescored`
follows (`settled`). Numbers, verdicts and reports are made from records, never from events.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from hashlib import blake2b
from json.encoder import encode_basestring_ascii
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis.formats import Boundary as Boundary
from pytest_osmosis.formats.events import PLAIN, ROLLOUT, NoteFields
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.chat_messages import AnswerFault, answer_fault
from pytest_osmosis.text.safe import dumps

T = TypeVar("T")

Event = Mapping[str, Any]
Status = Literal["pending", "finished", "failed", "skipped"]

INFRASTRUCTURE: frozenset[str] = frozenset({"provider", "host"})
"""Boundaries that say nothing about the model: a run that broke there is unmeasured."""

ENDED_TWICE = "ended its process twice"
LOST_OFTEN = "its machine was lost three times"
UNINTERRUPTIBLE = "took too long and could not be interrupted"
"""Beginnings of the errors of user code that ended its process; calling it again would end another one."""

NOTHING: Mapping[str, Any] = MappingProxyType({})


class RunNotes(NamedTuple):
    """The reports of user code about a run besides its scores: metrics, reasons and fields (JSON text), by source.

    A source is a reward function, or `ROLLOUT`. Most of millions of runs report nothing: they share one value. Equal
    metrics and equal reasons are shared too, and JSON text is a third of the size of what it stands for.
    """

    metrics: Mapping[str, Mapping[str, float]] = NOTHING
    reasons: Mapping[str, str] = NOTHING
    fields: Mapping[str, str] = NOTHING

    def add(self, event: Mapping[str, Any]) -> RunNotes:
        """Return these notes with those of an event."""
        if not (event.get("metrics") or event.get("reasons") or event.get("fields")):
            return self
        metrics, reasons, fields = self
        if found := event.get("metrics"):
            given = {**metrics, **found}.items()
            metrics = _shared_metrics(tuple([(source, tuple(named.items())) for source, named in given]))
        if found := event.get("reasons"):
            reasons = {**reasons, **{source: sys.intern(reason) for source, reason in found.items()}}
        if found := event.get("fields"):
            fields = {**fields, **{source: dumps(value) for source, value in found.items()}}
        return RunNotes(metrics, reasons, fields)

    def without(self, sources: Collection[str]) -> RunNotes:
        """Return these notes without those of some sources."""
        return self if self is NO_NOTES else self.filtered(lambda source: source not in sources)

    def filtered(self, keeps: Callable[[str], bool]) -> RunNotes:
        """Return the notes of the sources that a function `keeps`."""
        if self is NO_NOTES or all(map(keeps, {*self.metrics, *self.reasons, *self.fields})):
            return self
        kept = RunNotes._make({source: found[source] for source in found if keeps(source)} for found in self)
        return kept if any(kept) else NO_NOTES

    def to_json(self) -> NoteFields:
        """Return the members of an event that these notes are made of, without empty ones."""
        members: NoteFields = {}
        if self.metrics:
            members["metrics"] = {source: dict(metrics) for source, metrics in self.metrics.items()}
        if self.reasons:
            members["reasons"] = dict(self.reasons)
        if self.fields:
            members["fields"] = {source: json.loads(text) for source, text in self.fields.items()}
        return members


NO_NOTES = RunNotes()


@functools.lru_cache(maxsize=1024)
def _shared_metrics(items: tuple[tuple[str, tuple[tuple[str, float], ...]], ...]) -> Mapping[str, Mapping[str, float]]:
    return {source: dict(metrics) for source, metrics in items}


class RewardError(Struct, frozen=True):
    """The reason why a function gave no score."""

    message: str
    """The error in one line."""
    details: str = ""
    """The user's traceback, or ""."""
    boundary: Boundary = "reward"
    """The boundary: "provider" if a judge could not be asked, "host" if no process was left to call the function."""


class StoredUse(NamedTuple):
    """The answers that a cassette gave: their number, and their token counts as (name, count) pairs.

    `usage` is None if it is unknown.
    """

    requests: int
    usage: tuple[tuple[str, int], ...] | None

    def taken_from(self, usage: Mapping[str, int]) -> Mapping[str, int] | None:
        """Return the counts that are left of `usage`, None if they are unknown."""
        if self.usage is None:
            return None
        stored = dict(self.usage)
        return {name: max(0, count - stored.get(name, 0)) for name, count in usage.items()}


NOTHING_STORED = StoredUse(0, ())


class ReplicaRequests(NamedTuple):
    """The requests to one replica of a model, of which `errors` failed.

    `left_out` are the times when it was left out, each with the error, and `back` those when it answered again.
    """

    name: str
    requests: int
    errors: int
    left_out: tuple[tuple[str, str], ...] = ()
    back: tuple[str, ...] = ()


class JudgeUse(NamedTuple):
    """The requests to one judge that scored a run: `calls` were answered, after `retries`.

    `model` is the name as typed; `base_url` is None at the address that the name implies. `usage` holds (name, count)
    pairs, the known token counts; `uncounted` answers came without. `stored` are those of the calls that a cassette
    answered.
    """

    model: str
    base_url: str | None
    calls: int
    retries: int
    uncounted: int
    usage: tuple[tuple[str, int], ...]
    stored: StoredUse = NOTHING_STORED

    @property
    def charged(self) -> JudgeUse:
        """The requests that were sent."""
        if not self.stored.requests:
            return self
        usage = self.stored.taken_from(dict(self.usage)) or {}
        return self._replace(calls=self.calls - self.stored.requests, usage=tuple(usage.items()), stored=NOTHING_STORED)

    @property
    def tokens(self) -> int:
        """The known input and output tokens."""
        return sum(count for name, count in self.usage if name in ("input_tokens", "output_tokens"))


class Imported(NamedTuple):
    """The origin of a run that was not made here: a folder with files of `prime eval`, and the `scores` from there."""

    folder: str
    scores: tuple[str, ...] = ()


class RunRecord(Struct, frozen=True, gc=False):
    """The facts about one run, without its conversation: the fold of its events."""

    run: RunId
    """The identity of the run."""
    attempt: int = 0
    """1 for the first rollout; others follow a crash of the host, or belong to a later session."""
    repeated: bool = False
    """True if its host crashed before, in the same session."""
    started: bool = False
    """True once the agent was called."""
    rolled: bool = False
    """True once the rollout ended, in whatever way."""
    scored: bool = False
    """True once each function gave its score or its error."""
    removed: bool = False
    """True if the Grader removed the run (`remove_sample`)."""
    scores: Mapping[str, float] = NOTHING
    """The scores by the name of their function ("rewards:compute_reward"); a Grader's is "reward"."""
    scorer_errors: Mapping[str, RewardError] = NOTHING
    """The reasons of functions that gave no score, by name."""
    boundary: Boundary | None = None
    """The boundary where the rollout broke, None if it ended well."""
    error: str | None = None
    """The error of a rollout that broke, in one line."""
    duration_ms: float = 0.0
    """The time of the rollout, without time in a queue."""
    scoring_ms: float = 0.0
    """The time of scoring, without time in a queue."""
    usage: Mapping[str, int] | None = None
    """Token counts by name, None if the server sent none."""
    retries: int = 0
    """The number of requests that were repeated."""
    bound: str | None = None
    """The bound for which a request was refused ("[agent] max_turns = 10"), None if none was."""
    finish_reason: str | None = None
    """The reason why the last answer ends, None if the server sent none."""
    answer: str | None = None
    """The digest of the last assistant message, None without one."""
    answer_fault: AnswerFault | None = None
    """The kind of an answer without text, None if there is text."""
    model: str | None = None
    """The name of the model that the server echoed."""
    skip_reason: str | None = None
    """The reason why the run never started, None if nobody gave one."""
    notes: RunNotes = NO_NOTES
    """The metrics, reasons and further fields that user code reported."""
    judge_uses: tuple[JudgeUse, ...] = ()
    """The requests to LLM judges that scored the run."""
    stored: StoredUse = NOTHING_STORED
    """The answers of the rollout that came from a cassette."""
    imported: Imported | None = None
    """The origin of the run, None if it was made here."""
    replicas: tuple[ReplicaRequests, ...] = ()
    """The requests of the rollout to each replica of the model, if it has several."""
    turns: int | None = None
    """The number of assistant messages that the rollout added, None if it is unknown."""

    @property
    def charged(self) -> RunRecord:
        """The record with the tokens of those requests alone that were sent."""
        if not self.stored.requests and not any(use.stored.requests for use in self.judge_uses):
            return self
        usage = None if self.usage is None else self.stored.taken_from(self.usage)
        uses = tuple(use.charged for use in self.judge_uses)
        return replace(self, usage=usage, judge_uses=uses, stored=NOTHING_STORED)

    @property
    def metrics(self) -> Mapping[str, Mapping[str, float]]:
        """The numbers that user code reported besides scores, by source (a function, or "rollout") and name."""
        return self.notes.metrics

    @property
    def reasons(self) -> Mapping[str, str]:
        """The reasons that functions gave for their scores, by the name of the function."""
        return self.notes.reasons

    @property
    def status(self) -> Status:
        """`finished` or `failed` after a whole run, `skipped` if its Grader removed it, otherwise `pending`."""
        if not self.rolled:
            return "pending"
        if self.boundary is not None:
            return "failed"
        if self.removed:
            return "skipped"
        return "finished" if self.scored else "pending"

    @property
    def was_answered(self) -> bool:
        """True if the server is known to have answered a request of the rollout."""
        return self.usage is not None or self.model is not None or self.finish_reason is not None

    @property
    def tokens(self) -> int | None:
        """The number of input and output tokens, None if the server sent no usage."""
        if self.usage is None:
            return None
        return self.usage.get("input_tokens", 0) + self.usage.get("output_tokens", 0)

    @property
    def judge_tokens(self) -> int | None:
        """The number of tokens that judges used, None if a server did not report some."""
        if any(use.uncounted for use in self.judge_uses):
            return None
        return sum(use.tokens for use in self.judge_uses)


class Ledger(Struct):
    """The records of one eval run, updated event by event. Replaying the journal leads to the same ledger.

    `codes` holds the digests of the `scorers`, `rows` those of whole rows. `goes_on` is True from a `began` until the
    first event about a run, or `ended`; `attempts` are the last ones before it.

    `unended` counts the rollouts that began and whose end the journal does not hold, `unheard` those that hosts may
    have begun besides. A session that is over has lost both: what the models saw of them was possibly billed.
    """

    scorers: tuple[str, ...] = ()
    records: dict[RunId, RunRecord] = {}
    codes: Mapping[str, str] = {}
    rows: dict[int, str] = {}
    goes_on: bool = False
    attempts: dict[RunId, int] = {}
    unended: int = 0
    unheard: int = 0

    @property
    def most_lost(self) -> int:
        """The most rollouts that are lost if nothing is in flight."""
        return self.unended + self.unheard

    def in_flight(self, record: RunRecord) -> bool:
        """Return True for a run that began in the last session and has not ended."""
        return record.started and record.status == "pending" and record.attempt > self.attempts.get(record.run, 0)

    def apply(self, event: Event) -> RunRecord | None:
        """Apply an event. Return the record that it changed, None for events that belong to no run."""
        kind = event["ev"]
        fold = FOLDS.get(kind)
        if fold is None:
            self._apply_to_all(event)
            return None
        self.goes_on = False
        run = RunId.of(event)
        record = self.records.get(run) or RunRecord(run)
        if event.get("attempt", record.attempt) < record.attempt:
            return None  # a late line of an attempt that was given up
        if kind == "rollout" and record.rolled and event["attempt"] == record.attempt:
            return None  # a line that is there twice
        if kind == "rollout" or kind == "start":
            self._count(record, event)
        record = fold(record, event)
        if record.attempt > 1 and kind in ("start", "rollout") and record.attempt > self.attempts.get(run, 0) + 1:
            record = replace(record, repeated=True)
        if record.rolled and not record.scored and self._complete(record):
            record = replace(record, scored=True)
        self.records[run] = record
        return record

    def _count(self, record: RunRecord, event: Event) -> None:
        """Count the rollout that an event begins or ends; `record` is as it was before."""
        has_begun = record.started and not record.rolled and record.attempt == event["attempt"]
        if event["ev"] == "rollout":
            self.unended -= has_begun
        elif not has_begun:
            self.unended += 1
            self.unheard -= self.unheard > 0

    def _apply_to_all(self, event: Event) -> None:
        match event["ev"]:
            case "began":
                self.goes_on = True
                self.unended, self.unheard = self.most_lost, 0
                self.attempts = {run: record.attempt for run, record in self.records.items() if record.attempt}
            case "loaded":
                self._load(tuple(event["scorers"]), event.get("digests", NOTHING))
            case "rows":
                self._see_rows(event["rows"])
            case "handed_out":
                self.unheard = event["n"]
            case "ended":
                self.goes_on = False

    def copy(self) -> Ledger:
        return replace(self, records=dict(self.records), rows=dict(self.rows), attempts=dict(self.attempts))

    def _load(self, scorers: tuple[str, ...], codes: Mapping[str, str]) -> None:
        """Take the functions that score from now on, and drop the scores that they would not give."""
        unchanged = {name for name in scorers if name in codes and self.codes.get(name) == codes[name]}
        same = unchanged.issuperset((*self.scorers, *scorers))
        self.scorers, self.codes = scorers, codes
        if not self.goes_on:
            self.records = {run: replace(unscored(record), skip_reason=None) for run, record in self.records.items()}
        elif not same:
            self.records = {run: self._scored_by(unchanged, record) for run, record in self.records.items()}

    def _scored_by(self, names: Set[str], record: RunRecord) -> RunRecord:
        """Return a record with the scores of these functions only; without any if it was removed.

        Scores that were imported stay, whatever the code is: what made them is not known.
        """
        names = {*names, *record.imported.scores} if record.imported is not None else names
        if record.removed or not names:
            return replace(unscored(record), judge_uses=record.judge_uses)
        others = {*record.scores, *record.scorer_errors} - names
        record = replace(
            record,
            scores=_shared(tuple(_without(record.scores, others).items())),
            scorer_errors=_without(record.scorer_errors, others) or NOTHING,
            notes=record.notes.without(others),
        )
        return replace(record, scored=record.rolled and self._complete(record))

    def _see_rows(self, rows: Mapping[str, Sequence[str]]) -> None:
        """Take the digests of rows. If the eval run is resumed, drop the scores of rows that have changed."""
        now = {int(row): whole for row, (_, whole) in rows.items()}
        if self.goes_on and (changed := {row for row in now if self.rows.get(row, now[row]) != now[row]}):
            for run, record in self.records.items():
                if run.row in changed:
                    self.records[run] = self._scored_by(frozenset(), record)
        self.rows.update(now)

    def _complete(self, record: RunRecord) -> bool:
        if record.removed or not self.scorers:
            return record.removed
        return all(name in record.scores or name in record.scorer_errors for name in self.scorers)


def settled(events: Iterable[Event]) -> Iterator[Event]:
    """Yield `events` without those of rescorings that did not finish. A scoring of a session that rolls out counts."""
    settling = Settling()
    for event in events:
        yield from settling.apply(event)


class Settling:
    """Holds the events of a rescoring back until it has finished; they are dropped if it never does."""

    def __init__(self) -> None:
        self._rolls_out = True
        self._further: list[Event] | None = None

    def apply(self, event: Event) -> Sequence[Event]:
        """Take the next event, and return those that count now."""
        if event["ev"] == "began":
            self._further, self._rolls_out = None, True
        elif event["ev"] == "loaded":
            self._further, self._rolls_out = (None if self._rolls_out else []), False
        if self._further is None:
            return (event,)
        self._further.append(event)
        if event["ev"] != "rescored":
            return ()
        finished, self._further = self._further, None
        return finished


def unscored(record: RunRecord) -> RunRecord:
    """Return a record as it was before scoring."""
    notes = record.notes.filtered(lambda source: source == ROLLOUT)
    cleared = replace(record, scored=False, removed=False, scores=NOTHING, scorer_errors=NOTHING, scoring_ms=0.0)
    return replace(cleared, notes=notes, judge_uses=())


def left_out(record: RunRecord) -> RunRecord:
    """Return the record of a run that a rescoring skips: pending, with what its rollout used, however that ended."""
    return replace(record, boundary=None, error=None)


def _start(record: RunRecord, event: Event) -> RunRecord:
    if event["attempt"] > record.attempt:
        return RunRecord(record.run, attempt=event["attempt"], started=True)
    return replace(record, started=True)


def _rollout(record: RunRecord, event: Event) -> RunRecord:
    own = [message for message in event.get("messages", ())[event.get("n_prompt", 0) :] if isinstance(message, Mapping)]
    return RunRecord(
        record.run,
        attempt=event["attempt"],
        started=True,
        rolled=True,
        boundary=event.get("boundary"),
        error=event.get("error"),
        duration_ms=event["ms"],
        usage=_shared(tuple(usage.items())) if (usage := event.get("usage")) is not None else None,
        bound=_interned(event.get("bound")),
        answer=_answer(own),
        answer_fault=answer_fault(own),
        model=_interned(event.get("model")),
        notes=NO_NOTES.add(event),
        stored=_stored_use(event.get("stored")),
        imported=_same(Imported(taken["folder"], tuple(taken["scores"]))) if (taken := event.get("imported")) else None,
        replicas=replicas_of(event.get("replicas")),
        turns=sum(message.get("role") == "assistant" for message in own),
        **{name: _interned(event[name]) for name in PLAIN if name in event},
    )


def _answer(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the digest of the last assistant message: its content and its tool calls, without their ids."""
    for message in reversed(messages):
        if message.get("role") == "assistant":
            calls = message.get("tool_calls")
            called = [call.get("function") for call in calls if isinstance(call, Mapping)] if calls else []
            return blake2b(_answer_text(message.get("content"), called).encode(), digest_size=8).hexdigest()
    return None


def _answer_text(content: object, called: Sequence[object]) -> str:
    if isinstance(content, str) and not called:  # nearly every answer, in a tenth of the time
        return f"[{encode_basestring_ascii(content)}, []]"
    return SORTED.encode([content, called])


def _score(record: RunRecord, event: Event) -> RunRecord:
    scores: Mapping[str, float] = event.get("scores", {})
    errors = {
        name: RewardError(error["message"], error.get("details", ""), error.get("boundary", "reward"))
        for name, error in event.get("errors", {}).items()
    }
    uses = event.get("judges")
    kept, broken = _without(record.scores, errors), _without(record.scorer_errors, scores)
    return replace(
        record,
        scores=_shared((*kept.items(), *scores.items())),
        scorer_errors={**broken, **errors} if broken or errors else NOTHING,
        removed=record.removed or event.get("removed", False),
        scoring_ms=record.scoring_ms + event.get("ms", 0.0),
        notes=record.notes.without({*scores, *errors}).add(event),
        judge_uses=(*record.judge_uses, *map(judge_use, uses)) if uses else record.judge_uses,
    )


def judge_use(use: Mapping[str, Any]) -> JudgeUse:
    """Return the requests to one judge, from an event or from published results."""
    usage = tuple((use.get("usage") or NOTHING).items())
    counts = (use["calls"], use["retries"], use.get("uncounted", 0))
    shared: JudgeUse = _same(JudgeUse(use["model"], use["base_url"], *counts, usage, _stored_use(use.get("stored"))))
    return shared


def _stored_use(stored: Mapping[str, Any] | None) -> StoredUse:
    if stored is None:
        return NOTHING_STORED
    usage = stored["usage"]
    return StoredUse(stored["requests"], None if usage is None else tuple(usage.items()))


def replicas_of(uses: Mapping[str, Mapping[str, Any]] | None) -> tuple[ReplicaRequests, ...]:
    """Return the requests to replicas, from an event or from published results."""
    requests: list[ReplicaRequests] = []
    for name, use in (uses or NOTHING).items():
        left_out = tuple((change["at"], change["error"]) for change in use.get("left_out", ()))
        requests.append(ReplicaRequests(name, use["requests"], use["errors"], left_out, tuple(use.get("back", ()))))
    return _same(tuple(requests)) if requests else ()


@functools.lru_cache(maxsize=3072, typed=True)
def _same(value: T) -> T:
    """Return the value that equal records share."""
    return value


@functools.lru_cache(maxsize=1024)
def _shared(items: tuple[tuple[str, T], ...]) -> Mapping[str, T]:
    """Return a mapping of these items, which equal records share: a large eval has few different ones."""
    return dict(items)


def _interned(value: Any) -> Any:
    """Return a value; equal texts are one object."""
    return sys.intern(value) if isinstance(value, str) else value


def _without(values: Mapping[str, T], names: Iterable[str]) -> Mapping[str, T]:
    return values and {name: value for name, value in values.items() if name not in names}


SORTED = json.JSONEncoder(sort_keys=True)
FOLDS: Mapping[str, Callable[[RunRecord, Event], RunRecord]] = {
    "start": _start,
    "rollout": _rollout,
    "score": _score,
    "skip": lambda record, event: replace(record, skip_reason=event["reason"]),
}


class RunCounts(Struct, frozen=True):
    """Counts so far, replaced as a whole, so that any thread may read them.

    `baseline` counts the runs of the baseline among `done`; `passed`, `unmeasured`, `removed` and `score` leave them
    out. `removed` counts runs that their Grader took out; `score` sums the scores of the deciding function, if there
    is only one, where a run without a score has the lower of 0.0 and the lowest so far. `in_flight` leaves out the
    `retrying` runs, which wait for a retry, and the `held` runs, which wait for a permit under the limit `held_by`.
    `repeated` counts runs that lost their host and are rolled out once more, `stored` those among `done` whose rollout
    an earlier session made.
    """

    submitted: int = 0
    done: int = 0
    baseline: int = 0
    passed: int = 0
    unmeasured: int = 0
    removed: int = 0
    score: float = 0.0
    in_flight: int = 0
    retrying: int = 0
    held: int = 0
    held_by: str | None = None
    tokens: int = 0
    repeated: int = 0
    stored: int = 0


def sum_of(counts: Iterable[RunCounts]) -> RunCounts:
    """Return the counts of several evals together.

    >>> both = sum_of([RunCounts(done=1, score=0.5), RunCounts(done=2, held=1, held_by="rpm")])
    >>> both.done, both.score, both.held, both.held_by
    (3, 0.5, 1, 'rpm')
    """
    each = list(counts)
    held_by = next((found.held_by for found in each if found.held_by is not None), None)
    names = [name for name in RunCounts.__struct_fields__ if name != "held_by"]
    return replace(RunCounts(held_by=held_by), **{name: sum(getattr(found, name) for found in each) for name in names})
