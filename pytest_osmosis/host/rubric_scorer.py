"""`[scoring] rubric` in a host: the judge of the config scores a rollout, under a name of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_osmosis.host.protocol import ScoringFields, judge_digest
from pytest_osmosis.judges.judge import Ask, Judge, Rubric, Submission, conversation_text, prompt_text, value_text
from pytest_osmosis.judges.sending import JudgeModel
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.rewards.graders import MOST_REASON_CHARS, Reward
from pytest_osmosis.text.chat_messages import answer_of
from pytest_osmosis.text.safe import shortened


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
        target = ModelTarget.from_json(setup["target"])
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
        messages, n_prompt, row = request["messages"], request["n_prompt"], request["record"]
        whole = self.sees_conversation
        submission = Submission(
            conversation_text(messages) if whole else answer_of(messages[n_prompt:]) or "",
            is_conversation=whole,
            original_input="" if whole else prompt_text(messages[:n_prompt]),
            ground_truth=value_text(request["ground_truth"]),
            metadata={name: row[name] for name in self.metadata if name in row},
        )
        judgement = await self.judge.judge(submission, ask, run=f"{RunId.of(request)}-judge")
        reason = shortened(judgement.reason, MOST_REASON_CHARS)
        return Reward(judgement.score, reason, fields=judgement.fields)
