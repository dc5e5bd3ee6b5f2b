"""Options for tests of reward functions, and whether this command names files of them."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

MARKER = "osmosis_reward: a test of a reward function (pytest-osmosis)"
FILES = "osmosis_rewards"
LAB = "osmosis_lab"


def add(parser: pytest.Parser) -> None:
    """Add our options to pytest's."""
    group = parser.getgroup("osmosis")
    group.addoption(
        "--osmosis-lab",
        action="store_true",
        help="Look for bugs in reward functions: scores that change, answers paid for nothing, crashes, slow patterns.",
    )
    parser.addini(LAB, "Always look for bugs in reward functions, as --osmosis-lab does (default: false).", type="bool")
    parser.addini(FILES, "Files whose reward functions are tests, like reward_fn/*.py, from the rootdir.", type="args")


def lab(config: pytest.Config) -> bool:
    """True where the lab is on."""
    return bool(config.getoption("--osmosis-lab") or config.getini(LAB))


def names_files(config: pytest.Config) -> bool:
    """True where the ini key names files, or an argument a Python file that pytest does not take for a test module."""
    return bool(config.getini(FILES)) or bool(typed(config))


def listed(config: pytest.Config) -> set[Path]:
    """The files of the ini key that are there and are no test modules."""
    found = {path for pattern in config.getini(FILES) for path in config.rootpath.glob(pattern)}
    return {path for path in found if path.suffix == ".py" and not _is_test_module(config, path)}


def typed(config: pytest.Config) -> set[Path]:
    """The Python files among the arguments that are no test modules."""
    given = config.args if config.args_source is config.ArgsSource.ARGS else []
    paths = {path_of(config, arg) for arg in given if arg.split("::", 1)[0].endswith(".py")}
    return {path for path in paths if not _is_test_module(config, path)}


def path_of(config: pytest.Config, arg: str) -> Path:
    """The file or folder that an argument names, with or without a node id, symlinks kept."""
    import os

    return Path(os.path.abspath(config.invocation_params.dir / arg.split("::", 1)[0]))  # noqa: PTH100 (keeps symlinks)


def _is_test_module(config: pytest.Config, path: Path) -> bool:
    """True for a file that pytest collects by its own rules."""
    return any(
        fnmatch(str(path), f"*/{pattern}") if "/" in pattern else fnmatch(path.name, pattern)
        for pattern in config.getini("python_files")
    )
