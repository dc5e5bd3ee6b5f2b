"""The marker `osmosis_eval` and the fixture `rollout`: a marked test becomes one test for each row and run.

The marker may select rows and runs as the command line does: `limit`, `offset`, `rows`, `n`. It takes precedence over
the TOML; the environment and the command line take precedence over the marker.

Rollouts come from a source: reference solutions in any pytest run, or models with `--osmosis-source=model`. Node ids do
not depend on it. A row's reference is its column `solution_str`: no model is asked, and nothing is paid. The eval's own
functions score it in this process, as in any unit test, when a test looks the score up.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pytest

from pytest_osmosis.addons.lab.rollout import Rollout, RolloutResult, Scores
from pytest_osmosis.config import Override
from pytest_osmosis.config.eval_config import SELECTING
from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.datasets import SOLUTION, Row
from pytest_osmosis.errors import ConfigError, DatasetError, Problem, ProblemsError, ScoreError
from pytest_osmosis.evals import EvalRequest, Prepared, RunSettings, Surroundings, begin, host_setup, worktree_of
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.host.protocol import Key, Setup, scoring_fields
from pytest_osmosis.models.base import Message, own_copy
from pytest_osmosis.plugin import options, session_options
from pytest_osmosis.plugin.items import may_run
from pytest_osmosis.plugin.preparation import NamedEntry
from pytest_osmosis.plugin.session_options import environments_of, rerun_command
from pytest_osmosis.plugin.session_sanitizer import sanitizer_of
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.report.failure_text import conversation_lines
from pytest_osmosis.rewards.graders import Reward
from pytest_osmosis.text.names import absolute, shown, suggestion
from pytest_osmosis.text.user_code import is_ours, is_python, to_raise

if TYPE_CHECKING:
    from pytest_osmosis.engine.inline_host import InlineHost

T = TypeVar("T")
ARGUMENTS = {**SELECTING, "n": OPTIONS["n"]}
"""The marker's keyword arguments, and the key of the config that each sets."""
EXAMPLE = 'osmosis_eval("configs/eval/x.toml", limit=5)'


@dataclass(frozen=True, slots=True)
class MarkerRequest:
    """A marker's request for the eval in `path`, or for that `entry` of several.

    `arguments` are its keyword arguments as JSON, `where` its place. Requests for the same are equal, wherever they
    were made.
    """

    path: Path
    entry: str | None
    arguments: str
    where: str = field(compare=False)

    @property
    def named(self) -> NamedEntry:
        return NamedEntry(self.path, self.entry)

    def overrides(self) -> list[Override]:
        """Return the settings that take precedence over the TOML."""
        arguments: Mapping[str, Any] = json.loads(self.arguments)
        return [
            Override(*ARGUMENTS[name], value, f"{self.where}: osmosis_eval({name}={value!r})", level="test")
            for name, value in arguments.items()
        ]

    def to_list(self, session: Iterable[Override]) -> EvalRequest:
        """Return what asks for its rows alone. `session` are the overrides of the command and its surroundings."""
        return EvalRequest(*self.named, [*self.overrides(), *session], listing=True, compared=False)


class RolloutRequest(NamedTuple):
    eval: MarkerRequest
    run: RunId


def request_of(
    args: Sequence[object], kwargs: Mapping[str, object], where: str, file: Path, root: Path
) -> MarkerRequest:
    """Return the request of a marker with these arguments. `file` is the test file, `root` pytest's rootdir.

    A relative path is looked for in the folder of the test file, then in each folder above it, up to `root`.
    Raises `ConfigError` with every problem.
    """
    problems = []
    path = entry = None
    if len(args) == 1 and isinstance(args[0], str | os.PathLike):
        file_name, colons, name = os.fspath(args[0]).rpartition(".toml::")
        named, entry = (f"{file_name}.toml", name) if colons else (args[0], None)
        test_file, top = absolute(file), absolute(root)
        above = [each for each in test_file.parents if each == top or top in each.parents] or [test_file.parent, top]
        path = next((place for each in above if something_at(place := absolute(each / named))), None)
        if path is None:
            looked = f"looked in {shown(file.parent)} and the folders above it up to {shown(root)}"
            problems.append(f'no file "{os.fspath(args[0])}"; {looked}')
        elif path.suffix != ".toml":
            problems.append(f'"{os.fspath(args[0])}" is not a TOML file; name the config of an eval, as in {EXAMPLE}')
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
    return MarkerRequest(path, entry, json.dumps(arguments, sort_keys=True), where)


