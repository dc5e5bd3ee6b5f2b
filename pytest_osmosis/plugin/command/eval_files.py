"""The TOMLs of evals in the folders that an option names, and in those that pytest collects."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_osmosis.files.reading import fault_of
from pytest_osmosis.text.natural_order import natural_key
from pytest_osmosis.text.paths import absolute


def option_tomls(config: pytest.Config, value: str) -> list[Path]:
    """Return the TOML, or the TOMLs in the folder, of `--osmosis-config`. Raises `pytest.UsageError` if there is none.

    A folder's subfolders do not count.
    """
    path = absolute(config.invocation_params.dir / value)
    if path.is_dir():
        tomls = tomls_in(path)
        if not tomls:
            raise pytest.UsageError(f"--osmosis-config={value}: the folder holds no *.toml")
        return tomls
    fault = fault_of(path)
    if fault is not None:
        raise pytest.UsageError(f"--osmosis-config={value}: {fault}{_suggestion(path) if fault.missing else ''}")
    return [path]


def tomls_under(config: pytest.Config, folder: Path) -> Iterator[Path]:
    """Yield configs/eval/*.toml in a folder and its subfolders, apart from those that pytest skips."""
    for parent, folders, _ in os.walk(folder):
        folders[:] = sorted((name for name in folders if not is_skipped_folder(config, name)), key=natural_key)
        path = Path(parent)
        if path.parts[-2:] == ("configs", "eval"):
            yield from tomls_in(path)


def is_skipped_folder(config: pytest.Config, name: str) -> bool:
    """True for a folder that pytest does not collect from."""
    return any(fnmatch.fnmatch(name, pattern) for pattern in config.getini("norecursedirs"))


def tomls_in(folder: Path) -> list[Path]:
    """Return the evals directly in a folder."""
    tomls = (file for file in folder.glob("*.toml") if file.name != "endpoints.toml")
    return sorted(tomls, key=lambda file: natural_key(file.stem))


def _suggestion(path: Path) -> str:
    from pytest_osmosis.text.paths import shown
    from pytest_osmosis.text.suggest import closest

    siblings = [other.name for other in path.parent.glob("*") if other.suffix == ".toml" or other.is_dir()]
    close = closest(path.name, siblings)
    return f", did you mean {shown(path.with_name(close))}?" if close else ""
