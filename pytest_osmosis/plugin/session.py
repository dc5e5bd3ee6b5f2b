"""`EvalSession`: the evals of one pytest session, from their preparation to the end.

The controller's plugin owns it. Its parts do the work, and hooks call the part that they need: `queue` runs one eval
after the other, `outcomes` are waited for, `end` reports and writes.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from pytest_osmosis import seams
from pytest_osmosis.engine.host_connection import HostConnection
from pytest_osmosis.errors import CassetteError, ClusterError, CodeError, ConfigError, JournalError
from pytest_osmosis.evals import (
    EvalRun,
    GitQueries,
    NotLoaded,
    Prepared,
    RunSettings,
    SelectedRuns,
    Spawn,
    Worktrees,
)
from pytest_osmosis.evals.prepare import WITHOUT_MODEL
from pytest_osmosis.plugin import named_evals, preparation, session_options
from pytest_osmosis.plugin.debugger import InlineHosts
from pytest_osmosis.plugin.eval_queue import EvalQueue, NamedEval, SessionEval, load_error
from pytest_osmosis.plugin.items import Answer, UnitKey, by_file
from pytest_osmosis.plugin.named_evals import session_arguments, set_arguments
from pytest_osmosis.plugin.options import stands_in
from pytest_osmosis.plugin.session_end import HookCaller, SessionEnd
from pytest_osmosis.plugin.session_options import environments_of
from pytest_osmosis.plugin.session_sanitizer import sanitizer_of
from pytest_osmosis.plugin.terminal import say
from pytest_osmosis.record.plan import Plan
from pytest_osmosis.record.run_id import RowId, RunId, Unit
from pytest_osmosis.report.failure_text import outcome_of_row
from pytest_osmosis.text.numbers import money
from pytest_osmosis.text.safe import encodable, escaped
from pytest_osmosis.verdicts.pass_rule import Outcome

if TYPE_CHECKING:
    from pytest_osmosis.processes.child import PrestartedHost


class EvalSession:
    """The evals of a session by id, in the order in which they run: test evals first, because tests wait for them.

    `by_id` holds all that were prepared, `named` those that the command names, `selected` those with a selected run,
    `runs` the same ones once they have started. `plans` are what pytest collects, by file; `n_selected` is how many
    tests of ours were selected and will run, `kept_back` the units of those that marks keep from running. The evals
    `not_loaded` are not even collected. The first host that an eval needs is `prestarted`, if there is one. `of_tests`
    has the evals from which tests request rollouts, if models may be asked for them.
    """

    def __init__(
        self,
        config: pytest.Config,
        naming: named_evals.NamedEvals,
        options: session_options.SessionOptions,
        prestarted: PrestartedHost | None,
    ) -> None:
        self.config = config
        self.sanitizer = sanitizer_of(config)
        self.options = options
        self.named: dict[str, NamedEval] = {}
        self.by_id: dict[str, SessionEval] = {}
        self.plans: dict[Path, list[Plan]] = {}
        self.not_listed: list[str] = []
        self.not_loaded: dict[str, NotLoaded] = {}
        self.selected: dict[str, SelectedRuns] = {}
        self.n_selected = 0
        self._has_selected = False
        self.kept_back: set[UnitKey] = set()
        self._worktrees, self._git = Worktrees(), GitQueries()
        self._until_closed = ExitStack()
        self._until_closed.callback(self._worktrees.close)
        self._until_closed.callback(self._git.close)
        self.inline = self._inline_hosts() if options.inline else None
        self.hook_caller = HookCaller(config)
        self.queue = EvalQueue(self.inline)
        self.runs = self.queue.runs
        self.outcomes = Outcomes()
        self.end = SessionEnd(self)
        self.naming = naming
        self._prestarted = prestarted
        self._environments = environments_of(config, prestarted)
        self.preparer = preparation.EvalPreparer(config, naming, options)
        self.of_tests = seams.TestEvals(self) if naming.asks_models else None
        self._clusters: seams.RayClusters | None = None

    def prepare(self) -> None:
        """Check every named eval, and let pytest collect it. Raise `pytest.UsageError` with all problems."""
        evals = self.preparer.prepare_all()
        self.not_listed = evals.not_listed
        self.not_loaded.update(evals.not_loaded)
        self.named = {key: NamedEval(key, each, self.config, self.options) for key, each in evals.prepared.items()}
        self.by_id.update(self.named)
        self.plans.update(by_file(each.collected for each in evals.prepared.values()))
        explicit = tuple(path for path in self.naming.explicit if path is None or path in self.plans)
        arguments = session_arguments(self.config, self.naming._replace(explicit=explicit), evals.files)
        set_arguments(self.config, arguments, as_typed=bool(self.naming.explicit))

    def select(self, collected: Sequence[UnitKey]) -> None:
        """Select the runs of these units, and those that tests request."""
        self._has_selected = True
        if self.of_tests is not None:
            self.of_tests.prepare()
            self.by_id = {**self.of_tests.by_id, **self.named}
            self.selected.update(self.of_tests.selected())
        units: dict[str, dict[Unit, None]] = {}
        for key in collected:
            if key not in self.kept_back:
                units.setdefault(key.eval_id, {})[key.unit] = None
        self.n_selected = sum(map(len, units.values()))
        with_tests = {key.eval_id for key in collected}
        for eval_id, named in self.named.items():
            prepared = named.prepared
            in_shard = prepared.shard is not None and prepared.config.path not in self.naming.listed
            # without a test that fell to this shard, the results are empty, and can be merged
            if eval_id in units or (in_shard and eval_id not in with_tests):
                runs = [run for unit in units.get(eval_id, ()) for run in prepared.collected.runs_of(unit)]
                self.selected[eval_id] = SelectedRuns.of(prepared, runs)

    def lines_of_tests(self) -> list[str]:
        """Return the lines of evals that tests need, which is known after collection."""
        return [] if self.of_tests is None else self.of_tests.lines()

    def unselected(self) -> Iterator[tuple[str, int]]:
        """Yield the name of each eval that this session was to run and of which no test was selected, and its tests."""
        if not self._has_selected:
            return
        for eval_id, named in self.named.items():
            skipped = eval_id in self.end.skipped_whole or named.prepared.lacks_model
            if eval_id not in self.selected and not skipped:
                yield named.prepared.config.name, sum(1 for _ in named.prepared.collected.units())

    def _done(self, each: SessionEval, run: RunId, outcome: Outcome) -> None:
        eval_run = self.runs[each.id]
        if self.hook_caller.want_rollouts and eval_run.record(run).status != "pending":
            kept = eval_run.outcomes.conversations
            self.hook_caller.finished.put((each.id, run, kept.pop(run) if each.reports_units else kept[run]))
        if run not in eval_run.selected.companions:
            self.outcomes.add(each.id, eval_run, run, outcome)
        self.queue.run_done(each.id)

    def start(self) -> None:
        """Ask for confirmation if `--osmosis-confirm-above` needs it, then start the evals.

        Raise `pytest.UsageError` if a cluster cannot be used, code does not load, or a run directory cannot be written
        or is in use.
        """
        try:
            notes = self._load_preflights()
            self._confirm_cost()
            say(self.config, [f"osmosis: {note}" for note in self._open_clusters()])
            for eval_id, selected in self.selected.items():
                self._add_to_queue(self.by_id[eval_id], selected)
        except (CassetteError, ClusterError, CodeError, ConfigError, JournalError) as error:
            self.queue.discard()
            raise pytest.UsageError(str(error)) from None
        self.queue.start()
        notes += [note for run in self.runs.values() for note in run.engine.loop.notes]
        say(self.config, [f"osmosis: {note}" for note in dict.fromkeys(notes)])

    def _load_preflights(self) -> list[str]:
        """Load the code of preflights that have no model to ask, skip their rows, and return what hosts say of it.

        Raise `pytest.UsageError` if code does not load.
        """
        notes: list[str] = []
        for each in [self.by_id[eval_id] for eval_id in self.selected if self.by_id[eval_id].prepared.lacks_model]:
            selected, nothing = self.selected.pop(each.id), SelectedRuns.of(each.prepared, [])
            settings = self._local_settings(each, HostConnection)
            run = EvalRun.start(each.prepared, nothing, settings, rerun=each.rerun, on_done=lambda run, outcome: None)
            error_text = load_error(run)
            notes += run.engine.loop.notes
            run.discard()
            if error_text:
                raise pytest.UsageError(f"{each.prepared.config.name}: {error_text}")
            outcome = Outcome("skipped", WITHOUT_MODEL, WITHOUT_MODEL)
            for run_id in selected.runs:
                self.outcomes.set(UnitKey(each.id, run_id), outcome)
        return notes

    def _open_clusters(self) -> list[str]:
        """Connect to the clusters on which hosts will run, and return what the user should know of them."""
        evals = [(self.by_id[each].prepared, selected) for each, selected in self.selected.items()]
        on_cluster = [each for each in evals if _is_on_cluster(each[0])]
        if not on_cluster:
            return []
        if self.inline is not None:
            option = "--osmosis-inline" if self.config.getoption("osmosis_inline") else "--trace"
            return [f"user code runs in this process, not on a cluster ({option})"]
        if len(on_cluster) == len(evals) and self._prestarted is not None:
            self._prestarted.close()
        self._clusters = seams.RayClusters(os.environ, self._worktrees)
        self._until_closed.callback(self._clusters.close)
        notes = self._clusters.open(on_cluster)
        if self.config.getoption("usepdb", False):
            notes.append("--pdb calls what failed again in this process, not on the cluster")
        return notes

    def _add_to_queue(self, each: SessionEval, selected: SelectedRuns) -> None:
        """Start the engine of an eval, and let it wait for its turn, which the entries of one config have together."""
        prepared = each.prepared
        group = each.id if prepared.config.entry is None or not each.reports_units else str(prepared.config.path)
        clusters = self._clusters if self.inline is None and _is_on_cluster(prepared) else None
        on_cluster = clusters is not None
        settings = self._local_settings(each, self._local_spawn(each.id))
        if clusters is not None:
            n_places, spawn = clusters.of(prepared).facts.n_places, clusters.spawn(prepared)
            settings = replace(settings, hosts=clusters.n_places(prepared), n_places=n_places, spawn=spawn)
        run = EvalRun.start(
            prepared,
            selected,
            settings,
            rerun=each.rerun,
            on_done=partial(self._done, each),
            hosts_wait=self.inline is None and self.queue.loads_later(group, on_cluster=on_cluster),
        )
        if clusters is not None:
            clusters.join(prepared, run.engine)
        if each.may_stop_early and selected.partial:
            run.notices.add("did not stop early: with only some runs selected, no gate is decided")
        self.queue.add(each.id, run, group, on_cluster=on_cluster)

    def _local_settings(self, each: SessionEval, spawn: Spawn) -> RunSettings:
        """Return the settings of an eval run whose hosts `spawn` starts on this machine."""
        return RunSettings(
            environ=os.environ,
            pythonpath=session_options.pythonpath(self.config),
            hosts=session_options.workers(self.config),
            spawn=spawn,
            probe=self.options.probe,
            sdk_shim=stands_in(self.config),
            inline=self.inline is not None,
            keep_conversations=self.hook_caller.want_rollouts or not each.reports_units,
            stop_when_decided=each.may_stop_early and not self.config.getoption("runxfail", False),
            stops_at_failures=bool(self.config.getoption("maxfail") or self.config.getoption("stepwise", False)),
            update_baseline=each.updates_baseline,
            git=self._git,
            worktrees=self._worktrees,
        )

    def _local_spawn(self, eval_id: str) -> Spawn:
        if self.inline is not None:
            return self.inline.host(eval_id).spawn
        prestarted = self._prestarted if not self.runs else None
        spawn = partial(HostConnection, prestarted=prestarted)
        return spawn if self._environments is None else self._environments.spawning(spawn)

    def _confirm_cost(self) -> None:
        """Start evals that may cost more than `--osmosis-confirm-above` only if somebody at the terminal agrees."""
        usd = self.options.confirm_above
        if usd is None or self.naming.stored is not None:
            return
        selected = [(self.by_id[eval_id].prepared, each.runs) for eval_id, each in self.selected.items()]
        cost = reason_to_ask(
            {each.config.name: estimated_cost(each, each.source.n_to_roll_out(runs)) for each, runs in selected}, usd
        )
        if cost is None or (confirmed := _ask(self.config, cost)):
            return
        if confirmed is None:
            fix = "there is no terminal to ask on; leave the option out, or raise the amount if the cost is known"
            raise pytest.UsageError(f"--osmosis-confirm-above={usd:g}: {cost}; {fix}")
        pytest.exit(self.sanitizer.shown(f"not begun: {cost}"), returncode=pytest.ExitCode.INTERRUPTED)

    def answer(self, key: UnitKey) -> Answer:
        """Wait for the outcome of a unit; inline, roll it out here."""
        if key in self.kept_back:
            text = f"{key.unit} was not rolled out: a mark kept it from running when it was collected"
            return Answer(Outcome("error", text, text), gated=False)
        runs = self.by_id[key.eval_id].prepared.collected.runs_of(key.unit)
        if key.eval_id not in self.runs:  # a preflight without a model
            return Answer(self.outcomes.wait(key), gated=False)
        self.queue.perform(key.eval_id, runs, lambda: self.outcomes.is_done(key))
        gated = self.by_id[key.eval_id].gated(self.runs[key.eval_id])
        return Answer(self.outcomes.wait(key), gated or key.unit.is_baseline)

    def add_properties(self, report: pytest.TestReport, key: UnitKey | None) -> None:
        """Add a test's properties to its last report, from which JUnit XML and json-report take them."""
        if report.when == "teardown" and key is not None and key.eval_id in self.runs:
            run = self.runs[key.eval_id]
            report.user_properties.extend(run.properties(run.prepared.collected.runs_of(key.unit)))

    @cached_property
    def replaying(self) -> InlineHosts:
        """The hosts in this process, in which `--pdb` calls user code again."""
        return self.inline or self._inline_hosts()

    def _inline_hosts(self) -> InlineHosts:
        hosts = InlineHosts(self.config)
        self._until_closed.callback(hosts.close)
        return hosts

    def close(self) -> None:
        self._until_closed.close()


