"""A judge: asks a model for its opinion on a submission, once or several times, and returns one score.

An answer that holds no score within the range is sent back once, with what is wrong with it. After that, `JudgeError`
is raised. Errors of requests are left to the caller: they say nothing about what is judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import fsum
from typing import Any

from pytest_osmosis.errors import ITS_ANSWER, JudgeError
from pytest_osmosis.judges.answer import Opinion, UnreadableAnswer, read_opinion
from pytest_osmosis.judges.prompt import FORMAT, Rubric, Submission, judge_messages
from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.text.safe import one_line

Ask = Callable[[ChatRequest], Awaitable[ChatReply]]
"""Sends one request to the model of a judge, with its retries."""

SHOWN_ANSWER = 200


@dataclass(frozen=True, slots=True)
class Judgement:
    """The opinions of one judge on one submission. There is at least one."""

    opinions: tuple[Opinion, ...]
    low: float
    high: float

    @property
    def score(self) -> float:
        """The mean of the votes."""
        return fsum(each.score for each in self.opinions) / len(self.opinions)

    @property
    def agreement(self) -> float:
        """1.0 if all votes are equal; 1 minus the mean difference between two votes, as a share of the range.

        >>> votes = [Opinion(score, "") for score in (0.0, 0.0, 1.0, 1.0)]
        >>> round(Judgement(tuple(votes), 0.0, 1.0).agreement, 3), Judgement(tuple(votes[:2]), 0.0, 1.0).agreement
        (0.333, 1.0)
        """
        pairs = list(combinations((each.score for each in self.opinions), 2))
        if not pairs:
            return 1.0
        return 1.0 - fsum(abs(one - other) for one, other in pairs) / len(pairs) / (self.high - self.low)

    @property
    def reason(self) -> str:
        """The explanation of the vote that is nearest to the score, then the votes if there are several."""
        nearest = min(self.opinions, key=lambda each: abs(each.score - self.score))
        if len(self.opinions) == 1:
            return nearest.explanation
        votes = ", ".join(f"{each.score:g}" for each in self.opinions)
        return f"{nearest.explanation} (votes {votes}; agreement {self.agreement:.2f})".strip()

    @property
    def metrics(self) -> Mapping[str, float]:
        """The numbers that are reported with the score: for several votes how they agree."""
        return {"agreement": self.agreement} if len(self.opinions) > 1 else {}

    @property
    def fields(self) -> Mapping[str, Any]:
        """Several votes, one by one."""
        return {"votes": [each.score for each in self.opinions]} if len(self.opinions) > 1 else {}


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges submissions by a rubric. `votes` requests are sent at once; `sampling` goes with each of them."""

    rubric: Rubric
    votes: int = 1
    sampling: Mapping[str, Any] = field(default_factory=dict)

    async def judge(self, submission: Submission, ask: Ask, *, run: str = "", seed: int | None = None) -> Judgement:
        """Return the judgement on a submission. `run` and `seed` are those of the run that is judged."""
        messages = judge_messages(self.rubric, submission)
        requests = [
            ChatRequest(messages, sampling=self.sampling, seed=_seed_of_vote(seed, vote), run=f"{run}-vote{vote}")
            for vote in range(self.votes)
        ]
        opinions = await _all([self._opinion(request, ask) for request in requests])
        return Judgement(tuple(opinions), self.rubric.low, self.rubric.high)

    async def _opinion(self, request: ChatRequest, ask: Ask) -> Opinion:
        reply = await ask(request)
        try:
            return self._read(reply)
        except UnreadableAnswer as fault:
            again = (
                f"I cannot read that answer: {fault}. Answer again, with nothing but one JSON object: {FORMAT}, "
                f"with a score {self.rubric.range_text}"
            )
        answer = {"role": "assistant", "content": reply.content or "(no text)"}
        repair = [*request.messages, answer, {"role": "user", "content": again}]
        reply = await ask(ChatRequest(repair, sampling=request.sampling, seed=request.seed, run=f"{request.run}-again"))
        try:
            return self._read(reply)
        except UnreadableAnswer as fault:
            text = one_line(reply.content, SHOWN_ANSWER)
            raise JudgeError(f"the judge gave no score, even when asked again: {fault}{ITS_ANSWER}{text}") from None

    def _read(self, reply: ChatReply) -> Opinion:
        try:
            return read_opinion(reply.content, self.rubric.low, self.rubric.high)
        except UnreadableAnswer as fault:
            if reply.finish_reason == "length":
                raise UnreadableAnswer(f"{fault} (it was cut off at its token limit)") from None
            raise


async def _all(votes: Sequence[Coroutine[Any, Any, Opinion]]) -> Sequence[Opinion]:
    """Return all opinions. The first error is raised once all votes have ended, so that what they cost is counted."""
    opinions = await asyncio.gather(*votes, return_exceptions=True)
    for opinion in opinions:
        if isinstance(opinion, BaseException):
            raise opinion
    return [opinion for opinion in opinions if isinstance(opinion, Opinion)]


def _seed_of_vote(seed: int | None, vote: int) -> int | None:
    """Return another seed for each vote: equal ones would give equal answers."""
    return None if seed is None else seed + vote
