"""The results of a stored eval run, whatever its status.

The numbers are those of its results.json, and the journal adds what that file leaves out. An eval run without results
of its last session, because it is running or was killed, gets them from its manifest and its journal: they cover the
runs that ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis.errors import JournalError, OsmosisError, ResultsError
from pytest_osmosis.files.reading import FileFault
from pytest_osmosis.formats.codec import ShapeFault, decode
from pytest_osmosis.formats.events import plain
from pytest_osmosis.formats.price import Price
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.journal import POSITION, EventReader, SessionTimes, replay_with_positions
from pytest_osmosis.record.lifecycle import WAS_KILLED, Lifecycle, Status, Stop, lifecycle_of
from pytest_osmosis.record.plan import selected_runs
from pytest_osmosis.record.run_id import RunId, plan_order
from pytest_osmosis.record.run_record import NOTHING, Event, Ledger, RunRecord, Settling, left_out
from pytest_osmosis.report.failure_text import ScoredAnswer
from pytest_osmosis.results import results
from pytest_osmosis.results.conclude import Conclusion, EvalFacts, FactsAtEnd
from pytest_osmosis.results.publish import published, published_head
from pytest_osmosis.results.read import PublishedResults, read_head, read_results, results_of
from pytest_osmosis.results.results import BaselineFile, EvalDescription, Rescored, Results
from pytest_osmosis.results.totals import CassetteUse, PriceOf, shown_name
from pytest_osmosis.text.chat_messages import text_of
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.redaction import Redaction, ascii_json
from pytest_osmosis.verdicts.gates import Verdict
from pytest_osmosis.verdicts.pass_rule import PassRule, Transcript, error_of, kind_of


class StoredResults(Struct, frozen=True, dict=True):
    """All that a run directory says about its eval run.

    `results` holds all selected runs, or those that ended if it `is_from_journal`. `begun` are the runs that had begun
    and not ended. `replayed` is the journal. `written_in` is the run directory as it was when results were written.
    """

    run: StoredEvalRun
    lifecycle: Lifecycle
    results: Results
    replayed: Replayed
    begun: Sequence[RunId] = ()
    is_from_journal: bool = False
    written_in: str | None = None

    @property
    def status(self) -> Status:
        return self.lifecycle.status

    @property
    def records(self) -> Sequence[RunRecord]:
        return self.results.all_records

    @cached_property
    def document(self) -> dict[str, Any]:
        """The published object, without rows and what else may be very long."""
        head = published_head(self.results)
        if self.is_from_journal:
            return {**head, **self.lifecycle.to_json()}
        return {**head, "provenance": {**head["provenance"], "run_dir": self.written_in}}

    def history(self, record: RunRecord) -> RunHistory:
        """Return what the journal says about a run. Raises `JournalError`."""
        with EventReader(self.run.directory.journal) as reader:
            return self.replayed.history(record, reader)


def read_stored(run: StoredEvalRun, found: Replayed | None = None) -> StoredResults:
    """Read an eval run, whose journal was `found` to hold this. Raises `OsmosisError` if its files cannot be read."""
    lifecycle = lifecycle_of(run.directory)
    path = run.results if lifecycle.results_are_current else None
    published_results = None if path is None else read_results(path)
    found = replayed(run.directory.journal) if found is None else found
    if published_results is None:
        return _from_journal(run, lifecycle, found)
    made = results_of(published_results, found.ledger.records)
    made = replace(
        made, provenance={**made.provenance, "run_dir": shown(run.directory.path)}, n_planned=run.manifest.plan.n_runs
    )
    if lifecycle.status != "finished" and made.rescored is not None:
        made = replace(made, stopped=None, stop_reason=None, status_before=lifecycle)
    written_in = published_results.provenance["run_dir"]
    return StoredResults(run, lifecycle, made, found, written_in=written_in)


class RunHistory(Struct, frozen=True):
    """One run: its record, and what its test showed of it; the ground truth is None if the run was not scored.

    `scorers` are the functions of the last scoring. `outputs` holds what each step printed, by kind.
    """

    record: RunRecord
    scorers: Sequence[str]
    transcript: Transcript
    outputs: Sequence[Mapping[str, str]]


@dataclass
class Replayed:
    """A journal, folded event by event, also while it is written.

    `positions` has that of each run's rollout and last score, by attempt, and `scores` the position of the last event
    about each function's score, by run and attempt. `loaded` is the last event about the code that scores, `ended` that
    of the last session if it ended. `digests` are the published ones of rows, as the events say them. `facts` are those
    that results need besides, as the last session wrote them that performed all runs of the one before; `digests_since`
    are the digests that events said since then.
    """

    ledger: Ledger = field(default_factory=Ledger)
    positions: dict[tuple[str, RunId, int], int] = field(default_factory=dict)
    scores: dict[tuple[RunId, int], dict[str, int]] = field(default_factory=dict)
    loaded: Event = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)
    ended: Event = field(default_factory=dict)
    facts: Event = field(default_factory=dict)
    digests_since: dict[int, str] = field(default_factory=dict)
    _settling: Settling = field(default_factory=Settling, compare=False)
    _times: SessionTimes = field(default_factory=SessionTimes, compare=False)

    @property
    def session_ms(self) -> Sequence[float]:
        return self._times.each_ms

    def event(self, kind: str, record: RunRecord, reader: EventReader) -> Event:
        """Return the "rollout" of a run, or its last "score"; empty if the journal has none. Raises `JournalError`."""
        at = self.positions.get((kind, record.run, record.attempt))
        return {} if at is None else reader.at(at)

    def score_places(self, record: RunRecord) -> list[int]:
        """Return the positions of the events about the scores that count."""
        known, places = {*record.scores, *record.scorer_errors}, self.scores.get((record.run, record.attempt), {})
        return sorted({at for name, at in places.items() if name in known or record.removed})

    def history(self, record: RunRecord, reader: EventReader) -> RunHistory:
        """Return what a journal says about a run. Raises `JournalError`."""
        rollout = self.event("rollout", record, reader)
        scores = [reader.at(place) for place in self.score_places(record)]
        transcript = Transcript(
            rollout.get("messages", ()),
            rollout.get("n_prompt", 0),
            rollout.get("details", ""),
            ground_truth=self.event("score", record, reader).get("ground_truth"),
        )
        outputs = [event.get("output") or {} for event in (rollout, *scores) if event]
        return RunHistory(record, self.ledger.scorers, transcript, outputs)

    def apply(self, event: Event) -> Sequence[Event]:
        """Take the next event, which has its position. Return those that count now."""
        settled_events = self._settling.apply(event)
        for each in settled_events:
            self._fold(each)
        return settled_events

    def _fold(self, event: Event) -> None:
        self.ledger.apply(event)
        self._times.apply(event)
        match event["ev"]:
            case "score":
                key, at = _key(event), event[POSITION]
                self.positions[key] = at
                names = {*event["scores"], *event["errors"], event.get("name", "")} - {""}
                self.scores.setdefault(key[1:], {}).update(dict.fromkeys(names, at))
            case "rollout":
                self.positions.setdefault(_key(event), event[POSITION])
            case "began":
                self.ended = NOTHING
            case "loaded":
                self.loaded, now = event, event.get("result_facts", NOTHING)
                if not self.facts or not now.get("is_part"):
                    self.facts, self.digests_since = now, {}
            case "rows":
                digests = {int(row): digest for row, digest in event["digests"].items()}
                self.digests |= digests
                self.digests_since |= digests
            case "ended":
                self.ended = event


def replayed(journal: Path) -> Replayed:
    """Return what a journal comes to. Raises `JournalError`."""
    found = Replayed()
    for event in replay_with_positions(journal):
        found.apply(event)
    return found


def _key(event: Event) -> tuple[str, RunId, int]:
    return event["ev"], RunId.of(event), event["attempt"]


# -- without results ---------------------------------------------------------------------------------------


def _from_journal(run: StoredEvalRun, lifecycle: Lifecycle, found: Replayed) -> StoredResults:
    """Return the results of the runs that ended. Gates are not decided."""
    manifest = run.manifest
    records = [found.ledger.records[id] for id in sorted(found.ledger.records)]
    ended = [record for record in records if record.status != "pending"]
    begun = [record.run for record in records if record.started and record.status == "pending"]
    why = "the eval run has not ended yet"
    if lifecycle.has_ended:
        why = "the eval run did not end" if lifecycle.was_killed else "its results were not written"
    digests = found.digests
    for record in ended:
        if record.run.row not in digests:
            raise JournalError(f"{run.directory.journal}: the rollout of {record.run} is stored, but not its row")
    other = manifest.baseline
    made = replace(
        results.of_records(
            EvalDescription.of(manifest),
            PassRule.of(found.ledger.scorers, manifest.pass_rule),
            ended,
            manifest.prices,
            None if other is None else other.model,
        ),
        partial=True,
        duration_ms=sum(found.session_ms),
        verdicts=[Verdict(title, "not decided", why) for title in manifest.gates],
        provenance={"run_dir": shown(run.directory.path), "started_at": manifest.started_at},
        cassette=CassetteUse.of(manifest.cassette),
        row_digests=digests,
        judge_price=_price_of_judge(manifest.subject.extra, manifest.prices),
        smoke_of=manifest.plan.n_runs if manifest.smoke else None,
        n_planned=manifest.plan.n_runs,
    )
    return StoredResults(run, lifecycle, made, found, begun, True)


def _price_of_judge(extra: Mapping[str, Any], prices: Mapping[str, Price | None]) -> PriceOf:
    """Return the price of the judge that the `extra` of an eval's description names, None for other judges."""
    judge, price = extra.get("judge", {}), prices.get("judge")
    return lambda use: price if (use.model, use.base_url) == (judge.get("model"), judge.get("base_url")) else None


