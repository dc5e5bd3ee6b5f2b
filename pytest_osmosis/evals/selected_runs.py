"""The runs of an eval that a session performs, and how much of the plan they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pytest_osmosis.evals.prepared import Prepared
from pytest_osmosis.record.plan import Plan, Shard
from pytest_osmosis.record.run_id import RowId, RunId, plan_order
from pytest_osmosis.text.numbers import plural


@dataclass(frozen=True, slots=True)
class SelectedRuns:
    """The selected `runs` in plan order: `own` are those of the eval's model, `of_baseline` those of its baseline.

    A `partial` selection decides no gate: it is a smoke test or a shard, the plan holds further runs of the eval's
    model, or the stored rollouts are those of a part of the plan. `unstored` are then those without a rollout.
    `companions` are runs that nobody selected: they are made because a reward function of the environment scores all
    runs of a row together. `lacks_runs` is true if further runs could have been selected: in a shard, runs of its rows.
    """

    plan: Plan
    smoke: bool
    runs: Sequence[RunId]
    own: Sequence[RunId]
    of_baseline: Sequence[RunId]
    partial: bool
    lacks_runs: bool
    lacks_baseline: bool
    unstored: Collection[RunId] = frozenset()
    shard: Shard | None = None
    companions: Collection[RunId] = frozenset()

    @classmethod
    def of(cls, prepared: Prepared, selected: Sequence[RunId], *, partial: bool | None = None) -> SelectedRuns:
        """Return the selected runs of a prepared eval. `partial` overrides what follows from the plan."""
        smoke, shard = prepared.smoke is not None, prepared.shard
        plan = prepared.part or prepared.plan
        companions = _companions(prepared, selected)
        runs = sorted([*selected, *companions], key=plan_order)
        own, of_baseline = ([run for run in runs if run.is_baseline == baseline] for baseline in (False, True))

        def lacks(chosen: Sequence[RunId], *, baseline: bool) -> bool:
            return not {*chosen}.issuperset(run for run in plan.runs() if run.is_baseline == baseline)

        lacks_runs, unstored = lacks(own, baseline=False), prepared.source.outside_of_stored_part
        if partial is None:
            partial = smoke or lacks_runs or bool(unstored) or shard is not None
        lacks_baseline = lacks(of_baseline, baseline=True)
        return cls(
            plan, smoke, runs, own, of_baseline, partial, lacks_runs, lacks_baseline, unstored, shard, companions
        )

    @property
    def awaits_merge(self) -> bool:
        """True for a whole shard: its gates are decided once all shards are merged."""
        return self.shard is not None and not (self.smoke or self.lacks_runs or self.unstored)

    @property
    def companions_text(self) -> str | None:
        """The runs besides the selected ones, and the reason for them; None without any."""
        if not self.companions:
            return None
        runs = plural(len(self.companions), "run")
        are = "is" if len(self.companions) == 1 else "are"
        why = "the environment scores all runs of a row together"
        return f"{runs} besides the selected ones {are} made and counted, and have no test of their own: {why}"

    @property
    def share_text(self) -> str:
        """The selected share of the plan in words: "only 20 of 100 runs selected"."""
        plan, of_shard = self.plan, "" if self.shard is None else f" of {self.shard}"
        if self.awaits_merge:
            return f"{self.shard}: merge decides"
        own = [run for run in self.own if run not in self.unstored]
        if plan.granularity == "row" and not self.smoke:
            return f"only {len({run.row for run in own}):,} of {plan.n_rows:,} rows{of_shard} selected"
        return f"only {len(own):,} of {plan.n_runs:,} runs{of_shard} selected"


def _companions(prepared: Prepared, selected: Sequence[RunId]) -> frozenset[RunId]:
    """Return the other runs of the selected rows if a reward function needs all runs of a row."""
    if prepared.environment is None or not prepared.environment.grouped:
        return frozenset()
    rows = {RowId(run.row, run.model) for run in selected}
    return frozenset(run for row in rows for run in prepared.plan.runs_of(row)).difference(selected)
