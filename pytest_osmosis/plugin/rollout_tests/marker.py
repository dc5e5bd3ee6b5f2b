"""Tests marked `osmosis_eval`: one for each row and run of an eval, each with its rollout.

The same test takes its rollouts from one of two sources: reference solutions, in any pytest run, and models, where the
command says `--osmosis-source=model` (`asking`). Node ids are the same.
"""

from __future__ import annotations

import copy
import os
import shlex
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import pytest
from _pytest.skipping import evaluate_skip_marks, evaluate_xfail_marks

from pytest_osmosis.datasets import SOLUTION
from pytest_osmosis.errors import ConfigError, DatasetError, Problem, ProblemsError
from pytest_osmosis.evals import prepare
from pytest_osmosis.plugin.command import options, session_options
from pytest_osmosis.plugin.items.node_ids import ungrouped
from pytest_osmosis.plugin.rollout_tests.request import EXAMPLE, Request, request_of
from pytest_osmosis.plugin.rollout_tests.rollout import Rollout
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.report.failure_text import conversation_lines
from pytest_osmosis.text.paths import shown

if TYPE_CHECKING:
    from pytest_osmosis.plugin.rollout_tests.references import References

FIXTURE = "rollout"


class Asked(NamedTuple):
    """What a test is parametrized with."""

    request: Request
    run: RunId