class Outcomes:
    """The outcomes of a session's units. `completed` gets each unit once, in the order in which they are done."""

    def __init__(self) -> None:
        self.completed: queue.SimpleQueue[UnitKey] = queue.SimpleQueue()
        self._rows: dict[UnitKey, dict[RunId, Outcome]] = {}
        self._outcomes: dict[UnitKey, Outcome] = {}
        self._added = threading.Condition()  # protects _outcomes

    def add(self, eval_id: str, eval_run: EvalRun, run: RunId, outcome: Outcome) -> None:
        """Add the outcome of a run. A row has its outcome when the last of its runs is done."""
        plan = eval_run.prepared.collected
        key = UnitKey(eval_id, plan.unit_of(run))
        if isinstance(key.unit, RowId):
            done = self._rows.setdefault(key, {})
            done[run] = outcome
            if len(done) < plan.n:
                return
            del self._rows[key]
            outcome = outcome_of_row(done, [each for each in done if eval_run.record(each).status == "pending"])
        self.set(key, outcome)

    def set(self, key: UnitKey, outcome: Outcome) -> None:
        with self._added:
            self._outcomes[key] = outcome
            self._added.notify_all()
        self.completed.put(key)

    def wait(self, key: UnitKey) -> Outcome:
        """Wait for an outcome. Only the first caller gets its `sections`, which pytest's report keeps from then on."""
        with self._added:
            while key not in self._outcomes:
                self._added.wait()
            outcome = self._outcomes[key]
            if outcome.sections:
                self._outcomes[key] = replace(outcome, sections=())
        return outcome

    def is_done(self, key: UnitKey) -> bool:
        """Return True if `wait` would return at once."""
        with self._added:
            return key in self._outcomes


