"""The end of a session: gates become tests, results are written, the exit status and pytest's cache are set.

Exit status 9 says that an eval was not measured, so that neither 0 nor 1 would be true.

A gate that holds passes, a gate that does not hold fails, and a gate that could not be measured is an error. So JUnit,
the summary and the exit status agree. Such tests have no item, and neither have units whose worker died.
"""

from __future__ import annotations

import inspect
import queue
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pluggy
import pytest

from pytest_osmosis.evals import EvalRun, FinishedEval, comparison_path, error_text, write_comparison
from pytest_osmosis.models.base import own_copy
from pytest_osmosis.plugin.items import Answer, amend, eval_id_of, node_id, skip_at, unit_key
from pytest_osmosis.plugin.reports import HtmlReports, append_to_job_page, write_html, write_markdown
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.report.summary import finding_text, stop_text
from pytest_osmosis.results.conclude import CUT_SHORT, SYSTEMIC, all_gates_decided, is_not_measured
from pytest_osmosis.text.names import listed, shown
from pytest_osmosis.text.numbers import count, plural
from pytest_osmosis.text.user_code import described, error_in_words, is_ours, number_of, user_traceback
from pytest_osmosis.verdicts.gates import UNDECIDED, Verdict
from pytest_osmosis.verdicts.pass_rule import Kind, kind_of

if TYPE_CHECKING:
    from pytest_osmosis.plugin.session import EvalSession


STRONGER = (2, 3, 4)
"""Exit statuses that "not measured" never replaces: interrupted, internal error, usage error."""
MAX_FAILED = 2000
MOST_LISTED = 3
PROBE = "probe"
LAST_FAILED = "cache/lastfailed"
NODE_IDS = "cache/nodeids"