FIXTURE = "rollout"
RESULT = pytest.StashKey[RolloutResult]()


SOURCE = pytest.StashKey["ModelSource | ReferenceSource"]()
"""The source that plans requests and gives each test its rollout, for which it may wait."""


def source_of(config: pytest.Config) -> ModelSource | ReferenceSource:
    """Return the session's source: reference solutions, unless a `ModelSource` has been made."""
    if SOURCE not in config.stash:
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


def _requested_by(item: pytest.Item) -> RolloutRequest | None:
    """Return the request of a test, None if it makes none or a marker keeps it from running."""
    callspec = getattr(item, "callspec", None)
    request = callspec.params.get(FIXTURE) if callspec is not None else None
    return request if isinstance(request, RolloutRequest) and may_run(item) else None


def _all_requests(items: Iterable[pytest.Item]) -> Iterator[tuple[str, RolloutRequest]]:
    for item in items:
        request = _requested_by(item)
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


class ModelSource:
    """The models' rollouts for the tests of a process, which `ask` requests from the session's `TestEvals`.

    `early`: it waits for a test's rollout before the test begins, so that neither its duration nor its timeout includes
    that.
    """

    def __init__(self, config: pytest.Config, ask: Callable[[str, object], Any], *, early: bool = True) -> None:
        self._ask = ask
        self._early = early
        config.stash[SOURCE] = self

    def plan(self, request: MarkerRequest) -> Plan:
        plan = self._ask("plan", request)
        if isinstance(plan, Plan):
            return plan
        raise ProblemsError(plan)

    def rollout(self, request: RolloutRequest) -> RolloutResult:
        result: RolloutResult = self._ask("rollout", request)
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Say what tests request, before the controller learns the rest."""
        self._ask("select", list(_all_requests(session.items)))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        request = _requested_by(item) if self._early else None
        if request is not None:
            item.stash[RESULT] = source_of(item.config).rollout(request)
        return (yield)


# -- reference solutions ------------------------------------------------------------------------------------


class ReferenceSource:
    """The reference solutions of datasets, whatever model a TOML names."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._overrides = session_options.read(config, os.environ).overrides
        self._around = Surroundings(os.environ, sanitizer=sanitizer_of(config), environments=environments_of(config))
        self._evals: dict[MarkerRequest, ReferenceSolutions] = {}

    def plan(self, request: MarkerRequest) -> Plan:
        return self._solutions(request).prepared.plan

    def rollout(self, request: RolloutRequest) -> RolloutResult:
        """Return the reference of the run's row. Skip a row without one; it is an error if no row has one."""
        solutions = self._solutions(request.eval)
        where = solutions.where(request.run)
        text = f'{where}: the row has no reference solution (column "{SOLUTION}")'
        try:
            if (rollout := solutions.rollout(request.run)) is not None:
                return RolloutResult(rollout, where=where)
        except DatasetError as error:
            return RolloutResult(None, "error", str(error))
        if solutions.exist:
            return RolloutResult(None, "skipped", text)
        fix = f"add one to rows whose solution is known, or ask the model with {options.ASKS_MODELS}"
        return RolloutResult(None, "error", f"{text}, and no other selected row has one; {fix}")

    def close(self) -> None:
        for solutions in self._evals.values():
            solutions.close()

    def _solutions(self, request: MarkerRequest) -> ReferenceSolutions:
        if request not in self._evals:
            prepared = begin(request.to_list(self._overrides), self._around)()
            pythonpath, sdk_shim = session_options.pythonpath(self._config), options.stands_in(self._config)
            self._evals[request] = ReferenceSolutions(prepared, os.environ, pythonpath, sdk_shim=sdk_shim)
        return self._evals[request]


