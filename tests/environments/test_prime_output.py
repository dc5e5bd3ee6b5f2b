"""Files of verifiers that a new run of an environment takes over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.environments import page_environments
from tests.plugin.workspaces import Workspace, read_json
from tests.servers import ChatServer, answered


def write_like_verifiers(folder: Path, env_args: dict[str, Any]) -> None:
    """Write files as verifiers 0.1.14 does: two rollouts of two examples, one of which ended with an error."""

    def line(example: int, reward: float, error: str | None = None) -> dict[str, Any]:
        question = f"my-env {json.dumps(env_args)}: 6 * {7 + example}?"
        failed = {"error": error, "error_chain_repr": f"{error}()", "error_chain_str": error}
        told = {"example_id": example, "prompt": [{"role": "user", "content": question}], "metrics": {"exact": reward}}
        said = [] if error else [{"role": "assistant", "content": "taken over"}]
        return {**told, "completion": said, "error": failed if error else None, "reward": reward, "exact": reward}

    lines = [line(0, 0.25), line(0, 0.0, "ModelError"), line(1, 0.75), line(1, 0.0)]
    sampling = {"state_columns": [], "sampling_args": {"n": 1, "extra_body": {}, "max_tokens": None}}
    metadata = {"env_id": "my-env", "env_args": env_args, "rollouts_per_example": 2, "model": "openai/gpt-4.1-mini"}
    folder.mkdir()
    (folder / "metadata.json").write_text(
        json.dumps({**metadata, **sampling, "version_info": {"vf_version": "0.1.14"}})
    )
    (folder / "results.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))


def test_rewards_in_files_of_verifiers_stay(workspace: Workspace) -> None:
    page_environments.write(workspace.root, "my-env")
    write_like_verifiers(workspace.root / "vf", {"hard": True})
    rows = ("--osmosis-rollouts-per-example=2", "--osmosis-num-examples=3", '--osmosis-env-args={"hard": true}')
    with ChatServer(answered(lambda _: "42")) as server:
        asked = ("--osmosis-model=openai/gpt-4.1-mini", f"--osmosis-api-base-url={server.base_url}")
        command = ("--osmosis-env=my-env", *asked, *rows, "--osmosis-run=second")
        result = workspace.run(*command, "--osmosis-resume-from=vf")
        assert len(server.requests) == 3 + 1, "the other rollouts and the probe"
    made_again = "*1 rollout in the files: made again, because they ended with an error"
    result.stdout.fnmatch_lines_random([made_again, "*3 of 6 runs are from vf"])

    def scores() -> dict[tuple[int, int], Any]:
        rows = read_json(workspace.root / ".osmosis/runs/second/results.json")["rows"]
        return {
            (row["row_index"], run["run_index"]): run["scores"].get("reward") for row in rows for run in row["runs"]
        }

    taken = {(0, 0): 0.25, (0, 1): 1.0, (1, 0): 0.75, (1, 1): 0.0, (2, 0): 1.0, (2, 1): 1.0}
    assert scores() == taken
    assert workspace.run(*command).ret == result.ret
    assert scores() == taken
    workspace.run("--osmosis-from=second")
    assert scores()[0, 0] == 0.0, "the rubric does not take the answer that was taken over"
