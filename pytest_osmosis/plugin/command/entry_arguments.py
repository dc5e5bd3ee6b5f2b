"""The evals of a config with several that a command names: all of them, or those that its node ids name."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_osmosis.config.entries import SeveralEvals, read_entries
from pytest_osmosis.errors import Problem
from pytest_osmosis.plugin.items.node_ids import ungrouped
from pytest_osmosis.plugin.reward_tests.reward_options import path_of, split_argument


class NamedEntry(NamedTuple):
    """An eval as a command names it: its TOML, None without one, and its name in a TOML with several."""

    path: Path | None
    entry: str | None = None


class NamedEntries(NamedTuple):
    """The evals of one TOML, and the problems with its keys and sweeps, or with node ids that name none of them."""

    entries: tuple[NamedEntry, ...]
    problems: tuple[Problem, ...] = ()


def named_entries(config: pytest.Config, path: Path | None, *, all_of_them: bool) -> NamedEntries:
    """Return the evals in a TOML: those that node ids name, or all if `all_of_them` or if an argument names the file.

    Raises `ConfigError` if the TOML cannot be read.
    """
    several = None if path is None else read_entries(path)
    if several is None or path is None:
        return NamedEntries((NamedEntry(path),))
    names = [entry.name for entry in several.entries]
    ids = dict(_ids(config, path))
    problems = [*several.problems]
    if not all_of_them and ids and not any(path_of(config, arg) == path and arg not in ids for arg in config.args):
        named = {_entry_of(rest, names) for rest in ids.values()}
        problems += [_not_found(arg, rest, several) for arg, rest in ids.items() if _entry_of(rest, names) is None]
        names = [name for name in names if name in named]
    return NamedEntries(tuple(NamedEntry(path, name) for name in names), tuple(problems))


def names_entry(config: pytest.Config, arg: str, entry: str | None) -> bool:
    """Return True if a node id names an entry of its file, or a test of it. None stands for the only eval."""
    rest = split_argument(config.invocation_params.dir, arg)[1].removeprefix("::")
    return entry is None or _entry_of(rest, [entry]) is not None


def _ids(config: pytest.Config, path: Path) -> Iterator[tuple[str, str]]:
    for arg in config.args:
        rest = split_argument(config.invocation_params.dir, arg)[1]
        if rest and path_of(config, arg) == path:
            yield arg, ungrouped(rest.removeprefix("::"))


def _entry_of(rest: str, names: list[str]) -> str | None:
    return next((name for name in names if rest == name or rest.startswith(f"{name}[")), None)


def _not_found(arg: str, rest: str, several: SeveralEvals) -> Problem:
    name = rest.partition("[")[0]
    file = shlex.quote(several.file.label)
    return Problem(arg, f"{several.not_found(name)}; type {file} for all of them")
