"""Options for tests of reward functions, and the files of reward functions that a command or an ini key names."""

from __future__ import annotations

import math
import os
from fnmatch import fnmatch
from pathlib import Path

import pytest

MARKER = "osmosis_reward: a test of a reward function (pytest-osmosis)"
FILES = "osmosis_rewards"
COMPAT = "osmosis_compat"
LAB = "osmosis_lab"
LAB_BUDGET = "osmosis_lab_budget"
LAB_FLAG = "--osmosis-lab"
LAB_LIBRARIES = ("psutil", "time_machine")
BUDGET_FLAG = "--osmosis-lab-budget"


def stands_in(config: pytest.Config) -> bool:
    """Return True if code may import names of `osmosis_ai` that are not installed."""
    return bool(config.getini(COMPAT))


def lab(config: pytest.Config) -> bool:
    return bool(config.getoption(LAB_FLAG) or config.getini(LAB))


def check(config: pytest.Config) -> None:
    """Raise `pytest.UsageError` for a budget that is no number, or that nothing uses, and for missing libraries."""
    if lab(config):
        from importlib.util import find_spec

        lab_budget_s(config)
        if missing := [name for name in LAB_LIBRARIES if find_spec(name) is None]:
            origin = LAB_FLAG if config.getoption(LAB_FLAG) else f"ini {LAB}"
            raise pytest.UsageError(f'{origin}: needs {", ".join(missing)}: pip install "pytest-osmosis[lab]"')
    elif config.getoption(BUDGET_FLAG) is not None:
        raise pytest.UsageError(f"{BUDGET_FLAG}: needs --osmosis-lab: it sets the time of the lab's tests")


def lab_budget_s(config: pytest.Config) -> float:
    """Return the seconds that a test of the lab may take. Raises `pytest.UsageError` for anything but seconds."""
    typed = config.getoption(BUDGET_FLAG)
    text = str(config.getini(LAB_BUDGET) if typed is None else typed)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        origin = f"ini {LAB_BUDGET}" if typed is None else BUDGET_FLAG
        raise pytest.UsageError(f"{origin}: must be a number of seconds above 0, like 60, got {text!a}")
    return seconds


def names_files(config: pytest.Config) -> bool:
    """True if the ini key or an argument names a Python file that is not a test module."""
    return bool(config.getini(FILES) or typed(config))


def listed(config: pytest.Config) -> set[Path]:
    """Return the files of the ini key, apart from test modules."""
    paths = {path for pattern in config.getini(FILES) for path in _matches(config, pattern)}
    return {path for path in paths if not _is_test_module(config, path)}


def named(config: pytest.Config) -> set[Path]:
    """Return the files that the ini key names without a pattern."""
    return {config.rootpath / pattern for pattern in config.getini(FILES) if not set(pattern) & set("*?[")}


def problems(config: pytest.Config) -> list[str]:
    """Return the names and patterns of the ini key that lead to no test."""
    text = f"must be a Python file, or a pattern like reward_fn/*.py that has some, below the rootdir {config.rootpath}"
    return [f"ini {FILES}: {pattern}: {text}" for pattern in config.getini(FILES) if not _matches(config, pattern)]


def _matches(config: pytest.Config, pattern: str) -> list[Path]:
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        return []
    return [path for path in config.rootpath.glob(pattern) if path.suffix == ".py" and path.is_file()]


def typed(config: pytest.Config) -> set[Path]:
    """Return the Python files among the arguments, apart from test modules."""
    words = typed_arguments(config)
    paths = {path_of(config, arg) for arg in words if any(part.endswith(".py") for part in arg.split("::"))}
    return {path for path in paths if not _is_test_module(config, path)}


def typed_arguments(config: pytest.Config) -> list[str]:
    """Return pytest's arguments; none if it took them from testpaths or the current folder."""
    return config.args if config.args_source is config.ArgsSource.ARGS else []


def outside_testpaths(config: pytest.Config) -> list[str]:
    """Return the files of the ini key that pytest does not find in its testpaths; none if testpaths are not used."""
    if config.args_source is not config.ArgsSource.TESTPATHS:
        return []
    folders = [config.invocation_params.dir / arg for arg in config.args]
    return [str(path) for path in sorted(listed(config)) if not any(map(path.is_relative_to, folders))]


def path_of(config: pytest.Config, arg: str) -> Path:
    """Return the absolute path in an argument or node id; symlinks are kept."""
    return Path(os.path.abspath(config.invocation_params.dir / arg.partition("::")[0]))  # noqa: PTH100 (keeps symlinks)


def _is_test_module(config: pytest.Config, path: Path) -> bool:
    return any(
        fnmatch(str(path), f"*/{pattern}") if "/" in pattern else fnmatch(path.name, pattern)
        for pattern in config.getini("python_files")
    )
