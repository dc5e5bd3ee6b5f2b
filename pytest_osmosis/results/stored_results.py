"""The results of a stored eval run, whatever its status.

The numbers are those of its results.json, and the journal adds what that file leaves out. An eval run without results
of its last session, because it is running or was killed, gets them from its manifest and its journal: they cover the
runs that ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pytest_osmosis.models.prices import Price
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.journal import event_at, replay_with_positions
from pytest_osmosis.record.lifecycle import Lifecycle, Status, lifecycle_of
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import NOTHING, Event, Ledger, RunRecord, settled
from pytest_osmosis.results import results
from pytest_osmosis.results.calibration import HumanScores
from pytest_osmosis.results.cassette_use import CassetteUse
from pytest_osmosis.results.judge_totals import PriceOf, shown_name
from pytest_osmosis.results.publish import published
from pytest_osmosis.results.read import PublishedResults, PublishedSettings, read_results, read_row_digests
from pytest_osmosis.results.read_back import (
    agrees,
    cassette_of,
    comparison_of,
    previous_of,
    price_of,
    record_of,
    rescored_of,
    run_id_of,
    verdict_of,
)
from pytest_osmosis.results.results import EvalDescription, ModelResults, Results, Throttling
from pytest_osmosis.text.paths import shown
from pytest_osmosis.verdicts.gates import Verdict
from pytest_osmosis.verdicts.pass_rule import PassRule

Positions = Mapping[tuple[str, RunId, int], int]
"""Positions in a journal by kind of event, run and attempt."""
_AT = "position"
_OWN_CONFIG = frozenset(
    {"model", "n_runs", "pass_threshold", "eval_fns", "name", "thresholds", "decide", "price", "baseline_model"}
)
"""Keys of the published config that `EvalDescription` does not keep under `extra`."""


@dataclass(frozen=True, slots=True)
class StoredResults:
    """All that a run directory says about its eval run.

    `results` holds all selected runs, or those that ended if it `is_from_journal`. It is None if the thresholds are not
    known, because an earlier version wrote the manifest and there are no results. `costs_usd` holds the known costs.
    `begun` are the runs that had begun and not ended. `document` is the published object, `replayed` the journal.
    """

    run: StoredEvalRun
    lifecycle: Lifecycle
    records: Sequence[RunRecord]
    results: Results | None
    document: Mapping[str, Any]
    costs_usd: Mapping[RunId, float]
    begun: Sequence[RunId] = ()
    is_from_journal: bool = False
    replayed: Replayed = field(default_factory=lambda: Replayed(Ledger(), {}))

    @property
    def status(self) -> Status:
        return self.lifecycle.status

    def rollout(self, record: RunRecord) -> Event:
        """Return the event of a run's rollout, empty if the journal has none. Raises `JournalError`."""
        return self._event("rollout", record)

    def score(self, record: RunRecord) -> Event:
        """Return the event of a run's last score, empty if the journal has none. Raises `JournalError`."""
        return self._event("score", record)

    def _event(self, kind: str, record: RunRecord) -> Event:
        at = self.replayed.positions.get((kind, record.run, record.attempt))
        return {} if at is None else event_at(self.run.directory.journal, at)


def read_stored(run: StoredEvalRun) -> StoredResults:
    """Read an eval run. Raises `OsmosisError` if its results or its journal cannot be read."""
    journal = run.directory.journal
    lifecycle = lifecycle_of(run.directory)
    has_results = run.results is not None and lifecycle.results_are_current
    published_results = read_results(run.results) if has_results and run.results is not None else None
    found = replayed(journal)
    if published_results is None:
        return _from_journal(run, lifecycle, found)
    made = _results(run, published_results, found.ledger)
    if lifecycle.status != "finished" and made.rescored is not None:
        made = replace(made, stopped=None, stop_reason=None, rescored=replace(made.rescored, before=lifecycle))
    runs = (each for row in published_results.rows for each in row.runs)
    costs = {each.id: each.cost_usd for each in runs if each.cost_usd is not None}
    return StoredResults(
        run,
        lifecycle,
        made.all_records,
        made,
        published_results.document,
        costs,
        replayed=found,
    )


class Replayed(NamedTuple):
    """A journal, folded: its ledger, and the position of each run's rollout and last score, by attempt.

    `loaded` is the last event about the code that scores, `rows` the last one about the digests of rows.
    """

    ledger: Ledger
    positions: Positions
    loaded: Event = NOTHING
    rows: Event = NOTHING

    @property
    def row_digests(self) -> Mapping[int, str]:
        """The published digests of rows, by index; an earlier version did not write them."""
        return {int(row): digest for row, digest in self.rows.get("digests", NOTHING).items()}


