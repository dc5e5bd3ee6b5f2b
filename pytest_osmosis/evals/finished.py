"""Eval runs that are over: their results, with comparisons and verdicts of gates, and the files they are written to."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from pytest_osmosis import seams
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.evals.output_files import (
    PUSH_FLAG,
    baseline_path,
    is_pushed,
    prime_folder,
    results_path,
    shard_path,
)
from pytest_osmosis.evals.run import EvalRun
from pytest_osmosis.evals.run_directory import add_facts_at_end, utc_text
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.record.find_run import stored
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.results import publish, results
from pytest_osmosis.results.conclude import Conclusion, FactsAtEnd, corrected
from pytest_osmosis.results.entry_table import entry_table
from pytest_osmosis.results.publish import partial_path, published_text, redacted, text_of
from pytest_osmosis.results.read import shard_at
from pytest_osmosis.results.results import Results, Throttling
from pytest_osmosis.results.totals import CassetteUse
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import count, plural, score
from pytest_osmosis.verdicts.comparison import BaselineComparison
from pytest_osmosis.verdicts.gates import Verdict


def finish(
    runs: Sequence[EvalRun],
    grace_s: float = 0.0,
    together: Sequence[Sequence[EvalRun]] = (),
    failures: dict[EvalRun, Exception] | None = None,
) -> list[FinishedEval]:
    """Close all eval runs of a session and make their results. Runs in flight get `grace_s` seconds to finish.

    `together` holds those that are entries of one config, which are compared with the first of them. If the end of an
    eval raises, `failures`, if given, gets the error, and the eval has no results. That costs other evals nothing.
    """
    for run in runs:
        with _kept(failures, run):
            run.close(grace_s)
    conclusions = {}
    for run in runs:
        with _kept(failures, run):
            end = _end_of(run)
            conclusions[run] = end, _conclusion(run, end)
    comparisons = corrected([conclusion.compared for _, conclusion in conclusions.values()])
    finished = []
    for (run, (end, conclusion)), compared in zip(conclusions.items(), comparisons, strict=True):
        with _kept(failures, run):
            finished.append(FinishedEval(run, _results(run, conclusion, compared), end))
    for entries in together:
        with _kept(failures, entries[0]):
            _compare_entries([each for each in finished if each.run in entries])
    return finished


@contextmanager
def _kept(failures: dict[EvalRun, Exception] | None, run: EvalRun) -> Iterator[None]:
    """Keep an error of a step as the failure of an eval."""
    try:
        yield
    except Exception as error:
        if failures is None:
            raise
        failures.setdefault(run, error)


def _compare_entries(entries: Sequence[FinishedEval]) -> None:
    if len(entries) < 2:
        return
    spans = [span for each in entries if (span := each.run.span_s) is not None]
    took_ms = 1000 * (max(end for _, end in spans) - min(begin for begin, _ in spans)) if spans else 0.0
    took_ms = max(took_ms, *(each.results.duration_ms for each in entries))  # of a session that goes on
    config = shown(entries[0].run.prepared.config.path)
    named = {each.results.description.name: each.results for each in entries}
    table = entry_table(config, named, round(took_ms, 3))
    for each in entries:
        each.results = replace(each.results, among=table)


def write_comparison(entries: Sequence[FinishedEval], path: Path) -> str | None:
    """Write the table of the entries of a config. Return why that failed, None if it did not."""
    among = entries[0].results.among
    if among is None:
        return None
    table = among.to_json()
    for each in entries:
        table = redacted(table, each.run.prepared.redaction)
    try:
        publish.write(path, text_of(table))
    except OSError as error:
        return f"{shown(path)} could not be written: {error.strerror}"
    return None


def error_text(error: Exception) -> str:
    """Return an error of ours in one line, with the place where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


