"""The evals of one pytest session: prepared, selected, run one after the other, judged.

One object, owned by the controller's plugin; what needs pytest's session gets it as an argument.
"""

from __future__ import annotations

import os
import queue
import shlex
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_osmosis.engine.host_connection import HostConnection
from pytest_osmosis.errors import CodeError, HostError, JournalError
from pytest_osmosis.evals import (
    EvalRun,
    FinishedEval,
    Prepared,
    RunSettings,
    SelectedRuns,
    Spawn,
    StopReason,
    finish,
)
from pytest_osmosis.plugin.command import confirm, named_evals, prepare_evals, session_options
from pytest_osmosis.plugin.command.arguments import session_arguments, set_arguments
from pytest_osmosis.plugin.hooks.call import HookCaller
from pytest_osmosis.plugin.items import gate_reports, last_failed
from pytest_osmosis.plugin.items.collect import by_file
from pytest_osmosis.plugin.items.item import Answer, EvalItem
from pytest_osmosis.plugin.items.node_ids import UnitKey, node_id, unit_key
from pytest_osmosis.plugin.output import markdown_page
from pytest_osmosis.plugin.rollout_tests import model_source
from pytest_osmosis.plugin.rollout_tests.model_source import AskedEvals
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import RowId, RunId, Unit
from pytest_osmosis.report.row_outcome import outcome_of_row
from pytest_osmosis.text.paths import shown
from pytest_osmosis.verdicts.pass_rule import Outcome, kind_of

if TYPE_CHECKING:
    from pytest_osmosis.engine.inline_host import InlineHost
    from pytest_osmosis.engine.prestart import PrestartedHost
    from pytest_osmosis.plugin.debug.inline import InlineHosts

INTERRUPT_GRACE_S = 2.0


