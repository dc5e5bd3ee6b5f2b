"""Eval runs that `pytest-osmosis submit` starts: the plan that its user confirms, and who runs it.

The plan comes from a dry run of the same command, as JSON in a file that `submit` names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pytest_osmosis.files import private
from pytest_osmosis.files.reading import FileFault, parsed, read_text
from pytest_osmosis.formats.codec import decode, encode
from pytest_osmosis.record.run_directory import Holder, RunDirectory

SCHEMA_VERSION: Final = 1
PLUGIN = "pytest_osmosis.plugin.submission"
"""The pytest plugin that writes plans, and takes over the lock in the process that `submit` starts."""
PLAN_OPTION = "--osmosis-plan-file"
LOCK_OPTION = "--osmosis-lock-fd"
SECRETS_OPTION = "--osmosis-secrets-file="
MOST_BYTES = 1 << 22


def typed_words(words: Sequence[str]) -> Sequence[str]:
    """Return the arguments of pytest without those that `pytest-osmosis submit` puts before them.

    >>> typed_words(["-p", PLUGIN, "--color=no", "--osmosis-lock-fd=3", "--osmosis-config=x.toml", "-x"])
    ['--osmosis-config=x.toml', '-x']
    """
    ours = next((index for index, word in enumerate(words) if word.startswith(LOCK_OPTION)), -1)
    return words[ours + 1 :]


@dataclass(frozen=True, slots=True)
class SubmissionPlan:
    """The result of a dry run.

    `run` is the name of the eval run and `folder` its directory. `lines` describe the eval as the header of pytest
    does. `n_rollouts` are to be made, for `cost_usd`, None if unknown. `manifest` is that of a new eval run, None for
    one that is resumed. `refusals` say why the command cannot run without a terminal.
    """

    eval: str
    run: str
    folder: str
    lines: Sequence[str]
    n_rollouts: int
    cost_usd: float | None
    manifest: Mapping[str, Any] | None
    refusals: Sequence[str]

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> SubmissionPlan:
        return cls(**parsed(read_text(path)))


@dataclass(frozen=True, slots=True)
class SubmissionNote:
    """The process that runs an eval in the background, with which arguments for pytest, and where."""

    process: Holder
    arguments: Sequence[str]
    folder: str
    schema_version: Literal[1] = SCHEMA_VERSION

    def write(self, directory: RunDirectory) -> None:
        private.write(directory.submission, [json.dumps(encode(self), indent=2), "\n"])


def submitted_process(directory: RunDirectory) -> Holder | None:
    """Return the process that was submitted last; None if none was."""
    submission = _submission(directory)
    return None if submission is None else submission.process


def secrets_file_of(directory: RunDirectory) -> Path | None:
    """Return the file with the secrets of a submitted eval run, None if no option named one."""
    submission = _submission(directory)
    words = () if submission is None else submission.arguments
    values = [word.partition("=")[2] for word in words if word.startswith(SECRETS_OPTION)]
    return Path(submission.folder, values[-1]) if submission is not None and values and values[-1] != "-" else None


def _submission(directory: RunDirectory) -> SubmissionNote | None:
    try:
        return decode(parsed(read_text(directory.submission, most_bytes=MOST_BYTES)), SubmissionNote)
    except (FileFault, ValueError):
        return None
