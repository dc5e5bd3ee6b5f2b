"""The inputs of rollouts: all on which a stored rollout depends. An eval run only goes on with the same ones.

The manifest holds them, apart from two: digests of the rows and of the agent's code stand in the journal. Values of
variables are compared by digests, which are salted for each run, and are never shown. How fast an eval runs, how it
scores and what it expects may change, and so may what rows hold besides prompt and metadata: stored rollouts are then
scored again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from pytest_osmosis.config.environment_module import name_of
from pytest_osmosis.config.kinds import toml
from pytest_osmosis.errors import CodeError
from pytest_osmosis.evals.request_settings import request_sampling
from pytest_osmosis.models.providers import secret_headers
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.stored_rollouts import StoredProgress
from pytest_osmosis.text.names import listed
from pytest_osmosis.text.safe import shortened

if TYPE_CHECKING:
    from pytest_osmosis.evals.prepared import Prepared

BY_NAME = frozenset({"sampling", "limits.rollout", "env", "model.headers"})
"""Tables whose keys are names that users chose."""
HIDDEN = frozenset({"env", "model.headers"})
"""Tables with digests in place of values."""
SECRET = "secret"
"""Stands for a value that may change between sessions, because it only lets us in."""
MOST_ROWS_LISTED = 5
MOST_VALUE_CHARS = 120


# -- what rollouts depend on -----------------------------------------------------------------------------


def rollout_inputs(prepared: Prepared, salt: str) -> dict[str, dict[str, Any]]:
    """Return the inputs by table and key, as JSON, without secrets. `salt` is that of the run's digests."""
    config, other = prepared.config, prepared.models.baseline
    sampling = request_sampling(config)
    if prepared.models.target.seed_key is not None and config.sampling.seed is not None:
        sampling["seed"] = config.sampling.seed
    inputs: dict[str, dict[str, Any]] = {
        "experiment": {
            "model_path": config.experiment.model_path,
            "rollout": config.experiment.rollout,
            "entrypoint": config.experiment.entrypoint,
            "commit": None if prepared.commit is None else prepared.commit.sha,
        },
        "model": _address(prepared.models.target),
        "model.headers": _header_digests(prepared.models.target.headers, salt),
        "sampling": sampling,
        "agent": {
            "agent": config.agent.agent,
            "endpoint": config.agent.endpoint,
            "max_turns": config.agent.max_turns,
            "mcp": _inside(config.agent.mcp, prepared),
            "prompt": prepared.dataset.system_prompt,
        },
        "environment": _environment(prepared),
        "evaluation": {"agent_workflow_timeout_s": config.evaluation.agent_workflow_timeout_s},
        "limits.rollout": dict(config.limits.rollout),
        "cassette": {"replay": prepared.is_replay},
        "env": {name: _digest(name, value, prepared, salt) for name, value in config.env.items()},
        "baseline": {
            "model_path": None if other is None else other.name,
            **({"base_url": None} if other is None else _of_baseline(other.target)),
        },
    }
    redacted: dict[str, dict[str, Any]] = json.loads(json.dumps(prepared.redaction.value(inputs), default=str))
    return redacted


def _environment(prepared: Prepared) -> dict[str, Any]:
    """Return what a rollout of an environment depends on. Its rows are compared one by one."""
    facts, table = prepared.environment, prepared.config.environment
    if facts is None:
        return {"env_id": None}
    return {
        "env_id": name_of(facts.env_id),
        "version": facts.version,
        "code": facts.code,
        "verifiers": facts.framework,
        "env_args": dict(table.env_args),
        "extra_env_kwargs": dict(table.extra_env_kwargs),
    }


def _address(target: ModelTarget) -> dict[str, Any]:
    """Return what tells a model from others. An endpoint may move, or lose one of its replicas, and stay the same."""
    api = {} if target.api == "chat_completions" else {"api": target.api}
    return {"provider": target.provider, "model": target.model, **api, **_server(target)}


def _of_baseline(target: ModelTarget) -> dict[str, Any]:
    """Return what tells a baseline's model from others of that name: behind an id there may be another model later."""
    return {**_server(target), **({"model": target.model} if target.endpoint else {})}


def _server(target: ModelTarget) -> dict[str, Any]:
    return {"base_url": None, "endpoint": target.endpoint} if target.endpoint else {"base_url": target.base_url}


def _inside(mcp: str | None, prepared: Prepared) -> str | None:
    """Return the folder of tools relative to the workspace, which may have been moved."""
    if mcp is None:
        return None
    folder, workspace = prepared.config.workspace / mcp, prepared.config.workspace
    return folder.relative_to(workspace).as_posix() if folder.is_relative_to(workspace) else str(folder)