class LastTerms(NamedTuple):
    """The rule by which runs pass, and the prices of tokens by model, None where they are not known."""

    rule: PassRule
    prices: Mapping[str, Price | None]

    @classmethod
    def of(cls, run: StoredEvalRun, scorers: Sequence[str]) -> LastTerms:
        """Return those of the last results, if there are any, for runs that `scorers` scored. Raises `ResultsError`."""
        if run.results is None:
            return cls(PassRule.of(scorers, run.manifest.pass_rule), run.manifest.prices)
        head = read_head(run.results)
        return cls(replace(head.pass_rule, scorers=tuple(scorers)), head.prices)


# -- results made again from the manifest and the journal alone, by the rules of the last session ------------
#
# For a run that died they are those of a session that stopped there: its runs that never ended are pending, and gates
# that they could decide are not decided.

TIMES = frozenset(
    {"total_duration_ms", "finished_at", "duration_ms", "scoring_ms", "paused_s", "held_s", "least_in_flight", "pauses"}
)
"""Keys of published results that hold times, or follow from the moment at which something happened."""


class RebuiltResults(Struct, frozen=True):
    """The published object of an eval run, made of its journal; `notes` say what could not be made again."""

    document: Mapping[str, Any]
    notes: Sequence[str]


def rebuild(run: StoredEvalRun) -> RebuiltResults:
    """Make the results of an eval run again. Raises `OsmosisError`."""
    found = replayed(run.directory.journal)
    if not found.facts:
        none = read_stored(run, found)
        document = published(none.results) | none.lifecycle.to_json()
        return RebuiltResults(document, ["its code was never loaded, so none of its runs began"])
    facts = _decoded(run.directory.journal, found.facts, EvalFacts)
    at_end = run.manifest.result_facts
    if at_end.get("session") != facts.session:
        return _Rebuilding(run, found, facts, None).results()
    return _Rebuilding(run, found, facts, _decoded(run.directory.manifest, at_end, FactsAtEnd)).results()


