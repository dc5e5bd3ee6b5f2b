"""The rule by which a run passes, and the outcome that its test reports.

*Failed* always means that the run was scored and did not pass; *error* means that it was not scored.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis.record.manifest import PassRuleFields
from pytest_osmosis.record.run_record import INFRASTRUCTURE, Boundary, RewardError, RunRecord
from pytest_osmosis.text.chat_messages import AnswerFault
from pytest_osmosis.text.numbers import distinguishable

Kind = Literal["passed", "failed", "error", "skipped"]

UNMEASURED = INFRASTRUCTURE | {"reward"}
"""The boundaries of runs that do not count as an answer."""

ANSWER_FAULTS: Mapping[AnswerFault, str] = {
    "no message": "the rollout has no assistant message",
    "only calls": "the rollout's assistant messages only call tools",
    "no text": "the answer is empty",
}


def score_floor(scores: Iterable[float]) -> float:
    """Return the score that a run without one counts as: the lower of 0.0 and the lowest of the scores.

    So no crash is worth more than a bad answer.
    """
    return min([0.0, *scores])


class PassRule(Struct, frozen=True, dict=True):
    """The functions and thresholds that decide whether a run passed.

    `pass_threshold` is for functions that `thresholds` does not name. `decide` is "all", "any", or one function.
    `score_ranges` has the declared lowest and highest score of functions; a score outside is an error of its function.
    """

    scorers: tuple[str, ...]
    pass_threshold: float = 1.0
    thresholds: Mapping[str, float] = {}
    decide: str = "all"
    score_ranges: Mapping[str, tuple[float, float]] = {}

    @classmethod
    def of(cls, scorers: Sequence[str], stored: PassRuleFields) -> PassRule:
        """Return a rule that `to_json` stored, which holds no functions."""
        ranges = {name: (low, high) for name, (low, high) in stored.get("score_ranges", {}).items()}
        return cls(tuple(scorers), stored["pass_threshold"], stored["thresholds"], stored["decide"], ranges)

    def to_json(self) -> PassRuleFields:
        stored: PassRuleFields = {
            "pass_threshold": self.pass_threshold,
            "thresholds": dict(self.thresholds),
            "decide": self.decide,
        }
        return {**stored, "score_ranges": dict(self.score_ranges)} if self.score_ranges else stored

    @functools.cached_property
    def deciding(self) -> tuple[str, ...]:
        return self.scorers if self.decide in ("all", "any") else (self.decide,)

    @property
    def decide_by(self) -> str | None:
        """The function whose score is the reward, None if several decide."""
        return self.deciding[0] if len(self.deciding) == 1 else None

    def threshold(self, name: str) -> float:
        return self.thresholds.get(name, self.pass_threshold)

    def range_error(self, name: str, score: float) -> str | None:
        """Return what is wrong with a score that lies outside the declared range, None if nothing is."""
        low, high = self.score_ranges.get(name, (score, score))
        return (
            None
            if low <= score <= high
            else f"score {score:g} lies outside [scoring] score_ranges, {low:g} to {high:g}"
        )

    def unscored(self, records: Iterable[RunRecord], name: str) -> float:
        """Return the score that a run without one of `name` counts as."""
        given = [each.scores[name] for each in records if name in each.scores and each.status == "finished"]
        return score_floor(given)

    def met(self, record: RunRecord, name: str) -> bool:
        """Return True if `name` scored the run at or above its threshold."""
        return name in record.scores and record.scores[name] >= self.threshold(name)

    def passed(self, record: RunRecord) -> bool:
        if record.status != "finished":
            return False
        met = [self.met(record, name) for name in self.deciding]
        return any(met) if self.decide == "any" else all(met)

    def reward(self, record: RunRecord) -> float | None:
        """Return the score that decides, 1.0 or 0.0 if several functions decide, None for a run without a score."""
        if record.status != "finished" or self.broken(record):
            return None
        return float(record.scores[self.decide_by] if self.decide_by is not None else self.passed(record))

    @property
    def reward_threshold(self) -> float:
        """The lowest reward that passes."""
        return 1.0 if self.decide_by is None else self.threshold(self.decide_by)

    def broken(self, record: RunRecord) -> tuple[str, ...]:
        """Return the deciding functions that gave a finished run no score; none if it passes by another function."""
        if record.status != "finished" or (self.decide == "any" and self.passed(record)):
            return ()
        return tuple([name for name in self.deciding if name not in record.scores])

    def boundary(self, record: RunRecord) -> Boundary | None:
        """Return the boundary that kept the run from being scored, None if it was scored or never ran."""
        broken = self.broken(record)
        return reward_error(record, broken[0]).boundary if broken else record.boundary

    def measured(self, record: RunRecord) -> bool:
        """Return True if the run counts as an answer: it was scored, or broke at model, agent or timeout."""
        if record.status == "finished":
            return not self.broken(record)
        return record.status == "failed" and record.boundary not in INFRASTRUCTURE

    def verdict(self, record: RunRecord) -> bool | None:
        """Return True or False if the run passed or not, None if it was not measured."""
        return self.passed(record) if self.measured(record) else None


class Outcome(Struct, frozen=True):
    """The report of a run's test. `reason` is one line, `text` the block that is shown if it did not pass.

    `sections` holds (title, text) for the output, logs and warnings of the rollout. `duration_s` is the time of rollout
    and scoring, without waiting.
    """

    kind: Kind
    reason: str = ""
    text: str = ""
    sections: tuple[tuple[str, str], ...] = ()
    duration_s: float = 0.0


class Transcript(Struct, frozen=True):
    """The parts of a run that its test may show: conversation, user's traceback, printed output, line and ground truth
    of its row. The first `n_prompt` messages are the prompt's.
    """

    messages: Sequence[Mapping[str, Any]] = ()
    n_prompt: int = 0
    details: str = ""
    output: tuple[tuple[str, str], ...] = ()
    line: int = 0
    ground_truth: object = None


def judged_by_no_score(outcome: Outcome) -> Outcome:
    """Return the outcome of a smoke test: every scored run passes, and a section shows a score that is too low."""
    if outcome.kind != "failed":
        return outcome
    section = ("osmosis", f"smoke: passes whatever its score\n{outcome.text}")
    return replace(outcome, kind="passed", reason="", text="", sections=(*outcome.sections, section))


def kind_of(record: RunRecord, pass_rule: PassRule) -> Kind:
    """Return the kind of a run's outcome if no gate decides."""
    if record.status in ("pending", "skipped"):
        return "skipped"
    if pass_rule.boundary(record) is not None:
        return "error"
    return "passed" if pass_rule.passed(record) else "failed"


