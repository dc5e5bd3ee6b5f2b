"""A second run of an eval reports the cost of the first, and the rows that flipped."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, Workspace


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
