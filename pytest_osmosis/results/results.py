"""The results of an eval run: records and their statistics. A projection; the journal is the authority.

A run without a score counts as `PassRule.unscored` says in mean, std, min and max, and as not passed. Skipped and
pending runs are in no denominator.

The causes that kept runs from being scored are errors, grouped by all that they have in common: messages that differ
only in numbers, ids, ports or times are one cause. Its text is the message of its first run, without the number of
tries or the text of a judge's answer.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct, field

from pytest_osmosis import stats
from pytest_osmosis.config.eval_kinds import GateRule
from pytest_osmosis.errors import ITS_ANSWER
from pytest_osmosis.files.reading import open_file
from pytest_osmosis.formats.codec import Amount, Count, Ms, Positive
from pytest_osmosis.formats.price import Price
from pytest_osmosis.record.lifecycle import Lifecycle, Stop, StopReason, ending_of
from pytest_osmosis.record.manifest import Manifest
from pytest_osmosis.record.plan import Shard
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import INFRASTRUCTURE, RunRecord, Status
from pytest_osmosis.results.totals import (
    CassetteUse,
    JudgeTotals,
    MetricSummaries,
    PriceOf,
    judge_totals,
    metric_summaries,
    no_price,
    sum_of_known,
    summed,
)
from pytest_osmosis.text.numbers import count, pattern_of, plural
from pytest_osmosis.text.safe import fitted, one_line
from pytest_osmosis.verdicts.comparison import Against, AgainstBaseline, ChangedRow, LastRun, RowRuns
from pytest_osmosis.verdicts.gates import NORMAL_RANGE, Runs, Verdict
from pytest_osmosis.verdicts.pass_rule import UNMEASURED, PassRule, reason_of, reward_error

if TYPE_CHECKING:
    from pytest_osmosis.config.tables import LimitsTable
    from pytest_osmosis.results.entry_table import EntryTable


class BaselineFile(Struct, frozen=True):
    """The file of the baseline: its path, as the session showed it, and the SHA-256 of its content."""

    path: str
    sha256: str

    @classmethod
    def of(cls, path: Path, shown_path: str) -> BaselineFile:
        with open_file(path) as file:
            return cls(shown_path, sha256(file.read()).hexdigest())


class ShardFacts(Struct, frozen=True):
    """A shard of an eval. `whole` says that every run of its rows was selected, `missing` what was not, in words.

    It has `rows` of the `planned_rows`. `max_errors` is the limit as a share of all runs or as a number of them,
    and `decides` is True if gates decide in place of single runs. `code` holds digests: those of the
    reward functions by name, and those of the files that rollouts run by path.
    """

    index: Positive
    of: Positive
    rows: Count
    planned_rows: Count
    planned_runs: Count
    whole: bool
    missing: str | None
    decides: bool
    max_errors: Amount
    max_errors_is_share: bool
    baseline: BaselineFile | None = None
    baseline_stopped: str | None = None
    code: Mapping[str, str] = {}

    @property
    def shard(self) -> Shard:
        return Shard(self.index, self.of)


def most_errors(of: ShardFacts | LimitsTable, n_runs: int) -> int:
    """Return how many runs may stay unmeasured: 29% of 100 are 29, though 0.29 * 100 is a little less in floats."""
    return math.floor(round(of.max_errors * n_runs, 6)) if of.max_errors_is_share else int(of.max_errors)


def max_errors_text(of: ShardFacts | LimitsTable) -> str:
    """Return the bound as the user wrote it: "10%" or "12"."""
    return f"{100 * of.max_errors:.12g}%" if of.max_errors_is_share else count(int(of.max_errors))


class EvalDescription(Struct, frozen=True):
    """The eval that was run: its name, its model as typed, n, and further keys of the published `config`."""

    name: str
    model: str
    n: int
    extra: Mapping[str, Any] = {}

    @classmethod
    def of(cls, manifest: Manifest) -> EvalDescription:
        """Return the description that the manifest of an eval run holds."""
        return cls(manifest.eval, manifest.subject.model, manifest.subject.n, manifest.subject.extra)


class EqualAnswers(NamedTuple):
    """The number of rows with several answers, and of those whose answers are all equal, byte by byte.

    `lost` and `lost_equal` count only rows in which not every run passed: correct answers are often equal, but wrong
    answers are equal only if the model is not sampled.
    """

    rows: int
    equal: int
    lost: int
    lost_equal: int


class Throttling(Struct, frozen=True):
    """The pauses and limits that slowed an eval down.

    A server without room caused `pauses` that lasted `paused_s` in total and left at least `least_in_flight` of `limit`
    rollouts in flight. `held_s` is the time for which each limit of `[execution]` held back requests.
    """

    pauses: int = 0
    paused_s: float = 0.0
    least_in_flight: int = 1
    limit: int = 1
    held_s: Mapping[str, float] = {}


class ModelResults(Struct, frozen=True):
    """The results of one model: its name as typed, the records of its selected runs, their statistics, its price."""

    model: str
    records: Sequence[RunRecord]
    by_function: Mapping[str, stats.Summary]
    overall: stats.Summary
    price: Price | None

    def metrics(self, pass_rule: PassRule) -> MetricSummaries:
        """Return the means of the metrics of its runs, by source and name."""
        return metric_summaries(self.records, pass_rule.scorers)


class Rescored(Struct, frozen=True, kw_only=True):
    """The scoring of stored rollouts, which were made at `rolled_out_at` (UTC, ISO 8601).

    `duration_ms` is the time that scoring took, `kept` the number of stored scores that each function reused. The
    `rows` that were measured are compared with those of the results before, whose file is `previous`, None without any.
    """

    rolled_out_at: str
    duration_ms: Ms
    kept: Mapping[str, Count]
    previous: str | None
    rows: Count
    better: Count
    worse: Count


class Results(Struct, frozen=True, dict=True):
    """The results of one eval run, as hooks get them: records of runs, and their statistics.

    A run without a score counts as the lower of 0.0 and the lowest score of the function. Runs that were removed or
    never ran are in no denominator.
    """

    # `previous` compares with the previous run of the same plan, `comparison` with the baseline, whose model stopped
    # early because of `baseline_stopped`. `rescored` is None unless the rollouts were stored ones; then the eval run
    # had the status `status_before`, and keeps it. `changed_rows` are those of all three comparisons. `n_planned` is
    # the number of the plan's runs, for a part of them. `reasons` holds a line on each run that was reported as failed
    # or as an error: its scores, and the answer next to its ground truth. `among` compares it with the other entries of
    # its config that ran with it. Counts and sums over all records are cached, because the summary, the file and the
    # Markdown page all use them.
    description: EvalDescription
    pass_rule: PassRule
    records: Sequence[RunRecord]
    """Every selected run of the eval's own model, row by row."""
    partial: bool
    """True if the plan holds more runs than were selected."""
    stopped: str | None
    """The reason why the eval stopped early, or a rescore lacks rollouts, else None."""
    duration_ms: float
    """The time of the eval in milliseconds."""
    by_function: Mapping[str, stats.Summary]
    """The statistics of each function's scores, by its name; a Grader's is "reward"."""
    overall: stats.Summary
    """The statistics of the runs by `decide`: 1.0 for one that passed, else 0.0."""
    verdicts: Sequence[Verdict] = ()
    """The verdicts of the gates. In `pytest_osmosis_gate`, those of the config."""
    provenance: Mapping[str, Any] = {}
    """The facts about code, data and versions, as in results.json."""
    price: Price | None = None
    row_digests: Mapping[int, str] = {}
    previous: LastRun | None = None
    comparison: AgainstBaseline | None = None
    rescored: Rescored | None = None
    status_before: Lifecycle | None = None
    changed_rows: Sequence[ChangedRow] = ()
    baseline_stopped: str | None = None
    baseline: ModelResults | None = None
    smoke_of: int | None = None
    n_planned: int = 0
    stop_reason: StopReason | None = None
    reasons: Mapping[RunId, str] = {}
    throttling: Throttling = field(default_factory=Throttling)
    shard: ShardFacts | None = None
    judge_price: PriceOf = no_price
    cassette: CassetteUse | None = None
    among: EntryTable | None = None

    @property
    def is_replay(self) -> bool:
        """True if no model was asked: the rollouts are those of a cassette."""
        return self.cassette is not None and self.cassette.mode == "replay"

    @property
    def n_unrecorded(self) -> int:
        """The number of rollouts of a replay that asked what was not recorded: its code is at fault."""
        return sum(self.cassette.unrecorded.values()) if self.cassette is not None and self.is_replay else 0

    def reason_of(self, record: RunRecord) -> str:
        """Return in one line why a run did not pass, "" if it did."""
        return self.reasons.get(record.run) or reason_of(record, self.pass_rule)

    @functools.cached_property
    def _by_status(self) -> Counter[Status]:
        return Counter(record.status for record in self.records)

    def count(self, status: Status) -> int:
        """Return the number of runs with a status."""
        return self._by_status[status]

    @property
    def decided(self) -> bool:
        """True if the eval stopped because its gates were decided."""
        return self.stop_reason == "decided"

    @functools.cached_property
    def models(self) -> Sequence[ModelResults]:
        """The results of the eval's own model, and those of its baseline's if there is one."""
        own = ModelResults(self.description.model, self.records, self.by_function, self.overall, self.price)
        return (own,) if self.baseline is None else (own, self.baseline)

    @functools.cached_property
    def is_fragment(self) -> bool:
        """True if runs of the plan are missing that could change the verdict: rates of the others would mislead."""
        return self.partial or (not self.decided and self.count("pending") > 0)

    @functools.cached_property
    def causes(self) -> Sequence[Cause]:
        """The causes that kept the eval's own runs from being scored, the most frequent first."""
        return causes_of(self.records, self.pass_rule)

    def boundaries(self) -> dict[str, int]:
        """Return the number of runs that were not scored, by boundary."""
        return summed({cause.boundary: len(cause.runs)} for cause in self.causes)

    @functools.cached_property
    def passed(self) -> int:
        """The number of runs that passed."""
        return sum(self.pass_rule.passed(record) for record in self.records)

    @property
    def is_merged(self) -> bool:
        """True if shards were merged, so that no run directory holds all runs."""
        return "shards" in self.provenance

    @property
    def whole(self) -> bool:
        """True if every planned run ran, so that other results of the same plan can be compared with these."""
        return not self.partial and self.stopped is None and self.count("pending") == 0

    @functools.cached_property
    def measured(self) -> int:
        """The number of runs that count as an answer."""
        return sum(self.pass_rule.measured(record) for record in self.records)

    @functools.cached_property
    def truncated(self) -> list[RunRecord]:
        """The runs whose last answer was cut off at its token limit."""
        return [record for record in self.records if record.rolled and record.finish_reason == "length"]

    @functools.cached_property
    def all_records(self) -> Sequence[RunRecord]:
        return [record for model in self.models for record in model.records]

    @functools.cached_property
    def total_tokens(self) -> int:
        """The sum of the known token counts of all models."""
        return tokens_of(self.all_records)

    @functools.cached_property
    def judges(self) -> JudgeTotals | None:
        """The requests to LLM judges, which no other count contains. None if no judge was asked."""
        return judge_totals(self.all_records, self.judge_price)

    @functools.cached_property
    def usage(self) -> dict[str, int]:
        """The sums of the known token counts of all models, by name."""
        return summed(record.usage or {} for record in self.all_records)

    def measured_runs(self) -> dict[RunId, bool]:
        """Return for each measured run whether it passed."""
        return {each.run: self.pass_rule.passed(each) for each in self.records if self.pass_rule.measured(each)}

    @functools.cached_property
    def costs_usd(self) -> Mapping[RunId, float]:
        priced = ((model.price, record) for model in self.models if model.price for record in model.records)
        costs = {record.run: price.cost_usd(record.usage) for price, record in priced}
        return {run: cost for run, cost in costs.items() if cost is not None}

    def cost_of(self, records: Sequence[RunRecord]) -> float | None:
        """Return the sum of the known costs, None if no cost is known."""
        return sum_of_known(self.costs_usd.get(record.run) for record in records)

    @functools.cached_property
    def cost_usd(self) -> float | None:
        """The sum of the known costs of all models, None if no cost is known."""
        return self.cost_of(self.all_records)

    def to_json(self) -> dict[str, Any]:
        from pytest_osmosis.results.publish import published

        return published(self)


