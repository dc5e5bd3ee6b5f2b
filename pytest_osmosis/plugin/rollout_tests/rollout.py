"""The rollout that a test gets: a model's, or the reference solution of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pytest_osmosis.errors import ScoreError
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import NOTHING, RewardError
from pytest_osmosis.text.chat_messages import answer_of
from pytest_osmosis.text.safe import shortened

Origin = Literal["reference", "model"]


class Scores(Mapping[str, float]):
    """The scores of a rollout by the eval's own functions: "rewards:compute_reward", or "reward" for a Grader's.

    `score` is called once for each name, when the score is first looked up. It raises `ScoreError` if the function
    returned none.
    """

    def __init__(self, names: Callable[[], Sequence[str]], score: Callable[[str], float]) -> None:
        self._names = names
        self._score = score
        self._scored: dict[str, float] = {}

    def __getitem__(self, name: str) -> float:
        __tracebackhide__ = True
        if name not in self._scored:
            if name not in self:
                raise KeyError(f"no function named {name!r} scores this eval (valid: {', '.join(self._names())})")
            self._scored[name] = self._score(name)
        return self._scored[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._scored})"


class RecordedScores(Scores):
    """The scores that an engine recorded: `scores` and `errors` by name, `names` in order."""

    def __init__(
        self, names: Sequence[str], scores: Mapping[str, float], errors: Mapping[str, RewardError] = NOTHING
    ) -> None:
        super().__init__(lambda: names, self._score_of)
        self._recorded = scores
        self._errors = errors

    def _score_of(self, name: str) -> float:
        __tracebackhide__ = True
        if name in self._recorded:
            return self._recorded[name]
        error = self._errors.get(name, RewardError("it never ran"))
        raise ScoreError(f"{name} gave no score: {error.message}\n{error.details}".rstrip())

    def to_json(self) -> dict[str, Any]:
        errors = {name: [error.message, error.details] for name, error in self._errors.items()}
        return {"names": list(self), "scores": dict(self._recorded), "errors": errors}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RecordedScores:
        errors = {name: RewardError(*error) for name, error in data["errors"].items()}
        return cls(data["names"], data["scores"], errors)


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
    """The scores by the eval's own functions, as in `scores["rewards:compute_reward"]`; a Grader's is "reward".

    Looking up a score raises `ScoreError` if the function gave none. For a reference, the function is called then."""
    usage: Mapping[str, int] | None = None
    """Token counts by name, as in `usage["output_tokens"]`; None for a reference, or if the server sent none."""
    duration_s: float = 0.0
    """The time of the rollout in seconds, 0.0 for a reference."""
    finish_reason: str | None = None
    """The reason why the last answer ends, None for a reference."""
    n_prompt: int = 0
    """The number of messages, from the first, that are the prompt's."""

    def to_json(self) -> dict[str, Any]:
        assert isinstance(self.scores, RecordedScores), "workers get rollouts of models alone"
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "scores"}
        return {**plain, "scores": self.scores.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Rollout:
        return cls(**{**data, "scores": RecordedScores.from_json(data["scores"])})

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

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "rollout": self.rollout.to_json() if self.rollout is not None else None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RolloutResult:
        pairs = {name: tuple((title, value) for title, value in data[name]) for name in ("sections", "properties")}
        rollout = Rollout.from_json(data["rollout"]) if data["rollout"] is not None else None
        return cls(**{**data, **pairs, "rollout": rollout})
