"""The demo server: a round trip with each API, its errors, counts and log, its command, and rehearsed outages."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestClient, TestServer

from pytest_osmosis.demo import Disturbances, Fates, Latency, RateLimiter, RequestRate, application, main
from pytest_osmosis.models.base import ChatRequest
from pytest_osmosis.models.embedded import ArithmeticModel

DEADLINE_S = 60
CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
PATHS = pytest.mark.parametrize("path", [CHAT, MESSAGES])
ANSWER = "17 * 23 = 391\n#### 391"
QUESTION: list[dict[str, Any]] = [{"role": "user", "content": "What is 17 * 23?"}]


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "demo/arithmetic", "messages": QUESTION, "max_tokens": 99, **fields}


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[TestClient[Any, Any]]:
    async with TestClient(TestServer(application(**settings))) as client:
        yield client


# -- round trips ------------------------------------------------------------------------------------------


async def test_each_api_answers_whole_and_streamed() -> None:
    of_responses: dict[str, Any] = {"model": "arithmetic", "input": "What is 17 * 23?"}
    async with served() as client:
        for path, sent in ((CHAT, body()), (MESSAGES, body()), ("/v1/responses", of_responses)):
            whole = await client.post(path, json=sent)
            streamed = await client.post(path, json={**sent, "stream": True})
            assert (whole.status, streamed.status, streamed.content_type) == (200, 200, "text/event-stream")
            assert json.dumps(ANSWER) in await whole.text()


async def test_a_seed_gets_the_reply_of_the_embedded_model() -> None:
    embedded = ArithmeticModel()
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


# -- errors -----------------------------------------------------------------------------------------------


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


# -- counts -----------------------------------------------------------------------------------------------


async def stats_with(client: TestClient[Any, Any] | ClientSession, in_flight: int) -> dict[str, int]:
    """Return the counts as soon as so many requests are in flight."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            counts: dict[str, int] = await (await client.get("/stats")).json()
            if counts["in_flight"] == in_flight:
                return counts


async def test_the_stats_count_requests_the_most_in_flight_and_tokens() -> None:
    counts = {"failed": 0, "limited": 0, "input_tokens": 0, "output_tokens": 0}
    async with served(disturbances=Disturbances(Latency(60, 60))) as client:
        first = [asyncio.create_task(client.post(CHAT, json=body())) for _ in range(3)]
        assert await stats_with(client, in_flight=3) == {**counts, "requests": 3, "in_flight": 3, "max_in_flight": 3}
        for request in first:
            request.cancel()
        assert await stats_with(client, in_flight=0) == {**counts, "requests": 3, "in_flight": 0, "max_in_flight": 3}
    async with served() as client:
        for path in (CHAT, MESSAGES):
            await client.post(path, json=body(stream=path == CHAT))
        found = await stats_with(client, in_flight=0)
        assert (found["requests"], found["input_tokens"], found["output_tokens"]) == (2, 2 * 5, 2 * 7)


# -- the command ------------------------------------------------------------------------------------------


@contextmanager
def command(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    line = [sys.executable, "-m", "pytest_osmosis.demo", "--port=0", *arguments]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def served_at(process: subprocess.Popen[str]) -> str:
    return first_line(process).removeprefix("demo/arithmetic serves ").removesuffix(" (Ctrl-C to stop)\n")


def test_it_prints_its_address_and_log_and_ends_quietly_by_ctrl_c() -> None:
    with command("--log=-") as process:
        url = served_at(process)
        request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body(seed=7)).encode())
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            assert answer.status == 200
        entry = json.loads(first_line(process))
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=DEADLINE_S)

    assert url.startswith("http://127.0.0.1:")
    assert entry.pop("at").endswith("+00:00")
    assert entry.pop("ms") >= 0
    assert entry == {
        "request": 1,
        "path": CHAT,
        "status": 200,
        "model": "demo/arithmetic",
        "seed": 7,
        "earlier": 0,
        "input_tokens": 5,
        "output_tokens": 7,
    }
    assert (process.returncode, rest, errors) == (0, "", "")


async def test_a_client_that_leaves_is_no_longer_in_flight_and_sigterm_ends_it_quietly() -> None:
    with command("--latency=60") as process:
        async with ClientSession(served_at(process).removesuffix("v1")) as client:
            request = asyncio.create_task(client.post(CHAT, json=body()))
            await stats_with(client, in_flight=1)
            request.cancel()
            assert (await stats_with(client, in_flight=0))["requests"] == 1
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=DEADLINE_S)

    assert (process.returncode, rest, errors) == (0, "", "")