def end_of(results: Results) -> Lifecycle:
    """Return the status of the eval run at its end, with the reason. Scoring its rollouts again does not change it."""
    by = results.stop_reason
    if results.stopped is not None and (results.rescored is None or by is not None):
        return Lifecycle(
            ending_of(Stop(by or "closed", results.stopped), all_done=False), results.stopped, stopped_by=by
        )
    before = results.status_before
    return Lifecycle("finished") if before is None or before.status == "finished" else before


def n_cost_unknown(results: Results, records: Sequence[RunRecord] | None = None) -> int:
    """Return the number of rollouts whose cost is unknown, of all records or of these."""
    counted = results.all_records if records is None else records
    return sum(record.rolled and record.run not in results.costs_usd for record in counted)


def tokens_of(records: Sequence[RunRecord]) -> int:
    """Return the sum of the known token counts."""
    return sum(record.tokens or 0 for record in records)


def row_runs(results: Results, model: ModelResults | None = None) -> list[RowRuns]:
    """Return the runs of each row that the dataset still has, in order, without those that a grader took out.

    A row of which it took out all runs is there without any: it was not measured, and is in the dataset.
    """
    rows, digests, verdict = by_row((model or results).records), results.row_digests, results.pass_rule.verdict
    return [
        RowRuns(row, digests[row], [verdict(each) for each in records if each.status != "skipped"])
        for row, records in rows.items()
        if row in digests
    ]


