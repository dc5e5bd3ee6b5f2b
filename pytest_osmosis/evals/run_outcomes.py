"""The outcomes of an eval's runs, as their tests report them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_osmosis.engine.job import Transcript
from pytest_osmosis.evals.prepared import Prepared
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.failure_text import outcome_of
from pytest_osmosis.verdicts.pass_rule import Outcome, PassRule, judged_by_no_score


class RunOutcomes:
    """Makes the outcome of each run from its record. `rerun` returns the command that repeats a run.

    With `keep_conversations`, `conversations` holds those of finished runs until somebody takes them out.
    """

    def __init__(self, prepared: Prepared, rerun: Callable[[RunId], str], *, keep_conversations: bool) -> None:
        self.conversations: dict[RunId, Sequence[Mapping[str, Any]]] = {}
        self._prepared = prepared
        self._rerun = rerun
        self._keep_conversations = keep_conversations

    def describe(self, record: RunRecord, pass_rule: PassRule, transcript: Transcript) -> Outcome:
        """Return the outcome of a run that is done. The engine calls this in its own thread."""
        if self._keep_conversations:
            self.conversations[record.run] = transcript.messages
        outcome = outcome_of(
            record,
            pass_rule,
            messages=transcript.messages,
            details=transcript.details,
            output=transcript.output,
            where=f"{self._prepared.dataset.display}:{transcript.line}",
            rerun=self._rerun,
        )
        outcome = self._prepared.source.outcome(outcome, record)
        return judged_by_no_score(outcome) if self._prepared.smoke is not None else outcome
