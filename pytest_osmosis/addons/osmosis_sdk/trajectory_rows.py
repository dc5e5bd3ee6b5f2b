"""A folder of trajectories as the rows of a dataset: each holds the conversation of one rollout, which is only scored.

The folder is what a job of Harbor or an eval of Osmosis left, or holds several of them: every `trajectory.json` below
it is a row. Of a rollout that an eval of Osmosis repeated, only the one counts that its `index.jsonl` names. Without
such a file, the `.json` files in the folder itself are rows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from msgspec.structs import replace

from pytest_osmosis.addons.osmosis_sdk.trajectories import Trajectory, messages_of, trajectory_of, usage_of
from pytest_osmosis.datasets.rows import BadRow
from pytest_osmosis.errors import DatasetError
from pytest_osmosis.files.reading import FileFault, read_text, something_at
from pytest_osmosis.files.strict_json import JsonFault, parsed
from pytest_osmosis.formats.codec import ShapeFault, quoted
from pytest_osmosis.text.names import natural_key, shown

NAME, TRIALS, INDEX, TRIAL = "trajectory.json", "rollout_trials", "index.jsonl", "result.json"
_REPLACED = -1
"""The place of a rollout that its index does not name."""


@dataclass(frozen=True, slots=True)
class TrajectoryRows:
    """The rows of a folder, each read when it is asked for. `files` are their paths in it, `changed` when they were."""

    folder: Path
    files: tuple[str, ...]
    changed: tuple[int, ...]
    text_cells: bool = False
    left_out: tuple[str, ...] = ()
    not_finite: Mapping[str, str] = field(default_factory=dict)

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
