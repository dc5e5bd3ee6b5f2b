"""The folder for `osmosis eval upload`, which the SDK itself takes; and trajectories in ATIF as rows."""

from __future__ import annotations

import importlib.util
import json
import os
import random
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_osmosis.addons.osmosis_sdk.eval_files import export_osmosis_files
from pytest_osmosis.addons.osmosis_sdk.trajectories import messages_of, steps_of
from pytest_osmosis.datasets import Dataset, open_dataset
from pytest_osmosis.errors import DatasetError, OsmosisError
from pytest_osmosis.record.find_run import StoredEvalRun, stored
from pytest_osmosis.record.journal import encode
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.text.redaction import Redaction
from tests.unit.made import MANIFEST, A, B

Expected = tuple[str, float | None]
"""The status and the reward of a run."""
SECRET = "sk-very-secret-0123"
MESSAGES: list[Any] = [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]
CALLS: list[Any] = [
    {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a\\ud800": [1e3, null]}'}},
    {"id": "c1", "function": {"name": None, "arguments": "{broken"}},
    {"id": 5, "function": {"name": "n", "arguments": '{"a": NaN}'}},
    *({"function": {"name": "n", "arguments": [1]}}, "text", None),
]
CALLED = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
ODD: list[list[Any]] = [
    MESSAGES,
    [],
    [{"role": "user", "content": [{"type": "text", "text": f"a\u2028 {SECRET}"}]}, {"role": "assistant"}],
    [{"role": "developer", "content": "b"}, {"role": "tool", "tool_call_id": "x", "content": "alone"}],
    [{"role": "user", "content": "\ud800\x00\U0001f600"}, {"role": "assistant", "content": None, "refusal": "\udfff"}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}, "text"]}, "no message", 7],
    [{"role": 3, "content": {"a": 1}, "tool_calls": [1]}, {"content": "x", "reasoning_content": "\ud800"}],
    [
        {"role": "assistant", "content": "", "reasoning_content": "thinking", "tool_calls": CALLS},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "2"}], "name": "add"},
        {"role": "tool", "tool_call_id": 5, "content": None},
        {"role": "function", "content": {"a": 1}},
        {"role": "assistant", "content": "done", "tool_calls": "none", "reasoning_content": 7},
    ],
    [CALLED, {"type": "function_call_output", "call_id": "c", "output": "3"}],
]


class Drawn(NamedTuple):
    """An eval run, and what must be said of its runs by row and index."""

    run: StoredEvalRun
    expected: Mapping[tuple[int, int], Expected]
    threshold: float


def drawn(folder: Path, seed: int) -> Drawn:
    """Store an eval run that a seed draws."""
    draw = random.Random(seed)
    scorers, n = [A, B][: draw.choice([1, 1, 2])], draw.randint(1, 3)
    decide = draw.choice(["all", "any", A]) if len(scorers) == 2 else "all"
    thresholds, threshold = ({A: 0.25}, 0.25) if draw.random() < 0.3 else ({}, 1.0)
    rows = sorted(draw.sample(range(12), draw.randint(1, 4)))
    events: list[Mapping[str, Any]] = [{"ev": "loaded", "scorers": scorers, "digests": dict.fromkeys(scorers, "0")}]
    alone = len(scorers) == 1 or decide == A
    expected: dict[tuple[int, int], Expected] = {}
    for place, row in enumerate(rows):
        for index in range(n):
            made, expected[place, index] = drawn_run(draw, row, index, scorers, decide, thresholds)
            events += made
    never = {"ev": "start", "row": rows[0], "run": 0, "attempt": 1}
    events += [] if any(event["ev"] == "start" for event in events) else [never]
    if draw.random() < 0.3:  # of the baseline
        events += [{**never, "model_tag": "baseline"}, {**rollout(draw, rows[0], 0), "model_tag": "baseline"}]
    plan = {**MANIFEST["plan"], "spans": [[row, 1, row + 1] for row in rows], "n": n}
    plan["total"] = draw.choice([12, 1000])
    rule = {"pass_threshold": 1.0, "thresholds": thresholds, "decide": decide}
    name = draw.choice(["x-1", f"gsm8k,temperature=0.5 {'y' * draw.randint(0, 99)}-1", ".\u00e9-1"])
    run = eval_run(folder, name, *events, plan=plan, pass_rule=rule)
    return Drawn(run, expected, threshold if alone and thresholds else 1.0)


