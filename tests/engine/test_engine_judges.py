"""LLM judges in an eval: their scores, their requests, their failures, and what they cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pytest_osmosis.text.chat_messages import blocks_in
from tests.engine.evaluating import Live, Workspace, evaluated
from tests.servers import Behaviour, ChatServer, Exchange, reply, slow, status

pytestmark = pytest.mark.slow

RIGHT = json.dumps({"score": 1, "explanation": "it is right"})
ROWS = 4
KEY = "sk-judge-0123456789"

OLD = """
from pytest_osmosis import evaluate_rubric, osmosis_rubric
import os

@osmosis_rubric
def judged(solution_str: str, ground_truth: str, extra_info: dict, **kwargs) -> float:
    info = {"provider": "openai", "model": "gpt-5-mini", "api_key": os.getenv("OPENAI_API_KEY")}
    return evaluate_rubric("Right?", solution_str, info, ground_truth=ground_truth)
"""
NEW = """
from pytest_osmosis import evaluate_rubric

async def judged(solution_str, ground_truth):
    result = await evaluate_rubric(
        solution_str=solution_str, rubric="Right?", model="openai/gpt-5-mini", ground_truth=ground_truth
    )
    return {"score": result.score, "reason": result.explanation}
"""


@pytest.fixture
def questions(workspace: Workspace) -> Workspace:
    """A workspace whose rows the embedded model solves."""
    workspace.rows([{"user_prompt": f"What is {row} + 40?", "ground_truth": f"{row + 40}"} for row in range(ROWS)])
    return workspace


def judged_config(workspace: Workspace, server: ChatServer, **tables: Mapping[str, Any]) -> Path:
    """An eval that the embedded model solves, and that a model on `server` judges."""
    judge = {"model_path": "the-judge", "base_url": server.base_url, **tables.pop("judge", {})}
    scoring = {"eval_fns": [], "rubric": "Is the number right?", **tables.pop("scoring", {})}
    return workspace.config(None, scoring=scoring, judge=judge, **tables)


def calling_config(workspace: Workspace, code: str, **tables: Mapping[str, Any]) -> Path:
    """An eval that the embedded model solves, whose function calls `evaluate_rubric`."""
    workspace.write("judging.py", code)
    return workspace.config(None, scoring={"eval_fns": ["judging:judged"]}, **tables)


def judged_by(workspace: Workspace, *script: Behaviour, **tables: Mapping[str, Any]) -> tuple[Live, ChatServer]:
    with ChatServer(*script) as server:
        return evaluated(judged_config(workspace, server, **tables)), server


def called(workspace: Workspace, code: str, *script: Behaviour, **tables: Mapping[str, Any]) -> tuple[Live, ChatServer]:
    with ChatServer(*script) as server:
        environ = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.base_url}
        return evaluated(calling_config(workspace, code, **tables), environ=environ), server


def test_a_judge_scores_each_run_and_is_counted_apart(questions: Workspace) -> None:
    questions.write("rubrics/number.md", "Is the number right?\n")
    live, server = judged_by(
        questions,
        reply(RIGHT),
        scoring={"rubric": "rubrics/number.md"},
        prices={"the-judge": {"input": 1, "output": 2}},
    )

    assert live.kinds() == ["passed"] * ROWS
    record = live.record(0)
    assert (dict(record.scores), record.reasons["rubric"]) == ({"rubric": 1.0}, "it is right")
    assert record.tokens != 10, "the tokens of the judge are not the rollout's"
    (use,) = record.judge_uses
    assert (use.model, use.base_url, use.calls, use.tokens) == ("the-judge", server.base_url, 1, 10)
    blocks = blocks_in(server.bodies[0]["messages"][1]["content"])
    assert blocks.keys() == {"ORIGINAL_INPUT", "CANDIDATE_OUTPUT", "GROUND_TRUTH"}
    published = live.results.to_json()
    judges = published["summary"]["judges"]
    assert (judges["calls"], judges["total_tokens"], judges["cost_usd"]) == (ROWS, ROWS * 10, ROWS * 13e-6)
    assert published["summary"]["cost_usd"] == 0
    assert published["summary"]["total_tokens"] == sum(each.tokens or 0 for each in live.results.records)
    assert published["rows"][0]["runs"][0]["judges_cost_usd"] == 13e-6


def test_votes_that_were_paid_for_are_counted_though_another_was_refused(questions: Workspace) -> None:
    asked: set[str] = set()

    async def judge(exchange: Exchange) -> web.StreamResponse:
        text = exchange.seen.body["messages"][1]["content"]
        is_first = text not in asked
        asked.add(text)
        return await (status(400) if is_first else slow(0.3, reply(RIGHT)))(exchange)

    live, server = judged_by(questions, judge, judge={"votes": 3}, evaluation={"batch_size": ROWS})

    assert live.kinds() == ["error"] * ROWS
    calls = sum(use.calls for row in range(ROWS) for use in live.record(row).judge_uses)
    assert calls == len(server.bodies) - ROWS == 2 * ROWS


def test_a_judge_may_see_the_conversation_and_columns(questions: Workspace) -> None:
    row = {"user_prompt": "What is 6 * 7?", "ground_truth": "42"}
    questions.rows([{**row, "topic": "mul", "secret": "x"}, {**row, "absent": "here"}])
    judge = {"sees": "conversation", "metadata": ["topic", "absent"], "score_range": [0, 10]}
    live, server = judged_by(questions, reply('{"score": 10, "explanation": "great"}'), judge=judge)

    judged = [blocks_in(body["messages"][1]["content"]) for body in server.bodies]
    for blocks in judged:
        messages = [json.loads(line) for line in blocks["CANDIDATE_CONVERSATION"].splitlines()]
        assert [message["role"] for message in messages] == ["user", "assistant"]
    assert sorted((json.loads(blocks["METADATA"]) for blocks in judged), key=str) == [
        {"absent": "here"},
        {"topic": "mul"},
    ]
    assert live.record(0).scores["rubric"] == 10.0


def test_requests_to_a_judge_are_retried_and_have_limits_of_their_own(questions: Workspace) -> None:
    tables: dict[str, Any] = {"judge": {"requests_per_minute": 600}, "execution": {"hosts": 2}}
    live, _ = judged_by(questions, status(503), reply(RIGHT), **tables)

    assert live.kinds() == ["passed"] * ROWS
    assert sum(use.retries for row in range(ROWS) for use in live.record(row).judge_uses) == 1
    assert sum(live.record(row).retries for row in range(ROWS)) == 0
    assert live.results.throttling.held_s.keys() == {"judge.requests_per_minute"}


def test_an_outage_of_a_judge_is_no_score(questions: Workspace) -> None:
    script = [*[status(500, retry_after="0.01")] * ROWS, reply(RIGHT)]
    live, _ = judged_by(questions, *script, judge={"max_retries": 0})

    assert live.kinds() == ["error"] * ROWS
    record, pass_rule = live.record(0), live.run.pass_rule
    assert dict(record.scores) == {}
    assert record.scorer_errors["rubric"].boundary == pass_rule.boundary(record) == "provider"
    assert not pass_rule.measured(record)
    assert live.outcome(0).reason.startswith("provider: rubric: the server answered 500")
    assert live.results.boundaries() == {"provider": ROWS}
    run = live.results.to_json()["rows"][0]["runs"][0]
    assert (run["boundary"], run["infra"], run["status"], run["scores"]) == ("provider", True, "finished", {})


def test_a_wrong_key_of_a_judge_stops_the_eval_and_stays_secret(questions: Workspace) -> None:
    questions.rows([{"user_prompt": f"What is {row} + 40?", "ground_truth": "1"} for row in range(40)])
    echo = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
    with ChatServer(status(401, echo)) as server:
        config = judged_config(questions, server, judge={"api_key_env": "JUDGE_KEY"}, evaluation={"batch_size": 1})
        live = evaluated(config, environ={"JUDGE_KEY": KEY})

    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert live.stop.text.startswith("the judge: ")
    assert len(server.requests) == 1
    assert live.results.count("pending") > 0
    assert not any(KEY in text for text in live.run_files().values())


def test_the_model_of_a_judge_is_probed_before_the_first_run(questions: Workspace) -> None:
    with ChatServer(status(404)) as server:
        live = evaluated(judged_config(questions, server), probe=True)

    assert live.stop.text.startswith("the judge: the test request failed: ")
    assert [record.rolled for record in live.results.records] == [False] * ROWS


@pytest.mark.parametrize(("limits", "runs"), [({"max_tokens": 240}, 11), ({"max_cost_usd": 60e-6}, 6)], ids=str)
def test_what_judges_use_is_in_the_budget(questions: Workspace, limits: Mapping[str, Any], runs: int) -> None:
    """A rollout uses 12 tokens here and its judge 10; only those of the judge have a price."""
    questions.rows([{"user_prompt": f"What is {row} + 40?", "ground_truth": f"{row + 40}"} for row in range(40)])
    live, server = judged_by(
        questions,
        reply(RIGHT),
        limits=limits,
        prices={"the-judge": {"input": 1, "output": 1}},
        evaluation={"batch_size": 1},
    )

    assert live.results.stop_reason == next(iter(limits))
    assert runs - 2 <= len(server.requests) <= runs


def test_a_budget_does_not_wait_for_judges_that_wait_for_the_last_rollout(questions: Workspace) -> None:
    tables: dict[str, Any] = {"limits": {"max_tokens": 10_000}, "execution": {"interleave_scoring": False}}
    live, _ = judged_by(questions, reply(RIGHT), **tables)

    assert live.kinds() == ["passed"] * ROWS


@pytest.mark.parametrize("code", [OLD, NEW], ids=["blocks", "awaits"])
def test_functions_may_ask_judges_themselves(questions: Workspace, code: str) -> None:
    live, server = called(questions, code, status(503), reply(RIGHT))

    assert live.kinds() == ["passed"] * ROWS
    uses = [use for row in range(ROWS) for use in live.record(row).judge_uses]
    assert {(use.model, use.base_url) for use in uses} == {("openai/gpt-5-mini", server.base_url)}
    assert (sum(use.calls for use in uses), sum(use.retries for use in uses)) == (ROWS, 1)
    assert {seen.headers["authorization"] for seen in server.requests} == {f"Bearer {KEY}"}
    assert blocks_in(server.bodies[0]["messages"][1]["content"]).keys() == {"CANDIDATE_OUTPUT", "GROUND_TRUTH"}


@pytest.mark.parametrize("code", [OLD, NEW], ids=["blocks", "awaits"])
@pytest.mark.parametrize(
    ("behaviour", "boundary", "text"),
    [
        (status(500), "provider", "ProviderRequestError: Provider 'openai' request for model 'gpt-5-mini' failed."),
        (status(404), "provider", "ModelNotFoundError: Provider 'openai' request for model 'gpt-5-mini' failed."),
        (reply("no idea"), "reward", "its answer: no idea"),
    ],
    ids=["outage", "no model", "garbage"],
)
def test_failures_of_judges_in_functions_are_told_apart(
    questions: Workspace, code: str, behaviour: Behaviour, boundary: str, text: str
) -> None:
    questions.rows([{"user_prompt": "What is 6 * 7?", "ground_truth": "42"}])
    live, _ = called(questions, code, behaviour, judge={"max_retries": 0})

    error = live.record(0).scorer_errors["judging:judged"]
    assert (error.boundary, live.results.boundaries()) == (boundary, {boundary: 1})
    assert text in error.message


def test_a_function_without_its_key_is_a_reward_error(questions: Workspace) -> None:
    live = evaluated(calling_config(questions, OLD), environ={"OPENAI_API_KEY": ""})

    error = live.record(0).scorer_errors["judging:judged"]
    assert error.boundary == "reward"
    assert "MissingAPIKeyError: Environment variable 'OPENAI_API_KEY' is not set." in error.message
