"""The contents of a run directory: its manifest, the log of its hosts, and the provenance in its results.

The manifest holds the inputs of rollouts: all on which a stored rollout depends. An eval run is only resumed with the
same ones. Two are in the journal instead: digests of the rows and of the agent's code. Values of variables are compared
by digests, which are salted for each run, and are never shown. How fast an eval runs, how it scores and what it expects
may change, and so may what rows hold besides prompt and metadata: stored rollouts are then scored again.
"""

from __future__ import annotations

import json
import platform
import secrets as randomness
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import asdict, replace

import pytest_osmosis
from pytest_osmosis.config import EvalConfig, Override
from pytest_osmosis.config.eval_kinds import name_of
from pytest_osmosis.config.kinds import toml
from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.config.tables import EnvironmentModule
from pytest_osmosis.datasets import Dataset, open_dataset
from pytest_osmosis.engine.engine import LoadedCode
from pytest_osmosis.errors import CodeError, JournalError, writing
from pytest_osmosis.evals.eval_models import request_sampling
from pytest_osmosis.files import private
from pytest_osmosis.formats.codec import encode
from pytest_osmosis.git import GitState
from pytest_osmosis.models.providers import secret_headers
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.manifest import (
    ExtraFields,
    Manifest,
    StoredBaseline,
    StoredEnvironment,
    StoredSubject,
    TypedFields,
)
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_directory import RUNS, RunDirectory, RunLock
from pytest_osmosis.record.stored_rollouts import StoredProgress
from pytest_osmosis.results.conclude import FactsAtEnd
from pytest_osmosis.results.publish import redacted
from pytest_osmosis.rollouts.environment import EnvironmentFacts
from pytest_osmosis.text.names import absolute, listed, shown
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.text.safe import shortened
from pytest_osmosis.verdicts.gates import title_of

if TYPE_CHECKING:
    from pytest_osmosis.evals.prepared import Prepared


READ_BACK = (*("eval", "entry", "folder", "workspace", "plan", "pass_rule", "plan_digest", "input_salt"), "columns")
"""Keys of the manifest whose values stay as they are: names and paths by which the run is found again."""

CLIENT_PACKAGES = ("openai", "anthropic", "aiohttp", "litellm")


def runs_folder(config: EvalConfig) -> Path:
    return config.workspace / (config.output.dir or RUNS)


def new_run_directory(
    prepared: Prepared, began_at: datetime, name: str | None, imported: Mapping[str, Any] | None = None
) -> RunDirectory:
    """Make a run directory with its manifest, with a name of its own unless it gets one.

    `imported` says from which files of `prime eval` it begins.

    Raises `JournalError` if it cannot be written, or exists.
    """
    config = prepared.config
    directory = RunDirectory(runs_folder(config) / (name or new_run_name(prepared, began_at)))
    try:
        with ExitStack() as on_error:
            if not is_reserved(directory):
                private.make_folder(directory.path)
                on_error.callback(shutil.rmtree, directory.path, ignore_errors=True)
            if not config.output.dir:
                ignore_in_git(config.workspace / RUNS.parent)
            _keep_rows(directory, prepared)
            origin = {} if imported is None else {"imported": imported}
            _write(directory, {**manifest_of(directory, prepared, began_at), **origin})
            on_error.pop_all()
    except OSError as error:
        folder = shown(runs_folder(config))
        fix = "make it writable, or name another folder in [output] dir"
        raise JournalError(f"{folder}: no run can be kept there: {error.strerror}; {fix}") from error
    return directory


def complete_manifest(directory: RunDirectory, code: LoadedCode, state: GitState) -> None:
    """Add the digests of the code that was loaded, and the git state of the workspace when the eval run first began.

    Raises `JournalError` if the manifest cannot be written.
    """
    rollouts = None
    if code.rollouts:
        rollouts = blake2b(json.dumps(sorted(code.rollouts.items())).encode(), digest_size=16).hexdigest()
    with writing(shown(directory.manifest), JournalError):
        manifest = _read(directory)
        manifest["code"] = {"rollouts": rollouts, "rewards": dict(code.rewards)}
        if None in (manifest.get("git") or {"": None}).values():
            manifest["git"] = state.to_json()
        _write(directory, manifest)


def add_facts_at_end(directory: RunDirectory, facts: FactsAtEnd, redaction: Redaction) -> None:
    """Add facts to the manifest that the journal cannot tell. Raises `OSError`."""
    _write(directory, {**_read(directory), "result_facts": redacted(encode(facts), redaction)})


