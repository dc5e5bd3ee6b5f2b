"""The contents of a run directory: its manifest, the log of its hosts, and the provenance in its results."""

from __future__ import annotations

import json
import os
import platform
import secrets as randomness
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest_osmosis
from pytest_osmosis.config import EvalConfig, Override
from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.engine.actor import LoadedCode
from pytest_osmosis.errors import JournalError, writing
from pytest_osmosis.evals.environments import facts_to_json, keep_rows
from pytest_osmosis.evals.rollout_inputs import rollout_inputs
from pytest_osmosis.files import private
from pytest_osmosis.formats.codec import encode
from pytest_osmosis.git.command import GitState
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.record.manifest import (
    ExtraFields,
    Manifest,
    PriceFields,
    StoredBaseline,
    StoredEnvironment,
    StoredSubject,
    TypedFields,
)
from pytest_osmosis.record.run_directory import RUNS, RunDirectory
from pytest_osmosis.record.run_lock import RunLock
from pytest_osmosis.results.publish import redacted
from pytest_osmosis.text.names import absolute, shown
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.verdicts.gates import title_of

if TYPE_CHECKING:
    from pytest_osmosis.evals.prepared import Prepared

READ_BACK = (
    *("eval", "entry", "folder", "config", "workspace", "plan", "pass_rule", "plan_digest", "secrets", "input_salt"),
    "columns",
)
"""Keys of the manifest whose values stay as they are: names and paths by which the run is found again."""

CLIENT_PACKAGES = ("openai", "anthropic", "aiohttp", "litellm")


def runs_folder(config: EvalConfig) -> Path:
    return config.workspace / (config.output.dir or RUNS)


def new_run_directory(
    prepared: Prepared, began_at: datetime, name: str | None = None, imported: Mapping[str, Any] | None = None
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
            if prepared.environment is not None:
                keep_rows(directory, prepared.environment, prepared.redaction)
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


def add_facts_at_end(directory: RunDirectory, session: str, facts: Mapping[str, Any], redaction: Redaction) -> None:
    """Add facts to the manifest that the journal cannot tell about the session that began at `session`.

    Raises `OSError`.
    """
    _write(directory, {**_read(directory), "result_facts": {"session": session, **redacted(dict(facts), redaction)}})


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
    """Write the manifest of an eval run that goes on: all is as now, but for the code, the git state and the origin.

    Raises `OSError`.
    """
    then = _read(directory)
    kept: dict[str, Any] = {key: then[key] for key in ("code", "git", "imported") if key in then}
    if prepared.environment is not None:
        keep_rows(directory, prepared.environment, prepared.redaction)
    _write(directory, {**manifest_of(directory, prepared, began_at), **kept})


def ignore_in_git(folder: Path) -> None:
    """Let git ignore all that is in a folder of ours."""
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")


def _manifest(directory: RunDirectory, prepared: Prepared, began_at: datetime) -> Manifest:
    from pytest_osmosis.evals.prepared import pass_rule

    config, description, models = prepared.config, prepared.description, prepared.models
    other, prices = models.baseline, prepared.all_prices.items()
    salt = randomness.token_hex(16)
    return Manifest(
        eval=config.name,
        entry=config.entry,
        started_at=utc_text(began_at),
        folder=str(absolute(directory.path)),
        config=shown(config.path),
        config_text=config.text,
        overridden=config.overridden,
        preset=config.preset,
        typed=[_typed(override, config) for override in prepared.typed if override.table != "output"],
        plan=prepared.plan,
        subject=StoredSubject(description.model, description.n, cast(ExtraFields, description.extra)),
        target=_target(models.target),
        baseline=None if other is None else StoredBaseline(other.name, _target(other.target)),
        pass_rule=pass_rule(config).to_json(),
        gates=list(map(title_of, config.gates)),
        prices={tag: None if each is None else cast(PriceFields, each.to_json()) for tag, each in prices},
        smoke=prepared.smoke is not None,
        shard=prepared.shard,
        inputs=rollout_inputs(prepared, salt),
        input_salt=salt,
        dataset_sha256=prepared.dataset.digest(),
        columns=config.data.columns,
        timeouts={
            "agent_workflow_timeout_s": config.evaluation.agent_workflow_timeout_s,
            "grader_timeout_s": config.evaluation.grader_timeout_s,
            "timeout_s": models.target.timeout_s,
        },
        versions=versions(),
        environment=_environment(prepared),
        cassette=None if models.cassette is None else models.cassette.to_json(),
        plan_digest=prepared.plan_digest,
        secrets=config.secrets,
        workspace=str(config.workspace),
        pid=os.getpid(),
    )


def _environment(prepared: Prepared) -> StoredEnvironment:
    table, facts = prepared.config.environment, prepared.environment
    settings = {name: getattr(table, name) for name in ("env_args", "extra_env_kwargs", "state_columns")}
    return cast(StoredEnvironment, {} if facts is None else {**facts_to_json(facts), **settings})


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
        "started_at": prepared.source.started_at(began_at),
        **prepared.source.provenance(),
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
