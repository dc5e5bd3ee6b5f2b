"""Calls of hooks: whatever one plugin raises or answers, it costs no other plugin and no results."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_osmosis import Verdict
from pytest_osmosis.plugin import hooks as specs
from pytest_osmosis.plugin.session_end import GATE, RESULTS, HookCaller
from pytest_osmosis.verdicts.gates import State

SOUND = Verdict("sound", "holds", "as it should", 1.0)


class Opaque(Exception):
    """An error that nobody can look at."""

    def __getattribute__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


class Sound:
    @pytest.hookimpl
    def pytest_osmosis_gate(self) -> Verdict:
        return SOUND


def caller(plugin: object) -> HookCaller:
    """Return the caller of a session with this plugin, and a sound one after it."""
    manager = pytest.PytestPluginManager()
    manager.add_hookspecs(specs)
    for each in (Sound(), plugin):
        manager.register(each)
    config: Any = SimpleNamespace(hook=manager.hook, pluginmanager=manager)
    return HookCaller(config)


def answers_to(plugin: object) -> list[Verdict]:
    return caller(plugin).call(GATE, "x.toml::x", results=None)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Opaque, ()),
        (SystemExit, (0,)),
        (GeneratorExit, ()),
        (pytest.exit.Exception, ("now",)),
        (pytest.skip.Exception, ("no",)),
        (RecursionError, ()),
    ],
)
def test_a_hook_that_raises_costs_no_other(error: type[BaseException], words: tuple[object, ...]) -> None:
    class Raising:
        @pytest.hookimpl
        def pytest_osmosis_gate(self) -> None:
            raise error(*words)

        @pytest.hookimpl
        def pytest_osmosis_results(self) -> None:
            raise error(*words)

    raising = caller(Raising())
    broken, sound = raising.call(GATE, "x.toml::x", results=None)
    raising.call(RESULTS, "x.toml::x", results=None, path=None)

    assert (sound, broken.state) == (SOUND, "not measured")
    assert error.__name__ in broken.text
    assert [each.hook for each in raising.take_errors()] == ["pytest_osmosis_gate", "pytest_osmosis_results"]


def test_ctrl_c_in_a_hook_ends_the_session() -> None:
    class Interrupted:
        @pytest.hookimpl
        def pytest_osmosis_gate(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        answers_to(Interrupted())


@pytest.mark.parametrize(
    "members",
    [
        ("g", "holds", "t", float("nan")),
        ("g", "holds", "t", float("inf")),
        ("g", "holds", "t", 10**400),
        ("g", "holds", "t", "1.0"),
        ("g", "holds", None, 1.0),
        (3, "holds", "t", 1.0),
        ("g", ["holds"], "t", 1.0),
    ],
)
def test_a_verdict_that_cannot_be_published_is_not_measured(members: Any) -> None:
    class Answering:
        @pytest.hookimpl
        def pytest_osmosis_gate(self) -> Verdict:
            return Verdict(*members)

    broken, sound = answers_to(Answering())

    assert (sound, broken.state) == (SOUND, "not measured")
    assert "must return a Verdict" in broken.text


def test_only_what_a_verdict_of_a_hook_says_is_kept() -> None:
    state: State = "fails"

    class Answering:
        @pytest.hookimpl
        def pytest_osmosis_gate(self) -> Verdict:
            return Verdict("g", state, "t", 1, compared=float("nan"))

    assert answers_to(Answering()) == [Verdict("g", state, "t", 1.0), SOUND]
