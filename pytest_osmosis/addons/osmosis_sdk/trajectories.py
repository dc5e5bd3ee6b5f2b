"""Trajectories in ATIF, the Agent Trajectory Interchange Format: written from chat messages, and read as such.

Harbor and the Osmosis SDK keep one file for each rollout. The tool results of an agent's turn stand in its step.

A folder of trajectories is a dataset: each row holds the conversation of one rollout, which is only scored. The folder
is what a job of Harbor or an eval of Osmosis left, or holds several of them: every `trajectory.json` below it is a row.
Of a rollout that an eval of Osmosis repeated, only the one counts that its `index.jsonl` names. Without such a file,
the `.json` files in the folder itself are rows.

Source: `harbor/models/trajectories` of harbor 0.26.0, and `rollout/trajectory` of osmosis-ai 0.3.8, which writes v1.7.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis.datasets.rows import BadRow
from pytest_osmosis.errors import DatasetError
from pytest_osmosis.files.reading import FileFault, JsonFault, parsed, read_text, something_at
from pytest_osmosis.formats.codec import Amount, Count, ShapeFault, decode, quoted
from pytest_osmosis.text.chat_messages import as_chat_messages
from pytest_osmosis.text.names import natural_key, shown

WRITTEN = "ATIF-v1.7"
READ = tuple(f"ATIF-v1.{minor}" for minor in range(9))
Content = str | Sequence[Mapping[str, Any]]
"""A text, or parts, of which those with text have the form that they have in chat messages."""
Extra = Mapping[str, Any] | None


class TrajectoryAgent(Struct, omit_defaults=True):
    name: str
    version: str
    model_name: str | None = None


class ToolCall(Struct):
    tool_call_id: str
    function_name: str
    arguments: Mapping[str, Any]


class Result(Struct, omit_defaults=True):
    """The result of a tool call of the same step, or of an action that was none: its `source_call_id` is None."""

    source_call_id: str | None = None
    content: Content | None = None
    extra: Extra = None


class Observation(Struct):
    results: list[Result]


class Metrics(Struct, omit_defaults=True):
    """The tokens of a step. Those of the prompt include cached ones."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


class FinalMetrics(Struct, omit_defaults=True):
    """The sums over a trajectory."""

    total_prompt_tokens: Count | None = None
    total_completion_tokens: Count | None = None
    total_cached_tokens: Count | None = None
    total_cost_usd: Amount | None = None
    total_steps: Count | None = None


class Step(Struct, omit_defaults=True):
    """One turn. `is_copied_context` says that an earlier file of the same rollout has it too."""

    source: Literal["system", "user", "agent"]
    message: Content
    step_id: int | None = None
    reasoning_content: str | None = None
    tool_calls: Sequence[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    is_copied_context: bool | None = None
    extra: Extra = None


class Trajectory(Struct, omit_defaults=True, kw_only=True):
    """One rollout, or a part of it: `continued_trajectory_ref` is the file with the next part, beside this one."""

    schema_version: str
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: TrajectoryAgent
    steps: list[Step]
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    extra: Extra = None


def trajectory_of(document: object) -> Trajectory:
    """Return the trajectory in a JSON value. Raises `ShapeFault`, also for a version that is not known."""
    version = document.get("schema_version") if isinstance(document, Mapping) else None
    if isinstance(version, str) and version not in READ:
        raise ShapeFault(f"schema_version: must be {READ[0]} to {READ[-1]}, got {quoted(version)}")
    return decode(document, Trajectory)


# -- read --------------------------------------------------------------------------------------------------


def messages_of(steps: Iterable[Step]) -> Iterator[dict[str, Any]]:
    """Yield the chat messages of steps. Results follow the turn that they belong to.

    >>> [message["role"] for message in messages_of([Step("system", "Be brief."), Step("user", "6 * 7?")])]
    ['system', 'user']
    """
    for step in steps:
        results = step.observation.results if step.observation is not None else ()
        message: dict[str, Any] = {"role": "assistant" if step.source == "agent" else step.source}
        message["content"] = step.message
        if step.reasoning_content is not None:
            message["reasoning_content"] = step.reasoning_content
        if step.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.tool_call_id,
                    "type": "function",
                    "function": {
                        "name": call.function_name,
                        "arguments": json.dumps(call.arguments, ensure_ascii=False),
                    },
                }
                for call in step.tool_calls
            ]
        if step.source == "agent" or step.message or not results:
            yield message
        for result in results:
            told = result.source_call_id or (result.extra or {}).get("tool_call_id")
            yield {"role": "tool", **({"tool_call_id": told} if told else {}), "content": result.content or ""}


