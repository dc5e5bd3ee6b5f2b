"""The marker `osmosis_eval` and the fixture `rollout`: a marked test becomes one test for each row and run.

Node ids do not depend on the source of the rollouts (see `source`).
"""

from __future__ import annotations

import copy
import os
import shlex
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_osmosis.errors import ConfigError, ProblemsError
from pytest_osmosis.plugin.command import options, session_options
from pytest_osmosis.plugin.items import may_run, ungrouped
from pytest_osmosis.plugin.rollout_tests.request import EXAMPLE, RolloutRequest, request_of
from pytest_osmosis.plugin.rollout_tests.rollout import Rollout, RolloutResult
from pytest_osmosis.plugin.rollout_tests.source import source_of
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.report.failure_text import conversation_lines
from pytest_osmosis.text.names import shown

FIXTURE = "rollout"
RESULT = pytest.StashKey[RolloutResult]()


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Make a test of every row and run. A mistake in the marker is a collection error at the test's place.

    A marker on a class or module applies to those of its tests that use the fixture.
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
        raise pytest.Collector.CollectError(_error_text(error, where)) from None
    runs = [RunId(row, run) for row, _ in plan.rows() for run in range(plan.n)]
    requests = [RolloutRequest(request, run) for run in runs]
    metafunc.parametrize(FIXTURE, requests, ids=list(map(str, runs)), indirect=True)


def _marker(metafunc: pytest.Metafunc, where: str) -> pytest.Mark | None:
    """Return the nearest marker, None if it is on a class or module and this test does not use the fixture."""
    own = [mark for mark in metafunc.definition.own_markers if mark.name == options.EVAL_MARKER_NAME]
    if len(own) > 1:
        text = "osmosis_eval: used twice on this test; a test takes one rollout, so write a test for each eval"
        raise ConfigError.at(where, text)
    if FIXTURE not in metafunc.fixturenames:
        if own:
            raise ConfigError.at(where, f'osmosis_eval: the test takes no "{FIXTURE}": add the argument')
        return None
    return metafunc.definition.get_closest_marker(options.EVAL_MARKER_NAME)


def _error_text(error: Exception, where: str) -> str:
    """Return a line for each problem, and the test that made the request."""
    lines = str(error) if isinstance(error, ProblemsError) else "\n".join(map(str, error.args))
    return lines if where in lines else f"{lines}\n(requested by {where})"


def requested_by(item: pytest.Item) -> RolloutRequest | None:
    """Return the request of a test, None if it makes none or a marker keeps it from running."""
    callspec = getattr(item, "callspec", None)
    request = callspec.params.get(FIXTURE) if callspec is not None else None
    return request if isinstance(request, RolloutRequest) and may_run(item) else None


def all_requests(items: Iterable[pytest.Item]) -> Iterator[tuple[str, RolloutRequest]]:
    for item in items:
        request = requested_by(item)
        if request is not None:
            yield item.nodeid, request


def rollout_of(request: pytest.FixtureRequest) -> Rollout:
    """Return the rollout of a test. Fail or skip in setup if there is none."""
    param = getattr(request, "param", None)
    node: pytest.Item = request.node
    if not isinstance(param, RolloutRequest):
        pytest.fail(
            f'the fixture "{FIXTURE}" needs a marker that names the eval: @pytest.mark.{EXAMPLE}', pytrace=False
        )
    result = node.stash[RESULT] if RESULT in node.stash else source_of(request.config).rollout(param)
    for section in result.sections:
        node.add_report_section("setup", *section)
    node.user_properties.extend(result.properties)
    if result.kind == "skipped":
        pytest.skip(result.text)
    if result.rollout is None:
        pytest.fail(result.text, pytrace=False)
    lines = [*conversation_lines(result.rollout.messages), f"dataset row: {result.where}"]
    if result.rollout.source == "model":
        lines.append(f"run it again: {rerun_command(request.config, node.nodeid)}")
    node.add_report_section("setup", "rollout", "\n".join(lines))
    messages, row = copy.deepcopy((result.rollout.messages, result.rollout.row))  # other tests share them
    return replace(result.rollout, messages=messages, row=row)


def rerun_command(config: pytest.Config, nodeid: str) -> str:
    """Return the command that rolls out again for a test, for the folder in which pytest was called."""
    file, _, name = ungrouped(nodeid).partition("::")
    path = os.path.relpath(config.rootpath / file, config.invocation_params.dir)
    return shlex.join(["pytest", f"{path}::{name}", *session_options.typed(config), f"{options.SOURCE.flag}=model"])


class RolloutWait:
    """Waits for a test's rollout before the test begins, so that neither its duration nor its timeout includes that."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        request = requested_by(item)
        if request is not None:
            item.stash[RESULT] = source_of(item.config).rollout(request)
        return (yield)