class Given(NamedTuple):
    """What a test gets: its rollout, or why it is skipped, or an error; and what its report shows beside.

    `text` is the reason, `where` the dataset line.
    """

    rollout: Rollout | None
    kind: Literal["rollout", "skipped", "error"] = "rollout"
    text: str = ""
    where: str = ""
    sections: tuple[tuple[str, str], ...] = ()
    properties: tuple[tuple[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, for a worker."""
        return {**self._asdict(), "rollout": self.rollout.to_json() if self.rollout is not None else None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Given:
        """What `to_json` gave."""
        pairs = {name: tuple((title, value) for title, value in data[name]) for name in ("sections", "properties")}
        rollout = Rollout.from_json(data["rollout"]) if data["rollout"] is not None else None
        return cls(**{**data, **pairs, "rollout": rollout})


class RolloutSource(Protocol):
    """Where rollouts come from."""

    def plan(self, request: Request) -> Plan:
        """Which rows and runs there is a test of. Raises `ProblemsError`, or `pytest.UsageError`."""
        ...

    def given(self, asked: Asked) -> Given:
        """What a test gets; waits for it."""
        ...


SOURCE = pytest.StashKey[RolloutSource]()
GIVEN = pytest.StashKey[Given]()


def source_of(config: pytest.Config) -> RolloutSource:
    """The session's source: reference solutions, unless the command asked for models."""
    if SOURCE not in config.stash:
        source = ReferenceSource(config)
        config.add_cleanup(source.close)
        config.stash[SOURCE] = source
    return config.stash[SOURCE]


# -- collection -------------------------------------------------------------------------------------------


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Make a test of every row and run. What is wrong with the marker is an error of collection, at the test's place.

    A marker of a class or module is about those of its tests that take a rollout.
    """
    path, line, _ = metafunc.definition.reportinfo()
    where = f"{shown(Path(path))}:{(line or 0) + 1}: {metafunc.function.__name__}"
    try:
        marker = _marker(metafunc, where)
        if marker is None:
            return
        request = request_of(marker.args, marker.kwargs, where, metafunc.definition.path, metafunc.config.rootpath)
        plan = source_of(metafunc.config).plan(request)
    except (ProblemsError, pytest.UsageError) as error:
        raise pytest.Collector.CollectError(_told(error, where)) from None
    runs = [RunId(row, run) for row, _ in plan.rows() for run in range(plan.n)]
    metafunc.parametrize(FIXTURE, [Asked(request, run) for run in runs], ids=list(map(str, runs)), indirect=True)


def _marker(metafunc: pytest.Metafunc, where: str) -> pytest.Mark | None:
    """The marker that counts, the nearest; None where it is another's and the test takes no rollout."""
    own = [mark for mark in metafunc.definition.own_markers if mark.name == options.EVAL_MARKER_NAME]
    if len(own) > 1:
        text = "osmosis_eval: stands there twice; a test takes one rollout, so give each eval a test of its own"
        raise ConfigError([Problem(where, text)])
    if FIXTURE not in metafunc.fixturenames:
        if own:
            raise ConfigError([Problem(where, f'osmosis_eval: the test takes no "{FIXTURE}": add the argument')])
        return None
    return metafunc.definition.get_closest_marker(options.EVAL_MARKER_NAME)


def _told(error: Exception, where: str) -> str:
    """Every problem in a line, and which test it is about."""
    lines = str(error) if isinstance(error, ProblemsError) else "\n".join(map(str, error.args))
    return lines if where in lines else f"{lines}\n(asked for by {where})"


def asked_by(item: pytest.Item) -> Asked | None:
    """What a test asks for, None where it asks for nothing or is marked so that it never runs."""
    callspec = getattr(item, "callspec", None)
    asked = callspec.params.get(FIXTURE) if callspec is not None else None
    return asked if isinstance(asked, Asked) and _may_run(item) else None


def all_asked(items: Iterable[pytest.Item]) -> Iterator[tuple[str, Asked]]:
    """What tests ask for, by node id."""
    for item in items:
        asked = asked_by(item)
        if asked is not None:
            yield item.nodeid, asked


def _may_run(item: pytest.Item) -> bool:
    """False for a test that skip, skipif or xfail(run=False) keeps from running, so that nothing is paid for it."""
    try:
        if evaluate_skip_marks(item) is not None:
            return False
        expected = None if item.config.option.runxfail else evaluate_xfail_marks(item)
    except (Exception, pytest.fail.Exception):  # a condition that breaks; pytest says so when the test's turn comes
        return False
    return expected is None or bool(expected.run)


# -- the fixture ------------------------------------------------------------------------------------------


def rollout_of(request: pytest.FixtureRequest) -> Rollout:
    """The rollout of a test. What kept it from being one is an error in setup, or a skip."""
    asked = getattr(request, "param", None)
    node: pytest.Item = request.node
    if not isinstance(asked, Asked):
        pytest.fail(f'the fixture "{FIXTURE}" needs a marker that says whose: @pytest.mark.{EXAMPLE}', pytrace=False)
    handed = node.stash[GIVEN] if GIVEN in node.stash else source_of(request.config).given(asked)
    for section in handed.sections:
        node.add_report_section("setup", *section)
    node.user_properties.extend(handed.properties)
    if handed.kind == "skipped":
        pytest.skip(handed.text)
    if handed.rollout is None:
        pytest.fail(handed.text, pytrace=False)
    lines = [*conversation_lines(handed.rollout.messages), f"dataset row: {handed.where}"]
    if handed.rollout.source == "model":
        lines.append(f"run it again: {rerun(request.config, node.nodeid)}")
    node.add_report_section("setup", "rollout", "\n".join(lines))
    messages, row = copy.deepcopy((handed.rollout.messages, handed.rollout.row))  # other tests get them too
    return replace(handed.rollout, messages=messages, row=row)


def rerun(config: pytest.Config, nodeid: str) -> str:
    """The command that asks the model again for a test, from the folder that this one was called in."""
    file, _, name = ungrouped(nodeid).partition("::")
    path = os.path.relpath(config.rootpath / file, config.invocation_params.dir)
    return shlex.join(["pytest", f"{path}::{name}", *session_options.typed(config), f"{options.SOURCE.flag}=model"])


class Ahead:
    """Waits for a test's rollout before the test begins: neither its duration nor its timeout holds the wait."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Around everything that others do with a test."""
        asked = asked_by(item)
        if asked is not None:
            item.stash[GIVEN] = source_of(item.config).given(asked)
        return (yield)


# -- reference solutions ----------------------------------------------------------------------------------


class ReferenceSource:
    """The reference solutions of the datasets, whatever model a TOML names."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._overrides = session_options.read(config, os.environ).overrides
        self._known: dict[tuple[Path, str], References] = {}

    def plan(self, request: Request) -> Plan:
        """The rows that the eval selects."""
        return self._references(request).prepared.plan

    def given(self, asked: Asked) -> Given:
        """The reference of the run's row. A row without one is a skip; where there is none at all, an error."""
        references = self._references(asked.request)
        where = references.where(asked.run)
        try:
            found = references.rollout(asked.run)
        except DatasetError as error:
            return Given(None, "error", str(error))
        if found is not None:
            return Given(found, where=where)
        text = f'{where}: the row has no reference solution (column "{SOLUTION}")'
        if references.holds_any:
            return Given(None, "skipped", text)
        fix = f"add one to rows whose solution is known, or ask the model with {options.SOURCE.flag}=model"
        return Given(None, "error", f"{text}, nor has any other that is selected; {fix}")

    def close(self) -> None:
        """Close what the functions left open."""
        for references in self._known.values():
            references.close()

    def _references(self, request: Request) -> References:
        from pytest_osmosis.plugin.rollout_tests.references import References

        if request.key not in self._known:
            overrides = [*request.overrides(), *self._overrides]
            prepared = prepare(request.path, overrides, environ=os.environ, listing=True, compared=False)
            self._known[request.key] = References(prepared, os.environ, session_options.pythonpath(self._config))
        return self._known[request.key]
