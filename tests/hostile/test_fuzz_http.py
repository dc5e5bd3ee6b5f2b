"""Broken and fuzzed answers over HTTP, through real clients, hosts and sessions; and fuzzed configs and datasets.

Whatever a server sends is a reply that everybody further on can use, or an error at boundary "provider". It is never a
measured answer of the model, nothing that the user's code did, and a client waits for no more than the server sends. Of
what users write only an `OsmosisError` may come.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from tests.hostile.workspaces import HostileWorkspace
from tests.preparing import prepare
from tests.wire import Answer, WireServer, answer, endless

CLIENTS: tuple[Client, ...] = ("light", "openai", "anthropic")
REQUEST = ChatRequest(messages=[{"role": "user", "content": "hi"}])
TIMEOUT_S = 30.0
"""Long, because the machine may be slow. The server closes each connection at once, so nobody has to wait."""

TOOL_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL_USE = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
REPLIES: tuple[Any, ...] = (
    servers.completion({"role": "assistant", "content": "42"}),
    servers.completion({"role": "assistant", "content": None, "tool_calls": [TOOL_CALL], "refusal": None}),
    servers.messages_reply({"type": "text", "text": "42"}),
    servers.messages_reply({"type": "thinking", "thinking": "hm", "signature": "s"}, TOOL_USE, stop_reason="tool_use"),
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
[secrets]
required = ["TOKEN", "OTHER"]
[limits.rollout]
tokens = 5000
"""
MESSAGES = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "1 + 1?"}]}]
ROWS = (
    {"user_prompt": "1 + 1?", "ground_truth": "2", "extra": {"a": [1]}},
    {"messages": MESSAGES, "ground_truth": 2, "solution_str": "2"},
    {"system_prompt": "s", "user_prompt": "é\U0001f600", "ground_truth": None, "score": 0.5},
)
CSV = b'user_prompt,ground_truth,note\r\n"1 + 1?",2,"a\nb"\r\n"a ""quoted"" one",3,\r\n'


