"""The sum of a rollout's requests, which may be answered in any order."""

from __future__ import annotations

from pytest_osmosis.host.chat import RequestTotals
from pytest_osmosis.models.base import ChatReply


def test_the_last_answer_is_that_to_the_last_request() -> None:
    totals = RequestTotals()
    for turn in (1, 3, 2):
        totals.add(ChatReply({"role": "assistant"}, f"reason {turn}", None, f"model {turn}"), turn)

    assert (totals.answers, totals.finish_reason, totals.model) == (3, "reason 3", "model 3")
