"""Models of the registry of endpoints: a replica that dies costs nothing, mistakes end the session; and Responses."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from aiohttp import web

from tests.plugin.workspaces import CONFIG, Workspace, read_json
from tests.servers import ChatServer, Exchange, by_api, completion, reply, responses_reply


class Replica:
    """A server that answers so many requests, and then cuts every connection. `answered` counts its answers by row."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.answered: Counter[str] = Counter()

    async def __call__(self, exchange: Exchange) -> web.StreamResponse:
        prompt = exchange.seen.body["messages"][-1]["content"]
        if self.most is not None and self.answered.total() >= self.most:
            assert exchange.request.transport is not None
            exchange.request.transport.close()
            return web.Response()
        self.answered[prompt] += 1
        return web.json_response(completion({"role": "assistant", "content": prompt}))


def registry(*urls: str, more: str = "") -> str:
    entry = '[[endpoint]]\nendpoint_id = "qwen"\nmodel = "Qwen/Qwen3-8B"\nurl = "{}"\n{}\n'
    return "".join(entry.format(url, more) for url in urls)


def eval_of(workspace: Workspace, rows: int, **tables: Any) -> None:
    given: dict[str, Any] = {"experiment": {"model_path": "qwen"}, "model": {"max_retries": 0}}
    workspace.eval(rows=[{"user_prompt": f"row {row}"} for row in range(rows)], **(given | tables))


@pytest.mark.slow
def test_a_replica_that_dies_in_the_middle_loses_nothing_and_repeats_no_answer(workspace: Workspace) -> None:
    dying, alive = Replica(most=9), Replica()
    with ChatServer(dying) as first, ChatServer(alive) as second:
        workspace.write("configs/endpoints.toml", registry(first.base_url, second.base_url))
        eval_of(workspace, 40, evaluation={"batch_size": 8})
        result = workspace.run(CONFIG)
        n_requests = {server.base_url: len(server.requests) for server in (first, second)}

    result.assert_outcomes(passed=40)
    answers = dying.answered + alive.answered
    assert {prompt: n for prompt, n in answers.items() if prompt != "hi"} == {f"row {row}": 1 for row in range(40)}
    uses = workspace.results()["summary"]["replicas"]
    assert sum(use["requests"] - use["errors"] for use in uses.values()) == 40
    assert {url: use["requests"] + 1 for url, use in uses.items()} == n_requests, "each got the probe too"
    dead = uses[first.base_url]
    assert dead["left_out"], "each process finds out for itself"
    result.stdout.fnmatch_lines_random(f"""
          model: qwen: Qwen/Qwen3-8B at 2 replicas, {first.base_url}, {second.base_url}; *
        *replica {first.base_url} is left out, and the others get its requests: *
        replica {first.base_url}: {dead["requests"]} requests, {dead["errors"]} failed, left out *
        replica {second.base_url}: {uses[second.base_url]["requests"]} requests
    """)
    shown = workspace.cli("show", "latest")
    assert [line for line in shown.outlines if line.startswith("replica ")] == [
        line for line in result.outlines if line.startswith("replica http") and " requests" in line
    ]


@pytest.mark.slow
def test_a_judge_and_a_baseline_by_id_are_not_asked_again_once_a_replica_is_gone(workspace: Workspace) -> None:
    verdict = json.dumps({"score": 1, "explanation": "good"})
    with ChatServer(reply(verdict)) as server:
        workspace.write("configs/endpoints.toml", registry("http://127.0.0.1:9/v1", server.base_url))
        qwen = {"model_path": "qwen"}
        eval_of(workspace, 2, scoring={"rubric": "Is it JSON?", "eval_fns": []}, judge=qwen, baseline=qwen)
        part = (CONFIG, "--osmosis-run=x", "--osmosis-no-probe", "-k", "row0")
        first = workspace.run(*part, "--osmosis-save-results", exits=0)
        (metadata,) = workspace.root.glob("outputs/evals/*/*/metadata.json")
        assert read_json(metadata)["base_url"] == f"http://127.0.0.1:9/v1,{server.base_url}"
        n_asked = len(server.requests)
        workspace.write("configs/endpoints.toml", registry(server.base_url))
        workspace.run(CONFIG, "--osmosis-run=x", "--osmosis-no-probe", exits=0)
        workspace.run("--osmosis-from=x", exits=0)

        assert (n_asked, len(server.requests)) == (4, 8), "two rollouts of each model, and a verdict on each"
    first.stdout.fnmatch_lines(["judge qwen: 2 calls, *"])


