"""results.json: the parts of it that are read, declared once, and read back as typed objects.

`results.publish` writes these parts, and others that nobody reads again. A file is checked by their types; errors name
the place in it. Unknown keys are allowed everywhere: a later version may have added them. A file whose verdicts
contradict its scores, whose counts contradict its runs, or that holds a run twice, was changed by hand or merged, and
is refused: comparisons would be wrong.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from pytest_osmosis.errors import ResultsError
from pytest_osmosis.files.reading import FileFault, open_file, parsed, read_text
from pytest_osmosis.formats import Boundary, Ending, ModelTag, StopReason
from pytest_osmosis.formats.codec import (
    HEXADECIMAL,
    Amount,
    Count,
    Moment,
    Ms,
    Positive,
    ShapeFault,
    Share,
    check_version,
    decode,
)
from pytest_osmosis.formats.events import PLAIN, JudgeFields, ReplicaFields
from pytest_osmosis.formats.price import Price
from pytest_osmosis.record.lifecycle import Lifecycle, head_text
from pytest_osmosis.record.manifest import ExtraFields
from pytest_osmosis.record.plan import Shard
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import NO_NOTES, Imported, RewardError, RunRecord, judge_use, replicas_of
from pytest_osmosis.results.entry_table import EntryTable
from pytest_osmosis.results.results import EvalDescription, Rescored, Results, ShardFacts, Throttling, of_records
from pytest_osmosis.results.totals import CassetteUse, JudgeTotals, no_price
from pytest_osmosis.stats import Interval
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.verdicts.comparison import AgainstBaseline, ChangedRow, LastRun, RowRuns
from pytest_osmosis.verdicts.gates import Verdict
from pytest_osmosis.verdicts.pass_rule import UNMEASURED, PassRule, reason_of

SCHEMA_VERSION: Final = 1
MOST_BYTES = 1 << 30
DEEPEST = 100
"""The deepest nesting of results, which hold settings and numbers."""

Digest = Annotated[str, Meta(pattern=HEXADECIMAL)]


# -- runs and rows -----------------------------------------------------------------------------------------


class ScoringFault(TypedDict):
    """The reason why a function gave no score."""

    message: str
    boundary: Boundary


_SAME = ("duration_ms", "usage", "attempt", "repeated", "turns", *PLAIN)
_same_of = attrgetter(*_SAME)


def same_facts(of: UnscoredRollout | RunRecord) -> dict[str, Any]:
    """Return the facts that a published rollout and its record have under the same names."""
    return dict(zip(_SAME, _same_of(of), strict=True))


class UnscoredRollout(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rollout of a run, and the requests to judges that scored it, if there were any."""

    duration_ms: Ms
    usage: Mapping[str, Count] | None
    retries: Count
    finish_reason: str | None
    attempt: Positive
    repeated: bool = False
    turns: Count | None = None
    replicas: Mapping[str, ReplicaFields] = {}
    judges: Sequence[JudgeFields] = ()
    judges_cost_usd: Amount | UnsetType | None = UNSET

    def rolled(self, id: RunId, **scored: Any) -> RunRecord:
        """Return the record of the run before its scores, or with the fields that these give it."""
        return RunRecord(
            id,
            started=True,
            rolled=True,
            judge_uses=tuple(map(judge_use, self.judges)),
            replicas=replicas_of(self.replicas),
            **same_facts(self),
            **scored,
        )