def test_a_port_in_use_is_reported_with_a_fix(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main([f"--port={port}"]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith(f"cannot listen on 127.0.0.1 port {port}: ")
    assert "--port=0" in errors


REFUSED = {
    "--port=70000": "must be from 0 to 65535, got 70000",
    "--latency=-1": "must be seconds like 0.2, or a range like 0.2-1.5, got -1",
    "--latency=x": "must be seconds like 0.2, or a range like 0.2-1.5, got x",
    "--latency=2-1": "the second number of 2-1 must be at least the first",
    "--error-rate=30": "must be a share from 0 to 1, like 0.1, got 30",
    "--error-rate=30%": "must be a share from 0 to 1, like 0.1, got 30%",
    "--error-status=200": "must be an HTTP status from 400 to 599, like 502, got 200",
    "--rate-limit=0": "must be requests per minute like 60, or per second like 5/s, got 0",
    "--rate-limit=5/h": "must be requests per minute like 60, or per second like 5/s, got 5/h",
    "--seed=x": "must be an integer, got x",
    "--api-key=": "has an empty value; give it one (is it a variable that is not set?)",
}


def test_an_argument_out_of_bounds_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for argument in REFUSED:
        with pytest.raises(SystemExit, match="2"):
            main([argument])
        found[argument] = capsys.readouterr().err.partition(f"argument {argument.split('=')[0]}: ")[2].rstrip()

    assert found == REFUSED


def test_a_log_that_cannot_be_written_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--port=0", f"--log={tmp_path}"]) == 1
    assert capsys.readouterr().err == f"--log={tmp_path}: cannot be written: Is a directory\n"


# -- rehearsed outages: the same requests fail for the same seed ---------------------------------------------

BODIES = [f"body {number}".encode() for number in range(1000)]


def failing(disturbances: Disturbances, bodies: list[bytes]) -> set[bytes]:
    fates = Fates(disturbances)
    return {body for body in bodies if fates.of(body).fails}


def test_about_the_share_of_requests_fails_and_the_seed_decides_which() -> None:
    third = Disturbances(error_rate=0.3, seed=1)

    failed = failing(third, BODIES)

    assert 250 < len(failed) < 350
    assert failing(third, BODIES[::-1]) == failed
    assert failing(Disturbances(error_rate=0.3, seed=2), BODIES) != failed
    assert failing(Disturbances(error_rate=0.6, seed=1), BODIES) > failed
    assert failing(Disturbances(error_rate=0.0), BODIES) == set()
    assert failing(Disturbances(error_rate=1.0), BODIES) == set(BODIES)


def test_a_request_that_comes_again_may_fare_better_and_latencies_fill_their_range() -> None:
    fates = Fates(Disturbances(error_rate=0.5))

    again = [fates.of(b"same") for _ in range(100)]

    assert [fate.earlier for fate in again] == list(range(100))
    assert {fate.fails for fate in again} == {True, False}
    fates = Fates(Disturbances(Latency(0.2, 1.0)))

    found = [fates.of(body).latency_s for body in BODIES]

    assert 0.2 <= min(found) < 0.21
    assert 0.99 < max(found) < 1.0
    assert Fates(Disturbances(Latency(0.2, 0.2))).of(b"x").latency_s == 0.2


def test_a_limit_admits_its_requests_in_any_span() -> None:
    clock = [100.0]
    limiter = RateLimiter(RequestRate(2, 10.0), lambda: clock[0])
    waits = []
    for now in (100.0, 106.0, 107.0, 110.0, 110.5, 116.0):
        clock[0] = now
        waits.append(limiter.wait_s())

    assert waits == [0.0, 0.0, 3.0, 0.0, 5.5, 0.0]


@PATHS
async def test_a_failure_says_why(path: str) -> None:
    async with served(disturbances=Disturbances(error_rate=1.0, error_status=503)) as client:
        answer = await client.post(path, json=body())
        assert answer.status == 503
        assert "the demo server fails this request (--error-rate=1)" in await answer.text()


@PATHS
async def test_a_request_that_comes_too_soon_is_told_how_long_to_wait(path: str) -> None:
    printed = io.StringIO()
    async with served(disturbances=Disturbances(rate_limit=RequestRate(1, 600.0)), log=printed) as client:
        first, second = await client.post(path, json=body()), await client.post(path, json=body())

    assert (first.status, second.status) == (200, 429)
    assert [json.loads(line)["status"] for line in printed.getvalue().splitlines()] == [200, 429]
    assert 500 < int(second.headers["retry-after"]) <= 600
    assert 500_000 < int(second.headers["retry-after-ms"]) <= 600_000


async def test_stats_count_failures_apart_from_requests_that_came_too_soon() -> None:
    async with served(disturbances=Disturbances(error_rate=1.0, rate_limit=RequestRate(1, 600.0))) as client:
        for _ in range(3):
            assert (await client.post(CHAT, json=body())).status >= 400
        counts = await stats_with(client, in_flight=0)

    tokens = {"input_tokens": 0, "output_tokens": 0}
    assert counts == {"requests": 3, "in_flight": 0, "max_in_flight": 1, "failed": 1, "limited": 2, **tokens}
