"""Environments of verifiers in a real host, asking a scripted server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.environments.hosts import by_run, environment_host, run_request, scoring_fields, setup_of
from tests.servers import OVERFLOW, ChatServer, Exchange, completion, data

ENVIRONMENTS = Path(__file__).parent / "environments"
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
NAMES = ["sum", "stop", "overlong", "empty", "empty once", "bug", "infra", "broken", "nan", "nothing", "denied"]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


class Script:
    """The answers to rows of `tools_env`, by their question."""

    def __init__(self) -> None:
        self.n_empty = 0

    async def __call__(self, exchange: Exchange) -> web.StreamResponse:
        messages = exchange.seen.body["messages"]
        question = next(message["content"] for message in messages if message["role"] == "user")
        last = messages[-1]
        if question == "overlong":
            return await data(OVERFLOW, status=400)(exchange)
        if question == "denied":
            return await data({"error": {"message": "wrong key"}}, status=401)(exchange)
        message: dict[str, Any] = {"role": "assistant", "content": question}
        if question == "sum":
            message["content"] = last["content"] if last["role"] == "tool" else "Let me add."
            if last["role"] != "tool":
                message["tool_calls"] = [call("add", a=2, b=3)]
        elif question == "stop":
            message["tool_calls"] = [call("refuse", reason="enough")]
        elif question == "empty":
            message["content"] = ""
        elif question == "empty once":
            self.n_empty += 1
            message["content"] = "" if self.n_empty == 1 else question
        return await data(completion(message, usage=USAGE))(exchange)


def row(name: str) -> Mapping[str, Any]:
    system = {"role": "system", "content": "Use the tools."}
    return {"prompt": [system, {"role": "user", "content": name}], "answer": "5" if name == "sum" else name}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The events of one host that rolled out and scored each row, its requests, and those of a later scorer."""
    root = tmp_path_factory.mktemp("tools")
    requests = {name: run_request(row(name), index) for index, name in enumerate(NAMES)}
    with ChatServer(Script()) as server:
        tools = {"module": "tools_env", "folder": str(ENVIRONMENTS)}
        own: Any = {"state_columns": ["seen", "pool", "trajectory"], "rollout_retries": 1, "sampling": {"top_p": 0.5}}
        headers = {"X-Session-ID": "example_id"}
        setup = setup_of(server.base_url, root, **tools, **own, headers_from_state=headers)
        with environment_host(setup, root / "log") as host:
            *others, denied = requests.values()
            host.send(*others)
            host.until("rollout", len(others))
            host.send(denied)  # its host sends no further request
            rollouts = by_run(host.until("rollout", len(NAMES)))
            n_scored = sum(rollout.get("boundary") is None for rollout in rollouts.values())
            scores = by_run(host.until("score", n_scored))
        again = setup_of(server.base_url, root, **tools, role="score")
        with environment_host(again, root / "log") as later:
            stored = json.loads(json.dumps(scoring_fields(requests["sum"], rollouts[0, 0])))
            later.send({"op": "score", "names": ["reward"], **stored})
            [rescored] = later.until("score")
        seen = list(server.requests)
    at = {name: (index, 0) for index, name in enumerate(NAMES)}
    scored = {name: scores[key] for name, key in at.items() if key in scores}
    return {name: rollouts[key] for name, key in at.items()}, scored, seen, rescored


def test_tools_are_called_until_the_environment_stops_and_its_state_is_kept(played: Any) -> None:
    rollouts, scores, seen, rescored = played
    rollout, score, facts = rollouts["sum"], scores["sum"], rollouts["sum"]["environment"]

    roles = ["system", "user", "assistant", "tool", "assistant"]
    assert [message["role"] for message in rollout["messages"]] == roles
    assert (rollout["messages"][-1]["content"], rollout["n_prompt"]) == ("5", 2)
    assert facts["stop_condition"] == "no_tools_called"
    tokens = {"input_tokens": 10.0, "output_tokens": 4.0, "final_input_tokens": 3.0, "final_output_tokens": 4.0}
    assert facts["token_usage"] == tokens
    assert facts["columns"]["seen"] == ["5"]
    assert facts["columns"]["pool"].startswith("<object object")
    assert len(facts["columns"]["trajectory"]) == 2
    assert score["scores"] == {"reward": 2.0}
    calls = {"total_tool_calls": 1.0, "add_calls": 1.0, "refuse_calls": 0.0}
    assert score["metrics"]["reward"] == {"exact": 1.0, "length": 3.0, "num_turns": 2.0, **calls}
    assert [rescored[name] for name in ("scores", "metrics")] == [score[name] for name in ("scores", "metrics")]
    body = seen[0].body
    assert (body["temperature"], body["top_p"]) == (0.5, 0.5)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["add", "refuse"]
    assert {request.headers["x-session-id"] for request in seen} >= {"0", "1"}