class PublishedRun(UnscoredRollout, frozen=True, kw_only=True, omit_defaults=True):
    """One run that ended. `passed` is False if it was not measured.

    `model_tag` is there if two models ran, and `errors` for functions that gave no score.
    """

    run_index: Count
    model_tag: ModelTag | None = None
    success: bool
    scores: Mapping[str, float]
    tokens: Count | None
    status: Literal["finished", "failed", "skipped"]
    passed: bool
    boundary: Boundary | None = None
    error: str | None = None
    infra: bool = False
    scoring_ms: Ms
    cost_usd: Amount | None
    bound: str | None = None
    imported_from: str | None = None
    answer: Digest | None = None
    errors: Mapping[str, ScoringFault] = {}
    metrics: Mapping[str, Mapping[str, float]] = {}
    reasons: Mapping[str, str] = {}
    fields: Mapping[str, Mapping[str, Any]] = {}

    @property
    def is_own(self) -> bool:
        """True for a run of the eval's own model."""
        return self.model_tag is not ModelTag.BASELINE

    @property
    def verdict(self) -> bool | None:
        """True or False if the run passed or not, None if it was not measured."""
        return None if self.status == "skipped" or self.boundary in UNMEASURED else self.passed

    def id(self, row: int) -> RunId:
        return RunId(row, self.run_index, self.model_tag or ModelTag.PRIMARY)

    def _judged(self) -> dict[str, Any]:
        """Return the fields of the run's record on which its verdict depends."""
        errors = {name: RewardError(each["message"], boundary=each["boundary"]) for name, each in self.errors.items()}
        return {
            "scored": self.status == "finished",
            "removed": self.status == "skipped",
            "scores": self.scores,
            "scorer_errors": errors,
            "boundary": self.boundary or "agent" if self.status == "failed" else None,
            "error": self.error or "" if self.status == "failed" else None,
        }

    def record(self, row: int) -> RunRecord:
        """Return the record of the run, for a journal that lacks its events."""
        return self.rolled(
            self.id(row),
            **self._judged(),
            scoring_ms=self.scoring_ms,
            bound=self.bound,
            answer=self.answer,
            notes=NO_NOTES.add({"metrics": self.metrics, "reasons": self.reasons, "fields": self.fields}),
            imported=None if self.imported_from is None else Imported(self.imported_from),
        )

    def agrees(self, record: RunRecord) -> bool:
        """Return True if the journal's record of the run says the same."""
        scores = dict(record.scores) if record.status == "finished" else {}
        return (record.status, scores) == (self.status, self.scores)

    def contradiction(self, rule: PassRule) -> str | None:
        """Return what contradicts the scores and thresholds, None if nothing does."""
        record = RunRecord(RunId(0, 0), rolled=True, **self._judged())
        missing = ", ".join(rule.broken(record))
        fits = self.boundary in UNMEASURED if missing else self.boundary is None  # "provider" if no judge could answer
        if self.status == "finished" and not fits:
            why = f"there is no score of {missing}" if missing else "there is a score"
            return f"its boundary is {json.dumps(self.boundary)}, but {why}"
        if self.passed != rule.passed(record):
            reason = reason_of(record, rule) or "its scores reach the thresholds"
            why = reason if self.status == "finished" else f"its status is {self.status}"
            return f"passed is {json.dumps(self.passed)}, but {why}"
        return None


class PublishedRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row with its runs that ended."""

    row_index: Count
    row_digest: Digest
    runs: Annotated[Sequence[PublishedRun], Meta(min_length=1)]

    @property
    def own(self) -> list[PublishedRun]:
        return [run for run in self.runs if run.is_own]


class PendingRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run that never ended, and the reason."""

    row_index: Count
    row_digest: Digest | None = None
    run_index: Count
    model_tag: ModelTag | None = None
    reason: str | None
    started: bool
    rollout: UnscoredRollout | None = None

    @property
    def id(self) -> RunId:
        return RunId(self.row_index, self.run_index, self.model_tag or ModelTag.PRIMARY)

    def record(self) -> RunRecord:
        """Return the record of the run, for a journal that lacks its events."""
        record = RunRecord(self.id) if self.rollout is None else self.rollout.rolled(self.id)
        return replace(record, started=self.started, skip_reason=self.reason)


# -- whole results -----------------------------------------------------------------------------------------


class ConfigFields(ExtraFields):
    """The settings that were evaluated, and the rule by which runs pass."""

    name: str
    model: str
    n_runs: Positive
    pass_threshold: float
    eval_fns: Sequence[str]
    thresholds: Mapping[str, float]
    decide: str
    score_ranges: NotRequired[Mapping[str, tuple[float, float]]]
    price: Price | None
    baseline_model: NotRequired[str]


