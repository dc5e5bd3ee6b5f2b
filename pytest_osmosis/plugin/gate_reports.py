"""Reports of tests that have no item: gates, limits and stops after the loop, and units whose worker died.

A gate that holds passes, a gate that does not hold fails, and a gate that could not be measured is an error. So JUnit,
the summary and the exit status agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest

from pytest_osmosis.evals import EvalRun, FinishedEval, error_text
from pytest_osmosis.plugin.items import Answer, amend, node_id, skip_at
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.report.verdict import finding_text, stop_text
from pytest_osmosis.results.conclude import CUT_SHORT, SYSTEMIC, all_gates_decided
from pytest_osmosis.text.names import listed, shown
from pytest_osmosis.text.numbers import count, plural
from pytest_osmosis.verdicts.gates import UNDECIDED, Verdict
from pytest_osmosis.verdicts.pass_rule import Kind


def report(session: pytest.Session, eval_id: str, finished: FinishedEval, *, gated: bool) -> None:
    try:
        findings = list(_findings(finished, gated=gated))
    except Exception as error:  # a defect of ours: other evals have their reports
        findings = [("gates", "error", f"its gates could not be reported: {error_text(error)}")]
    for title, kind, text in findings:
        send(session, eval_id, title, kind, text, finished.run.prepared.plan.path)


def _findings(finished: FinishedEval, *, gated: bool) -> Iterator[tuple[str, Kind, str]]:
    stopped, results = finished.run.engine.stopped, finished.results
    kind: Kind = "skipped" if all_gates_decided(results, gated) else "error"
    if stopped is not None and stopped.reason in (*SYSTEMIC, *CUT_SHORT):
        text = stop_text(stopped.reason, results.stopped or stopped.text)
        if stopped.reason in SYSTEMIC:
            yield "code" if finished.run.engine.has_refused_code else "probe", "error", text
        else:
            title = "stop" if stopped.reason == "requested" else f"limit {stopped.reason}"
            yield title, "error" if stopped.reason == "max_errors" else kind, text
    elif results.rescored is not None and results.stopped is not None:
        yield "rollouts", kind, results.stopped
    if not finished.run.selected.runs:
        yield "shard", "skipped", f"{finished.run.prepared.shard} has none of the selected rows"
    if gated and finished.results.n_unrecorded:  # else the runs are errors themselves
        yield "replay", "error", unrecorded_lines(finished)
    if finished.not_updated is not None:
        yield "baseline", "error", f"the baseline is not updated: {finished.not_updated}"
    for verdict in finished.results.verdicts:
        kind, text = _kind(verdict, gated), verdict.text
        if kind == "skipped":  # else pytest prints the name of the gate before the finding
            state = "not decided" if verdict.state in UNDECIDED else verdict.state
            text = f"gate {verdict.title}: {state}{finding_text(verdict)}"
        elif kind != "failed":
            text = f"{verdict.state}: {text}"
        yield f"gate {verdict.title}", kind, text
    if finished.unwritten:
        yield "results", "error", "\n".join([*finished.unwritten, journal_line(finished.run)])


def journal_line(run: EvalRun) -> str:
    return f"the journal {shown(run.directory.journal)} holds what ran"


def unrecorded_lines(finished: FinishedEval) -> str:
    """Return which runs of a replay asked something else, and what the first of them asked."""
    asked, selected = finished.run.outcomes.unrecorded, finished.run.selected.runs
    if not asked:
        return f"{plural(finished.results.n_unrecorded, 'rollout')} of the replay asked what was not recorded"
    first = min(asked)
    runs = f"{count(len(asked))} of {plural(len(selected), 'run')} asked what was not recorded"
    return f"{runs} ({listed(map(str, sorted(asked)), MOST_LISTED)})\n{first}: {asked[first]}"


MOST_LISTED = 3


def _kind(verdict: Verdict, gated: bool) -> Kind:
    if not gated or verdict.state in UNDECIDED:
        return "skipped"
    if verdict.state == "holds":
        return "passed"
    return "failed" if verdict.state == "fails" else "error"


def report_unit(
    session: pytest.Session, nodeid: str, plan: Plan, answer: Answer, begun: pytest.TestReport | None = None
) -> None:
    """Report the test of a unit in place of a worker that died. `begun` is the report that the worker began with."""
    first, teardown = _reports(nodeid, plan.path, answer.outcome.kind, answer.outcome.text)
    first.sections = [(f"Captured {title} call", content) for title, content in answer.outcome.sections]
    amend(first, plan, answer)
    for report in (first, teardown):
        if begun is not None:
            vars(report)["node"] = vars(begun)["node"]  # JUnit merges the reports that one worker makes of a test
        session.config.hook.pytest_runtest_logreport(report=report)


def send(session: pytest.Session, eval_id: str, title: str, kind: Kind, text: str, path: str = "") -> None:
    """Report a test that has no item in the way pytest reports any other."""
    session.testscollected += 1
    for report in _reports(node_id(eval_id, title), path or eval_id.rpartition("::")[0], kind, text):
        session.config.hook.pytest_runtest_logreport(report=report)


def _reports(nodeid: str, path: str, kind: Kind, text: str) -> tuple[pytest.TestReport, pytest.TestReport]:
    """Return the report of the phase that decided, and the one of the teardown."""
    file, _, name = nodeid.rpartition("::")
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
    """Return the `longrepr` of a failed report. pytest 8 shows no reason in its short summary if it is a string."""
    try:
        pytest.fail(text, pytrace=False)
    except pytest.fail.Exception as error:
        longrepr = pytest.ExceptionInfo.from_exception(error).getrepr(style="value")
    if (crash := longrepr.reprcrash) is not None:
        crash.path, crash.lineno, crash.message = path, 1, text.partition("\n")[0]
    return longrepr
