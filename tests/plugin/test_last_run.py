"""A second run of an eval reports the cost of the first, and the rows that flipped."""

from __future__ import annotations

from collections.abc import Iterable

from tests.plugin.workspaces import Workspace

NAMED = "--osmosis-config=configs/eval/x.toml"


def test_the_second_run_is_compared_with_the_first(workspace: Workspace) -> None:
    workspace.eval(rows=4)
    first = workspace.run(NAMED)
    workspace.write(
        "rewards.py", "def score(solution_str, ground_truth, **kwargs):\n    return float(ground_truth != '0')\n"
    )

    listed = workspace.run(NAMED, "--co")
    second = workspace.run(NAMED)

    assert "last run" not in first.stdout.str()
    last = r"  last run \(\d{4}-\d\d-\d\d \d\d:\d\d UTC\): 4 rollouts, [\d,]+ tokens, \$0, \S+ s"
    listed.stdout.re_match_lines([last])
    second.stdout.re_match_lines([last, r"against the last run \(.* UTC\): \+0 -1 of 4 rows, p = 1 \(noise\)"])
    assert workspace.results()["last_run"]["run"] == workspace.run_dirs()[0].name


def test_another_plan_or_a_partial_run_is_compared_with_nothing(plain_workspace: Workspace) -> None:
    plain_workspace.eval(rows=4)
    plain_workspace.run(NAMED)

    other = plain_workspace.run(NAMED, "--osmosis-n=2")
    partial = plain_workspace.run(NAMED, "-k", "row1-")

    assert "last run" not in other.stdout.str()
    assert "against the last run" not in partial.stdout.str()
    assert plain_workspace.results()["last_run"] is None


def rows(numbers: Iterable[int]) -> list[dict[str, object]]:
    return [{"user_prompt": f"What is {number} + 2?", "ground_truth": str(number)} for number in numbers]


def test_rows_are_matched_by_their_content(plain_workspace: Workspace) -> None:
    plain_workspace.eval(rows=rows(range(3)))
    plain_workspace.run(NAMED)
    plain_workspace.eval(rows=rows(reversed(range(3))))
    moved = plain_workspace.run(NAMED)
    plain_workspace.eval(rows=rows([0, 1, 7]))
    changed = plain_workspace.run(NAMED)

    moved.stdout.fnmatch_lines(["against the last run (*): no row of 3 changed"])
    assert "last run" not in changed.stdout.str()
