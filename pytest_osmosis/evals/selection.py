"""Which runs of an eval a session selected, and how much of the plan they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_osmosis.evals.prepared import Prepared
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import RunId, plan_order


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected `runs`, in plan order: the eval's `own`, and those `of_baseline`.

    One that is `partial` decides no gate: the plan holds others of its own too, or it is a smoke test.
    """

    plan: Plan
    smoke: bool
    runs: Sequence[RunId]
    own: Sequence[RunId]
    of_baseline: Sequence[RunId]
    partial: bool
    lacks_baseline: bool

    @classmethod
    def of(cls, prepared: Prepared, selected: Sequence[RunId], *, partial: bool | None = None) -> Selection:
        """Those of a prepared eval; `partial` where others know that better than the plan."""
        runs, plan, smoke = sorted(selected, key=plan_order), prepared.plan, prepared.smoke is not None
        own, of_baseline = ([run for run in runs if run.is_baseline == baseline] for baseline in (False, True))

        def lacks(chosen: Sequence[RunId], *, baseline: bool) -> bool:
            return not {*chosen}.issuperset(run for run in plan.runs() if run.is_baseline == baseline)

        if partial is None:
            partial = smoke or lacks(own, baseline=False)
        return cls(plan, smoke, runs, own, of_baseline, partial, lacks(of_baseline, baseline=True))

    @property
    def part(self) -> str:
        """How much of the plan was selected, in words."""
        plan = self.plan
        if plan.granularity == "row" and not self.smoke:
            return f"{len({run.row for run in self.runs}):,} of {plan.n_rows:,} rows"
        return f"{'smoke: ' * self.smoke}{len(self.own):,} of {plan.n_runs:,} runs"
