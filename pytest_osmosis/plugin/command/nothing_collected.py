"""Hints for a command that collected nothing: the evals and reward functions that it may have meant.

Files are parsed and not imported, because pytest did not import them either. If pytest did, and the import failed, the
hint says what to do about a library that is not installed.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from pytest_osmosis.files.reading import FileFault, read_text
from pytest_osmosis.plugin import reward_options
from pytest_osmosis.plugin.command.named_evals import tomls_in
from pytest_osmosis.plugin.reward_options import path_of
from pytest_osmosis.text.names import listed, shown
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.user_code import library_of, module_advice, reward_advice

MOST_BYTES = 1_000_000

Function = ast.FunctionDef | ast.AsyncFunctionDef


def hints(config: pytest.Config) -> list[str]:
    """Return lines about what the command does not collect, and what would."""
    paths = [path_of(config, arg) for arg in config.args]
    lines = [*_about_evals([path for path in paths if path.is_dir()]), *_about_rewards(config, paths)]
    return [f"osmosis: {line}" for line in lines]


def import_hints(reports: Iterable[object]) -> list[str]:
    """Return lines about modules and names that could not be imported."""
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
            place = shown(folder)
            yield f"{place} holds {plural(n, 'eval')}; to run: pytest --osmosis-config={shlex.quote(place)}"


def _eval_folders(folder: Path) -> Iterator[Path]:
    places = (folder / "configs" / "eval", *([folder / "eval"] if folder.name == "configs" else []))
    yield from (place for place in places if place.is_dir())
    if folder.parts[-2:] == ("configs", "eval"):
        yield folder


def _about_rewards(config: pytest.Config, paths: Sequence[Path]) -> Iterator[str]:
    """Yield what keeps the reward functions of named files from being tested."""
    lab = reward_options.lab(config)
    modules = [path for path in paths if lab and path.suffix == ".py"]
    named = sorted({*reward_options.typed(config), *reward_options.listed(config), *modules})
    lines = [line for path in named for function in _functions(path) if (line := _fault(path, function)) is not None]
    yield from lines
    if lab and not lines:
        searched = listed([shown(path) for path in (named or paths)], 3)
        shape = "whose first parameter is solution_str or messages and that takes a ground_truth"
        fix = f"name the file of a function {shape}, or decorate one in a test module with @osmosis_reward"
        yield f"no reward function was collected from {searched}; {fix}"


def _fault(path: Path, function: Function) -> str | None:
    """Return why a function is not tested that has the shape of one for another library or for a judge, else None."""
    given = function.args
    parameters = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    if (library := library_of(parameters)) is not None:
        why = reward_advice(library)
    elif any(ast.unparse(each).endswith("osmosis_rubric") for each in function.decorator_list):
        why = "each call asks a judge; use it in an eval, or call it in a test of yours"
    else:
        return None
    return f"{shown(path)}:{function.lineno}: {function.name}({', '.join(parameters)}) is not tested: {why}"


def _functions(path: Path) -> list[Function]:
    """Return the functions at the top of a module whose names have no leading underscore."""
    try:
        tree = ast.parse(read_text(path, most_bytes=MOST_BYTES))
    except (FileFault, ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [node for node in functions if not node.name.startswith("_")]
