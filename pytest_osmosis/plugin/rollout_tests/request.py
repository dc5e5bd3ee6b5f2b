"""What a test asks for: rollouts of an eval, as `@pytest.mark.osmosis_eval` says it.

Of rows and runs the marker may say what the command line may: `limit`, `offset`, `rows`, `n`. It goes before the TOML;
the environment and the command line go before it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_osmosis.config import Override
from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.config.selection import SELECTING
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.text.paths import absolute, shown
from pytest_osmosis.text.suggest import closest

PLACES = {**SELECTING, "n": OPTIONS["n"]}
"""What a marker may say, and the key of the config that it says."""
EXAMPLE = 'osmosis_eval("configs/eval/x.toml", limit=5)'


@dataclass(frozen=True, slots=True)
class Request:
    """Rollouts of the eval in `path`. `said` is what the marker says of rows and runs, as JSON, `where` its place."""

    path: Path
    said: str
    where: str

    @property
    def key(self) -> tuple[Path, str]:
        """Equal for tests that ask for the same."""
        return self.path, self.said

    def overrides(self) -> list[Override]:
        """What goes before the TOML."""
        said: Mapping[str, Any] = json.loads(self.said)
        return [
            Override(*PLACES[name], value, f"{self.where}: osmosis_eval({name}={value!r})", level="test")
            for name, value in said.items()
        ]

    def to_json(self) -> dict[str, str]:
        """Plain JSON, for the controller of a worker."""
        return {"path": str(self.path), "said": self.said, "where": self.where}

    @classmethod
    def from_json(cls, data: Mapping[str, str]) -> Request:
        """The request that `to_json` gave."""
        return cls(Path(data["path"]), data["said"], data["where"])


def request_of(args: Sequence[object], kwargs: Mapping[str, object], where: str, file: Path, root: Path) -> Request:
    """What a marker with these arguments asks for; `file` is the test's, `root` pytest's rootdir.

    A relative path is looked for from the folder of the test file on, then from each folder above it, up to `root`.
    Raises `ConfigError` with every problem.
    """
    problems = []
    path = None
    if len(args) == 1 and isinstance(args[0], str | os.PathLike):
        path = _found(Path(args[0]), file, root)
        if path is None:
            looked = f"looked in {shown(file.parent)} and the folders above it up to {shown(root)}"
            problems.append(f'no file "{os.fspath(args[0])}"; {looked}')
        elif path.suffix != ".toml":
            problems.append(f'"{os.fspath(args[0])}" is no TOML; name an eval\'s config, as in {EXAMPLE}')
    else:
        problems.append(f"must name one eval's config first, as in {EXAMPLE}")
    said = {}
    for name, value in kwargs.items():
        if name not in PLACES:
            close = closest(name, PLACES)
            meant = f", did you mean {close}=?" if close else ""
            problems.append(f"{name}=: unknown argument{meant} (valid: {', '.join(PLACES)})")
        elif not isinstance(value, int | float | str):
            problems.append(f"{name}=: must be a number or a string, got {value!r:.80}")
        else:
            said[name] = value
    if problems or path is None:
        raise ConfigError(Problem(where, f"osmosis_eval: {problem}") for problem in problems)
    return Request(path, json.dumps(said, sort_keys=True), where)


def _found(path: Path, file: Path, root: Path) -> Path | None:
    """The nearest file of that name, None where there is none."""
    file, root = absolute(file), absolute(root)
    above = [folder for folder in file.parents if folder == root or root in folder.parents]
    places = [absolute(folder / path) for folder in above or [file.parent, root]]
    return next((place for place in places if place.is_file()), None)
