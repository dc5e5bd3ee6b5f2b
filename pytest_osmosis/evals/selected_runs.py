"""The runs of an eval that a session performs, and how much of the plan they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_osmosis.evals.prepared import Prepared
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import RunId, plan_order


@dataclass(frozen=True, slots=True)
class SelectedRuns:
    """The selected `runs` in plan order: `own` are those of the eval's model, `of_baseline` those of its baseline.

    A `partial` selection decides no gate: it is a smoke test, or the plan holds further runs of the eval's model.
    """

    plan: Plan
    smoke: bool
    runs: Sequence[RunId]
    own: Sequence[RunId]
    of_baseline: Sequence[RunId]
    partial: bool
    lacks_baseline: bool

    @classmethod
    def of(cls, prepared: Prepared, selected: Sequence[RunId], *, partial: bool | None = None) -> SelectedRuns:
        """Return the selected runs of a prepared eval. `partial` overrides what follows from the plan."""
        runs, plan, smoke = sorted(selected, key=plan_order), prepared.plan, prepared.smoke is not None
        own, of_baseline = ([run for run in runs if run.is_baseline == baseline] for baseline in (False, True))

        def lacks(chosen: Sequence[RunId], *, baseline: bool) -> bool:
            return not {*chosen}.issuperset(run for run in plan.runs() if run.is_baseline == baseline)

        if partial is None:
            partial = smoke or lacks(own, baseline=False)
        return cls(plan, smoke, runs, own, of_baseline, partial, lacks(of_baseline, baseline=True))

    @property
    def share_text(self) -> str:
        """The selected share of the plan in words: "only 20 of 100 runs selected"."""
        plan = self.plan
        if plan.granularity == "row" and not self.smoke:
            return f"only {len({run.row for run in self.runs}):,} of {plan.n_rows:,} rows selected"
        return f"only {len(self.own):,} of {plan.n_runs:,} runs selected"