def test_headers_of_registry_config_and_state_are_sent_with_each_request(workspace: Workspace) -> None:
    with ChatServer(Replica()) as server:
        more = 'key = "QWEN_KEY"\nheaders = {"X-Team" = "registry", "X-Of" = "registry"}\n'
        workspace.write("endpoints/endpoints.toml", registry(server.base_url, more=more))
        model = {
            "endpoints_path": "endpoints",
            "headers": {"x-team": "config"},
            "headers_from_state": {"X-Row": "row_index", "X-Run": "run_index", "X-Rollout": "trajectory_id"},
        }
        secrets = workspace.write("secrets.env", "QWEN_KEY=sk-registry-7261\n")
        eval_of(workspace, 2, experiment={"model_path": "demo/arithmetic"}, model=model, evaluation={"n": 2})
        asks = "--osmosis-set=model.endpoint_id=qwen"
        result = workspace.run(CONFIG, asks, "--osmosis-no-probe", f"--osmosis-secrets-file={secrets}")
        seen = [request.headers for request in server.requests]

    result.assert_outcomes(passed=4)
    assert {(headers["x-team"], headers["x-of"], headers["authorization"]) for headers in seen} == {
        ("config", "registry", "Bearer sk-registry-7261")
    }
    assert sorted((headers["x-row"], headers["x-run"], headers["x-session-id"]) for headers in seen) == [
        ("0", "0", "0"), ("0", "1", "0"), ("1", "0", "1"), ("1", "1", "1"),
    ]  # fmt: skip
    assert len({headers["x-rollout"] for headers in seen}) == 4
    assert workspace.results()["config"]["model"] == "qwen"


CHOSEN = "--osmosis-api-client-type=openai_responses"
OPENAI = "--osmosis-model=openai/gpt-x"
SET = "--osmosis-set=sampling"
KEY = "OPENAI_API_KEY"
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "0"}]}


def answers() -> ChatServer:
    return ChatServer(by_api(completion({"role": "assistant", "content": "0"}), None, responses_reply(ANSWER)))


@pytest.mark.slow
def test_a_cassette_is_replayed_by_its_own_api_alone(workspace: Workspace) -> None:
    workspace.eval(rows=1)
    with answers() as server:
        at = f"--osmosis-base-url={server.base_url}"
        assert workspace.run(CONFIG, at, CHOSEN, "--osmosis-record").ret == 0
        assert {seen.path for seen in server.requests} == {"/v1/responses"}
        n_asked = len(server.requests)

        replay = workspace.run(CONFIG, at, CHOSEN, "--osmosis-set=model.client=light", "--osmosis-replay")
        other = workspace.run(CONFIG, at, "--osmosis-replay")

        assert (replay.ret, len(server.requests)) == (0, n_asked)
        assert workspace.run(CONFIG, at, "--osmosis-record").ret == 0
        back = workspace.run(CONFIG, at, CHOSEN, "--osmosis-replay")
    for result, difference in ((other, '-*"api": "responses"*'), (back, '+*"api": "responses"*')):
        assert result.ret == 1
        changed = "provider: the cassette has no answer: request 1 of the rollout has changed since it was recorded*"
        result.stdout.fnmatch_lines([changed, difference])


@pytest.mark.parametrize(
    ("words", "api", "sampling"),
    [
        ([], " by the Responses API", "the model's defaults"),
        ([f"{SET}.stop=."], " by chat completions (stop: Responses have none)", "stop ['.']"),
        ([f"{SET}.seed=1"], " by chat completions (seed: Responses have none)", "seed 1"),
        ([f"{SET}.seed=1", CHOSEN], " by the Responses API", "seed 1 (not sent: the Responses API takes none)"),
        (["--osmosis-api-client-type=openai_chat_completions"], "", "the model's defaults"),
    ],
)
def test_the_header_names_the_api(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, words: list[str], api: str, sampling: str
) -> None:
    monkeypatch.setenv(KEY, "sk-a-key-of-some-length")
    workspace.eval(rows=1)
    result = workspace.run(CONFIG, OPENAI, *words, "--osmosis-dry-run", exits=0)
    assert f"  model: openai/gpt-x{api}; sampling: {sampling}" in result.outlines


def test_a_sweep_of_prime_keeps_chat_completions(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "sk-a-key-of-some-length")
    workspace.eval(rows=1)
    text = (workspace.root / "configs/eval/x.toml").read_text(encoding="utf-8")
    workspace.write("configs/eval/x.toml", f'{text}\n[[eval]]\nname = "one"\nmodel = "openai/gpt-x"\n')
    result = workspace.run(CONFIG, "--osmosis-dry-run", exits=0)
    assert "  model: openai/gpt-x; sampling: the model's defaults" in result.outlines
