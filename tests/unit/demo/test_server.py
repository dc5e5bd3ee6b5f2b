"""The demo server: a round trip with each API, its errors, its counts and its command."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from functools import partial
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from pytest_osmosis.demo import application, main
from pytest_osmosis.models.base import ChatRequest
from pytest_osmosis.models.embedded import EmbeddedModel

DEADLINE_S = 60
CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
QUESTION: list[dict[str, Any]] = [{"role": "user", "content": "What is 17 * 23?"}]


body: Any = partial(dict, {"model": "demo/arithmetic", "messages": QUESTION, "max_tokens": 99})


def served(**settings: Any) -> TestClient[Any, Any]:
    return TestClient(TestServer(application(**settings)))


async def test_each_api_answers_whole_and_streamed() -> None:
    of_responses: dict[str, Any] = {"model": "arithmetic", "input": "What is 17 * 23?"}
    async with served() as client:
        for path, sent in ((CHAT, body()), (MESSAGES, body()), ("/v1/responses", of_responses)):
            whole = await client.post(path, json=sent)
            streamed = await client.post(path, json={**sent, "stream": True})
            assert (whole.status, streamed.status, streamed.content_type) == (200, 200, "text/event-stream")
            assert json.dumps("17 * 23 = 391\n#### 391") in await whole.text()


async def test_a_seed_gets_the_reply_of_the_embedded_model() -> None:
    embedded = EmbeddedModel()
    sampling = {"accuracy": 0.5, "max_tokens": 6}
    texts = set()
    async with served() as client:
        for seed in range(8):
            completion = await (await client.post(CHAT, json=body(seed=seed, **sampling))).json()
            message = await (await client.post(MESSAGES, json=body(seed=seed, **sampling))).json()
            reply = await embedded.chat(ChatRequest(QUESTION, (), sampling, seed, run=f"row{seed}-run0"))

            [choice] = completion["choices"]
            assert (choice["message"], choice["finish_reason"]) == (reply.message, reply.finish_reason)
            assert message["content"][0]["text"] == reply.content
            texts.add(reply.content)
    assert len(texts) > 1


async def test_it_is_served_under_further_names() -> None:
    async with served(names=["gpt-5-mini"]) as client:
        answers = [await client.post(path, json=body(model="gpt-5-mini")) for path in (CHAT, MESSAGES)]
        listed = await (await client.get("/v1/models")).json()

    assert [answer.status for answer in answers] == [200, 200]
    assert [model["id"] for model in listed["data"]] == ["demo/arithmetic", "arithmetic", "demo/judge", "gpt-5-mini"]


async def test_an_error_has_the_shape_of_its_api() -> None:
    unserved = "'gpt-5' is not served here; served: demo/arithmetic, arithmetic, demo/judge"
    problems: list[tuple[Any, int, str, str]] = [
        ([], 400, "must be a JSON object, got list", "invalid_request_error"),
        (body(accuracy=2), 400, "accuracy must be a number from 0 to 1, got 2", "invalid_request_error"),
        (body(model="gpt-5"), 404, unserved, "not_found_error"),
    ]
    async with served() as client:
        for sent, status, text, kind in problems:
            for path, name in ((CHAT, "invalid_request_error"), (MESSAGES, kind)):
                answer = await client.post(path, json=sent)
                error = (await answer.json())["error"]

                assert (answer.status, error["type"]) == (status, name), (path, sent)
                assert text in error["message"]


async def test_a_body_beyond_the_bound_and_an_unknown_path_are_errors_of_the_api() -> None:
    async with served() as client:
        answer = await client.post(CHAT, data=io.BytesIO(b" " * (17 * 2**20)))
        assert answer.status == 413
        assert "error" in await answer.json()
    async with served() as client:
        for method, path, status in (("GET", "/v1/nothing", 404), ("GET", CHAT, 405)):
            answer = await client.request(method, path)
            assert answer.status == status
            assert path in (await answer.json())["error"]["message"]


async def test_with_an_api_key_requests_without_it_are_refused() -> None:
    right = [{"Authorization": "Bearer right"}, {"X-Api-Key": "right"}]
    wrong: list[dict[str, str]] = [{}, {"Authorization": "Bearer wrong"}, {"X-Api-Key": "wrong"}]
    async with served(api_key="right") as client:
        answers = [
            await client.post(path, json=body(), headers=each) for path in (CHAT, MESSAGES) for each in (*right, *wrong)
        ]

        assert [answer.status for answer in answers] == [200, 200, 401, 401, 401] * 2
        assert (await answers[2].json())["error"]["code"] == "invalid_api_key"


async def test_the_stats_count_requests_and_tokens() -> None:
    async with served() as client:
        for path in (CHAT, MESSAGES):
            await client.post(path, json=body(stream=path == CHAT))
        counts = await (await client.get("/stats")).json()

    assert counts == {"requests": 2, "input_tokens": 2 * 5, "output_tokens": 2 * 7}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_its_address_and_ends_quietly_by_a_signal(number: signal.Signals) -> None:
    line = [sys.executable, "-m", "pytest_osmosis.demo", "--port=0"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().removeprefix("demo/arithmetic serves ").removesuffix(" (Ctrl-C to stop)\n")
            request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body()).encode())
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                assert answer.status == 200
            process.send_signal(number)
            rest, errors = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()

    assert url.startswith("http://127.0.0.1:")
    assert (process.returncode, rest, errors) == (0, "", "")


def test_a_port_in_use_is_reported_with_a_fix(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main([f"--port={port}"]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith(f"cannot listen on 127.0.0.1 port {port}: ")
    assert "--port=0" in errors


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--port", "70000", "must be from 0 to 65535, got 70000"),
        ("--api-key", "", "has an empty value; give it one (is it a variable that is not set?)"),
    ],
)
def test_an_argument_out_of_bounds_is_refused(capsys: Any, option: str, value: str, said: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([f"{option}={value}"])
    assert capsys.readouterr().err.endswith(f"argument {option}: {said}\n")
