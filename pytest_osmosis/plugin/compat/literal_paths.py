"""Arguments whose path holds "[" or "::", which pytest takes for the beginning of a test's name.

pytest has no other way to name a file, so its function that reads an argument is replaced for the session: it reads the
name of a file without such characters, and then gets the path. If pytest renames that function, such paths are refused
again, as without us (`tests/hostile/test_paths.py`).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from _pytest import main

from pytest_osmosis.plugin.reward_tests.reward_options import split_argument

_READER = "resolve_collection_argument"


def keep_literal_paths(config: pytest.Config, arguments: Iterable[str]) -> None:
    """Let pytest collect from these arguments whatever characters their paths hold."""
    folder = config.invocation_params.dir
    split = {arg: split_argument(folder, arg) for arg in arguments}
    literal = {arg: (folder / path, rest) for arg, (path, rest) in split.items() if _misread(folder, path)}
    read = getattr(main, _READER, None)
    if not literal or read is None:
        return

    def read_literally(invocation_path: Path, arg: str, *args: Any, **options: Any) -> Any:
        if arg not in literal:
            return read(invocation_path, arg, *args, **options)
        path, rest = literal[arg]
        stand_in = read(invocation_path, f"{os.devnull}{rest}", *args, **options)
        parts = (
            stand_in.parts if path.suffix == ".py" else ["::".join(stand_in.parts)] if rest else []
        )  # evals are flat
        return dataclasses.replace(stand_in, path=path, parts=parts)

    setattr(main, _READER, read_literally)
    config.add_cleanup(lambda: setattr(main, _READER, read))


def _misread(folder: Path, path: str) -> bool:
    return ("[" in path or "::" in path) and (folder / path).exists()
