"""Environments as the core knows them: how one is named, the facts that its code tells, and its errors.

An environment has rows, rolls out and scores. The add-on behind `seams` loads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from pytest_osmosis.errors import OsmosisError

STATE = "state"
"""The member of a rollout's facts that holds the parts of its state."""
FaultBoundary = Literal["host", "model", "agent", "reward"]


class EnvironmentSource(Struct, frozen=True):
    """The `module` whose load_environment(**args) makes an environment, or whose taskset has `args` as its settings.

    `folder` is put before installed packages if the module is in none of them. `kwargs` are set on the environment
    after it was made, by `set_NAME(value)` where it has such a method.
    """

    env_id: str
    module: str
    folder: str | None = None
    args: Mapping[str, Any] = {}
    kwargs: Mapping[str, Any] = {}


class EnvironmentFacts(Struct, frozen=True):
    """An environment, loaded once to ask it.

    - `env_id`: the id as typed; `module` and `folder` say what is imported, and from where if it is not installed
    - `version`: the version of its package, None without one; `framework` is that of verifiers
    - `rows`: a file of JSON lines, one for each row of its eval dataset, in order; `n_rows` is their number
    - `code`: the digest of its module's code, and `files` those of all files that told the rows; none of a stored run
    - `pass_threshold`: the lowest reward that passes
    - `grouped`: true if a reward function needs all runs of a row
    - `functions`: the names of its reward functions and metrics, as far as they are known
    - `sampling`: its own `sampling_args`, which those of the config replace key by key
    - `tools`: the definitions of its tools; `notes` are for the header
    - `config`: all settings of a taskset of verifiers 0.4, with defaults; empty for others
    """

    env_id: str
    module: str
    folder: str | None
    version: str | None
    framework: str | None
    rows: Path
    n_rows: int
    pass_threshold: float
    grouped: bool
    code: str = ""
    files: Mapping[str, str] = {}
    functions: Sequence[str] = ()
    sampling: Mapping[str, Any] = {}
    tools: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    config: Mapping[str, Any] = {}


class EnvironmentFault(OsmosisError):
    """An environment ended a rollout with an error. `facts` are those of the rollout, `details` is its traceback."""

    def __init__(
        self,
        message: str,
        boundary: FaultBoundary,
        facts: Mapping[str, Any],
        details: str = "",
    ) -> None:
        super().__init__(message)
        self.boundary: FaultBoundary = boundary
        self.facts = facts
        self.details = details
