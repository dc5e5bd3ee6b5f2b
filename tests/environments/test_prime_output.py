"""The words of an environment in the files of `prime eval`, and files of verifiers that a new run takes over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.environments import page_environments
from tests.plugin.workspaces import Workspace, read_json
from tests.servers import ChatServer, answered

PUBLISHED = ("example_id", "prompt", "completion", "answer", "task", "reward", "error", "timing", "is_completed")


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer(answered(lambda _: "42")) as server:
        yield server


@pytest.fixture
def command(workspace: Workspace, server: ChatServer) -> tuple[str, ...]:
    page_environments.write(workspace.root, "my-env")
    asked = ("--osmosis-model=openai/gpt-4.1-mini", f"--osmosis-api-base-url={server.base_url}")
    rows = ("--osmosis-rollouts-per-example=2", "--osmosis-num-examples=3", '--osmosis-env-args={"hard": true}')
    return ("--osmosis-env=my-env", *asked, *rows)


def test_the_files_hold_what_the_environment_says(workspace: Workspace, command: tuple[str, ...]) -> None:
    workspace.run(*command, "--osmosis-save-results", "--osmosis-state-columns=judge_response,nothing", exits=1)
    (folder,) = (workspace.root / "outputs/evals/my-env--openai--gpt-4.1-mini").iterdir()
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    metadata = read_json(folder / "metadata.json")
    assert [(line["example_id"], line["run_index"], line["reward"]) for line in lines] == [
        *((0, 0, 1.0), (0, 1, 1.0), (1, 0, 0.0)),
        *((1, 1, 0.0), (2, 0, 1.0), (2, 1, 1.0)),
    ]
    first = lines[0]
    assert set(PUBLISHED) < first.keys()
    assert (first["answer"], first["task"], first["stop_condition"]) == ("42", "my-env", "max_turns_reached")
    assert first["metrics"] == {"exact": 1.0, "length": 2.0} == {name: first[name] for name in ("exact", "length")}
    assert (first["judge_response"], first["nothing"]) == ("yes", None)
    assert [message["content"] for message in first["completion"]] == ["42"]
    assert (metadata["env_id"], metadata["env_args"]) == ("my-env", {"hard": True})
    assert (metadata["num_examples"], metadata["rollouts_per_example"], metadata["pass_threshold"]) == (3, 2, 0.5)
    assert metadata["avg_metrics"] == {"exact": 2 / 3, "length": 2.0}
    assert metadata["pass_at_k"] == pytest.approx({"1": 2 / 3, "2": 2 / 3})
    assert metadata["state_columns"] == ["judge_response", "nothing"]
    assert metadata["version_info"]["env_version"] == "0.1.0"


def test_resume_takes_the_newest_run_that_fits_by_the_rule_of_the_page(
    workspace: Workspace, command: tuple[str, ...], server: ChatServer
) -> None:
    def run(name: str, *words: str) -> None:
        workspace.run(*command, f"--osmosis-run={name}", "--osmosis-no-probe", *words)

    part = ("-k", "row0")
    run("fits", "--osmosis-num-examples=2", *part)
    run("done")
    run("other", "--osmosis-model=openai/other", *part)
    run("other-done", "--osmosis-model=openai/other")
    run("once", "--osmosis-rollouts-per-example=1", *part)
    run("more", "--osmosis-num-examples=4", *part)
    n_before = len(server.requests)

    resumed = workspace.run(*command, "--osmosis-resume", "--osmosis-no-probe", exits=1)

    assert len(server.requests) - n_before == 4
    resumed.stdout.fnmatch_lines(["*resumes fits*: 2 of 6 rollouts stored, 4 left"])

    refused = workspace.run(*command, "--osmosis-resume", "--osmosis-model=openai/third", exits=4)
    each = [f"  {name}: *model_path*" for name in ("fits", "more", "once", "other-done", "other")]
    refused.stderr.fnmatch_lines(["ERROR: *: none of the stored runs of my-env can be resumed:", *each, "  and 1 more"])


def write_like_verifiers(folder: Path, env_args: dict[str, Any]) -> None:
    """Write files as verifiers 0.1.14 does: two rollouts of two examples, one of which ended with an error."""
    span = {"start": 1795392287.0, "end": 1795392287.5, "duration": 0.5}
    spans = {"setup": span, "generation": span, "scoring": span, "model": {"spans": [span], "duration": 0.5}}
    timing = {"start_time": 1795392287.0, **spans, "env": {"spans": [], "duration": 0}, "total": 1.0, "overhead": 0.0}

    def line(example: int, reward: float, error: str | None = None) -> dict[str, Any]:
        question = f"my-env {json.dumps(env_args)}: 6 * {7 + example}?"
        failed = {"error": error, "error_chain_repr": f"{error}()", "error_chain_str": error}
        asked = {"prompt": [{"role": "user", "content": question}], "answer": str(6 * (7 + example)), "tool_defs": []}
        ended = {"is_completed": True, "is_truncated": False, "timing": timing, "metrics": {"exact": reward}}
        told: dict[str, Any] = {"error": failed, "completion": [], "stop_condition": "has_error"}
        if not error:
            said = [{"role": "assistant", "content": "taken over"}]
            told = {"error": None, "completion": said, "stop_condition": "max_turns_reached"}
        usage = {"input_tokens": 220.0, "output_tokens": 19.0}
        return {
            "example_id": example,
            **asked,
            **ended,
            **told,
            "reward": reward,
            "exact": reward,
            "token_usage": usage,
        }

    environment = {"env_id": "my-env", "env_args": env_args, "num_examples": 2, "rollouts_per_example": 2}
    model = {"model": "openai/gpt-4.1-mini", "base_url": "http://127.0.0.1/v1", "time": 1.5, "avg_reward": 0.25}
    sampling = {"state_columns": [], "sampling_args": {"n": 1, "extra_body": {}, "max_tokens": None}}
    versions = {"vf_version": "0.1.14", "vf_commit": None, "env_version": None, "env_commit": None}
    metadata = {**environment, **model, **sampling, "version_info": versions}
    lines = [line(0, 0.25), line(0, 0.0, "ModelError"), line(1, 0.75), line(1, 0.0)]
    folder.mkdir()
    (folder / "metadata.json").write_text(json.dumps(metadata))
    (folder / "results.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))


def test_rewards_in_files_of_verifiers_stay(workspace: Workspace, command: tuple[str, ...], server: ChatServer) -> None:
    written = workspace.root / "vf"
    write_like_verifiers(written, {"hard": True})
    n_before = len(server.requests)
    result = workspace.run(*command, f"--osmosis-resume-from={written}", "--osmosis-run=second")
    for line in ("*1 rollout in the files: made again, because they ended with an error", "*3 of 6 runs are from vf"):
        result.stdout.fnmatch_lines([line])
    assert len(server.requests) - n_before == 3 + 1, "the other rollouts and the probe"

    def scores() -> dict[tuple[int, int], Any]:
        rows = read_json(workspace.root / ".osmosis/runs/second/results.json")["rows"]
        return {
            (row["row_index"], run["run_index"]): run["scores"].get("reward") for row in rows for run in row["runs"]
        }

    taken = {(0, 0): 0.25, (0, 1): 1.0, (1, 0): 0.75, (1, 1): 0.0, (2, 0): 1.0, (2, 1): 1.0}
    assert scores() == taken
    assert workspace.run(*command, "--osmosis-run=second").ret == result.ret
    assert scores() == taken
    workspace.run("--osmosis-from=second")
    assert scores()[0, 0] == 0.0, "the rubric does not take the answer that was taken over"
