"""A rollout as a test gets it: of a model, or a row's reference solution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pytest_osmosis.errors import ScoreError
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import NOTHING, RewardError
from pytest_osmosis.rewards.functions import solution_of
from pytest_osmosis.text.safe import shortened

Source = Literal["reference", "model"]


class Scores(Mapping[str, float]):
    """What the eval's own functions give a rollout, by name: "rewards:compute_reward", a Grader's as "reward".

    `score` is asked for a name once, when somebody looks it up. It raises `ScoreError` where a function gave none.
    """

    def __init__(self, names: Callable[[], Sequence[str]], score: Callable[[str], float]) -> None:
        self._names = names
        self._score = score
        self._known: dict[str, float] = {}

    def __getitem__(self, name: str) -> float:
        __tracebackhide__ = True
        if name not in self._known:
            if name not in self:
                raise KeyError(f"nothing called {name!r} scores this eval, but {', '.join(self._names())}")
            self._known[name] = self._score(name)
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._known})"


class Recorded(Scores):
    """The scores that were made when the rollout was: `scores` and `errors` by name, `names` in order."""

    def __init__(
        self, names: Sequence[str], scores: Mapping[str, float], errors: Mapping[str, RewardError] = NOTHING
    ) -> None:
        super().__init__(lambda: names, self._recorded)
        self._scores = scores
        self._errors = errors

    def _recorded(self, name: str) -> float:
        __tracebackhide__ = True
        if name in self._scores:
            return self._scores[name]
        error = self._errors.get(name, RewardError("it never ran"))
        raise ScoreError(f"{name} gave no score: {error.message}\n{error.details}".rstrip())

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, for a worker."""
        errors = {name: [error.message, error.details] for name, error in self._errors.items()}
        return {"names": list(self), "scores": dict(self._scores), "errors": errors}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Recorded:
        """The scores that `to_json` gave."""
        errors = {name: RewardError(*error) for name, error in data["errors"].items()}
        return cls(data["names"], data["scores"], errors)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Rollout:
    """One rollout: what was asked, what was answered.

    `messages` is the whole conversation, `row` the whole row, as a reward function gets it in `extra_info`. `usage`
    holds token counts by name, None where none were sent. A reference solution (`source`) has no usage, takes no time
    and has no `finish_reason`; its scores are worked out when they are looked up.
    """

    row_index: int
    run_index: int
    source: Source
    messages: list[dict[str, Any]]
    ground_truth: Any
    row: dict[str, Any]
    scores: Mapping[str, float] = field(default_factory=dict)
    usage: Mapping[str, int] | None = None
    duration_s: float = 0.0
    finish_reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """A model's rollout as plain JSON, for a worker."""
        assert isinstance(self.scores, Recorded)
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "scores"}
        return {**plain, "scores": self.scores.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Rollout:
        """The rollout that `to_json` gave."""
        return cls(**{**data, "scores": Recorded.from_json(data["scores"])})

    @property
    def solution_str(self) -> str:
        """The text of the last answer, "" where there is none."""
        return solution_of(self.messages)

    def __repr__(self) -> str:
        answer = shortened(self.solution_str, 200)
        return f"<{self.source} rollout {RunId(self.row_index, self.run_index)}: {answer!r}>"
