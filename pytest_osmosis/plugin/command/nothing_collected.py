"""Hints for a command that collected nothing: the evals and reward functions that it may have meant.

Files are parsed and not imported, because pytest did not import them either. If pytest did, and the import failed, the
hint says what to do about a library that is not installed.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_osmosis.files.reading import FileFault, read_text
from pytest_osmosis.plugin import reward_options
from pytest_osmosis.plugin.command.named_evals import is_skipped_folder, tomls_in
from pytest_osmosis.plugin.reward_options import path_of
from pytest_osmosis.rewards.graders import MODES
from pytest_osmosis.text.names import listed, shown
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.user_code import module_advice

MOST_FILES = 500
MOST_BYTES = 1_000_000
MOST_LINES = 5


def hints(config: pytest.Config) -> list[str]:
    """Return lines about what the command does not collect, and what would."""
    paths = [path_of(config, arg) for arg in config.args]
    folders = [path for path in paths if path.is_dir()]
    lines = [*_about_evals(folders), *_about_rewards(config, paths, folders)]
    return [f"osmosis: {line}" for line in lines]


def import_hints(config: pytest.Config, reports: Iterable[object]) -> list[str]:
    """Return lines about modules and names that could not be imported, if the command names reward functions."""
    if not (reward_options.lab(config) or reward_options.names_files(config)):
        return []
    texts = [report.longreprtext for report in reports if isinstance(report, pytest.CollectReport)]
    missing = dict.fromkeys(found for text in texts for found in _MISSING.findall(text))
    return [
        f"osmosis: no {f'{name} in' if name else 'module'} {module}: {advice}"
        for name, module in missing
        if (advice := module_advice(module)) is not None
    ]


_MISSING = re.compile(
    r"(?:ModuleNotFoundError: No module named|ImportError: cannot import name '(\w+)' from) '([\w.]+)'"
)


def _about_evals(folders: Sequence[Path]) -> Iterator[str]:
    for folder in dict.fromkeys(found for each in folders for found in _eval_folders(each)):
        if n := len(tomls_in(folder)):
            runs, pronoun = ("an eval that runs", "it") if n == 1 else ("evals that run", "them")
            command = f"pytest --osmosis-config={shlex.quote(shown(folder))}"
            number = "" if n == 1 else f"{n} "
            yield f"{shown(folder)} holds {number}{runs} only if the command names {pronoun}: {command}"


def _eval_folders(folder: Path) -> Iterator[Path]:
    places = (folder / "configs" / "eval", *([folder / "eval"] if folder.name == "configs" else []))
    yield from (place for place in places if place.is_dir())
    if folder.parts[-2:] == ("configs", "eval"):
        yield folder


class _Function(NamedTuple):
    place: str
    name: str
    parameters: Sequence[str]
    is_rubric: bool

    def __str__(self) -> str:
        return f"{self.place}: {self.name}({', '.join(self.parameters)})"


def _about_rewards(config: pytest.Config, paths: Sequence[Path], folders: Sequence[Path]) -> Iterator[str]:
    """Yield what keeps the reward functions of named files, and under `--osmosis-lab` of folders, from being tested."""
    lab = reward_options.lab(config)
    named = {*reward_options.typed(config), *reward_options.listed(config)}
    if not (lab or named):
        return
    others = [path for folder in folders for path in _python_files(config, folder)] if lab else []
    files = dict.fromkeys([*sorted(named), *others, *(path for path in paths if path.suffix == ".py" and lab)])
    lines = [line for path in files for function in _functions(path) if (line := _fault(function, path in named))]
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield f"and {plural(len(lines) - MOST_LINES, 'more function')} like these"
    if lab and not lines:
        searched = listed([shown(path) for path in (sorted(named) or paths)], 3)
        shape = "whose first parameter is solution_str or messages and that takes a ground_truth"
        fix = f"name the file of a function {shape}, or decorate one in a test module with @osmosis_reward"
        yield f"no reward function was found in {searched}; {fix}"


def _fault(function: _Function, is_named: bool) -> str | None:
    """Return why a function is not tested, None if it is no reward function, or if it would have been."""
    parameters = function.parameters
    if not parameters or "ground_truth" not in parameters:
        return None
    if function.is_rubric:
        return f"{function} is not tested: each call asks a judge; use it in an eval, or call it in a test of yours"
    if parameters[0] in MODES:
        file = shlex.quote(function.place.rpartition(":")[0])
        return None if is_named else f"{function} is not tested, because only files that are named are: pytest {file}"
    if set(parameters) & MODES.keys():
        return f"{function} is not tested: its first parameter must be solution_str or messages"
    return None


def _python_files(config: pytest.Config, folder: Path) -> Iterator[Path]:
    def found() -> Iterator[Path]:
        for parent, folders, files in os.walk(folder):
            folders[:] = sorted(name for name in folders if not is_skipped_folder(config, name))
            yield from (Path(parent, name) for name in sorted(files) if name.endswith(".py"))

    return itertools.islice(found(), MOST_FILES)


def _functions(path: Path) -> Iterator[_Function]:
    """Yield the functions at the top of a module whose names have no leading underscore."""
    try:
        tree = ast.parse(read_text(path, most_bytes=MOST_BYTES))
    except (FileFault, ValueError, SyntaxError, RecursionError, MemoryError):
        return
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            given = node.args
            named = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            is_rubric = any(ast.unparse(each).endswith("osmosis_rubric") for each in node.decorator_list)
            yield _Function(f"{shown(path)}:{node.lineno}", node.name, named, is_rubric)