Compared = Rescored | LastRun | AgainstBaseline


def comparisons_of(results: Results) -> dict[Against, Compared]:
    """Return the comparisons with other verdicts on these rows: before rescoring, in the last run or the baseline."""
    each: dict[Against, Compared | None] = {
        "rescored": results.rescored,
        "last_run": results.previous,
        "baseline": results.comparison,
    }
    return {against: found for against, found in each.items() if found is not None}


def changed_rows(results: Results, against: Against) -> list[ChangedRow]:
    return [row for row in results.changed_rows if row.against == against]


def equal_answers(results: Results) -> EqualAnswers:
    answered = by_row([record for record in results.records if record.status == "finished" and record.answer])
    several = [(len({each.answer for each in runs}) == 1, runs) for runs in answered.values() if len(runs) > 1]
    lost = [equal for equal, runs in several if not all(map(results.pass_rule.passed, runs))]
    return EqualAnswers(len(several), sum(equal for equal, _ in several), len(lost), sum(lost))


_UNCOUNTED = ("pending", "skipped")
"""The statuses of runs that are in no denominator."""


def summarize(
    records: Sequence[RunRecord], pass_rule: PassRule, n: int
) -> tuple[dict[str, stats.Summary], stats.Summary]:
    """Return the statistics of each function's scores, and of the runs as a whole."""
    counted = by_row([record for record in records if record.status not in _UNCOUNTED])
    by_function = {}
    for name in pass_rule.scorers:
        floor = pass_rule.unscored(records, name)
        scores = {
            row: [_scored_by(record, pass_rule, name, floor) for record in group] for row, group in counted.items()
        }
        by_function[name] = stats.summarize(scores, n, pass_rule.score_ranges.get(name, NORMAL_RANGE))
    decided = {row: [_by_decide(record, pass_rule) for record in group] for row, group in counted.items()}
    return by_function, stats.summarize(decided, n)