class SessionEnd:
    """Concludes the evals of a session. Each step may be skipped or repeated: pytest may end at any point.

    `comparisons` are the files with the tables of configs with several evals, `html` the HTML reports. `reported` are
    the evals of which a test was reported as anything but skipped. `status_is_given` is True if `pytest.exit` set the
    exit status.
    """

    def __init__(self, evals: EvalSession) -> None:
        self._evals = evals
        self._queue = evals.queue
        self.failed_tests = FailedTests(evals)
        self.reported: set[str] = set()
        self.unreported: list[str] = []
        self._markdown_is_written = False
        self.comparisons: list[Path] = []
        self.html = HtmlReports([], [])
        self.status_is_given = False

    def report_verdicts(self, session: pytest.Session) -> None:
        """Report gates, limits and stops as tests of their own, and write the results."""
        self._queue.close()
        self._evals.hook_caller.call_finished(self._queue.runs)
        for eval_id, finished in self._queue.finished.items():
            if not finished.results.partial and self._evals.by_id[eval_id].reports_units:
                finished.add_verdicts(self._evals.hook_caller.call(GATE, eval_id, results=finished.results))
        self._write_results()
        stopped: dict[str, str] = {}
        for eval_id, finished in self._queue.finished.items():
            name = finished.results.description.name
            try:
                findings = list(_findings(finished, gated=self._evals.by_id[eval_id].decides(finished.run)))
            except Exception as error:  # a defect of ours: other evals have their reports
                findings = [("gates", "error", f"its gates could not be reported: {error_text(error)}")]
            for title, kind, text in findings:
                first = stopped.setdefault(text, name) if title == PROBE else name
                said = text if first == name else f"stopped for the same reason as {first}"
                send(session, eval_id, title, kind, said, finished.run.prepared.plan.path)
        for eval_id, failure in self._queue.failures.items():
            run = self._queue.runs[eval_id]
            text = f"no results: {error_text(failure)}\n{journal_line(run)}"
            send(session, eval_id, "results", "error", text, run.prepared.plan.path)
        for eval_id, not_loaded in self._evals.not_loaded.items():
            if not session.config.option.collectonly:
                text = "\n".join(problem.text for problem in not_loaded.problems)
                send(session, eval_id, "environment", "error", f"not measured: {text}")
        for failed in self._evals.hook_caller.take_errors():
            send(session, failed.eval_id, f"hook {failed.hook}", "error", str(failed))
        if unwritten := self._write_pages():
            send(session, list(self._queue.finished)[-1], "markdown", "error", unwritten)

    def finish(self, session: pytest.Session) -> None:
        """Write the results that are not written yet, and set the exit status. Keep nothing if no eval started."""
        if not any(run.began for run in self._queue.runs.values()):
            self._queue.discard()
        self._queue.close()
        if self._evals.options.smoke is not None:
            self.failed_tests.remember()
        self._evals.hook_caller.call_finished(self._queue.runs)
        self._write_results()
        self._write_pages()
        if self.status_is_given:
            return
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            for eval_id, selected in self._evals.selected.items():
                each, run = self._evals.by_id[eval_id], self._queue.runs.get(eval_id)
                decided = run is not None and each.gated(run)
                if each.reports_units and selected.runs and eval_id not in self.reported and not decided:
                    self.unreported.append(eval_id)  # a plugin or a conftest.py kept its tests from pytest
        if self._queue.failures and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if (
            self.skipped_whole
            or self.unreported
            or self._evals.not_loaded
            or any(self._not_measured(*each) for each in self._queue.finished.items())
        ) and session.exitstatus not in STRONGER:
            session.exitstatus = self._evals.options.not_measured_exit

    @property
    def skipped_whole(self) -> Mapping[str, int]:
        """The number of selected tests of each eval of which marks keep every one from running."""
        return Counter(key.eval_id for key in self._evals.kept_back if key.eval_id not in self._queue.runs)

    def _write_results(self) -> None:
        for eval_id, finished in self._queue.finished.items():
            if not finished.is_written:
                finished.write()
                for path in finished.written[:1]:
                    self._evals.hook_caller.call(RESULTS, eval_id, results=finished.results, path=path)
        if not self.comparisons:
            self._write_comparisons()

    def _write_comparisons(self) -> None:
        configs = [each.prepared.config for each in self._evals.by_id.values() if each.reports_units]
        alone = len({config.path for config in configs if config.entry is not None}) == 1
        for entries in self._queue.together:
            path = comparison_path([each.run.prepared.config for each in entries], alone=alone)
            unwritten = None if path is None else write_comparison(entries, path)
            if unwritten is not None:
                entries[0].unwritten.append(unwritten)
            elif path is not None:
                self.comparisons.append(path)

    def _write_pages(self) -> str | None:
        """Write the reports on finished evals, once. Return why the requested one in Markdown could not be written."""
        finished = list(self._queue.finished.values())
        options, sanitizer, unwritten = self._evals.options, self._evals.sanitizer, None
        if finished and not self._markdown_is_written:
            self._markdown_is_written = True
            results = [each.results for each in finished]
            unwritten = write_markdown(results, options.markdown, sanitizer)
            for failure in (unwritten, append_to_job_page(results, sanitizer)):
                if failure is not None:
                    finished[-1].run.notices.add(failure)
        if not any(self.html):
            evals = [each.prepared for each in self._evals.by_id.values()]
            self.html = write_html(options.html, finished, evals, sanitizer)
        return unwritten

    def _not_measured(self, eval_id: str, finished: FinishedEval) -> bool:
        """Return True if an eval has no verdict.

        A replay that asks something else than was recorded has failed: the code is at fault, and no outage.
        """
        results, run, each = finished.results, finished.run, self._evals.by_id[eval_id]
        if results.n_unrecorded:
            return False
        measured = each.measured(results) or not run.selected.runs  # a shard without rows
        reason = None if run.engine.stopped is None else run.engine.stopped.reason
        gated, elsewhere = each.decides(run), run.selected.unstored
        return is_not_measured(results, reason, gated=gated, measured=measured, elsewhere=elsewhere)