def _read(directory: RunDirectory) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(directory.manifest.read_text(encoding="utf-8"))
    return manifest


def _write(directory: RunDirectory, manifest: Mapping[str, Any]) -> None:
    private.write(directory.manifest, [json.dumps(manifest, indent=2), "\n"])


def new_run_name(prepared: Prepared, began_at: datetime) -> str:
    return f"{prepared.config.name}-{began_at:%Y%m%dT%H%M%SZ}-{randomness.token_hex(3)}"


def manifest_of(directory: RunDirectory, prepared: Prepared, began_at: datetime) -> dict[str, Any]:
    """Return the manifest of an eval run as JSON, without the values of secrets."""
    manifest = encode(_manifest(directory, prepared, began_at))
    if prepared.environment is None:
        del manifest["environment"]  # it is whole or missing
    return {**prepared.redaction.value(manifest), **{key: manifest[key] for key in READ_BACK}}


def archive(directory: RunDirectory, at: datetime) -> Path:
    """Give a run directory another name, which says when. Raises `JournalError` if a process writes to it."""
    lock = RunLock.take(directory)
    path = directory.path.with_name(f"{directory.name}.archived-{at:%Y%m%dT%H%M%S%fZ}")
    try:
        return directory.path.rename(path)
    except OSError as error:
        raise JournalError(f"{shown(directory.path)}: cannot be renamed: {error.strerror}") from error
    finally:
        lock.close()
        RunDirectory(path).lock.unlink(missing_ok=True)


def is_reserved(directory: RunDirectory) -> bool:
    """Return True for a folder that was made for an eval run that has not begun."""
    before = {directory.manifest, directory.lock, directory.submission, directory.session_log, directory.stop_request}
    return directory.path.is_dir() and before.issuperset(directory.path.iterdir())


def renew_manifest(directory: RunDirectory, prepared: Prepared, began_at: datetime) -> None:
    """Write the manifest of a resumed eval run: all is as now, but for the code, the git state and the origin.

    Raises `OSError`.
    """
    then = _read(directory)
    kept: dict[str, Any] = {key: then[key] for key in ("code", "git", "imported") if key in then}
    _keep_rows(directory, prepared)
    _write(directory, {**manifest_of(directory, prepared, began_at), **kept})


def ignore_in_git(folder: Path) -> None:
    """Let git ignore all that is in a folder of ours."""
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")


def _manifest(directory: RunDirectory, prepared: Prepared, began_at: datetime) -> Manifest:
    from pytest_osmosis.evals.prepared import pass_rule

    config, description, models = prepared.config, prepared.description, prepared.models
    other = models.baseline
    salt, table, facts = randomness.token_hex(16), config.environment, prepared.environment
    settings = {name: getattr(table, name) for name in ("extra_env_kwargs", "state_columns")}
    environment = {} if facts is None else {**facts_to_json(facts), "env_args": table.arguments, **settings}
    return Manifest(
        eval=config.name,
        entry=config.entry,
        started_at=utc_text(began_at),
        folder=str(absolute(directory.path)),
        config_text=config.text,
        typed=[_typed(override, config) for override in prepared.typed if override.table != "output"],
        plan=prepared.plan,
        subject=StoredSubject(description.model, description.n, cast(ExtraFields, description.extra)),
        target=_target(models.target),
        baseline=None if other is None else StoredBaseline(other.name, _target(other.target)),
        pass_rule=pass_rule(config).to_json(),
        gates=list(map(title_of, config.gates)),
        prices=prepared.all_prices,
        smoke=prepared.smoke is not None,
        shard=prepared.shard,
        inputs=rollout_inputs(prepared, salt),
        input_salt=salt,
        dataset_sha256=prepared.dataset.digest(),
        columns=config.data.mapped,
        timeouts={
            "agent_workflow_timeout_s": config.evaluation.agent_workflow_timeout_s,
            "grader_timeout_s": config.evaluation.grader_timeout_s,
            "timeout_s": models.target.timeout_s,
        },
        versions=versions(),
        environment=cast(StoredEnvironment, environment),
        cassette=None if models.cassette is None else models.cassette.to_json(),
        plan_digest=prepared.plan_digest,
        workspace=str(config.workspace),
    )


