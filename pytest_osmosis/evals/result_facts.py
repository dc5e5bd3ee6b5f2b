"""The facts that results need besides the events of runs, so that they can be made again from a run directory.

Those that are known at the begin of a session are in the journal, those of its end in the manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from pytest_osmosis.evals.prepared import Prepared, pass_rule
from pytest_osmosis.evals.selected_runs import SelectedRuns
from pytest_osmosis.formats.codec import encode
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.results.conclude import Rules
from pytest_osmosis.results.shards import BaselineFile, ShardFacts, max_errors_text
from pytest_osmosis.text.names import absolute, shown


def planned_rules(prepared: Prepared, selected: SelectedRuns, *, updates_baseline: bool) -> Rules:
    """Return the rules of an eval run that begins."""
    share = f"only {len(selected.of_baseline):,} of the baseline's {selected.plan.n_runs:,} runs selected"
    return Rules(
        gates=prepared.config.gates,
        part=selected.share_text if selected.partial else None,
        baseline_part=share if prepared.models.baseline is not None and selected.lacks_baseline else None,
        new_baseline=updates_baseline,
        baseline_results=prepared.models.baseline_results,
    )


def planned_shard(prepared: Prepared, selected: SelectedRuns, rules: Rules) -> ShardFacts | None:
    """Return the shard of an eval run that begins, None if it is not limited to one."""
    shard, part, stored = prepared.shard, prepared.part, prepared.models.baseline_results
    if shard is None or part is None:
        return None
    limits, whole = prepared.config.limits, selected.awaits_merge
    return ShardFacts(
        shard=shard,
        rows=part.n_rows,
        planned_rows=prepared.plan.n_rows,
        planned_runs=prepared.plan.n_runs,
        whole=whole,
        missing=None if whole else selected.share_text,
        decides=gates_decide(selected, rules),
        max_errors=limits.max_errors,
        max_errors_is_share=limits.max_errors_is_share,
        baseline=None if stored is None else BaselineFile.of(stored.path, shown(stored.path)),
    )


def gates_decide(selected: SelectedRuns, rules: Rules) -> bool:
    """Return True if gates decide in place of single runs: now, or for a shard once all shards are merged."""
    return (not selected.partial or selected.awaits_merge) and rules.decide


def facts_at_begin(
    prepared: Prepared, selected: SelectedRuns, provenance: Mapping[str, Any], session: str, *, updates_baseline: bool
) -> dict[str, Any]:
    """Return the facts of the session that began at `session`, for its `loaded` event. `result_facts` reads them."""
    config, rules = prepared.config, planned_rules(prepared, selected, updates_baseline=updates_baseline)
    stored, shard, limits = rules.baseline_results, planned_shard(prepared, selected, rules), config.limits
    facts = {
        "session": session,
        "description": prepared.description,
        "pass_rule": pass_rule(config).to_json(),
        "gates": rules.gates,
        "provenance": provenance,
        "prices": {tag: None if price is None else price.to_json() for tag, price in prepared.all_prices.items()},
        "baseline": None
        if prepared.models.baseline is None or not selected.of_baseline
        else prepared.models.baseline.name,
        "baseline_results": None if stored is None else BaselineFile.of(stored.path, str(absolute(stored.path))),
        "selected": list(_spans(selected.runs)),
        "partial": selected.partial,
        "part": rules.part,
        "baseline_part": rules.baseline_part,
        "new_baseline": rules.new_baseline,
        "smoke": selected.smoke,
        "n_planned": prepared.plan.n_runs,
        "human": prepared.human,
        "previous": None if prepared.last is None else str(absolute(prepared.last.path)),
        "shard": None if shard is None else shard.to_json(),
        "max_errors": max_errors_text(limits.max_errors, is_share=limits.max_errors_is_share),
        "took_ms": prepared.source.rollouts_took_ms(0.0),
        "is_part": prepared.source.leaves_out(selected),
        "status_before": prepared.source.status_before,
    }
    made: dict[str, Any] = encode(facts)
    return made


def _spans(runs: Sequence[RunId]) -> Iterator[list[Any]]:
    """Yield runs as [model, index, first row, number of rows]."""
    ordered = sorted(runs, key=lambda run: (run.model, run.index, run.row))
    for (model, index), group in groupby(ordered, key=lambda run: (run.model, run.index)):
        first, number = -1, 0
        for run in group:
            if run.row != first + number:
                if number:
                    yield [str(model), index, first, number]
                first, number = run.row, 0
            number += 1
        yield [str(model), index, first, number]