def _header_digests(headers: Mapping[str, str], salt: str) -> dict[str, str]:
    secret = secret_headers(headers)
    return {name: SECRET if name in secret else _salted(value, salt) for name, value in headers.items()}


def _digest(name: str, value: str, prepared: Prepared, salt: str) -> str:
    """Return the digest of a variable's value. One that is a secret of the eval may change."""
    hidden = any(name in source and source[name] == value for source in prepared.hidden)
    return SECRET if hidden else _salted(value, salt)


def _salted(value: str, salt: str) -> str:
    return blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16, key=bytes.fromhex(salt)).hexdigest()


# -- what changed since ----------------------------------------------------------------------------------


def changed_inputs(run: StoredEvalRun, prepared: Prepared, progress: StoredProgress) -> Sequence[str]:
    """Return the inputs of a stored eval run that are other ones now, apart from code, which is not loaded yet.

    Each is named, with what it was and is. `progress` is that of the run, which may grow: n may be larger and rows may
    be added.
    """
    return [*changed_in_manifest(run, prepared), *_changed_prompts(progress, prepared)]


def changed_in_manifest(run: StoredEvalRun, prepared: Prepared) -> Sequence[str]:
    """Return the changed inputs that the manifest of a stored eval run tells, without its journal."""
    manifest = run.manifest
    now = rollout_inputs(prepared, manifest.input_salt)
    shrunk = _shrunk(manifest.selected, manifest.subject.n, prepared.part or prepared.plan)
    return [*_changed_settings(manifest.inputs, now), *shrunk]


def _changed_settings(then: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, settings in now.items():
        before = then.get(name, {})
        for key in dict.fromkeys([*before, *settings]):
            if before.get(key) != settings.get(key):
                yield _changed_setting(name, key, before, settings)


def _changed_setting(name: str, key: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    title = f"[{name}] {toml(key) if name in BY_NAME and not key.isidentifier() else key}"
    if name not in HIDDEN:
        return changed_value(title, then.get(key), now.get(key))
    if key in then and key in now:
        return f"{title}: a value -> another value"
    return f"{title}: set -> not set" if key in then else f"{title}: not set -> set"


def changed_value(name: str, then: object, now: object) -> str:
    """Return an input with what it was and is in words."""
    values = (
        "not set" if each is None else shortened(json.dumps(each, ensure_ascii=False, default=str), MOST_VALUE_CHARS)
        for each in (then, now)
    )
    return f"{name}: {' -> '.join(values)}"


def _shrunk(then: Plan, n_then: int, now: Plan) -> Iterator[str]:
    if now.n < n_then:
        yield f"[evaluation] n: {n_then:,} -> {now.n:,}, and it may only grow"
    lost = {row for span in then.spans for row in span.rows} - {row for row, _ in now.rows()}
    if lost:
        yield f"the selected rows: {then.selection} -> {now.selection}, without {rows_text(sorted(lost))}"


def _changed_prompts(progress: StoredProgress, prepared: Prepared) -> Iterator[str]:
    """Name the rows whose prompt or metadata changed after their rollout."""
    now, then = prepared.rows.contents, progress.contents
    rolled = {run.row for run in progress.records if run in progress and run.row in now}
    if changed := sorted(row for row in rolled if now[row].prompt != then[row].prompt):
        yield f"the prompt or metadata of {rows_text(changed)}: changed"


def rows_text(rows: Sequence[int], most: int = MOST_ROWS_LISTED) -> str:
    """Return rows in words."""
    return f"{'row' if len(rows) == 1 else 'rows'} {listed(rows, most)}"


def check_same_code(directory: RunDirectory, then: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise `CodeError` if the code of rollouts is not the stored run's. Both are digests of its files."""
    changed = [name for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
    if changed:
        raise CodeError(f"run {directory.name}: {refusal([_changed_file(name, then, now) for name in changed])}")


def _changed_file(name: str, then: Mapping[str, str], now: Mapping[str, str]) -> str:
    if name in then and name in now:
        return f"{name}: changed"
    return f"{name}: is not used any more" if name in then else f"{name}: was not used"


# -- messages --------------------------------------------------------------------------------------------


def refusal(changes: Sequence[str]) -> str:
    """Return why an eval run with other inputs does not go on, and how to go on."""
    it = "this" if len(changes) == 1 else "these"
    return "\n".join(
        [
            f"cannot go on, because its rollouts were made with other inputs; {it} changed:",
            *(f"  {change}" for change in changes),
            "undo that, or begin a new run: under another name, or with --osmosis-fresh, which keeps the stored one",
        ]
    )
