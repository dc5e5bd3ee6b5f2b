"""The list of what verifiers' tests ask for is whole: each has a test of ours, a documented difference, or a reason."""

from __future__ import annotations

import re
from pathlib import Path

from tests.environments import verifiers_behaviours as behaviours

ROOT = Path(__file__).resolve().parents[2]
DIFFERENCES = ROOT / "docs" / "reference" / "verifiers-differences.md"


def test_every_test_of_verifiers_is_on_one_list() -> None:
    lists = (behaviours.SAME, behaviours.DIFFERENT, behaviours.NOT_OURS)
    names = {file: [name for each in lists for name in each.get(file, {})] for file in behaviours.N_TESTS}

    assert {file: len(found) for file, found in names.items()} == behaviours.N_TESTS
    assert [file for file, found in names.items() if len(set(found)) < len(found)] == []


def test_the_same_behaviour_is_shown_by_a_test_that_exists() -> None:
    targets = {target for cases in behaviours.SAME.values() for target in cases.values()}
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in {each.partition("::")[0] for each in targets}}
    named = [(target, *target.split("::")) for target in sorted(targets)]

    assert [target for target, path, name in named if not re.search(rf"^def {name}\b", texts[path], re.MULTILINE)] == []


def test_each_difference_is_documented_with_its_reason() -> None:
    rows = re.findall(r"^\| (.+)$", DIFFERENCES.read_text(encoding="utf-8"), re.MULTILINE)
    begins = {row for cases in behaviours.DIFFERENT.values() for row in cases.values()}

    assert [row for row in sorted(begins) if not any(each.startswith(row) for each in rows)] == []
