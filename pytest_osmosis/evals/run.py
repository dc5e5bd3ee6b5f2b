"""`EvalRun`: one execution of an eval, from the start of its hosts until its engine is closed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from pytest_osmosis import seams
from pytest_osmosis.engine.engine import Engine
from pytest_osmosis.engine.notices import Notices
from pytest_osmosis.errors import JournalError
from pytest_osmosis.evals.cassettes import (
    FinishedCassette,
    check_replay,
    finish_cassette,
    missing_text,
    unasked_text,
    unrecorded_text,
)
from pytest_osmosis.evals.engine_job import RunSettings, engine_job, may_end_early, most_errors_of, worktree_of
from pytest_osmosis.evals.output_files import prime_folder
from pytest_osmosis.evals.prepared import Prepared, SelectedRuns, pass_rule
from pytest_osmosis.evals.run_directory import complete_manifest, provenance_of, redact_log, redacted_log, utc_text
from pytest_osmosis.formats.codec import encode
from pytest_osmosis.git import GitQuery, GitState
from pytest_osmosis.host.protocol import Key, ScoringFields, Setup, scoring_fields
from pytest_osmosis.record.journal import replay
from pytest_osmosis.record.plan import shuffled, spans_of
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.failure_text import outcome_of
from pytest_osmosis.report.junit import Property, properties_of
from pytest_osmosis.results.conclude import EvalFacts, Rules
from pytest_osmosis.results.results import BaselineFile, ShardFacts, max_errors_text
from pytest_osmosis.text.names import absolute, shown
from pytest_osmosis.verdicts.pass_rule import Outcome, PassRule, Transcript, judged_by_no_score, kind_of


@dataclass(eq=False)
class EvalRun:
    """One execution of a prepared eval: `start` makes it, `evals.finish` closes it and makes its results.

    `cassette` is what became of the eval's cassette, once it is closed. `facts` are those of this session.
    """

    prepared: Prepared
    selected: SelectedRuns
    settings: RunSettings
    directory: RunDirectory
    engine: Engine
    outcomes: RunOutcomes
    provenance: Mapping[str, Any]
    facts: EvalFacts
    git: GitQuery | None = None
    listeners: Sequence[seams.Heartbeat | seams.GrowingPrimeFiles] = ()
    cassette: FinishedCassette | None = None
    ended_at: datetime | None = None
    _began_s: float | None = None
    _ended_s: float | None = None
    _closed: bool = False

    @property
    def began(self) -> bool:
        """True once `go` was called."""
        return self._began_s is not None

    @property
    def duration_ms(self) -> float:
        """The time from `go` until the last run was done, so without the evals before and after; 0 before either."""
        began_s, ended_s = self.span_s or (0.0, 0.0)
        return (ended_s - began_s) * 1000

    @property
    def span_s(self) -> tuple[float, float] | None:
        """The monotonic times of `go` and of the end of the last run, None before either."""
        return None if self._began_s is None or self._ended_s is None else (self._began_s, self._ended_s)

    @property
    def notices(self) -> Notices:
        return self.engine.notices

    @classmethod
    def start(
        cls,
        prepared: Prepared,
        selected: SelectedRuns,
        settings: RunSettings,
        *,
        rerun: Callable[[RunId], str],
        on_done: Callable[[RunId, Outcome], None],
        hosts_wait: bool = False,
    ) -> EvalRun:
        """Open the run directory and start the hosts, which load the user's code. No model is asked before `go`.

        With `hosts_wait`, hosts start once `start_hosts` is called.
        `rerun` returns the command that repeats a run; `on_done` is called for each run that is done, in the engine's
        thread. Raises `JournalError` if the directory cannot be written, or another process writes to its journal, and
        `CodeError` if the files of the commit that the config names cannot be checked out, and `CassetteError` if too
        many of the selected runs are not in the cassette of a replay.
        """
        runs, cassette = selected.runs, prepared.models.cassette if prepared.source.asks_models else None
        if cassette is not None and runs:
            check_replay(cassette, runs, most_errors_of(prepared, selected))
        began_at = datetime.now(UTC)
        worktree = worktree_of(prepared, settings.worktrees)
        directory, journal = prepared.source.open_run(prepared, began_at)
        provenance = provenance_of(prepared, directory, began_at)
        queries = settings.git if prepared.commit is None else None
        git = None if queries is None else queries.of(prepared.config.workspace)
        outcomes = RunOutcomes(prepared, rerun, settings.keep_conversations)
        updates = settings.update_baseline and prepared.config.baseline.results is not None
        facts = facts_at_begin(prepared, selected, provenance, utc_text(began_at), updates_baseline=updates)
        job = engine_job(
            prepared, selected, settings, directory, outcomes.describe, outcomes.shows, worktree, encode(facts)
        )
        url, base = prepared.config.output.heartbeat_url, prime_folder(prepared)
        listeners: list[seams.Heartbeat | seams.GrowingPrimeFiles] = []
        if url is not None and prepared.source.asks_models:
            listeners.append(seams.Heartbeat(url, runs))
        if base is not None and prepared.source.asks_models:
            listeners.append(
                seams.GrowingPrimeFiles(directory, base, runs, lambda: engine.recorder.pass_rule, prepared.redaction)
            )

        def done(run: RunId, outcome: Outcome) -> None:
            on_done(run, outcome)
            for each in listeners:
                each.run_done(run)

        engine = Engine(job, journal, done)
        if cassette is not None and (missing := missing_text(cassette, runs)) is not None:
            engine.notices.add(missing)
        if (said := selected.companions_text) is not None:
            engine.notices.alert(said)
        if not hosts_wait:
            engine.start()
        return cls(prepared, selected, settings, directory, engine, outcomes, provenance, facts, git, listeners)

    def start_hosts(self) -> None:
        """Start the hosts, if `start` has not."""
        if not self.engine.is_started:
            self.engine.start()

    def host_log_text(self) -> str:
        return redacted_log(self.directory, self.prepared)

    def discard(self) -> None:
        """Close the engine and remove the run directory, unless it holds stored rollouts."""
        self.engine.close()
        for listener in self.listeners:
            listener.close()
        self.prepared.source.discard(self.directory)

    def go(self, first: Sequence[RunId] | None = None) -> None:
        """Probe the models, then perform the selected runs; with `first` only those, until more are submitted."""
        self._complete_manifest(self._code_version(waits=False))
        self._began_s = time.monotonic()
        runs = self.selected.runs
        if may_end_early(self.prepared, self.selected, self.settings):
            runs = shuffled(runs, self.prepared.config.data.seed)  # plan order would measure the first rows only
        self.engine.submit(runs if first is None else first)
        self.engine.go()

    @property
    def pass_rule(self) -> PassRule:
        return self.engine.recorder.pass_rule

    def record(self, run: RunId) -> RunRecord:
        """Return the record of a run; a run without any event is pending."""
        return self.engine.ledger.records.get(run) or RunRecord(run)

    def properties(self, runs: Sequence[RunId]) -> list[Property]:
        """Return the properties of a unit that is done for other tools: of its run, or of all runs of its row."""
        records = [self.record(run) for run in runs]
        costs = [self.prepared.cost_usd(record) for record in records]
        replayed: list[Property] = [("osmosis.replayed", "true")] if self.prepared.replays else []
        return [*properties_of(records, self.pass_rule, costs), *replayed]

    @property
    def host_arguments(self) -> tuple[Setup, Mapping[str, str]]:
        return self.engine.job.setup, self.engine.job.environ.merged

    def scoring_request(self, run: RunId) -> ScoringFields:
        """Return what a scorer needs to score a run again: its recorded conversation and its row."""
        rollouts = (event for event in replay(self.directory.journal) if event["ev"] == "rollout")
        last = max((event for event in rollouts if RunId.of(event) == run), key=lambda event: event["attempt"])
        row = self.prepared.dataset.row(run.row)
        return scoring_fields(Key(run, last["attempt"]), last, row.ground_truth, row.record)

    def stop_clock(self) -> None:
        """End the time of this eval, because every selected run is done. Idempotent; for any thread."""
        if self._ended_s is None:
            self._ended_s, self.ended_at = time.monotonic(), datetime.now(UTC)

    def _complete_manifest(self, state: GitState) -> None:
        """Add the code that was loaded to the manifest, and the git state of the workspace, as far as it is known."""
        if not self.prepared.source.asks_models:
            return
        try:
            complete_manifest(self.directory, self.engine.loop.code, state)
        except JournalError as error:
            self.notices.add(str(error))

    def _code_version(self, *, waits: bool = True) -> GitState:
        """Return the version of the code that ran: the commit that the config names, or the one in the workspace."""
        if self.prepared.commit is not None:
            return GitState(self.prepared.commit.sha, dirty=False)
        if self.git is None:
            return GitState()
        return self.git.state() if waits else self.git.so_far

    def close(self, grace_s: float = 0.0) -> None:
        """Close the engine after at most `grace_s` seconds for the runs in flight. Idempotent."""
        if self._closed:
            return
        self.engine.close(grace_s)
        self.stop_clock()
        self._closed = True
        for listener in self.listeners:
            listener.close()
        if self.prepared.models.cassette is not None:
            records = list(map(self.record, self.selected.runs))
            self.cassette = finish_cassette(self.prepared.models.cassette, self.directory, records)
            asks = self.prepared.source.asks_models
            if asks and (text := unasked_text(self.prepared.models.cassette, records)) is not None:
                self.notices.add(text)
        version = self._code_version()
        self.provenance = {**self.provenance, **version.to_json()}
        if self.began:
            self._complete_manifest(version)  # git may have taken its time
        for note in self.prepared.source.notes(self):
            self.notices.add(note)
        for notice in filter(None, (listener.notice for listener in self.listeners)):
            self.notices.add(notice)
        if (failure := redact_log(self.directory, self.prepared)) is not None:
            self.notices.add(failure)


@dataclass
class RunOutcomes:
    """Makes the outcome of each run from its record. `rerun` returns the command that repeats a run.

    With `keep_conversations`, `conversations` holds those of finished runs until somebody takes them out. `reasons`
    holds a line on each run that was reported as failed or as an error, `unrecorded` what runs of a replay asked that
    is not in the cassette.
    """

    prepared: Prepared
    rerun: Callable[[RunId], str]
    keep_conversations: bool
    conversations: dict[RunId, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    reasons: dict[RunId, str] = field(default_factory=dict)
    unrecorded: dict[RunId, str] = field(default_factory=dict)

    def shows(self, record: RunRecord, pass_rule: PassRule) -> bool:
        """Return True if the outcome of a stored run needs its conversation."""
        return self.keep_conversations or kind_of(record, pass_rule) in ("failed", "error")

    def describe(self, record: RunRecord, pass_rule: PassRule, transcript: Transcript) -> Outcome:
        """Return the outcome of a run that is done. The engine calls this in its own thread."""
        if self.keep_conversations:
            self.conversations[record.run] = transcript.messages
        where = self.prepared.dataset.where(record.run.row, transcript.line)
        outcome = outcome_of(record, pass_rule, transcript, where, self.rerun)
        if not self.prepared.source.asks_models:  # the rollout took its time in an earlier session
            outcome = replace(outcome, duration_s=record.scoring_ms / 1000)
        if self.prepared.smoke is not None:
            outcome = judged_by_no_score(outcome)
        if outcome.kind in ("failed", "error"):
            self.reasons[record.run] = outcome.reason
        if (text := unrecorded_text(self.prepared.models.cassette, record, transcript.details)) is not None:
            self.unrecorded[record.run] = text
        return outcome


# -- the facts that results need and events lack -----------------------------------------------------------


def planned_shard(prepared: Prepared, selected: SelectedRuns, rules: Rules) -> ShardFacts | None:
    """Return the shard of an eval run that begins, None if it is not limited to one."""
    shard, part, stored = prepared.shard, prepared.part, prepared.models.baseline_results
    if shard is None or part is None:
        return None
    limits, whole = prepared.config.limits, selected.awaits_merge
    return ShardFacts(
        index=shard.index,
        of=shard.of,
        rows=part.n_rows,
        planned_rows=prepared.plan.n_rows,
        planned_runs=prepared.plan.n_runs,
        whole=whole,
        missing=None if whole else selected.share_text,
        decides=(whole or not selected.partial) and rules.decide,
        max_errors=limits.max_errors,
        max_errors_is_share=limits.max_errors_is_share,
        baseline=None if stored is None else BaselineFile.of(stored.path, shown(stored.path)),
    )


def facts_at_begin(
    prepared: Prepared, selected: SelectedRuns, provenance: Mapping[str, Any], session: str, *, updates_baseline: bool
) -> EvalFacts:
    """Return the facts of the session that began at `session`."""
    config, models, limits = prepared.config, prepared.models, prepared.config.limits
    stored, other = models.baseline_results, models.baseline
    share = f"only {len(selected.of_baseline):,} of the baseline's {selected.plan.n_runs:,} runs selected"
    facts = EvalFacts(
        session=session,
        description=prepared.description,
        pass_rule=pass_rule(config).to_json(),
        gates=config.gates,
        provenance=provenance,
        prices=prepared.all_prices,
        baseline=None if other is None or not selected.of_baseline else other.name,
        baseline_results=None if stored is None else BaselineFile.of(stored.path, str(absolute(stored.path))),
        selected=list(_spans(selected.runs)),
        partial=selected.partial,
        part=selected.share_text if selected.partial else None,
        baseline_part=share if other is not None and selected.lacks_baseline else None,
        new_baseline=updates_baseline,
        smoke=selected.smoke,
        n_planned=prepared.plan.n_runs,
        previous=None if prepared.last is None else str(absolute(prepared.last.path)),
        shard=None,
        max_errors=max_errors_text(limits),
        took_ms=prepared.source.rollouts_took_ms(0.0),
        is_part=prepared.source.leaves_out(selected),
        status_before=prepared.source.status_before,
    )
    return replace(facts, shard=planned_shard(prepared, selected, facts))


def _spans(runs: Sequence[RunId]) -> Iterator[tuple[ModelTag, int, int, int]]:
    """Yield runs as (model, index, first row, number of rows)."""
    ordered = sorted(runs, key=lambda run: (run.model, run.index, run.row))
    for (model, index), group in groupby(ordered, key=lambda run: (run.model, run.index)):
        for span in spans_of((run.row for run in group), lambda row: row):
            yield model, index, span.first, span.n_rows