class EvalSession:
    """All by the evals' ids, in the order in which they were named; `runs` are those of which something was selected.

    `plans` are the same by file, for collection; `n_selected` is how many of our tests were selected. The first host
    that an eval needs is `warm`, where there is one.
    """

    def __init__(
        self,
        config: pytest.Config,
        named: named_evals.NamedEvals,
        options: session_options.SessionOptions,
        warm: PrestartedHost | None,
    ) -> None:
        self.config = config
        self.options = options
        self.prepared: dict[str, Prepared] = {}
        self.plans: dict[Path, list[Plan]] = {}
        self.selected: dict[str, SelectedRuns] = {}
        self.runs: dict[str, EvalRun] = {}
        self.finished: dict[str, FinishedEval] = {}
        self.n_selected = 0
        self.asked = AskedEvals(config, named, options)
        self.inline = self._inline() if options.inline else None
        self._warm = warm
        self.completed: queue.SimpleQueue[tuple[str, Unit]] = queue.SimpleQueue()
        self._named = named
        self.not_listed: list[str] = []
        self.hook_caller = HookCaller(config)
        self._replays: InlineHosts | None = None
        self._failures = 0
        self._known_failed: frozenset[str] = frozenset()
        self.recalled: set[str] = set()
        self._stopped = False
        self._paused = False
        self._begun: set[str] = set()
        self._left: dict[str, int] = {}
        self._rows: dict[str, dict[RowId, dict[RunId, Outcome]]] = {}
        self._outcomes: dict[tuple[str, Unit], Outcome] = {}
        self._done = threading.Condition()  # protects _outcomes

    def _inline(self) -> InlineHosts:
        from pytest_osmosis.plugin.debug.inline import InlineHosts

        return InlineHosts(trace=self.config.option.trace)

    def _spawn(self, key: str) -> Spawn:
        """Return what starts the hosts of an eval."""
        if self.inline is not None:
            return self.inline.host(key).spawn
        return self._warm.spawn if self._warm is not None and not self.runs else HostConnection

    # -- before anything runs ----------------------------------------------------------------------------

    def prepare(self) -> None:
        """Check every named eval. `pytest.UsageError` with all their problems."""
        evals = prepare_evals.prepared_evals(self.config, self._named, self.options)
        self.prepared, self.not_listed = evals.prepared, evals.not_listed
        arguments = session_arguments(self.config, self._named, evals.files)
        set_arguments(self.config, arguments, as_typed=bool(self._named.explicit))
        self.plans = by_file(prepared.collected for prepared in self.prepared.values())

    # -- selection and start -----------------------------------------------------------------------------

    def recall_failed(self, items: Sequence[pytest.Item]) -> None:
        """Let `--lf` and `--sw` know tests by what failed under the other granularity."""
        self.recalled = last_failed.recall(self.config, items)

    def select_items(self, items: Iterable[pytest.Item]) -> None:
        """Make a run for every eval of which something was selected, or which tests ask for."""
        self._select((item.eval_id, item.unit) for item in items if isinstance(item, EvalItem))

    def select_ids(self, ids: Iterable[str]) -> None:
        """As `select_items`, by node id."""
        self._select(named for named in map(unit_key, ids) if named and named.eval_id in self.prepared)

    def _select(self, selected: Iterable[tuple[str, Unit]]) -> None:
        self.prepared = {**self.asked.prepare(), **self.prepared}  # tests wait, so theirs go first
        units: dict[str, dict[Unit, None]] = {}
        for key, unit in selected:
            units.setdefault(key, {})[unit] = None
        self.n_selected = sum(map(len, units.values()))
        runs = {key: self.asked.runs(key) for key in self.asked.prepared}
        runs |= {key: self._runs(key, of_eval) for key, of_eval in units.items()}
        for key in [key for key in self.prepared if key in runs]:
            self._left[key] = len(runs[key])
            partial = self.asked.partial(key) if key in self.asked else None
            self.selected[key] = SelectedRuns.of(self.prepared[key], list(runs[key]), partial=partial)

    def _start(self, key: str) -> None:
        """Start an eval. `pytest.UsageError` if its run directory cannot be written or is in use."""
        prepared, selected = self.prepared[key], self.selected[key]
        rerun = self.asked.rerun(key) if key in self.asked else self._rerun(prepared)
        try:
            run = EvalRun.start(prepared, selected, self._settings(key), rerun=rerun, on_done=self._completion(key))
        except JournalError as error:
            self._discard()
            raise pytest.UsageError(str(error)) from None
        self.runs[key] = run
        if self._may_stop_early(key) and selected.partial:
            run.notices.add("early stopping is off: gates need the whole plan")
        if self.inline is not None:
            self.inline.host(key).load()

    def _settings(self, key: str) -> RunSettings:
        option, named = self.config.option, key not in self.asked
        return RunSettings(
            environ=os.environ,
            pythonpath=session_options.pythonpath(self.config),
            hosts=session_options.workers(self.config),
            spawn=self._spawn(key),
            probe=self.options.probe,
            inline=self.inline is not None,
            keep_conversations=self.hook_caller.want_rollouts or not named,
            stop_when_decided=self._may_stop_early(key) and not option.runxfail,
            stops_at_failures=bool(self.config.getoption("maxfail") or self.config.getoption("stepwise", False)),
            update_baseline=self.options.update_baseline and named,
        )

    def _runs(self, key: str, units: Iterable[Unit]) -> list[RunId]:
        return [run for unit in units for run in self.prepared[key].collected.runs_of(unit)]

    def _may_stop_early(self, key: str) -> bool:
        return self.options.stop_when_decided is not None and key not in self.asked

    def start(self) -> None:
        """Load everyone's code, then let the first eval go. `pytest.UsageError` for code that does not load.

        Before that, ask where the cost asks for it.
        """
        self._confirm()
        for key in self.selected:
            self._start(key)
        errors = [error for run in self.runs.values() if (error := self._load_error(run))]
        if errors:
            self._discard()
            raise pytest.UsageError(*errors)
        if self.inline is None:
            for first in list(self.runs.values())[:1]:
                first.go()

    def _confirm(self) -> None:
        """Begin nothing that costs more than was said, unless someone wants it."""
        usd = self.options.confirm_above
        if usd is None or self._named.stored is not None:
            return
        costs = {
            self.prepared[key].config.name: confirm.estimate(self.prepared[key], len(selected.runs))
            for key, selected in self.selected.items()
        }
        said = confirm.above(costs, usd)
        wanted = said is None or confirm.ask(self.config, said)
        if wanted:
            return
        if wanted is None:
            fix = (
                "there is no terminal to ask on: leave the option out, or give a higher amount where the cost is known"
            )
            raise pytest.UsageError(f"--osmosis-confirm-above={usd:g}: {said}; {fix}")
        pytest.exit(f"not begun: {said}", returncode=pytest.ExitCode.INTERRUPTED)

    def _load_error(self, run: EvalRun) -> str:
        try:
            run.wait_until_loaded()
        except CodeError as error:
            return f"{run.prepared.config.name}: {error}\n{error.details}".rstrip()
        except HostError as error:
            return f"{run.prepared.config.name}: {error}\n{run.host_log_text()[-2000:]}".rstrip()
        return ""

    def _discard(self) -> None:
        for run in self.runs.values():
            run.discard()
        self.runs.clear()
        self.finished.clear()

    def _rerun(self, prepared: Prepared) -> Callable[[RunId], str]:
        """The command that repeats the test of a run, from the folder that this one was called in."""
        plan, source = prepared.plan, prepared.source
        path = os.path.relpath(plan.path, self.config.invocation_params.dir)
        typed = [
            *session_options.typed(self.config),
            *([f"--osmosis-from={shown(source.run.folder)}"] if source else []),
        ]

        def command(run: RunId) -> str:
            return shlex.join(["pytest", node_id(f"{path}::{plan.name}", plan.unit_of(run)), *typed])

        return command

    # -- while it runs -----------------------------------------------------------------------------------

    def _completion(self, key: str) -> Callable[[RunId, Outcome], None]:
        """Hears of each run that is done, in the engine's thread; after an eval's last one the next eval goes."""

        def completed(run: RunId, outcome: Outcome) -> None:
            if key in self.asked:
                self.asked.keep(key, run, self.runs[key].conversations.get(run))
            if self.hook_caller.want_rollouts and self.runs[key].record(run).status != "pending":
                self.hook_caller.enqueue_finished(key, run)
            self._report(key, run, outcome)
            if self.inline is not None:
                self.inline.host(key).wake()
                return
            self._left[key] -= 1
            if self._left[key] == 0:
                self.runs[key].release()
                self._next_after(key)

        return completed

    def _report(self, key: str, run: RunId, outcome: Outcome) -> None:
        """Let the test of a run have its outcome; that of a row once the last of its runs is done."""
        plan = self.prepared[key].collected
        unit = plan.unit_of(run)
        if isinstance(unit, RowId):
            done = self._rows.setdefault(key, {}).setdefault(unit, {})
            done[run] = outcome
            if len(done) < plan.n:
                return
            del self._rows[key][unit]
            outcome = outcome_of_row(done, [each for each in done if self.runs[key].record(each).status == "pending"])
        with self._done:
            self._outcomes[key, unit] = outcome
            self._done.notify_all()
        if key not in self.asked:
            self.completed.put((key, unit))

    def _next_after(self, key: str) -> None:
        if self._stopped:
            return
        order = list(self.runs)
        for following in order[order.index(key) + 1 :][:1]:
            self.runs[following].go()

    def fetch(self, item: EvalItem) -> Answer:
        """Wait for an item's outcome; inline, make it."""
        return self.done(item.eval_id, item.unit)

    def done(self, eval_id: str, unit: Unit) -> Answer:
        """As `answer`; inline, have the run rolled out here."""
        if self.inline is not None:
            self._perform(self.inline.host(eval_id), eval_id, unit)
        return self.answer(eval_id, unit)

    def _perform(self, host: InlineHost, eval_id: str, unit: Unit) -> None:
        """Have a run, or those of a row, rolled out and scored in this thread."""
        runs = self._runs(eval_id, [unit])
        if eval_id in self._begun:
            self.runs[eval_id].submit(runs)
        else:
            self._begun.add(eval_id)
            self.runs[eval_id].go(runs)
        host.serve(lambda: (eval_id, unit) in self._outcomes)

    def answer(self, eval_id: str, unit: Unit) -> Answer:
        """Wait until a test has its outcome. What runs put out is given once, as pytest's reports keep it then."""
        key = (eval_id, unit)
        with self._done:
            while key not in self._outcomes:
                self._done.wait()
            outcome = self._outcomes[key]
            if outcome.sections:
                self._outcomes[key] = replace(outcome, sections=())
        return Answer(outcome, unit.is_baseline or self.gated(eval_id))

    def is_done(self, eval_id: str, unit: Unit) -> bool:
        """True where `answer` has nothing to wait for."""
        with self._done:
            return (eval_id, unit) in self._outcomes

    def gated(self, eval_id: str) -> bool:
        """True where a gate decides, and not the single runs."""
        return bool(self.prepared[eval_id].config.gates) and self._decides(eval_id)

    def _decides(self, eval_id: str) -> bool:
        """True where gates are decided, if there are any."""
        return not self.config.option.runxfail and not self.selected[eval_id].partial

    def tell(self, report: pytest.TestReport, named: tuple[str, Unit] | None) -> None:
        """Put a test's properties into its last report, which is where JUnit XML and json-report take them from."""
        if report.when != "teardown" or named is None:
            return
        eval_id, unit = named
        if eval_id in self.runs:
            report.user_properties.extend(self.runs[eval_id].properties(self._runs(eval_id, [unit])))

    def reaches_maxfail(self, report: pytest.TestReport) -> bool:
        """True for the failure at which `--maxfail` ends the session."""
        self._failures += report.failed
        return report.failed and self._failures == self.config.getoption("maxfail")

    def pause(self) -> None:
        """Ask for nothing new until `resume`. Inline nothing goes on behind a prompt anyway."""
        if self.inline is None and not self._paused:
            self._paused = True
            for run in self.runs.values():
                run.pause()

    def resume(self) -> None:
        """Go on after `pause`, if there was one."""
        if self._paused:
            self._paused = False
            for run in self.runs.values():
                run.resume()

    @property
    def replaying(self) -> InlineHosts:
        """Hosts in this process, for what is called again under `--pdb`."""
        self._replays = self.inline or self._replays or self._inline()
        return self._replays

    # -- the end -----------------------------------------------------------------------------------------

    def stop(self, reason: StopReason, text: str) -> None:
        """Begin nothing more, in no eval."""
        self._stopped = True
        for run in self.runs.values():
            run.stop(reason, text)

    def end_early(self) -> None:
        """Begin nothing more, give what is in flight a moment; then every run has its outcome. Ctrl-C: end it now."""
        try:
            self.stop("interrupt", "interrupted")
            for run in self.runs.values():
                run.submit(run.selected.runs)  # also of evals whose turn had not come
            self._finish_runs(INTERRUPT_GRACE_S if self.inline is None else 0.0)
        except KeyboardInterrupt:
            for run in self.runs.values():
                run.kill()
            self._finish_runs(0.0)

    def _finish_runs(self, grace_s: float) -> None:
        if not self.finished:
            self.finished = dict(zip(self.runs, finish(list(self.runs.values()), grace_s), strict=True))

    def report_verdicts(self, session: pytest.Session) -> None:
        """Report stops, limits and gates as tests of their own, then write results; others are asked and told."""
        self._finish_runs(0.0)
        self.hook_caller.call_finished(self.runs)
        for key, finished in self.finished.items():
            if not finished.results.partial and key not in self.asked:
                finished.add_verdicts(self.hook_caller.gate_verdicts(key, finished.results))
        self._write_results()
        for key, finished in self.finished.items():
            gate_reports.report(session, key, finished, gated=self._decides(key))
        gate_reports.report_hook_errors(session, self.hook_caller.take_errors())

    def _write_results(self) -> None:
        for key, finished in self.finished.items():
            if not finished.is_written:
                finished.write()
                for path in finished.written[:1]:
                    self.hook_caller.call_results(key, finished.results, path)

    def finish(self, session: pytest.Session) -> None:
        """Write results; set the exit status where an eval was not measured. Where nothing began, nothing is kept."""
        if not any(run.began for run in self.runs.values()):
            self._discard()
        self._finish_runs(0.0)
        if self.options.smoke is not None:
            self._known_failed = last_failed.failed(self.config)
        self.hook_caller.call_finished(self.runs)
        self._write_results()
        failure = markdown_page.write([finished.results for finished in self.finished.values()], self.options.markdown)
        for run in list(self.runs.values())[-1:]:
            for text in failure:
                run.notices.add(text)
        unmeasured = any(self._not_measured(key) for key in self.finished)
        if unmeasured and gate_reports.may_replace(session.exitstatus):
            session.exitstatus = self.options.not_measured_exit

    def _not_measured(self, key: str) -> bool:
        finished = self.finished[key]
        measured = model_source.measured_any(finished.results) if key in self.asked else None
        return gate_reports.not_measured(finished, gated=self._decides(key), measured=measured)

    def close(self) -> None:
        """Close what runs in this process."""
        inline = self.inline or self._replays
        if inline is not None:
            inline.close()

    def mend_cache(self) -> None:
        """What pytest's cache keeps of our tests: those that failed or lay below threshold, and nothing else.

        A smoke test adds errors only, and takes out what now passes.
        """
        failed: dict[str, None] = {}
        for key, finished in self.finished.items():
            if key in self.asked:
                continue
            run, judging, plan = finished.run, finished.results.judging, self.prepared[key].collected
            for record in finished.results.records:
                kind = kind_of(record, judging)
                if kind in ("passed", "skipped"):
                    continue
                nodeid = node_id(key, plan.unit_of(record.run))
                if kind == "error" or not run.selected.smoke or nodeid in self._known_failed:
                    failed[nodeid] = None
        recalled = self.recalled - failed.keys()
        last_failed.mend(self.config, list(failed), self.prepared.keys(), lambda named: self._outdated(named, recalled))

    def _outdated(self, named: UnitKey, recalled: Collection[str]) -> bool:
        """True for what a test of the other granularity once said of a row, and tests of this one say anew."""
        run = self.runs.get(named.eval_id)
        if node_id(*named) in recalled:
            return True
        if run is None or isinstance(named.unit, RunId) == (run.prepared.collected.granularity == "run"):
            return False
        rows_runs = [RunId(named.unit.row, index, named.unit.model) for index in range(run.prepared.collected.n)]
        return any(run.record(each).status != "pending" for each in rows_runs)
