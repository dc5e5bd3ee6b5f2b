"""Results, made again from the manifest and the journal of an eval run alone, by the rules of its last session.

For a run that died they are those of a session that stopped there: its runs that never ended are pending, and gates
that they could decide are not decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pytest_osmosis.errors import ResultsError
from pytest_osmosis.files.reading import FileFault
from pytest_osmosis.formats.codec import ShapeFault, decode
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.lifecycle import WAS_KILLED, lifecycle_of
from pytest_osmosis.record.plan import selected_runs
from pytest_osmosis.record.run_id import RunId, plan_order
from pytest_osmosis.record.run_record import RunRecord, left_out
from pytest_osmosis.record.stop import Stop
from pytest_osmosis.results import results
from pytest_osmosis.results.conclude import Conclusion, EvalFacts, FactsAtEnd
from pytest_osmosis.results.publish import published
from pytest_osmosis.results.read import PublishedResults, read_results
from pytest_osmosis.results.results import BaselineFile, Rescored, Results
from pytest_osmosis.results.stored_results import Replayed, read_stored, replayed
from pytest_osmosis.results.totals import CassetteUse, PriceOf, price_of_judge, shown_name
from pytest_osmosis.text.names import shown
from pytest_osmosis.verdicts.pass_rule import PassRule

TIMES = frozenset(
    {"total_duration_ms", "finished_at", "duration_ms", "scoring_ms", "paused_s", "held_s", "least_in_flight", "pauses"}
)
"""Keys of published results that hold times, or follow from the moment at which something happened."""


@dataclass(frozen=True, slots=True)
class RebuiltResults:
    """The published object of an eval run, made of its journal; `notes` say what could not be made again."""

    document: Mapping[str, Any]
    notes: Sequence[str] = ()


def rebuild(run: StoredEvalRun) -> RebuiltResults:
    """Make the results of an eval run again. Raises `OsmosisError`."""
    found = replayed(run.directory.journal)
    if not found.facts:
        none = read_stored(run, found)
        document = published(none.results) | none.lifecycle.to_json()
        return RebuiltResults(document, ["its code was never loaded, so none of its runs began"])
    facts = _decoded(run.directory.journal, found.facts, EvalFacts)
    at_end = run.manifest.result_facts
    if at_end.get("session") != facts.session:
        return _Rebuilding(run, found, facts, None).results()
    return _Rebuilding(run, found, facts, _decoded(run.directory.manifest, at_end, FactsAtEnd)).results()


_Facts = TypeVar("_Facts")


def _decoded(path: Path, facts: object, kind: type[_Facts]) -> _Facts:
    try:
        return decode(facts, kind)
    except ShapeFault as fault:
        raise ResultsError(f"{shown(path)}: {fault.within('result_facts')}") from None


class _Rebuilding:
    """Makes results with the facts at the `end` of the last session; without them, with those that can be guessed."""

    def __init__(self, run: StoredEvalRun, found: Replayed, facts: EvalFacts, end: FactsAtEnd | None) -> None:
        self._run = run
        self._found = found
        self._facts = facts
        self._lifecycle = lifecycle_of(run.directory)
        self._is_rescored = facts.status_before is not None
        self._notes: list[str] = []
        self._baseline: PublishedResults | None = None
        self._lost = self._lost_baseline()
        self._is_guess = end is None
        self._end = self._guessed_end() if end is None else end

    def results(self) -> RebuiltResults:
        end, rules = self._end, self._facts
        measured = self._measured()
        stopped = self._found.ended.get("baseline_stopped")
        conclusion = Conclusion.of(measured, rules, self._baseline, stopped=stopped, lost=self._lost)
        compared = conclusion.compared
        if compared is not None and end.p_adjusted is not None and end.evals_compared > 1:
            compared = compared.among(end.evals_compared, end.p_adjusted)
        if self._is_guess and self._lifecycle.has_ended:
            self._notes.append("its session did not say when it finished, so times are those of the journal")
        made, unread = conclusion.results(compared, rules.previous)
        if unread is not None:
            last = shown(Path(rules.previous or ""))
            self._notes.append(f"the previous run {last} can no longer be read, so nothing is compared with it")
        made = replace(
            self._rescored(made),
            verdicts=[*made.verdicts, *end.verdicts],
            among=end.comparison,
        )
        document = published(made)
        if not self._lifecycle.has_ended:
            document |= {"status": self._lifecycle.status, "stopped_by": None}
        return RebuiltResults(document, self._notes)

    def _last_stop(self) -> Stop | None:
        """Return why the last session stopped, None if it did not, or if rollouts were scored again."""
        found, lifecycle = self._found, self._lifecycle
        if self._is_rescored or not lifecycle.has_ended:
            return None
        if not found.ended:
            killed = lifecycle.reason if lifecycle.was_killed else None
            return Stop("killed", killed or f"its process {WAS_KILLED}")
        stop = found.ended.get("stop")
        if stop is not None:
            return Stop(stop["reason"], stop["text"])
        return None if found.ended["status"] == "finished" else Stop("closed", found.ended["reason"] or "stopped")

    def _measured(self) -> Results:
        facts, found, end, stop = self._facts, self._found, self._end, self._last_stop()
        runs = sorted(selected_runs(facts.selected), key=plan_order)
        digests = found.digests_since if self._is_rescored else found.digests  # of rows that the dataset still has
        return facts.measured(
            self._records(runs, stop),
            PassRule.of(found.ledger.scorers, facts.pass_rule),
            stop,
            end,
            baseline_stopped=found.ended.get("baseline_stopped"),
            judge_price=self._judge_price(),
            row_digests=digests,
        )

    def _records(self, runs: Sequence[RunId], stop: Stop | None) -> list[RunRecord]:
        """Return the records of runs; those that never ended because the process died say so."""
        made = results.records_of(runs, self._found.ledger.records)
        if self._is_rescored:
            return [record if record.skip_reason is None else left_out(record) for record in made]
        if stop is None or stop.reason != "killed":
            return made
        return [
            each._replace(skip_reason=stop.text) if each.status == "pending" and each.skip_reason is None else each
            for each in made
        ]

    def _lost_baseline(self) -> str | None:
        """Read the file of the baseline. Return why it is not what the session compared with, None if it is."""
        file = self._facts.baseline_results
        if file is None:
            return None
        path = Path(file.path)
        lost = f"the baseline {shown(path)} has changed since"
        try:
            if BaselineFile.of(path, file.path) == file:
                self._baseline = read_results(path)
                return None
        except (FileFault, OSError, ResultsError):
            lost = f"the baseline {shown(path)} can no longer be read"
        self._notes.append(f"{lost}, so nothing is compared with it")
        return lost

    def _rescored(self, made: Results) -> Results:
        before, end = self._facts.status_before, self._end
        if before is None:
            return made
        then = self._run.manifest.started_at
        unknown = Rescored(rolled_out_at=then, duration_ms=0.0, kept={}, previous=None, rows=0, better=0, worse=0)
        changed = [*end.changed_rows, *made.changed_rows]
        return replace(made, rescored=end.rescored or unknown, status_before=before, changed_rows=changed)

    def _guessed_end(self) -> FactsAtEnd:
        """Return the facts of a session that did not tell them, as far as the journal and the manifest know them."""
        manifest, begun, ended = self._run.manifest, self._facts.provenance, self._found.ended
        use = manifest.cassette
        at = datetime.fromtimestamp(self._run.directory.journal.stat().st_mtime, UTC)
        at = datetime.fromisoformat(ended["at"]) if ended else at
        took = 0.0 if self._is_rescored else (at - datetime.fromisoformat(self._facts.session)).total_seconds()
        git = manifest.git or {"git_commit": None, "git_dirty": None}
        lost = {"lost_in_flight": self._found.ledger.most_lost} if "sessions" in begun else {}  # else a rescore
        if use is not None:
            self._notes.append("how much came from the cassette is not known")
        return FactsAtEnd(
            session=self._facts.session,
            provenance={**begun, **git, **lost, "finished_at": at.isoformat(timespec="milliseconds")},
            cassette=None if use is None else CassetteUse(use["mode"], use["path"]),
            duration_ms=self._facts.took_ms + max(0.0, took * 1000),
            shard_code=self._found.loaded.get("digests", {}),
        )

    def _judge_price(self) -> PriceOf:
        """Return the prices of judges that were asked; without the end of the session, of the one in the config."""
        known = self._end.judge_prices
        of_config = price_of_judge(self._facts.description.extra, self._facts.prices)
        return lambda use: known[name] if (name := shown_name(use)) in known else of_config(use)


def differences(stored: object, made: object, at: str = "") -> Iterator[str]:
    """Yield the places at which two published objects differ in more than times."""
    if isinstance(stored, Mapping) and isinstance(made, Mapping):
        for key in dict.fromkeys([*stored, *made]):
            if key not in TIMES:
                missing = object()
                yield from differences(stored.get(key, missing), made.get(key, missing), f"{at}.{key}".lstrip("."))
    elif isinstance(stored, list | tuple) and isinstance(made, list | tuple) and len(stored) == len(made):
        for number_, (one, other) in enumerate(zip(stored, made, strict=True)):
            yield from differences(one, other, f"{at}[{number_}]")
    elif stored != made:
        yield at
