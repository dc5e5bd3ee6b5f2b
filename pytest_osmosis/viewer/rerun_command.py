"""The command that performs one run of an eval again, for a reader to copy."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_osmosis.config.kinds import key_text, toml
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.text.paths import shown


def rerun_command(run: StoredEvalRun) -> list[str] | None:
    """Return the command before and after the name of a run.

    It is None for an eval run whose config is gone or never was, and for one that tests over rollouts requested.
    """
    manifest, config = run.manifest, run.config
    if config is None or not run.config_is_there or manifest.is_of_tests:
        return None
    node = f"{Path(shown(config)).as_posix()}::{manifest.named}["
    after = [f"--osmosis-set={each}" for each in _settings(manifest.typed)]
    if manifest.plan.granularity == "row":
        after.append("--osmosis-granularity=run")
    return [f"pytest {shlex.quote(node)[:-1]}", f"]' {shlex.join(after)}".rstrip()]


def _settings(typed: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for each in typed:
        value = each["value"]
        path = ".".join(map(key_text, (each["table"], each["key"], *each["below"])))
        yield f"{path}={value if isinstance(value, str) else toml(value)}"
