"""Sessions of stored rollouts, which present code, thresholds and gates rescore, and of some rows: --lf and others."""

from __future__ import annotations

import json

import pytest

from tests.plugin.workspaces import BROKEN, CONFIG, EXACT, FAIL, Row, Workspace, read_json, wait_until
from tests.servers import ChatServer, reply

FROM = "--osmosis-from=latest"
BY_TRUTH = "def score(solution_str, ground_truth, **kwargs):\n    return float(ground_truth != '0')\n"


COUNTING = """
def score(solution_str, **kwargs):
    from helpers import given

    open("calls", "a").write(".")
    return given
"""


@pytest.fixture
def stored_workspace(workspace: Workspace) -> Workspace:
    workspace.write("rewards.py", COUNTING)
    workspace.write("helpers.py", "given = 1.0\n")
    workspace.eval(rows=2, limits={"max_errors": 2})
    workspace.run(CONFIG, "--osmosis-output=out/results.json").assert_outcomes(passed=2)
    return workspace


@pytest.mark.journey
def test_a_changed_function_is_applied_without_asking_the_model(workspace: Workspace) -> None:
    with ChatServer(reply("42")) as server:
        workspace.eval(rows=4, model={"base_url": server.base_url}, limits={"max_errors": 4})
        workspace.run(CONFIG)
    (run_dir,) = workspace.run_dirs()
    journal, first = (run_dir / "journal.jsonl").read_bytes(), (run_dir / "results.json").read_bytes()
    workspace.write("rewards.py", BY_TRUTH)

    result = workspace.run(FROM, "--junitxml=junit.xml", exits=1)

    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(f"""
          from run {run_dir.name} of * UTC: 4 stored rollouts, no model is asked
        score 0 < 1: answered *, expected *
        run it again: pytest 'configs/eval/x.toml::x?row0-run0?' --osmosis-from=.osmosis/runs/{run_dir.name}
        the rollouts took 40 tokens (28 in, 12 out)*
        against the previous verdicts (results.1.json): 0 rows better, 1 worse
          worse: row0
          row0 now: pytest-osmosis show {run_dir.name} row0-run0
        results: .osmosis/runs/{run_dir.name}/results.json
    """)
    assert workspace.run_dirs() == [run_dir]
    assert (run_dir / "journal.jsonl").read_bytes().startswith(journal)
    assert (run_dir / "results.1.json").read_bytes() == first
    results = workspace.results()
    assert [run["passed"] for row in results["rows"] for run in row["runs"]] == [False, True, True, True]
    assert results["rescored"]["previous"] == "results.1.json"
    assert results["provenance"]["started_at"] == json.loads(first)["provenance"]["started_at"]
    assert workspace.last_failed() == {"configs/eval/x.toml::x[row0-run0]"}


def test_functions_are_called_again_only_if_code_changed_or_the_command_says_so(stored_workspace: Workspace) -> None:
    workspace, calls = stored_workspace, stored_workspace.root / "calls"
    (run_dir,) = workspace.run_dirs()
    before = sorted((path.name, path.read_bytes()) for path in run_dir.iterdir() if path.is_file())

    ids = [f"configs/eval/x.toml::x?row{row}-run0?" for row in range(2)]
    workspace.run(FROM, "--co", "-q").stdout.fnmatch_lines(ids)
    workspace.run(FROM, "--osmosis-dry-run", exits=0)
    assert sorted((path.name, path.read_bytes()) for path in run_dir.iterdir() if path.is_file()) == before

    workspace.run(FROM)
    kept = calls.read_text()
    workspace.run(FROM, "--osmosis-rescore")
    assert (kept, calls.read_text()) == ("..", "....")

    workspace.write("helpers.py", "given = 0.0\n")
    workspace.run(FROM).assert_outcomes(failed=2)

    workspace.run(CONFIG, "--osmosis-n=2")
    named = workspace.run("--osmosis-from=out/results.json")
    named.assert_outcomes(failed=2)
    named.stdout.fnmatch_lines([f"  from run {run_dir.name} of *"])


JUDGE = """
import asyncio
from pathlib import Path

async def score(solution_str, extra_info, **kwargs):
    with open("calls", "a") as file:
        file.write(f"{extra_info['name']} ")
    while extra_info["name"] == "c" and not Path("go").exists():
        await asyncio.sleep(0.01)
    return 0.0
"""


