"""`[scoring] rubric` in a host: the judge of the config scores a rollout, under a name of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypedDict

from pytest_osmosis.host.protocol import ScoringFields
from pytest_osmosis.judges.judge import Ask, Judge
from pytest_osmosis.judges.prompt import Rubric, Submission, conversation_text, prompt_text, value_text
from pytest_osmosis.judges.requests import JudgeModel
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.rewards.reward import MOST_REASON_CHARS, Reward
from pytest_osmosis.text.chat_messages import answer_of
from pytest_osmosis.text.json_line import dumps
from pytest_osmosis.text.safe import shortened

RUBRIC = "rubric"
"""The name of the score."""


class JudgeSetup(TypedDict):
    """The judge of a config, as a host gets it. `model` is its name as typed, `base_url` unless the name implies it."""

    model: str
    base_url: str | None
    target: Mapping[str, Any]
    rubric: str
    score_range: Sequence[float]
    votes: int
    sees: str
    metadata: Sequence[str]
    system_prompt: str
    sampling: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RubricScorer:
    """Scores conversations by a rubric. `model` is the judge's model."""

    model: JudgeModel
    judge: Judge
    sees_conversation: bool
    metadata: tuple[str, ...]
    digest: str

    @classmethod
    def of(cls, setup: Mapping[str, Any]) -> RubricScorer:
        low, high = setup["score_range"]
        target = ModelTarget(**setup["target"])
        model = JudgeModel(setup["model"], setup["base_url"], target)
        rubric = Rubric(setup["rubric"], low, high, setup["system_prompt"])
        return cls(
            model,
            Judge(rubric, setup["votes"], setup["sampling"]),
            setup["sees"] == "conversation",
            tuple(setup["metadata"]),
            judge_digest(setup),
        )

    async def score(self, request: ScoringFields, ask: Ask) -> Reward:
        """Return the judgement on a conversation. Raises `JudgeError` and `ModelError`."""
        run = str(RunId.of(request))
        judgement = await self.judge.judge(self.submission(request), ask, run=f"{run}-judge")
        reason = shortened(judgement.reason, MOST_REASON_CHARS)
        return Reward(judgement.score, reason, judgement.metrics, judgement.fields)

    def submission(self, request: ScoringFields) -> Submission:
        """Return the part of a rollout that is judged, and what else the judge sees of it."""
        messages, n_prompt, row = request["messages"], request["n_prompt"], request["record"]
        whole = self.sees_conversation
        return Submission(
            conversation_text(messages) if whole else answer_of(messages[n_prompt:]) or "",
            is_conversation=whole,
            original_input="" if whole else prompt_text(messages[:n_prompt]),
            ground_truth=value_text(request["ground_truth"]),
            metadata={name: row[name] for name in self.metadata if name in row},
        )


def judge_digest(setup: Mapping[str, Any]) -> str:
    """Return the digest of all that a judge's scores depend on: its model, its rubric, and what it sees."""
    target = setup["target"]
    model = [setup["model"], target["base_url"], target["provider"], target["model"]]
    rest = {name: value for name, value in setup.items() if name not in ("target", "model", "base_url")}
    return blake2b(dumps({"model": model, **rest}).encode(), digest_size=8).hexdigest()
