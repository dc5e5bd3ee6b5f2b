"""Fuzzing of answers over HTTP, through the real clients, and of configs and datasets, which users write.

A client returns a reply that everybody further on can use, or raises a `ModelError`. It raises nothing else, and does
not wait for more than the server sends. Of what users write only an `OsmosisError` may come.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from pytest_osmosis.config import is_training_config
from pytest_osmosis.datasets import check_rows, open_dataset
from pytest_osmosis.errors import DatasetError, ModelError, OsmosisError
from pytest_osmosis.models import create
from pytest_osmosis.models.base import ChatReply, ChatRequest, Model, copied
from pytest_osmosis.models.json_bodies import MAX_COUNT, MAX_LABEL
from pytest_osmosis.models.providers import Client
from pytest_osmosis.models.retry import send
from pytest_osmosis.models.targets import ModelTarget
from tests import servers
from tests.hostile.fuzzing import Fuzzer, check_message, json_document, json_lines, json_of, mutated_bytes
from tests.preparing import prepare
from tests.wire import WireServer

CLIENTS: tuple[Client, ...] = ("light", "openai", "anthropic")
REQUEST = ChatRequest(messages=[{"role": "user", "content": "hi"}])
TIMEOUT_S = 30.0
"""Long, because the machine may be slow. The server closes each connection at once, so nobody has to wait."""

TOOL_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL_USE = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
REPLIES: tuple[Any, ...] = (
    servers.completion({"role": "assistant", "content": "42"}),
    servers.completion({"role": "assistant", "content": None, "tool_calls": [TOOL_CALL], "refusal": None}),
    servers.messages_reply({"type": "text", "text": "42"}),
    servers.messages_reply(THOUGHT, TOOL_USE, stop_reason="tool_use"),
    servers.messages_reply({"type": "text", "text": "no"}, stop_reason="refusal", stop_details={"explanation": "no"}),
    servers.OVERFLOW,
    servers.QUOTA,
    servers.CREDIT,
    [servers.QUOTA],
    {"detail": [{"msg": "no"}]},
    {"object": "error", "message": "no", "code": 400},
)
WHOLE = st.sampled_from(REPLIES[:5]) | st.sampled_from(REPLIES)
# -- inputs --------------------------------------------------------------------------------------------------


REPLIED = json_of(WHOLE)


def changed(content: bytes, place: int, inserted: bytes, dropped: int) -> bytes:
    place %= len(content) + 1
    return content[:place] + inserted + content[place + dropped :]


SCRAPS = st.binary(max_size=4) | st.sampled_from(
    [b"\r\n", b"\n", b"\xff\xfe", b"\xed\xa0\x80", b"\x00", b'"', b"[" * 300]
)
BODIES = st.one_of(
    REPLIED,
    st.builds(changed, REPLIED, st.integers(0, 10**6), SCRAPS, st.integers(0, 20)),
    st.builds(lambda events: b"".join(b"data: " + event + b"\n\n" for event in events), st.lists(REPLIED, max_size=4)),
    REPLIED.map(lambda content: content.decode("utf-8", "replace").encode("utf-16")),
    st.binary(max_size=60),
)
PACKINGS = {
    b"gzip": gzip.compress,
    b"deflate": zlib.compress,
    b"GZIP, gzip": gzip.compress,
    b"x-gzip": lambda content: gzip.compress(content[:5]) + gzip.compress(content[5:]),
    b"identity": bytes,
    b"br": bytes,
}
STATUSES = [
    *map(str, (200, 200, 200, 201, 204, 205, 301, 304, 400, 401, 402, 403, 404, 408, 413, 429, 500, 503, 529, 599)),
    *("000", "099", "100", "101", "102", "600", "999", "1000", "-1", "", "2OO", "\u0662"),
]
STATUS_LINES = st.builds(
    lambda version, status, reason: f"{version} {status} {reason}".encode(),
    st.sampled_from(["HTTP/1.1"] * 6 + ["HTTP/1.0", "HTTP/0.9", "HTTP/2", "ICY", "http/1.1"]),
    st.sampled_from(STATUSES),
    st.sampled_from(["OK", "", "No\x00", "\u00e9", "x" * 9000]),
)
WAITS = [
    "1e999",
    "-5",
    "soon",
    "0.5",
    "9" * 400,
    "Fri, 31 Dec 9999 23:59:59 GMT",
    "Mon, 01 Jan 0001 00:00:00 +2359",
    "\xe9",
]
HEADERS = st.one_of(
    st.builds(lambda wait: f"retry-after: {wait}".encode(), st.sampled_from(WAITS)),
    st.builds(lambda wait: f"retry-after-ms: {wait}".encode(), st.sampled_from(WAITS)),
    st.builds(
        lambda name: b"content-type: application/json; charset=" + name, st.sampled_from([b"utf-16", b"zlib", b"\xff"])
    ),
    st.sampled_from([b"location: http://x\x1b", b"set-cookie: a=b; expires=never", b"connection: keep-alive, upgrade"]),
    st.sampled_from([b"no colon", b": no name", b" folded", b"upgrade: h2c", b"x-ratelimit-reset-tokens: 1e999"]),
    st.sampled_from([b"content-length: 5", b"content-length: -1", b"content-length: 99999999999999999999"]),
    st.sampled_from([b"transfer-encoding: chunked", b"transfer-encoding: gzip, chunked", b"content-encoding: gzip"]),
)


CLEAN = st.builds(lambda body: b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body), REPLIED)
"""Answers that are whole HTTP, so that their JSON is read."""


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """A whole answer, mostly with a framing that fits its body."""
    body, lines = draw(BODIES), [draw(STATUS_LINES), *draw(st.lists(HEADERS, max_size=2))]
    if draw(st.booleans()):
        coding = draw(st.sampled_from(sorted(PACKINGS)))
        body = PACKINGS[coding](body)
        lines.append(b"content-encoding: " + coding)
        if draw(st.booleans()):
            body = changed(body, draw(st.integers(0, 10**6)), draw(SCRAPS), draw(st.integers(0, 20)))
    match draw(st.sampled_from(["length", "length", "chunked", "end"])):
        case "length":
            lines.append(b"content-length: %d" % max(0, len(body) + draw(st.sampled_from([0, 0, 0, -3, 3]))))
        case "chunked":
            size = draw(st.integers(1, 50))
            chunks = [body[begin : begin + size] for begin in range(0, len(body), size)]
            body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
            lines.append(b"transfer-encoding: chunked")
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


INPUTS = st.builds(
    lambda client, content: bytes([client]) + content,
    st.integers(0, len(CLIENTS) - 1),
    st.one_of(
        CLEAN,
        CLEAN,
        CLEAN,
        answers(),
        answers(),
        st.builds(changed, answers(), st.integers(0, 10**6), SCRAPS, st.integers(0, 20)),
        st.lists(answers(), min_size=2, max_size=2).map(b"".join),
        st.binary(max_size=200),
        st.binary(max_size=200).map(lambda content: b"HTTP/1.1 200 OK\r\n" + content),
    ),
)
"""The number of a client, and what the server sends to it."""


# -- the target ----------------------------------------------------------------------------------------------


@contextmanager
def running() -> Iterator[Callable[[bytes], ChatReply]]:
    """Yield what returns the reply of a client, whose number comes first, to the rest of what it is given."""
    sent = [b""]

    async def clients(base_url: str) -> list[Model]:
        targets = [ModelTarget("server", "m", base_url, client=client, max_response_mb=1) for client in CLIENTS]
        return [create(target, {}, 1) for target in targets]

    with asyncio.Runner() as runner, WireServer(lambda: sent) as server:
        models = runner.run(clients(server.base_url))

        def reply(given: bytes) -> ChatReply:
            sent[0] = given[1:]
            return runner.run(send(models[given[0] % len(models)], REQUEST, TIMEOUT_S))

        yield reply
        for model in models:
            runner.run(model.close())


def check_reply(reply: ChatReply) -> None:
    """Fail for a reply that an agent, the journal or a table of costs could not use."""
    assert copied(reply.message) == reply.message
    json.dumps(reply.message, allow_nan=False).encode("ascii")
    assert isinstance(reply.content, str)
    assert isinstance(reply.message["role"], str)
    for call in reply.tool_calls:
        assert isinstance(call, dict)
        if "function" in call:
            assert isinstance(call["function"]["name"], str)
            assert isinstance(call["function"]["arguments"], str)
    for label in (reply.finish_reason, reply.model):
        assert label is None or (isinstance(label, str) and len(label) <= MAX_LABEL)
    if reply.usage is not None:
        assert all(type(count) is int and 0 <= count <= 3 * MAX_COUNT for count in reply.usage.to_json().values())


def check_error(error: ModelError) -> None:
    """Fail for an error that says too much, or that only the passing of time ended."""
    assert error.boundary in ("provider", "model")
    assert "\n" not in str(error)
    assert len(str(error)) < 1500
    assert not str(error).startswith("no answer within"), "it waited for what the server does not send"
    assert error.retry_after_s is None or 0 <= error.retry_after_s <= 1e7
    if error.status is None or not 200 <= error.status < 500:
        assert error.boundary == "provider"


def test_any_answer_is_a_reply_or_a_model_error(fuzz: Fuzzer) -> None:
    with running() as reply:

        def target(given: bytes) -> None:
            try:
                check_reply(reply(given or b"\0"))
            except ModelError as error:
                check_error(error)

        fuzz("http", target, INPUTS)


CONFIG = b"""[experiment]
model_path = "openai/gpt-5-mini" # a comment
dataset = "x"
baseline = {results = "base.json"}
[model]
base_url = "http://localhost:8000/v1"
headers = {X-Trace = "a"}
timeout_s = 30
client = "light"
[data]
rows = "0-1, 1"
seed = 3
columns = {user_prompt = "user_prompt"}
[sampling]
temperature = 0.5
seed = 0
stop = ["END"]
[scoring]
eval_fns = ["rewards:f", "rewards:g"]
decide = "all"
[evaluation]
n = 2
limit = 2
pass_threshold = {"rewards:f" = 0.5}
batch_size = 4
[secrets]
required = ["TOKEN"]
[gate]
pass_rate = ">= 0.7"
mean = {min = 0.5, rule = "lower"}
[limits]
max_errors = "5%"
max_cost_usd = 1.5
[prices]
"openai/gpt-5-mini" = {input = 1, output = 2.5}
[execution]
granularity = "row"
hosts = 2
[baseline]
model_path = "demo/arithmetic"
[output]
dir = "runs"
"""
LEAST = b"""[experiment]
model_path = "demo/arithmetic"
dataset = "x"
[scoring]
eval_fns = ["rewards:f"]
[secrets]
required = []
"""
TRAINING = b"""[experiment]
rollout = "mine" # a comment
entrypoint = "main.py"
model_path = "Qwen/Qwen3.6-35B-A3B"
dataset = "x"
[training]
lr = 1e-6
total_epochs = 1
max_prompt_length = 3
agent_workflow_timeout_s = 450
[sampling]
rollout_temperature = 1.0
[checkpoints]
eval_interval = 10
[advanced]
a = {b = [1]}
[env]
LOG_LEVEL = "INFO"
[secrets]
required = ["TOKEN", "OTHER"]
[model]
base_url = "http://localhost:8000/v1"
[limits.rollout]
tokens = 5000
[data]
columns = {user_prompt = "user_prompt"}
"""
MESSAGES = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "1 + 1?"}]}]
ROWS = (
    {"user_prompt": "1 + 1?", "ground_truth": "2", "extra": {"a": [1]}},
    {"messages": MESSAGES, "ground_truth": 2, "solution_str": "2"},
    {"system_prompt": "s", "user_prompt": "é\U0001f600", "ground_truth": None, "score": 0.5},
)
CSV = b'user_prompt,ground_truth,note\r\n"1 + 1?",2,"a\nb"\r\n"a ""quoted"" one",3,\r\n'
SUFFIXES = (".jsonl", ".json", ".csv")


def test_configs(fuzz: Fuzzer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x.jsonl").write_text('{"user_prompt": "1 + 1?", "ground_truth": "2"}\n' * 3, encoding="utf-8")
    path = tmp_path / "configs/eval/x.toml"
    path.parent.mkdir(parents=True)

    def target(content: bytes) -> None:
        path.write_bytes(content)
        try:
            prepare(path, environ={"OPENAI_API_KEY": "sk-fuzz-0123456789", "TOKEN": "x" * 20})
        except OsmosisError as error:
            check_message(error)

    fuzz("toml", target, mutated_bytes([CONFIG, LEAST]))


def test_training_configs(fuzz: Fuzzer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("data", "rollouts/mine", "configs/training"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "data/x.jsonl").write_text('{"user_prompt": "1 + 1?", "ground_truth": "2"}\n{}\n', encoding="utf-8")
    (tmp_path / "rollouts/mine/main.py").write_text("", encoding="utf-8")
    path = tmp_path / "configs/training/x.toml"

    def target(content: bytes) -> None:
        path.write_bytes(content)
        assert is_training_config(path)
        try:
            prepare(path, environ={"TOKEN": "x" * 20}, training=True)
        except OsmosisError as error:
            check_message(error)

    fuzz("training", target, mutated_bytes([TRAINING]))


def test_datasets(fuzz: Fuzzer, tmp_path: Path) -> None:
    def target(content: bytes) -> None:
        for suffix in SUFFIXES:
            path = tmp_path / f"rows{suffix}"
            path.write_bytes(content)
            try:
                dataset = open_dataset(path, display=path.name)
                checked = check_rows(dataset, range(len(dataset)))
                rows = [dataset.row(index) for index in range(len(dataset))]
            except DatasetError as error:
                check_message(error)
                continue
            assert all(row.messages for row in rows)
            json.dumps([checked.notes, [row.record for row in rows]], allow_nan=False)

    rows = json_document(list(ROWS)) | json_lines(ROWS) | mutated_bytes([CSV])
    fuzz("rows", target, rows)
