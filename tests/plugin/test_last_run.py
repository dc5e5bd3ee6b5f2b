"""A second run of an eval reports the cost of the first, and the rows that flipped."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

import pytest

from tests.plugin.workspaces import CONFIG, Workspace

SOMETIMES = """
def score(solution_str, ground_truth, **kwargs):
    return float(int(ground_truth) not in {given_up})
"""


@pytest.mark.slow
def test_the_second_run_is_compared_with_the_first(workspace: Workspace) -> None:
    workspace.eval(rows=4)
    first = workspace.run(CONFIG)
    workspace.write(
        "rewards.py", "def score(solution_str, ground_truth, **kwargs):\n    return float(ground_truth != '0')\n"
    )

    listed = workspace.run(CONFIG, "--co")
    second = workspace.run(CONFIG)

    assert "last run" not in first.stdout.str()
    last = r"  last run \(\d{4}-\d\d-\d\d \d\d:\d\d UTC\): 4 rollouts, [\d,]+ tokens, \$0, \S+ s"
    listed.stdout.re_match_lines([last])
    second.stdout.re_match_lines(
        [last, r"against the last run \(.* UTC\): 0 rows better, 1 worse; may be chance \(p = 1\)"]
    )
    assert workspace.results()["last_run"]["run"] == workspace.run_dirs()[0].name
    assert "last run" not in workspace.run(CONFIG, "--osmosis-n=2").stdout.str(), "it has another plan"
    assert "against the last run" not in workspace.run(CONFIG, "-k", "row1-").stdout.str()
    assert workspace.results()["last_run"] is None


@pytest.mark.slow
def test_rows_that_changed_are_named_with_a_command_that_shows_one(workspace: Workspace) -> None:
    numbers = [0, 1, 2, 3]
    workspace.eval(rows=rows(numbers), evaluation={"n": 3})
    workspace.write("rewards.py", SOMETIMES.format(given_up=(1,)))
    workspace.run(CONFIG)
    workspace.eval(rows=rows(reversed(numbers)), evaluation={"n": 3})
    workspace.write("rewards.py", SOMETIMES.format(given_up=(2, 3)))

    result = workspace.run(CONFIG, "--osmosis-markdown=summary.md")

    then, now = (run.name for run in workspace.run_dirs())
    result.stdout.fnmatch_lines(
        [
            "against the last run (*): 1 row better, 2 worse; may be chance (p = *)",
            "  worse: row0 (was row3) 3/3 -> 0/3, row1 (was row2) 3/3 -> 0/3",
            "  better: row2 (was row1) 0/3 -> 3/3",
            f"  row0 now: pytest-osmosis show {now} row0-run0",
            f"  row0 then: pytest-osmosis show {then} row3-run0",
        ],
        consecutive=True,
    )
    for line, verdict in (("  row0 now: ", "did not pass"), ("  row0 then: ", "passed")):
        command = next(each.removeprefix(line) for each in result.outlines if each.startswith(line))
        shown = workspace.cli(*shlex.split(command)[1:])
        assert shown.ret == 0
        assert shown.outlines[0].endswith(f": {verdict}")
        assert "    What is 3 + 2?" in shown.outlines
    changed = [(row["change"], row["row_index"]) for row in workspace.results()["changed_rows"]]
    assert changed == [("worse", 0), ("worse", 1), ("better", 2)]
    assert "| row0 (was row3) | 3/3 | 0/3 |" in (workspace.root / "summary.md").read_text()


def rows(numbers: Iterable[int]) -> list[dict[str, object]]:
    return [{"user_prompt": f"What is {number} + 2?", "ground_truth": str(number)} for number in numbers]