def drawn_run(
    draw: random.Random, row: int, index: int, scorers: list[str], decide: str, thresholds: Mapping[str, float]
) -> tuple[list[Mapping[str, Any]], Expected]:
    """Return the events of a run, and what must be said of it."""
    run = {"row": row, "run": index, "attempt": 1}
    start, rolled = {"ev": "start", **run}, rollout(draw, row, index)
    kind = draw.choice(["never", "begun", "unscored", "broken", "removed", "unmeasured", "scored", "scored", "scored"])
    if kind == "never":
        return ([{"ev": "skip", "row": row, "run": index, "reason": "\udc80"}] if draw.random() < 0.5 else []), SKIPPED
    if kind == "begun":
        return [start], SKIPPED
    if kind == "unscored":
        return [start, rolled], SKIPPED
    if kind == "broken":
        boundary = draw.choice(["provider", "host", "model", "agent", "timeout"])
        broke = {"boundary": boundary, "error": f"ValueError: {SECRET}\ud800\u2028", "details": ""}
        return [start, {**rolled, **broke}], SKIPPED if boundary in ("provider", "host") else ("failed", None)
    score = {"ev": "score", **run, "ms": 1.0, "scores": {}, "errors": {}, "output": {}, "ground_truth": ["\ud800"]}
    if kind == "removed":
        return [start, rolled, {**score, "scores": {A: 1.0}, "removed": True, "name": scorers[-1]}], SKIPPED
    if kind == "unmeasured":
        error = {"message": "no", "details": ""}
        return [start, rolled, {**score, "errors": dict.fromkeys(scorers, error)}], SKIPPED
    scores = {name: draw.choice([-1.5, 0.0, 0.25, 1.0, 1e300]) for name in scorers}
    met = [scores[name] >= thresholds.get(name, 1.0) for name in scorers]
    reward = scores[A] if decide == A or len(scorers) == 1 else float(any(met) if decide == "any" else all(met))
    return [start, rolled, {**score, "scores": scores, "metrics": {A: {"\ud800": 3.0}}}], ("success", reward)


SKIPPED: Expected = ("skipped", None)


def rollout(draw: random.Random, row: int, index: int) -> dict[str, Any]:
    usage = draw.choice([None, {"input_tokens": 3, "output_tokens": 4}, {"output_tokens": 1, "cached_input_tokens": 0}])
    event = {"ev": "rollout", "row": row, "run": index, "attempt": 1, "ms": 5.0, "n_prompt": 0}
    return {**event, "messages": draw.choice(ODD), "usage": usage}


def eval_run(folder: Path, name: str, *events: Mapping[str, Any], **manifest: Any) -> StoredEvalRun:
    directory = RunDirectory(folder / ".osmosis/runs" / name)
    directory.path.mkdir(parents=True)
    directory.manifest.write_text(json.dumps({**MANIFEST, **manifest}))
    directory.journal.write_bytes(b"".join(map(encode, events)))
    return stored(directory)


def exported(run: StoredEvalRun, folder: Path) -> Path:
    export_osmosis_files(run, folder, "out", Redaction({"KEY": SECRET}))
    (made,) = folder.iterdir()
    return made


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "index.jsonl").read_text().splitlines()]


def check(drawn: Drawn, made: Path) -> None:
    """Check that each run is reported as it was, and that no text holds a secret or a lone surrogate."""
    lines = lines_of(made)
    told = {(line["row_index"], line["run_index"]): (line["status"], line.get("reward")) for line in lines}
    assert told == drawn.expected
    assert all(line.get("error_type") for line in lines if line["status"] != "success")
    assert json.loads((made / "metrics.json").read_text())["summary"]["pass_threshold"] == drawn.threshold
    assert json.loads((made / "progress.json").read_text())["total_dataset_rows"] == drawn.run.manifest.plan.total
    for path in files_in(made):
        text = path.read_text(encoding="ascii")
        assert SECRET not in text
        json.dumps([json.loads(line) for line in text.splitlines()], ensure_ascii=False).encode()  # raises for one


