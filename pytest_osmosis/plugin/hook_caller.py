"""Calls of our hooks, plugin by plugin, so that one that raises does not affect the others."""

from __future__ import annotations

import inspect
import queue
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pluggy
import pytest

from pytest_osmosis.evals import EvalRun
from pytest_osmosis.models.base import own_copy
from pytest_osmosis.plugin.items import node_id
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.user_code import described, error_in_words, is_ours, number_of, user_traceback
from pytest_osmosis.verdicts.gates import Verdict
from pytest_osmosis.verdicts.pass_rule import kind_of

FINISHED, GATE, RESULTS = "pytest_osmosis_rollout_finished", "pytest_osmosis_gate", "pytest_osmosis_results"
STATES = ("holds", "fails", "not measured")


class HookError(NamedTuple):
    """The first exception of a plugin's hook for an eval: its last line, its traceback, and the number of them."""

    eval_id: str
    hook: str
    plugin: str
    line: str
    details: str
    times: int

    def __str__(self) -> str:
        often = f" ({self.times:,} times in all)" if self.times > 1 else ""
        return f"{self.hook} of {self.plugin} raised {self.line}{often}\n{self.details}"


class HookCaller:
    """Calls the hooks of one session, and keeps the errors that they raise.

    `want_rollouts` is True if a plugin implements the hook for finished rollouts. `finished` takes such runs and their
    conversations, from any thread, until `call_finished`.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.want_rollouts = bool(config.hook.pytest_osmosis_rollout_finished.get_hookimpls())
        self._config = config
        self.finished: queue.SimpleQueue[tuple[str, RunId, Sequence[Mapping[str, Any]]]] = queue.SimpleQueue()
        self._errors: dict[tuple[str, str, str], HookError] = {}

    def call_finished(self, runs: Mapping[str, EvalRun]) -> None:
        """Call the hook for every rollout that has finished since the last call."""
        while not self.finished.empty():
            eval_id, run, messages = self.finished.get()
            record, nodeid = runs[eval_id].record(run), node_id(eval_id, run)
            outcome = kind_of(record, runs[eval_id].pass_rule)
            self.call(FINISHED, eval_id, nodeid=nodeid, record=record, messages=messages, outcome=outcome)

    def take_errors(self) -> list[HookError]:
        """Return the errors since the last call, one for each eval, hook and plugin."""
        errors, self._errors = self._errors, {}
        return list(errors.values())

    def call(self, hook: str, eval_id: str, **arguments: object) -> list[Verdict]:
        """Call each plugin separately; return the verdicts of gates: one that raises is not measured."""
        verdicts: list[Verdict] = []
        is_gate = hook == GATE
        plugins = [each.plugin for each in getattr(self._config.hook, hook).get_hookimpls()]
        for plugin in reversed(plugins):
            others = [other for other in plugins if other is not plugin]
            call = self._config.pluginmanager.subset_hook_caller(hook, others)
            try:
                returned = call(config=self._config, eval_id=eval_id, **own_copy(arguments))
                for answer in returned:
                    _refuse_unexecuted(answer, may_yield=is_gate)
                for answer in returned if is_gate else ():
                    several = isinstance(answer, Iterable) and not isinstance(answer, str)
                    verdicts += list(map(_checked, answer if several else [answer]))
            except BaseException as error:  # also of `pytest.skip`, `pytest.exit` and `sys.exit`
                if issubclass(type(error), KeyboardInterrupt):
                    raise
                line = error_in_words(error).strip().splitlines()[-1]
                name = self._config.pluginmanager.get_name(plugin) or repr(plugin)
                name = shown(Path(name)) if name.endswith(".py") else name
                key = (eval_id, hook, name)
                first = self._errors.get(key) or HookError(*key, line, _users_traceback(error), times=0)
                self._errors[key] = first._replace(times=first.times + 1)
                if is_gate:
                    verdicts.append(Verdict(f"{GATE} of {name}", "not measured", f"raised {line}"))
        return verdicts


def _checked(verdict: object) -> Verdict:
    """Return a verdict that can be published. Raises TypeError for anything else."""
    if not isinstance(verdict, Verdict) or verdict.state not in STATES:
        got = described(verdict, 200)
        raise TypeError(f"must return a Verdict or several, each with a state of {STATES}, got {got}")
    if not (isinstance(verdict.title, str) and isinstance(verdict.text, str)):
        raise TypeError(f"must return a Verdict whose title and text are strings, got {described(verdict, 200)}")
    value = None if verdict.value is None else number_of(verdict.value, "must return a Verdict whose value is a")
    return Verdict(verdict.title, verdict.state, verdict.text, value)


def _refuse_unexecuted(answer: object, *, may_yield: bool) -> None:
    """Raise TypeError for the answer of a hook whose code has not run: nobody awaits or iterates it."""
    if inspect.iscoroutine(answer):
        answer.close()
    if inspect.isawaitable(answer) or inspect.isasyncgen(answer):
        raise TypeError("is async, and hooks are not awaited; define it with a plain def")
    if inspect.isgenerator(answer) and not may_yield:
        raise TypeError("contains yield, so calling it does nothing; remove the yield")


def _users_traceback(error: BaseException) -> str:
    try:
        whole = traceback.TracebackException.from_exception(error)
    except Exception:  # the error's own code gets in the way
        return user_traceback(error)
    pluggy_folder = str(Path(pluggy.__file__).parent)
    whole.stack = traceback.StackSummary.from_list(
        [step for step in whole.stack if not (is_ours(step.filename) or step.filename.startswith(pluggy_folder))]
    )
    return "".join(whole.format())
