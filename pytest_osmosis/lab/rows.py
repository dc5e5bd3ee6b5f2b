"""Reference solutions: on a dataset with a column `solution_str`, each is right for its own row and for no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis.datasets import SOLUTION, Row, open_dataset
from pytest_osmosis.errors import DatasetError
from pytest_osmosis.lab.calls import Input, Scored, call
from pytest_osmosis.lab.cases import References
from pytest_osmosis.lab.findings import Finding, Verdict
from pytest_osmosis.lab.target import Target
from pytest_osmosis.text.paths import shown

MOST_FINDINGS = 5


class _Reference(NamedTuple):
    row: Row
    solution: str


def check(target: Target, references: References) -> Verdict:
    """Every reference scores at least the threshold; that of the next row with another ground truth does not."""
    path = target.path.parent / references.path
    try:
        dataset = open_dataset(path, display=shown(path))
        found = [*_references(dataset.row(index) for index in range(len(dataset)))]
    except DatasetError as error:
        return Verdict((Finding("rows", "its dataset cannot be read", str(error), f"see {references.where}"),))
    if not found:
        fix = f"add the column {SOLUTION} to rows whose solution is known"
        return Verdict((Finding("rows", f"no row holds a {SOLUTION}", shown(path), fix),))
    findings = [*_findings(target, found, references.threshold, path)]
    if len(findings) > MOST_FINDINGS:
        more = f"and {len(findings) - MOST_FINDINGS:,} more of {len(found):,} rows"
        findings = [*findings[:MOST_FINDINGS], Finding("rows", more, shown(path), "as above")]
    return Verdict(tuple(findings))


def _references(rows: Iterator[Row]) -> Iterator[_Reference]:
    for row in rows:
        if row.solution is not None:
            yield _Reference(row, row.solution)


def _findings(target: Target, found: list[_Reference], threshold: float, path: Path) -> Iterator[Finding]:
    for index, own in enumerate(found):
        scored = _scored(target, own.row, own.solution)
        place = f"{shown(path)}:{own.row.line}"
        if scored.outcome.score is None or scored.outcome.score < threshold:
            what = f"the reference solution of {place} scores less than {threshold:g}"
            fix = "correct the function, or the row"
            yield Finding("reference-fails", what, scored.seen(target), fix)
        other = _other(found, index)
        if other is None:
            continue
        scored = _scored(target, own.row, other.solution)
        if scored.outcome.score is not None and scored.outcome.score >= threshold:
            what = f"for {place} the solution of line {other.row.line} scores {threshold:g} or more too"
            fix = "compare with the row's own ground truth; make the function tell right from wrong"
            yield Finding("reference-of-another-row", what, scored.seen(target), fix)


def _other(found: list[_Reference], index: int) -> _Reference | None:
    """The next row with another ground truth, around the end."""
    own = found[index].row.ground_truth
    following = [*found[index + 1 :], *found[:index]]
    return next((other for other in following if other.row.ground_truth != own), None)


def _scored(target: Target, row: Row, solution: str) -> Scored:
    record = {name: value for name, value in row.record.items() if name != SOLUTION}
    if target.mode == "full":
        messages = [*row.messages, {"role": "assistant", "content": solution}]
        given = Input(messages=messages, ground_truth=row.ground_truth, extra=record)
    else:
        given = Input(answer=solution, ground_truth=row.ground_truth, extra=record)
    return Scored(given, call(target, given))