def test_errors_have_the_boundary_of_what_broke_and_a_prompt_that_is_too_long_is_scored(played: Any) -> None:
    rollouts, scores, *_ = played

    failed = {name: rollout["boundary"] for name, rollout in rollouts.items() if rollout.get("boundary") is not None}
    assert failed == {"stop": "agent", "empty": "model", "denied": "provider", "bug": "agent", "infra": "host"}
    assert rollouts["stop"]["error"] == "ToolCallError (PermissionError: enough)"
    assert rollouts["stop"]["environment"]["error"]["error_chain_str"] == "ToolCallError -> PermissionError"
    assert rollouts["empty"]["error"].startswith("EmptyModelResponseError: Model returned no content")
    assert rollouts["empty"]["environment"]["retries"] == 1
    assert rollouts["empty once"]["environment"]["retries"] == 1
    assert rollouts["denied"]["systemic"] == "always"
    assert "401" in rollouts["denied"]["error"]
    assert rollouts["bug"]["error"] == "ZeroDivisionError: in setup_state"
    assert rollouts["infra"]["error"] == "SandboxError: no sandbox"
    assert rollouts["overlong"]["environment"]["stop_condition"] == "prompt_too_long"
    assert rollouts["overlong"]["environment"]["is_truncated"] is True
    assert scores["overlong"]["scores"] == {"reward": 0.0}


def test_a_reward_function_that_fails_is_an_error_and_no_zero(played: Any) -> None:
    errors = {name: played[1][name]["errors"]["reward"] for name in ("broken", "nan", "nothing")}

    assert errors["broken"]["message"] == "KeyError: 'no such key'"
    assert "tools_env.py" in errors["broken"]["details"]
    assert errors["nan"]["message"] == "exact: must return a finite number, got nan"
    assert errors["nothing"]["message"] == "exact: must return a number, got NoneType: None"


def group(root: Path, texts: list[str], **args: Any) -> list[Mapping[str, Any]]:
    """Roll out one row as often as there are texts, and return the events of scoring them together."""
    answers = iter(texts)

    async def say(exchange: Exchange) -> web.StreamResponse:
        return await data(completion({"role": "assistant", "content": next(answers)}, usage=USAGE))(exchange)

    requests = [run_request({"prompt": row("x")["prompt"][1:]}, 0, run) for run in range(len(texts))]
    with ChatServer(say) as server:
        setup = setup_of(server.base_url, root, module="group_env", folder=str(ENVIRONMENTS), limit=1, args=args)
        with environment_host(setup, root / "log") as host:
            host.send(*requests)
            rollouts = by_run(host.until("rollout", len(texts)))
            runs = [scoring_fields(request, rollouts[0, run]) for run, request in enumerate(requests)]
            host.send({"op": "score_group", "names": ["reward"], "runs": runs})
            scores = by_run(host.until("score", len(texts)))
            assert host.until("ready")[0]["grouped"] == ["reward"]
    return [scores[0, run] for run in range(len(texts))]


def test_all_runs_of_a_row_are_scored_together(tmp_path: Path) -> None:
    scores = group(tmp_path, ["short", "much longer", "CRASH"])

    assert [score["scores"] for score in scores] == [{"reward": 1.0}, {"reward": 2.0}, {}]
    assert scores[1]["metrics"]["reward"] == {"longest": 1.0, "not_shouted": 1.0, "num_turns": 1.0}
    assert scores[2]["errors"]["reward"]["message"] == "ValueError: too loud"


def test_a_group_function_must_return_a_number_for_each_run(tmp_path: Path) -> None:
    scores = group(tmp_path, ["a", "b"], short=True)

    assert [score["errors"]["reward"]["message"] for score in scores] == [
        "cut: must return 2 numbers, one for each run of the row, got 1: [0.0]"
    ] * 2
