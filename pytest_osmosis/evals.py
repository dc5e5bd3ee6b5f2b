"""One eval from its TOML to its results, without pytest: `prepare` checks everything, `EvalRun` runs it.

`prepare` raises every problem of config, dataset, model and secrets at once, and asks nothing of a model. An `EvalRun`
owns a run directory: `manifest.json` (what was asked for), `journal.jsonl` (what happened), `host.log` (what user code
put out beside a run), `results.json` and `artifacts/`.
"""

from __future__ import annotations

import json
import math
import os
import platform
import secrets as randomness
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest_osmosis
from pytest_osmosis import comparison, curtailment, gates, results
from pytest_osmosis.baseline import BaselineModel, StoredResults, beside, read_results
from pytest_osmosis.comparison import Comparison
from pytest_osmosis.config import EvalConfig, Override, load_eval_config, resolve_secrets, typed_eval_config
from pytest_osmosis.config.kinds import toml
from pytest_osmosis.config.options import OPTIONS
from pytest_osmosis.config.rules import GRADER_SCORE
from pytest_osmosis.config.tables import Baseline, GateRule, Limits
from pytest_osmosis.config.workspace import absolute, shown
from pytest_osmosis.curtailment import Curtailment
from pytest_osmosis.datasets import Content, Dataset, check_rows, locate, open_dataset, select
from pytest_osmosis.engine.actor import Engine
from pytest_osmosis.engine.job import Again, Job, Spending, Transcript, undecided
from pytest_osmosis.engine.job import StopReason as StopReason  # of `EvalRun.stop`
from pytest_osmosis.engine.line import Spawn as Spawn
from pytest_osmosis.engine.rates import Limits as Rates
from pytest_osmosis.engine.rates import least_s
from pytest_osmosis.engine.warm import Warm as Warm
from pytest_osmosis.errors import ConfigError, DatasetError, Problem, ProblemsError
from pytest_osmosis.gates import Verdict
from pytest_osmosis.history import LastRun, Redecided, flips, last_run, plan_digest, turned
from pytest_osmosis.host.protocol import Key, Setup
from pytest_osmosis.host.redaction import MIN_CHARS, Redaction, secret_headers
from pytest_osmosis.journal import Journal, replay
from pytest_osmosis.models.targets import ModelTarget, missing_extra, resolve
from pytest_osmosis.outcomes import Judging, Outcome, judged_by_no_score
from pytest_osmosis.plan import Plan, shuffled, spans_of
from pytest_osmosis.prices import Price, price_of
from pytest_osmosis.records import Run, RunRecord
from pytest_osmosis.report.block import outcome_of
from pytest_osmosis.report.numbers import plural, score, seconds
from pytest_osmosis.report.properties import Property, properties_of, properties_of_row
from pytest_osmosis.results import Results, Side, Subject, Throttling
from pytest_osmosis.runs import StoredRun
from pytest_osmosis.stored import StoredRollouts

SecretsFile = Path | Literal["-"] | None


@dataclass(frozen=True, slots=True)
class Source:
    """Where the rollouts are from that are scored again: a run that is over, and what was evaluated in it.

    `gone` says of each planned run without a rollout that could be scored why it has none; with `rescore` every
    function is called again, also those whose code has not changed.
    """

    run: StoredRun
    rollouts: StoredRollouts
    subject: Subject
    gone: Mapping[Run, str]
    rescore: bool = False

    @property
    def rolled_out_at(self) -> str:
        """When the run began, UTC, ISO 8601."""
        at: str = self.run.manifest["started_at"]
        return at


