"""The entry point of the pytest plugin: options and markers, and nothing else until a command names an eval.

`pytest_configure` registers the hooks that act on evals only then, so any other run pays for one look at its arguments.
Reward functions are collected with their module; until something imports a decorator for them, that costs one look at
`sys.modules` for each name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from pytest_osmosis.plugin import options

if TYPE_CHECKING:
    from pytest_osmosis.processes.child import PrestartedHost
    from pytest_osmosis.seams import Rollout

DECORATORS = ("pytest_osmosis.seams", "osmosis_ai")
"""Modules without which no decorator of reward functions was imported."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_osmosis.plugin import hooks

    pluginmanager.add_hookspecs(hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> Generator[None]:
    """Refuse options of other systems, once all plugins and conftest files have registered theirs."""
    options.spell_out(args)
    yield
    known, unknown = parser.parse_known_and_unknown_args(args)
    if unknown and not (known.help or known.version):
        options.refuse_unknown(unknown)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", options.MARKER)
    config.addinivalue_line("markers", options.EVAL_MARKER)
    config.addinivalue_line("markers", options.REWARD_MARKER)
    if options.concerns_rewards(config):
        from pytest_osmosis import seams

        config.pluginmanager.register(seams.RewardFiles(config), "osmosis-reward-files")
    sent = getattr(config, "workerinput", None)
    if sent is None and options.may_concern(config):
        with _without_assert_rewriting():
            _control(config)
    elif sent is not None and "osmosis" in sent:
        with _without_assert_rewriting():
            from pytest_osmosis.plugin.under_xdist import WorkerPlugin

            config.pluginmanager.register(WorkerPlugin(config), "osmosis-worker")
    elif sent is not None and "osmosis-args" in sent:
        _set_arguments(config, sent["osmosis-args"])
    elif options.names_reward_files(config) and (others := seams.outside_testpaths(config)):
        _set_arguments(config, [*config.args, *others])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Complete the help, and clean the message of a usage error: pytest prints both itself."""
    if config.option.help:
        options.describe(config)
    try:
        return (yield)
    except pytest.UsageError as error:
        if options.may_concern(config):
            from pytest_osmosis.plugin.session_sanitizer import clean_error

            clean_error(config, error)
        raise


def _set_arguments(config: pytest.Config, arguments: Iterable[str]) -> None:
    from pytest_osmosis.plugin.named_evals import set_arguments

    set_arguments(config, arguments)


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path, target) if name.startswith("pytest_osmosis.") else None


@contextmanager
def _without_assert_rewriting() -> Iterator[None]:
    """Import modules of this package past pytest's assertion rewriting, which would add about 100 ms to the start.

    Rewriting explains failed assertions of tests; this package contains no tests.
    """
    sys.meta_path.insert(0, _Finder)
    try:
        yield
    finally:
        sys.meta_path.remove(_Finder)


def _control(config: pytest.Config) -> None:
    """Register the hooks of a session that names evals, or tell which evals are named in vain."""
    options.refuse_blanks(config)
    on_cluster = options.names_a_cluster(config, os.environ)
    prestarted = _prestarted(config) if options.seems_to_run(config) and not on_cluster else None
    from pytest_osmosis.plugin.named_evals import (
        NotStartedNotice,
        named_evals,
        session_arguments,
        set_arguments,
    )

    named = named_evals(config)
    if not named.evals and not named.asks_models:
        if named.ignored or named.withheld:
            config.pluginmanager.register(NotStartedNotice(config, named), "osmosis-not-started")
        set_arguments(config, session_arguments(config, named))
        return
    from pytest_osmosis.plugin import session_options

    settings = session_options.read(config, os.environ)
    if not named.evals or config.option.collectonly or settings.dry_run or settings.inline:
        prestarted = None
    elif prestarted is None and not on_cluster:
        prestarted = _prestarted(config)
    from pytest_osmosis.plugin.controller import ControllerPlugin

    ControllerPlugin(config, named, settings, prestarted).register()


def _prestarted(config: pytest.Config) -> PrestartedHost:
    """Start the first host. Do that before importing anything else for evals, because the host takes longer."""
    from pytest_osmosis.processes.child import PrestartedHost

    prestarted = PrestartedHost(asks=options.seems_to_ask(config))
    config.add_cleanup(prestarted.close)
    return prestarted


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item | pytest.Collector] | None:
    has_decorator = any(module in sys.modules for module in DECORATORS)
    if not has_decorator or not callable(obj) or not isinstance(collector, pytest.Module):
        return None
    from pytest_osmosis import seams

    return seams.reward_tests(collector, name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Say what an eval needs to be collected, if nothing was."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not terminalreporter.stats.get("deselected"):
        from pytest_osmosis.plugin.named_evals import hints
        from pytest_osmosis.plugin.terminal import write_line

        for line in hints(config):
            write_line(terminalreporter, line)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test marked `osmosis_eval` a test for each row and run."""
    if metafunc.definition.get_closest_marker(options.EVAL_MARKER_NAME) is not None:
        from pytest_osmosis import seams

        seams.parametrize(metafunc)


@pytest.fixture
def rollout(request: pytest.FixtureRequest) -> Rollout:
    """A rollout of the eval in @pytest.mark.osmosis_eval("configs/eval/x.toml"): its solution_str, messages,
    ground_truth, row, usage and scores."""
    from pytest_osmosis import seams

    return seams.rollout_of(request)
