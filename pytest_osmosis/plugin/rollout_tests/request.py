"""Requests for rollouts, as `@pytest.mark.osmosis_eval` makes them.

The marker may select rows and runs as the command line does: `limit`, `offset`, `rows`, `n`. It takes precedence over
the TOML; the environment and the command line take precedence over the marker.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pytest_osmosis.config import Override
from pytest_osmosis.config.eval_config import SELECTING
from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.evals import EvalRequest
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.names import absolute, shown, suggestion

ARGUMENTS = {**SELECTING, "n": OPTIONS["n"]}
"""The marker's keyword arguments, and the key of the config that each sets."""
EXAMPLE = 'osmosis_eval("configs/eval/x.toml", limit=5)'


@dataclass(frozen=True, slots=True)
class MarkerRequest:
    """A marker's request for the eval in `path`. `arguments` are its keyword arguments as JSON, `where` its place.

    The path of one of several evals ends with its name, as in "x.toml::gsm8k".
    """

    path: Path
    arguments: str
    where: str

    @property
    def key(self) -> tuple[Path, str]:
        """A key that equal requests share, wherever they were made."""
        return self.path, self.arguments

    def overrides(self) -> list[Override]:
        """Return the settings that take precedence over the TOML."""
        arguments: Mapping[str, Any] = json.loads(self.arguments)
        return [
            Override(*ARGUMENTS[name], value, f"{self.where}: osmosis_eval({name}={value!r})", level="test")
            for name, value in arguments.items()
        ]

    def to_list(self, session: Iterable[Override]) -> EvalRequest:
        """Return what asks for its rows alone. `session` are the overrides of the command and its surroundings."""
        path, entry = file_and_entry(self.path)
        return EvalRequest(path, entry, [*self.overrides(), *session], listing=True, compared=False)

    def to_json(self) -> dict[str, str]:
        return {"path": str(self.path), "arguments": self.arguments, "where": self.where}

    @classmethod
    def from_json(cls, data: Mapping[str, str]) -> MarkerRequest:
        return cls(Path(data["path"]), data["arguments"], data["where"])


class RolloutRequest(NamedTuple):
    eval: MarkerRequest
    run: RunId


def file_and_entry(path: Path) -> tuple[Path, str | None]:
    """Return the file in the path of a request, and the name of the eval if the file has several.

    >>> file_and_entry(Path("configs/x.toml::gsm8k"))
    (PosixPath('configs/x.toml'), 'gsm8k')
    """
    file, colons, entry = str(path).rpartition(".toml::")
    return (Path(f"{file}.toml"), entry) if colons else (path, None)


def request_of(
    args: Sequence[object], kwargs: Mapping[str, object], where: str, file: Path, root: Path
) -> MarkerRequest:
    """Return the request of a marker with these arguments. `file` is the test file, `root` pytest's rootdir.

    A relative path is looked for in the folder of the test file, then in each folder above it, up to `root`.
    Raises `ConfigError` with every problem.
    """
    problems = []
    path = None
    if len(args) == 1 and isinstance(args[0], str | os.PathLike):
        named, entry = file_and_entry(Path(args[0]))
        path = _locate(named, file, root)
        if path is None:
            looked = f"looked in {shown(file.parent)} and the folders above it up to {shown(root)}"
            problems.append(f'no file "{os.fspath(args[0])}"; {looked}')
        elif path.suffix != ".toml":
            problems.append(f'"{os.fspath(args[0])}" is not a TOML file; name the config of an eval, as in {EXAMPLE}')
        elif entry is not None:
            path = path.with_name(f"{path.name}::{entry}")
    else:
        problems.append(f"must name the config of one eval first, as in {EXAMPLE}")
    arguments = {}
    for name, value in kwargs.items():
        if name not in ARGUMENTS:
            hint = suggestion(name, ARGUMENTS, "{}=")
            problems.append(f"{name}=: unknown argument{hint} (valid: {', '.join(ARGUMENTS)})")
        elif not isinstance(value, int | float | str):
            problems.append(f"{name}=: must be a number or a string, got {value!r:.80}")
        else:
            arguments[name] = value
    if problems or path is None:
        raise ConfigError(Problem(where, f"osmosis_eval: {problem}") for problem in problems)
    return MarkerRequest(path, json.dumps(arguments, sort_keys=True), where)


def _locate(path: Path, file: Path, root: Path) -> Path | None:
    """Return the nearest file of that name, None if there is none."""
    file, root = absolute(file), absolute(root)
    above = [folder for folder in file.parents if folder == root or root in folder.parents]
    places = [absolute(folder / path) for folder in above or [file.parent, root]]
    return next((place for place in places if something_at(place)), None)
