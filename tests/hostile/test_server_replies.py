"""Replies of a hostile or broken model server, through real clients, hosts and sessions.

Whatever a server sends is a reply, or an error at boundary "provider". It is never a measured answer of the model, and
nothing that the user's code did.
"""

from __future__ import annotations

import functools
import gzip
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests import servers
from tests.hostile.workspaces import HostileWorkspace
from tests.wire import Answer, WireServer, answer, endless

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
    """A good body of the client's API."""
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
        answer(b"content-encoding: br", body=bytes(1000)),
        answer(b"content-encoding: zstd", body=bytes(1000)),
        made_when_sent(lambda: body(client, "4" * (BOUND_MB + 1) * MB)),
        endless(OK + b"\r\n\r\n"),
        endless(OK + b"\r\n" + CHUNKED + b"\r\n\r\n", b"10000\r\n" + bytes(2**16) + b"\r\n"),
        endless(OK + b"\r\ncontent-type: text/event-stream\r\n\r\n", event),
        endless(OK + b"\r\ncontent-type: text/event-stream\r\n\r\ndata: "),
        endless(b"HTTP/1.1 500 No\r\ncontent-type: text/html\r\n\r\n", page),
        endless(b"HTTP/1.1 429 No\r\ncontent-type: text/html\r\n\r\n", page),
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


def useless(client: str) -> list[Answer]:
    """Answers that are nearly as large as the bound, and no reply that can be kept."""
    bodies: list[Callable[[], bytes]] = [
        lambda: body(client, "4" * NEARLY),
        lambda: b'{"error": "' + b"4" * NEARLY + b'"}',
        lambda: b"4" * NEARLY,
        lambda: b"[" * NEARLY,
    ]
    return list(map(made_when_sent, bodies))


def large(client: str) -> list[Answer]:
    """Replies that are nearly as large as they may be."""
    bodies: list[Callable[[], bytes]] = [
        lambda: body(client),
        lambda: with_more(client, b'"' + b"4" * NEARLY + b'"'),
        lambda: with_more(client, b"[" + b"0," * (NEARLY // 70) + b"0]"),
        lambda: body(client, "4" * (BOUND_MB * MB // 16 - 1000)),
        lambda: body(client, "\N{SNOWMAN}" * (BOUND_MB * MB // 100)),
    ]
    return list(map(made_when_sent, bodies))


@pytest.mark.parametrize(
    "client", ["light", *(pytest.param(client, marks=pytest.mark.nightly) for client in ("openai", "anthropic"))]
)
def test_an_answer_of_any_size_takes_at_most_twice_its_bound(hostile: HostileWorkspace, client: str) -> None:
    hostile.plugins = ["-ppeak"]
    evaluated(hostile, client, [answer(JSON, body=body(client))] * 2)
    usual_mb = peak_mb(hostile)
    refused, read = [*too_large(client), *useless(client)], large(client)
    runs = evaluated(hostile, client, [*refused, *read], max_response_mb=BOUND_MB)
    assert [run.get("boundary") for run in runs] == ["provider"] * len(refused) + [None] * len(read)
    extra_mb = peak_mb(hostile) - usual_mb
    print(f"peak of host and engine: {usual_mb:.0f} MB, and {extra_mb:.0f} MB for answers that are too large")
    assert extra_mb < 2 * BOUND_MB + BASE_MB
