"""Trajectories in ATIF: as rows that are scored, and what is wrong with them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.osmosis_sdk.trajectories import messages_of, steps_of
from pytest_osmosis.datasets import Dataset, open_dataset
from pytest_osmosis.errors import DatasetError

USER: dict[str, Any] = {"step_id": 1, "source": "user", "message": "6 * 7?"}
TOOL: dict[str, Any] = {
    "step_id": 2,
    "source": "agent",
    "message": "",
    "reasoning_content": "a product",
    "tool_calls": [{"tool_call_id": "c1", "function_name": "times", "arguments": {"a": 6, "b": 7}}],
    "observation": {"results": [{"source_call_id": "c1", "content": "42"}, {"content": None}]},
    "metrics": {"prompt_tokens": 10, "completion_tokens": 5, "logprobs": [-0.5]},
}
ANSWER: dict[str, Any] = {"step_id": 3, "source": "agent", "message": [{"type": "text", "text": "42"}]}
CALL = {"id": "c1", "type": "function", "function": {"name": "times", "arguments": '{"a": 6, "b": 7}'}}
MESSAGES = [
    {"role": "user", "content": "6 * 7?"},
    {"role": "assistant", "content": "", "reasoning_content": "a product", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "42"},
    {"role": "tool", "content": ""},
    {"role": "assistant", "content": [{"type": "text", "text": "42"}]},
]


def write(path: Path, *steps: dict[str, Any], version: str = "ATIF-v1.6", **members: Any) -> None:
    agent = {"name": "terminus-2", "version": "2.0.0", "model_name": "vendor/m"}
    document = {"schema_version": version, "agent": agent, "steps": steps or (USER, TOOL, ANSWER), **members}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def opened(folder: Path) -> Dataset:
    return open_dataset(folder, display="jobs", recorded=True)


def problem(dataset: Dataset, row: int = 0) -> str:
    with pytest.raises(DatasetError) as raised:
        dataset.row(row)
    (said,) = raised.value.problems
    return str(said)


def test_a_trial_of_harbor_is_a_row_with_its_conversation_and_its_reward(tmp_path: Path) -> None:
    write(tmp_path / "mult__b/agent/trajectory.json", session_id="s")
    write(tmp_path / "mult__a/steps/one/agent/trajectory.json", USER, ANSWER)
    verified = {"verifier_result": {"rewards": {"reward": 0.5, "style": 1.0}}}
    trial = {"task_name": "org/mult", "trial_name": "mult__b", **verified}
    (tmp_path / "mult__b/result.json").write_text(json.dumps(trial))
    (tmp_path / "result.json").write_text(json.dumps({"stats": {}}))  # the job's own

    dataset = opened(tmp_path)

    assert [len(row.record["messages"]) for row in map(dataset.row, range(len(dataset)))] == [2, 5]
    row = dataset.row(1)
    assert row.conversation == MESSAGES
    assert row.messages == MESSAGES[:1]
    ids = {"id": "s", "task_name": "org/mult", "trial_name": "mult__b", "trajectory": "mult__b/agent/trajectory.json"}
    told = {"reward": 0.5, "rewards": {"reward": 0.5, "style": 1.0}, "usage": {"input_tokens": 10, "output_tokens": 5}}
    asked = {"model": "vendor/m", "agent": "terminus-2", "messages": MESSAGES}
    assert row.record == {**ids, **told, **asked}


def test_an_eval_of_osmosis_has_the_rows_that_its_index_names_in_its_order(tmp_path: Path) -> None:
    for id, reward in (("b", 0.0), ("a", 1.0), ("replaced", 0.0)):
        told = {"label": "42", "reward": reward, "request_metadata": {"level": 2}}
        write(tmp_path / "run/rollout_trials" / id / "trajectory.json", extra={"osmosis": told})
    (tmp_path / "run/index.jsonl").write_text('{"rollout_id": "b"}\n{"rollout_id": "a"}\n{"rollout_id": "lost"}\n')

    dataset = opened(tmp_path)

    rows = [dataset.row(index) for index in range(len(dataset))]
    assert [row.record["reward"] for row in rows] == [0.0, 1.0]
    assert (rows[0].ground_truth, rows[0].record["metadata"]) == ("42", {"level": 2})
    assert rows[0].digest == rows[1].digest  # which compares jobs: what they were asked is the same


def test_other_json_files_of_a_folder_are_rows_if_none_is_called_trajectory(tmp_path: Path) -> None:
    write(tmp_path / "row_10.json")
    write(tmp_path / "row_2.json")

    assert opened(tmp_path).files == ("row_2.json", "row_10.json")


def test_a_trajectory_goes_on_in_the_files_that_it_names(tmp_path: Path) -> None:
    copied, next = {**TOOL, "is_copied_context": True}, {"continued_trajectory_ref": "trajectory.cont-1.json"}
    write(tmp_path / "trajectory.json", USER, TOOL, **next)
    write(tmp_path / "trajectory.cont-1.json", copied, ANSWER, final_metrics={"total_prompt_tokens": 30})

    row = opened(tmp_path).row(0)

    assert row.conversation == MESSAGES
    assert row.record["usage"] == {"input_tokens": 30, "output_tokens": 5}


@pytest.mark.parametrize(
    ("steps", "members", "said"),
    [
        ([], {"version": "ATIF-v2.0"}, "schema_version: must be ATIF-v1.0 to ATIF-v1.8, got 'ATIF-v2.0'"),
        ([USER, {**TOOL, "message": 3}], {}, "steps[1].message: must be text or a list, got 3"),
        ([USER, {**USER, "source": "human"}], {}, "steps[1].source: cannot be 'human'"),
        ([USER], {}, 'column "messages": has no message of the assistant, so there is no answer to score*'),
        ([], {"continued_trajectory_ref": "../x.json"}, "continued_trajectory_ref: must name another file in its*"),
        ([], {"continued_trajectory_ref": ""}, "continued_trajectory_ref: must name another file*"),
        ([], {"continued_trajectory_ref": "trajectory.json"}, "continued_trajectory_ref: must name another file*"),
        ([], {"continued_trajectory_ref": "no.json"}, "goes on in no.json: *"),
    ],
)
def test_a_fault_is_told_with_its_place(tmp_path: Path, steps: list[Any], members: dict[str, Any], said: str) -> None:
    write(tmp_path / "t/trajectory.json", *steps, **members)

    expected, is_whole = said.removesuffix("*"), not said.endswith("*")
    found = problem(opened(tmp_path)).removeprefix("jobs/t/trajectory.json: row 0: ")
    assert found == expected if is_whole else found.startswith(expected)


def test_text_that_is_no_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "trajectory.json").write_text("{")

    assert problem(opened(tmp_path)).startswith("jobs/trajectory.json: row 0: not valid JSON: Expecting")


def test_a_trajectory_that_changes_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "trajectory.json")
    dataset = opened(tmp_path)
    digest = dataset.digest()
    os.utime(tmp_path / "trajectory.json", (1, 1))

    assert problem(dataset).endswith("has changed since it was first read; start the eval again")
    assert opened(tmp_path).digest() == digest
    write(tmp_path / "trajectory.json", USER, ANSWER)
    assert opened(tmp_path).digest() != digest


def test_a_folder_without_trajectories_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").touch()

    with pytest.raises(DatasetError, match=r"^jobs: holds no trajectory; it needs a trajectory.json in a folder, or"):
        opened(tmp_path)


def test_an_index_that_is_none_is_named(tmp_path: Path) -> None:
    write(tmp_path / "rollout_trials/a/trajectory.json")
    (tmp_path / "index.jsonl").write_text("[]\n")

    with pytest.raises(DatasetError, match=r"index.jsonl: is no index of rollouts"):
        opened(tmp_path)


def test_a_conversation_comes_back_from_its_steps() -> None:
    assert list(messages_of(steps_of(MESSAGES))) == MESSAGES