def replayed(journal: Path) -> Replayed:
    """Return what a journal comes to. Raises `JournalError`."""
    ledger, positions, last = Ledger(), dict[tuple[str, RunId, int], int](), dict[str, Event]()
    events = ({**event, _AT: position} for position, event in replay_with_positions(journal))
    for event in settled(events):
        ledger.apply(event)
        if event["ev"] == "score" or (event["ev"] == "rollout" and _key(event) not in positions):
            positions[_key(event)] = event[_AT]
        if event["ev"] in ("loaded", "rows"):
            last[event["ev"]] = event
    return Replayed(ledger, positions, last.get("loaded", NOTHING), last.get("rows", NOTHING))


def _key(event: Event) -> tuple[str, RunId, int]:
    return event["ev"], RunId.of(event), event["attempt"]


def row_digests_of(run: StoredEvalRun, found: Replayed) -> Mapping[int, str]:
    """Return the published digests of an eval run's rows, by index, as far as they are known: `found` is its journal.

    Raises `ResultsError` if it has results that cannot be read.
    """
    return found.row_digests if run.results is None else read_row_digests(run.results)


# -- with results ------------------------------------------------------------------------------------------


def _results(run: StoredEvalRun, read: PublishedResults, ledger: Ledger) -> Results:
    data, config, pass_rule = read.document, read.config, read.pass_rule
    records = list(_records(data, ledger, pass_rule.scorers))
    own = [record for record in records if not record.run.is_baseline]
    throttling = data["summary"]["throttling"]
    previous, compared, rescored = data["last_run"], data["baseline"], data["rescored"]
    changed = read.changed_rows
    n_rows = len({record.run.row for record in records})
    verdicts = [verdict_of(gate) for gate in data["gates"]]
    allowed = [-rule.minimum for verdict in verdicts if (rule := verdict.rule) is not None and rule.is_regression]
    by_function, overall = results.summarize(own, pass_rule, config["n_runs"])
    return Results(
        description=EvalDescription(
            config["name"],
            config["model"],
            config["n_runs"],
            {key: value for key, value in config.items() if key not in _OWN_CONFIG},
        ),
        pass_rule=pass_rule,
        records=own,
        partial=read.partial,
        stopped=read.stop_reason,
        duration_ms=read.duration_s * 1000,
        by_function=by_function,
        overall=overall,
        verdicts=verdicts,
        provenance={**_without_cassette(data["provenance"]), "run_dir": shown(run.directory.path)},
        price=price_of(config["price"]),
        row_digests={row.index: row.digest for row in read.rows},
        human=_human(data),
        previous=None if previous is None else previous_of(previous, n_rows, changed.get("last_run", ())),
        comparison=None
        if compared is None
        else comparison_of(compared, n_rows, changed.get("baseline", ()), next(iter(allowed), 0.0)),
        rescored=None if rescored is None else rescored_of(rescored, n_rows, changed.get("rescored", ())),
        baseline=_baseline(data, records, pass_rule),
        smoke_of=data.get("smoke_of"),
        stop_reason=data.get("stopped_by"),
        n_planned=run.manifest.plan.n_runs,
        throttling=Throttling(
            throttling["pauses"],
            throttling["paused_s"],
            throttling["least_in_flight"],
            config["batch_size"],
            throttling["held_s"],
        ),
        judge_price=_judge_price(data["summary"].get("judges")),
        cassette=cassette_of(data["provenance"].get("cassette")),
    )


def _without_cassette(provenance: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in provenance.items() if key != "cassette"}


def _judge_price(judges: Mapping[str, Any] | None) -> PriceOf:
    """Return the prices of judges that results contain."""
    prices = {name: price_of(sums["price"]) for name, sums in judges["models"].items()} if judges is not None else {}
    return lambda use: prices.get(shown_name(use))


def _human(data: Mapping[str, Any]) -> HumanScores | None:
    """Return the scores by humans that results hold, None if the eval had none."""
    published = data.get("calibration")
    if published is None:
        return None
    by_row = {row["row_index"]: row["human_score"] for row in data["rows"] if row.get("human_score") is not None}
    return HumanScores(published["column"], by_row, published["tolerance"])


def _records(data: Mapping[str, Any], ledger: Ledger, scorers: tuple[str, ...]) -> Iterator[RunRecord]:
    """Yield the records of all selected runs, the journal's if it agrees with the results."""
    for row in data["rows"]:
        for run in row["runs"]:
            id = run_id_of(row["row_index"], run)
            record = ledger.records.get(id)
            yield record if record is not None and agrees(record, run) else record_of(id, run, scorers)
    for run in data["pending"]:
        id = run_id_of(run["row_index"], run)
        yield (ledger.records.get(id) or RunRecord(id))._replace(rolled=False, skip_reason=run["reason"])


