"""Every client against a real server: what it sends and reads, what odd answers become, connections and the probe."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import traceback
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import trustme

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models import probe
from pytest_osmosis.models.base import ChatRequest
from pytest_osmosis.models.retry import send
from tests import servers
from tests.clocks import ended
from tests.raised import raised_by
from tests.server_answers import BROKEN, MODEL_400, Failing
from tests.servers import Behaviour, ChatServer
from tests.unit.models.talking import (
    CHAT_CLIENTS,
    CLIENT,
    CLIENTS,
    HAS_LITELLM,
    KEY,
    PROMPT,
    TOOL,
    ask,
    error_at,
    failure_of,
    key_of,
    kind,
    model_at,
    reply_of,
    sent,
)
from tests.unit.models.test_failures import blamed

pytestmark = pytest.mark.parametrize("client", CLIENTS, indirect=True)


def not_with_litellm(reason: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(HAS_LITELLM, reason=f"LiteLLM: {reason}")


@not_with_litellm("it writes UTF-8, and says that it cannot")
async def test_a_lone_surrogate_can_be_sent_and_read() -> None:
    lone = [{"role": "user", "content": "a\ud800b"}]
    assert (await sent(messages=lone))["messages"] == lone
    assert (await reply_of(servers.reply("a\ud800b"))).content == "a\ud800b"


@pytest.mark.parametrize("content", [object(), float("nan")])
async def test_a_message_that_is_not_json_is_the_callers_error_and_is_not_sent(content: object) -> None:
    with ChatServer() as server:
        with pytest.raises((TypeError, ValueError)):
            await ask(server, messages=[{"role": "user", "content": content}])
    assert server.requests == []


@not_with_litellm("it is given the address of OpenAI alone, to which these belong")
@pytest.mark.parametrize(("named", "key"), [(None, None), (f" {KEY}\n", KEY)])
async def test_only_a_named_key_is_sent_and_none_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str | None, key: str | None
) -> None:
    ambient = {
        "OPENAI_API_KEY": "sk-ambient",
        "OPENAI_ADMIN_KEY": "sk-admin-ambient",
        "OPENAI_ORG_ID": "org-ambient",
        "OPENAI_PROJECT_ID": "project-ambient",
        "OPENAI_CUSTOM_HEADERS": "Authorization: Bearer ambient\nX-Gateway: ambient\nContent-Type: text/ambient",
        "ANTHROPIC_API_KEY": "sk-ambient",
        "ANTHROPIC_AUTH_TOKEN": "token-ambient",
        "ANTHROPIC_CUSTOM_HEADERS": "Authorization: Bearer ambient\nX-Api-Key: ambient\nX-Gateway: ambient",
    }
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password of-netrc-ambient\n", encoding="utf-8")
    for name, value in {**ambient, "NETRC": str(tmp_path / "netrc")}.items():
        monkeypatch.setenv(name, value)
    with ChatServer() as server:
        await ask(server, key=named)
    headers = server.requests[0].headers
    assert (key_of(headers), headers["content-type"]) == (key, "application/json")
    assert [name for name, value in headers.items() if "ambient" in value] == []


async def test_headers_of_the_config_win_and_those_of_a_request_replace_them_once() -> None:
    headers = {"X-Team": "\tevals ", "authorization": "Basic abc", "User-Agent": "mine", "X-Session-ID": "all"}
    with ChatServer() as server:
        async with model_at(server.base_url, key=KEY, headers=headers) as model:
            await model.chat(ChatRequest(messages=PROMPT, headers={"x-session-id": " 7 ", "X-Run": "1"}))
            await model.chat(ChatRequest(messages=PROMPT))
    first, second = (request.headers for request in server.requests)
    assert [first[name] for name in ("x-team", "authorization", "user-agent")] == ["evals", "Basic abc", "mine"]
    assert (first["x-session-id"], first["x-run"]) == ("7", "1")
    assert (second["x-session-id"], second.get("x-run")) == ("all", None)


async def test_a_proxy_is_not_used_for_an_exempt_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with ChatServer(servers.reply("by proxy")) as proxy, ChatServer(servers.reply("direct")) as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        reply = await ask(server)
    assert (reply.content, proxy.requests) == ("direct", [])


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
async def test_a_missing_proxy_is_named_with_its_variable_and_without_its_password(
    monkeypatch: pytest.MonkeyPatch, unused_port: int, variable: str
) -> None:
    scheme = "http://" if variable in ("HTTP_PROXY", "all_proxy") else ""
    monkeypatch.setenv(variable, f"{scheme}me:hunter2hunter2@127.0.0.1:{unused_port}")
    error = await error_at("http://model.invalid/v1")
    assert kind(error) == ("provider", True, "until_success", None)
    assert str(error) == (
        f"cannot reach http://model.invalid/v1 through the proxy http://127.0.0.1:{unused_port} ({variable}): "
        f"127.0.0.1:{unused_port} refused the connection; is the proxy running?"
    )


@pytest.mark.parametrize(
    ("scheme", "behaviour", "said"),
    [
        ("https", None, "cannot reach https://model.invalid/v1{through}: it answered 404 Not Found"),
        ("http", servers.status(407), "407 Proxy Authentication Required at {asked}: scripted 407{through}"),
        ("http", servers.cut_connection(), "the connection to http://model.invalid/v1{through} broke: "),
    ],
    ids=["no tunnel", "password", "cut"],
)
async def test_a_proxy_that_fails_is_named_with_its_variable_and_without_its_password(
    monkeypatch: pytest.MonkeyPatch, scheme: str, behaviour: Behaviour | None, said: str
) -> None:
    with ChatServer(*filter(None, [behaviour])) as server:
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", server.url.replace("//", "//me:hunter2hunter2@"))
        error = await error_at(f"{scheme}://model.invalid/v1")
    path = "messages" if CLIENT.name == "anthropic" else "chat/completions"
    through = f" through the proxy {server.url} ({scheme.upper()}_PROXY)"
    assert error.boundary == "provider"
    assert said.format(through=through, asked=f"http://model.invalid/v1/{path}") in str(error)
    assert "hunter2" not in str(error)
    if scheme == "http":  # its password goes to the proxy alone
        headers = server.requests[0].headers
        assert headers["proxy-authorization"].startswith("Basic ")
        assert "authorization" not in headers or HAS_LITELLM


async def test_only_authorities_in_ssl_cert_file_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with ChatServer(tls=tls) as server:
        error = await error_at(server.base_url)
        assert kind(error) == ("provider", True, "until_success", None)
        assert re.match(r"cannot reach https://.*certificate verify failed", str(error))
        assert server.requests == []
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert (await ask(server)).content == "42"


@pytest.mark.parametrize(
    ("n", "most"),
    [(120, 120), pytest.param(8, 2, marks=not_with_litellm("its pools are its own; hosts bound what is in flight"))],
)
async def test_as_many_requests_as_may_be_in_flight_are_and_others_wait_their_turn(n: int, most: int) -> None:
    with ChatServer(servers.held(servers.reply("42"))) as server:
        async with model_at(server.base_url, max_in_flight=most) as model:
            tasks = [asyncio.create_task(model.chat(ChatRequest(messages=PROMPT))) for _ in range(n)]
            await asyncio.to_thread(server.wait_for, lambda server: server.in_flight == most)
            server.release()
            replies = await asyncio.gather(*tasks)
    assert {reply.content for reply in replies} == {"42"}
    assert (len(server.requests), server.max_in_flight) == (n, most)


async def test_a_tool_round_has_the_shape_of_chat_completions_and_is_answered() -> None:
    with ChatServer(servers.tool_call("multiply", {"a": 17, "b": 23}), servers.reply("391")) as server:
        async with model_at(server.base_url) as model:
            asked = await model.chat(ChatRequest(messages=PROMPT, tools=[TOOL]))
            result = {"role": "tool", "tool_call_id": asked.tool_calls[0]["id"], "content": "391"}
            told = await model.chat(ChatRequest(messages=[*PROMPT, asked.message, result], tools=[TOOL]))
            await model.close()  # and once more as the context ends
    assert asked.message["content"] is None
    [call] = asked.tool_calls
    assert (call["id"], call["type"], call["function"]["name"]) == ("call_1", "function", "multiply")
    assert json.loads(call["function"]["arguments"]) == {"a": 17, "b": 23}
    assert told.content == "391"
    assert "multiply" in json.dumps(server.bodies[1]["messages"])
    assert "call_1" in json.dumps(server.bodies[1]["messages"][-1])


def by_role(role: str | None) -> Behaviour:
    chat = servers.completion({"role": role, "content": "42"})
    return servers.by_api(chat, servers.messages_reply({"type": "text", "text": "42"}, role=role))


@pytest.mark.parametrize("role", ["model", "Assistant", "ai", "bot", "", None])
async def test_an_answer_is_the_assistants_whatever_its_role_is_called(role: str | None) -> None:
    assert (await reply_of(by_role(role))).message == {"role": "assistant", "content": "42"}


ABSURD = ("9" * 400, "1e999", "-7", "NaN", "Infinity", "true", "7.5", '"7"', "[]", "{}", "10000000000")
"""JSON for values that no count of tokens can have."""


@pytest.mark.parametrize("number", ABSURD)
async def test_absurd_usage_is_unknown_and_costs_nothing(number: str) -> None:
    text = json.dumps(servers.completion({"role": "assistant", "content": "42"}, created="CREATED"))
    if CLIENT.name == "anthropic":
        text = json.dumps(servers.messages_reply({"type": "text", "text": "42"}, created="CREATED"))
    text = text.replace(": 7,", f": {number},").replace('"CREATED"', number)
    reply = await reply_of(servers.body(text))
    assert (reply.content, reply.usage) == ("42", None)


NO_NAMES: list[object] = [5, [], {}, True, "x" * 201]


@pytest.mark.parametrize(("value", "read"), [("tired", "tired"), *((other, None) for other in NO_NAMES)])
async def test_a_reason_and_a_model_are_any_name_and_else_unknown(value: object, read: str | None) -> None:
    chat = servers.completion({"role": "assistant", "content": "42"}, model=value)
    chat["choices"][0]["finish_reason"] = value
    message = servers.messages_reply({"type": "text", "text": "42"}, model=value)
    message["stop_reason"] = value
    reply = await reply_of(servers.by_api(chat, message))
    assert (reply.content, reply.finish_reason, reply.model) == ("42", read, read)


def nested(depth: int, opened: str, closed: str) -> Behaviour:
    return servers.body(opened * depth + "1" + closed * depth)


def refused(error: str | dict[str, Any], code: int = 400) -> Behaviour:
    return servers.status(code, {"error": {"message": error} if isinstance(error, str) else error})


EVENTS = 'data: {"choices": [{"delta": {"content": "4"}}]}\n\n'
NO_REPLIES: list[tuple[str, Behaviour]] = [
    ("not JSON: '<!DOCTYPE html> <html><title>Sign in</title></html>' (POST http://127.0.0.1:", servers.html()),
    ('not JSON: \'{"choices": [{', servers.half_json()),
    ("not JSON: 'data: {", servers.body(f"{EVENTS}data: [DONE]\n\n", content_type="text/event-stream")),
    ("not JSON: '\\x1b[31m\\u202exxx", servers.body("\x1b[31m\u202e" + "x" * 5000)),
    *(("empty (POST http://127.0.0.1:", servers.body(text)) for text in ("", " \n")),
    *((f"not a JSON object: '{text}' (POST http", servers.body(text)) for text in ("[]", "null", '"ok"', "1")),
    *(("nested more than 100 levels deep: '", nested(depth, "[", "]")) for depth in (101, 900, 5000, 100_000)),
    *(("nested more than 100 levels deep: '", nested(depth, '{"a":', "}")) for depth in (101, 5000, 100_000)),
]
NOT_SUPPORTED = "is not supported with this model."
REFUSED_KEYS: dict[str, list[str | dict[str, Any]]] = {
    "temperature": [
        "Unsupported value: 'temperature' does not support 0.5 with this model.",
        *(f"{key} is deprecated for this model." for key in ("`temperature`", "temperature")),
        "`temperature` and `top_p` cannot both be specified for this model.",
    ],
    "max_tokens": [
        f"Unsupported parameter: 'max_tokens' {NOT_SUPPORTED} Use 'max_completion_tokens' instead.",
        f"Unsupported parameter: 'max_output_tokens' {NOT_SUPPORTED}",
    ],
    "reasoning_effort": [f"Unsupported parameter: 'reasoning.effort' {NOT_SUPPORTED}"],
    "top_k": ["Unknown parameter: 'top_k'."],
    "min_p": ["Unrecognized request argument supplied: min_p"],
    "verbosity": [{"message": "'low' is not supported.", "code": "unsupported_value", "param": "text.verbosity"}],
}
REFUSED_OTHERWISE: list[str | dict[str, Any]] = [
    "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
    {"message": "no", "code": "unsupported_value", "param": "messages[0].role"},
    {"message": f"Unsupported parameter: 'tools' {NOT_SUPPORTED}", "code": "unsupported_parameter", "param": 1},
    "Unsupported value: 'low' is not supported with the 'gpt-x' model.",
    "The answer says: Unknown parameter: 'top_k'.",
    {"message": "no", "code": "invalid_value", "param": "temperature"},
]
OUT_OF_QUOTA: list[Any] = [
    *(servers.QUOTA, servers.CREDIT, {"detail": "You exceeded your Current Quota"}),
    *({"error": {"message": "no", key: "insufficient_quota"}} for key in ("code", "type")),
    [{"error": {"message": "You exceeded your current quota", "code": 429}}],
]
MESSAGES: list[tuple[object, str]] = [
    *((value, "said") for value in ({"error": "said"}, {"detail": "said"}, {"message": "said"}, "said")),
    ({"error": {"message": "said"}}, "said"),
    ({"detail": [{"msg": "said"}]}, '[{"msg": "said"}]'),
    ({"error": {"code": 3}}, '{"code": 3}'),
    ({"error": {"message": ["said"]}}, '{"message": ["said"]}'),
    ([], "[]"),
]
IN_A_200: list[tuple[dict[str, Any], int]] = [
    *(({"code": code}, int(code)) for code in (503, "429", 400)),
    *(({"type": "overloaded_error"}, 529), ({"type": "server_error", "code": None}, 500)),
    *(({"status": "UNAVAILABLE"}, 503), ({"status": "CANCELLED"}, 499), ({"code": "capacity_exceeded"}, 498)),
    ({"code": "context_length_exceeded", "type": "x"}, 400),
    ({"code": "invalid_api_key", "type": "bad_request"}, 401),
    ({"type": "insufficient_quota"}, 402),
]
BLAMES_NOBODY = ("said", *({"message": "said", **more} for more in ({}, {"code": 3}, {"type": "x"})))
TLS_IS_WANTED = (
    "<html><head><title>400 The plain HTTP request was sent to HTTPS port</title></head></html>",
    "Client sent an HTTP request to an HTTPS server.\n",
    "Reason: You're speaking plain HTTP to an SSL-enabled server port.<br />",
)
OF_SERVER, OF_CONFIG = ("provider", True, "no", 200), ("provider", False, "until_success", 400)
LEFT_OUT = "in [sampling], in [judge] or in the agent's own request, whichever sets it"
FAILING: dict[str, list[Failing]] = {
    "no reply": [
        Failing(answer, OF_SERVER, f"^the server answered 200 with a body that is {said}")
        for said, answer in NO_REPLIES
    ],
    "somebody else's message": [
        Failing(by_role(role), OF_SERVER, f'^the server answered 200 with a message of role "{role.lower()}" in place')
        for role in ("user", "tool", "system", "User", "developer", "function", "human")
    ],
    "packed otherwise": [
        Failing(
            servers.body(b"not gzip", content_encoding="gzip"),
            ("provider", True, "no", None),  # type: ignore[arg-type]  # libraries do not say the status
            "^the server answered with a body that cannot be unpacked: ",
        )
    ],
    "a refused key": [
        Failing(refused(error), OF_CONFIG, f"; leave out {key}: {LEFT_OUT}$")
        for key, errors in REFUSED_KEYS.items()
        for error in errors
    ],
    "refused otherwise": [Failing(refused(error), MODEL_400, "") for error in REFUSED_OTHERWISE],
    "out of quota": [
        Failing(servers.status(code, value, retry_after="1"), ("provider", False, "always", code), "")
        for code in (400, 403, 429)
        for value in OUT_OF_QUOTA
    ],
    "a message": [
        Failing(servers.status(400, value), MODEL_400, f"^the server answered 400 Bad Request: {said}$")
        for value, said in MESSAGES
    ],
    "an error that is nested too deeply": [
        Failing(servers.body('{"error": ' + "[" * 500 + "]" * 500 + "}", status=500), BROKEN, ': {"error": [[[[')
    ],
    "an error in a 200": [
        Failing(
            servers.data({**others, "error": {"message": "said", **error}}),
            (*blamed(status), status),
            f"^the server answered 200 with error {status}",
        )
        for others in ({}, {"choices": None, "content": None}, {"type": "error", "content": []})
        for error, status in IN_A_200
    ],
    "an error in a 200 that blames nobody": [
        Failing(servers.data({"error": error}), OF_SERVER, ": said$") for error in BLAMES_NOBODY
    ],
    "TLS is wanted": [
        Failing(
            servers.body(text, status=400, content_type="text/html"),
            OF_CONFIG,
            'answers with TLS: set [model] base_url to "https://127.0.0.1:',
        )
        for text in TLS_IS_WANTED
    ],
}


@pytest.mark.parametrize("case", [pytest.param(case, id=what) for what, cases in FAILING.items() for case in cases])
async def test_an_answer_that_is_none_is_a_failure_of_whose_it_is(case: Failing) -> None:
    error = await failure_of(case.answer)
    assert kind(error) == case.kind
    assert case.said in f"^{error}$"
    assert len(str(error)) < 500


@pytest.mark.parametrize("code", [401, 402, 403, 404, 405])
async def test_an_error_that_the_address_may_cause_names_it(code: int) -> None:
    with ChatServer(servers.status(code)) as server:
        error = await error_at(server.base_url)
    asked = f"{server.url}{server.requests[0].path}"
    assert str(error) == f"the server answered {code} {HTTPStatus(code).phrase} at {asked}: scripted {code}"


SECONDS = {"86400": 86400.0, "0.5": 0.5, "0": 0.0, "Wed, 21 Oct 2015 07:28:00 GMT": 0.0}
SECONDS["Mon, 01 Jan 0001 00:00:00 +2359"] = 0.0
NO_SECONDS = ("soon", "-1", "inf", "nan", "1e999", "1e3", "9" * 400, "1_0", "\u0663")
NO_TIMES = ("Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 10000 00:00:00 GMT")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        *(({"retry_after": text}, seconds) for text, seconds in SECONDS.items()),
        *(({"retry_after": text}, None) for text in (*NO_SECONDS, *NO_TIMES)),
        ({"retry_after_ms": "250", "retry_after": "9"}, 0.25),
        ({"retry_after_ms": "9" * 400, "retry_after": "2"}, 2.0),
        ({}, None),
    ],
)
async def test_retry_after_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert (await failure_of(servers.status(429, **headers))).retry_after_s == seconds


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_and_says_where_it_leads(code: int) -> None:
    with ChatServer() as elsewhere:
        target = f"http://localhost:{elsewhere.port}/v1/chat/completions"
        error = await failure_of(servers.redirect(target, code), KEY)
    assert elsewhere.requests == []
    assert kind(error) == ("provider", False, "until_success", code)
    assert f'a redirect to "{target}"' in str(error)
    assert "set [model] base_url" in str(error)


async def test_a_key_that_the_server_quotes_is_redacted_unless_it_is_short() -> None:
    value = {"error": {"message": f"Incorrect API key provided: {KEY}. " + "x" * 400}}
    error = await failure_of(servers.status(401, value), KEY)
    assert "Incorrect API key provided: [redacted]." in str(error)
    assert KEY not in str(error)
    cut = await failure_of(servers.body("x" * 190 + KEY), KEY)
    assert KEY[:8] not in str(cut)
    short = await failure_of(servers.status(400, {"error": "a bad cat"}), "a")
    assert str(short).endswith(": a bad cat")


@pytest.mark.parametrize(("n", "size"), [(1, 20_000), (1, 100_000), (300, 1)])
async def test_an_answer_with_large_headers_is_an_answer(n: int, size: int) -> None:
    headers: dict[str, Any] = {f"x-{number}": "t" * size for number in range(n)}
    chat, message = servers.completion({"content": "42"}), servers.messages_reply({"type": "text", "text": "42"})
    assert (await reply_of(servers.by_api(chat, message, **headers))).content == "42"
    refused = await failure_of(servers.status(429, retry_after="3", **headers))
    assert (kind(refused), refused.retry_after_s) == (("provider", True, "no", 429), 3)


async def test_a_server_that_is_not_there_or_has_no_tls_is_unreachable_and_named(unused_port: int) -> None:
    address = f"127.0.0.1:{unused_port}"
    refused = f"{address} refused the connection; is the server running?"
    for host, said in ((address, refused), ("model.invalid", "this host name")):
        error = await error_at(f"http://{host}/v1")
        assert kind(error) == ("provider", True, "until_success", None)
        assert str(error).startswith(f"cannot reach http://{host}/v1: {said}")
    with ChatServer() as server:
        secure = server.base_url.replace("http:", "https:")
        error = await error_at(secure)
    assert kind(error) == ("provider", True, "until_success", None)
    assert re.match(rf"cannot reach {secure}: .*(SSL|TLS)", str(error))


@pytest.mark.parametrize("behaviour", [servers.cut_connection(), servers.cut_body()], ids=["connection", "body"])
async def test_a_connection_that_is_cut_is_retryable_and_not_systemic(behaviour: Behaviour) -> None:
    with ChatServer(behaviour) as server:
        error = await error_at(server.base_url)
    assert kind(error) == ("provider", True, "no", None)
    assert str(error).startswith(f"the connection to {server.base_url} broke: ")
    assert "400" not in str(error).replace(server.base_url, ""), "a status that no server sent"
    assert len(server.requests) == 1
    assert (error.__suppress_context__, error.__cause__) == (True, None), "it chains no error of the client's own"


@pytest.mark.parametrize(("key", "value"), [("sk-key-\N{SNOWMAN}", "a"), (None, "a\nb"), (None, "a\x00b")], ids=ascii)
async def test_a_header_that_cannot_be_sent_is_no_broken_connection_and_not_shown(key: str | None, value: str) -> None:
    """It comes from the environment, or from the state of a rollout, and would be the same in the next try."""
    with ChatServer() as server:
        error = await raised_by(ModelError, ask(server, key, headers={"X-Session-ID": value}))
    assert kind(error) == ("provider", False, "no", None)
    assert "the request to http://127.0.0.1" in str(error)
    assert "sk-key" not in str(error)
    assert server.requests == []


async def test_cancelling_ends_an_open_request() -> None:
    with ChatServer(servers.never()) as server:
        async with model_at(server.base_url) as model:
            task = asyncio.create_task(model.chat(ChatRequest(messages=PROMPT)))
            await asyncio.to_thread(server.wait_for, lambda server: server.in_flight == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ended(task)
            await asyncio.to_thread(server.wait_for, lambda server: server.in_flight == 0)
    assert len(server.requests) == 1


async def test_an_error_does_not_keep_the_answer_that_it_is_about() -> None:
    with ChatServer(servers.body("x" * 10**6)) as server:
        async with model_at(server.base_url) as model:
            error = await raised_by(ModelError, send(model, ChatRequest(messages=PROMPT), 60.0))
    assert error.__context__ is None
    kept = [value for frame, _ in traceback.walk_tb(error.__traceback__) for value in frame.f_locals.values()]
    assert not [value for value in kept if isinstance(value, (str, bytes, bytearray)) and len(value) > 10_000]


async def probed(server: ChatServer) -> ModelError | None:
    async with model_at(server.base_url, path="m") as model:
        return await probe(model, timeout_s=60.0)


async def test_the_probe_is_one_tiny_request_bound_by_the_key_that_the_server_takes() -> None:
    with ChatServer() as server:
        assert await probed(server) is None
    assert server.bodies == [{"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 16}]
    message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    with ChatServer(servers.status(400, {"error": {"message": message}}), servers.reply("42")) as server:
        assert await probed(server) is None
    if CLIENT.name in CHAT_CLIENTS:
        bounds = [{key: body[key] for key in body if "tokens" in key} for body in server.bodies]
        assert bounds == [{"max_tokens": 16}, {"max_completion_tokens": 16}]


@pytest.mark.parametrize(
    ("behaviour", "found"),
    [
        (servers.status(401), ("provider", "always")),
        (servers.status(404), ("provider", "until_success")),
        (servers.status(400), ("model", "no")),
        (servers.status(429, retry_after="60"), None),
        (servers.cut_connection(), None),
    ],
    ids=["401", "404", "400", "429", "cut"],
)
async def test_the_probe_reports_what_every_request_may_meet_and_ignores_what_passes(
    behaviour: Behaviour, found: tuple[str, str] | None
) -> None:
    with ChatServer(behaviour) as server:
        error = await probed(server)
    assert (error and (error.boundary, error.systemic)) == found
    assert len(server.requests) == 1
