"""The marker `osmosis_eval` and the fixture `rollout`: a marked test becomes one test for each row and run.

The marker may select rows and runs as the command line does: `limit`, `offset`, `rows`, `n`. It takes precedence over
the TOML; the environment and the command line take precedence over the marker.

Rollouts come from a source: reference solutions in any pytest run, or models with `--osmosis-source=model`. Node ids do
not depend on it.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from pytest_osmosis.config import Override
from pytest_osmosis.config.eval_config import SELECTING
from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.errors import ConfigError, Problem, ProblemsError
from pytest_osmosis.evals import EvalRequest
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.plugin.command import options
from pytest_osmosis.plugin.command.session_options import rerun_command
from pytest_osmosis.plugin.items import may_run
from pytest_osmosis.plugin.rollout_tests.rollout import Rollout, RolloutResult
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.report.failure_text import conversation_lines
from pytest_osmosis.text.names import absolute, shown, suggestion

ARGUMENTS = {**SELECTING, "n": OPTIONS["n"]}
"""The marker's keyword arguments, and the key of the config that each sets."""
EXAMPLE = 'osmosis_eval("configs/eval/x.toml", limit=5)'


@dataclass(frozen=True, slots=True)
class MarkerRequest:
    """A marker's request for the eval in `path`. `arguments` are its keyword arguments as JSON, `where` its place.

    Requests for the same are equal, wherever they were made.

    The path of one of several evals ends with its name, as in "x.toml::gsm8k".
    """

    path: Path
    arguments: str
    where: str = field(compare=False)

    def overrides(self) -> list[Override]:
        """Return the settings that take precedence over the TOML."""
        arguments: Mapping[str, Any] = json.loads(self.arguments)
        return [
            Override(*ARGUMENTS[name], value, f"{self.where}: osmosis_eval({name}={value!r})", level="test")
            for name, value in arguments.items()
        ]

    def to_list(self, session: Iterable[Override]) -> EvalRequest:
        """Return what asks for its rows alone. `session` are the overrides of the command and its surroundings."""
        path, entry = file_and_entry(self.path)
        return EvalRequest(path, entry, [*self.overrides(), *session], listing=True, compared=False)


class RolloutRequest(NamedTuple):
    eval: MarkerRequest
    run: RunId


def file_and_entry(path: Path) -> tuple[Path, str | None]:
    """Return the file in the path of a request, and the name of the eval if the file has several.

    >>> file_and_entry(Path("configs/x.toml::gsm8k"))
    (PosixPath('configs/x.toml'), 'gsm8k')
    """
    file, colons, entry = str(path).rpartition(".toml::")
    return (Path(f"{file}.toml"), entry) if colons else (path, None)


def request_of(
    args: Sequence[object], kwargs: Mapping[str, object], where: str, file: Path, root: Path
) -> MarkerRequest:
    """Return the request of a marker with these arguments. `file` is the test file, `root` pytest's rootdir.

    A relative path is looked for in the folder of the test file, then in each folder above it, up to `root`.
    Raises `ConfigError` with every problem.
    """
    problems = []
    path = None
    if len(args) == 1 and isinstance(args[0], str | os.PathLike):
        named, entry = file_and_entry(Path(args[0]))
        test_file, top = absolute(file), absolute(root)
        above = [each for each in test_file.parents if each == top or top in each.parents] or [test_file.parent, top]
        path = next((place for each in above if something_at(place := absolute(each / named))), None)
        if path is None:
            looked = f"looked in {shown(file.parent)} and the folders above it up to {shown(root)}"
            problems.append(f'no file "{os.fspath(args[0])}"; {looked}')
        elif path.suffix != ".toml":
            problems.append(f'"{os.fspath(args[0])}" is not a TOML file; name the config of an eval, as in {EXAMPLE}')
        elif entry is not None:
            path = path.with_name(f"{path.name}::{entry}")
    else:
        problems.append(f"must name the config of one eval first, as in {EXAMPLE}")
    arguments = {}
    for name, value in kwargs.items():
        if name not in ARGUMENTS:
            hint = suggestion(name, ARGUMENTS, "{}=")
            problems.append(f"{name}=: unknown argument{hint} (valid: {', '.join(ARGUMENTS)})")
        elif not isinstance(value, int | float | str):
            problems.append(f"{name}=: must be a number or a string, got {value!r:.80}")
        else:
            arguments[name] = value
    if problems or path is None:
        raise ConfigError(Problem(where, f"osmosis_eval: {problem}") for problem in problems)
    return MarkerRequest(path, json.dumps(arguments, sort_keys=True), where)


FIXTURE = "rollout"
RESULT = pytest.StashKey[RolloutResult]()


class RolloutSource(Protocol):
    def plan(self, request: MarkerRequest) -> Plan:
        """Return the rows and runs to make tests of. Raise `ProblemsError` or `pytest.UsageError`."""
        ...

    def rollout(self, request: RolloutRequest) -> RolloutResult:
        """Return what a test gets; wait for it if necessary."""
        ...


SOURCE = pytest.StashKey[RolloutSource]()


def source_of(config: pytest.Config) -> RolloutSource:
    """Return the session's source: reference solutions, unless the controller or a worker has set another one."""
    if SOURCE not in config.stash:
        from pytest_osmosis.plugin.rollout_tests.references import ReferenceSource

        source = ReferenceSource(config)
        config.add_cleanup(source.close)
        config.stash[SOURCE] = source
    return config.stash[SOURCE]


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
        lines = str(error) if isinstance(error, ProblemsError) else "\n".join(map(str, error.args))
        requested = "" if where in lines else f"\n(requested by {where})"
        raise pytest.Collector.CollectError(lines + requested) from None
    runs = [RunId(row, run) for row, _ in plan.rows() for run in range(plan.n)]
    requests = [RolloutRequest(request, run) for run in runs]
    metafunc.parametrize(FIXTURE, requests, ids=list(map(str, runs)), indirect=True)


def _marker(metafunc: pytest.Metafunc, where: str) -> pytest.Mark | None:
    """Return the nearest marker, None if it is on a class or module and this test does not use the fixture."""
    own = [mark for mark in metafunc.definition.own_markers if mark.name == options.EVAL_MARKER_NAME]
    takes_it = FIXTURE in metafunc.fixturenames
    if len(own) > 1:
        text = "osmosis_eval: used twice on this test; a test takes one rollout, so write a test for each eval"
        raise ConfigError.at(where, text)
    if own and not takes_it:
        raise ConfigError.at(where, f'osmosis_eval: the test takes no "{FIXTURE}": add the argument')
    return metafunc.definition.get_closest_marker(options.EVAL_MARKER_NAME) if takes_it else None


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
        lines.append(f"run it again: {rerun_command(request.config, node.nodeid, options.ASKS_MODELS)}")
    node.add_report_section("setup", "rollout", "\n".join(lines))
    messages, row = copy.deepcopy((result.rollout.messages, result.rollout.row))  # other tests share them
    return replace(result.rollout, messages=messages, row=row)


class RolloutWait:
    """Waits for a test's rollout before the test begins, so that neither its duration nor its timeout includes that."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        request = requested_by(item)
        if request is not None:
            item.stash[RESULT] = source_of(item.config).rollout(request)
        return (yield)