_Facts = TypeVar("_Facts")


def _decoded(path: Path, facts: object, kind: type[_Facts]) -> _Facts:
    try:
        return decode(facts, kind)
    except ShapeFault as fault:
        raise ResultsError(f"{shown(path)}: {fault.within('result_facts')}") from None


class _Rebuilding:
    """Makes results with the facts at the `end` of the last session; without them, with those that can be guessed."""

    def __init__(self, run: StoredEvalRun, found: Replayed, facts: EvalFacts, end: FactsAtEnd | None) -> None:
        self._run = run
        self._found = found
        self._facts = facts
        self._lifecycle = lifecycle_of(run.directory)
        self._is_rescored = facts.status_before is not None
        self._notes: list[str] = []
        self._baseline: PublishedResults | None = None
        self._lost = self._lost_baseline()
        self._is_guess = end is None
        self._end = self._guessed_end() if end is None else end

    def results(self) -> RebuiltResults:
        end, rules = self._end, self._facts
        measured = self._measured()
        stopped = self._found.ended.get("baseline_stopped")
        conclusion = Conclusion.of(measured, rules, self._baseline, stopped=stopped, lost=self._lost)
        compared = conclusion.compared
        if compared is not None and end.p_adjusted is not None and end.evals_compared > 1:
            compared = compared.among(end.evals_compared, end.p_adjusted)
        if self._is_guess and self._lifecycle.has_ended:
            self._notes.append("its session did not say when it finished, so times are those of the journal")
        made, unread = conclusion.results(compared, rules.previous)
        if unread is not None:
            last = shown(Path(rules.previous or ""))
            self._notes.append(f"the previous run {last} can no longer be read, so nothing is compared with it")
        made = replace(self._rescored(made), verdicts=[*made.verdicts, *end.verdicts], among=end.comparison)
        document = published(made)
        if not self._lifecycle.has_ended:
            document |= {"status": self._lifecycle.status, "stopped_by": None}
        return RebuiltResults(document, self._notes)

    def _last_stop(self) -> Stop | None:
        """Return why the last session stopped, None if it did not, or if rollouts were scored again."""
        found, lifecycle = self._found, self._lifecycle
        if self._is_rescored or not lifecycle.has_ended:
            return None
        if not found.ended:
            killed = lifecycle.reason if lifecycle.was_killed else None
            return Stop("killed", killed or f"its process {WAS_KILLED}")
        stop = found.ended.get("stop")
        if stop is not None:
            return Stop(stop["reason"], stop["text"])
        return None if found.ended["status"] == "finished" else Stop("closed", found.ended["reason"] or "stopped")

    def _measured(self) -> Results:
        facts, found, end, stop = self._facts, self._found, self._end, self._last_stop()
        runs = sorted(selected_runs(facts.selected), key=plan_order)
        digests = found.digests_since if self._is_rescored else found.digests  # of rows that the dataset still has
        return facts.measured(
            self._records(runs, stop),
            PassRule.of(found.ledger.scorers, facts.pass_rule),
            stop,
            end,
            baseline_stopped=found.ended.get("baseline_stopped"),
            judge_price=self._judge_price(),
            row_digests=digests,
        )

    def _records(self, runs: Sequence[RunId], stop: Stop | None) -> list[RunRecord]:
        """Return the records of runs; those that never ended because the process died say so."""
        made = results.records_of(runs, self._found.ledger.records)
        if self._is_rescored:
            return [record if record.skip_reason is None else left_out(record) for record in made]
        if stop is None or stop.reason != "killed":
            return made
        return [
            replace(each, skip_reason=stop.text) if each.status == "pending" and each.skip_reason is None else each
            for each in made
        ]

    def _lost_baseline(self) -> str | None:
        """Read the file of the baseline. Return why it is not what the session compared with, None if it is."""
        file = self._facts.baseline_results
        if file is None:
            return None
        path = Path(file.path)
        lost = f"the baseline {shown(path)} has changed since"
        try:
            if BaselineFile.of(path, file.path) == file:
                self._baseline = read_results(path)
                return None
        except (FileFault, OSError, ResultsError):
            lost = f"the baseline {shown(path)} can no longer be read"
        self._notes.append(f"{lost}, so nothing is compared with it")
        return lost

    def _rescored(self, made: Results) -> Results:
        before, end = self._facts.status_before, self._end
        if before is None:
            return made
        then = self._run.manifest.started_at
        unknown = Rescored(rolled_out_at=then, duration_ms=0.0, kept={}, previous=None, rows=0, better=0, worse=0)
        changed = [*end.changed_rows, *made.changed_rows]
        return replace(made, rescored=end.rescored or unknown, status_before=before, changed_rows=changed)

    def _guessed_end(self) -> FactsAtEnd:
        """Return the facts of a session that did not tell them, as far as the journal and the manifest know them."""
        manifest, begun, ended = self._run.manifest, self._facts.provenance, self._found.ended
        at = datetime.fromtimestamp(self._run.directory.journal.stat().st_mtime, UTC)
        at = datetime.fromisoformat(ended["at"]) if ended else at
        took = 0.0 if self._is_rescored else (at - datetime.fromisoformat(self._facts.session)).total_seconds()
        git = manifest.git or {"git_commit": None, "git_dirty": None}
        lost = {"lost_in_flight": self._found.ledger.most_lost} if "sessions" in begun else {}  # else a rescore
        if manifest.cassette is not None:
            self._notes.append("how much came from the cassette is not known")
        return FactsAtEnd(
            session=self._facts.session,
            provenance={**begun, **git, **lost, "finished_at": at.isoformat(timespec="milliseconds")},
            cassette=CassetteUse.of(manifest.cassette),
            duration_ms=self._facts.took_ms + max(0.0, took * 1000),
            shard_code=self._found.loaded.get("digests", {}),
        )

    def _judge_price(self) -> PriceOf:
        """Return the prices of judges that were asked; without the end of the session, of the one in the config."""
        known = self._end.judge_prices
        of_config = _price_of_judge(self._facts.description.extra, self._facts.prices)
        return lambda use: known[name] if (name := shown_name(use)) in known else of_config(use)