class ProvenanceFields(TypedDict):
    """Facts about code, data and versions. `shards` are those that were merged."""

    run_dir: str
    plan_digest: str
    started_at: Moment
    finished_at: Moment
    git_commit: NotRequired[str | None]
    git_dirty: NotRequired[bool | None]
    dataset_sha256: NotRequired[str]
    lost_in_flight: NotRequired[Count]
    shards: NotRequired[Sequence[Mapping[str, Any]]]
    cassette: NotRequired[CassetteUse]


class SummaryFields(Struct, frozen=True, kw_only=True):
    """The numbers of an eval run, in counts of runs. `judges` are there if any were asked."""

    total_rows: Count
    total_runs: Count
    selected: Count
    finished: Count
    failed: Count
    skipped: Count
    pending: Count
    measured: Count
    total_tokens: Count
    total_duration_ms: Ms
    pass_rate: Share | None
    pass_rate_interval: Interval | None
    cost_usd: Amount | None
    cost_unknown: Count
    throttling: Throttling
    judges: JudgeTotals | None = None

    @property
    def counted(self) -> int:
        """The runs of the eval's own model that the pass rate counts."""
        return self.finished + self.failed


class ModelSummaryFields(Struct, frozen=True):
    model: str
    model_tag: ModelTag
    price: Price | None


class PublishedHead(Struct, frozen=True, kw_only=True):
    """The results of one eval run, without its rows. `at` is the path of the file.

    `config` and `provenance` hold all members as published, also those of later versions; of them, only the price is
    decoded.
    """

    at: str
    schema_version: Literal[1]
    status: Ending
    stop_reason: str | None = None
    stopped_by: StopReason | None
    smoke_of: Count | None
    shard: ShardFacts | None = None
    partial: bool
    config: ConfigFields
    summary: SummaryFields
    model_summaries: Sequence[ModelSummaryFields] = ()
    provenance: ProvenanceFields
    last_run: LastRun | None
    baseline: AgainstBaseline | None
    rescored: Rescored | None
    comparison: EntryTable | None = None
    gates: Sequence[Verdict]

    @property
    def path(self) -> Path:
        return Path(self.at)

    @property
    def cassette(self) -> CassetteUse | None:
        """The part of a cassette in the eval run."""
        return decode(self.provenance["cassette"], CassetteUse) if "cassette" in self.provenance else None

    @property
    def replayed(self) -> bool:
        """True if all answers came from a cassette."""
        return self.cassette is not None and self.cassette.mode == "replay"

    @property
    def is_whole(self) -> bool:
        """True if all that was planned ran, and some of it was measured."""
        summary = self.summary
        return not self.partial and self.status == "finished" and not summary.pending and summary.measured > 0

    @property
    def is_selection(self) -> bool:
        """True if runs were left out that could have been selected; a shard leaves out none of its rows."""
        return self.partial and (self.shard is None or not self.shard.whole)

    @property
    def pass_rule(self) -> PassRule:
        return PassRule.of(self.config["eval_fns"], self.config)

    @property
    def other(self) -> ModelSummaryFields | None:
        """The baseline's model, None if only the eval's own ran."""
        return next((each for each in self.model_summaries if each.model_tag is ModelTag.BASELINE), None)

    @property
    def prices(self) -> Mapping[str, Price | None]:
        """The prices of tokens by model, None where they are not known."""
        other = None if self.other is None else self.other.price
        return {ModelTag.PRIMARY: self.config["price"], ModelTag.BASELINE: other}


