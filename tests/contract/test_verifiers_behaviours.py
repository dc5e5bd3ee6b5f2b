"""The list of what verifiers' tests ask for is whole: each has a test of ours, a documented difference, or a reason."""

from __future__ import annotations

import re
from pathlib import Path

from tests.environments import verifiers_behaviours as behaviours

ROOT = Path(__file__).resolve().parents[2]
DIFFERENCES = ROOT / "docs" / "reference" / "verifiers-differences.md"


def test_every_test_of_verifiers_is_on_one_list() -> None:
    for file, n_tests in behaviours.N_TESTS.items():
        lists = (behaviours.SAME, behaviours.DIFFERENT, behaviours.NOT_OURS)
        names = [name for each in lists for name in each.get(file, {})]
        assert len(names) == len(set(names)) == n_tests, file


def test_the_same_behaviour_is_shown_by_a_test_that_exists() -> None:
    targets = {target for cases in behaviours.SAME.values() for target in cases.values()}
    for target in sorted(targets):
        path, _, name = target.partition("::")
        assert re.search(rf"^def {name}\b", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), target


def test_each_difference_is_documented_with_its_reason() -> None:
    rows = [line for line in DIFFERENCES.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    for begins in {begins for cases in behaviours.DIFFERENT.values() for begins in cases.values()}:
        assert [row for row in rows if row.startswith(f"| {begins}")], begins