def estimated_cost(prepared: Prepared, n_selected: int) -> float | None:
    """Return the US dollars that `n_selected` runs may cost, None if no whole run of the same plan told its cost."""
    last = prepared.last
    if prepared.replays or all(
        price is not None and price.cost_usd({"input_tokens": 1, "output_tokens": 1}) == 0
        for price in prepared.all_prices.values()
    ):
        return 0.0
    if last is None:
        return None
    found, judges = last.summary, last.summary.judges
    judged = 0.0 if judges is None else judges.cost_usd
    if found.cost_usd is None or judged is None:
        return None
    return (found.cost_usd + judged) * n_selected / found.total_runs


def reason_to_ask(estimates: Mapping[str, float | None], usd: float) -> str | None:
    """Return the reason to ask, None if the evals together cost no more than `usd`.

    >>> reason_to_ask({"x": 0.5, "y": 0.7}, 1.0)
    'about $1.20, above $1.00'
    >>> reason_to_ask({"x": 0.5, "y": None}, 1.0)
    'the cost of y is unknown, because no earlier eval run recorded one'
    """
    unknown = [escaped(name) for name, cost in estimates.items() if cost is None]
    total = sum(cost for cost in estimates.values() if cost is not None)
    if total > usd:
        return f"about {money(total)}, above {money(usd)}"
    if unknown:
        return f"the cost of {', '.join(unknown)} is unknown, because no earlier eval run recorded one"
    return None


def _ask(config: pytest.Config, reason: str) -> bool | None:
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():  # restores the state, which between tests is suspended
        capture.suspend_global_capture(in_=True)
        try:
            if sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
                return None
            sys.stdout.write(encodable(f"\nosmosis: {reason}. Start? [y/N] ", sys.stdout.encoding))
            sys.stdout.flush()
            return sys.stdin.readline().strip().lower() in ("y", "yes")
        finally:
            capture.resume_global_capture()
            capture.suspend_global_capture()


def _is_on_cluster(prepared: Prepared) -> bool:
    return prepared.config.execution.engine == "ray"
