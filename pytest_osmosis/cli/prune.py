"""`pytest-osmosis runs prune`: it shows what goes, asks, and removes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.run_removal import finish_removals, remove_run
from pytest_osmosis.report.prune_lines import plan_json, plan_lines
from pytest_osmosis.results.pruning import PrunedRun, PrunePlan, PruneRules, prune_plan
from pytest_osmosis.text.numbers import byte_size, count, plural


def prune(folder: Path, rules: PruneRules, output: CommandOutput, *, dry: bool, agreed: bool, as_json: bool) -> int:
    """Remove what the rules choose and return the exit status: 1 if something could not be removed, or nobody agreed.

    Raises `OsmosisError` without any rule, without anybody to ask, or if it is not known what is still needed.
    """
    if rules.is_empty:
        raise OsmosisError("runs prune: needs a rule: --older-than, --max-size, --keep or --keep-per-eval")
    plan = prune_plan(folder, rules, datetime.now(UTC))
    if not as_json:
        output.lines(plan_lines(plan))
    if plan.removed and not dry and not agreed:
        answer = None if as_json else output.ask(f"remove {plural(len(plan.removed), 'eval run')}?")
        if answer is None:
            raise OsmosisError(
                "runs prune: nobody can be asked here; --yes removes without asking, --dry-run only shows"
            )
        if not answer:
            output.lines(["nothing was removed"])
            return 1
    removed: list[PrunedRun] = []
    problems: list[str] = []
    if not dry:
        finish_removals(plan.home)
        try:
            problems = list(_remove(plan, removed))
        except KeyboardInterrupt:
            so_far = f"{count(len(removed))} of {plural(len(plan.removed), 'eval run')}"
            output.lines([f"interrupted: removed {so_far}; the next prune deletes what is left of the last one"])
            raise
    if as_json:
        output.json(plan_json(plan, removed, problems, dry=dry))
    elif not dry:
        freed = sum(run.n_bytes for run in removed)
        done = [f"removed {plural(len(removed), 'eval run')}, {byte_size(freed)}"] if plan.removed else []
        output.lines([*problems, *done])
    return 1 if problems else 0


def _remove(plan: PrunePlan, removed: list[PrunedRun]) -> Iterator[str]:
    """Remove the eval runs, the oldest first, and yield what was in the way."""
    for run in reversed(plan.removed):
        try:
            remove_run(run.directory)
        except OsmosisError as error:
            yield str(error)
        else:
            removed.append(run)
