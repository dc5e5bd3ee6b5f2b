"""Test evals: the evals from which tests request rollouts, with `--osmosis-source=model`.

Tests over the same config share one eval run, and each run is rolled out once, however many tests request it. Only
requests of selected tests are rolled out. Such a test decides by itself whether it passes: gates do not apply.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from pytest_osmosis.addons.lab.rollout import RecordedScores, Rollout, RolloutResult
from pytest_osmosis.addons.lab.rollout_tests import (
    MarkerRequest,
    RolloutRequest,
)
from pytest_osmosis.config import Override
from pytest_osmosis.config.eval_kinds import merged
from pytest_osmosis.errors import DatasetError, Problem, ProblemsError
from pytest_osmosis.evals import EvalRun, Prepared, SelectedRuns, begin
from pytest_osmosis.formats.events import ROLLOUT
from pytest_osmosis.models.base import own_copy
from pytest_osmosis.plugin import options
from pytest_osmosis.plugin.eval_queue import SessionEval
from pytest_osmosis.plugin.header import compact_lines, eval_lines
from pytest_osmosis.plugin.items import UnitKey, eval_id
from pytest_osmosis.plugin.preparation import EvalPreparer, NamedEntry
from pytest_osmosis.plugin.reports import OutputPaths
from pytest_osmosis.plugin.session_options import rerun_command
from pytest_osmosis.record.manifest import TEST_EVAL
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import INFRASTRUCTURE
from pytest_osmosis.results.results import Results
from pytest_osmosis.text.chat_messages import prompt_length
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.verdicts.pass_rule import Outcome

if TYPE_CHECKING:
    from pytest_osmosis.plugin.session import EvalSession

ORIGIN = options.EVAL_MARKER_NAME
VERDICTS = ("osmosis.outcome", "osmosis.pass")
"""Properties that state the eval's judgement of a run, which tests over rollouts do not share."""

Tests = Mapping[RunId, Mapping[str, None]]
"""The node ids of the tests that request each run."""


class TestEval(SessionEval):
    """An eval from which tests request rollouts. `plans` are those of its markers."""

    reports_units = False

    def __init__(
        self, eval_id: str, prepared: Prepared, config: pytest.Config, tests: Tests, plans: Sequence[Plan]
    ) -> None:
        super().__init__(eval_id, prepared)
        self.tests = tests
        self._config = config
        self._plans = plans

    @property
    def runs(self) -> list[RunId]:
        return sorted(self.tests)

    @property
    def size(self) -> str:
        return f"{plural(len(self.runs), 'rollout')} of {plural(len({run.row for run in self.runs}), 'row')}"

    @property
    def used(self) -> str:
        return f"used by {plural(sum(map(len, self.tests.values())), 'test')}"

    @property
    def partial(self) -> bool:
        """True if tests that were collected but not selected request further runs."""
        return not {run for plan in self._plans for run in plan.runs()} <= self.tests.keys()

    def rerun(self, run: RunId) -> str:
        return rerun_command(self._config, next(iter(self.tests[run])), options.ASKS_MODELS)

    def decides(self, run: EvalRun) -> bool:
        """Return False: each test decides by itself."""
        return False

    def measured(self, results: Results) -> bool:
        """Return True if a test got a rollout to look at, or a failure that is the model's or the agent's."""
        return any(record.rolled and record.boundary not in INFRASTRUCTURE for record in results.records)

    def result(self, eval_run: EvalRun, run: RunId, outcome: Outcome) -> RolloutResult:
        record, dataset = eval_run.record(run), self.prepared.dataset
        if outcome.kind == "skipped":
            return RolloutResult(None, "skipped", outcome.reason)
        if record.boundary is not None:
            return RolloutResult(None, "error", outcome.text, sections=outcome.sections)
        try:
            row = dataset.row(run.row)
        except DatasetError as error:
            return RolloutResult(None, "error", str(error))
        messages = own_copy(list(eval_run.outcomes.conversations[run]))
        rollout = Rollout(
            run.row,
            run.index,
            source="model",
            messages=messages,
            ground_truth=row.ground_truth,
            row=row.record,
            scores=RecordedScores(
                eval_run.pass_rule.scorers,
                record.scores,
                record.scorer_errors,
                record.reasons,
                {name: dict(found) for name, found in record.metrics.items()},
            ),
            usage=None if record.usage is None else dict(record.usage),
            duration_s=record.duration_ms / 1000,
            finish_reason=record.finish_reason,
            n_prompt=prompt_length(row.messages, messages),
            metrics=dict(record.metrics.get(ROLLOUT, {})),
            info=own_copy(record.notes.to_json().get("fields", {}).get(ROLLOUT, {})),
        )
        properties = tuple(fact for fact in eval_run.properties([run]) if fact[0] not in VERDICTS)
        where = dataset.where(run.row, row.line)
        return RolloutResult(rollout, where=where, sections=outcome.sections, properties=properties)