@dataclass(frozen=True, slots=True)
class Prepared:
    """An eval that may start. `secrets` hold the values of its secrets and of the model's key, {} when listing only.

    `notes` are what the header warns of in the selected rows. `price` is the model's, None where nobody knows it.
    `row_digests` and `contents` are those of the rows; `last` is the last whole run with the same `plan_digest`.
    `smoke` is the part of the plan that a smoke test takes, None where it is none. `beside` is the model that the eval
    is compared with; or `baseline` are the results that it is, None also where their file is yet to be written, and
    `differs` says which settings are others there. `typed` is what was given on the command line. With `source` nothing
    is rolled out.
    """

    config: EvalConfig
    dataset: Dataset
    plan: Plan
    target: ModelTarget
    secrets: Mapping[str, str]
    notes: tuple[str, ...] = ()
    price: Price | None = None
    row_digests: Mapping[int, str] = field(default_factory=dict)
    plan_digest: str = ""
    last: LastRun | None = None
    smoke: Plan | None = None
    beside: BaselineModel | None = None
    baseline: StoredResults | None = None
    differs: tuple[str, ...] = ()
    contents: Mapping[int, Content] = field(default_factory=dict)
    typed: tuple[Override, ...] = ()
    source: Source | None = None

    @property
    def collected(self) -> Plan:
        """The runs that there is a test of."""
        return self.smoke or self.plan

    def as_smoke(self, n_rows: int, named_rows: Sequence[int] = ()) -> Prepared:
        """This eval as a smoke test of its first rows, and of those that a node id asks for."""
        planned = [row for row in named_rows if row in self.row_digests]
        return replace(self, smoke=self.plan.first(n_rows).with_named(planned, self.dataset.line))

    @property
    def prices(self) -> Mapping[bool, Price | None]:
        """What the models cost, by whether they are the baseline's."""
        return {False: self.price, **({True: self.beside.price} if self.beside is not None else {})}

    def cost_usd(self, record: RunRecord) -> float | None:
        """What a run's rollout cost, None where nobody knows."""
        price = self.prices[record.run.baseline]
        return None if price is None else price.cost_usd(record.usage)

    @property
    def short_secrets(self) -> list[str]:
        """Secrets whose values are too short to be redacted."""
        return [name for name, value in self.secrets.items() if len(value) < MIN_CHARS]

    @property
    def needs_every_run(self) -> str | None:
        """Why the gates cannot be decided before the last run, None where they can."""
        config = self.config
        may_grade = config.scoring.grader is not None or config.experiment.entrypoint is not None
        return curtailment.obstacle(config.gates, removable=may_grade)


def _stdin() -> str:
    return sys.stdin.read()


def prepare(
    path: Path | None,
    overrides: Sequence[Override],
    *,
    folder: Path = Path(),
    environ: Mapping[str, str],
    secrets_file: SecretsFile = None,
    read_stdin: Callable[[], str] = _stdin,
    listing: bool = False,
    updating: bool = False,
    compared: bool = True,
    named_rows: Sequence[int] = (),
) -> Prepared:
    """Check and plan the eval in `path`; without one, the eval that `overrides` describe, with `folder` as workspace.

    `listing` leaves secrets and keys alone, as nothing will run. `updating` lets the baseline's file be missing; an
    eval that is not `compared` has no baseline. `read_stdin` gives what the secrets file "-" holds; `named_rows` are
    rows that a node id asks for. Raises `ProblemsError` with every problem.
    """
    config = load_eval_config(path, overrides) if path else typed_eval_config(folder.absolute(), overrides)
    config = config if compared else replace(config, baseline=Baseline())
    problems: list[Problem] = []
    where = _named_at(config, overrides, "experiment")
    beside_where = _named_at(config, overrides, "baseline")

    def checked(step: Callable[[], Any]) -> Any:
        try:
            return step()
        except (ConfigError, DatasetError) as error:
            problems.extend(error.problems)

    dataset_plan = checked(lambda: _plan(config, named_rows))
    target = checked(lambda: resolve(config.experiment.model_path, config.model, environ, where=where))
    other = checked(lambda: beside(config, environ, beside_where))
    values = {}
    if not listing:
        asked = [(one, at) for one, at in ((target, where), (other, beside_where)) if one is not None]
        names = dict.fromkeys([*config.secrets, *filter(None, (one.api_key_env for one, _ in asked))])
        values = checked(lambda: resolve_secrets(names, secrets_file, environ, read_stdin))
        problems.extend(filter(None, (missing_extra(one, where=at) for one, at in asked)))
    baseline = checked(lambda: stored_baseline(config, updating))
    if problems:
        raise ProblemsError(problems)
    dataset, plan, notes, digests, contents = dataset_plan
    prepared = Prepared(
        config,
        dataset,
        plan,
        target,
        values,
        notes,
        row_digests=digests,
        beside=BaselineModel(config.baseline.model_path or "", other) if other is not None else None,
        baseline=baseline,
        contents=contents,
        typed=tuple(one for one in overrides if one.level == "command"),
    )
    if not listing:
        prepared = _priced(prepared, datetime.now(UTC))
    digest = plan_digest(identity(prepared))
    last = last_run(_runs_folder(config), digest)
    return replace(prepared, plan_digest=digest, last=last, differs=differs(prepared))


def _priced(prepared: Prepared, now: datetime) -> Prepared:
    """With the prices of its models. Raises `ProblemsError` where the cost is limited and one is not known."""
    config, other = prepared.config, prepared.beside
    model = config.experiment.model_path
    prepared = replace(prepared, price=price_of(model, prepared.target, config.prices, now))
    if other is not None:
        price = price_of(other.name, other.target, config.prices, now)
        prepared = replace(prepared, beside=replace(other, price=price))
    names = {False: model, True: other.name if other is not None else ""}
    unknown = [names[baseline] for baseline, price in prepared.prices.items() if price is None]
    if config.limits.max_cost_usd is not None and unknown:
        raise ProblemsError([_unknown_price(config, name) for name in unknown])
    return prepared


def baseline_path(config: EvalConfig) -> Path | None:
    """Where the results are that an eval is compared with."""
    return None if config.baseline.results is None else config.workspace / config.baseline.results