@pytest.mark.parametrize("kind", ["eval", "training"])
def test_configs(fuzz: Fuzzer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("data", "rollouts/mine", f"configs/{kind}"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "data/x.jsonl").write_text('{"user_prompt": "1 + 1?", "ground_truth": "2"}\n' * 3, encoding="utf-8")
    (tmp_path / "rollouts/mine/main.py").write_text("", encoding="utf-8")
    path, is_training = tmp_path / f"configs/{kind}/x.toml", kind == "training"
    environ = {"OPENAI_API_KEY": "sk-fuzz-0123456789", "TOKEN": "x" * 20}

    def target(content: bytes) -> None:
        path.write_bytes(content)
        assert is_training_config(path) or not is_training
        try:
            prepare(path, environ=environ, training=is_training)
        except OsmosisError as error:
            check_message(error)

    fuzz("training" if is_training else "toml", target, mutated_bytes([TRAINING] if is_training else [CONFIG, LEAST]))


def test_datasets(fuzz: Fuzzer, tmp_path: Path) -> None:
    def target(content: bytes) -> None:
        for suffix in (".jsonl", ".json", ".csv"):
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


OK = b"HTTP/1.1 200 OK"
JSON = b"content-type: application/json"
CHUNKED = b"transfer-encoding: chunked"
GZIP = b"content-encoding: gzip"
DEADLINE_S = 300.0
"""Large answers take a minute on a machine that does something else."""
MB = 2**20
BOUND_MB = 64
BASE_MB = 48
"""The copies that engine and host make of a message, which may have a sixteenth of the bound."""
NEARLY = (BOUND_MB - 2) * MB

PEAK = """
import atexit, os, re
from pathlib import Path

def tell():
    # the peak of this process alone, where ru_maxrss begins with that of the process that started it
    size = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
    Path(f"peak-{os.getpid()}.kb").write_text(size)

atexit.register(tell)
"""
AGENT = """
import peak

async def rollout(ctx):
    peak.tell()
    reply = await ctx.chat(ctx.prompt)
    for call in reply.tool_calls:
        call["function"]["name"].upper() + call["function"]["arguments"]
    return [*ctx.prompt, reply.message]
"""


def body(client: str, text: str = "42") -> bytes:
    if client == "anthropic":
        return json.dumps(servers.messages_reply({"type": "text", "text": text})).encode()
    return json.dumps(servers.completion({"role": "assistant", "content": text})).encode()


def evaluated(
    hostile: HostileWorkspace, client: str, script: Sequence[Answer], **model: object
) -> Sequence[Mapping[str, Any]]:
    """Run an eval with one row for each answer of a script, and return its runs by row."""
    hostile.write("agent.py", AGENT)
    hostile.write("peak.py", PEAK)
    with WireServer(*script) as server:
        hostile.eval(
            client,
            rows=len(script),
            model={"client": client, "base_url": server.base_url, "max_retries": 0, "timeout_s": 120, **model},
            agent={"agent": "agent:rollout"},
            limits={"max_errors": len(script)},
        )
        config = f"--osmosis-config=configs/eval/{client}.toml"
        result = hostile.run_process(config, "--osmosis-no-probe", timeout=DEADLINE_S)
    assert result.ret in (0, 1, 9), result.stdout.str()
    for word in ("INTERNALERROR", "Traceback", "Exception ignored", "ResourceWarning"):
        assert word not in result.stdout.str() + result.stderr.str(), result.stdout.str()
    assert server.n_requests == len(script)
    return [run for row in hostile.results(client)["rows"] for run in row["runs"]]


def peak_mb(hostile: HostileWorkspace) -> float:
    """Return the peaks of engine and host of the last session, added up, although they may have come apart."""
    files = list(hostile.root.glob("peak-*.kb"))
    sizes = [int(file.read_text()) / 1024 for file in files]
    for file in files:
        file.unlink()
    assert len(sizes) >= 2
    return sum(sizes)


@functools.cache
def bomb(wbits: int) -> bytes:
    """A quarter of a gigabyte, in a coding of zlib's that makes a quarter of a megabyte of it."""
    packer = zlib.compressobj(wbits=wbits)
    return b"".join(packer.compress(bytes(2**20)) for _ in range(256)) + packer.flush()


ZLIB, GZIP_BITS = 15, 31


def too_large(client: str) -> list[Answer]:
    """Answers that are larger than the bound, or would become so."""
    page = b"<html>" + b"<p>" * 30_000
    event = b'data: {"choices": []}\n\n' * 3000
    return [
        answer(GZIP, body=bomb(GZIP_BITS)),
        answer(GZIP, GZIP, body=gzip.compress(bomb(GZIP_BITS))),
        answer(b"content-encoding: gzip, gzip", body=gzip.compress(bomb(GZIP_BITS))),
        answer(b"content-encoding: deflate", body=bomb(ZLIB)),
        made_when_sent(lambda: body(client, "4" * (BOUND_MB + 1) * MB)),
        endless(OK + b"\r\n\r\n"),
        endless(OK + b"\r\n" + CHUNKED + b"\r\n\r\n", b"10000\r\n" + bytes(2**16) + b"\r\n"),
        endless(OK + b"\r\ncontent-type: text/event-stream\r\n\r\n", event),
        endless(OK + b"\r\ncontent-type: text/event-stream\r\n\r\ndata: "),
        endless(b"HTTP/1.1 500 No\r\ncontent-type: text/html\r\n\r\n", page),
        answer(b"content-type: text/html", status=b"HTTP/1.1 502 No", body=page * (BOUND_MB * 14)),
        answer(b"content-type: text/html; charset=zlib", status=b"HTTP/1.1 500 No", body=bomb(ZLIB)),
        endless(OK + b"\r\n", b"x: y\r\n" * 5000),
        endless(OK + b"\r\nx: ", b"y" * 2**16),
        endless(OK + b"\r\n" + CHUNKED + b"\r\n\r\n0\r\n", b"x: y\r\n" * 5000),
    ]


def with_more(client: str, value: bytes) -> bytes:
    """A good body with a field that nobody reads."""
    return body(client)[:-1] + b', "more": ' + value + b"}"


def made_when_sent(make: Callable[[], bytes]) -> Answer:
    """Return an answer whose body is made for each request, because all of them together are large."""
    return lambda: answer(JSON, body=make())()


def nearly_too_large(client: str) -> tuple[list[Answer], list[Answer]]:
    """Answers that are nearly as large as they may be: some that are no reply that can be kept, and replies."""
    useless: list[Callable[[], bytes]] = [
        lambda: body(client, "4" * NEARLY),
        lambda: b'{"error": "' + b"4" * NEARLY + b'"}',
        lambda: b"4" * NEARLY,
        lambda: b"[" * NEARLY,
    ]
    replies: list[Callable[[], bytes]] = [
        lambda: body(client),
        lambda: with_more(client, b'"' + b"4" * NEARLY + b'"'),
        lambda: with_more(client, b"[" + b"0," * (NEARLY // 70) + b"0]"),
        lambda: body(client, "4" * (BOUND_MB * MB // 16 - 1000)),
        lambda: body(client, "\N{SNOWMAN}" * (BOUND_MB * MB // 100)),
    ]
    return list(map(made_when_sent, useless)), list(map(made_when_sent, replies))


@pytest.mark.parametrize(
    "client", ["light", *(pytest.param(client, marks=pytest.mark.nightly) for client in ("openai", "anthropic"))]
)
def test_an_answer_of_any_size_takes_at_most_twice_its_bound(hostile: HostileWorkspace, client: str) -> None:
    hostile.plugins = ["-ppeak"]
    evaluated(hostile, client, [answer(JSON, body=body(client))] * 2)
    usual_mb = peak_mb(hostile)
    useless, read = nearly_too_large(client)
    refused = [*too_large(client), *useless]
    runs = evaluated(hostile, client, [*refused, *read], max_response_mb=BOUND_MB)
    assert [run.get("boundary") for run in runs] == ["provider"] * len(refused) + [None] * len(read)
    extra_mb = peak_mb(hostile) - usual_mb
    print(f"peak of host and engine: {usual_mb:.0f} MB, and {extra_mb:.0f} MB for answers that are too large")
    assert extra_mb < 2 * BOUND_MB + BASE_MB
