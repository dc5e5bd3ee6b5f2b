"""`pytest-osmosis runs export`, results made again from manifest and journal alone, and damaged journals."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.viewer_runs import SyntheticRun, write_run
from pytest_osmosis.addons.viewer.stored_results import differences
from pytest_osmosis.record.journal import encode, replay
from tests.cli.stored_runs import ROLLOUT, SCORE, Cli, RealRuns, Stored
from tests.plugin.workspaces import Shell, Workspace, wait_until

RUN_TABLE = Path(__file__).parents[2] / "docs" / "reference" / "run-table.md"


def jsonl(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_each_run_has_a_line_with_what_results_and_conversation_say(
    there: Cli, real_runs: RealRuns, tmp_path: Path
) -> None:
    path = tmp_path / "new folder" / "runs.jsonl"
    said = there("runs", "export", "x~1", "--format=jsonl", "-o", str(path))
    assert path.read_text() == there("runs", "export", real_runs.then.name, "--format=jsonl")
    assert said.endswith(f"runs.jsonl: 14 runs of {real_runs.then.name}\n")
    lines = jsonl(path.read_text())
    results = json.loads((real_runs.then / "results.json").read_text())
    published = [(row, run) for row in results["rows"] for run in row["runs"]]
    members = re.findall(r"^- `(\w+)`", RUN_TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) == len(published) == 14
    for line, (row, run) in zip(lines, published, strict=True):
        assert list(line) == members
        assert (line["row_index"], line["row_digest"]) == (row["row_index"], row["row_digest"])
        same = ("run_index", "scores", "status", "success", "tokens", "cost_usd", "duration_ms", "retries", "attempt")
        assert {key: line[key] for key in same} == {key: run[key] for key in same}
        assert line["boundary"] == run.get("boundary")
        assert line["input_tokens"] + line["output_tokens"] == line["tokens"]
        assert line["messages"][0]["content"] == line["prompt"] == f"What is {row['row_index']} * 2?"
        assert line["messages"][-1]["content"] == line["answer"]
        assert (line["ground_truth"], line["eval_run"]) == (str(row["row_index"] * 2), real_runs.then.name)
    first, broken = lines[0], lines[8]
    assert (first["run"], first["outcome"], first["passed"]) == ("row0-run0", "passed", True)
    assert first["metrics"]["rewards:score"]["words"] == len(first["answer"].split())
    assert (broken["outcome"], broken["passed"], broken["boundary"]) == ("error", None, "reward")
    assert broken["errors"] == {"rewards:score": "ZeroDivisionError: the reward function broke"}
    assert broken["error"] == "rewards:score: ZeroDivisionError: the reward function broke"


def test_an_eval_run_without_results_is_exported_as_far_as_it_got(typed: Cli, stored: Stored) -> None:
    begun = {"ev": "start", "row": 0, "run": 0, "attempt": 1, "at": "2026-01-01T00:00:00+00:00"}
    never = {"ev": "skip", "row": 1, "run": 0, "reason": "interrupted"}
    stored("killed", begun, ROLLOUT, SCORE, never, results=None)
    pending, done = jsonl(typed("runs", "export", "killed", "--format=jsonl"))
    keys = ("run", "status", "outcome", "prompt")
    assert [pending[key] for key in keys] == ["row0-run0", "pending", "pending", None]
    assert (done["scores"], done["answer"], done["passed"]) == ({"rewards:exact": 0.25}, "two\n\x1b[31mred", None)


def test_lines_hold_no_secret_and_any_text(typed: Cli, stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-0123456789abcdef")
    odd = [{"role": "user", "content": "\ud800 \0 sk-proj-0123456789abcdef"}, {"role": "assistant", "content": "a"}]
    noted = {**SCORE, "errors": {}, "ground_truth": {"a": ["\ud800"]}, "metrics": {"rewards:exact": {"\ud800": 3}}}
    stored("odd", {**ROLLOUT, "messages": odd, "n_prompt": 1}, noted, results=None)
    (line,) = jsonl(typed("runs", "export", "odd", "--format=jsonl"))
    assert line["prompt"] == "\ud800 \0 [OPENAI_API_KEY]"
    assert line["ground_truth"] == {"a": ["\ud800"]}
    assert line["metrics"] == {"rewards:exact": {"\ud800": 3}}


@pytest.mark.addon
def test_the_files_of_prime_eval_hold_all_runs_that_ended(there: Cli, real_runs: RealRuns, tmp_path: Path) -> None:
    said = there("runs", "export", real_runs.then.name, "--format=prime", "-o", str(tmp_path / "new" / "x"))
    assert said.endswith(f"results.jsonl and metadata.json, 14 runs of {real_runs.then.name}\n")
    folder = tmp_path / "new" / "x"
    lines, metadata = jsonl((folder / "results.jsonl").read_text()), json.loads((folder / "metadata.json").read_text())
    table = jsonl(there("runs", "export", real_runs.then.name, "--format=jsonl"))
    for line, run in zip(lines, table, strict=True):
        answer = str(2 * run["row_index"]) if run["ground_truth"] is not None else ""
        found = (line["example_id"], line["run_index"], line["answer"])
        assert found == (run["row_index"], run["run_index"], answer)
        assert line["reward"] == run["scores"].get("rewards:score", 0.0)
        assert [*line["prompt"], *line["completion"]] == run["messages"]
        assert (line["error"] is None) == (run["error"] is None)
        assert line["timing"]["generation_ms"] == run["duration_ms"]
    assert (metadata["num_examples"], metadata["rollouts_per_example"]) == (7, 2)
    assert metadata["avg_reward"] == 10 / 14
    assert metadata["pass_at_k"] == metadata["pass_all_k"] == {"1": 5 / 7, "2": 5 / 7}
    assert {path.name for path in folder.iterdir()} == {"results.jsonl", "metadata.json"}
    again = ("runs", "export", real_runs.then.name, "--format=prime", "-o", str(folder))
    assert there(*again) == said
    other = there("runs", "export", real_runs.other.name, "--format=prime", "-o", str(folder), fails=1)
    assert "results.jsonl of something else" in other


@pytest.mark.addon
def test_the_folder_for_osmosis_has_a_line_for_each_run(there: Cli, real_runs: RealRuns, tmp_path: Path) -> None:
    name = real_runs.then.name
    said = there("runs", "export", name, "--format=osmosis", "-o", str(tmp_path / "new"))
    assert f": 14 runs of {name}, 2 of them skipped: not measured, removed or never ran; to upload: osmosis " in said
    assert len(jsonl((tmp_path / "new" / name / "index.jsonl").read_text())) == 14


def test_what_cannot_be_exported_says_why(there: Cli, tmp_path: Path) -> None:
    assert "-o DIR" in there("runs", "export", "x", "--format=prime", fails=1)
    assert "-o DIR" in there("runs", "export", "x", "--format=osmosis", fails=1)
    assert "it is a folder" in there("runs", "export", "x", "--format=jsonl", "-o", str(tmp_path), fails=1)
    assert 'did you mean "x"' in there("runs", "export", "xx", "--format=jsonl", fails=1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--format=jsonl"],
        *(pytest.param([f"--format={name}", "-o", "files"], marks=pytest.mark.addon) for name in ("prime", "osmosis")),
    ],
)
def test_an_eval_run_whose_code_never_loaded_has_no_runs_to_export(
    typed: Cli, stored: Stored, arguments: list[str]
) -> None:
    folder = stored("x-1", results=None)
    (folder / "journal.jsonl").write_bytes(b"")
    assert typed("runs", "export", "x", *arguments, fails=1) == "x-1: holds no run: none had begun when it ended\n"
    assert not (folder.parents[2] / "files").exists()


MOST_KB = 30_000
PEAKS = """
import pathlib, re
from pytest_osmosis.cli import main

