"""The run directory: its name, its manifest (what was asked for), its hosts' log, and where its results come from."""

from __future__ import annotations

import json
import os
import platform
import secrets as randomness
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest_osmosis
from pytest_osmosis.config import EvalConfig
from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.engine.host_log import HOST_LOG
from pytest_osmosis.errors import JournalError
from pytest_osmosis.evals.baseline import BaselineModel
from pytest_osmosis.evals.prepared import Prepared, subject_of
from pytest_osmosis.host.secret_values import secret_headers
from pytest_osmosis.results.publish import SCHEMA_VERSION
from pytest_osmosis.text.paths import absolute, shown
from pytest_osmosis.text.redaction import Redaction


def runs_folder(config: EvalConfig) -> Path:
    return config.workspace / config.output.dir if config.output.dir else config.workspace / ".osmosis" / "runs"


def new_run_dir(prepared: Prepared, began_at: datetime) -> Path:
    """A new run directory with its manifest. `JournalError` where the disk takes none."""
    run_dir = None
    try:
        run_dir = _make_run_dir(prepared.config, began_at)
        _write_manifest(run_dir, prepared, began_at)
    except OSError as error:
        if run_dir is not None:
            shutil.rmtree(run_dir, ignore_errors=True)
        folder = shown(runs_folder(prepared.config))
        fix = "make it writable, or name another folder in [output] dir"
        raise JournalError(f"{folder}: no run can be kept there: {error.strerror}; {fix}") from error
    return run_dir


def _make_run_dir(config: EvalConfig, now: datetime) -> Path:
    """A new run directory, in a folder that git ignores."""
    runs = runs_folder(config)
    runs.mkdir(parents=True, exist_ok=True)
    if not config.output.dir:
        ignore = config.workspace / ".osmosis" / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
    run_dir = runs / f"{config.name}-{now:%Y%m%dT%H%M%SZ}-{randomness.token_hex(3)}"
    run_dir.mkdir()
    return run_dir


def _write_manifest(run_dir: Path, prepared: Prepared, began_at: datetime) -> None:
    """What was asked for. Names of secrets, never values."""
    config, subject = prepared.config, subject_of(prepared)
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "eval": config.name,
        "started_at": began_at.isoformat(timespec="milliseconds"),
        "folder": str(absolute(run_dir)),
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
    (run_dir / "manifest.json").write_text(text + "\n", encoding="utf-8")


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


def provenance_of(prepared: Prepared, run_dir: Path, began_at: datetime) -> dict[str, Any]:
    began = began_at.isoformat(timespec="milliseconds")
    return {
        "run_dir": shown(run_dir),
        "plan_digest": prepared.plan_digest,
        "started_at": began if prepared.source is None else prepared.source.rolled_out_at,
        "finished_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "pytest_osmosis": pytest_osmosis.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def redaction_of(prepared: Prepared) -> Redaction:
    return Redaction({**secret_headers(prepared.target.headers), **prepared.secrets})


def redacted_log(folder: Path, prepared: Prepared) -> str:
    """What the hosts' log holds, without secrets; "" where there is none."""
    log = folder / HOST_LOG
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return redaction_of(prepared).text(text)


def redact_log(folder: Path, prepared: Prepared) -> str | None:
    """The log holds what subprocesses wrote straight to it; one that is empty or cannot be redacted is removed.

    Gives what kept it from being redacted, None where nothing did.
    """
    log, failure = folder / HOST_LOG, None
    text = redacted_log(folder, prepared)
    try:
        log.write_text(text, encoding="utf-8")
    except OSError as error:
        failure, text = f"{shown(log)} could not be written: {error.strerror}", ""
    if not text:
        log.unlink(missing_ok=True)
    return failure