class TestEvals:
    """The test evals of a session, by id once they are prepared: `configs/eval/x.toml::x-tests`.

    It answers each `ModelSource`, also those of workers of xdist, which ask from threads of their own.
    """

    def __init__(self, evals: EvalSession) -> None:
        self.by_id: dict[str, TestEval] = {}
        self._by_name: dict[NamedEntry, TestEval] = {}
        self._evals = evals
        self._plans: dict[MarkerRequest, Plan] = {}
        self._tests: dict[NamedEntry, dict[RunId, dict[str, None]]] = {}
        self._lock = threading.Lock()  # protects _plans and _tests

    def answer(self, question: str, value: Any) -> object:
        """Answer a question of a `ModelSource`."""
        match question:
            case "plan":
                return self._plan(value)
            case "select":
                self._select(value)
            case "rollout":
                return self._rollout(value)
        return None

    def _plan(self, request: MarkerRequest) -> Plan | tuple[Problem, ...]:
        """Return the plan of an eval, with the rows that the request selects, or its problems."""
        with self._lock:
            if request not in self._plans:
                listed = request.to_list(self._evals.options.overrides)
                try:
                    self._plans[request] = begin(listed, self._evals.preparer.around)().plan
                except ProblemsError as error:
                    return error.problems
            return self._plans[request]

    def _select(self, requests: Iterable[tuple[str, RolloutRequest]]) -> None:
        """Take the requests of selected tests, each with its node id."""
        with self._lock:
            for nodeid, request in requests:
                self._tests.setdefault(request.eval.named, {}).setdefault(request.run, {})[nodeid] = None

    def prepare(self) -> None:
        """Check every eval with a requested run. Raise `pytest.UsageError` with all problems. Idempotent."""
        if self.by_id or not self._tests:
            return
        config, preparer, names = self._evals.config, self._evals.preparer, list(self._tests)
        outputs, n_evals = OutputPaths(config, self._evals.options), len(self._evals.naming.evals) + len(names)
        problems: list[Problem] = []
        for named in names:
            plans = [plan for request, plan in self._plans.items() if request.named == named]
            try:
                prepared = preparer.resumed(_prepared_for_tests(preparer, named, plans), n_evals)
                prepared = outputs.with_output(prepared, n_evals)
                id = eval_id(config, prepared.plan)
            except ProblemsError as error:
                problems += [problem for problem in error.problems if problem not in problems]
                continue
            self.by_id[id] = self._by_name[named] = TestEval(id, prepared, config, self._tests[named], plans)
        evals = (*self._evals.named.values(), *self.by_id.values())
        problems += outputs.problems([each.prepared for each in evals])
        if problems:
            raise pytest.UsageError(*map(str, problems))

    def selected(self) -> dict[str, SelectedRuns]:
        """Return the runs that tests request, by the id of their eval."""
        evals = self.by_id.items()
        return {id: SelectedRuns.of(each.prepared, each.runs, partial=each.partial) for id, each in evals}

    def lines(self) -> list[str]:
        """Return the lines of these evals, with the number of tests that need each."""
        needed = list(self.by_id.values())
        if len(needed) > 1 and self._evals.config.get_verbosity() <= 0:
            rollouts = plural(sum(len(each.runs) for each in needed), "rollout")
            sizes = [(each.prepared, f"{each.size}, {each.used}") for each in needed]
            first = f"osmosis: tests need {rollouts} of {plural(len(needed), 'eval')}; gates are not evaluated"
            return [first, *compact_lines(sizes, self._evals, gated=False)]
        lines: list[str] = []
        for each in needed:
            lines += eval_lines(each.prepared, self._evals, each.size)
            lines.append(f"  {each.used}; gates are not evaluated")
        return lines

    def _rollout(self, request: RolloutRequest) -> RolloutResult:
        """Wait for the run; inline, perform it. With `--setup-only` there is none."""
        if self._evals.options.dry_run:
            return RolloutResult(None, "skipped", "--setup-only: no model is asked")
        each, run = self._by_name.get(request.eval.named), request.run
        if each is None or run not in each.tests or each.id not in self._evals.runs:
            return RolloutResult(None, "error", f"{run} was not rolled out: no test had requested it at collection")
        outcome = self._evals.answer(UnitKey(each.id, run)).outcome
        return each.result(self._evals.runs[each.id], run, outcome)


def _prepared_for_tests(preparer: EvalPreparer, named: NamedEntry, plans: Sequence[Plan]) -> Prepared:
    """Prepare the eval of a TOML for collected tests: with all rows of `plans`, under a name of its own.

    It has no gates and no baseline, and `max_errors` does not apply: each test reports its own error.
    """
    request = preparer.request(*named)
    spans = merged((span.first, span.first + span.n_rows - 1) for plan in plans for span in plan.spans)
    rows = ",".join(f"{first}-{last}" for first, last in spans)
    n = max(plan.n for plan in plans)
    union = [Override("data", "rows", rows, ORIGIN), Override("evaluation", "n", n, ORIGIN)]
    request = replace(request, overrides=[*request.overrides, *union], compared=False)
    prepared = begin(request, preparer.around)()
    config, plan = prepared.config, prepared.plan
    name = f"{config.name}{TEST_EVAL}"
    config = replace(
        config,
        name=name,
        gates=(),
        limits=replace(config.limits, max_errors=1.0),
        overridden=tuple(text for text in config.overridden if not text.endswith(f"({ORIGIN})")),
    )
    selection = plans[0].selection if len({plan.spans for plan in plans}) == 1 else plan.selection
    return replace(prepared, config=config, plan=replace(plan, name=name, selection=selection, granularity="run"))