def test_a_killed_rescoring_leaves_the_earlier_scores_and_pays_for_nothing_twice(workspace: Workspace) -> None:
    workspace.eval(rows=[{"name": name} for name in "abc"])
    workspace.run(CONFIG)
    (run_dir,) = workspace.run_dirs()
    whole = (run_dir / "results.json").read_bytes()
    workspace.write("rewards.py", JUDGE)
    calls = workspace.root / "calls"

    killed = workspace.start(FROM)
    wait_until(lambda: calls.exists() and calls.read_text() == "a b c ", "the judge to be called")
    wait_until(lambda: len(workspace.events("score")) == 3 + 2, "the scores of a and b to be stored")
    busy = f"ERROR: run {run_dir.name}: process * on * has been scoring its rollouts since *"
    workspace.run(FROM, exits=4).stderr.fnmatch_lines([busy])
    killed.kill()
    assert (run_dir / "results.json").read_bytes() == whole
    workspace.cli("show", "row0-run0").stdout.fnmatch_lines(["*: passed", "  rewards:score 1 >= 1"])
    (workspace.root / "go").touch()
    workspace.run(FROM).assert_outcomes(failed=3)
    assert calls.read_text() == "a b c c ", "a and b had been scored"
    workspace.cli("show", "row0-run0").stdout.fnmatch_lines(["*: did not pass"])


def test_changed_rows_are_scored_in_their_new_form_or_not_at_all(workspace: Workspace) -> None:
    workspace.write("rewards.py", BY_TRUTH)
    workspace.eval(rows=[{"ground_truth": "0"}, {}, {}, {}])
    workspace.run(CONFIG)
    workspace.eval(rows=[{"ground_truth": "1"}, {"user_prompt": "Something else?"}, {}])

    result = workspace.run(FROM, "-rs")

    assert result.ret == 9, "half of the eval has no score"
    result.assert_outcomes(passed=2, skipped=2, errors=1)
    result.stdout.fnmatch_lines("""
          from run *: 2 stored rollouts (2 runs without one), no model is asked
          note: row 1: the prompt changed after the rollout; not scored
          note: row 0: changed after the rollout, except in the prompt; scored as now
        SKIPPED ?1? configs/eval/x.toml:1: the prompt has changed since the rollout
        SKIPPED ?1? configs/eval/x.toml:1: its row is no longer in the dataset
        against the previous verdicts (results.1.json): 1 row better, 0 worse
        not measured: 2 of 4 runs have no rollout to score
    """)
    shown = [line for line in workspace.cli("show", "latest").outlines if line.startswith("1 run not scored: ")]
    assert [line[18:] for line in shown] == [
        "the prompt has changed since the rollout", "its row is no longer in the dataset",
    ]  # fmt: skip