def _baseline(data: Mapping[str, Any], records: Sequence[RunRecord], pass_rule: PassRule) -> ModelResults | None:
    of_baseline = [record for record in records if record.run.is_baseline]
    models = {summary["model_tag"]: summary for summary in data.get("model_summaries", ())}
    if ModelTag.BASELINE not in models:
        return None
    model = models[ModelTag.BASELINE]
    summaries = results.summarize(of_baseline, pass_rule, data["config"]["n_runs"])
    return ModelResults(model["model"], of_baseline, *summaries, price_of(model["price"]))


# -- without results ---------------------------------------------------------------------------------------


def _from_journal(run: StoredEvalRun, lifecycle: Lifecycle, found: Replayed) -> StoredResults:
    ledger = found.ledger
    ended = [ledger.records[id] for id in sorted(ledger.records) if ledger.records[id].status != "pending"]
    begun = [
        id for id in sorted(ledger.records) if (record := ledger.records[id]).started and record.status == "pending"
    ]
    why = "the eval run has not ended yet"
    if lifecycle.has_ended:
        why = "the eval run did not end" if lifecycle.was_killed else "its results were not written"
    made = _results_so_far(run, ended, found, why)
    reason = {} if lifecycle.reason is None else {"stop_reason": lifecycle.reason}
    end = {"status": lifecycle.status, **reason, "stopped_by": lifecycle.stopped_by}
    document = {} if made is None else {**published(made), **end}
    costs = {} if made is None else made.costs_usd
    return StoredResults(run, lifecycle, ended, made, document, costs, begun, True, found)


def _results_so_far(run: StoredEvalRun, ended: Sequence[RunRecord], found: Replayed, why: str) -> Results | None:
    """Return the results of the runs that ended. Its gates are not decided, for the reason `why`."""
    manifest = run.manifest
    pass_rule = pass_rule_of(run, None, found.ledger.scorers)
    if pass_rule is None:
        return None
    own, of_baseline = ([record for record in ended if record.run.is_baseline == is_one] for is_one in (False, True))
    by_function, overall = results.summarize(own, pass_rule, manifest.subject.n)
    other = manifest.baseline
    return Results(
        description=EvalDescription(manifest.eval, manifest.subject.model, manifest.subject.n, manifest.subject.extra),
        pass_rule=pass_rule,
        records=own,
        partial=True,
        stopped=None,
        duration_ms=_took_ms(run),
        by_function=by_function,
        overall=overall,
        verdicts=[Verdict(title, "not decided", why) for title in manifest.gates],
        provenance={"run_dir": shown(run.directory.path), "started_at": manifest.started_at},
        cassette=None
        if manifest.cassette is None
        else CassetteUse(manifest.cassette["mode"], manifest.cassette["path"]),
        price=_price(run, ModelTag.PRIMARY),
        row_digests={record.run.row: found.row_digests.get(record.run.row, "") for record in ended},
        judge_price=_judge_price_of(run),
        smoke_of=manifest.plan.n_runs if manifest.smoke else None,
        n_planned=manifest.plan.n_runs,
        baseline=None
        if other is None
        else ModelResults(
            other.model,
            of_baseline,
            *results.summarize(of_baseline, pass_rule, manifest.subject.n),
            _price(run, ModelTag.BASELINE),
        ),
    )


def pass_rule_of(
    run: StoredEvalRun, published_results: PublishedResults | PublishedSettings | None, scorers: Sequence[str]
) -> PassRule | None:
    """Return the rule by which runs pass that `scorers` scored, None if the thresholds are not known."""
    if published_results is not None:
        return replace(published_results.pass_rule, scorers=tuple(scorers))
    rule = run.manifest.pass_rule
    if rule is None:
        return None
    pass_rule = PassRule(tuple(scorers), rule["pass_threshold"], rule["thresholds"], rule["decide"])
    return pass_rule if {*pass_rule.deciding} <= {*scorers} else None


def cost_of(run: StoredEvalRun, published_results: PublishedResults | None, record: RunRecord) -> float | None:
    """Return the cost of one run, None if it is not known."""
    if published_results is not None:
        return published_results.cost_of(record.run)
    price = _price(run, record.run.model)
    return None if price is None else price.cost_usd(record.usage)


def _price(run: StoredEvalRun, model: ModelTag) -> Price | None:
    return price_of(run.manifest.prices.get(model))


def _judge_price_of(run: StoredEvalRun) -> PriceOf:
    """Return the price of the judge that the config names, if the manifest holds one."""
    judge, price = run.manifest.subject.extra.get("judge", {}), price_of(run.manifest.prices.get("judge"))
    return lambda use: price if (use.model, use.base_url) == (judge.get("model"), judge.get("base_url")) else None


def _took_ms(run: StoredEvalRun) -> float:
    """Return the time from the eval run's start to the last line of its journal."""
    try:
        last = run.directory.journal.stat().st_mtime
    except OSError:  # removed meanwhile
        return 0.0
    return max(0.0, last - datetime.fromisoformat(run.manifest.started_at).timestamp()) * 1000
