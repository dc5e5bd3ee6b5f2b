"""Evals that are checked and planned without pytest, for tests of what comes after."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_osmosis import seams
from pytest_osmosis.config import Override
from pytest_osmosis.evals import EvalRequest, Prepared, Surroundings, begin
from pytest_osmosis.evals.rescore import prepare_rescore
from pytest_osmosis.record.find_run import StoredEvalRun


def prepare(
    config: Path,
    overrides: Sequence[Override] = (),
    *,
    environ: Mapping[str, str] | None = None,
    environments: seams.Environments | None = None,
    **request: Any,
) -> Prepared:
    """Return the eval in `config`. `request` is what else a command says of it."""
    return begin(EvalRequest(config, overrides=overrides, **request), _around(environ, environments))()


def prepare_again(run: StoredEvalRun, *, environ: Mapping[str, str] | None = None) -> Prepared:
    """Return the rescore of a run by its own config."""
    return prepare_rescore(run, EvalRequest(None), _around(environ))


def _around(environ: Mapping[str, str] | None, environments: seams.Environments | None = None) -> Surroundings:
    return Surroundings(os.environ if environ is None else environ, environments=environments or seams.environments())