def versions() -> dict[str, str | None]:
    """Return the versions of Python, of this package and of the packages that ask models, None if not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "pytest-osmosis": pytest_osmosis.__version__}
    for package in CLIENT_PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def _typed(override: Override, config: EvalConfig) -> TypedFields:
    """Return an override of the command line, to be read back from any folder."""
    paths = {
        OPTIONS["dataset"]: config.data.path,
        OPTIONS["mcp"]: config.agent.mcp,
        ("environment", "env_dir_path"): config.environment.env_dir_path,
    }
    return {
        "table": override.table,
        "key": override.key,
        "value": paths.get((override.table, override.key), override.value),
        "below": override.below,
        "as_toml": override.as_toml,
    }


def _target(target: ModelTarget) -> Any:
    """Return a target with the names of its headers alone."""
    replicas = [_target(each) for each in target.replicas]
    return {**target.to_json(), "headers": sorted(target.headers), "replicas": replicas}


def provenance_of(prepared: Prepared, directory: RunDirectory, began_at: datetime) -> dict[str, Any]:
    """Return the provenance in the results, except the git commit and the time when they were finished."""
    return {
        "run_dir": shown(directory.path),
        "plan_digest": prepared.plan_digest,
        **prepared.source.provenance(began_at),
        "pytest_osmosis": pytest_osmosis.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "dataset_sha256": prepared.dataset.digest(),
    }


def utc_text(moment: datetime) -> str:
    """Return a moment as ISO 8601, in milliseconds."""
    return moment.isoformat(timespec="milliseconds")


def redacted_log(directory: RunDirectory, prepared: Prepared) -> str:
    log = directory.host_log
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return prepared.redaction.text(text)


def redact_log(directory: RunDirectory, prepared: Prepared) -> str | None:
    """Take secrets out of the hosts' log, to which subprocesses write directly. Return why that failed, if it did.

    A log that is empty, or cannot be redacted, is removed.
    """
    log, failure = directory.host_log, None
    text = redacted_log(directory, prepared)
    try:
        if log.exists() and text.encode() != log.read_bytes():  # else nobody who follows it need read it again
            private.write(log, [text])
    except OSError as error:
        failure, text = f"{shown(log)} could not be written: {error.strerror}", ""
    if not text:
        log.unlink(missing_ok=True)
    return failure


# -- the facts and the rows of an environment, as its code told them and as the run directory keeps them ----


def check_files(facts: EnvironmentFacts, now: Mapping[str, str]) -> None:
    """Raise `CodeError` if files of an environment are others than those that told its rows."""
    changed = [name for name, digest in now.items() if facts.files.get(name, digest) != digest]
    if changed:
        text = f"has changed since environment {facts.env_id} told its rows; start the eval again"
        raise CodeError(f"{changed[0]} {text}, and leave its code as it is while it runs")


def facts_of(answer: Mapping[str, Any], module: EnvironmentModule, rows: Path) -> EnvironmentFacts:
    """Return the facts that an environment told, or that a run directory holds."""
    told = {key: answer[key] for key in ("framework", "n_rows", "pass_threshold", "grouped", "sampling", "tools")}
    return EnvironmentFacts(
        env_id=module.env_id,
        module=module.module,
        folder=module.folder,
        version=module.version,
        rows=rows,
        code=code_digest(module.source),
        functions=tuple(answer["functions"]),
        notes=tuple(answer["notes"]),
        files=answer.get("files", {}),
        config=answer.get("config", {}),
        **told,
    )


def code_digest(source: Path) -> str:
    """Return the digest of a module: of its file, or of all modules of its package."""
    digest = blake2b(digest_size=16)
    for file in sorted(source.parent.rglob("*.py")) if source.name == "__init__.py" else [source]:
        with suppress(OSError):
            digest.update(f"{file.relative_to(source.parent).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def facts_to_json(facts: EnvironmentFacts) -> dict[str, Any]:
    """Return the facts for the manifest of an eval run. `facts_of` reads them back."""
    return {key: value for key, value in asdict(facts).items() if key not in ("rows", "folder", "files")}


def rows_of(facts: EnvironmentFacts) -> Dataset:
    """Open the rows of an environment. Raises `DatasetError`."""
    return replace(open_dataset(facts.rows, display=f"environment {name_of(facts.env_id)}"), is_generated=True)


def _keep_rows(directory: RunDirectory, prepared: Prepared) -> None:
    """Keep the rows of an environment in the run directory, without secrets. Raises `OSError`."""
    if prepared.environment is not None:
        value = prepared.redaction.value
        with prepared.environment.rows.open(encoding="utf-8") as rows:
            private.write(directory.rows, (json.dumps(value(json.loads(line))) + "\n" for line in rows))


BY_NAME = frozenset({"sampling", "limits.rollout", "env", "model.headers"})
"""Tables whose keys are names that users chose."""
HIDDEN = frozenset({"env", "model.headers"})
"""Tables with digests in place of values."""
SECRET = "secret"
"""Placeholder for credentials, which may change between sessions."""
MOST_ROWS_LISTED = 5
MOST_VALUE_CHARS = 120


# -- what rollouts depend on -----------------------------------------------------------------------------


def rollout_inputs(prepared: Prepared, salt: str) -> dict[str, dict[str, Any]]:
    """Return the inputs by table and key, as JSON, without secrets. `salt` is that of the run's digests."""
    config, other = prepared.config, prepared.models.baseline
    sampling, headers = request_sampling(config), prepared.models.target.headers
    secret = secret_headers(headers)
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
        "model.headers": {name: SECRET if name in secret else _salted(value, salt) for name, value in headers.items()},
        "sampling": sampling,
        "agent": {
            "agent": config.agent.agent,
            "endpoint": config.agent.endpoint,
            "max_turns": config.agent.max_turns,
            "mcp": _mcp(config),
            "prompt": prepared.dataset.system_prompt,
        },
        "environment": _changed_environment(prepared),
        "evaluation": {"agent_workflow_timeout_s": config.evaluation.agent_workflow_timeout_s},
        "limits.rollout": dict(config.limits.rollout),
        "cassette": {"replay": prepared.is_replay},
        "env": {name: _digest(name, value, prepared, salt) for name, value in config.env.items()},
        "baseline": {
            "model_path": None if other is None else other.name,
            **({"base_url": None} if other is None else _server(other.target)),
            # behind an id there may be another model later
            **({"model": other.target.model} if other is not None and other.target.endpoint else {}),
        },
    }
    redacted: dict[str, dict[str, Any]] = json.loads(json.dumps(prepared.redaction.value(inputs), default=str))
    return redacted


