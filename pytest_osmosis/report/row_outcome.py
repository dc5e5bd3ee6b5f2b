"""What the test of a row reports where the granularity is "row": the outcomes of its runs, together.

It passes when all of its runs pass, and never while one of them was not measured. *Failed* still means scored and not
passed: one such run fails the row, whatever became of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.safe import one_line
from pytest_osmosis.verdicts.pass_rule import Kind, Outcome

IN_A_LINE, IN_A_BLOCK = 3, 20
"""So many runs that did not pass are told of one by one."""


def outcome_of_row(outcomes: Mapping[RunId, Outcome], never_ran: Collection[RunId] = ()) -> Outcome:
    """The outcome of a row's test from those of all its runs, of which some `never_ran`.

    It is the first that any of them is: failed, error, skipped because it never ran, passed. Runs that their grader
    took out count where all of them were.
    """
    runs = {run: outcomes[run] for run in sorted(outcomes)}
    if len(runs) == 1:
        return next(iter(runs.values()))
    kind = _kind({one.kind for one in runs.values()}, some_never_ran=bool(never_ran))
    reason, text = "", ""
    if kind == "skipped":
        reason = _skipped(runs, never_ran)
    elif kind != "passed":
        told = [f"run{run.index}: {one.reason}" for run, one in runs.items() if one.kind in ("failed", "error")]
        head = f"{len(told)} of {plural(len(runs), 'run')} did not pass"
        head += f", {len(never_ran)} never ran" if never_ran else ""
        shown = next(run for run, one in runs.items() if one.kind == kind)
        listed = [f"  {line}" for line in _first(told, IN_A_BLOCK)]
        of_run = [f"run{shown.index}:"] if len(told) > 1 else []
        reason = one_line(f"{head}: {'; '.join(_first(told, IN_A_LINE))}")
        text = "\n".join([head, *listed, *of_run, *runs[shown].text.split("\n")[1:]])  # whose first line is listed
    sections = [(f"{title} (run{run.index})", said) for run, one in runs.items() for title, said in one.sections]
    return Outcome(kind, reason, text, tuple(sections), sum(one.duration_s for one in runs.values()))


def _kind(kinds: Collection[Kind], *, some_never_ran: bool) -> Kind:
    if "failed" in kinds:
        return "failed"
    if "error" in kinds:
        return "error"
    return "skipped" if some_never_ran or "passed" not in kinds else "passed"


def _skipped(runs: Mapping[RunId, Outcome], never_ran: Collection[RunId]) -> str:
    """What kept the row's runs, or those that never ran, from being measured: the first one's reason."""
    if not never_ran or len(never_ran) == len(runs):
        return next(iter(runs.values())).reason
    return f"{len(never_ran)} of {plural(len(runs), 'run')} never ran: {runs[min(never_ran)].reason}"


def _first(told: Sequence[str], n: int) -> list[str]:
    more = [f"and {len(told) - n} more"] if len(told) > n else []
    return [*told[:n], *more]
