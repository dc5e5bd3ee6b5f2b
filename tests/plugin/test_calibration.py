"""`[scoring] calibrate`: the agreement of scores with a column of human scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.plugin.workspaces import CONFIG, Workspace

pytestmark = pytest.mark.usefixtures("wide_terminal")

REWARDS = """
def score(solution_str, ground_truth, extra_info=None, **kwargs):
    assert "human" not in extra_info and "Human" not in extra_info
    if extra_info.get("reward") == "raises":
        raise ZeroDivisionError("the reward function broke")
    return extra_info.get("score", 1.0)

def one(solution_str, **kwargs):
    return 1.0
"""
RATED: Sequence[Mapping[str, Any]] = [
    {"score": 1.0, "human": 1},
    {"score": 1.0, "human": True},
    {"score": 0.0, "human": 0},
    {"score": 1.0, "Human": 0.0},
    {"score": 0.5, "human": None},
    {"score": 0.5},
    {"score": 0.25, "human": "0.5", "reward": "raises"},
]
SCORING = {"eval_fns": ["rewards:score"], "calibrate": "human"}


def fill(workspace: Workspace, rows: Sequence[Mapping[str, Any]] = RATED, **tables: Mapping[str, Any]) -> None:
    workspace.write("rewards.py", REWARDS)
    given: dict[str, Mapping[str, Any]] = {"scoring": SCORING, "limits": {"max_errors": 9}, **tables}
    workspace.eval("x", rows, ".", **given)


@pytest.mark.slow
def test_scores_are_compared_with_a_column_that_nothing_else_sees(workspace: Workspace) -> None:
    fill(workspace, evaluation={"n": 2, "pass_threshold": 0.0})

    result = workspace.run(CONFIG, "--osmosis-markdown=page.md")

    result.assert_outcomes(passed=12, errors=2)
    lines = [
        'human scores in column "human": 5 rows (2 without one)',
        "agreement                 rewards:score      95% interval",
        "runs                                  8",
        "equal                             0.750    0.* to 0.*",
        "Cohen's kappa                     0.500    0.* to 0.*",
        "  with quadratic weights          0.500    0.* to 0.*",
        "Pearson's correlation             0.577    0.* to 0.*",
        "Spearman's correlation            0.577    0.* to 0.*",
        "mean difference                  +0.250  -0.* to +0.*",
        "2 runs without a score left out",
    ]
    result.stdout.fnmatch_lines(lines)
    page = (workspace.root / "page.md").read_text()
    assert "| Cohen's kappa | 0.500 | 0." in page
    assert '- human scores in column "human": 5 rows (2 without one)\n- 2 runs without a score left out' in page
    published = workspace.results()
    found = published["calibration"]
    assert [found[key] for key in ("column", "tolerance", "rows", "rows_without")] == ["human", None, 5, 2]
    score = found["eval_fns"]["rewards:score"]
    assert [score[key] for key in ("rows", "runs", "unscored")] == [4, 8, 2]
    assert score["kappa"]["value"] == 0.5
    assert score["kappa"]["interval"]["method"] == "Bayesian bootstrap, mid-p"
    assert "within" not in score
    assert [row["human_score"] for row in published["rows"]] == [1.0, 1.0, 0.0, 0.0, None, None, 0.5]
    shown = workspace.cli("show").outlines
    agreement = result.outlines[result.outlines.index(lines[0]) :][:9]
    assert "\n".join(agreement) in "\n".join(shown)

    part = workspace.run(CONFIG, "-k", "row0-")
    part.assert_outcomes(passed=2, deselected=12)
    part.stdout.no_fnmatch_line("*human scores*")


@pytest.mark.slow
def test_figures_that_are_not_defined_are_never_numbers(workspace: Workspace) -> None:
    functions = {"eval_fns": ["rewards:score", "rewards:one"], "decide": "rewards:one", "calibrate_within": 0.5}
    rows = [{"score": score, "human": 0.5} for score in (0.5, 0.75, 1.5)]
    fill(workspace, rows, scoring={**SCORING, **functions})

    result = workspace.run(CONFIG)

    assert result.ret == 0, "it never decides"
    result.stdout.fnmatch_lines(
        [
            'human scores in column "human": 3 rows',
            "within 0.5                        0.667    * to *        1.000    * to *",
            "Cohen's kappa                         -                 -            -                 -",
            "mean difference                  +0.417  * to *       +0.500  * to *",
            "no kappa and no correlation of rewards:score: all human scores are equal",
            "no kappa and no correlation of rewards:one: all scores are equal, and so are all human scores",
        ]
    )
    kappa = workspace.results()["calibration"]["eval_fns"]["rewards:score"]["kappa"]
    assert kappa == {"value": None, "interval": None, "undefined": "all human scores are equal"}


@pytest.mark.slow
def test_rows_may_get_human_scores_after_they_were_scored(workspace: Workspace) -> None:
    fill(workspace, [{**row, "human": None} for row in RATED[:3]])
    workspace.run(CONFIG).stdout.fnmatch_lines(
        ['human scores in column "human": 0 rows (3 without one)', "nothing to compare: no run has a score and *"]
    )
    fill(workspace, RATED[:3])

    result = workspace.run("--osmosis-from=latest")

    result.stdout.fnmatch_lines(['human scores in column "human": 3 rows', "equal *1.000*", "reused 3 stored scores *"])


NO_NUMBER = (
    'data/x.jsonl:{}: row {}: column "human": must be a number, or empty for a row that no human scored, got {} *'
)


@pytest.mark.parametrize(
    ("rows", "metadata", "problems"),
    [
        (
            [{"human": 1}, {"human": "good"}, {"human": [1]}, {"human": "nan"}],
            [],
            [NO_NUMBER.format(*each) for each in ((2, 1, '"good"'), (3, 2, "*1*"), (4, 3, '"nan"'))],
        ),
        ([{"humans": 1}], [], ['*: *calibrate: no selected row has a column "human", did you mean "humans"*']),
        ([{"human": 1}], ["Human"], ['*.toml:*: *judge* metadata: "Human" is *calibrate, which no judge sees; *']),
        (
            [{"human": 1, "topic": "a"}, {"human": 1, "level": 1}],
            ["level", "topics"],
            ['*: *metadata: no selected row has a column "topics", did you mean "topic"* (*"topic"*"level"*)'],
        ),
    ],
    ids=["values", "column", "judge", "absent"],
)
def test_bad_columns_are_named_before_anything_runs(
    workspace: Workspace, rows: list[dict[str, Any]], metadata: list[str], problems: list[str]
) -> None:
    if metadata:
        judge = {"model_path": "demo/judge", "metadata": metadata}
        fill(workspace, rows, scoring={**SCORING, "rubric": "Right?"}, judge=judge)
    else:
        fill(workspace, rows)

    result = workspace.run(CONFIG, exits=4)

    result.stderr.fnmatch_lines([f"ERROR: {problems[0]}", *(f"*{line}" for line in problems[1:])])
    assert not workspace.run_dirs()


def test_csv_cells_and_other_columns_hold_human_scores(workspace: Workspace) -> None:
    workspace.write("rewards.py", REWARDS)
    workspace.write("answers.csv", "solution_str,label\n42,1\n41,\n40,0.0\n")

    named = ("--osmosis-agent=recorded", "--osmosis-dataset=answers.csv", "--osmosis-eval-fn=rewards:one")
    result = workspace.run(*named, "--osmosis-set=scoring.calibrate=label", exits=0)

    result.stdout.fnmatch_lines(['human scores in column "label": 2 rows (1 without one)', "equal *0.500 *"])
    assert workspace.results("answers")["rows"][1]["human_score"] is None
