"""Whether a run passed, and what a test says of it: `RunRecord` and thresholds -> `Outcome`.

*failed* always means scored and not passed by `decide`; *error* means not scored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pytest_osmosis.record.run_record import INFRASTRUCTURE, RunRecord
from pytest_osmosis.text.numbers import distinguishable

Kind = Literal["passed", "failed", "error", "skipped"]

UNMEASURED = INFRASTRUCTURE | {"reward"}
"""The boundaries of runs that do not count as an answer."""


@dataclass(frozen=True, slots=True)
class PassRule:
    """Who decides whether a run passed. `thresholds` are per function, `pass_threshold` is for those not named."""

    scorers: tuple[str, ...]
    pass_threshold: float = 1.0
    thresholds: Mapping[str, float] = field(default_factory=dict)
    decide: str = "all"

    @property
    def deciding(self) -> tuple[str, ...]:
        """The functions whose scores decide."""
        return self.scorers if self.decide in ("all", "any") else (self.decide,)

    def threshold(self, name: str) -> float:
        """The score at or above which `name` passes."""
        return self.thresholds.get(name, self.pass_threshold)

    def met(self, record: RunRecord, name: str) -> bool:
        """True where `name` scored the run at or above its threshold."""
        return name in record.scores and record.scores[name] >= self.threshold(name)

    def passed(self, record: RunRecord) -> bool:
        """True where the run was scored and passes by `decide`."""
        if record.status != "finished":
            return False
        met = [self.met(record, name) for name in self.deciding]
        return any(met) if self.decide == "any" else all(met)

    def broken(self, record: RunRecord) -> tuple[str, ...]:
        """The deciding functions that gave no score though the run finished, where that leaves it undecided."""
        if record.status != "finished" or (self.decide == "any" and self.passed(record)):
            return ()
        return tuple(name for name in self.deciding if name not in record.scores)

    def boundary(self, record: RunRecord) -> str | None:
        """Where the run failed to be scored, None where it was scored or never ran."""
        return "reward" if self.broken(record) else record.boundary

    def measured(self, record: RunRecord) -> bool:
        """True where the run counts as an answer: scored, or failed by model, agent or time."""
        if record.status == "finished":
            return not self.broken(record)
        return record.status == "failed" and record.boundary not in INFRASTRUCTURE


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run's test reports. `reason` is one line, `text` the block that is shown when it did not pass.

    `sections` are (title, text) of what the rollout printed, logged and warned of. `duration_s` is rollout and
    scoring, without waiting. Plain strings and numbers only, so that it crosses processes as JSON.
    """

    kind: Kind
    reason: str = ""
    text: str = ""
    sections: tuple[tuple[str, str], ...] = ()
    duration_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, for a worker."""
        return {
            "kind": self.kind,
            "reason": self.reason,
            "text": self.text,
            "sections": [list(section) for section in self.sections],
            "duration_s": self.duration_s,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        """The outcome that `to_json` gave."""
        return cls(**{**data, "sections": tuple((title, text) for title, text in data["sections"])})


def judged_by_no_score(outcome: Outcome) -> Outcome:
    """What a smoke test reports: whatever was scored passes, and says in a section where the score was too low."""
    if outcome.kind != "failed":
        return outcome
    said = f"smoke: passes whatever its score\n{outcome.text}"
    return replace(outcome, kind="passed", reason="", text="", sections=(*outcome.sections, ("osmosis", said)))


def kind_of(record: RunRecord, judging: PassRule) -> Kind:
    """The kind of outcome, where no gate decides."""
    if record.status in ("pending", "skipped"):
        return "skipped"
    if judging.boundary(record) is not None:
        return "error"
    return "passed" if judging.passed(record) else "failed"


def reason_of(record: RunRecord, judging: PassRule) -> str:
    """One line that says why the run did not pass, "" where it did."""
    if record.status == "pending":
        return record.skip_reason or "never ran"
    if record.status == "skipped":
        return "taken out by its grader (remove_sample)"
    if broken := judging.broken(record):
        return f"scorer error: {broken[0]}: {_scorer_error(record, broken[0])}"
    if record.boundary is not None:
        return f"{record.boundary}: {record.error}"
    if judging.passed(record):
        return ""
    return ", ".join(
        score_line(record.scores[name], judging.threshold(name), name if len(judging.deciding) > 1 else "")
        for name in judging.deciding
        if not judging.met(record, name)
    )


def score_line(score: float, threshold: float, name: str = "") -> str:
    """A score against its threshold.

    >>> score_line(0.2, 0.5), score_line(0.99999999, 1.0)
    ('score 0.2 < 0.5', 'score 0.99999999 < 1.0')
    """
    sign = ">=" if score >= threshold else "<"
    shown, bound = distinguishable(score, threshold)
    return f"{name or 'score'} {shown} {sign} {bound}"


def _scorer_error(record: RunRecord, name: str) -> str:
    error = record.scorer_errors.get(name)
    return error.message if error else "gave no score"