def files_in(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("seed", range(4))
def test_each_run_is_reported_as_it_was(tmp_path: Path, seed: int) -> None:
    run = drawn(tmp_path, seed)

    check(run, exported(run.run, tmp_path / "out"))


def test_files_of_the_same_eval_run_are_replaced_and_others_are_not(tmp_path: Path) -> None:
    loaded = {"ev": "loaded", "scorers": [A], "digests": {A: "0"}}
    run = eval_run(tmp_path, "x-1", loaded, {"ev": "start", "row": 0, "run": 0, "attempt": 1})
    made = exported(run, tmp_path / "out")
    before = {path: path.read_bytes() for path in files_in(made)}

    assert exported(run, tmp_path / "out") == made
    assert {path: path.read_bytes() for path in files_in(made)} == before
    told = {"rollout_id": "", "status": "skipped", "duration_ms": 0.0, "error_type": "never ran"}
    assert lines_of(made)[0] | {"rollout_id": ""} == {"row_index": 0, "run_index": 0, **told}
    (made / "manifest.json").write_text("{}")
    with pytest.raises(OsmosisError, match=r"^out: holds a x-1 of something else; name another folder$"):
        exported(run, tmp_path / "out")


@pytest.mark.skipif(importlib.util.find_spec("osmosis_ai") is None, reason="osmosis_ai is missing: make test-osmosis")
def test_the_sdk_takes_every_eval_run_and_counts_it_as_we_do(tmp_path: Path) -> None:
    from osmosis_ai.eval.local.results import aggregate_metrics  # type: ignore[import-not-found]
    from osmosis_ai.eval.local.state import validate_run_name  # type: ignore[import-not-found]
    from osmosis_ai.eval.local.upload import build_eval_upload_plan  # type: ignore[import-not-found]

    first = int(os.environ.get("OSMOSIS_EXPORT_SEED", "0"))
    for seed in range(first, first + 500):
        folder = tmp_path / f"seed {seed}"
        run = drawn(folder, seed)
        made = exported(run.run, folder / "out")

        plan = build_eval_upload_plan(made)

        check(run, made)
        assert validate_run_name(plan.run["name"]) == made.name, seed
        assert len(plan.files) == 2 + sum("trajectory_filename" in line for line in lines_of(made)), seed
        told = json.loads((made / "metrics.json").read_text())["summary"]
        counted = aggregate_metrics(lines_of(made), pass_threshold=told["pass_threshold"])
        assert {name: counted[name] for name in told} == told, seed
        passed = sum(reward is not None and reward >= run.threshold for _, reward in run.expected.values())
        assert counted["passed"] == passed, seed


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
CONVERSATION = [
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


opened = partial(open_dataset, display="jobs", recorded=True)


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
    assert row.conversation == CONVERSATION
    assert row.messages == CONVERSATION[:1]
    ids = {"id": "s", "task_name": "org/mult", "trial_name": "mult__b", "trajectory": "mult__b/agent/trajectory.json"}
    told = {"reward": 0.5, "rewards": {"reward": 0.5, "style": 1.0}, "usage": {"input_tokens": 10, "output_tokens": 5}}
    asked = {"model": "vendor/m", "agent": "terminus-2", "messages": CONVERSATION}
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
    assert rows[0].digests[0] == rows[1].digests[0]  # which compares jobs: what they were asked is the same


def test_other_json_files_of_a_folder_are_rows_if_none_is_called_trajectory(tmp_path: Path) -> None:
    write(tmp_path / "row_10.json")
    write(tmp_path / "row_2.json")

    assert opened(tmp_path).files == ("row_2.json", "row_10.json")


def test_a_trajectory_goes_on_in_the_files_that_it_names(tmp_path: Path) -> None:
    copied, next = {**TOOL, "is_copied_context": True}, {"continued_trajectory_ref": "trajectory.cont-1.json"}
    write(tmp_path / "trajectory.json", USER, TOOL, **next)
    write(tmp_path / "trajectory.cont-1.json", copied, ANSWER, final_metrics={"total_prompt_tokens": 30})

    row = opened(tmp_path).row(0)

    assert row.conversation == CONVERSATION
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


def test_a_folder_without_trajectories_says_what_it_lacks_and_an_index_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").touch()

    with pytest.raises(DatasetError, match=r"^jobs: holds no trajectory; it needs a trajectory.json in a folder, or"):
        opened(tmp_path)
    write(tmp_path / "rollout_trials/a/trajectory.json")
    (tmp_path / "index.jsonl").write_text("[]\n")
    with pytest.raises(DatasetError, match=r"index.jsonl: is no index of rollouts"):
        opened(tmp_path)


def test_a_conversation_comes_back_from_its_steps() -> None:
    assert list(messages_of(steps_of(CONVERSATION))) == CONVERSATION
