"""Stops, limits and gates as tests of their own, made after the loop, and what they mean for the exit status.

A gate that holds passes, one that does not fails, one that could not be measured is an error; so JUnit, the summary and
the exit status say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import pytest

from pytest_osmosis.evals import FinishedEval
from pytest_osmosis.plugin.hooks.call import HookError
from pytest_osmosis.plugin.items.item import Answer, skip_at
from pytest_osmosis.plugin.items.node_ids import eval_id_of, node_id
from pytest_osmosis.results.results import Results
from pytest_osmosis.text.paths import shown
from pytest_osmosis.verdicts.gates import State
from pytest_osmosis.verdicts.pass_rule import Kind

SYSTEMIC = ("systemic", "journal")
LIMITS = ("max_errors", "max_tokens", "max_cost_usd", "max_duration_s")
STRONGER = (2, 3, 4)
"""Exit statuses that "not measured" never replaces: interrupted, internal error, usage error."""


def report(session: pytest.Session, eval_id: str, finished: FinishedEval, *, gated: bool) -> None:
    """Report all that became of one eval as a whole."""
    for title, kind, text in _findings(finished, gated=gated):
        _send(session, node_id(eval_id, title), finished.run.prepared.plan.path, kind, text)


def _findings(finished: FinishedEval, *, gated: bool) -> Iterator[tuple[str, Kind, str]]:
    stopped = finished.run.stopped
    if stopped is not None and stopped.reason in SYSTEMIC:
        yield "probe", "error", f"stopped: {stopped.text}"
    if stopped is not None and stopped.reason in LIMITS:
        kind: Kind = "skipped" if stopped.reason != "max_errors" and _decided(finished, gated) else "error"
        yield f"limit {stopped.reason}", kind, f"stopped: {stopped.text}"
    if finished.not_updated is not None:
        yield "baseline", "error", f"the baseline is not updated: {finished.not_updated}"
    for verdict in finished.results.verdicts:
        text = f"gate {verdict.title}: {verdict.state}: {verdict.text}"
        yield f"gate {verdict.title}", _kind(verdict.state, gated), text
    if finished.unwritten:
        journal = shown(finished.run.directory.journal)
        yield "results", "error", "\n".join([*finished.unwritten, f"the journal {journal} holds what ran"])


def report_hook_errors(session: pytest.Session, errors: Iterable[HookError]) -> None:
    """Report what hooks of ours raised in others' plugins."""
    for error in errors:
        file = error.eval_id.partition("::")[0]
        _send(session, node_id(error.eval_id, f"hook {error.hook}"), file, "error", str(error))


def not_measured(finished: FinishedEval, *, gated: bool, measured: bool | None = None) -> bool:
    """True where this eval gives no verdict: nothing measured, stopped by its cause, a gate between its bounds.

    `measured` says whether anything was, where that is not for its functions to say.
    False where `--maxfail` ended it: that has an exit status of its own.
    """
    stopped = finished.run.stopped
    if stopped is not None and stopped.reason == "maxfail":
        return False
    return (
        _nothing_measured(finished.results, measured)
        or (stopped is not None and stopped.reason in (*SYSTEMIC, "max_errors"))
        or (stopped is not None and stopped.reason in LIMITS and not _decided(finished, gated))
        or (gated and any(verdict.state == "not measured" for verdict in finished.results.verdicts))
    )


def _nothing_measured(results: Results, measured: bool | None) -> bool:
    """True where no run is an answer; of the baseline's runs alone where nothing else was selected."""
    if measured is not None:
        return not measured
    if results.records or results.side is None:
        return results.measured == 0
    return not any(map(results.judging.measured, results.side.records))


def _decided(finished: FinishedEval, gated: bool) -> bool:
    """True where every gate of the config has its verdict, whatever the missing runs would have been."""
    states = [verdict.state for verdict in finished.results.verdicts if verdict.rule is not None]
    return gated and bool(states) and all(state != "not measured" for state in states)


def may_replace(status: int) -> bool:
    """True where "not measured" is the stronger exit status."""
    return status not in STRONGER


def _kind(state: State, gated: bool) -> Kind:
    if not gated or state in ("partial", "not decided"):
        return "skipped"
    if state == "holds":
        return "passed"
    return "failed" if state == "fails" else "error"


def report_run(
    session: pytest.Session, nodeid: str, path: str, answer: Answer, begun: pytest.TestReport | None = None
) -> None:
    """Report the test of a run that nobody else will; `begun` is what was reported of it."""
    outcome = answer.outcome
    text = outcome.reason if outcome.kind == "skipped" else outcome.text
    first, teardown = _reports(nodeid, path, outcome.kind, text)
    first.duration = outcome.duration_s
    first.sections = [(f"Captured {title} call", said) for title, said in outcome.sections]
    if first.failed and answer.gated:
        first.outcome = "skipped"
        first.wasxfail = outcome.reason
    for report in (first, teardown):
        if begun is not None:
            vars(report)["node"] = vars(begun)["node"]  # JUnit puts together what one worker said of a test
        session.config.hook.pytest_runtest_logreport(report=report)


def report_crash(session: pytest.Session, nodeid: str, text: str) -> None:
    """Report that workers died until xdist gave up on them: other tests than ours may not have run."""
    file = nodeid.partition("::")[0]
    _send(session, node_id(eval_id_of(nodeid), "workers"), file, "error", f"a worker died at {nodeid}; {text}")


def _send(session: pytest.Session, nodeid: str, path: str, kind: Kind, text: str) -> None:
    """Report a test that has no item, as pytest reports any other."""
    session.testscollected += 1
    for report in _reports(nodeid, path, kind, text):
        session.config.hook.pytest_runtest_logreport(report=report)


def _reports(nodeid: str, path: str, kind: Kind, text: str) -> tuple[pytest.TestReport, pytest.TestReport]:
    """How a test went, and its teardown."""
    file, _, name = nodeid.partition("::")
    when: Literal["setup", "call"] = "setup" if kind in ("error", "skipped") else "call"
    outcome: Literal["passed", "failed", "skipped"] = "failed" if kind == "error" else kind
    longrepr: Any = None
    if kind != "passed":
        longrepr = skip_at(path, text) if kind == "skipped" else _failed_at(path, text)
    keywords: dict[str, Literal[1]] = {"osmosis": 1}
    location = (file, None, name)
    return (
        pytest.TestReport(nodeid, location, keywords, outcome, longrepr, when),
        pytest.TestReport(nodeid, location, keywords, "passed", None, "teardown"),
    )


def _failed_at(path: str, text: str) -> object:
    """A failed report's `longrepr`; of one that is a string older pytests show no reason in their short summary."""
    try:
        pytest.fail(text, pytrace=False)
    except pytest.fail.Exception as error:
        longrepr = pytest.ExceptionInfo.from_exception(error).getrepr(style="value")
    if (crash := longrepr.reprcrash) is not None:
        crash.path, crash.lineno, crash.message = path, 1, text.partition("\n")[0]
    return longrepr