def _changed_environment(prepared: Prepared) -> dict[str, Any]:
    """Return what a rollout of an environment depends on. Its rows are compared one by one."""
    facts, table = prepared.environment, prepared.config.environment
    if facts is None:
        return {"env_id": None}
    return {
        "env_id": name_of(facts.env_id),
        "version": facts.version,
        "code": facts.code,
        "verifiers": facts.framework,
        "env_args": dict(table.arguments),
        "extra_env_kwargs": dict(table.extra_env_kwargs),
    }


def _address(target: ModelTarget) -> dict[str, Any]:
    """Return what tells a model from others. An endpoint may move, or lose one of its replicas, and stay the same."""
    api = {} if target.api == "chat_completions" else {"api": target.api}
    return {"provider": target.provider, "model": target.model, **api, **_server(target)}


def _server(target: ModelTarget) -> dict[str, Any]:
    return {"base_url": None, "endpoint": target.endpoint} if target.endpoint else {"base_url": target.base_url}


def _mcp(config: EvalConfig) -> str | None:
    """Return the folder of tools relative to the workspace, which may have been moved; None without one."""
    if config.agent.mcp is None:
        return None
    folder = config.workspace / config.agent.mcp
    return folder.relative_to(config.workspace).as_posix() if folder.is_relative_to(config.workspace) else str(folder)


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
            if before.get(key) == settings.get(key):
                continue
            title = f"[{name}] {toml(key) if name in BY_NAME and not key.isidentifier() else key}"
            if name not in HIDDEN:
                yield changed_value(title, before.get(key), settings.get(key))
            elif key in before and key in settings:
                yield f"{title}: a value -> another value"
            else:
                yield f"{title}: {'set -> not set' if key in before else 'not set -> set'}"


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
    return f"{'row' if len(rows) == 1 else 'rows'} {listed(rows, most)}"


def check_same_code(directory: RunDirectory, then: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise `CodeError` if the code of rollouts is not the stored run's. Both are digests of its files."""
    changed = [
        f"{name}: {'was not used' if name not in then else 'changed' if name in now else 'is not used any more'}"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    ]
    if changed:
        raise CodeError(f"run {directory.name}: {refusal(changed)}")


# -- messages --------------------------------------------------------------------------------------------


def refusal(changes: Sequence[str]) -> str:
    """Return why an eval run with other inputs cannot be resumed, and what to do."""
    it = "this" if len(changes) == 1 else "these"
    return "\n".join(
        [
            f"cannot be resumed, because its rollouts were made with other inputs; {it} changed:",
            *(f"  {change}" for change in changes),
            "undo that, or begin a new eval run: under another name, or with --osmosis-fresh, which renames this one",
        ]
    )
