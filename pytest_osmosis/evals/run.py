"""`EvalRun`: one execution of an eval, from its selection to its results."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_osmosis.engine.actor import Engine
from pytest_osmosis.engine.host_connection import Spawn
from pytest_osmosis.engine.job import StopReason, Transcript
from pytest_osmosis.evals.conclude import Conclusion, is_loss
from pytest_osmosis.evals.engine_job import job_of, unlimited
from pytest_osmosis.evals.prepared import Prepared, baseline_path, results_path
from pytest_osmosis.evals.run_directory import new_run_dir, provenance_of, redact_log, redacted_log
from pytest_osmosis.evals.selection import Selection
from pytest_osmosis.host.protocol import Key, ScoringFields
from pytest_osmosis.record.journal import Journal, replay
from pytest_osmosis.record.plan import shuffled
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.failure_text import outcome_of
from pytest_osmosis.report.properties import Property, properties_of, properties_of_row
from pytest_osmosis.results import files, results
from pytest_osmosis.results.publish import published_text
from pytest_osmosis.results.results import Results
from pytest_osmosis.text.numbers import plural, score
from pytest_osmosis.text.paths import shown
from pytest_osmosis.verdicts.gates import Verdict
from pytest_osmosis.verdicts.pass_rule import Outcome, PassRule, judged_by_no_score


class EvalRun:
    """One execution of a prepared eval over `selected` runs.

    `rerun` gives the command that repeats a run; `pythonpath` are further import roots; `every` hears of each run that
    is done, from the engine's thread; `hosts` processes roll out unless the config says how many, made by `spawn`
    where that is given. `inline` is for debuggers: hosts get one run at a time, without deadlines. With
    `keep_conversations` those of runs that are done are in `conversations`, for whoever takes them out. With
    `stop_when_decided` a complete selection ends once its gates are decided, and is run in an order that favours no
    rows; with `stops_at_failures` a failure may end it. With `update_baseline` its results are written as the
    baseline's too, and no gate compares them with that.
    """

    def __init__(
        self,
        prepared: Prepared,
        selected: Sequence[RunId],
        *,
        environ: Mapping[str, str],
        rerun: Callable[[RunId], str],
        every: Callable[[RunId, Outcome], None],
        pythonpath: Sequence[str] = (),
        probe: bool = True,
        hosts: int = 1,
        spawn: Spawn | None = None,
        inline: bool = False,
        keep_conversations: bool = False,
        stop_when_decided: bool = False,
        stops_at_failures: bool = False,
        update_baseline: bool = False,
        partial: bool | None = None,
    ) -> None:
        self.prepared = prepared
        self.selection = Selection.of(prepared, selected, partial=partial)
        self.conversations: dict[RunId, Sequence[Mapping[str, Any]]] = {}
        self.results: Results | None = None
        self.written: list[Path] = []
        self.unwritten: list[str] = []
        self.gone = False
        self.updates_baseline = update_baseline and prepared.config.baseline.results is not None
        self._keep_conversations = keep_conversations
        self._curtailed = stop_when_decided and not self.selection.partial and prepared.needs_every_run is None
        self._rerun = rerun
        self._began = time.monotonic()
        self._began_at = datetime.now(UTC)
        self._dataset_sha256 = prepared.dataset.digest()  # now, as it may be gone when the results are made
        if prepared.source is None:
            self.run_dir = new_run_dir(prepared, self._began_at)
        else:
            self.run_dir = prepared.source.run.folder
        job = job_of(
            prepared,
            self.selection,
            self.run_dir,
            self._describe,
            environ=environ,
            pythonpath=pythonpath,
            probe=probe,
            hosts=hosts,
            curtailed=self._curtailed,
            stops_at_failures=stops_at_failures,
        )
        job = job if spawn is None else replace(job, spawn=spawn)
        if inline:
            job = replace(job, setup=unlimited(job.setup), batch_size=1, hosts=1, watchdog_s=math.inf)
        journal = Journal(self.run_dir / "journal.jsonl", further=prepared.source is not None)
        self.engine = Engine(job, journal, every)
        self._conclusion = Conclusion(prepared, self.selection, self.engine, updates_baseline=self.updates_baseline)

    @property
    def selected(self) -> Sequence[RunId]:
        """All that was selected, in plan order."""
        return self.selection.runs

    @property
    def host_log(self) -> Path:
        """What user code wrote beside any run."""
        return self.engine.job.host_log

    def log_said(self) -> str:
        """The text of the hosts' log as it is now, without secrets."""
        return redacted_log(self.run_dir, self.prepared)

    @property
    def partial(self) -> bool:
        """True where the selection decides no gate."""
        return self.selection.partial

    @property
    def smoke(self) -> bool:
        """True for a smoke test."""
        return self.selection.smoke

    def go(self, first: Sequence[RunId] | None = None) -> None:
        """Let the model be probed and the selected runs be rolled out; only `first` as yet where that is given."""
        self.gone = True
        self._began = time.monotonic()
        order = shuffled(self.selected, self.prepared.config.data.seed) if self._curtailed else self.selected
        self.engine.submit(order if first is None else first)
        self.engine.go()

    def stop(self, reason: StopReason, text: str) -> None:
        """Begin nothing more: what was not begun is skipped with `text` as its reason. In flight goes on."""
        self.engine.stop(reason, text)

    def recorded(self, run: RunId) -> ScoringFields:
        """What a scorer is asked with to score `run` again: its recorded conversation and its row."""
        events = replay(self.run_dir / "journal.jsonl")
        rollouts = (event for event in events if event["ev"] == "rollout" and RunId.of(event) == run)
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

    def never_ran(self, runs: Iterable[RunId]) -> list[RunId]:
        """Which of these runs, all of which are done, are pending."""
        return [record.run for record in self._records(runs) if record.status == "pending"]

    def properties(self, runs: Iterable[RunId]) -> list[Property]:
        """What other tools read of a run that is done, or of those of a row that one test reports of."""
        records = self._records(runs)
        costs = [self.prepared.cost_usd(record) for record in records]
        if len(records) == 1:
            return properties_of(records[0], self.engine.judging, costs[0])
        return properties_of_row(records, self.engine.judging, costs)

    def _records(self, runs: Iterable[RunId]) -> list[RunRecord]:
        return results.records_of(runs, self.engine.ledger.records)

    def finish(self, grace_s: float = 0.0) -> Results:
        """Close the engine and make the results. Idempotent."""
        if self.results is None:
            took_ms = (time.monotonic() - self._began) * 1000
            self.engine.close(grace_s)
            unredacted = redact_log(self.run_dir, self.prepared)
            self.engine.notices.extend([unredacted] if unredacted is not None else [])
            provenance = {
                **provenance_of(self.prepared, self.run_dir, self._began_at),
                "dataset_sha256": self._dataset_sha256,
            }
            self.results = self._conclusion.results(provenance, took_ms)
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
            return f"{self.selection.part} are no baseline"
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
                    files.keep_earlier(path)
                self.written.append(files.write(path, self._text()))
            except OSError as error:
                self.unwritten.append(f"{shown(path)} could not be written: {error.strerror}")
        baseline = baseline_path(self.prepared.config)
        if baseline is not None and self.updates_baseline and self.not_updated is None:
            self._write_baseline(baseline)

    def _text(self) -> Iterator[str]:
        """What the results' file holds, piece by piece: put into words once, then taken from where it stands."""
        assert self.results is not None
        if not self.written:
            yield from published_text(self.results)
            return
        with self.written[0].open(encoding="utf-8") as pieces:
            yield from pieces

    def _write_baseline(self, path: Path) -> None:
        assert self.results is not None
        before = self.prepared.baseline
        was = "" if before is None else f"; it was {score(before.pass_rate)}"
        said = f"pass rate {score(self.results.overall.pass_rate)}{was}"
        try:
            self.engine.notices.append(f"baseline updated: {shown(files.write(path, self._text()))} ({said})")
        except OSError as error:
            self.unwritten.append(f"the baseline {shown(path)} could not be written: {error.strerror}")

    def compare_among(self, n_evals: int, p: float) -> None:
        """Decide the comparison as one of `n_evals` that were looked at, with the p that Holm gives it."""
        assert self.results is not None
        assert self.results.comparison is not None
        compared = self.results.comparison.among(n_evals, p)
        verdicts = [
            self._conclusion.regression(rule, compared) if (rule := verdict.rule) and is_loss(rule) else verdict
            for verdict in self.results.verdicts
        ]
        self.results = replace(self.results, comparison=compared, verdicts=verdicts)

    def _place_of_results(self) -> Path:
        """Where the run directory keeps the results. Only a whole decision takes the place of an earlier one."""
        replaces = self.prepared.source is None or self.engine.decided
        return self.run_dir / ("results.json" if replaces else "results.partial.json")

    def _describe(self, record: RunRecord, judging: PassRule, transcript: Transcript) -> Outcome:
        if self._keep_conversations:
            self.conversations[record.run] = transcript.messages
        outcome = outcome_of(
            record,
            judging,
            messages=transcript.messages,
            details=transcript.details,
            output=transcript.output,
            where=f"{self.prepared.dataset.display}:{transcript.line}",
            rerun=self._rerun,
        )
        if self.prepared.source is not None:  # the rollout took its time then, and not now
            outcome = replace(outcome, duration_s=record.scoring_ms / 1000)
        return judged_by_no_score(outcome) if self.smoke else outcome
