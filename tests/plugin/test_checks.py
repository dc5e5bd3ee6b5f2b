"""Checks in a session, and a scorer of another library: scores, reasons, gates, and what a changed check does."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, Workspace

pytestmark = [pytest.mark.usefixtures("wide_terminal"), pytest.mark.slow]
SCORERS = """
from types import SimpleNamespace

class Exact:
    def eval(self, output, expected=None, **kwargs):
        return SimpleNamespace(score=float(output == expected), metadata={"rationale": "compared"}, error=None)

    async def eval_async(self, output, expected=None, **kwargs):
        raise AssertionError
"""


def write(workspace: Workspace, most_words: int) -> None:
    """Write an eval over answers of which one is right and both are short."""
    checks = [{"name": "short", "kind": "length", "max": most_words, "unit": "words"}, {"kind": "tokens", "max": 10}]
    workspace.eval(
        rows=[{"solution_str": f"You have {n} days.", "ground_truth": "30 days"} for n in (30, 3)],
        experiment={"model_path": None},
        agent={"agent": "recorded"},
        scoring={"eval_fns": ["contains", "scorers:Exact"], "decide": "contains", "checks": checks},
        gate={"short": {"pass_rate": ">= 0.9"}},
    )


def test_checks_score_with_reasons_and_only_a_changed_one_scores_again(workspace: Workspace) -> None:
    workspace.write("scorers.py", SCORERS)
    write(workspace, 9)

    workspace.run(CONFIG).stdout.fnmatch_lines(["gate short pass_rate >= 0.9: HOLDS: 1.000 (2 of 2 runs passed)"])
    assert 'reason of contains: does not contain "30 days"' in [line.strip() for line in workspace.show("row1-run0")]
    runs = [row["runs"][0] for row in workspace.results()["rows"]]
    assert [run["scores"] for run in runs] == [
        {"scorers:Exact": 0.0, "contains": 1.0, "short": 1.0, "tokens": 1.0},
        {"scorers:Exact": 0.0, "contains": 0.0, "short": 1.0, "tokens": 1.0},
    ]
    assert runs[0]["reasons"] == {
        "scorers:Exact": "compared",
        "contains": 'contains "30 days"',
        "short": "has 4 words",
        "tokens": "uses 0 tokens",
    }
    assert workspace.results()["config"]["eval_fns"] == ["scorers:Exact", "contains", "short", "tokens"]

    write(workspace, 3)
    workspace.run("--osmosis-from=latest").stdout.fnmatch_lines("""
        reused * 2 stored scores of contains, 2 stored scores of tokens (code and rows unchanged)*
        gate short pass_rate >= 0.9: FAILS: 0.000 (0 of 2 runs passed)
    """)


@pytest.mark.parametrize("truth", ["", ', "ground_truth": ""', ', "ground_truth": null'])
@pytest.mark.parametrize(("checks", "exits"), [([], 4), ([{"kind": "contains", "value": "30 days"}], 0)])
def test_without_any_ground_truth_a_check_that_needs_one_is_refused_before_anything_is_paid(
    workspace: Workspace, checks: list[dict[str, str]], exits: int, truth: str
) -> None:
    scoring = {"checks": checks} if checks else {"eval_fns": ["contains"]}
    workspace.eval(experiment={"model_path": None}, agent={"agent": "recorded"}, scoring=scoring)
    workspace.write("data/x.jsonl", f'{{"user_prompt": "How long?", "solution_str": "You have 30 days."{truth}}}\n')

    result = workspace.run(CONFIG, exits=exits)

    told = 'ERROR: data/x.jsonl: column "ground_truth": no selected row has one, and contains compares with it *'
    if exits:
        result.stderr.fnmatch_lines([told])
