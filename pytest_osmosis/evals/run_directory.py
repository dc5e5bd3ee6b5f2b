"""The run directory: its name, its manifest (what was asked for), its hosts' log, and where its results come from."""

from __future__ import annotations

import json
import os
import platform
import secrets as randomness
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest_osmosis
from pytest_osmosis.config import EvalConfig
from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.errors import JournalError
from pytest_osmosis.evals.baseline import BaselineModel
from pytest_osmosis.evals.prepared import Prepared, subject_of
from pytest_osmosis.host.secret_values import secret_headers
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.results.publish import SCHEMA_VERSION
from pytest_osmosis.text.paths import absolute, shown
from pytest_osmosis.text.redaction import Redaction


def runs_folder(config: EvalConfig) -> Path:
    return config.workspace / config.output.dir if config.output.dir else config.workspace / ".osmosis" / "runs"


def new_run_directory(prepared: Prepared, began_at: datetime) -> RunDirectory:
    """Make a run directory with its manifest. Raises `JournalError` if it cannot be written."""
    directory = None
    try:
        directory = _make_directory(prepared.config, began_at)
        _write_manifest(directory, prepared, began_at)
    except OSError as error:
        if directory is not None:
            shutil.rmtree(directory.path, ignore_errors=True)
        folder = shown(runs_folder(prepared.config))
        fix = "make it writable, or name another folder in [output] dir"
        raise JournalError(f"{folder}: no run can be kept there: {error.strerror}; {fix}") from error
    return directory


def _make_directory(config: EvalConfig, now: datetime) -> RunDirectory:
    """Make a run directory in a folder that git ignores."""
    runs = runs_folder(config)
    runs.mkdir(parents=True, exist_ok=True)
    if not config.output.dir:
        ignore = config.workspace / ".osmosis" / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
    directory = RunDirectory(runs / f"{config.name}-{now:%Y%m%dT%H%M%SZ}-{randomness.token_hex(3)}")
    directory.path.mkdir()
    return directory


def _write_manifest(directory: RunDirectory, prepared: Prepared, began_at: datetime) -> None:
    """What was asked for. Names of secrets, never values."""
    config, subject = prepared.config, subject_of(prepared)
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "eval": config.name,
        "started_at": began_at.isoformat(timespec="milliseconds"),
        "folder": str(absolute(directory.path)),
        "config": shown(config.path),
        "config_text": None if config.text is None else redaction_of(prepared).text(config.text),
        "overridden": list(config.overridden),
        "preset": list(config.preset),
        "typed": json.loads(redaction_of(prepared).text(json.dumps(_typed(prepared)))),
        "plan": prepared.plan.to_json(),
        "subject": {"model": subject.model, "n": subject.n, "extra": dict(subject.extra)},
        "target": {**prepared.target.to_json(), "headers": sorted(prepared.target.headers)},
        "baseline": None if prepared.beside is None else _beside(prepared.beside),
        "plan_digest": prepared.plan_digest,
        "secrets": list(config.secrets),
        "workspace": str(config.workspace),
        "pid": os.getpid(),
    }
    text = json.dumps(manifest, indent=2, default=str)
    directory.manifest.write_text(text + "\n", encoding="utf-8")


def _typed(prepared: Prepared) -> list[dict[str, Any]]:
    """What was typed of the eval, to be read back from any folder."""
    return [
        {
            "table": one.table,
            "key": one.key,
            "value": prepared.config.data.path if (one.table, one.key) == OPTIONS["dataset"] else one.value,
            "below": one.below,
            "as_toml": one.as_toml,
        }
        for one in prepared.typed
        if one.table != "output"
    ]


def _beside(other: BaselineModel) -> dict[str, Any]:
    return {"model": other.name, "target": {**other.target.to_json(), "headers": sorted(other.target.headers)}}


def provenance_of(prepared: Prepared, directory: RunDirectory, began_at: datetime) -> dict[str, Any]:
    """Return what the results say of their origin, apart from when they are finished."""
    began = began_at.isoformat(timespec="milliseconds")
    return {
        "run_dir": shown(directory.path),
        "plan_digest": prepared.plan_digest,
        "started_at": began if prepared.source is None else prepared.source.rolled_out_at,
        "pytest_osmosis": pytest_osmosis.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "dataset_sha256": prepared.dataset.digest(),
    }


def redaction_of(prepared: Prepared) -> Redaction:
    return Redaction({**secret_headers(prepared.target.headers), **prepared.secrets})


def redacted_log(directory: RunDirectory, prepared: Prepared) -> str:
    """Return the text of the hosts' log without secrets; "" if there is none."""
    log = directory.host_log
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return redaction_of(prepared).text(text)


def redact_log(directory: RunDirectory, prepared: Prepared) -> str | None:
    """Take secrets out of the hosts' log, to which subprocesses write directly. Return why that failed, if it did.

    A log that is empty, or cannot be redacted, is removed.
    """
    log, failure = directory.host_log, None
    text = redacted_log(directory, prepared)
    try:
        log.write_text(text, encoding="utf-8")
    except OSError as error:
        failure, text = f"{shown(log)} could not be written: {error.strerror}", ""
    if not text:
        log.unlink(missing_ok=True)
    return failure
