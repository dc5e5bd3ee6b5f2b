"""Rollouts of models, with `--osmosis-source=model`: in the process that owns the engines, and in workers of xdist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_osmosis.errors import Problem, ProblemsError
from pytest_osmosis.formats.codec import decode, encode
from pytest_osmosis.plugin.items import UnitKey
from pytest_osmosis.plugin.rollout_tests.marker import all_requests
from pytest_osmosis.plugin.rollout_tests.request import MarkerRequest, RolloutRequest
from pytest_osmosis.plugin.rollout_tests.rollout import RolloutResult
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import RunId

if TYPE_CHECKING:
    from pytest_osmosis.plugin.session import EvalSession


class ModelSource:
    def __init__(self, evals: EvalSession) -> None:
        self._evals = evals

    def plan(self, request: MarkerRequest) -> Plan:
        return self._evals.test_evals.plan(request)

    def rollout(self, request: RolloutRequest) -> RolloutResult:
        """Wait for the run; inline, perform it. With `--setup-only` there is none."""
        if self._evals.options.dry_run:
            return RolloutResult(None, "skipped", "--setup-only: no model is asked")
        return _rollout(self._evals, request.eval.path, request.run)


def _rollout(evals: EvalSession, path: Path, run: RunId) -> RolloutResult:
    test_eval = evals.test_evals.requested(path, run)
    if test_eval is None or test_eval.id not in evals.runs:
        return RolloutResult(None, "error", f"{run} was not rolled out: no test had requested it at collection")
    outcome = evals.answer(UnitKey(test_eval.id, run)).outcome
    return test_eval.result(evals.runs[test_eval.id], run, outcome)


def reply(evals: EvalSession, question: Mapping[str, Any]) -> dict[str, Any]:
    match question["ask"]:
        case "plan":
            try:
                return {"plan": encode(evals.test_evals.plan(MarkerRequest.from_json(question["request"])))}
            except ProblemsError as error:
                return {"problems": [[problem.where, problem.text] for problem in error.problems]}
        case "select":
            evals.test_evals.select((nodeid, Path(path), RunId(*run)) for nodeid, path, run in question["tests"])
            return {}
        case _:
            return _rollout(evals, Path(question["path"]), RunId(*question["run"])).to_json()


class RemoteSource:
    """Rollouts of models, in a worker of xdist. `ask` sends a question to the controller, which owns the engines."""

    def __init__(self, ask: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        self._ask = ask

    def plan(self, request: MarkerRequest) -> Plan:
        reply = self._ask({"ask": "plan", "request": request.to_json()})
        if "problems" in reply:
            raise ProblemsError(Problem(where, text) for where, text in reply["problems"])
        return decode(reply["plan"], Plan)

    def rollout(self, request: RolloutRequest) -> RolloutResult:
        question = {"ask": "rollout", "path": str(request.eval.path), "run": request.run}
        return RolloutResult.from_json(self._ask(question))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Send the requests of this worker's tests, before the controller learns that the worker has collected."""
        tests = [(nodeid, str(request.eval.path), request.run) for nodeid, request in all_requests(session.items)]
        self._ask({"ask": "select", "tests": tests})
