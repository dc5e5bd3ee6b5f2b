"""Evals that tests ask for, with `--osmosis-source=model`: which rollouts are needed, and handing them out.

Tests over the same config share one eval run, and each (row, run) is rolled out once, however many tests ask for it.
Only what selected tests ask for is rolled out. Whether such a test passes is its own affair: gates are left aside.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_osmosis.config import Override
from pytest_osmosis.config.selection import merged
from pytest_osmosis.errors import DatasetError, Problem, ProblemsError
from pytest_osmosis.evals import Prepared, output_problems, prepare
from pytest_osmosis.plugin.command import options, session_options
from pytest_osmosis.plugin.command.named_evals import NamedEvals
from pytest_osmosis.plugin.command.prepare_evals import EvalPreparer
from pytest_osmosis.plugin.items.node_ids import eval_id
from pytest_osmosis.plugin.rollout_tests.marker import Asked, Given, all_asked, rerun
from pytest_osmosis.plugin.rollout_tests.request import Request
from pytest_osmosis.plugin.rollout_tests.rollout import Recorded, Rollout
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import INFRASTRUCTURE
from pytest_osmosis.results.results import Results

if TYPE_CHECKING:
    from pytest_osmosis.plugin.session import EvalSession

SUFFIX = "-tests"
ORIGIN = options.EVAL_MARKER_NAME
VERDICTS = ("osmosis.outcome", "osmosis.pass")
"""Properties that say what the eval makes of a run, which is not what its tests make of it."""


class AskedEvals:
    """The evals that tests ask for, by id once they are prepared: `configs/eval/x.toml::x-tests`.

    Workers of xdist say what they need from threads of their own.
    """

    def __init__(self, config: pytest.Config, named: NamedEvals, options: session_options.SessionOptions) -> None:
        self.prepared: dict[str, Prepared] = {}
        self._config = config
        self._named = named
        self._options = options
        self._plans: dict[tuple[Path, str], Plan] = {}
        self._needs: dict[Path, dict[RunId, dict[str, None]]] = {}
        self._conversations: dict[tuple[str, RunId], Sequence[Mapping[str, Any]]] = {}
        self._lock = threading.Lock()  # protects _plans and _needs

    def __contains__(self, eval_id: str) -> bool:
        return eval_id in self.prepared

    # -- collection --------------------------------------------------------------------------------------

    def plan(self, request: Request) -> Plan:
        """The rows and runs that there is a test of. Raises `ProblemsError`."""
        with self._lock:
            if request.key not in self._plans:
                overrides = [*request.overrides(), *self._options.overrides]
                self._plans[request.key] = prepare(
                    request.path, overrides, environ=os.environ, listing=True, compared=False
                ).plan
            return self._plans[request.key]

    def need_of(self, items: Iterable[pytest.Item]) -> None:
        """These items were selected."""
        if self._named.source == "model":
            self.need((nodeid, asked.request.path, asked.run) for nodeid, asked in all_asked(items))

    def need(self, asked: Iterable[tuple[str, Path, RunId]]) -> None:
        """These tests were selected: by node id, the config and the run that each asks for."""
        with self._lock:
            for nodeid, path, run in asked:
                self._needs.setdefault(path, {}).setdefault(run, {})[nodeid] = None

    def prepare(self) -> Mapping[str, Prepared]:
        """Check what may start; `pytest.UsageError` with all problems. Later calls give the same."""
        if self.prepared or not self._needs:
            return self.prepared
        paths = list(self._needs)
        preparing = EvalPreparer(self._config, NamedEvals((*self._named.evals, *paths)), self._options)
        problems: list[Problem] = []
        for path in paths:
            try:
                prepared = preparing.with_output(self._for_tests(preparing, path))
                self.prepared[eval_id(self._config, prepared.plan)] = prepared
                problems += output_problems(prepared)
            except ProblemsError as error:
                problems += [problem for problem in error.problems if problem not in problems]
        if problems:
            raise pytest.UsageError(*map(str, problems))
        return self.prepared

    def _for_tests(self, preparing: EvalPreparer, path: Path) -> Prepared:
        """The eval in a TOML as collected tests ask for it: all their rows, under a name of its own.

        Without gate and baseline, and whatever `max_errors` says: each test reports its own error.
        """
        plans = [plan for (of, _), plan in self._plans.items() if of == path]
        prepared = preparing.prepared(path, _typed(plans), compared=False)
        config, plan = prepared.config, prepared.plan
        name = f"{config.name}{SUFFIX}"
        config = replace(
            config,
            name=name,
            gates=(),
            limits=replace(config.limits, max_errors=1.0),
            overridden=tuple(text for text in config.overridden if not text.endswith(f"({ORIGIN})")),
        )
        selection = plans[0].selection if len({plan.spans for plan in plans}) == 1 else plan.selection
        return replace(
            prepared,
            config=config,
            plan=replace(plan, name=name, selection=selection, granularity="run"),
        )

    # -- the run -----------------------------------------------------------------------------------------

    def runs(self, eval_id: str) -> list[RunId]:
        """What is to be rolled out."""
        return sorted(self._tests(eval_id))

    def partial(self, eval_id: str) -> bool:
        """True where collected tests ask for more than those that were selected."""
        path = self.prepared[eval_id].config.path
        planned = {run for (of, _), plan in self._plans.items() if of == path for run in plan.runs()}
        return not planned <= self._tests(eval_id).keys()

    def n_tests(self, eval_id: str) -> int:
        """How many tests wait for one."""
        return sum(map(len, self._tests(eval_id).values()))

    def _tests(self, eval_id: str) -> Mapping[RunId, Mapping[str, None]]:
        """The node ids of the tests that ask for each run."""
        return self._needs[self.prepared[eval_id].config.path]

    def rerun(self, eval_id: str) -> Callable[[RunId], str]:
        """The command that repeats the first test that asked for a run."""
        tests = self._tests(eval_id)
        return lambda run: rerun(self._config, next(iter(tests[run])))

    def keep(self, eval_id: str, run: RunId, conversation: Sequence[Mapping[str, Any]] | None) -> None:
        """Keep what was said in a run that is done. Called in the engine's thread, before anybody hears of it."""
        if conversation is not None:
            self._conversations[eval_id, run] = conversation

    def given(self, evals: EvalSession, path: Path, run: RunId) -> Given:
        """What a test gets of a run; waits until it is done, or, inline, does it."""
        key = next((key for key, prepared in self.prepared.items() if prepared.config.path == path), "")
        if run not in self._needs.get(path, ()) or key not in evals.runs:
            return Given(None, "error", f"{run} was not rolled out, as it was not asked for at collection")
        outcome = evals.done(key, run).outcome
        eval_run = evals.runs[key]
        record = eval_run.record(run)
        if outcome.kind == "skipped":
            return Given(None, "skipped", outcome.reason)
        if record.boundary is not None:
            return Given(None, "error", outcome.text, sections=outcome.sections)
        try:
            row = eval_run.prepared.dataset.row(run.row)
        except DatasetError as error:
            return Given(None, "error", str(error))
        rollout = Rollout(
            run.row,
            run.index,
            source="model",
            messages=[dict(message) for message in self._conversations[key, run]],
            ground_truth=row.ground_truth,
            row=row.record,
            scores=Recorded(eval_run.pass_rule.scorers, record.scores, record.scorer_errors),
            usage=None if record.usage is None else dict(record.usage),
            duration_s=record.duration_ms / 1000,
            finish_reason=record.finish_reason,
        )
        where = f"{eval_run.prepared.dataset.display}:{row.line}"
        facts = [fact for fact in eval_run.properties([run]) if fact[0] not in VERDICTS]
        return Given(
            rollout,
            where=where,
            sections=outcome.sections,
            properties=tuple(facts),
        )