def stored_baseline(config: EvalConfig, updating: bool) -> StoredResults | None:
    """The results that an eval is compared with, None where it has none or is to make them."""
    path = baseline_path(config)
    if path is None or (updating and not path.exists()):
        return None
    return read_results(path, shown(config.path))


def differs(prepared: Prepared) -> tuple[str, ...]:
    """The settings that are others in the baseline's results."""
    if prepared.baseline is None:
        return ()
    config = prepared.config
    has_grader = config.scoring.grader is not None or config.experiment.entrypoint is not None
    scorers = (*config.scoring.eval_fns, *([GRADER_SCORE] if has_grader else []))
    here = results.published_config(_subject(prepared), _judging(config, scorers))
    return prepared.baseline.differs(here)


def _unknown_price(config: EvalConfig, name: str) -> Problem:
    model = toml(name)
    text = f"the price of {model} is not known, so its cost cannot be limited"
    return Problem(
        shown(config.path),
        f"[limits] max_cost_usd: {text}; add [prices] {model} = {{input = ..., output = ...}}, or limit max_tokens",
    )


def identity(prepared: Prepared) -> dict[str, Any]:
    """What makes a plan the same, see `history`."""
    config, plan, target, digests = prepared.config, prepared.plan, prepared.target, prepared.row_digests
    other = prepared.beside
    return {
        "eval": [os.path.relpath(config.path, config.workspace), config.name],
        "rows": sorted(
            digests.get(row, "") for span in plan.spans for row in range(span.first, span.first + span.n_rows)
        ),
        "n": config.evaluation.n,
        "model": [config.experiment.model_path, target.base_url],
        "agent": [config.experiment.rollout, config.experiment.entrypoint, config.agent.agent],
        "scorers": [config.scoring.grader, *config.scoring.eval_fns],
        "thresholds": [config.evaluation.pass_threshold, dict(config.scoring.thresholds), config.scoring.decide],
        **({"baseline": [other.name, other.target.base_url]} if other is not None else {}),
    }


def _named_at(config: EvalConfig, overrides: Sequence[Override], table: str) -> str:
    """Where the model of a table is named: the option or variable that holds, else the config."""
    named = [one for one in overrides if (one.table, one.key) == (table, "model_path") and one.level != "ini"]
    return named[-1].origin if named else shown(config.path)


def output_problems(prepared: Prepared) -> list[Problem]:
    """What is known, before anything is paid for, to keep the results from being written where they are asked for."""
    path, baseline = results_path(prepared.config), baseline_path(prepared.config)
    if path is not None and path == baseline:
        return [Problem(f"results file {path}", "is the baseline's, which only --osmosis-update-baseline writes")]
    found = results.obstacle(path) if path is not None else None
    return [Problem(f"results file {path}", f"cannot be written: {found}")] if found else []


def update_problems(prepared: Prepared) -> list[Problem]:
    """The same of the baseline's file, where it is to be written."""
    path = baseline_path(prepared.config)
    found = results.obstacle(path) if path is not None else None
    return [Problem(f"baseline {path}", f"cannot be written: {found}")] if found else []


def results_path(config: EvalConfig) -> Path | None:
    """Where the results go beside the run directory."""
    return None if config.output.results is None else config.workspace / config.output.results


class _Planned(NamedTuple):
    dataset: Dataset
    plan: Plan
    notes: tuple[str, ...]
    digests: Mapping[int, str]
    contents: Mapping[int, Content]


def _plan(config: EvalConfig, named_rows: Sequence[int]) -> _Planned:
    path = locate(config.workspace, config.experiment.dataset, config.data.path)
    dataset = open_dataset(path, config.data.columns, shown(path))
    selected = select(len(dataset), config.selection, config.data.seed)
    rows = [row for row in named_rows if row < len(dataset)]
    notes, digests, contents = check_rows(dataset, sorted({*selected, *rows}))
    plan = Plan(
        name=config.name,
        path=str(config.path),
        dataset=str(path),
        spans=spans_of(selected, dataset.line),
        n=config.evaluation.n,
        selection=selected.text,
        baseline=config.baseline.model_path is not None,
        granularity=config.execution.granularity,
    )
    return _Planned(dataset, plan.with_named(rows, dataset.line), notes, digests, contents)