def of_records(
    description: EvalDescription,
    pass_rule: PassRule,
    records: Iterable[RunRecord],
    prices: Mapping[str, Price | None],
    baseline: str | None = None,
) -> Results:
    """Return the results that follow from records alone; `baseline` is the name of the other model, if it has runs."""
    own, others = list[RunRecord](), list[RunRecord]()
    for record in records:
        (others if record.run.is_baseline else own).append(record)
    by_function, overall = summarize(own, pass_rule, description.n)
    other = None
    if baseline is not None:
        of_others = summarize(others, pass_rule, description.n)
        other = ModelResults(baseline, others, *of_others, prices.get(ModelTag.BASELINE))
    return Results(
        description=description,
        pass_rule=pass_rule,
        records=own,
        partial=False,
        stopped=None,
        duration_ms=0.0,
        by_function=by_function,
        overall=overall,
        price=prices.get(ModelTag.PRIMARY),
        baseline=other,
    )


def decided_scores(records: Iterable[RunRecord], pass_rule: PassRule) -> Iterator[tuple[RunRecord, stats.RunScore]]:
    """Yield each run that is in a denominator, with its score by `decide`."""
    for record in records:
        if record.status not in _UNCOUNTED:
            yield record, _by_decide(record, pass_rule)


def runs_for(rule: GateRule, records: Sequence[RunRecord], pass_rule: PassRule) -> Runs:
    """Return the values that decide a gate, row by row, without runs that a grader took out."""
    counted = by_row([record for record in records if record.status != "skipped"])
    floor = floor_of(rule, records, pass_rule)
    return [[gate_value(rule, record, pass_rule, floor) for record in row] for row in counted.values()]


