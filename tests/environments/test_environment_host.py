"""Environments in a real host, by duck type, without verifiers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.environments.hosts import by_run, environment_host, run_request, scoring_fields, setup_of
from tests.servers import ChatServer, Exchange, completion, data

ENVIRONMENT = """
import asyncio, signal, threading


class Error(Exception): ...
class InfraError(Error): ...
class SandboxError(InfraError): ...
class ModelError(Error): ...
class ToolError(Error): ...


class Rubric:
    def __init__(self, grouped):
        self.has_group_rewards = grouped

    async def score_group(self, states):
        for state in states:
            await self.score_rollout(state)
            if isinstance(state["metrics"], dict):
                state["metrics"]["group"] = len(states)

    async def score_rollout(self, state):
        answer = state["completion"][-1]["content"]
        if answer == "crash":
            raise KeyError("reward")
        if answer == "nan":
            state["reward"], state["metrics"] = float("nan"), {}
            return
        if answer == "list":
            state["reward"], state["metrics"] = 1.0, [1.0]
            return
        state["reward"] = float(answer == state["answer"])
        state["metrics"] = {"turns": state["turns"], "note": "text", "thread": float(state["lock"] is not None)}

    async def cleanup(self, state):
        print("cleaned up", state["example_id"])


class Env:
    sampling_args = {"n": 1, "temperature": 0.25, "extra_body": {"top_k": 7, "min_p": 0.5}}
    pass_threshold = 0.5
    tries = 0

    def __init__(self, grouped, errors):
        self.rubric = Rubric(grouped)
        self.errors = errors
        self.concurrency = None
        signal.signal(signal.SIGTERM, lambda *_: None)

    def get_eval_dataset(self, n=-1):
        rows = ["say first", "say second"]
        return ({"prompt": [{"role": "user", "content": text}], "answer": object()} for text in rows)

    def set_concurrency(self, n):
        self.concurrency = n

    async def _teardown(self):
        open("torn_down", "w").write(str(self.concurrency))

    async def rollout(self, input, client, model, sampling_args):
        state = dict(
            input, input=input, error=None, stop_condition="done", is_completed=True, trajectory_id="t1", turns=1,
            lock=threading.Lock(), seen={"plain": [1, 2]}, is_truncated=False,
            handler=getattr(signal.getsignal(signal.SIGTERM), "name", "its own"),
        )
        name = input["prompt"][-1]["content"]
        if name == "bug":
            raise ZeroDivisionError("in the environment")
        if name == "nothing":
            return None
        if name == "raised":
            raise SandboxError("raised")
        if name == "infra" and self.tries < self.errors:
            self.tries += 1
            state["error"] = SandboxError("no sandbox")
        if name == "tool":
            try:
                {}["tool"]
            except KeyError as error:
                state["error"] = ToolError("bad call")
                state["error"].__cause__ = error
        if state["error"] is None:
            try:
                if name == "openai":
                    asked = {"messages": input["prompt"], "temperature": sampling_args["temperature"]}
                    own = await client.client.chat.completions.create(model=model, **asked)
                    return {**state, "completion": [own.choices[0].message.model_dump(exclude_none=True)]}
                reply = await client.get_response(
                    prompt=input["prompt"], model=model, sampling_args=sampling_args, tools=None, state=state
                )
                state["completion"] = [reply.message]
            except Exception as error:
                state["error"] = ModelError("no answer")
                state["error"].__cause__ = error
        return state


def load_environment(grouped=False, errors=1):
    return Env(grouped, errors)
