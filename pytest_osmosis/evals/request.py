"""Requests for evals: what a command says of one, and what the evals of its session share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis import seams
from pytest_osmosis.config import Override, SecretsSource
from pytest_osmosis.evals.cassettes import AnswerStore
from pytest_osmosis.evals.checks import SharedChecks
from pytest_osmosis.record.plan import Shard
from pytest_osmosis.text.redaction import Outlet


class InFlightLimit(NamedTuple):
    """The largest number of rollouts in flight, and the option or variable that set it."""

    n: int
    origin: str


@dataclass(frozen=True, slots=True)
class EvalRequest:
    """The request of a command for one eval.

    - `path`: its config, None for the eval that `overrides` describe; `entry` is its name in a config with several
    - `named_rows`: rows that node ids name; they are added to the selected ones
    - `listing`: nothing will run, so no secret is needed, no key is read, and nothing waits for standard input
    - `updating`: the baseline's file will be written, so it may be missing
    - `compared`: False for an eval without its baseline
    - `answers`: where the models' answers come from, as far as it has them; if all of them do, no key is needed
    - `training`: `path` is a training config, of which this is the preflight
    - `smoke`, `shard`: the number of first rows, or the shard, to which the session is limited
    - `most_in_flight`: the limit of the session
    """

    path: Path | None
    entry: str | None = None
    overrides: Sequence[Override] = ()
    named_rows: Sequence[int] = ()
    listing: bool = False
    updating: bool = False
    compared: bool = True
    answers: AnswerStore | None = None
    training: bool = False
    smoke: int | None = None
    shard: Shard | None = None
    most_in_flight: InFlightLimit | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The part of a session that all of its evals share.

    - `environ`: the variables of the process, and `secrets`, which take precedence over them
    - `folder`: the workspace of an eval without a config
    - `outlet`: learns the secrets of an eval before anything else happens
    - `shared`: equal rows are checked once
    - `environments`: loads the environments of all evals that were checked together, and keeps what it has loaded
    """

    environ: Mapping[str, str]
    folder: Path = Path()
    secrets: SecretsSource = field(default_factory=SecretsSource)
    outlet: Outlet | None = None
    shared: SharedChecks = field(default_factory=SharedChecks)
    environments: seams.Environments | None = field(default_factory=seams.environments)

    def secrets_of(self, request: EvalRequest) -> SecretsSource:
        """Return where the secrets of an eval are: one that is only listed does not read standard input."""
        return self.secrets.without_stdin if request.listing else self.secrets
