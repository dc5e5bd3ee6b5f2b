"""Check against reference solutions: each solution in a dataset must score high for its own row and for no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis.datasets import SOLUTION, Row, open_dataset
from pytest_osmosis.errors import DatasetError
from pytest_osmosis.lab.calls import CallInput, ScoredCall, call
from pytest_osmosis.lab.cases import ReferenceRows
from pytest_osmosis.lab.findings import LabResult, RewardFinding
from pytest_osmosis.lab.target import Target
from pytest_osmosis.text.paths import shown

MOST_FINDINGS = 5


class _Reference(NamedTuple):
    row: Row
    solution: str


def check(target: Target, references: ReferenceRows) -> LabResult:
    """Require that each solution reaches the threshold for its row, and that the next different row's does not."""
    path = target.path.parent / references.path
    try:
        dataset = open_dataset(path, display=shown(path))
        rows = [*_references(dataset.row(index) for index in range(len(dataset)))]
    except DatasetError as error:
        return LabResult((RewardFinding("rows", "its dataset cannot be read", str(error), f"see {references.where}"),))
    if not rows:
        fix = f"add the column {SOLUTION} to rows whose solution is known"
        return LabResult((RewardFinding("rows", f"no row holds a {SOLUTION}", shown(path), fix),))
    findings = [*_findings(target, rows, references.threshold, path)]
    if len(findings) > MOST_FINDINGS:
        more = f"and {len(findings) - MOST_FINDINGS:,} more of {len(rows):,} rows"
        findings = [*findings[:MOST_FINDINGS], RewardFinding("rows", more, shown(path), "as above")]
    return LabResult(tuple(findings))


def _references(rows: Iterator[Row]) -> Iterator[_Reference]:
    for row in rows:
        if row.solution is not None:
            yield _Reference(row, row.solution)


def _findings(target: Target, rows: list[_Reference], threshold: float, path: Path) -> Iterator[RewardFinding]:
    for index, own in enumerate(rows):
        scored = _scored(target, own.row, own.solution)
        place = f"{shown(path)}:{own.row.line}"
        if scored.outcome.score is None or scored.outcome.score < threshold:
            what = f"the reference solution of {place} scores less than {threshold:g}"
            fix = "correct the function, or the row"
            yield RewardFinding("reference-fails", what, scored.seen(target), fix)
        other = _other(rows, index)
        if other is None:
            continue
        scored = _scored(target, own.row, other.solution)
        if scored.outcome.score is not None and scored.outcome.score >= threshold:
            what = f"for {place} the solution of line {other.row.line} scores {threshold:g} or more too"
            fix = "compare with the row's own ground truth; make the function tell right from wrong"
            yield RewardFinding("reference-of-another-row", what, scored.seen(target), fix)


def _other(rows: list[_Reference], index: int) -> _Reference | None:
    """Return the next row with another ground truth; the first row follows the last."""
    own = rows[index].row.ground_truth
    following = [*rows[index + 1 :], *rows[:index]]
    return next((other for other in following if other.row.ground_truth != own), None)


def _scored(target: Target, row: Row, solution: str) -> ScoredCall:
    record = {name: value for name, value in row.record.items() if name != SOLUTION}
    if target.mode == "full":
        messages = [*row.messages, {"role": "assistant", "content": solution}]
        call_input = CallInput(messages=messages, ground_truth=row.ground_truth, extra=record)
    else:
        call_input = CallInput(answer=solution, ground_truth=row.ground_truth, extra=record)
    return ScoredCall(call_input, call(target, call_input))