def differences(stored: object, made: object, at: str = "") -> Iterator[str]:
    """Yield the places at which two published objects differ in more than times."""
    if isinstance(stored, Mapping) and isinstance(made, Mapping):
        for key in dict.fromkeys([*stored, *made]):
            if key not in TIMES:
                missing = object()
                yield from differences(stored.get(key, missing), made.get(key, missing), f"{at}.{key}".lstrip("."))
    elif isinstance(stored, list | tuple) and isinstance(made, list | tuple) and len(stored) == len(made):
        for number_, (one, other) in enumerate(zip(stored, made, strict=True)):
            yield from differences(one, other, f"{at}[{number_}]")
    elif stored != made:
        yield at


# -- the runs as JSON Lines, for pandas and others: docs/reference/run-table.md has their members ----------


class RunLines(Struct, frozen=True):
    """The lines on the runs of a stored eval run."""

    run: StoredEvalRun
    _terms: LastTerms
    _records: Mapping[RunId, RunRecord]
    _found: Replayed

    def __len__(self) -> int:
        return len(self._records)

    def text(self, redaction: Redaction) -> Iterator[str]:
        """Yield a line on each run, in the order of the plan, without secrets. Raises `JournalError`."""
        with EventReader(self.run.directory.journal) as reader:
            for run in sorted(self._records, key=plan_order):
                record = self._records[run]
                rollout, score = (self._found.event(kind, record, reader) for kind in ("rollout", "score"))
                yield f"{ascii_json(redaction.value(self._line(record, rollout, score), unchanged=_OWN))}\n"

    def _line(self, record: RunRecord, rollout: Event, score: Event) -> dict[str, Any]:
        (rule, prices), run, manifest = self._terms, record.run, self.run.manifest
        other = manifest.baseline
        said = Transcript(rollout.get("messages", ()), rollout.get("n_prompt", 0))
        messages, prompt = said.messages, said.messages[: said.n_prompt]
        usage, price = record.usage or {}, prices.get(run.model)
        return {
            "eval": manifest.eval,
            "eval_run": self.run.directory.name,
            "model": other.model if run.is_baseline and other is not None else manifest.subject.model,
            "model_tag": str(run.model),
            "run": str(run),
            "row_index": run.row,
            "run_index": run.index,
            "row_digest": self._found.digests.get(run.row),
            "status": record.status,
            "outcome": record.status if record.status == "pending" else kind_of(record, rule),
            "passed": rule.verdict(record),
            "success": None if record.status == "pending" else record.status != "failed",
            "boundary": rule.boundary(record),
            "error": error_of(record),
            "scores": dict(record.scores) if record.status == "finished" else {},
            "errors": {name: error.message for name, error in record.scorer_errors.items()},
            **_NO_NOTES,
            **record.notes.to_json(),
            "prompt": _prompt_text(prompt) if messages else None,
            "answer": ScoredAnswer.of(said).text if messages else None,
            "ground_truth": score.get("ground_truth"),
            **plain(record),
            "tokens": record.tokens,
            "input_tokens": usage.get("input_tokens"),
            "output_tokens": usage.get("output_tokens"),
            "cost_usd": None if price is None else price.cost_usd(record.usage),
            "duration_ms": record.duration_ms,
            "scoring_ms": round(record.scoring_ms, 3),
            "bound": record.bound,
            "attempt": record.attempt,
            "messages": list(messages),
        }