class PublishedResults(PublishedHead, frozen=True, kw_only=True):
    """The results of one eval run. `changed_rows` are the worse ones first."""

    rows: Sequence[PublishedRow]
    pending: Sequence[PendingRun]
    changed_rows: Sequence[ChangedRow]

    @property
    def all_rows(self) -> list[PublishedRow | PendingRun]:
        """The rows with runs that ended, and for each run that never ended its row."""
        return [*self.pending, *self.rows]

    def row_runs(self) -> list[RowRuns]:
        """Return the rows as `Results.row_runs` does, but for those of which no run has ended."""
        return [
            RowRuns(row.row_index, row.row_digest, [run.verdict for run in row.own if run.status != "skipped"])
            for row in self.rows
        ]

    def measured_runs(self) -> dict[RunId, bool]:
        """Return for each measured run of the eval's own model whether it passed."""
        runs = ((run.id(row.row_index), run.verdict) for row in self.rows for run in row.own)
        return {run: passed for run, passed in runs if passed is not None}

    def records(self, known: Mapping[RunId, RunRecord]) -> Iterator[RunRecord]:
        """Yield the records of all selected runs; those that are `known` from a journal, if it agrees."""
        for row in self.rows:
            for run in row.runs:
                record = known.get(run.id(row.row_index))
                yield record if record is not None and run.agrees(record) else run.record(row.row_index)
        for each in self.pending:
            record = known.get(each.id)
            is_known = record is not None and record.status == "pending"
            yield replace(record, skip_reason=each.reason) if record is not None and is_known else each.record()


_OWN_KEYS = {"schema_version", "status", "config", "summary", "provenance"}
_MOST_FOREIGN_BYTES = 10_000_000


def is_results(path: Path) -> bool:
    """Return True for a results file of any version: a JSON object that has our keys.

    Of a large file only the beginning is read, which must look as we write it.
    """
    try:
        with open_file(path) as file:
            text = file.read(_MOST_FOREIGN_BYTES).decode(errors="replace")
        if len(text) < _MOST_FOREIGN_BYTES:
            data = json.loads(text)
            return isinstance(data, dict) and data.keys() >= _OWN_KEYS
        return text.startswith('{\n  "schema_version": ')
    except (FileFault, OSError, ValueError, RecursionError):
        return False


def read_document(path: Path) -> dict[str, Any]:
    """Return the published object in a file as it is. Raises `ResultsError` if it is not JSON."""
    try:
        data = parsed(read_text(path, most_bytes=MOST_BYTES), deepest=DEEPEST)
    except (FileFault, ValueError) as error:
        raise _unreadable(path, error) from None
    if not isinstance(data, dict) or "schema_version" not in data:
        raise ResultsError(f"{shown(path)}: not results of pytest-osmosis: it has no schema_version")
    return data


def read_results(path: Path) -> PublishedResults:
    """Read results. Raises `ResultsError` with the place in the file if they are not valid."""
    results = _decoded(path, read_document(path), PublishedResults)
    fault = _repeated(results.rows) or _contradiction(results.pass_rule, results.rows) or _miscounted(results)
    if fault is not None:
        raise ResultsError(f"{shown(path)}: {fault}")
    return results


def read_head(path: Path) -> PublishedHead:
    """Read the head of results without parsing their rows. Raises `ResultsError` if it is not valid."""
    return _head(path, _head_text(path))


def read_head_of_plan(path: Path, digest: str) -> PublishedHead | None:
    """Read the head of results, None if their plan has another digest. Raises `ResultsError` if it is not valid."""
    text = _head_text(path)
    head = _head(path, text) if digest in text else None
    return head if head is not None and head.provenance["plan_digest"] == digest else None


def shard_at(path: Path) -> Shard | None:
    """Return the shard whose results are at `path`, None for other results, and for a file that cannot be read."""
    try:
        facts = read_head(path).shard
    except ResultsError:
        return None
    return None if facts is None else facts.shard


def _head(path: Path, text: str) -> PublishedHead:
    try:
        return _decoded(path, parsed(text, deepest=DEEPEST), PublishedHead)
    except ValueError as error:
        raise _unreadable(path, error) from None