"""

STATUS = {"denied": 401, "outage": 503}


def asked(text: str, answer: str = "yes") -> dict[str, Any]:
    return {"prompt": [{"role": "user", "content": text}], "answer": answer}


async def echo(exchange: Exchange) -> web.StreamResponse:
    """Answer with the text after "say ", refuse the key for "denied", and break for "outage"."""
    text = exchange.seen.body["messages"][-1]["content"]
    if text in STATUS:
        return await data({"error": {"message": text}}, status=STATUS[text])(exchange)
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    message = {"role": "assistant", "content": text.removeprefix("say ")}
    return await data(completion(message, usage=usage))(exchange)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer(echo) as server:
        yield server


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "env.py").write_text(ENVIRONMENT, encoding="utf-8")
    return tmp_path


def test_an_environment_rolls_out_and_scores_with_the_evals_model(server: ChatServer, root: Path) -> None:
    setup = setup_of(
        server.base_url,
        root,
        sampling={"temperature": 0.75, "top_k": 3},
        state_columns=["turns", "lock", "missing", "handler"],
        headers_from_state={"X-Session-ID": "example_id", "X-Answer": "answer", "X-None": "missing"},
        rollout_retries=1,
    )
    names = ["say yes", "say no", "infra", "say crash", "say nan", "say list", "openai"]
    answers = {"say no": "Zürich\n", "openai": "openai"}
    rows = [asked(name, answers.get(name, "yes")) for name in names]
    requests = [run_request(row, index) for index, row in enumerate(rows)]
    unwritable = run_request(asked("unused"), 1, run=1)
    unwritable["record"]["input"] = None
    with environment_host(setup, root / "log") as host:
        [ready] = host.until("ready")
        host.send(*requests, unwritable)
        scores = by_run(host.until("score", len(rows) + 1))
        rollouts = by_run(host.until("rollout", len(rows) + 1))

    assert ready["scorers"] == ["reward"]
    assert ready["sync"] == []
    assert ready["grouped"] == []
    assert scores[0, 0]["scores"] == {"reward": 1.0}
    assert scores[0, 0]["metrics"] == {"reward": {"turns": 1.0, "group": 1.0, "thread": 1.0}}
    assert "cleaned up 0" in scores[0, 0]["output"]["stdout"]
    assert scores[1, 0]["scores"] == {"reward": 0.0}
    assert scores[3, 0]["errors"]["reward"]["message"] == "KeyError: 'reward'"
    assert "score_rollout" in scores[3, 0]["errors"]["reward"]["details"]
    assert "finite number, got nan" in scores[4, 0]["errors"]["reward"]["message"]
    assert "must be a mapping of names to numbers, got list" in scores[5, 0]["errors"]["reward"]["message"]
    assert scores[6, 0]["scores"] == {"reward": 1.0}
    assert rollouts[1, 1]["messages"][-1]["content"] == "second"
    assert rollouts[1, 1]["n_prompt"] == 1  # the prompt of the environment, which is not that of the request
    rollout = rollouts[0, 0]
    assert [message["content"] for message in rollout["messages"]] == ["say yes", "yes"]
    assert (rollout["n_prompt"], rollout["usage"]) == (1, {"input_tokens": 5, "output_tokens": 2})
    facts = rollout["environment"]
    assert (facts["stop_condition"], facts["is_completed"], facts["trajectory_id"]) == ("done", True, "t1")
    assert facts["columns"]["turns"] == 1
    assert facts["columns"]["missing"] is None
    assert facts["columns"]["handler"] == "SIG_DFL"
    assert rollouts[2, 0]["environment"]["retries"] == 1
    assert rollouts[6, 0]["usage"] == rollout["usage"]
    bodies = {seen.body["messages"][-1]["content"]: seen for seen in server.requests}
    body = bodies["say yes"].body
    sampling = [body.get(key) for key in ("temperature", "top_k", "min_p", "n", "extra_body")]
    assert sampling == [0.75, 3, 0.5, None, None]
    assert bodies["openai"].body["temperature"] == 0.75
    assert bodies["say no"].headers["x-session-id"] == "1"
    assert bodies["say no"].headers["x-answer"] == "Z%C3%BCrich%0A"
    assert "x-none" not in bodies["say no"].headers
    assert (root / "torn_down").read_text() == "4"


def test_errors_of_an_environment_fail_their_own_rollout_at_their_boundary(server: ChatServer, root: Path) -> None:
    names = ["bug", "nothing", "infra", "raised", "tool", "outage", "say yes", "denied"]
    with environment_host(setup_of(server.base_url, root), root / "log") as host:
        *others, denied = (run_request(asked(name), index) for index, name in enumerate(names))
        host.send(*others)
        host.until("rollout", len(others))
        host.send(denied)  # its host sends no further request
        rollouts = by_run(host.until("rollout", len(names)))
        host.until("score")
    failures = {name: rollouts[index, 0] for index, name in enumerate(names)}

    boundaries = ["agent", "agent", "host", "host", "agent", "provider", None, "provider"]
    assert [failures[name].get("boundary") for name in names] == boundaries
    assert failures["bug"]["error"] == "ZeroDivisionError: in the environment"
    text = "rollout() of the environment must return its state, a mapping, got NoneType"
    assert failures["nothing"]["error"] == text
    assert failures["infra"]["error"] == "SandboxError: no sandbox"
    assert failures["raised"]["error"] == "SandboxError: raised"
    assert failures["tool"]["error"] == "ToolError: bad call (KeyError: 'tool')"
    assert failures["tool"]["environment"]["error"] == {
        "error": "ToolError",
        "error_chain_repr": "ToolError('bad call') -> KeyError('tool')",
        "error_chain_str": "ToolError -> KeyError",
    }
    assert failures["denied"]["systemic"] == "always"
    assert "401" in failures["denied"]["error"]
    assert "503" in failures["outage"]["error"]


def test_runs_of_a_row_are_scored_together_and_a_crash_is_the_error_of_each(server: ChatServer, root: Path) -> None:
    texts = (["say yes", "say no"], ["say yes", "say crash"])
    rows = [[run_request(asked(text), row, run) for run, text in enumerate(each)] for row, each in enumerate(texts)]
    with environment_host(setup_of(server.base_url, root, args={"grouped": True}), root / "log") as host:
        [ready] = host.until("ready")
        host.send(*rows[0], *rows[1])
        rollouts = by_run(host.until("rollout", 4))
        for row, requests in enumerate(rows):
            runs = [scoring_fields(request, rollouts[row, run]) for run, request in enumerate(requests)]
            host.send({"op": "score_group", "names": ["reward"], "runs": runs})
        scores = by_run(host.until("score", 4))

    assert ready["grouped"] == ["reward"]
    assert [scores[0, run]["scores"] for run in range(2)] == [{"reward": 1.0}, {"reward": 0.0}]
    assert [scores[0, run]["metrics"]["reward"]["group"] for run in range(2)] == [2.0, 2.0]
    assert len(host.until("scoring", 4)) == 4
    assert [scores[1, run]["errors"]["reward"]["message"] for run in range(2)] == ["KeyError: 'reward'"] * 2


def test_a_state_is_made_again_and_what_json_cannot_hold_is_an_error(server: ChatServer, root: Path) -> None:
    request = run_request(asked("say yes"))
    with environment_host(setup_of(server.base_url, root), root / "log") as host:
        host.send(request)
        [rollout] = host.until("rollout")
        host.until("score")
    stored = json.loads(json.dumps(scoring_fields(request, rollout)))
    with environment_host(setup_of(server.base_url, root, role="score"), root / "log") as later:
        later.send({"op": "score", "names": ["reward"], **stored})
        [broken] = later.until("score")
        del stored["environment"]["state"]["unkept"]
        stored["environment"]["state"]["kept"]["lock"] = None
        later.send({"op": "score", "names": ["reward"], **stored})
        [_, score] = later.until("score", 2)

    assert rollout["environment"]["state"]["kept"]["seen"] == {"plain": [1, 2]}
    assert rollout["environment"]["state"]["unkept"] == ["lock"]
    assert "'lock'" not in broken["errors"]["reward"]["message"]
    assert 'state["lock"] was not kept' in broken["errors"]["reward"]["message"]
    assert score["scores"] == {"reward": 1.0}
    assert score["metrics"]["reward"]["turns"] == 1.0