class EvalRun:
    """One execution of a prepared eval over `selected` runs: its `own`, and those `of_baseline`. It is `partial` where
    the plan holds others of its own too, or as a smoke test, whatever it holds.

    `rerun` gives the command that repeats a run; `pythonpath` are further import roots; `every` hears of each run that
    is done, from the engine's thread; `hosts` processes roll out unless the config says how many, made by `spawn`
    where that is given. `inline` is for debuggers: hosts get one run at a time, without deadlines. With
    `keep_conversations` those of runs that are done are in `conversations`, for whoever takes them out. With
    `stop_when_decided` a complete selection ends once its gates are decided, and is run in an order that favours no
    rows. With `update_baseline` its results are written as the baseline's too, and no gate compares them with that.
    """

    def __init__(
        self,
        prepared: Prepared,
        selected: Sequence[Run],
        *,
        environ: Mapping[str, str],
        rerun: Callable[[Run], str],
        every: Callable[[Run, Outcome], None],
        pythonpath: Sequence[str] = (),
        probe: bool = True,
        hosts: int = 1,
        spawn: Spawn | None = None,
        inline: bool = False,
        keep_conversations: bool = False,
        stop_when_decided: bool = False,
        update_baseline: bool = False,
    ) -> None:
        self.prepared = prepared
        self.selected = sorted(selected)
        self.own = [run for run in self.selected if not run.baseline]
        self.of_baseline = [run for run in self.selected if run.baseline]
        self.smoke = prepared.smoke is not None
        self.partial = self.smoke or self._lacks(baseline=False)
        self.conversations: dict[Run, Sequence[Mapping[str, Any]]] = {}
        self.results: Results | None = None
        self.written: list[Path] = []
        self.unwritten: list[str] = []
        self.gone = False
        self.updates_baseline = update_baseline and prepared.config.baseline.results is not None
        self._keep_conversations = keep_conversations
        self._curtailed = stop_when_decided and not self.partial and prepared.needs_every_run is None
        self._rerun = rerun
        self._began = time.monotonic()
        self._began_at = datetime.now(UTC)
        self._dataset_sha256 = prepared.dataset.digest()  # now, as it may be gone when the results are made
        if prepared.source is None:
            self.run_dir = _make_run_dir(prepared.config, self._began_at)
            _write_manifest(self.run_dir, prepared, self._began_at)
        else:
            self.run_dir = prepared.source.run.folder
        job = self._job(environ, pythonpath, probe, hosts)
        job = job if spawn is None else replace(job, spawn=spawn)
        if inline:
            job = replace(job, setup=_unlimited(job.setup), batch_size=1, hosts=1, watchdog_s=math.inf)
        journal = Journal(self.run_dir / "journal.jsonl", further=prepared.source is not None)
        self.engine = Engine(job, journal, every)

    def go(self, first: Sequence[Run] | None = None) -> None:
        """Let the model be probed and the selected runs be rolled out; only `first` as yet where that is given."""
        self.gone = True
        self._began = time.monotonic()
        order = shuffled(self.selected, self.prepared.config.data.seed) if self._curtailed else self.selected
        self.engine.submit(order if first is None else first)
        self.engine.go()

    def stop(self, reason: StopReason, text: str) -> None:
        """Begin nothing more: what was not begun is skipped with `text` as its reason. In flight goes on."""
        self.engine.stop(reason, text)

    def recorded(self, run: Run) -> dict[str, Any]:
        """What a scorer is asked with to score `run` again: its recorded conversation and its row."""
        events = replay(self.run_dir / "journal.jsonl")
        rollouts = (event for event in events if event["ev"] == "rollout" and Run.of(event) == run)
        last = max(rollouts, key=lambda event: event["attempt"])
        row = self.prepared.dataset.row(run.row)
        return {
            **Key(run, last["attempt"]).to_json(),
            "messages": last["messages"],
            "ground_truth": row.ground_truth,
            "record": row.record,
        }

    def discard(self) -> None:
        """End without a trace: the user's code did not load, nothing ran. A run that was there already stays."""
        self.engine.close()
        if self.prepared.source is None:
            shutil.rmtree(self.run_dir, ignore_errors=True)

    def never_ran(self, runs: Iterable[Run]) -> list[Run]:
        """Which of these runs, all of which are done, are pending."""
        return [record.run for record in self._records(runs) if record.status == "pending"]

    def properties(self, runs: Iterable[Run]) -> list[Property]:
        """What other tools read of a run that is done, or of those of a row that one test reports of."""
        records = self._records(runs)
        costs = [self.prepared.cost_usd(record) for record in records]
        if len(records) == 1:
            return properties_of(records[0], self.engine.judging, costs[0])
        return properties_of_row(records, self.engine.judging, costs)

    def _records(self, runs: Iterable[Run]) -> list[RunRecord]:
        return results.records_of(runs, self.engine.ledger.records)

    def finish(self, grace_s: float = 0.0) -> Results:
        """Close the engine and make the results. Idempotent."""
        if self.results is None:
            took_ms = (time.monotonic() - self._began) * 1000
            self.engine.close(grace_s)
            self._redact_log()
            self.results = self._results(took_ms)
        return self.results

    def add_verdicts(self, verdicts: Sequence[Verdict]) -> None:
        """Add what others decided on the results."""
        assert self.results is not None
        self.results = replace(self.results, verdicts=[*self.results.verdicts, *verdicts])

    @property
    def not_updated(self) -> str | None:
        """Why the results do not become the baseline, None where they do or where nobody asked for that."""
        assert self.results is not None
        if not self.updates_baseline:
            return None
        if self.partial:
            return f"{self._part} are no baseline"
        if self.results.stopped is not None:
            return f"the eval was stopped: {self.results.stopped}"
        if pending := self.results.count("pending"):
            return f"{plural(pending, 'run')} never ran"
        return None if self.results.measured else "no run was measured"

    def write_results(self) -> None:
        """Write results.json into the run directory, and where the config asks for it. Idempotent.

        The paths are in `written`, what kept others from being written is in `unwritten`. Where that was asked for,
        whole results become the baseline.
        """
        if self.written or self.unwritten:
            return
        assert self.results is not None
        paths = [self._place_of_results()]
        output = results_path(self.prepared.config)
        if output is not None:
            paths.append(output.with_name(f"{output.stem}.partial{output.suffix}") if self.partial else output)
        for path in paths:
            try:
                if self.engine.decided and path == paths[0]:
                    results.set_aside(path)
                self.written.append(results.write(path, self._text()))
            except OSError as error:
                self.unwritten.append(f"{shown(path)} could not be written: {error.strerror}")
        baseline = baseline_path(self.prepared.config)
        if baseline is not None and self.updates_baseline and self.not_updated is None:
            self._write_baseline(baseline)

    def _text(self) -> Iterator[str]:
        """What the results' file holds, piece by piece: put into words once, then taken from where it stands."""
        assert self.results is not None
        if not self.written:
            yield from self.results.text()
            return
        with self.written[0].open(encoding="utf-8") as pieces:
            yield from pieces

    def _write_baseline(self, path: Path) -> None:
        assert self.results is not None
        before = self.prepared.baseline
        was = "" if before is None else f"; it was {score(before.pass_rate)}"
        said = f"pass rate {score(self.results.overall.pass_rate)}{was}"
        try:
            self.engine.notices.append(f"baseline updated: {shown(results.write(path, self._text()))} ({said})")
        except OSError as error:
            self.unwritten.append(f"the baseline {shown(path)} could not be written: {error.strerror}")

    def compare_among(self, n_evals: int, p: float) -> None:
        """Decide the comparison as one of `n_evals` that were looked at, with the p that Holm gives it."""
        assert self.results is not None
        assert self.results.comparison is not None
        compared = self.results.comparison.among(n_evals, p)
        verdicts = [
            self._regression(verdict.rule, compared) if verdict.rule is not None and _is_loss(verdict.rule) else verdict
            for verdict in self.results.verdicts
        ]
        self.results = replace(self.results, comparison=compared, verdicts=verdicts)

    def _place_of_results(self) -> Path:
        """Where the run directory keeps the results. Only a whole decision takes the place of an earlier one."""
        replaces = self.prepared.source is None or self.engine.decided
        return self.run_dir / ("results.json" if replaces else "results.partial.json")

    def _job(self, environ: Mapping[str, str], pythonpath: Sequence[str], probe: bool, hosts: int) -> Job:
        config = self.prepared.config
        return Job(
            setup=host_setup(
                self.prepared, self.run_dir / "artifacts", pythonpath, with_baseline=bool(self.of_baseline)
            ),
            dataset=self.prepared.dataset,
            judging=_judging(config),
            describe=self._describe,
            environ={**environ, **config.env, **self.prepared.secrets},
            run_dir=self.run_dir,
            batch_size=config.evaluation.batch_size,
            max_errors=len(self.own) if self.smoke else _max_errors(config.limits, len(self.own)),
            max_errors_said=_max_errors_said(config.limits, len(self.own)),
            spending=self._spending(),
            limits=_rates(config),
            cost_usd=self.prepared.cost_usd,
            n_runs=len(self.selected),
            decided=Curtailment(config.gates, self.own).done if self._curtailed else undecided,
            seed=config.sampling.seed,
            probes=self._probes() if probe and self.prepared.source is None else (),
            hosts=min(config.execution.hosts or hosts, config.evaluation.batch_size),
            watchdog_s=config.execution.watchdog_s,
            contents=self.prepared.contents,
            circumstances=json.dumps(sorted(config.env.items())),
            again=self._again(),
        )

    def _spending(self) -> Spending:
        """What may be spent. Stored rollouts are paid for."""
        limits = self.prepared.config.limits
        if self.prepared.source is not None:
            return Spending(max_duration_s=limits.max_duration_s)
        return Spending(limits.max_tokens, limits.max_cost_usd, limits.max_duration_s)

    def _again(self) -> Again | None:
        source = self.prepared.source
        return None if source is None else Again(source.rollouts, source.gone, source.rescore, not self.partial)

    def _probes(self) -> list[bool]:
        """The models to ask one question first, by whether they are the baseline's: those that any run asks."""
        other = self.prepared.beside
        asked = {False: (self.prepared.target, self.own)}
        if other is not None:
            asked[True] = (other.target, self.of_baseline)
        return [baseline for baseline, (target, runs) in asked.items() if runs and target.provider != "demo"]

    def _describe(self, record: RunRecord, judging: Judging, transcript: Transcript) -> Outcome:
        if self._keep_conversations:
            self.conversations[record.run] = transcript.messages
        outcome = outcome_of(
            record,
            judging,
            messages=transcript.messages,
            details=transcript.details,
            output=transcript.output,
            where=f"{self.prepared.dataset.display}:{transcript.line}",
            rerun=self._rerun(record.run),
        )
        if self.prepared.source is not None:  # the rollout took its time then, and not now
            outcome = replace(outcome, duration_s=record.scoring_ms / 1000)
        return judged_by_no_score(outcome) if self.smoke else outcome

    def _redact_log(self) -> None:
        """The log holds what subprocesses wrote straight to it; one that is empty or cannot be redacted is removed."""
        log = self.run_dir / "host.log"
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        try:
            log.write_text(_redaction(self.prepared).text(text), encoding="utf-8")
        except OSError as error:
            self.engine.notices.append(f"{shown(log)} could not be written: {error.strerror}")
            text = ""
        if not text:
            log.unlink(missing_ok=True)

    @property
    def _part(self) -> str:
        """How much of the plan was selected, in words."""
        plan, n_selected = self.prepared.plan, len(self.own)
        if plan.granularity == "row" and not self.smoke:
            return f"{len({run.row for run in self.selected}):,} of {plan.n_rows:,} rows"
        return f"{n_selected:,} of {plan.n_runs:,} runs"

    def _results(self, duration_ms: float) -> Results:
        config, judging = self.prepared.config, self.engine.judging
        records = self._records(self.own)
        by_function, overall = results.summarize(records, judging, config.evaluation.n)
        n_planned = self.prepared.plan.n_runs
        stop, ran = self.engine.stopped, all(record.status != "pending" for record in records)
        if stop is not None and (stop.reason == "closed" or (stop.reason == "decided" and ran)):
            stop = None
        source = self.prepared.source
        made = Results(
            subject=_subject(self.prepared),
            judging=judging,
            records=records,
            partial=self.partial,
            stopped=None if stop is None else stop.text,
            duration_ms=duration_ms if source is None else source.rollouts.took_ms,
            by_function=by_function,
            overall=overall,
            provenance={
                **_provenance(self.prepared, self.run_dir, self._began_at),
                "dataset_sha256": self._dataset_sha256,
            },
            price=self.prepared.price,
            row_digests=self.prepared.row_digests,
            smoke_of=n_planned if self.smoke else None,
            decided=stop is not None and stop.reason == "decided",
            throttling=self._throttling(),
            side=self._side(judging),
        )
        compared = self._compared(made)
        last = self.prepared.last
        return replace(
            made,
            comparison=compared,
            verdicts=[self._verdict(rule, made, compared) for rule in config.gates],
            flips=flips(last, made.shares()) if last is not None and made.whole else None,
            redecided=None if source is None else self._redecided(source, made, duration_ms),
        )

    def _side(self, judging: Judging) -> Side | None:
        """What the baseline's model made of its runs."""
        other = self.prepared.beside
        if other is None or not self.of_baseline:
            return None
        records = self._records(self.of_baseline)
        by_function, overall = results.summarize(records, judging, self.prepared.config.evaluation.n)
        return Side(other.name, records, by_function, overall, other.price)

    def _lacks(self, *, baseline: bool) -> bool:
        """True where planned runs of a model are not selected."""
        planned = (run for run in self.prepared.plan.runs() if run.baseline == baseline)
        return not {*(self.of_baseline if baseline else self.own)}.issuperset(planned)

    def _compared(self, made: Results) -> Comparison | None:
        """What became of the rows against the baseline; None without one, of a part of the plan, or of one that ended
        when its gates were decided: which rows it measured hung on how they came out."""
        stored, side = self.prepared.baseline, made.side
        allowed = next((-rule.minimum for rule in self.prepared.config.gates if _is_loss(rule)), 0.0)
        if self.partial or made.decided:
            return None
        if stored is not None:
            matched = comparison.matched(made.row_runs(), stored.rows)
            differs, since = self.prepared.differs, stored.started_at
            return comparison.compare(shown(stored.path), matched, started_at=since, allowed=allowed, differs=differs)
        if side is None or self._lacks(baseline=True):
            return None
        matched = comparison.beside(made.row_runs(), made.row_runs(side))
        stopped = self.engine.baseline_stopped
        return comparison.compare(side.model, matched, allowed=allowed, stopped=stopped)

    def _verdict(self, rule: GateRule, made: Results, compared: Comparison | None) -> Verdict:
        if self.partial:
            return gates.partial(rule, f"smoke: {self._part}" if self.smoke else self._part)
        if _is_loss(rule):
            return self._regression(rule, compared)
        return gates.decide(rule, results.runs_for(rule, made.records, made.judging))

    def _regression(self, rule: GateRule, compared: Comparison | None) -> Verdict:
        if self.updates_baseline:
            return gates.not_decided(rule, "a new baseline is asked for")
        if self._lacks(baseline=True):
            return gates.partial(
                rule, f"{len(self.of_baseline):,} of {self.prepared.plan.n_runs:,} of the baseline's runs"
            )
        if compared is None:  # of a stored run without one
            return gates.not_measured(rule, "no run of the baseline's model is stored")
        return comparison.decide(rule, compared)

    def _throttling(self) -> Throttling:
        engine = self.engine
        paused = engine.throttle
        return Throttling(paused.pauses, paused.paused_s, paused.least, paused.limit, engine.held_s)

    def _redecided(self, source: Source, made: Results, duration_ms: float) -> Redecided:
        """What the verdicts came of, and against those before."""
        before = source.run.results
        found = turned(before, made.to_json()) if before is not None else ()
        previous = None
        if before is not None:
            previous = results.aside(self.run_dir / "results.json").name if self.engine.decided else "results.json"
        return Redecided(source.rolled_out_at, duration_ms, self.engine.kept, previous, *found)