def floor_of(rule: GateRule, records: Sequence[RunRecord], pass_rule: PassRule) -> float:
    """Return what a run without a score counts as in a gate."""
    function = _function_of(rule, pass_rule)
    return 0.0 if function is None else pass_rule.unscored(records, function)


def range_for(rule: GateRule, pass_rule: PassRule) -> tuple[float, float] | None:
    """Return the declared range of the scores that decide a gate, None if none is declared."""
    function = _function_of(rule, pass_rule)
    return None if function is None else pass_rule.score_ranges.get(function)


def _function_of(rule: GateRule, pass_rule: PassRule) -> str | None:
    return pass_rule.deciding[0] if rule.metric == "mean" and rule.function is None else rule.function


def gate_value(rule: GateRule, record: RunRecord, pass_rule: PassRule, floor: float = 0.0) -> float | None:
    """Return the value that a gate uses for a run: its function's score, or 1.0 if it passed and 0.0 if not.

    Runs that broke at model, agent or timeout have `floor` as their score. None for infrastructure failures, reward
    errors and pending runs, which are not measured.
    """
    function = _function_of(rule, pass_rule)
    value = _by_decide(record, pass_rule) if function is None else _scored_by(record, pass_rule, function, floor)
    if not value.measured or record.status == "pending":
        return None
    return value.score if rule.metric == "mean" else float(value.passed)


def by_row(records: Sequence[RunRecord]) -> dict[int, list[RunRecord]]:
    """Group records by row index, in order."""
    rows: dict[int, list[RunRecord]] = {}
    for record in sorted(records, key=lambda record: record.run):
        rows.setdefault(record.run.row, []).append(record)
    return rows


def records_of(runs: Iterable[RunId], records: Mapping[RunId, RunRecord]) -> list[RunRecord]:
    """Return the record of each selected run; a run without any event is pending."""
    return [records.get(run) or RunRecord(run) for run in runs]


def _scored_by(record: RunRecord, pass_rule: PassRule, name: str, floor: float) -> stats.RunScore:
    unscored = record.status == "failed" and record.boundary not in INFRASTRUCTURE
    return stats.RunScore(
        score=record.scores.get(name, floor) if record.status == "finished" else floor,
        passed=record.status == "finished" and pass_rule.met(record, name),
        measured=name in record.scores or unscored,
    )


def _by_decide(record: RunRecord, pass_rule: PassRule) -> stats.RunScore:
    passed = pass_rule.passed(record)
    return stats.RunScore(1.0 if passed else 0.0, passed, pass_rule.measured(record))


TEXT_CHARS = 200
SEARCHED_CHARS = 2_000
"""The part of a message that decides which cause it is."""
SHORT_COLUMNS = 80
"""The width of a cause within a sentence."""
FIRST_RUNS = 5