for run in ("short", "long"):
    assert main(["runs", "export", run, "--format=jsonl", "-o", "out"]) == 0
    print("peak", re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_texts(typed: Cli, stored: Stored, tmp_path: Path) -> None:
    for name, length in (("short", 1), ("long", 100_000)):
        texts = [{"role": "user", "content": "x" * length}, {"role": "assistant", "content": "y"}]
        with (stored(name, results=None) / "journal.jsonl").open("ab") as journal:
            for row in range(300):  # 30 MB of long texts
                journal.write(encode({**ROLLOUT, "row": row, "messages": texts, "n_prompt": 1}))

    done = subprocess.run([sys.executable, "-c", PEAKS], cwd=tmp_path, capture_output=True, text=True, check=True)

    short, long = (int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("peak"))
    assert long - short < MOST_KB


CONFIG = "--osmosis-config=configs/eval/x.toml"
REWARDS = """
import time


def score(solution_str, ground_truth, extra_info=None, **kwargs):
    if extra_info.get("raises"):
        raise ZeroDivisionError("the reward function broke")
    time.sleep(extra_info.get("slow", 0))
    return {"score": extra_info.get("score", 1.0), "metrics": {"words": 2.0}}


def other(solution_str, ground_truth, extra_info=None, **kwargs):
    return 0.25
"""
FUNCTIONS = ["rewards:score", "rewards:other"]
SCORES = (1, 1, 0, 1, 0.5, 1, 1, 1)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(Shell(tmp_path), [])
    workspace.write("rewards.py", REWARDS)
    return workspace


def exported(workspace: Workspace, run: Path) -> tuple[dict[str, Any], str]:
    """Export the results of a run while its results.json is aside, and return them with what was said."""
    stored, aside = run / "results.json", run / "aside"
    if stored.exists():
        stored.rename(aside)
    done = workspace.cli("runs", "export", run.name)
    assert done.ret == 0
    if aside.exists():
        aside.rename(stored)
    return json.loads(done.stdout.str()), done.stderr.str()


def evaluated(workspace: Workspace, *options: str, scores: tuple[float, ...] = SCORES, **tables: Any) -> Path:
    rows = [{"raises": 1} if score < 0 else {"score": score} for score in scores]
    workspace.eval(
        "x", rows, **{"evaluation": {"n": 2}, "scoring": {"eval_fns": FUNCTIONS, "decide": FUNCTIONS[0]}, **tables}
    )
    result = workspace.run(CONFIG, *options)
    assert workspace.run_dirs(), result.stdout.str() + result.stderr.str()
    return workspace.run_dirs()[-1]


def check_equal(workspace: Workspace, run: Path) -> dict[str, Any]:
    """Check that the results are made again as they were written, without a word; return them."""
    written = json.loads((run / "results.json").read_text())
    made, said = exported(workspace, run)
    assert list(differences(written, made)) == []
    assert list(made) == list(written)
    assert said == ""
    return made


@pytest.mark.slow
def test_gates_that_hold_fail_and_are_not_measured_are_decided_again(workspace: Workspace) -> None:
    made = check_equal(workspace, evaluated(workspace, gate={"pass_rate": ">= 0.9", "pass_at_2": ">= 0.5"}))
    assert [gate["state"] for gate in made["gates"]] == ["fails", "holds"]

    limits = {"max_errors": 1}
    made = check_equal(workspace, evaluated(workspace, scores=(-1,) * 8, gate={"pass_rate": ">= 0.9"}, limits=limits))
    assert (made["status"], made["stopped_by"]) == ("failed", "max_errors")


@pytest.mark.slow
def test_baseline_file_and_previous_run_are_compared_again(workspace: Workspace) -> None:
    baseline = {"baseline": {"results": "baseline.json"}, "gate": {"max_regression": 0.05}}
    first = evaluated(workspace, "--osmosis-update-baseline", scores=(1,) * 8, **baseline)
    check_equal(workspace, first)
    made = check_equal(workspace, evaluated(workspace, scores=(0,) * 6 + (1, 1), **baseline))
    assert made["gates"][0]["state"] == "fails"
    assert made["last_run"] is not None
    assert len(made["changed_rows"]) == 12

    (workspace.root / "baseline.json").unlink()
    made, said = exported(workspace, workspace.run_dirs()[-1])
    assert "the baseline baseline.json can no longer be read" in said
    assert made["gates"][0]["state"] == "not measured"

    previous = first / "results.json"
    previous.write_text(previous.read_text().replace('"passed": true', '"passed": false', 1))
    made, said = exported(workspace, workspace.run_dirs()[-1])
    assert f"the previous run {previous.relative_to(workspace.root)} can no longer be read" in said
    assert made["last_run"] is None


def test_a_shard_is_made_again(workspace: Workspace) -> None:
    made = check_equal(workspace, evaluated(workspace, "--osmosis-shard=2/3", gate={"pass_rate": ">= 0.5"}))
    assert made["shard"]["index"] == 2


@pytest.mark.slow
def test_a_killed_run_is_judged_by_its_rules(workspace: Workspace) -> None:
    rows = [{"score": 1.0, "slow": 0 if number < 2 else 60} for number in range(6)]
    workspace.eval("x", rows, gate={"pass_rate": ">= 0.2", "mean": ">= 0.99"}, evaluation={"batch_size": 2})
    session = workspace.start(CONFIG)
    journals = workspace.root / ".osmosis/runs"
    wait_until(
        lambda: sum(each.read_text().count('"ev":"score"') for each in journals.glob("*/journal.jsonl")) >= 2,
        "two scores",
    )
    session.kill()
    run = workspace.run_dirs()[-1]

    made, _ = exported(workspace, run)

    assert (made["status"], made["stopped_by"]) == ("failed", "killed")
    assert (made["summary"]["selected"], len(made["pending"])) == (6, 6 - made["summary"]["total_runs"])
    assert all("was killed" in each["reason"] for each in made["pending"])
    assert {gate["rule"]["metric"] for gate in made["gates"]} == {"pass_rate", "mean"}
    assert all(gate["finding"] for gate in made["gates"])


def test_a_stored_file_that_says_something_else_is_named(workspace: Workspace) -> None:
    run = evaluated(workspace)
    stored = run / "results.json"
    stored.write_text(stored.read_text().replace('"truncated": 0', '"truncated": 7'))
    done = workspace.cli("runs", "export", run.name, "-o", "made.json")
    assert done.ret == 0
    said = "the stored results.json says something else than the journal about summary.truncated"
    assert done.errlines[-1].endswith(said)
    assert json.loads((workspace.root / "made.json").read_text())["summary"]["truncated"] == 0


COMMANDS = (
    *("show x", "show x row0-run0", "show x row0", "show x --json", "runs export x", "html x"),
    *("runs export x --format=jsonl", "runs export x --format=prime -o prime"),
    *("runs compare x y", "runs compare y x --json"),
)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_a_changed_score_is_no_score(typed: Cli, tmp_path: Path, killed: bool) -> None:
    for name in ("x", "y"):
        write_run(tmp_path, SyntheticRun(name, rows=2, n=1), until=99 if killed else None)
    for command in COMMANDS:
        typed(*command.split())
    journal = tmp_path / ".osmosis/runs/x/journal.jsonl"
    number = [event["ev"] for event in replay(journal)].index("score") + 1
    changed, n = re.subn(rb'("scores":\{"[^"]+":)(0|1)', rb"\g<1>9", journal.read_bytes(), count=1)
    assert n == 1
    journal.write_bytes(changed)

    for command in COMMANDS:
        said = typed(*command.split(), fails=1)
        line = f".osmosis/runs/x/journal.jsonl:{number}: not a journal line: "
        assert f"{line}its checksum (crc) does not match its bytes; the file was damaged; delete that line" in said, (
            command
        )
    if killed:
        assert "unreadable" in typed("runs")