def host_setup(prepared: Prepared, artifacts: Path, pythonpath: Sequence[str], *, with_baseline: bool = False) -> Setup:
    """What a host needs to load the eval's code and to run it; `with_baseline` also to ask the baseline's model."""
    config = prepared.config
    folder, entrypoint = None, None
    if config.experiment.rollout is not None and config.experiment.entrypoint is not None:
        folder = config.workspace / "rollouts" / config.experiment.rollout
        entrypoint = str(folder / config.experiment.entrypoint)
    return Setup(
        role="roll" if prepared.source is None else "score",
        workspace=str(config.workspace),
        roots=(*([str(folder)] if folder else []), str(config.workspace), *pythonpath),
        target=prepared.target.to_json(),
        baseline=prepared.beside.target.to_json() if prepared.beside is not None and with_baseline else None,
        limit=config.evaluation.batch_size,
        permits=any(_rates(config)),
        agent=config.agent.agent,
        entrypoint=entrypoint,
        grader=config.scoring.grader,
        eval_fns=config.scoring.eval_fns,
        sampling=_request_sampling(config),
        secrets=tuple(config.secrets),
        artifacts=str(artifacts),
        max_turns=config.agent.max_turns,
        agent_timeout_s=config.evaluation.agent_workflow_timeout_s,
        grader_timeout_s=config.evaluation.grader_timeout_s,
    )


