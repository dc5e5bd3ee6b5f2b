"""Gates about which an eval run decides nothing, whatever its runs give: they need runs that were not selected."""

from __future__ import annotations

from pytest_osmosis.config.tables import GateRule
from pytest_osmosis.evals.run import EvalRun
from pytest_osmosis.verdicts.gates import Verdict, verdict_without_value


def undecided(rule: GateRule, run: EvalRun) -> Verdict | None:
    """Return the verdict of a gate that this eval run cannot decide, None if its runs decide it."""
    selected = run.selected
    if selected.partial:
        return verdict_without_value(rule, "partial", selected.share_text)
    if not rule.is_regression:
        return None
    if run.updates_baseline:
        return verdict_without_value(rule, "not decided", "this command writes a new baseline")
    if selected.lacks_baseline:
        n_selected, n_planned = len(selected.of_baseline), selected.plan.n_runs
        text = f"only {n_selected:,} of the baseline's {n_planned:,} runs selected"
        return verdict_without_value(rule, "partial", text)
    return None


def gates_decide(run: EvalRun) -> bool:
    """Return True if gates decide in place of single runs.

    One that can be decided is enough. A command that writes a new baseline accepts the runs as they are.
    """
    rules = run.prepared.config.gates
    accepts = run.updates_baseline and not run.selected.partial
    return bool(rules) and (accepts or any(undecided(rule, run) is None for rule in rules))
