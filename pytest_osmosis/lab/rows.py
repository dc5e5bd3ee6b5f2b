"""Check against reference solutions: each solution in a dataset must score high for its own row and for no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_osmosis.datasets import SOLUTION, Row, open_dataset
from pytest_osmosis.errors import DatasetError
from pytest_osmosis.lab.calls import CallInput, ScoredCall, call
from pytest_osmosis.lab.cases import ReferenceRows
from pytest_osmosis.lab.findings import LabResult, RewardFinding
from pytest_osmosis.lab.target import Target
from pytest_osmosis.text.paths import shown

MOST_FINDINGS = 5


def check(target: Target, references: ReferenceRows) -> LabResult:
    """Require that each solution reaches the threshold for its row, and that the next different row's does not."""
    path = target.path.parent / references.path
    try:
        dataset = open_dataset(path, display=shown(path))
        rows = [row for row in map(dataset.row, range(len(dataset))) if row.solution is not None]
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


def _findings(target: Target, rows: list[Row], threshold: float, path: Path) -> Iterator[RewardFinding]:
    for index, row in enumerate(rows):
        call = _scored(target, row, row.solution)
        place = f"{shown(path)}:{row.line}"
        if call.outcome.score is None or call.outcome.score < threshold:
            problem = f"the reference solution of {place} scores less than {threshold:g}"
            fix = "correct the function, or the row"
            yield RewardFinding("reference-fails", problem, call.shown(target), fix)
        other = _other(rows, index)
        if other is None:
            continue
        call = _scored(target, row, other.solution)
        if call.outcome.score is not None and call.outcome.score >= threshold:
            problem = f"for {place} the solution of line {other.line} scores {threshold:g} or more too"
            fix = "compare with the row's own ground truth; make the function tell right from wrong"
            yield RewardFinding("reference-of-another-row", problem, call.shown(target), fix)


def _other(rows: list[Row], index: int) -> Row | None:
    """Return the next row with another ground truth; the first row follows the last."""
    following = [*rows[index + 1 :], *rows[:index]]
    return next((other for other in following if other.ground_truth != rows[index].ground_truth), None)


def _scored(target: Target, row: Row, solution: str | None) -> ScoredCall:
    record = {name: value for name, value in row.record.items() if name != SOLUTION}
    if target.mode == "full":
        messages = [*row.messages, {"role": "assistant", "content": solution}]
        call_input = CallInput(messages=messages, ground_truth=row.ground_truth, extra=record)
    else:
        call_input = CallInput(answer=solution, ground_truth=row.ground_truth, extra=record)
    return ScoredCall(call_input, call(target, call_input))
