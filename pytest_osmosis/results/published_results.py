"""Results, made again from the published object: records and their statistics, comparisons and verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.results import results
from pytest_osmosis.results.calibration import HumanScores
from pytest_osmosis.results.entry_table import EntryPlace
from pytest_osmosis.results.judge_totals import PriceOf, shown_name
from pytest_osmosis.results.read import PublishedResults
from pytest_osmosis.results.read_back import (
    agrees,
    cassette_of,
    comparison_of,
    pending_record_of,
    previous_of,
    price_of,
    record_of,
    rescored_of,
    run_id_of,
    verdict_of,
)
from pytest_osmosis.results.results import EvalDescription, ModelResults, Results, Throttling
from pytest_osmosis.results.shards import ShardFacts
from pytest_osmosis.verdicts.pass_rule import PassRule

NOTHING: Mapping[RunId, RunRecord] = {}
_OWN_CONFIG = frozenset(
    {
        *("model", "n_runs", "pass_threshold", "eval_fns", "name", "thresholds", "decide", "score_ranges"),
        *("price", "baseline_model"),
    }
)
"""Keys of the published config that `EvalDescription` does not keep under `extra`."""


def results_of(read: PublishedResults, known: Mapping[RunId, RunRecord] = NOTHING) -> Results:
    """Return results as they were before they were published, with the records that are `known` from a journal.

    Results keep only the numbers of the rows that comparisons compared: see `read_back`.
    """
    data, config, pass_rule = read.document, read.config, read.pass_rule
    records = list(_records(data, known))
    own = [record for record in records if not record.run.is_baseline]
    throttling = data["summary"]["throttling"]
    shard = None if read.shard is None else ShardFacts.from_json(data["shard"])
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
        duration_ms=round(read.duration_s * 1000, 3),
        by_function=by_function,
        overall=overall,
        verdicts=verdicts,
        provenance={key: value for key, value in data["provenance"].items() if key != "cassette"},
        price=price_of(config["price"]),
        row_digests={
            row["row_index"]: row["row_digest"] for row in (*data["pending"], *data["rows"]) if "row_digest" in row
        },
        human=_human_scores(data),
        previous=None if previous is None else previous_of(previous, n_rows, changed.get("last_run", ())),
        comparison=None
        if compared is None
        else comparison_of(compared, n_rows, changed.get("baseline", ()), next(iter(allowed), 0.0)),
        rescored=None if rescored is None else rescored_of(rescored, n_rows, changed.get("rescored", ())),
        baseline=_baseline(data, records, pass_rule),
        smoke_of=data["smoke_of"],
        stop_reason=data["stopped_by"],
        n_planned=len(own) if shard is None else shard.planned_runs,
        shard=shard,
        throttling=Throttling(
            throttling["pauses"],
            throttling["paused_s"],
            throttling["least_in_flight"],
            config["batch_size"],
            throttling["held_s"],
        ),
        judge_price=_judge_price(data["summary"].get("judges")),
        cassette=cassette_of(data["provenance"].get("cassette")),
        among=EntryPlace.from_json(data.get("comparison")),
    )


def _judge_price(judges: Mapping[str, Any] | None) -> PriceOf:
    """Return the prices of judges that results contain."""
    prices = {name: price_of(sums["price"]) for name, sums in judges["models"].items()} if judges is not None else {}
    return lambda use: prices.get(shown_name(use))


def _baseline(data: Mapping[str, Any], records: Sequence[RunRecord], pass_rule: PassRule) -> ModelResults | None:
    of_baseline = [record for record in records if record.run.is_baseline]
    models = {summary["model_tag"]: summary for summary in data.get("model_summaries", ())}
    if ModelTag.BASELINE not in models:
        return None
    model = models[ModelTag.BASELINE]
    summaries = results.summarize(of_baseline, pass_rule, data["config"]["n_runs"])
    return ModelResults(model["model"], of_baseline, *summaries, price_of(model["price"]))


def _records(data: Mapping[str, Any], known: Mapping[RunId, RunRecord]) -> Iterator[RunRecord]:
    """Yield the records of all selected runs; those that are `known` from a journal, if it agrees with the results."""
    for row in data["rows"]:
        for run in row["runs"]:
            id = run_id_of(row["row_index"], run)
            record = known.get(id)
            yield record if record is not None and agrees(record, run) else record_of(id, run)
    for run in data["pending"]:
        id = run_id_of(run["row_index"], run)
        record = known.get(id)
        if record is not None and record.status == "pending":
            yield record._replace(skip_reason=run["reason"])
        else:
            yield pending_record_of(id, run)


def _human_scores(data: Mapping[str, Any]) -> HumanScores | None:
    """Return the scores by humans that results hold, None if the eval had none."""
    published = data["calibration"]
    if published is None:
        return None
    rows = (*data["rows"], *data["pending"])
    by_row = {row["row_index"]: row["human_score"] for row in rows if row.get("human_score") is not None}
    return HumanScores(published["column"], by_row, published["tolerance"])
