"""The demo server: OpenAI's and Anthropic's shapes and errors over real HTTP, and the embedded model's answers."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestClient, TestServer
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI, BadRequestError

from pytest_osmosis.demo.disturbances import Disturbances, Latency
from pytest_osmosis.demo.server import application, main
from pytest_osmosis.models.base import ChatRequest
from pytest_osmosis.models.embedded import ArithmeticModel

DEADLINE_S = 60
CHAT = "/v1/chat/completions"
QUESTION: list[dict[str, Any]] = [{"role": "user", "content": "What is 17 * 23?"}]
MULTIPLY: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "multiply",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
    },
}


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "demo/arithmetic", "messages": QUESTION, **fields}


@asynccontextmanager
async def served(latency_s: float = 0, api_key: str | None = None) -> AsyncIterator[TestClient[Any, Any]]:
    disturbances = Disturbances(Latency(latency_s, latency_s))
    async with TestClient(TestServer(application(disturbances, api_key))) as client:
        yield client


async def test_it_is_served_under_further_names_in_both_shapes() -> None:
    asked = {"model": "gpt-5-mini", "messages": QUESTION, "max_tokens": 99}
    async with TestClient(TestServer(application(names=["gpt-5-mini"]))) as client:
        completion = await client.post(CHAT, json=asked)
        message = await client.post("/v1/messages", json=asked)
        listed = await (await client.get("/v1/models")).json()
    assert (completion.status, message.status) == (200, 200)
    assert [model["id"] for model in listed["data"]] == ["demo/arithmetic", "arithmetic", "demo/judge", "gpt-5-mini"]


async def stats(client: TestClient[Any, Any] | ClientSession) -> dict[str, int]:
    response = await client.get("/stats")
    counts: dict[str, int] = await response.json()
    return counts


async def stats_with(client: TestClient[Any, Any] | ClientSession, in_flight: int) -> dict[str, int]:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            counts = await stats(client)
            if counts["in_flight"] == in_flight:
                return counts


async def test_a_completion_has_the_shape_of_openai() -> None:
    async with served() as client:
        response = await client.post(CHAT, json=body())
        completion = await response.json()
    assert response.status == 200
    assert isinstance(completion.pop("id"), str)
    assert abs(completion.pop("created") - time.time()) < 600
    assert completion == {
        "object": "chat.completion",
        "model": "demo/arithmetic",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "17 * 23 = 391\n#### 391"},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
    }


async def test_every_completion_has_an_id_of_its_own() -> None:
    async with served() as client:
        ids = [(await (await client.post(CHAT, json=body())).json())["id"] for _ in range(3)]
    assert len(set(ids)) == 3


@pytest.mark.parametrize("tools", [[], [MULTIPLY]])
async def test_a_seed_gets_the_reply_of_the_embedded_model(tools: list[dict[str, Any]]) -> None:
    embedded = ArithmeticModel()
    async with served() as client:
        for seed in range(20):
            sampling = {"accuracy": 0.5, "max_tokens": 6, "temperature": 1.0}
            response = await client.post(CHAT, json=body(seed=seed, tools=tools, **sampling))
            [choice] = (await response.json())["choices"]
            reply = await embedded.chat(ChatRequest(QUESTION, tools, sampling, seed, run=f"row{seed}-run0"))
            assert (choice["message"], choice["finish_reason"]) == (reply.message, reply.finish_reason)


async def test_the_short_name_is_served_too() -> None:
    async with served() as client:
        assert (await client.post(CHAT, json=body(model="arithmetic"))).status == 200


async def test_the_models_are_listed() -> None:
    async with served() as client:
        listed = await (await client.get("/v1/models")).json()
    assert [model["id"] for model in listed["data"]] == ["demo/arithmetic", "arithmetic", "demo/judge"]


@pytest.mark.parametrize(
    ("sent", "status", "message"),
    [
        ("{", 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        ("[" * 100_000, 400, "not JSON"),
        ("[]", 400, "must be a JSON object, got list"),
        ({"model": "arithmetic"}, 400, "messages must be a list"),
        (body(messages=[]), 400, "messages must be a list"),
        (body(messages=["hello"]), 400, "messages must be a list"),
        (body(messages="hello"), 400, "messages must be a list"),
        (body(tools={"name": "multiply"}), 400, "tools must be a list"),
        (body(tools=["multiply"]), 400, "tools must be a list"),
        (body(seed="one"), 400, "seed must be an integer, got 'one'"),
        (body(accuracy=2), 400, "accuracy must be a number from 0 to 1, got 2"),
        (body(max_tokens=0), 400, "max_tokens must be an integer of at least 1, got 0"),
        (body(stream="yes"), 400, "stream must be true or false, got a string"),
        (body(n=2), 400, "n must be 1, because a request gets one answer; send it again for another, got 2"),
        (body(model="gpt-5"), 404, "'gpt-5' is not served here; served: demo/arithmetic, arithmetic, demo/judge"),
        ({"messages": QUESTION}, 404, "None is not served here"),
    ],
    ids=lambda value: None if isinstance(value, int) else str(value)[:40],
)
async def test_a_bad_request_is_an_error_in_the_shape_of_openai(
    sent: str | bytes | dict[str, Any], status: int, message: str
) -> None:
    data = json.dumps(sent) if isinstance(sent, dict) else sent
    async with served() as client:
        response = await client.post(CHAT, data=data, headers={"Content-Type": "application/json"})
        error = (await response.json())["error"]
    assert response.status == status
    assert message in error["message"]
    assert error["type"] == "invalid_request_error"


async def test_a_body_beyond_the_bound_is_refused() -> None:
    async with served() as client:
        response = await client.post(CHAT, data=io.BytesIO(b" " * (17 * 2**20)))
        assert response.status == 413
        assert "error" in await response.json()


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v1/nothing", 404), ("GET", CHAT, 405)])
async def test_an_unknown_path_is_an_error_in_the_shape_of_openai(method: str, path: str, status: int) -> None:
    async with served() as client:
        response = await client.request(method, path)
        assert response.status == status
        assert path in (await response.json())["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 401), ({"Authorization": "Bearer wrong"}, 401), ({"Authorization": "Bearer right"}, 200)],
)
async def test_with_an_api_key_requests_without_it_are_refused(headers: dict[str, str], status: int) -> None:
    async with served(api_key="right") as client:
        response = await client.post(CHAT, json=body(), headers=headers)
        assert response.status == status
        assert ((await response.json()).get("error") or {}).get("code") == (
            "invalid_api_key" if status == 401 else None
        )


async def test_the_stats_count_requests_and_the_most_in_flight() -> None:
    counts = {"failed": 0, "limited": 0, "input_tokens": 0, "output_tokens": 0}
    async with served(latency_s=60) as client:
        first = [asyncio.create_task(client.post(CHAT, json=body())) for _ in range(3)]
        assert await stats_with(client, in_flight=3) == {**counts, "requests": 3, "in_flight": 3, "max_in_flight": 3}
        for request in first:
            request.cancel()
        assert await stats_with(client, in_flight=0) == {**counts, "requests": 3, "in_flight": 0, "max_in_flight": 3}
        later = asyncio.create_task(client.post(CHAT, json=body()))
        assert await stats_with(client, in_flight=1) == {**counts, "requests": 4, "in_flight": 1, "max_in_flight": 3}
        later.cancel()


async def test_the_stats_sum_the_tokens_of_both_apis() -> None:
    async with served() as client:
        for path in (CHAT, MESSAGES):
            for streams in (False, True):
                assert (await client.post(path, json=messages_body(stream=streams))).status == 200
        counts = await stats(client)
    assert (counts["input_tokens"], counts["output_tokens"]) == (4 * 5, 4 * 7)


async def test_an_answer_takes_at_least_the_latency() -> None:
    async with served(latency_s=0.05) as client:
        began = time.monotonic()
        await client.post(CHAT, json=body())
        assert time.monotonic() - began >= 0.05


# -- Messages ---------------------------------------------------------------------------------------------

MESSAGES = "/v1/messages"


def messages_body(**fields: Any) -> dict[str, Any]:
    return {**body(), "max_tokens": 100, **fields}


async def test_an_answer_has_the_shape_of_anthropic() -> None:
    async with served() as client:
        response = await client.post(MESSAGES, json=messages_body())
        message = await response.json()
    assert response.status == 200
    assert isinstance(message.pop("id"), str)
    assert message == {
        "type": "message",
        "role": "assistant",
        "model": "demo/arithmetic",
        "content": [{"type": "text", "text": "17 * 23 = 391\n#### 391"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 7},
    }


async def test_a_tool_is_called_and_its_result_is_used() -> None:
    function = MULTIPLY["function"]
    tool = {"name": function["name"], "input_schema": function["parameters"]}
    async with served() as client:
        asked = await (await client.post(MESSAGES, json=messages_body(tools=[tool]))).json()
        [call] = asked["content"]
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "391"}]}
        turns = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        told = await (
            await client.post(MESSAGES, json=messages_body(tools=[tool], messages=[*QUESTION, *turns]))
        ).json()
    assert (asked["stop_reason"], call["name"], call["input"]) == ("tool_use", "multiply", {"a": 17, "b": 23})
    assert (told["stop_reason"], told["content"][0]["text"]) == ("end_turn", "17 * 23 = 391\n#### 391")


@pytest.mark.parametrize("system", [None, "Be brief.", [{"type": "text", "text": "Be"}, {"type": "text", "text": "9"}]])
async def test_a_seed_gets_the_same_answer_by_either_api(system: Any) -> None:
    prompts = [{"role": "system", "content": text} for text in ([system] if isinstance(system, str) else ["Be", "9"])]
    conversation = [*(prompts if system else []), *QUESTION]
    more = {"system": system} if system else {}
    texts: set[str] = set()
    async with served() as client:
        for seed in range(20):
            chat = await (await client.post(CHAT, json=body(messages=conversation, seed=seed, accuracy=0.5))).json()
            message = await (await client.post(MESSAGES, json=messages_body(seed=seed, accuracy=0.5, **more))).json()
            assert message["content"][0]["text"] == chat["choices"][0]["message"]["content"]
            texts.add(message["content"][0]["text"])
    assert len(texts) > 1


async def test_a_short_answer_ends_with_max_tokens() -> None:
    async with served() as client:
        message = await (await client.post(MESSAGES, json=messages_body(max_tokens=2))).json()
    assert (message["stop_reason"], message["usage"]["output_tokens"]) == ("max_tokens", 2)


@pytest.mark.parametrize(
    ("sent", "status", "kind", "text"),
    [
        (body(), 400, "invalid_request_error", "max_tokens: field required"),
        (messages_body(messages="hello"), 400, "invalid_request_error", "messages must be a list"),
        (messages_body(messages=[]), 400, "invalid_request_error", "messages must be a list"),
        (messages_body(tools=["x"]), 400, "invalid_request_error", "tools must be a list"),
        (messages_body(seed="x"), 400, "invalid_request_error", "seed must be an integer, got 'x'"),
        (messages_body(accuracy=2), 400, "invalid_request_error", "accuracy must be a number from 0 to 1"),
        (messages_body(stream=1), 400, "invalid_request_error", "stream must be true or false, got a number"),
        (messages_body(model="claude"), 404, "not_found_error", "'claude' is not served here"),
    ],
)
async def test_a_bad_request_is_an_error_in_the_shape_of_anthropic(
    sent: dict[str, Any], status: int, kind: str, text: str
) -> None:
    async with served() as client:
        response = await client.post(MESSAGES, json=sent)
        answer = await response.json()
    assert (response.status, answer["type"], answer["error"]["type"]) == (status, "error", kind)
    assert text in answer["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 401), ({"X-Api-Key": "wrong"}, 401), ({"X-Api-Key": "right"}, 200), ({"Authorization": "Bearer right"}, 200)],
)
async def test_the_key_may_come_in_either_header(headers: dict[str, str], status: int) -> None:
    async with served(api_key="right") as client:
        assert (await client.post(MESSAGES, json=messages_body(), headers=headers)).status == status


# -- streams ----------------------------------------------------------------------------------------------


async def test_a_stream_of_the_openai_client_is_the_answer_without_a_stream() -> None:
    async with served() as server, AsyncOpenAI(base_url=str(server.make_url("/v1")), api_key="none") as client:
        for tools in ([], [MULTIPLY]):
            fields: dict[str, Any] = {"model": "arithmetic", "messages": QUESTION, "tools": tools}
            whole = await client.chat.completions.create(**fields)
            async with client.chat.completions.stream(**fields, stream_options={"include_usage": True}) as stream:
                streamed = await stream.get_final_completion()
            assert streamed.choices[0].finish_reason == whole.choices[0].finish_reason
            assert streamed.choices[0].message.content == whole.choices[0].message.content
            assert calls_of(streamed) == calls_of(whole)
            assert streamed.usage == whole.usage
            assert (await answer_of_responses(client, tools)) == (
                whole.choices[0].message.content or "",
                calls_of(whole),
            )


async def answer_of_responses(client: AsyncOpenAI, tools: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """The text and the calls of a streamed response."""
    functions: Any = [{"type": "function", **tool["function"]} for tool in tools]
    async with client.responses.stream(model="arithmetic", input="What is 17 * 23?", tools=functions) as stream:
        response = await stream.get_final_response()
    calls = [item for item in response.output if item.type == "function_call"]
    named = [{"id": call.call_id, "name": call.name, "arguments": call.arguments} for call in calls]
    return response.output_text, named


def calls_of(completion: Any) -> list[dict[str, Any]]:
    calls = completion.choices[0].message.tool_calls or []
    return [{"id": call.id, "name": call.function.name, "arguments": call.function.arguments} for call in calls]


async def test_a_stream_of_the_anthropic_client_is_the_answer_without_a_stream() -> None:
    tool = {"name": "multiply", "input_schema": MULTIPLY["function"]["parameters"]}
    async with served() as server, AsyncAnthropic(base_url=str(server.make_url("/")), api_key="none") as client:
        for tools in ([], [tool]):
            fields: dict[str, Any] = {**messages_body(), "tools": tools}
            whole = await client.messages.create(**fields)
            async with client.messages.stream(**fields) as stream:
                streamed = await stream.get_final_message()
            kept = {"id", "parsed_output"}
            assert streamed.model_dump(exclude=kept)["usage"] == whole.model_dump(exclude=kept)["usage"]
            assert streamed.to_dict()["content"] == whole.to_dict()["content"]
            assert streamed.stop_reason == whole.stop_reason


async def test_a_stream_that_fails_is_an_error_with_a_status() -> None:
    async with served() as server, AsyncOpenAI(base_url=str(server.make_url("/v1")), api_key="none") as client:
        with pytest.raises(BadRequestError, match="accuracy must be a number from 0 to 1"):
            await client.chat.completions.create(**body(), stream=True, extra_body={"accuracy": 2})


# -- the command ------------------------------------------------------------------------------------------


@contextmanager
def command(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    line = [sys.executable, "-m", "pytest_osmosis.demo", *arguments]
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


def test_the_first_line_says_where_it_serves() -> None:
    with command("--port=0") as process:
        url = served_at(process)
        with urllib.request.urlopen(f"{url}/models", timeout=DEADLINE_S) as response:
            assert response.status == 200
    assert url.startswith("http://127.0.0.1:")


async def test_a_request_whose_client_left_is_no_longer_in_flight() -> None:
    with command("--port=0", "--latency=60") as process:
        async with ClientSession(served_at(process).removesuffix("v1")) as client:
            request = asyncio.create_task(client.post(CHAT, json=body()))
            await stats_with(client, in_flight=1)
            request.cancel()
            assert (await stats_with(client, in_flight=0))["requests"] == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_ends_it_quietly(number: signal.Signals) -> None:
    with command("--port=0") as process:
        first_line(process)
        process.send_signal(number)
        rest, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, rest, errors) == (0, "", "")


def test_a_port_in_use_is_reported_with_a_fix(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main([f"--port={port}"]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith(f"cannot listen on 127.0.0.1 port {port}: ")
    assert "--port=0" in errors


@pytest.mark.parametrize(
    ("argument", "valid"),
    [
        ("--port=70000", "must be from 0 to 65535, got 70000"),
        ("--port=x", "must be from 0 to 65535, got x"),
        ("--latency=-1", "must be seconds like 0.2, or a range like 0.2-1.5, got -1"),
        ("--latency=nan", "must be seconds like 0.2, or a range like 0.2-1.5, got nan"),
        ("--latency=2-1", "the second number of 2-1 must be at least the first"),
        ("--error-rate=30", "must be a share from 0 to 1, like 0.1, got 30"),
        ("--error-rate=30%", "must be a share from 0 to 1, like 0.1, got 30%"),
        ("--error-status=200", "must be an HTTP status from 400 to 599, like 502, got 200"),
        ("--rate-limit=0", "must be requests per minute like 60, or per second like 5/s, got 0"),
        ("--rate-limit=5/h", "must be requests per minute like 60, or per second like 5/s, got 5/h"),
        ("--seed=x", "must be an integer, got x"),
        ("--log=", "has an empty value"),
        ("--api-key=", "has an empty value"),
        ("--host= ", "has an empty value"),
        ("--model=", "has an empty value"),
    ],
)
def test_an_argument_out_of_bounds_is_refused(argument: str, valid: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([argument])
    assert f"argument {argument.split('=')[0]}: {valid}" in capsys.readouterr().err


def test_a_log_that_cannot_be_written_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--port=0", f"--log={tmp_path}"]) == 1
    assert capsys.readouterr().err == f"--log={tmp_path}: cannot be written: Is a directory\n"


def test_the_log_can_be_printed() -> None:
    with command("--port=0", "--log=-") as process:
        url = served_at(process)
        request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body(seed=7)).encode())
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
            assert response.status == 200
        entry = json.loads(first_line(process))
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