def _typed(plans: Sequence[Plan]) -> list[Override]:
    """All that plans of one config hold, as the command line would say it."""
    spans = merged((span.first, span.first + span.n_rows - 1) for plan in plans for span in plan.spans)
    rows = ",".join(f"{first}-{last}" for first, last in spans)
    n = max(plan.n for plan in plans)
    return [Override("data", "rows", rows, ORIGIN), Override("evaluation", "n", n, ORIGIN)]


def measured_any(results: Results) -> bool:
    """Return True if a test got a rollout to look at, or a failure that is the model's or the agent's."""
    return any(record.rolled and record.boundary not in INFRASTRUCTURE for record in results.records)


class ModelSource:
    """Rollouts of models, in the process that owns the engines."""

    def __init__(self, evals: EvalSession) -> None:
        self._evals = evals

    def plan(self, request: Request) -> Plan:
        """The rows that the eval selects."""
        return self._evals.asked.plan(request)

    def given(self, asked: Asked) -> Given:
        """Wait for the run."""
        return self._evals.asked.given(self._evals, asked.request.path, asked.run)


# -- under xdist ------------------------------------------------------------------------------------------


def reply(evals: EvalSession, question: Mapping[str, Any]) -> dict[str, Any]:
    """What the controller answers a worker, in the words of `RemoteSource`."""
    match question["ask"]:
        case "plan":
            try:
                return {"plan": evals.asked.plan(Request.from_json(question["request"])).to_json()}
            except ProblemsError as error:
                return {"problems": [[problem.where, problem.text] for problem in error.problems]}
        case "need":
            evals.asked.need((nodeid, Path(path), RunId(*run)) for nodeid, path, run in question["tests"])
            return {}
        case _:
            return evals.asked.given(evals, Path(question["path"]), RunId(*question["run"])).to_json()


class RemoteSource:
    """Rollouts of models, in a worker of xdist: `ask` asks the controller, which owns the engines."""

    def __init__(self, ask: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        self._ask = ask

    def plan(self, request: Request) -> Plan:
        """The rows that the eval selects."""
        reply = self._ask({"ask": "plan", "request": request.to_json()})
        if "problems" in reply:
            raise ProblemsError(Problem(where, text) for where, text in reply["problems"])
        return Plan.from_json(reply["plan"])

    def given(self, asked: Asked) -> Given:
        """Wait for the run."""
        return Given.from_json(self._ask({"ask": "rollout", "path": str(asked.request.path), "run": asked.run}))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Say what this worker's tests need, before the controller hears that it has collected."""
        tests = [(nodeid, str(asked.request.path), asked.run) for nodeid, asked in all_asked(session.items)]
        self._ask({"ask": "need", "tests": tests})