@dataclass(eq=False)
class FinishedEval:
    """An eval run that is over, with the facts at its `end`. `written` and `unwritten` say which files `write` could
    and could not write.

    `prime_folder` holds the files of `prime eval`, None if none were requested. `pushed` says what became of the push
    that the command asks for.
    """

    run: EvalRun
    results: Results
    end: FactsAtEnd
    written: list[Path] = field(default_factory=list)
    unwritten: list[str] = field(default_factory=list)
    prime_folder: Path | None = None
    pushed: str | None = None

    def add_verdicts(self, verdicts: Sequence[Verdict]) -> None:
        if verdicts:
            self.results = replace(self.results, verdicts=[*self.results.verdicts, *verdicts])

    @property
    def goes_on(self) -> bool:
        """True if runs are left that a further session would perform, because this one did not finish."""
        run, reason = self.run, self.results.stop_reason
        left = [each for each in run.selected.runs if run.record(each).status == "pending"]
        return (
            bool(left)
            and reason != "decided"
            and run.prepared.config.training is None
            and run.prepared.source.asks_models
        )

    @property
    def is_written(self) -> bool:
        return bool(self.written or self.unwritten)

    @property
    def not_updated(self) -> str | None:
        """The reason why the results do not become the baseline; None if they do, or no update was requested."""
        if not self.run.facts.new_baseline:
            return None
        if self.results.partial:
            return self.run.selected.share_text
        if self.results.stopped is not None:
            return f"the eval was stopped: {self.results.stopped}"
        if pending := self.results.count("pending"):
            return f"{plural(pending, 'run')} never ran"
        use = self.results.cassette
        if use is not None and use.replayed:
            return f"{count(use.replayed)} of {plural(use.requests, 'request')} came from the cassette"
        ended = self.results.count("finished") + self.results.count("failed")
        if unmeasured := ended - self.results.measured:
            were = "was" if unmeasured == 1 else "were"
            return (
                f"{count(unmeasured)} of {plural(ended, 'run')} {were} not measured; --osmosis-resume makes them again"
            )
        return None if self.results.measured else "no run was measured"

    def write(self) -> None:
        """Write the results into the run directory and to the paths in the config. Idempotent."""
        if self.is_written:
            return
        try:
            self._write_all()
        except Exception as error:
            self.unwritten.append(f"the results could not be written: {error_text(error)}")

    def _write_all(self) -> None:
        config, cassette = self.run.prepared.config, self.run.cassette
        if cassette is not None and cassette.failure is not None:
            self.unwritten.append(cassette.failure)
        output, baseline = results_path(config), baseline_path(config)
        in_run_directory = self.run.prepared.source.results_path(self.run)
        self._write(in_run_directory, in_run_directory=True)
        if self.written and in_run_directory == self.run.directory.results:
            self._add_facts()
        if output is not None:
            self._write(self._place(output))
        if baseline is not None and self.run.facts.new_baseline and self.not_updated is None:
            self._write_baseline(baseline)
        if (base := prime_folder(self.run.prepared)) is not None and self.run.began:
            self._write_prime_files(base)
        if config.output.save_to_hf_hub:
            self._push()

    def _push(self) -> None:
        """Push the files of `prime eval`, and say what became of it."""
        if not is_pushed(self.run.prepared):
            self.run.notices.add(f"not pushed to the Hugging Face Hub: only {PUSH_FLAG} in the command does that")
        elif self.prime_folder is not None:
            name = self.run.prepared.config.output.hf_hub_dataset_name
            self.pushed = seams.push_prime_files(self.prime_folder, name)
            self.run.notices.add(self.pushed)

    def _write_prime_files(self, base: Path) -> None:
        """Write the files of `prime eval` about all that the journal holds, also of earlier sessions."""
        try:
            self.prime_folder = seams.save_prime_files(stored(self.run.directory), base, self.run.prepared.redaction)
        except (OSError, OsmosisError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            self.unwritten.append(f"the files of save_results could not be written to {shown(base)}: {why}")

    def _add_facts(self) -> None:
        """Let the manifest hold what the journal cannot tell, so that the results can be made again."""
        run = self.run
        with self._writing(shown(run.directory.manifest)):
            add_facts_at_end(run.directory, self.end.concluded(self.results), run.prepared.redaction)

    def _place(self, output: Path) -> Path:
        """Return the path for results outside the run directory: a part never replaces the whole, or another shard."""
        shard = self.run.prepared.shard
        if not self.results.partial:
            return output
        if shard is None:
            return partial_path(output)
        there = shard_at(output) if something_at(output) else shard
        if there == shard:
            return output
        what = "the results of a whole eval run" if there is None else f"the results of {there}"
        instead = shard_path(output, shard)
        self.run.notices.add(f"{shown(output)} holds {what}, so those of {shard} are written to {shown(instead)}")
        return instead

    def _write(self, path: Path, *, in_run_directory: bool = False) -> None:
        """Write the results. Those in the run directory are private, and rescoring keeps earlier ones there."""
        with self._writing(shown(path)):
            if in_run_directory and self.run.engine.recorder.is_rescored:
                publish.keep_earlier(path)
            self.written.append(publish.write(path, self._text(), is_private=in_run_directory))

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        """Note that `what` could not be written, which keeps nothing else from being written."""
        try:
            yield
        except OSError as error:
            self.unwritten.append(f"{what} could not be written: {error.strerror}")

    def _text(self) -> Iterator[str]:
        """Yield the text of the results in pieces; a file that was already written saves making it again."""
        if not self.written:
            yield from published_text(self.results, self.run.prepared.redaction)
            return
        with self.written[0].open(encoding="utf-8") as pieces:
            yield from pieces

    def _write_baseline(self, path: Path) -> None:
        before = self.run.prepared.models.baseline_results
        was = "" if before is None else f"; it was {score(before.summary.pass_rate)}"
        change = f"pass rate {score(self.results.overall.pass_rate)}{was}"
        with self._writing(f"the baseline {shown(path)}"):
            self.run.notices.add(f"baseline updated: {shown(publish.write(path, self._text()))} ({change})")


def _end_of(run: EvalRun) -> FactsAtEnd:
    """Return what only the end of a session tells."""
    source, engine, throttle = run.prepared.source, run.engine, run.engine.loop.hosts.throttle
    held_s = {**engine.loop.permits.held_s, **engine.loop.judge_permits.held_s}
    lost = {"lost_in_flight": engine.ledger.most_lost} if source.asks_models else {}
    of_shard = run.facts.shard is not None
    return FactsAtEnd(
        session=run.facts.session,
        provenance={**run.provenance, **lost, "finished_at": utc_text(run.ended_at or datetime.now(UTC))},
        cassette=_cassette_use(run),
        duration_ms=round(source.rollouts_took_ms(run.duration_ms), 3),  # as it is published
        throttling=Throttling(throttle.pauses, throttle.paused_s, throttle.least, throttle.limit, held_s),
        shard_code={**source.rollout_code(engine.loop.code), **engine.loop.code.rewards} if of_shard else {},
    )


def _conclusion(run: EvalRun, end: FactsAtEnd) -> Conclusion:
    """Return what a closed eval run measured, compared with its baseline."""
    prepared, engine = run.prepared, run.engine
    measured = run.facts.measured(
        results.records_of(run.selected.runs, engine.ledger.records),
        engine.recorder.pass_rule,
        engine.stopped,
        end,
        baseline_stopped=engine.baseline_stopped,
        judge_price=prepared.judge_price,
        row_digests=prepared.rows.digests,
        reasons=run.outcomes.reasons,
    )
    if measured.stopped is None:
        measured = replace(measured, stopped=_lacking_text(run, measured.records))
    stored, stopped = prepared.models.baseline_results, engine.baseline_stopped
    return Conclusion.of(measured, run.facts, stored, stopped=stopped, redaction=prepared.redaction)


def _results(run: EvalRun, conclusion: Conclusion, compared: BaselineComparison | None) -> Results:
    made, unread = conclusion.results(compared, run.facts.previous)
    if unread is not None:
        run.notices.add(f"an earlier run is ignored: {unread}")
    return run.prepared.source.rescored(made, run)


def _cassette_use(run: EvalRun) -> CassetteUse | None:
    """Return the part of the cassette. Scoring rollouts of a replay again measures nothing new."""
    prepared, made, then = run.prepared, run.cassette, run.prepared.source.cassette_then
    if prepared.models.cassette is None or made is None:
        return then
    cassette, unrecorded = prepared.models.cassette, made.unrecorded
    if asked := run.outcomes.unrecorded:
        unrecorded = {"provider": len(asked)}
    elif then is not None:
        unrecorded = then.unrecorded
    use = CassetteUse(cassette.mode, shown(cassette.path), made.digest, unrecorded=unrecorded)
    records, prices = map(run.record, run.selected.runs), prepared.prices
    return use.counting(
        records, run.engine.loop.exchanges.n_sent, lambda record: prices[record.run.model], prepared.judge_price
    )


def _lacking_text(run: EvalRun, records: Sequence[RunRecord]) -> str | None:
    """Return that stored rollouts are missing, None if each run of the stored part of the plan has one."""
    source, unstored = run.prepared.source, run.selected.unstored
    if source.asks_models:
        return None
    lacking = [each for each in records if each.status == "pending" and each.run not in unstored]
    if not lacking:
        return None
    before = source.status_before
    why = f"; that eval run {before.status}: {before.reason}" if before and before.reason else ""
    have = "has" if len(lacking) == 1 else "have"
    return f"{count(len(lacking))} of {plural(len(records), 'run')} {have} no rollout to score{why}"