def reason_of(record: RunRecord, pass_rule: PassRule) -> str:
    """Return in one line why the run did not pass, "" if it did."""
    if record.status == "pending":
        return record.skip_reason or "never ran"
    if record.status == "skipped":
        return "taken out by its grader (remove_sample)"
    if broken := pass_rule.broken(record):
        error = reward_error(record, broken[0])
        where = "error in" if error.boundary == "reward" else f"{error.boundary}:"
        return f"{where} {broken[0]}: {error.message}"
    if record.boundary is not None:
        return f"{record.boundary}: {record.error}"
    if pass_rule.passed(record):
        return ""
    scores = ", ".join(
        score_line(record.scores[name], pass_rule.threshold(name), name if len(pass_rule.deciding) > 1 else "")
        for name in pass_rule.deciding
        if not pass_rule.met(record, name)
    )
    return scores if record.answer_fault is None else f"{scores} ({ANSWER_FAULTS[record.answer_fault]})"


def score_line(score: float, threshold: float, name: str = "") -> str:
    """Return a score and its threshold in words.

    >>> score_line(0.2, 0.5), score_line(0.99999999, 1.0)
    ('score 0.2 < 0.5', 'score 0.99999999 < 1.0')
    """
    sign = ">=" if score >= threshold else "<"
    shown, bound = distinguishable(score, threshold)
    return f"{name or 'score'} {shown} {sign} {bound}"


def error_of(record: RunRecord) -> str | None:
    """Return the error of a rollout, or else those of the functions that gave no score; None without any."""
    errors = (f"{name}: {error.message}" for name, error in record.scorer_errors.items())
    return record.error or "; ".join(errors) or None


NO_SCORE = RewardError("gave no score")


def reward_error(record: RunRecord, name: str) -> RewardError:
    """Return why a function gave a run no score."""
    return record.scorer_errors.get(name, NO_SCORE)