class FailedTests:
    """The entries that one session makes in pytest's cache, which `--lf`, `--ff` and `--sw` read.

    `cache/lastfailed` gets the runs that failed or scored below their threshold. That includes those which pytest saw
    as xfailed because a gate decides. Gates are removed from it. `cache/nodeids` gets none of our tests: those of a
    large eval would slow down every later pytest run of the project.
    """

    def __init__(self, evals: EvalSession) -> None:
        self._evals = evals
        self._failed_before: frozenset[str] = frozenset()

    def remember(self) -> None:
        """Remember which tests failed before. Call this before pytest writes its cache."""
        self._failed_before = frozenset(self._node_ids(LAST_FAILED))

    def correct(self) -> None:
        """Correct both entries after pytest has written them.

        Of the tests of evals there remain those that failed in this session, and those that failed before and were not
        run now.
        """
        eval_ids = {*self._evals.by_id, *self._evals.not_loaded}
        before = dict.fromkeys(self._node_ids(LAST_FAILED), True)
        stay = [each for each in before if eval_id_of(each) not in eval_ids or unit_key(each)]
        kept = dict.fromkeys([*stay, *islice(self._failed(), MAX_FAILED)], True)
        ids = self._node_ids(NODE_IDS)
        others = [nodeid for nodeid in ids if eval_id_of(nodeid) not in eval_ids]
        for key, old, new in ((LAST_FAILED, before, kept), (NODE_IDS, ids, others)):
            if new != old and self._cache is not None:
                self._cache.set(key, new)

    @property
    def _cache(self) -> pytest.Cache | None:
        cache: pytest.Cache | None = getattr(self._evals.config, "cache", None)
        return cache

    def _failed(self) -> Iterator[str]:
        """Yield the tests that failed. A smoke test adds errors only."""
        for eval_id, finished in self._evals.queue.finished.items():
            for record in finished.results.records if self._evals.by_id[eval_id].reports_units else ():
                kind = kind_of(record, finished.results.pass_rule)
                if kind in ("failed", "error"):
                    nodeid = node_id(eval_id, finished.run.prepared.collected.unit_of(record.run))
                    if kind == "error" or not finished.run.selected.smoke or nodeid in self._failed_before:
                        yield nodeid

    def _node_ids(self, key: str) -> list[str]:
        """Return the node ids in an entry of pytest's cache; none without a cache, or if the entry is damaged."""
        try:
            entry = [] if self._cache is None else self._cache.get(key, [])
        except RecursionError:
            return []
        return [nodeid for nodeid in entry if isinstance(nodeid, str)] if isinstance(entry, (dict, list)) else []


def _findings(finished: FinishedEval, *, gated: bool) -> Iterator[tuple[str, Kind, str]]:
    stopped, results = finished.run.engine.stopped, finished.results
    kind: Kind = "skipped" if all_gates_decided(results, gated) else "error"
    if stopped is not None and stopped.reason in (*SYSTEMIC, *CUT_SHORT):
        text = stop_text(stopped.reason, results.stopped or stopped.text)
        if stopped.reason in SYSTEMIC:
            yield "code" if finished.run.engine.has_refused_code else PROBE, "error", text
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
        kind, text = _KINDS.get(verdict.state, "skipped") if gated else "skipped", verdict.text
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


_KINDS: Mapping[str, Kind] = {"holds": "passed", "fails": "failed", "not measured": "error"}
"""The outcome of the test of a gate that decides, by the state of its verdict; undecided ones are skipped."""


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
    if kind == "skipped":
        longrepr = skip_at(path, text)
    elif kind != "passed":  # a string would be shown by pytest 8 without a reason in its short summary
        try:
            pytest.fail(text, pytrace=False)
        except pytest.fail.Exception as error:
            longrepr = pytest.ExceptionInfo.from_exception(error).getrepr(style="value")
        if (crash := longrepr.reprcrash) is not None:
            crash.path, crash.lineno, crash.message = path, 1, text.partition("\n")[0]
    keywords: dict[str, Literal[1]] = {"osmosis": 1}
    location = (file, None, name)
    return (
        pytest.TestReport(nodeid, location, keywords, outcome, longrepr, when),
        pytest.TestReport(nodeid, location, keywords, "passed", None, "teardown"),
    )


# -- hooks of users -------------------------------------------------------------------------------------

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
                for answer in returned:  # nobody awaits or iterates the answer of a hook whose code has not run
                    if inspect.iscoroutine(answer):
                        answer.close()
                    if inspect.isawaitable(answer) or inspect.isasyncgen(answer):
                        raise TypeError("is async, and hooks are not awaited; define it with a plain def")
                    if inspect.isgenerator(answer) and not is_gate:
                        raise TypeError("contains yield, so calling it does nothing; remove the yield")
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


def _users_traceback(error: BaseException) -> str:
    """Return the traceback of a hook without the frames of pluggy and of ours."""
    try:
        whole = traceback.TracebackException.from_exception(error)
    except Exception:  # the error's own code gets in the way
        return user_traceback(error)
    pluggy_folder = str(Path(pluggy.__file__).parent)
    whole.stack = traceback.StackSummary.from_list(
        [step for step in whole.stack if not (is_ours(step.filename) or step.filename.startswith(pluggy_folder))]
    )
    return "".join(whole.format())