def _judging(config: EvalConfig, scorers: tuple[str, ...] = ()) -> Judging:
    return Judging(scorers, config.evaluation.pass_threshold, config.scoring.thresholds, config.scoring.decide)


def _is_loss(rule: GateRule) -> bool:
    return rule.metric == "max_regression"


def _unlimited(setup: Setup) -> Setup:
    """`setup` for code that somebody steps through: one rollout at a time, without deadlines."""
    return replace(setup, limit=1, agent_timeout_s=math.inf, grader_timeout_s=math.inf)


def _rates(config: EvalConfig) -> Rates:
    return Rates(config.execution.requests_per_minute, config.execution.tokens_per_minute)


def _max_errors(limits: Limits, n_runs: int) -> int:
    """How many runs may stay unmeasured: 29% of 100 are 29, though 0.29 * 100 is a little less in floats."""
    bound = limits.max_errors
    return math.floor(round(bound * n_runs, 6)) if limits.max_errors_is_share else int(bound)


def _max_errors_said(limits: Limits, n_runs: int) -> str:
    """The bound as a user knows it: "10% of 40 runs"."""
    if limits.max_errors_is_share:
        return f"{100 * limits.max_errors:.12g}% of {plural(n_runs, 'run')}"
    return plural(int(limits.max_errors), "run")


