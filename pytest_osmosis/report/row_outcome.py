"""The outcome of a row's test, with granularity "row": the outcomes of its runs together.

The test passes if all runs pass. One failed run fails it, whatever the outcome of the others; a run that was not
measured keeps it from passing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.safe import one_line
from pytest_osmosis.verdicts.pass_rule import Kind, Outcome

IN_A_LINE, IN_A_BLOCK = 3, 20
"""The most runs that are listed in the reason and in the text."""


def outcome_of_row(outcomes: Mapping[RunId, Outcome], never_ran: Collection[RunId] = ()) -> Outcome:
    """Return the outcome of a row's test from the outcomes of all its runs, of which some `never_ran`.

    It is the first of these that any run has: failed, error, skipped because it never ran, passed. It is skipped if the
    grader took out all runs.
    """
    runs = {run: outcomes[run] for run in sorted(outcomes)}
    if len(runs) == 1:
        return next(iter(runs.values()))
    kind = _kind({outcome.kind for outcome in runs.values()}, some_never_ran=bool(never_ran))
    reason, text = "", ""
    if kind == "skipped":
        reason = _skipped(runs, never_ran)
    elif kind != "passed":
        failures = [
            f"run{run.index}: {outcome.reason}" for run, outcome in runs.items() if outcome.kind in ("failed", "error")
        ]
        head = f"{len(failures)} of {plural(len(runs), 'run')} did not pass"
        head += f", {len(never_ran)} never ran" if never_ran else ""
        shown = next(run for run, outcome in runs.items() if outcome.kind == kind)
        listed = [f"  {line}" for line in _first(failures, IN_A_BLOCK)]
        of_run = [f"run{shown.index}:"] if len(failures) > 1 else []
        reason = one_line(f"{head}: {'; '.join(_first(failures, IN_A_LINE))}")
        text = "\n".join([head, *listed, *of_run, *runs[shown].text.split("\n")[1:]])  # its first line is listed
    sections = [(f"{title} (run{run.index})", text) for run in runs for title, text in runs[run].sections]
    return Outcome(kind, reason, text, tuple(sections), sum(outcome.duration_s for outcome in runs.values()))


def _kind(kinds: Collection[Kind], *, some_never_ran: bool) -> Kind:
    if "failed" in kinds:
        return "failed"
    if "error" in kinds:
        return "error"
    return "skipped" if some_never_ran or "passed" not in kinds else "passed"


def _skipped(runs: Mapping[RunId, Outcome], never_ran: Collection[RunId]) -> str:
    if not never_ran or len(never_ran) == len(runs):
        return next(iter(runs.values())).reason
    return f"{len(never_ran)} of {plural(len(runs), 'run')} never ran: {runs[min(never_ran)].reason}"


def _first(lines: Sequence[str], n: int) -> list[str]:
    more = [f"and {len(lines) - n} more"] if len(lines) > n else []
    return [*lines[:n], *more]