_OWN = frozenset({"model_tag", "run", "row_digest", "status", "outcome", "boundary", "scores", "eval_run"})
"""Members whose values are words of ours, or names by which other things are found."""
_NO_NOTES: Mapping[str, Any] = {"metrics": {}, "reasons": {}, "fields": {}}


def read_run_lines(run: StoredEvalRun) -> RunLines:
    """Read an eval run. Raises `OsmosisError` if its results or its journal cannot be read."""
    found = replayed(run.directory.journal)
    records = {run: record for run, record in found.ledger.records.items() if record.started}
    if not records:
        raise OsmosisError(f"{run.directory.name}: holds no run: none had begun when it ended")
    return RunLines(run, LastTerms.of(run, found.ledger.scorers), records, found)


def _prompt_text(prompt: Sequence[object]) -> str:
    """Return the text of a prompt.

    >>> _prompt_text([{"role": "user", "content": "1 + 1?"}])
    '1 + 1?'
    >>> _prompt_text([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}])
    'system: Be brief.\\n\\nuser: 1 + 1?'
    """
    messages = [message for message in prompt if isinstance(message, Mapping)]
    texts = [text_of(message.get("content")) for message in messages]
    if len(texts) == 1:
        return texts[0]
    roles = (str(message.get("role", "")) for message in messages)
    return "\n\n".join(f"{role}: {text}" for role, text in zip(roles, texts, strict=True))