def _request_sampling(config: EvalConfig) -> dict[str, Any]:
    """What `[sampling]` puts into a request's body; the seed is each run's own."""
    sampling = config.sampling
    given = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "stop": list(sampling.stop) or None,
    }
    return {**{name: value for name, value in given.items() if value is not None}, **sampling.extra_body}


def sampling_text(prepared: Prepared) -> str:
    """`[sampling]` in words, for the header: "temperature 1, seed 0", or "the model's defaults"."""
    config, target = prepared.config, prepared.target
    given = [f"{name} {value}" for name, value in _request_sampling(config).items()]
    if config.sampling.seed is not None:
        aside = " (sent where the provider takes one)" if target.client == "litellm" else ""
        aside = aside if target.seed_key is not None else " (not sent: this provider takes none)"
        given.append(f"seed {config.sampling.seed}{aside}")
    return ", ".join(given) or "the model's defaults"


def limits_said(prepared: Prepared) -> list[str]:
    """The limits of the provider in words, for the header, and how long the eval takes at the least under each."""
    requests, tokens = _rates(prepared.config)
    n_runs, last, said = prepared.collected.n_rollouts, prepared.last, []
    if requests is not None:
        least = seconds(least_s(n_runs, requests))
        said.append(f"{plural(requests, 'request')} a minute: at least {least} at one request a rollout")
    if tokens is not None:
        about = ""
        if last is not None and last.total_tokens:
            about = (
                f": about {seconds(least_s(last.total_tokens * n_runs / last.n_runs, tokens))} by the last run's tokens"
            )
        said.append(f"{plural(tokens, 'token')} a minute{about}")
    return said


