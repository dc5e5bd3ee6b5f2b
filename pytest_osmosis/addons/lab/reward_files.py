"""The plugin of pytest for reward functions that a command or an ini key names by their file, and for the lab."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_osmosis import seams
from pytest_osmosis.addons.lab.items import NAMED, SDK_SHIM, RewardModule, lab_budget_s
from pytest_osmosis.plugin import options
from pytest_osmosis.text import names

LIBRARIES = ("psutil", "time_machine")
"""The libraries that the lab needs."""


class RewardFiles:
    """Collects the reward functions of files that the ini key or the arguments name."""

    def __init__(self, config: pytest.Config) -> None:
        _check_lab(config)
        typed, listed = options.typed_files(config), _listed(config)
        config.stash[NAMED] = typed | listed
        config.stash[SDK_SHIM] = sdk_shim = seams.sdk_shim() if options.stands_in(config) else None
        self.listed = listed - typed
        self._sdk_shim = sdk_shim
        self._named = _named(config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Refuse names of the ini key that lead to no test. `--help` still works."""
        problems = _problems(session.config)
        if problems:
            raise pytest.UsageError(*problems)

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Collect a file of the ini key; pytest itself collects files among the arguments."""
        return None if parent.session.isinitpath(file_path) else self._module(file_path, parent)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, object, object]:
        """Let the files that were named find names of `osmosis_ai` while they are imported, and no other code."""
        if self._sdk_shim is None or collector.path not in collector.config.stash[NAMED]:
            return (yield)
        with self._sdk_shim.active():
            return (yield)

    def pytest_report_collectionfinish(self, config: pytest.Config) -> list[str]:
        """Say what stands in for `osmosis_ai`, unless pytest is quiet."""
        if self._sdk_shim is None or config.get_verbosity() < 0:
            return []
        return [f"osmosis: {note}" for note in self._sdk_shim.notes]

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
        """Collect a file of the ini key that was added to testpaths."""
        return self._module(module_path, parent)

    def _module(self, path: Path, parent: pytest.Collector) -> RewardModule | None:
        if path not in self.listed:
            return None
        module: RewardModule = RewardModule.from_parent(parent, path=path)
        module.must_hold_one = path in self._named
        return module

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
    ) -> None:
        """Say what a reward function needs to be collected, if nothing was, or if its module does not load."""
        if not (options.lab(config) or options.names_reward_files(config)):
            return
        stats = terminalreporter.stats
        nothing = exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not stats.get("deselected")
        lines = [_no_function_line(config)] if nothing and options.lab(config) else []
        if lines := [*lines, *_import_hints(stats.get("error", ()))]:
            from pytest_osmosis.plugin.terminal import write_line

            for line in lines:
                write_line(terminalreporter, line)


def _check_lab(config: pytest.Config) -> None:
    """Raise `pytest.UsageError` for a budget that is no number, or that nothing uses, and for missing libraries."""
    if options.lab(config):
        lab_budget_s(config)
        if missing := [name for name in LIBRARIES if find_spec(name) is None]:
            origin = options.LAB_FLAG if config.getoption(options.LAB_FLAG) else f"ini {options.LAB}"
            raise pytest.UsageError(f'{origin}: needs {", ".join(missing)}: pip install "pytest-osmosis[lab]"')
    elif config.getoption(options.BUDGET_FLAG) is not None:
        raise pytest.UsageError(f"{options.BUDGET_FLAG}: needs --osmosis-lab: it sets the time of the lab's tests")


def _listed(config: pytest.Config) -> set[Path]:
    """Return the files of the ini key, apart from test modules."""
    paths = {path for pattern in config.getini(options.REWARD_FILES) for path in _matches(config, pattern)}
    return {path for path in paths if not options.is_test_module(config, path)}


def _named(config: pytest.Config) -> set[Path]:
    """Return the files that the ini key names without a pattern."""
    patterns = config.getini(options.REWARD_FILES)
    return {config.rootpath / pattern for pattern in patterns if not set(pattern) & set("*?[")}


def _problems(config: pytest.Config) -> list[str]:
    """Return the names and patterns of the ini key that lead to no test."""
    text = f"must be a Python file, or a pattern like reward_fn/*.py that has some, below the rootdir {config.rootpath}"
    in_vain = [pattern for pattern in config.getini(options.REWARD_FILES) if not _matches(config, pattern)]
    return [f"ini {options.REWARD_FILES}: {pattern}: {text}" for pattern in in_vain]


def _matches(config: pytest.Config, pattern: str) -> list[Path]:
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        return []
    return [path for path in config.rootpath.glob(pattern) if path.suffix == ".py" and path.is_file()]


def outside_testpaths(config: pytest.Config) -> list[str]:
    """Return the files of the ini key that pytest does not find in its testpaths; none if testpaths are not used."""
    if config.args_source is not config.ArgsSource.TESTPATHS:
        return []
    folders = [config.invocation_params.dir / arg for arg in config.args]
    return [str(path) for path in sorted(_listed(config)) if not any(map(path.is_relative_to, folders))]


def _no_function_line(config: pytest.Config) -> str:
    shape = "whose first parameter is solution_str or messages and that takes a ground_truth"
    fix = f"name the file of a function {shape}, or decorate one in a test module with @osmosis_reward"
    paths = [options.path_of(config, arg) for arg in config.args]
    return f"osmosis: no reward function was found in {names.listed(map(names.shown, paths), 3)}; {fix}"


def _import_hints(reports: Iterable[object]) -> list[str]:
    """Return lines about modules and names that could not be imported."""
    from pytest_osmosis.text.user_code import module_advice

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