def usage_of(trajectory: Trajectory) -> dict[str, float]:
    """Return the tokens and the cost of a trajectory, as far as it tells them."""
    final, each = trajectory.final_metrics or FinalMetrics(), [step.metrics or Metrics() for step in trajectory.steps]
    totals = {
        "input_tokens": _total(final.total_prompt_tokens, [metrics.prompt_tokens for metrics in each]),
        "output_tokens": _total(final.total_completion_tokens, [metrics.completion_tokens for metrics in each]),
        "cached_input_tokens": final.total_cached_tokens,
        "cost_usd": final.total_cost_usd,
    }
    return {name: total for name, total in totals.items() if total is not None}


def _total(told: int | None, counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if told is None and known else told


# -- written -----------------------------------------------------------------------------------------------

_SOURCES: Mapping[str, Literal["system", "user", "agent"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "agent",
}


def steps_of(messages: Sequence[object]) -> list[Step]:
    """Return the steps of a conversation. What a step has no member for is in its `extra`.

    >>> [step.source for step in steps_of([{"role": "user", "content": "6 * 7?"}, {"role": "tool", "content": "42"}])]
    ['user', 'system']
    """
    steps: list[Step] = []
    for message in as_chat_messages(messages):
        told: dict[str, Any] = dict(message) if isinstance(message, Mapping) else {"content": message}
        role = told.pop("role", None)
        if role in ("tool", "function"):
            _add_result(steps, str(role), told)
            continue
        source = _SOURCES.get(role) if isinstance(role, str) else None
        step = Step(source or "user", _content(told.pop("content", None)), len(steps) + 1)
        if source != role and source != "agent":
            told["original_role"] = role
        if source == "agent":
            if isinstance(told.get("reasoning_content"), str):
                step.reasoning_content = told.pop("reasoning_content")
            if isinstance(told.get("tool_calls"), list):
                step.tool_calls = [_call(n, call) for n, call in enumerate(told.pop("tool_calls"))] or None
        step.extra = told or None
        steps.append(step)
    return steps


def _add_result(steps: list[Step], role: str, told: dict[str, Any]) -> None:
    """Add the result of a tool to the turn before it, or to a step of its own if no agent's turn is there."""
    call, content = told.pop("tool_call_id", None), _content(told.pop("content", None))
    if not steps or steps[-1].source != "agent":
        steps.append(Step("system", "", len(steps) + 1, extra={"original_role": role}))
    step = steps[-1]
    is_known = any(call == each.tool_call_id for each in step.tool_calls or ())
    extra = told if is_known or call is None else {**told, "tool_call_id": call}
    step.observation = step.observation or Observation([])
    step.observation.results.append(Result(call if is_known else None, content, extra or None))


def _content(content: object) -> Content:
    """Return the content of a message. Parts other than text have no place in ATIF; then all is JSON text."""
    if isinstance(content, str) or (isinstance(content, list) and content and all(map(_is_text, content))):
        return content
    return "" if content is None else json.dumps(content)


def _is_text(part: Any) -> bool:
    is_object = isinstance(part, Mapping) and part.keys() == {"type", "text"}
    return is_object and part["type"] == "text" and isinstance(part["text"], str)


def _call(number: int, call: Any) -> ToolCall:
    """Return a tool call. Arguments that are no JSON object are under `_raw`.

    >>> _call(0, {"id": "c1", "function": {"name": "add", "arguments": "{\\"a\\": 1"}})
    ToolCall(tool_call_id='c1', function_name='add', arguments={'_raw': '{"a": 1'})
    """
    told = call if isinstance(call, Mapping) else {"function": {"arguments": call}}
    function = told["function"] if isinstance(told.get("function"), Mapping) else told
    arguments = raw = function.get("arguments")
    with suppress(JsonFault):
        arguments = parsed(raw, repeats=False) if isinstance(raw, str) else raw
    if not isinstance(arguments, Mapping):
        arguments = {} if raw in (None, "") else {"_raw": raw}
    return ToolCall(str(told.get("id") or f"call_{number}"), str(function.get("name") or "unknown"), arguments)


# -- a folder of them as a dataset --------------------------------------------------------------------------

NAME, TRIALS, INDEX, TRIAL = "trajectory.json", "rollout_trials", "index.jsonl", "result.json"
_REPLACED = -1
"""The place of a rollout that its index does not name."""


class TrajectoryRows(Struct, frozen=True):
    """The rows of a folder, each read when it is asked for. `files` are their paths in it, `changed` when they were."""

    folder: Path
    files: tuple[str, ...]
    changed: tuple[int, ...]
    text_cells: bool = False
    left_out: tuple[str, ...] = ()
    not_finite: Mapping[str, str] = {}

    def __len__(self) -> int:
        return len(self.files)

    def line(self, row_index: int) -> int:
        return row_index + 1

    def record(self, file: BinaryIO, row_index: int) -> dict[str, Any]:
        """Return the row's values. Raises `BadRow`."""
        path = self.folder / self.files[row_index]
        row = _record(_whole(path), self.files[row_index], _trial(self.folder, path))
        if _changed(path) != self.changed[row_index]:
            raise BadRow("has changed since it was first read; start the eval again")
        return row


def trajectory_rows(folder: Path, display: str) -> TrajectoryRows:
    """Find the trajectories in a folder. Raises `DatasetError`."""
    found = list(folder.rglob(NAME))
    trials = {path.parent.parent for path in found if path.parent.parent.name == TRIALS}
    indexes = {each: _index(each.with_name(INDEX)) for each in trials}

    def place(path: Path) -> tuple[Any, int]:
        index = indexes.get(path.parent.parent)
        if index is None:
            return natural_key(str(path)), 0
        return natural_key(str(path.parent.parent)), index.get(path.parent.name, _REPLACED)

    paths = sorted((path for path in found or folder.glob("*.json") if place(path)[1] != _REPLACED), key=place)
    if not paths:
        raise DatasetError.at(display, f"holds no trajectory; it needs a {NAME} in a folder, or .json files")
    names = tuple(path.relative_to(folder).as_posix() for path in paths)
    return TrajectoryRows(folder, names, tuple(map(_changed, paths)))


def _changed(path: Path) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 (Path.stat does the same)
    except OSError:
        return -1


def _index(path: Path) -> Mapping[str, int] | None:
    """Return the places of rollouts in an eval of Osmosis by their ids, None without an index."""
    if not something_at(path):
        return None
    try:
        lines = [parsed(line) for line in read_text(path).splitlines()]
        return {line["rollout_id"]: place for place, line in enumerate(lines)}
    except (FileFault, JsonFault, KeyError, TypeError) as fault:
        raise DatasetError.at(shown(path), f"is no index of rollouts: {fault}") from None


def _json(path: Path) -> Any:
    """Return the value in a JSON file. Raises `BadRow`."""
    try:
        return parsed(read_text(path), repeats=False)
    except FileFault as fault:
        raise BadRow(str(fault), line=fault.line) from None
    except JsonFault as fault:
        raise BadRow(f"not valid JSON: {fault}") from None


def _read(path: Path) -> Trajectory:
    try:
        return trajectory_of(_json(path))
    except ShapeFault as fault:
        raise BadRow(str(fault)) from None


def _whole(path: Path) -> Trajectory:
    """Return a trajectory with all files in which it goes on. They begin with a copy of what they need."""
    first = last = _read(path)
    steps, seen = list(first.steps), {path.name}
    while (name := last.continued_trajectory_ref) is not None:
        if name in (*seen, "", "..") or Path(name).name != name:
            raise BadRow(f"continued_trajectory_ref: must name another file in its folder, got {quoted(name)}")
        seen.add(name)
        try:
            last = _read(path.with_name(name))
        except BadRow as error:
            raise BadRow(*(f"goes on in {name}: {fault}" for fault in error.faults)) from None
        steps += [step for step in last.steps if not step.is_copied_context]
    return replace(first, steps=steps, final_metrics=last.final_metrics)


def _trial(folder: Path, path: Path) -> Mapping[str, Any]:
    """Return the result of Harbor's trial that left a trajectory, which is in a folder above it; empty without one."""
    for above in path.parents:
        if something_at(above / TRIAL):
            found = _json(above / TRIAL)
            if isinstance(found, Mapping) and "trial_name" in found:
                return found
        if above == folder:
            break
    return {}


def _record(trajectory: Trajectory, file: str, trial: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row: what the rollout was asked and said, and what its job says of it."""
    osmosis = _object(_object(trajectory.extra).get("osmosis"))
    rewards = _object(_object(trial.get("verifier_result")).get("rewards"))
    known = {
        "id": trajectory.session_id or trajectory.trajectory_id,
        "ground_truth": osmosis.get("label"),
        "metadata": osmosis.get("request_metadata"),
        "task_name": trial.get("task_name"),
        "trial_name": trial.get("trial_name"),
        "reward": osmosis.get("reward", rewards.get("reward")),
        "rewards": rewards or None,
        "model": trajectory.agent.model_name,
        "usage": usage_of(trajectory) or None,
        "extra": trajectory.extra,
    }
    told = {name: value for name, value in known.items() if value is not None}
    return {"messages": list(messages_of(trajectory.steps)), **told, "agent": trajectory.agent.name, "trajectory": file}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