def _subject(prepared: Prepared) -> Subject:
    """What was evaluated: of stored rollouts what they were of then."""
    config = prepared.config
    if prepared.source is not None:
        subject = prepared.source.subject
        now = {"path": shown(config.path), "overridden": [*config.overridden, *config.preset]}
        return replace(subject, name=config.name, extra={**subject.extra, **now})
    return Subject(
        name=config.name,
        model=config.experiment.model_path,
        n=config.evaluation.n,
        extra={
            "path": shown(config.path),
            "dataset": prepared.dataset.display,
            "selection": prepared.plan.selection,
            "batch_size": config.evaluation.batch_size,
            "sampling": {
                **_request_sampling(config),
                "seed": config.sampling.seed if prepared.target.seed_key is not None else None,
            },
            "overridden": [*config.overridden, *config.preset],
        },
    )


def _provenance(prepared: Prepared, run_dir: Path, began_at: datetime) -> dict[str, Any]:
    began = began_at.isoformat(timespec="milliseconds")
    return {
        "run_dir": shown(run_dir),
        "plan_digest": prepared.plan_digest,
        "started_at": began if prepared.source is None else prepared.source.rolled_out_at,
        "finished_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "pytest_osmosis": pytest_osmosis.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def _runs_folder(config: EvalConfig) -> Path:
    return config.workspace / config.output.dir if config.output.dir else config.workspace / ".osmosis" / "runs"


def _make_run_dir(config: EvalConfig, now: datetime) -> Path:
    """A new run directory, in a folder that git ignores."""
    runs = _runs_folder(config)
    runs.mkdir(parents=True, exist_ok=True)
    if not config.output.dir:
        ignore = config.workspace / ".osmosis" / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
    run_dir = runs / f"{config.name}-{now:%Y%m%dT%H%M%SZ}-{randomness.token_hex(3)}"
    run_dir.mkdir()
    return run_dir


def _redaction(prepared: Prepared) -> Redaction:
    return Redaction({**secret_headers(prepared.target.headers), **prepared.secrets})


def _beside(other: BaselineModel) -> dict[str, Any]:
    return {"model": other.name, "target": {**other.target.to_json(), "headers": sorted(other.target.headers)}}


def _write_manifest(run_dir: Path, prepared: Prepared, began_at: datetime) -> None:
    """What was asked for. Names of secrets, never values."""
    config, subject = prepared.config, _subject(prepared)
    manifest = {
        "schema_version": results.SCHEMA_VERSION,
        "eval": config.name,
        "started_at": began_at.isoformat(timespec="milliseconds"),
        "folder": str(absolute(run_dir)),
        "config": shown(config.path),
        "config_text": None if config.text is None else _redaction(prepared).text(config.text),
        "overridden": list(config.overridden),
        "preset": list(config.preset),
        "typed": json.loads(_redaction(prepared).text(json.dumps(_typed(prepared)))),
        "plan": prepared.plan.to_json(),
        "subject": {"model": subject.model, "n": subject.n, "extra": dict(subject.extra)},
        "target": {**prepared.target.to_json(), "headers": sorted(prepared.target.headers)},
        "baseline": None if prepared.beside is None else _beside(prepared.beside),
        "plan_digest": prepared.plan_digest,
        "secrets": list(config.secrets),
        "workspace": str(config.workspace),
        "pid": os.getpid(),
    }
    text = json.dumps(manifest, indent=2, default=str)
    (run_dir / "manifest.json").write_text(text + "\n", encoding="utf-8")


def _typed(prepared: Prepared) -> list[dict[str, Any]]:
    """What was typed of the eval, to be read back from any folder."""
    return [
        {
            "table": one.table,
            "key": one.key,
            "value": prepared.config.data.path if (one.table, one.key) == OPTIONS["dataset"] else one.value,
            "below": one.below,
            "as_toml": one.as_toml,
        }
        for one in prepared.typed
        if one.table != "output"
    ]
