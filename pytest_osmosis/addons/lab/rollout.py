"""The rollout that a test gets: a model's, or the reference solution of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

from pytest_osmosis.errors import ScoreError
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import NOTHING, RewardError
from pytest_osmosis.rewards.graders import Reward
from pytest_osmosis.text.chat_messages import answer_of
from pytest_osmosis.text.safe import shortened

T = TypeVar("T", covariant=True)

Origin = Literal["reference", "model"]


class Scores(Mapping[str, float]):
    """The scores of a rollout by the eval's own functions: "rewards:compute_reward", or "reward" for a Grader's.

    `reward` is called once for each name, when the score is first looked up. It raises `ScoreError` if the function
    returned none.
    """

    def __init__(self, names: Callable[[], Sequence[str]], reward: Callable[[str], Reward]) -> None:
        self._names = names
        self._reward = reward
        self._rewards: dict[str, Reward] = {}

    def __getitem__(self, name: str) -> float:
        __tracebackhide__ = True
        score = self.reward(name).score
        assert score is not None, "a Grader that removes the run is a ScoreError"
        return score

    def reward(self, name: str) -> Reward:
        """Return the score of a function with its reason and metrics."""
        __tracebackhide__ = True
        if name not in self._rewards:
            if name not in self:
                raise KeyError(f"no function named {name!r} scores this eval (valid: {', '.join(self._names())})")
            self._rewards[name] = self._reward(name)
        return self._rewards[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __repr__(self) -> str:
        scores = {name: reward.score for name, reward in self._rewards.items()}
        return f"{type(self).__name__}({scores})"


class RecordedScores(Scores):
    """The scores that an engine recorded: `scores`, `errors`, `reasons` and `metrics` by name, `names` in order.

    They are pickled on their way to a worker of xdist.
    """

    def __init__(
        self,
        names: Sequence[str],
        scores: Mapping[str, float],
        errors: Mapping[str, RewardError] = NOTHING,
        reasons: Mapping[str, str] = NOTHING,
        metrics: Mapping[str, Mapping[str, float]] = NOTHING,
    ) -> None:
        super().__init__(partial(list, names), self._reward_of)
        self._recorded = {
            name: Reward(score, reasons.get(name, ""), metrics.get(name, {})) for name, score in scores.items()
        }
        self._errors = dict(errors)

    def _reward_of(self, name: str) -> Reward:
        __tracebackhide__ = True
        if name in self._recorded:
            return self._recorded[name]
        error = self._errors.get(name, RewardError("it never ran"))
        raise ScoreError(f"{name} gave no score: {error.message}\n{error.details}".rstrip())


class RewardParts(Mapping[str, T]):
    """A part of each reward: the reasons, or the metrics. A function is called when its part is first looked up."""

    def __init__(self, scores: Mapping[str, float], part: Callable[[Reward], T]) -> None:
        self._scores = scores
        self._part = part

    def __getitem__(self, name: str) -> T:
        __tracebackhide__ = True
        scores = self._scores
        return self._part(scores.reward(name) if isinstance(scores, Scores) else Reward(scores[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._scores)

    def __len__(self) -> int:
        return len(self._scores)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Rollout:
    """One rollout: the fixture `rollout` of a test marked `osmosis_eval`."""

    row_index: int
    """The position of the row in the dataset, from 0."""
    run_index: int
    """The number of the run among the `n` runs of the row, from 0."""
    source: Origin
    """The origin of the messages: "reference" (the row's own solution) or "model"."""
    messages: list[dict[str, Any]]
    """The whole conversation, in the shape of OpenAI's chat completions."""
    ground_truth: Any
    """The row's ground truth, None if it has none."""
    row: dict[str, Any]
    """The whole row, as a reward function gets it in `extra_info`."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """The scores by the eval's own functions, as in `scores["rewards:compute_reward"]`; a Grader's is "reward". Looking
    up a score raises `ScoreError` if the function gave none. A reference is scored then."""
    usage: Mapping[str, int] | None = None
    """Token counts by name, as in `usage["output_tokens"]`; None for a reference, or if the server sent none."""
    duration_s: float = 0.0
    """The time of the rollout in seconds, 0.0 for a reference."""
    finish_reason: str | None = None
    """The reason why the last answer ends, None for a reference."""
    n_prompt: int = 0
    """The number of messages, from the first, that are the prompt's."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The numbers that the agent reported (`AgentWorkflowOutput.metrics`); none for a reference."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """The further facts that the agent reported (`AgentWorkflowOutput.info`); none for a reference."""

    @property
    def reasons(self) -> Mapping[str, str]:
        """The reasons that functions gave for their scores, by name as in `scores`; "" if a function gave none."""
        return RewardParts(self.scores, lambda reward: reward.reason)

    @property
    def score_metrics(self) -> Mapping[str, Mapping[str, float]]:
        """The further numbers that functions returned with their scores, by name as in `scores`."""
        return RewardParts(self.scores, lambda reward: reward.metrics)

    @property
    def solution_str(self) -> str:
        """The text of the model's last answer, "" if there is none."""
        return answer_of(self.messages[self.n_prompt :]) or ""

    def __repr__(self) -> str:
        answer = shortened(self.solution_str, 200)
        return f"<{self.source} rollout {RunId(self.row_index, self.run_index)}: {answer!r}>"


class RolloutResult(NamedTuple):
    """The answer to a test's request: a rollout, or the reason for a skip or an error (`text`).

    `where` is the dataset line; `sections` and `properties` go into the test's report.
    """

    rollout: Rollout | None
    kind: Literal["rollout", "skipped", "error"] = "rollout"
    text: str = ""
    where: str = ""
    sections: tuple[tuple[str, str], ...] = ()
    properties: tuple[tuple[str, Any], ...] = ()