def test_rescoring_needs_neither_key_nor_server(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    with ChatServer(reply("42")) as server:
        model = {"base_url": server.base_url, "api_key_env": "A_KEY"}
        workspace.eval(rows=2, model=model, secrets={"required": ["A_KEY"]})
        monkeypatch.setenv("A_KEY", "a-key-of-some-length")
        workspace.run(CONFIG)
    monkeypatch.delenv("A_KEY")
    note = "  note: A_KEY: not set; that matters only if a reward function reads it"
    workspace.run(FROM, exits=0).stdout.fnmatch_lines([note])


def test_an_eval_without_a_toml_is_rescored_with_the_same_options(workspace: Workspace) -> None:
    workspace.eval(rows=[{"score": 0.25}, {"score": 0.75}])
    typed = ("chat", "data/x.jsonl", "rewards:score", "demo/arithmetic", "0.5")
    names = ("agent", "dataset", "eval-fn", "model", "pass-threshold")
    workspace.run(*(f"--osmosis-{name}={value}" for name, value in zip(names, typed, strict=True)), "--osmosis-n=2")

    workspace.run(FROM).assert_outcomes(passed=2, failed=2)
    workspace.run(FROM, "--osmosis-pass-threshold=0.2", "-k", "row0-").assert_outcomes(passed=2)
    workspace.run("data/x.jsonl::x[row1-run0]", FROM, "--osmosis-pass-threshold=0.8").assert_outcomes(failed=1)


def test_runs_that_cannot_be_rescored_are_refused(stored_workspace: Workspace) -> None:
    workspace = stored_workspace
    (run_dir,) = workspace.run_dirs()
    journal = (run_dir / "journal.jsonl").read_bytes()

    contradicted = workspace.run(FROM, "--osmosis-max-turns=3", "--osmosis-set=model.max_retries=1", "--osmosis-record")
    workspace.eval(rows=[{"user_prompt": "Another?"}, {"user_prompt": "And another?"}])
    another = workspace.run(FROM)
    (workspace.root / "configs/eval/x.toml").unlink()
    gone = workspace.run(FROM)

    assert [result.ret for result in (contradicted, another, gone)] == [4] * 3
    contradicted.stderr.fnmatch_lines("""
        ERROR: --osmosis-set model.max_retries: contradicts --osmosis-from, which does not change rollouts; *
        ERROR: --osmosis-max-turns: contradicts *
        ERROR: --osmosis-record: contradicts *
    """)
    another.stderr.fnmatch_lines(["*none of its rollouts can be scored*were they made from data/x.jsonl*"])
    gone.stderr.fnmatch_lines([f"*x.toml: the config of run {run_dir.name} no longer exists; name one with *"])
    assert (run_dir / "journal.jsonl").read_bytes() == journal
    assert workspace.results()["rescored"] is None


def test_a_score_outside_its_declared_range_is_a_reward_error_and_so_in_a_rescore(workspace: Workspace) -> None:
    rows = [{"score": score} for score in (-1.0, 0.5, 2.0)]
    limits, gate, ranges = {"max_errors": 3}, {"mean": ">= -0.6"}, {"rewards:score": [-1, 1]}
    workspace.eval(rows=rows, limits=limits, gate=gate, scoring={"score_ranges": ranges})
    first = workspace.run(CONFIG)
    found = workspace.results()
    again = workspace.run("--osmosis-from=latest", CONFIG)
    assert (first.ret, again.ret) == (0, 0)  # -0.5 if the third had scored -1
    for results in (found, workspace.results()):
        assert results["config"]["score_ranges"] == {"rewards:score": [-1, 1]}
        assert results["summary"]["eval_fns"]["rewards:score"]["mean"] == -0.5
        (broken,) = (run for row in results["rows"] for run in row["runs"] if "score 2 lies outside" in str(run))
        assert broken["passed"] is False
    first.stdout.fnmatch_lines(["*score 2 lies outside [[]scoring] score_ranges, -1 to 1*"])


@pytest.mark.usefixtures("wide_terminal")
def test_a_rescored_run_is_shown_with_the_present_ground_truth(workspace: Workspace) -> None:
    workspace.write("rewards.py", EXACT)
    workspace.eval(rows=[{"ground_truth": "0 * 2 = 0\n#### 0"}])
    workspace.run(CONFIG).assert_outcomes(passed=1)
    workspace.eval(rows=[{"ground_truth": "15"}])

    result = workspace.run("--osmosis-from=latest")

    result.stdout.fnmatch_lines(['FAILED *x?row0-run0? - score 0 < 1: answered "0 * 2 = 0 #### 0", expected "15"'])
    assert "  expected: 15" in workspace.show("row0-run0")
    workspace.run("--osmosis-from=latest")
    assert "  expected: 15" in workspace.show("row0-run0"), "a score that is reused keeps its ground truth"


ROWS: list[Row] = [{}, {"score": 0.0}, {"reward": "raises"}, {}]


def ids(*rows: int) -> set[str]:
    return {f"configs/eval/x.toml::x[row{row}-run0]" for row in rows}


@pytest.mark.journey
def test_lf_selects_runs_that_failed_or_were_not_scored(workspace: Workspace) -> None:
    workspace.eval(rows=ROWS, limits={"max_errors": 4})

    workspace.run(CONFIG).assert_outcomes(passed=2, failed=1, errors=1)
    assert workspace.last_failed() == ids(1, 2)

    workspace.run(CONFIG, "--lf").assert_outcomes(failed=1, errors=1)
    assert len(workspace.run_dirs()) == 2
    assert sorted(event["row"] for event in workspace.events("start")) == [1, 2]


def test_the_second_run_is_compared_with_the_first(workspace: Workspace) -> None:
    workspace.eval(rows=4)
    first = workspace.run(CONFIG)
    workspace.write("rewards.py", BY_TRUTH)

    listed = workspace.run(CONFIG, "--co")
    second = workspace.run(CONFIG)

    assert "last eval run" not in first.stdout.str()
    last = r"  last eval run \(\d{4}-\d\d-\d\d \d\d:\d\d UTC\): 4 rollouts, [\d,]+ tokens, \$0, \S+ s"
    listed.stdout.re_match_lines([last])
    second.stdout.re_match_lines(
        [last, r"against the last eval run \(.* UTC\): 0 rows better, 1 worse; may be chance \(p = 1\)"]
    )
    assert workspace.results()["last_run"]["run"] == workspace.run_dirs()[0].name
    assert "last eval run" not in workspace.run(CONFIG, "--osmosis-n=2").stdout.str(), "it has another plan"
    assert "against the last eval run" not in workspace.run(CONFIG, "-k", "row1-").stdout.str()
    assert workspace.results()["last_run"] is None


# -- --osmosis-smoke: a few rows go all the way; errors fail the run, scores do not ------------------------


def test_the_first_rows_run_once_and_their_scores_decide_nothing(workspace: Workspace) -> None:
    workspace.eval(
        rows=[FAIL, *[{}] * 7], evaluation={"n": 3}, output={"results": "out.json"}, gate={"pass_rate": ">= 0.9"}
    )

    result = workspace.run(CONFIG, "--osmosis-smoke", "-rPs", exits=0)

    result.assert_outcomes(passed=5, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "  5 rows x 1 run = 5 rollouts, 1 in flight*",
            "  smoke: first 5 rows, one run each, scores do not decide",
        ]
    )
    result.stdout.fnmatch_lines(["*smoke: passes whatever its score", "score 0 < 1: answered *, expected *"])
    result.stdout.fnmatch_lines("""
        smoke: 5 of 24 runs, scores did not decide
        4 of 5 runs passed
        gate pass_rate >= 0.9: not decided (only 5 of 24 runs selected)
    """)
    assert not (workspace.root / "out.json").exists()
    published = read_json(workspace.root / "out.partial.json")
    assert published["partial"] is True
    assert [(row["row_index"], len(row["runs"])) for row in published["rows"]] == [(row, 1) for row in range(5)]
    assert published["rows"][0]["runs"][0]["passed"] is False