_ANSWERED = "the server answered "
_TRIES = re.compile(
    r"(; (no time is left for .*|asked to wait .* left|the next retry would be in .* left))?( \(\d+ tries\))?$",
    re.DOTALL,
)
"""The end of a message by which the last of several tries differs from the first (`models.retry`)."""


class Cause(Struct, frozen=True):
    """One cause, with the boundary where its `runs` broke. The runs are in order, and there is at least one."""

    text: str
    boundary: str
    runs: Sequence[RunId]

    @property
    def is_measured(self) -> bool:
        """True if its runs count as failed, False if they were not measured."""
        return self.boundary not in UNMEASURED

    @property
    def first(self) -> RunId:
        return self.runs[0]

    @property
    def short_text(self) -> str:
        """The cause as a part of a sentence: "502 Bad Gateway"."""
        return fitted(self.text, SHORT_COLUMNS)

    def to_json(self) -> dict[str, Any]:
        """Return the published form, with the first of its runs."""
        return {
            "text": self.text,
            "boundary": self.boundary,
            "measured": self.is_measured,
            "runs": len(self.runs),
            "first_runs": list(map(str, self.runs[:FIRST_RUNS])),
        }


def causes_of(records: Iterable[RunRecord], pass_rule: PassRule) -> list[Cause]:
    """Return the causes of all runs that were not scored, the most frequent first."""
    errors = list[_Error]()
    for record in records:
        if broken := pass_rule.broken(record):
            errors.append(_error(record, broken[0]))
        elif record.boundary is not None:
            message = (record.error or "").strip()
            errors.append(_Error(record.run, record.boundary, "", _TRIES.sub("", message, count=1)))
    return _grouped(errors)


def causes_aside(records: Iterable[RunRecord], pass_rule: PassRule) -> list[Cause]:
    """Return the causes for which functions that do not decide gave no score, the most frequent first."""
    aside = [name for name in pass_rule.scorers if name not in pass_rule.deciding]
    return _grouped(
        _error(record, name)
        for record in records
        for name in aside
        if record.status == "finished" and name not in record.scores
    )


class _Error(NamedTuple):
    """The error of a run. `function` is the one that gave no score, "" if the rollout broke."""

    run: RunId
    boundary: str
    function: str
    message: str


def _grouped(errors: Iterable[_Error]) -> list[Cause]:
    groups: dict[tuple[str, ...], list[_Error]] = {}
    for error in sorted(errors):
        key = error.boundary, error.function, pattern_of(error.message[:SEARCHED_CHARS])
        groups.setdefault(key, []).append(error)
    causes = [Cause(_text(group[0]), group[0].boundary, [error.run for error in group]) for group in groups.values()]
    return sorted(causes, key=lambda cause: -len(cause.runs))


def _error(record: RunRecord, function: str) -> _Error:
    """Return why a function gave no score, without the number of tries and the answer of its judge."""
    error = reward_error(record, function)
    message = _TRIES.sub("", error.message.partition(ITS_ANSWER)[0], count=1)
    return _Error(record.run, error.boundary, function, message)


def _text(error: _Error) -> str:
    text = one_line(error.message.removeprefix(_ANSWERED), TEXT_CHARS) or "no message"
    return f"{error.function}: {text}" if error.function else text


def too_many(causes: Sequence[Cause], n_runs: int, limit: str) -> str:
    """Return why an eval stopped that could not measure more of its `n_runs` runs than `limit` allows.

    >>> runs = [RunId(row, 0) for row in range(46)]
    >>> too_many([Cause("502 Bad Gateway", "provider", runs), Cause("a bug", "agent", runs)], 120, "10%")
    '46 of 120 runs not measured (limit 10%), mostly 502 Bad Gateway'
    """
    unmeasured = [cause for cause in causes if not cause.is_measured]
    n = sum(len(cause.runs) for cause in unmeasured)
    text = f"{count(n)} of {plural(n_runs, 'run')} not measured (limit {limit})"
    if not unmeasured:
        return text
    often = "mostly" if 2 * len(unmeasured[0].runs) > n else "most often"
    return f"{text}, {often} {unmeasured[0].short_text}"
