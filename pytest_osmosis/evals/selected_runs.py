"""The runs of an eval that a session performs, and how much of the plan they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pytest_osmosis.evals.prepared import Prepared
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import RunId, plan_order


@dataclass(frozen=True, slots=True)
class SelectedRuns:
    """The selected `runs` in plan order: `own` are those of the eval's model, `of_baseline` those of its baseline.

    A `partial` selection decides no gate: it is a smoke test, the plan holds further runs of the eval's model
    (`lacks_runs`), or the stored rollouts are those of a part of the plan. `unstored` are then those without a rollout.
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

    @classmethod
    def of(cls, prepared: Prepared, selected: Sequence[RunId], *, partial: bool | None = None) -> SelectedRuns:
        """Return the selected runs of a prepared eval. `partial` overrides what follows from the plan."""
        runs, plan, smoke = sorted(selected, key=plan_order), prepared.plan, prepared.smoke is not None
        own, of_baseline = ([run for run in runs if run.is_baseline == baseline] for baseline in (False, True))

        def lacks(chosen: Sequence[RunId], *, baseline: bool) -> bool:
            return not {*chosen}.issuperset(run for run in plan.runs() if run.is_baseline == baseline)

        lacks_runs, unstored = lacks(own, baseline=False), prepared.source.outside_of_stored_part
        if partial is None:
            partial = smoke or lacks_runs or bool(unstored)
        lacks_baseline = lacks(of_baseline, baseline=True)
        return cls(plan, smoke, runs, own, of_baseline, partial, lacks_runs, lacks_baseline, unstored)

    @property
    def share_text(self) -> str:
        """The selected share of the plan in words: "only 20 of 100 runs selected"."""
        plan = self.plan
        own = [run for run in self.own if run not in self.unstored]
        if plan.granularity == "row" and not self.smoke:
            return f"only {len({run.row for run in own}):,} of {plan.n_rows:,} rows selected"
        return f"only {len(own):,} of {plan.n_runs:,} runs selected"
