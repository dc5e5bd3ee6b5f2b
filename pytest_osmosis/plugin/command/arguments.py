"""The arguments from which pytest collects. Only `set_arguments` changes what they name, at most once in a process.

In the process of an eval that is in pytest_sessionstart, because only then the evals' files are known. xdist workers
get the controller's arguments. Any other process does it in pytest_configure, if at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from pytest_osmosis.plugin.command.eval_files import is_skipped_folder
from pytest_osmosis.plugin.command.named_evals import NamedEvals, remaining_arguments
from pytest_osmosis.plugin.reward_tests.reward_options import outside_testpaths, path_of


def set_arguments(config: pytest.Config, arguments: Iterable[str], *, as_typed: bool = False) -> None:
    """Let pytest collect from `arguments`; `as_typed` if they replace testpaths."""
    config.args[:] = arguments
    if any("[" in arg or "::" in arg for arg in config.args):
        from pytest_osmosis.plugin.compat.literal_paths import keep_literal_paths

        keep_literal_paths(config, config.args)
    if as_typed:
        config.args_source = config.ArgsSource.ARGS


def session_arguments(config: pytest.Config, named: NamedEvals, files: Sequence[Path] = ()) -> list[str]:
    """Return the arguments of a session that collects the evals in `files`.

    A named eval replaces testpaths. TOMLs that only addopts name are left out. A file is left out if it lies in a
    folder among the arguments, because given both, pytest 8 collects the file alone.
    """
    evals = {*named.explicit, *files}
    if not named.explicit:
        arguments = [*remaining_arguments(config, evals), *outside_testpaths(config)]
    elif tuple(config.args) == named.untyped:  # else another plugin chose them, like pytest-picked
        arguments = []
    else:
        arguments = remaining_arguments(config, evals)
    for file in files:
        paths = [path_of(config, arg) for arg in arguments]
        if file not in paths and not any(_collects(config, folder, file) for folder in paths):
            arguments.append(str(file))
    return arguments


def _collects(config: pytest.Config, folder: Path, file: Path) -> bool:
    if not file.is_relative_to(folder) or not folder.is_dir():
        return False
    return not any(is_skipped_folder(config, part) for part in file.relative_to(folder).parts[:-1])
