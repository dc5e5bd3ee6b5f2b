"""The folder of a local eval of Osmosis, which `osmosis eval upload` takes, made of any stored eval run that has ended.

It holds manifest.json, progress.json, index.jsonl with a line for each planned run, metrics.json, and a trajectory for
each rollout with messages. Source: `eval/local/upload.py`, `state.py` and `results.py` of osmosis-ai 0.3.8.
The platform counts every run but skipped ones, and one without a reward as not passed. So this is what they are here:

- "success": the run was scored. Its reward is the score that decides; 1.0 or 0.0 if several functions decide
- "failed", without a reward: the rollout broke at boundary `model`, `agent` or `timeout`
- "skipped", without a reward: the run was not measured, or removed by its Grader, or never ran

All names and ids follow from the eval run, so that the same eval run gives the same files, and the same upload.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import pytest_osmosis
from pytest_osmosis.addons.osmosis_sdk.trajectories import WRITTEN, FinalMetrics, Trajectory, TrajectoryAgent, steps_of
from pytest_osmosis.addons.viewer.stored_results import LastTerms, Replayed, replayed
from pytest_osmosis.config.eval_kinds import merged
from pytest_osmosis.errors import OsmosisError, writing
from pytest_osmosis.files import private
from pytest_osmosis.files.reading import FileFault, parsed, read_text, something_at
from pytest_osmosis.formats.codec import builtin
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.journal import EventReader
from pytest_osmosis.record.lifecycle import Lifecycle, lifecycle_of
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.verdicts.pass_rule import PassRule, reason_of

MANIFEST = "manifest.json"
MOST_NAME_CHARS = 96
MOST_MANIFEST_BYTES = 1 << 20
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_VERSIONS = {"rollout_protocol": "0.4", "dataset_normalization": 1, "state_schema": 1}
"""The versions of osmosis-ai 0.3.8."""

Status = Literal["success", "failed", "skipped"]


def export_osmosis_files(run: StoredEvalRun, folder: Path, named: str, redaction: Redaction) -> str:
    """Write the folder of an eval run below another one, and return the line that says so.

    The files of the same eval run are replaced. Raises `OsmosisError`, with the folder as the user `named` it.
    """
    lifecycle, found = lifecycle_of(run.directory), replayed(run.directory.journal)
    if not lifecycle.has_ended:
        raise OsmosisError(f"{run.directory.name}: is {lifecycle.status}; export it once it has ended")
    if not any(record.started for record in found.ledger.records.values()):
        raise OsmosisError(f"{run.directory.name}: holds no run: none had begun when it ended")
    files = _EvalFiles(run, lifecycle, found, redaction)
    target = folder / files.name
    if something_at(target) and _id_in(target) != files.id:
        raise OsmosisError(f"{named}: holds a {files.name} of something else; name another folder")
    with writing(named):
        private.make_folders(target)
        files.write(target)
    n_runs, n_skipped = files.counts["runs"], files.counts["skipped"]
    skipped = f", {n_skipped} of them skipped: not measured, removed or never ran" if n_skipped else ""
    others = "; those of the baseline are left out" if any(each.is_baseline for each in found.ledger.records) else ""
    upload = f"osmosis eval upload {shown(target)}"
    return f"{shown(target)}: {plural(n_runs, 'run')} of {run.directory.name}{skipped}{others}; to upload: {upload}"


def _id_in(folder: Path) -> object:
    """Return the id of the eval whose files a folder holds, None if it holds something else."""
    try:
        return parsed(read_text(folder / MANIFEST, most_bytes=MOST_MANIFEST_BYTES))["local_run_id"]
    except (FileFault, ValueError, KeyError, TypeError):
        return None


class _EvalFiles:
    """The files of an eval run, which has a `name` and an `id` there. `counts` are those of the lines so far."""

    def __init__(self, run: StoredEvalRun, lifecycle: Lifecycle, found: Replayed, redaction: Redaction) -> None:
        self.name = _UNFIT.sub("-", run.directory.name)[-MOST_NAME_CHARS:].lstrip("-.") or "run"
        self.counts = Counter[str]()
        self._run = run
        self.id = self._hex("")
        self._found = found
        self._redaction = redaction
        self._rule, self._price = LastTerms.of(run, found.ledger.scorers)
        self._rows = [row for row, _ in run.manifest.selected.rows()]
        self._ended_at = lifecycle.ended_at or run.manifest.started_at

    def write(self, folder: Path) -> None:
        """Write all files, the manifest last: without it there is nothing to upload. Raises `OSError`."""
        private.write(folder / "index.jsonl", self._lines(folder))
        sampled, manifest = len(self._rows), self._run.manifest
        progress = {
            "total_runs": self.counts["runs"],
            "sampled_rows": sampled,
            "total_dataset_rows": manifest.plan.total,
        }
        identity, own = self._manifest(), self._redaction.value
        metrics = {
            "eval_run": {
                "id": self.id,
                "status": "finished",
                "name": self.name,
                "dataset_name": own(Path(manifest.subject.extra["dataset"]).stem),
                "model_name": identity["inputs"]["model_path"],
                "rollout_name": identity["inputs"]["rollout"]["name"],
                "duration_ms": sum(self._found.session_ms),
                "started_at": manifest.started_at,
                "completed_at": self._ended_at,
            },
            "summary": self._summary(),
        }
        for name, value in (("progress.json", progress), ("metrics.json", metrics), (MANIFEST, identity)):
            private.write(folder / name, [_text(value)])

    def _summary(self) -> dict[str, Any]:
        """Return the sums over all runs, as the platform makes them."""
        counts = self.counts
        counted = counts["runs"] - counts["skipped"]
        return {
            "total_samples": counts["runs"],
            "completed_samples": counted,
            **{name: counts[name] for name in ("graded", "passed", "failed", "skipped")},
            "pass_rate": counts["passed"] / counted if counted else 0,
            "pass_threshold": self._rule.reward_threshold,
            "tokens_used": counts["tokens"],
        }

    def _hex(self, part: str) -> str:
        """Return the id of a part of the eval run."""
        manifest = self._run.manifest
        return blake2b(
            f"{self._run.directory.name}\0{manifest.started_at}\0{part}".encode(), digest_size=16
        ).hexdigest()

    def _manifest(self) -> dict[str, Any]:
        manifest = self._run.manifest
        own, experiment = self._redaction.value, manifest.inputs.get("experiment", {})
        code = manifest.code["rollouts"] if manifest.code is not None else None
        spans = merged((row, row) for row in self._rows)
        rows = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
        git: Mapping[str, Any] = manifest.git or {}
        name = manifest.rollout or manifest.environment.get("env_id") or manifest.eval
        return {
            "schema_version": 1,
            "local_run_id": self.id,
            "run_name": self.name,
            "created_at": manifest.started_at,
            "inputs": {
                "model_path": own(manifest.subject.model),
                "dataset": {"sha256": manifest.dataset_sha256, "selected_source_rows": rows},
                "n": manifest.plan.n,
                "rollout": {
                    "name": own(name),
                    "entrypoint": own(experiment.get("entrypoint") or name),
                    "source_digest": code or manifest.plan_digest,
                },
                "versions": _VERSIONS,
            },
            "provenance": _told(
                git_head=git.get("git_commit"),
                git_dirty=git.get("git_dirty"),
                config_path=own(self._run.own_config),
            ),
        }

    def _lines(self, folder: Path) -> Iterator[str]:
        """Yield the line of each planned run of the eval's own model, after its trajectory is written."""
        with EventReader(self._run.directory.journal) as reader:
            for row_index, row in enumerate(self._rows):
                for index in range(self._run.manifest.plan.n):
                    run = RunId(row, index)
                    record = self._found.ledger.records.get(run) or RunRecord(run)
                    place = {"row_index": row_index, "run_index": index}
                    id = self._hex(f"{run}\0{record.attempt}")
                    trajectory = self._trajectory(record, reader, id, place)
                    if trajectory is not None:
                        private.make_folders(folder / "rollout_trials" / id)
                        private.write(folder / "rollout_trials" / id / "trajectory.json", [_text(trajectory)])
                    yield _text(
                        {**place, "rollout_id": id, **self._line(record, has_trajectory=trajectory is not None)}
                    )

    def _line(self, record: RunRecord, *, has_trajectory: bool) -> dict[str, Any]:
        status, reward, tokens = _status(record, self._rule), self._rule.reward(record), record.tokens
        self.counts.update({"runs": 1, status: 1, "tokens": tokens or 0, "graded": reward is not None})
        self.counts["passed"] += self._rule.verdict(record) is True
        error = None if status == "success" else self._redaction.text(reason_of(record, self._rule)) or status
        return _told(
            trajectory_filename="trajectory.json" if has_trajectory else None,
            status=status,
            reward=reward,
            tokens=tokens,
            duration_ms=record.duration_ms + record.scoring_ms,
            error_type=error,
        )

    def _trajectory(
        self, record: RunRecord, reader: EventReader, id: str, place: Mapping[str, int]
    ) -> dict[str, Any] | None:
        """Return the trajectory of a run, None if it has no messages."""
        rollout, score = (self._found.event(kind, record, reader) for kind in ("rollout", "score"))
        if not (messages := rollout.get("messages")):
            return None
        usage, price = record.usage or {}, self._price.get(record.run.model)
        steps, truth = steps_of(self._redaction.value(messages)), score.get("ground_truth")
        metrics = {
            f"{source}.{name}": number for source, some in record.metrics.items() for name, number in some.items()
        }
        osmosis = _told(
            label=truth if isinstance(truth, str) or truth is None else json.dumps(truth),
            reward=self._rule.reward(record),
            sample_metrics={**metrics, **(record.scores if record.status == "finished" else {})},
            sample_extra_fields={"reasons": record.notes.reasons, "fields": record.notes.to_json().get("fields", {})},
        )
        own = {"rollout_id": id, "request_extra_fields": {**place, "source_row_index": record.run.row}}
        model = self._redaction.text(self._run.manifest.subject.model)
        trajectory = Trajectory(
            schema_version=WRITTEN,
            session_id=id,
            trajectory_id=id,
            agent=TrajectoryAgent("pytest-osmosis", pytest_osmosis.__version__, model),
            steps=steps,
            final_metrics=FinalMetrics(
                total_prompt_tokens=usage.get("input_tokens"),
                total_completion_tokens=usage.get("output_tokens"),
                total_cached_tokens=usage.get("cached_input_tokens"),
                total_cost_usd=None if price is None else price.cost_usd(record.usage),
                total_steps=len(steps),
            ),
            extra={"osmosis": {**self._redaction.value(osmosis), **own}},
        )
        made: dict[str, Any] = builtin(trajectory)
        return made


def _status(record: RunRecord, rule: PassRule) -> Status:
    if not rule.measured(record):
        return "skipped"
    return "success" if record.status == "finished" else "failed"


def _told(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _text(value: Any) -> str:
    """Return a line of ASCII JSON, with "?" for lone surrogates, which no text of Osmosis may hold."""
    return json.dumps(json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))) + "\n"