def _head_text(path: Path) -> str:
    try:
        return head_text(path)
    except (FileFault, OSError, ValueError) as error:
        raise _unreadable(path, error) from None


_Head = TypeVar("_Head", bound=PublishedHead)


def _decoded(path: Path, data: Any, kind: type[_Head]) -> _Head:
    try:
        if isinstance(data, dict):
            check_version(data, SCHEMA_VERSION)
            data = {**data, "at": str(path)}
        found = decode(data, kind)
    except ShapeFault as fault:
        raise ResultsError(f"{shown(path)}: {fault}") from None
    config = {**data["config"], "price": found.config["price"]}
    return replace(found, config=config, provenance=data["provenance"])


def _unreadable(path: Path, error: Exception) -> ResultsError:
    text = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else f"is not JSON: {error}"
    text = str(error) if isinstance(error, FileFault) else text
    return ResultsError(f"{shown(path)}: {text}")


def _repeated(rows: Sequence[PublishedRow]) -> str | None:
    """Return which row or run is there twice, None if each is there once."""
    seen = set[str]()
    for number, row in enumerate(rows):
        for each in (f"row {row.row_index}", *(str(run.id(row.row_index)) for run in row.runs)):
            if each in seen:
                return f"rows[{number}]: {each} is there already"
            seen.add(each)
    return None


def _miscounted(results: PublishedResults) -> str | None:
    """Return which count of the summary contradicts the runs, None if none does."""
    found = Counter[str](run.status for row in results.rows for run in row.own)
    found["pending"] = sum(not each.id.is_baseline for each in results.pending)
    for status in ("finished", "failed", "skipped", "pending"):
        counted = getattr(results.summary, status)
        if counted != found[status]:
            return f"summary.{status} is {counted:,}, but the file holds {plural(found[status], 'such run')}"
    return None


def _contradiction(rule: PassRule, rows: Sequence[PublishedRow]) -> str | None:
    """Return which run's verdict contradicts its scores and thresholds, None if none does."""
    for number, row in enumerate(rows):
        for index, run in enumerate(row.runs):
            fault = run.contradiction(rule)
            if fault is not None:
                return f"rows[{number}].runs[{index}]: {fault}"
    return None


# -- results as they were before they were published -------------------------------------------------------

NOTHING: Mapping[RunId, RunRecord] = {}
_OWN_CONFIG = ConfigFields.__annotations__.keys() - ExtraFields.__annotations__.keys()
"""Keys of the published config that `EvalDescription` does not keep under `extra`."""


def results_of(read: PublishedResults, known: Mapping[RunId, RunRecord] = NOTHING) -> Results:
    """Return results as they were before they were published, with the records that are `known` from a journal."""
    config, summary, shard, other = read.config, read.summary, read.shard, read.other
    extra = {key: value for key, value in config.items() if key not in _OWN_CONFIG}
    made = of_records(
        EvalDescription(config["name"], config["model"], config["n_runs"], extra),
        read.pass_rule,
        read.records(known),
        read.prices,
        None if other is None else other.model,
    )
    end = Lifecycle(read.status, read.stop_reason, stopped_by=read.stopped_by)
    return replace(
        made,
        partial=read.partial,
        stopped=read.stop_reason,
        duration_ms=summary.total_duration_ms,
        verdicts=read.gates,
        provenance={key: value for key, value in read.provenance.items() if key != "cassette"},
        row_digests={row.row_index: row.row_digest for row in read.all_rows if row.row_digest is not None},
        previous=read.last_run,
        comparison=read.baseline,
        rescored=read.rescored,
        status_before=None if read.rescored is None else end,
        changed_rows=read.changed_rows,
        smoke_of=read.smoke_of,
        stop_reason=read.stopped_by,
        n_planned=len(made.records) if shard is None else shard.planned_runs,
        shard=shard,
        throttling=replace(summary.throttling, limit=config["batch_size"]),
        judge_price=no_price if summary.judges is None else summary.judges.price_of,
        cassette=read.cassette,
        among=read.comparison,
    )
