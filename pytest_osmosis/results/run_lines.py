"""The runs of a stored eval run as JSON Lines: a line for each run that had begun, for pandas and others.

docs/reference/run-table.md says what its members are. Memory holds the records of the runs, as everywhere, and one
conversation at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.models.prices import Price
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.journal import EventReader
from pytest_osmosis.record.run_id import ModelTag, RunId, plan_order
from pytest_osmosis.record.run_record import Event, RunRecord
from pytest_osmosis.results.read import read_settings
from pytest_osmosis.results.read_back import price_of
from pytest_osmosis.results.stored_results import Positions, pass_rule_of, replayed
from pytest_osmosis.text.chat_messages import answer_of, text_of
from pytest_osmosis.text.redaction import Redaction, ascii_json
from pytest_osmosis.verdicts.pass_rule import PassRule, kind_of


@dataclass(frozen=True, slots=True)
class RunLines:
    """The lines on the runs of a stored eval run."""

    run: StoredEvalRun
    _rule: PassRule
    _prices: Mapping[ModelTag, Price | None]
    _records: Mapping[RunId, RunRecord]
    _positions: Positions
    _digests: Mapping[int, str]

    def __len__(self) -> int:
        return len(self._records)

    def text(self, redaction: Redaction) -> Iterator[str]:
        """Yield a line on each run, in the order of the plan, without secrets. Raises `JournalError`."""
        with EventReader(self.run.directory.journal) as reader:
            for run in sorted(self._records, key=plan_order):
                record = self._records[run]
                rollout, score = (self._event(reader, kind, record) for kind in ("rollout", "score"))
                yield f"{ascii_json(redaction.value(self._line(record, rollout, score), unchanged=_OWN))}\n"

    def _event(self, reader: EventReader, kind: str, record: RunRecord) -> Event:
        at = self._positions.get((kind, record.run, record.attempt))
        return {} if at is None else reader.at(at)

    def _line(self, record: RunRecord, rollout: Event, score: Event) -> dict[str, Any]:
        rule, run, manifest = self._rule, record.run, self.run.manifest
        other = manifest.baseline
        messages = rollout.get("messages", ())
        prompt, own = _split(messages, rollout.get("n_prompt", 0))
        usage, price = record.usage or {}, self._prices.get(run.model)
        errors = {name: error.message for name, error in record.scorer_errors.items()}
        return {
            "eval": manifest.eval,
            "eval_run": self.run.directory.name,
            "model": other.model if run.is_baseline and other is not None else manifest.subject.model,
            "model_tag": str(run.model),
            "run": str(run),
            "row_index": run.row,
            "run_index": run.index,
            "row_digest": self._digests.get(run.row),
            "status": record.status,
            "outcome": record.status if record.status == "pending" else kind_of(record, rule),
            "passed": rule.passed(record) if rule.measured(record) else None,
            "success": None if record.status == "pending" else record.status != "failed",
            "boundary": rule.boundary(record),
            "error": record.error or "; ".join(f"{name}: {text}" for name, text in errors.items()) or None,
            "scores": dict(record.scores) if record.status == "finished" else {},
            "errors": errors,
            **_NO_NOTES,
            **record.notes.to_json(),
            "prompt": _prompt_text(prompt) if messages else None,
            "answer": (answer_of(own) or "").strip() if messages else None,
            "ground_truth": score.get("ground_truth"),
            "finish_reason": record.finish_reason,
            "tokens": record.tokens,
            "input_tokens": usage.get("input_tokens"),
            "output_tokens": usage.get("output_tokens"),
            "cost_usd": None if price is None else price.cost_usd(record.usage),
            "duration_ms": record.duration_ms,
            "scoring_ms": round(record.scoring_ms, 3),
            "retries": record.retries,
            "bound": record.bound,
            "attempt": record.attempt,
            "messages": list(messages),
        }


_OWN = frozenset({"model_tag", "run", "row_digest", "status", "outcome", "boundary", "scores", "eval_run"})
"""Members whose values are words of ours, or names by which other things are found."""
_NO_NOTES: Mapping[str, Any] = {"metrics": {}, "reasons": {}, "fields": {}}


def read_run_lines(run: StoredEvalRun) -> RunLines:
    """Read an eval run. Raises `OsmosisError` if its results or its journal cannot be read."""
    settings = None if run.results is None else read_settings(run.results)
    found = replayed(run.directory.journal)
    ledger = found.ledger
    records = {run: record for run, record in ledger.records.items() if record.started}
    if not records:
        raise OsmosisError(f"{run.directory.name}: holds no run: none had begun when it ended")
    manifest_prices = {tag: price_of(run.manifest.prices.get(tag)) for tag in ModelTag}
    return RunLines(
        run,
        pass_rule_of(run, settings, ledger.scorers),
        manifest_prices if settings is None else settings.prices,
        records,
        found.positions,
        found.row_digests,
    )


def _split(messages: Sequence[object], n_prompt: int) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return the messages of the prompt, and those of the rollout."""
    parts = (messages[:n_prompt], messages[n_prompt:])
    prompt, own = ([message for message in part if isinstance(message, Mapping)] for part in parts)
    return prompt, own


def _prompt_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a prompt.

    >>> _prompt_text([{"role": "user", "content": "1 + 1?"}])
    '1 + 1?'
    >>> _prompt_text([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}])
    'system: Be brief.\\n\\nuser: 1 + 1?'
    """
    texts = [text_of(message.get("content")) for message in messages]
    if len(texts) == 1:
        return texts[0]
    roles = (str(message.get("role", "")) for message in messages)
    return "\n\n".join(f"{role}: {text}" for role, text in zip(roles, texts, strict=True))
