"""Results, made again from the manifest and the journal of an eval run alone, by the rules of its last session.

For a run that died they are those of a session that stopped there: its runs that never ended are pending, and gates
that they could decide are not decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, TypedDict

from pytest_osmosis.config.tables import GateRule
from pytest_osmosis.errors import ResultsError
from pytest_osmosis.files.reading import FileFault, open_file
from pytest_osmosis.formats.codec import Amount, Count, Positive, ShapeFault, decode
from pytest_osmosis.models.prices import Price
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.lifecycle import WAS_KILLED, Lifecycle, lifecycle_of
from pytest_osmosis.record.manifest import PassRuleFields
from pytest_osmosis.record.plan import selected_runs
from pytest_osmosis.record.run_id import ModelTag, RunId, plan_order
from pytest_osmosis.record.run_record import RunRecord, left_out
from pytest_osmosis.record.stop import Stop
from pytest_osmosis.results import results
from pytest_osmosis.results.conclude import (
    Rules,
    compared_with_baseline,
    differing_settings,
    judged,
    since_previous,
    stop_of,
)
from pytest_osmosis.results.entry_table import EntryPlace
from pytest_osmosis.results.publish import published, published_config
from pytest_osmosis.results.read import (
    Gate,
    PublishedChange,
    PublishedHead,
    PublishedRescoring,
    PublishedResults,
    read_head,
    read_results,
)
from pytest_osmosis.results.results import EvalDescription, Rescored, Results, ShardFacts, Throttling
from pytest_osmosis.results.stored_results import Replayed, read_stored, replayed
from pytest_osmosis.results.totals import CassetteUse, HumanScores, PriceOf, price_of, price_of_judge, shown_name
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.verdicts.gates import verdict_without_value
from pytest_osmosis.verdicts.pass_rule import PassRule


class DescriptionFields(TypedDict):
    name: str
    model: str
    n: Positive
    extra: Mapping[str, Any]


class GateFields(TypedDict):
    metric: str
    minimum: float
    rule: str
    k: Positive | None
    function: str | None


class FileFields(TypedDict):
    path: str
    sha256: str


class HumanFields(TypedDict):
    column: str
    tolerance: float | None
    by_row: Mapping[str, float]


class StatusFields(TypedDict):
    status: str
    reason: str | None
    stopped_by: str | None


class FactsFields(TypedDict):
    """The facts in a `loaded` event."""

    session: str
    description: DescriptionFields
    pass_rule: PassRuleFields
    gates: Sequence[GateFields]
    provenance: Mapping[str, Any]
    prices: Mapping[str, Mapping[str, Any] | None]
    baseline: str | None
    baseline_results: FileFields | None
    selected: Sequence[tuple[Any, Any, Any, Any]]
    partial: bool
    part: str | None
    baseline_part: str | None
    new_baseline: bool
    smoke: bool
    n_planned: Count
    human: HumanFields | None
    previous: str | None
    shard: Mapping[str, Any] | None
    max_errors: str
    took_ms: Amount
    status_before: StatusFields | None


_BROKEN = (KeyError, TypeError, ValueError, AttributeError, IndexError)
TIMES = frozenset(
    {"total_duration_ms", "finished_at", "duration_ms", "scoring_ms", "paused_s", "held_s", "least_in_flight", "pauses"}
)
"""Keys of published results that hold times, or follow from the moment at which something happened."""


@dataclass(frozen=True, slots=True)
class RebuiltResults:
    """The published object of an eval run, made of its journal; `notes` say what could not be made again."""

    document: Mapping[str, Any]
    notes: Sequence[str] = ()


def rebuild(run: StoredEvalRun) -> RebuiltResults:
    """Make the results of an eval run again. Raises `OsmosisError`."""
    found = replayed(run.directory.journal)
    if not found.facts:
        none = read_stored(run, found)
        document = published(none.results) | none.lifecycle.to_json()
        return RebuiltResults(document, ["its code was never loaded, so none of its runs began"])
    where = shown(run.directory.journal)
    try:
        decode(found.facts, FactsFields)
        return _Rebuilding(run, found).results()
    except ShapeFault as fault:
        raise ResultsError(f"{where}: {fault.within('result_facts')}") from None
    except _BROKEN as error:
        raise ResultsError(f"{where}: its result_facts, or those in the manifest, are not valid: {error!r}") from None


class _Rebuilding:
    def __init__(self, run: StoredEvalRun, found: Replayed) -> None:
        self._run = run
        self._found = found
        self._facts = facts = found.facts
        self._is_rescored = facts["status_before"] is not None
        at_end = run.manifest.result_facts
        self._end = at_end if at_end.get("session") == facts["session"] else {}
        self._lifecycle = lifecycle_of(run.directory)
        self._notes: list[str] = []
        self._pass_rule = PassRule.of(found.ledger.scorers, facts["pass_rule"])
        self._stop = self._last_stop()

    def results(self) -> RebuiltResults:
        measured = self._measured()
        lost = self._lost_baseline()
        rules = self._rules(measured)
        compared = compared_with_baseline(measured, rules)
        if compared is not None and self._end.get("evals_compared", 1) > 1:
            compared = compared.among(self._end["evals_compared"], self._end["p_adjusted"])
        made = judged(measured, rules, compared)
        if lost is not None and rules.part is None:
            made = replace(
                made,
                verdicts=[
                    verdict_without_value(each.rule, "not measured", lost)
                    if each.rule is not None and each.rule.is_regression and not rules.new_baseline
                    else each
                    for each in made.verdicts
                ],
            )
        if not self._end and self._lifecycle.has_ended:
            self._notes.append("its session did not say when it finished, so times are those of the journal")
        made = replace(
            made,
            verdicts=[*made.verdicts, *(decode(each, Gate).verdict for each in self._end.get("verdicts", ()))],
            previous=self._since_previous(measured),
            rescored=self._rescored(len({record.run.row for record in measured.all_records})),
            among=None if (table := self._end.get("comparison")) is None else decode(table, EntryPlace),
        )
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
        facts, found, end = self._facts, self._found, self._end
        runs = sorted(selected_runs(facts["selected"]), key=plan_order)
        made = results.of_records(
            EvalDescription(**facts["description"]),
            self._pass_rule,
            self._records(runs),
            self._price(ModelTag.PRIMARY),
            facts["baseline"],
            self._price(ModelTag.BASELINE),
        )
        stop = stop_of(self._stop, made.records, self._pass_rule, facts["max_errors"])
        human, shard = facts["human"], facts["shard"]
        throttling = end.get("throttling")
        digests = found.digests_since if self._is_rescored else found.digests  # of rows that the dataset still has
        return replace(
            made,
            partial=facts["partial"],
            stopped=None if stop is None else stop.text,
            stop_reason=None if stop is None or stop.reason == "closed" else stop.reason,
            duration_ms=end["duration_ms"] if end else facts["took_ms"] + self._took_ms(),
            provenance=self._provenance(),
            judge_price=self._judge_price(),
            row_digests={int(row): digest for row, digest in digests.items()},
            human=None
            if human is None
            else HumanScores(
                human["column"], {int(row): score for row, score in human["by_row"].items()}, human["tolerance"]
            ),
            smoke_of=facts["n_planned"] if facts["smoke"] else None,
            n_planned=facts["n_planned"],
            shard=None
            if shard is None
            else replace(
                decode(shard, ShardFacts),
                baseline_stopped=found.ended.get("baseline_stopped"),
                code=end["shard_code"] if end else found.loaded.get("digests", {}),
            ),
            cassette=self._cassette(),
            throttling=Throttling()
            if throttling is None
            else Throttling(
                throttling["pauses"],
                throttling["paused_s"],
                throttling["least_in_flight"],
                held_s=throttling["held_s"],
            ),
        )

    def _records(self, runs: Sequence[RunId]) -> list[RunRecord]:
        """Return the records of runs; those that never ended because the process died say so."""
        made = results.records_of(runs, self._found.ledger.records)
        if self._is_rescored:
            return [record if record.skip_reason is None else left_out(record) for record in made]
        if self._stop is None or self._stop.reason != "killed":
            return made
        return [
            record._replace(skip_reason=self._stop.text)
            if record.status == "pending" and record.skip_reason is None
            else record
            for record in made
        ]

    def _rules(self, measured: Results) -> Rules:
        facts, stored = self._facts, self._baseline
        config = published_config(measured.description, measured.pass_rule)
        return Rules(
            gates=[GateRule(**rule) for rule in facts["gates"]],
            part=facts["part"],
            baseline_part=facts["baseline_part"],
            new_baseline=facts["new_baseline"],
            baseline_results=stored,
            differs=() if stored is None else differing_settings(stored, config, Redaction()),
            baseline_stopped=self._found.ended.get("baseline_stopped"),
        )

    _baseline: PublishedResults | None = None

    def _lost_baseline(self) -> str | None:
        """Read the file of the baseline. Return why it is not what the session compared with, None if it is."""
        file = self._facts["baseline_results"]
        if file is None:
            return None
        path = Path(file["path"])
        lost = f"the baseline {shown(path)} has changed since"
        try:
            with open_file(path) as opened:
                is_same = sha256(opened.read()).hexdigest() == file["sha256"]
            if is_same:
                self._baseline = read_results(path)
                return None
        except (FileFault, OSError, ResultsError):
            lost = f"the baseline {shown(path)} can no longer be read"
        self._notes.append(f"{lost}, so nothing is compared with it")
        return lost

    def _since_previous(self, measured: Results) -> Any:
        name = self._facts["previous"]
        if name is None or not measured.whole:
            return None
        path, digest = Path(name), self._facts["provenance"].get("plan_digest", "")
        head = _head_of(path, digest)
        if head is None:
            self._notes.append(f"the previous run {shown(path)} can no longer be read, so nothing is compared with it")
            return None
        return since_previous(measured, head)

    def _rescored(self, n_rows: int) -> Rescored | None:
        before = self._facts["status_before"]
        if before is None:
            return None
        data = self._end.get("rescored")
        lifecycle = Lifecycle(before["status"], before["reason"], stopped_by=before["stopped_by"])
        if data is None:
            return Rescored(self._run.manifest.started_at, 0.0, {}, None, lifecycle)
        changed = [decode(each, PublishedChange).row for each in self._end["changed_rows"]]
        return decode(data, PublishedRescoring).rescored(n_rows, changed, lifecycle)

    def _provenance(self) -> Mapping[str, Any]:
        if self._end:
            return dict(self._end["provenance"])
        git = self._run.manifest.git or {"git_commit": None, "git_dirty": None}
        begun = self._facts["provenance"]
        lost = {"lost_in_flight": self._found.ledger.most_lost} if "sessions" in begun else {}  # else a rescore
        return {**begun, **git, **lost, "finished_at": self._last_at().isoformat(timespec="milliseconds")}

    def _last_at(self) -> datetime:
        if self._found.ended:
            return datetime.fromisoformat(self._found.ended["at"])
        return datetime.fromtimestamp(self._run.directory.journal.stat().st_mtime, UTC)

    def _took_ms(self) -> float:
        """Estimate the duration of the last session."""
        took = self._last_at() - datetime.fromisoformat(self._facts["session"])
        return 0.0 if self._is_rescored else max(0.0, took.total_seconds() * 1000)

    def _cassette(self) -> CassetteUse | None:
        if self._end:
            return None if self._end["cassette"] is None else decode(self._end["cassette"], CassetteUse)
        then = self._run.manifest.cassette
        if then is None:
            return None
        self._notes.append("how much came from the cassette is not known")
        return CassetteUse(then["mode"], then["path"])

    def _price(self, tag: ModelTag) -> Price | None:
        return price_of(self._facts["prices"].get(tag))

    def _judge_price(self) -> PriceOf:
        """Return the prices of judges that were asked; without the end of the session, of the one in the config."""
        known = {name: price_of(price) for name, price in self._end.get("judge_prices", {}).items()}
        of_config = price_of_judge(self._facts["description"]["extra"], self._facts["prices"])
        return lambda use: known[name] if (name := shown_name(use)) in known else of_config(use)


def _head_of(path: Path, digest: str) -> PublishedHead | None:
    """Return the head of the results of another eval run; also if they were kept under another name meanwhile."""
    try:
        head = read_head(path)
    except ResultsError:
        return None
    return head if head.provenance["plan_digest"] == digest and head.is_whole else None


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
