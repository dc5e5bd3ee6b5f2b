"""`[output] save_results`: results.jsonl and metadata.json as `prime eval` writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.plugin.workspaces import Workspace

ROWS: list[dict[str, Any]] = [{"score": 1.0}, {"score": 0.25}, {"reward": "raises"}]
OUTPUT = {"save_results": True}


def files_in(workspace: Workspace) -> tuple[Path, list[dict[str, Any]], dict[str, Any]]:
    (folder,) = (workspace.root / "outputs" / "evals" / "x--demo--arithmetic").iterdir()
    lines = (folder / "results.jsonl").read_text().splitlines()
    return folder, [json.loads(line) for line in lines], json.loads((folder / "metadata.json").read_text())


def test_each_session_leaves_the_files_of_prime_eval(plain_workspace: Workspace) -> None:
    workspace = plain_workspace
    workspace.eval("x", ROWS, evaluation={"n": 2}, output=OUTPUT, limits={"max_errors": 9})
    result = workspace.run("--osmosis-config=configs/eval/x.toml", "-k", "not row2")
    result.stdout.fnmatch_lines(["results as prime eval has them: outputs/evals/x--demo--arithmetic/x-*"])
    folder, lines, metadata = files_in(workspace)
    assert folder.name == workspace.run_dirs("x")[0].name
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert [(line["example_id"], line["run_index"], line["reward"]) for line in lines] == [
        (0, 0, 1.0),
        (0, 1, 1.0),
        (1, 0, 0.25),
        (1, 1, 0.25),
    ]
    first = lines[0]
    assert (first["prompt"][0]["role"], first["completion"][-1]["role"]) == ("user", "assistant")
    assert (first["error"], first["is_completed"], first["is_truncated"]) == (None, True, False)
    assert first["metrics"] == {"rewards:score": 1.0} == {"rewards:score": first["rewards:score"]}
    assert first["token_usage"]["output_tokens"] > 0
    assert first["timing"]["generation"]["duration"] * 1000 == first["timing"]["generation_ms"]
    assert (metadata["env_id"], metadata["model"], metadata["env_args"]) == ("x", "demo/arithmetic", {})
    assert (metadata["num_examples"], metadata["rollouts_per_example"], metadata["pass_threshold"]) == (2, 2, 1.0)
    assert (metadata["avg_reward"], metadata["avg_metrics"]) == (0.625, {"rewards:score": 0.625})
    assert metadata["pass_at_k"] == metadata["pass_all_k"] == {"1": 0.5, "2": 0.5}
    assert metadata["osmosis"]["run"] == folder.name
    result = workspace.run("--osmosis-config=configs/eval/x.toml", "--osmosis-resume")
    _, lines, metadata = files_in(workspace)
    assert [line["reward"] for line in lines] == [1.0, 1.0, 0.25, 0.25, 0.0, 0.0]
    assert lines[-1]["error"]["error"] == "ZeroDivisionError"
    assert lines[-1]["error_chain"] == "ZeroDivisionError: the reward function broke"
    assert (metadata["num_examples"], round(metadata["avg_error"], 3)) == (3, 0.333)


def test_a_folder_outside_the_workspace_is_refused(plain_workspace: Workspace) -> None:
    plain_workspace.eval("x", ROWS, output={**OUTPUT, "output_dir": "../elsewhere"})
    result = plain_workspace.run("--osmosis-config=configs/eval/x.toml")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*output_dir: must be inside the workspace*"])


def test_an_abbreviated_summary_shows_no_conversation(plain_workspace: Workspace) -> None:
    plain_workspace.eval("x", ROWS, limits={"max_errors": 9})
    command = "--osmosis-config=configs/eval/x.toml"
    whole = plain_workspace.run(command, "-rfE").stdout.str()
    brief = plain_workspace.run(
        command, "--osmosis-abbreviated-summary", "--osmosis-heartbeat-url=http://127.0.0.1:9/", "-rfE"
    )
    assert "= FAILURES =" in whole
    assert "ZeroDivisionError" in whole
    text = brief.stdout.str()
    assert "= FAILURES =" not in text
    assert "Traceback" not in text
    for line in ("*heartbeat* to 127.0.0.1 failed: *", "FAILED *row1-run0*", "ERROR *row2-run0*"):
        brief.stdout.fnmatch_lines([line])
    assert brief.ret == 1