class ReferenceSolutions:
    """The reference solutions of an eval's rows. The functions that score them are loaded when they are needed."""

    def __init__(
        self, prepared: Prepared, environ: Mapping[str, str], pythonpath: Sequence[str], *, sdk_shim: bool = True
    ) -> None:
        self.prepared = prepared
        self._environ = {**environ, **prepared.config.env}
        self._settings = RunSettings(self._environ, pythonpath, sdk_shim=sdk_shim)
        self._until_closed = ExitStack()

    def rollout(self, run: RunId) -> Rollout | None:
        """Return the reference solution of a row as a rollout, None if the row has none."""
        row = self.prepared.dataset.row(run.row)
        solution = row.solution
        if solution is None:
            return None
        messages = [*row.messages, {"role": "assistant", "content": solution}]
        scores = Scores(self._scorer_names, functools.partial(self._score, run, row, messages))
        copy, truth, record = map(own_copy, (messages, row.ground_truth, row.record))
        return Rollout(run.row, run.index, "reference", copy, truth, record, scores, n_prompt=len(row.messages))

    def where(self, run: RunId) -> str:
        return self.prepared.dataset.where(run.row, self.prepared.dataset.line(run.row))

    @functools.cached_property
    def exist(self) -> bool:
        dataset = self.prepared.dataset
        with dataset.open() as file:
            return any(dataset.read(file, index).solution is not None for index, _ in self.prepared.plan.rows())

    @functools.cached_property
    def _host(self) -> InlineHost:
        from pytest_osmosis.engine.inline_host import InlineHost, Loop

        loop = Loop()
        host = InlineHost(loop, nullcontext, (KeyboardInterrupt,))
        self._until_closed.callback(loop.close)
        self._until_closed.callback(host.close)
        return host

    @functools.cached_property
    def _setup(self) -> Setup:
        """The setup of a host, with a folder in which a Grader may leave files."""
        artifacts = Path(self._until_closed.enter_context(tempfile.TemporaryDirectory(prefix="osmosis-")))
        self._until_closed.callback(self._settings.worktrees.close)
        worktree = worktree_of(self.prepared, self._settings.worktrees)
        return host_setup(self.prepared, self._settings, artifacts, worktree)

    def _scorer_names(self) -> Sequence[str]:
        """Return the names of the functions, in the order of the results. Raise `CodeError` if they do not load."""
        setup = self._setup  # before the host, which ends first: it returns to the folder of its code
        return self._host.borrow(setup, self._environ).scorers

    def _score(self, run: RunId, row: Row, messages: list[Message], name: str) -> Reward:
        """Return the reward that a function gives to a conversation, or raise what the function raises."""
        __tracebackhide__ = True
        self._scorer_names()
        rollout = {"messages": messages, "n_prompt": len(row.messages)}
        recorded = scoring_fields(Key(run, attempt=1), rollout, row.ground_truth, row.record)
        try:
            reward = _outside_any_loop(lambda: self._host.replay(recorded, name))
        except Exception as error:
            shown = to_raise(error)
            trace = shown.__traceback__  # shown from the user's first frame on, or whole without one
            while trace is not None and (is_ours(file := trace.tb_frame.f_code.co_filename) or is_python(file)):
                trace = trace.tb_next
            raise shown.with_traceback(trace or shown.__traceback__)  # noqa: B904 (mostly the same error)
        if reward.score is None:
            raise ScoreError(f"{name} removed the reference solution (remove_sample)")
        return reward

    def close(self) -> None:
        self._until_closed.close()


def _outside_any_loop(work: Callable[[], T]) -> T:
    """Call `work`, which runs an event loop. A test that is a coroutine runs in one already, so use a thread there."""
    import asyncio

    # Private in asyncio, documented for event loops. get_running_loop would raise, which debuggers and --pdb show.
    if asyncio._get_running_loop() is None:
        return work()
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, "osmosis-scores") as executor:
        return executor.submit(work).result()