def test_an_error_fails_a_smoke_run_whatever_max_errors_allows(workspace: Workspace) -> None:
    workspace.eval(rows=[{}, BROKEN, FAIL, {}, {}], limits={"max_errors": 0})

    result = workspace.run(CONFIG, "--osmosis-smoke", exits=1)

    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(["run it again: pytest *row1-run0* --osmosis-smoke"])


def test_a_smoke_run_of_all_rows_is_not_a_run_of_the_plan(workspace: Workspace) -> None:
    workspace.eval(rows=2)

    smoke = workspace.run(CONFIG, "--osmosis-smoke", "--osmosis-smoke-rows=4")
    whole = workspace.run(CONFIG)

    smoke.stdout.fnmatch_lines(["  smoke: first 2 rows, *", "smoke: 2 of 2 runs, *"])
    assert read_json(workspace.run_dirs()[0] / "results.json")["partial"] is True
    assert "last eval run" not in whole.stdout.str()


def test_lf_selects_errors_and_forgets_no_failure_that_only_a_score_hides(workspace: Workspace) -> None:
    rows: list[Row] = [FAIL, {}, BROKEN, {}, {}, FAIL]
    workspace.eval(rows=rows, limits={"max_errors": 4})
    workspace.run(CONFIG)
    assert workspace.last_failed() == ids(0, 2, 5)
    rows[1:4] = [FAIL, {}, BROKEN]
    workspace.eval(rows=rows)

    workspace.run(CONFIG, "--osmosis-smoke").assert_outcomes(passed=4, errors=1)

    assert workspace.last_failed() == ids(0, 3, 5)
    workspace.run(CONFIG, "--osmosis-smoke", "--lf").assert_outcomes(passed=1, errors=1)
