"""The endpoint under attack: anything on this machine can send to its port, and the answers are read by user code.

After each input it still answers a good request. It sends no key, it raises nothing into its loop, and it logs nothing.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import strategies as st

from pytest_osmosis.endpoint.rollouts import Address, EndpointRollout
from pytest_osmosis.endpoint.server import MAX_BODY_BYTES, Endpoint
from pytest_osmosis.models.embedded import EmbeddedModel
from tests.hostile.fuzzing import Fuzzer, json_of
from tests.hostile.test_fuzz_http import SCRAPS, changed

DEADLINE_S = 60.0
QUESTION = {"model": "m", "messages": [{"role": "user", "content": "What is 6 * 7?"}]}
TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object"}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def answered(port: int, sent: bytes, *, ends: bool = True) -> bytes:
    """Return all that is answered until the connection is closed; `ends` tells that nothing more comes."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
        with suppress(ConnectionError):  # it may be refused, and closed, before all of it was read
            connection.sendall(sent)
            if ends:
                connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError, TimeoutError):  # what was answered before comes first
            while part := connection.recv(65536):
                answer += part
    return answer


class Attacked:
    """An endpoint with one rollout, on a loop in a thread of its own. `faults` are errors that reached the loop."""

    def __init__(self) -> None:
        self.faults: list[Any] = []
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda _loop, context: self.faults.append(context))
        self.endpoint = Endpoint.listening()
        self.endpoint.attach(self.loop)
        model = EmbeddedModel()
        self.rollout = EndpointRollout("row0-run0", "arithmetic", model.chat, model.chat)
        self.address: Address = self.endpoint.address_of(self.rollout)
        self.shared = self.endpoint.share()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    @property
    def path(self) -> str:
        return self.address.base_url.partition(str(self.endpoint.port))[2]

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.endpoint.close(), self.loop).result(DEADLINE_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(DEADLINE_S)
        self.loop.close()

    def settle(self) -> None:
        """Return once the loop has done what it was doing."""
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self.loop).result(DEADLINE_S)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.endpoint.port), timeout=DEADLINE_S)

    def send(self, sent: bytes, *, ends: bool = True) -> bytes:
        answer = answered(self.endpoint.port, sent, ends=ends)
        self.check(answer)
        return answer

    def check(self, answer: bytes) -> None:
        for secret in (self.address.api_key, self.shared.api_key, self.rollout.name):
            assert secret.encode() not in answer
        assert b"Traceback" not in answer
        assert self.faults == []

    def request(self, body: bytes, path: str = "/chat/completions", **headers: str) -> bytes:
        """Return a request in full, with the key unless another is given."""
        fields = {"Host": "x", "Connection": "close", "Authorization": f"Bearer {self.address.api_key}"}
        fields |= {"Content-Length": str(len(body))}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"POST {self.path}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body

    def still_answers(self) -> None:
        answer = self.send(self.request(json.dumps(QUESTION).encode()), ends=False)
        assert answer.startswith(b"HTTP/1.1 200 OK"), answer
        assert b"42" in answer


@contextmanager
def attacked() -> Iterator[Attacked]:
    server = Attacked()
    try:
        yield server
        server.still_answers()
        assert server.faults == []
    finally:
        server.close()


def status_of(answer: bytes) -> int:
    return int(answer.split()[1]) if answer else 0


BODIES = {
    "empty": b"",
    "not JSON": b"\x00\xff",
    "deep": b'{"messages": ' + b"[" * 100_000,
    "UTF-16": json.dumps(QUESTION).encode("utf-16"),
    "no messages": b'{"model": "m"}',
    "n": json.dumps(QUESTION | {"n": 2}).encode(),
    "tools": json.dumps(QUESTION | {"tools": "all"}).encode(),
}


def test_bodies_that_make_no_sense_are_refused() -> None:
    with attacked() as server:
        for path in ("/chat/completions", "/messages", "/responses"):
            for name, body in BODIES.items():
                answer = server.send(server.request(body, path), ends=False)
                assert status_of(answer) == 400, (path, name, answer)
                assert b"x-should-retry: false" in answer.lower(), (path, name)


def test_bodies_that_are_too_large_are_not_kept() -> None:
    bomb = gzip.compress(b" " * (MAX_BODY_BYTES + 2**20), 1)
    with attacked() as server:
        assert status_of(server.send(server.request(bomb, Content_Encoding="gzip"), ends=False)) == 413
        announced = server.request(b"{}", Content_Length=str(10**15))
        assert status_of(server.send(announced)) in (0, 400, 413)
        assert status_of(server.send(server.request(b"no gzip", Content_Encoding="gzip"), ends=False)) == 400


def test_nobody_gets_in_without_the_key() -> None:
    body = json.dumps(QUESTION).encode()
    with attacked() as server:
        name, key = server.rollout.name, server.address.api_key
        for wrong in (
            "",
            "Bearer ",
            f"Bearer {key}x",
            f"Basic {key}",
            "Bearer \udcff",
            f"Bearer {server.shared.api_key}",
        ):
            assert status_of(server.send(server.request(body, Authorization=wrong), ends=False)) == 401, wrong
        other = server.request(body).replace(name.encode(), name.encode()[:-1] + b"x")
        assert status_of(server.send(other, ends=False)) == 410
        for path in ("/", "//", "/v1", f"/rollouts/../rollouts/{name}/v1/models", "/rollouts/", "/rollouts//v1/models"):
            answer = server.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode(), ends=False)
            assert status_of(answer) in (401, 404, 410), (path, answer)
        shared = server.request(body, Authorization=f"Bearer {server.shared.api_key}").replace(
            server.path.encode(), b"/v1", 1
        )
        assert status_of(server.send(shared, ends=False)) == 200
        assert (
            status_of(server.send(shared.replace(b"Host: x", b"Host: x\r\nX-Osmosis-Rollout: \xff"), ends=False)) == 410
        )


NO_HTTP = [
    b"",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/1.1",
    b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /%00%ff%zz?\xff HTTP/1.1\r\nHost: x\r\n\r\n",
    b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n\x81\x00",
    b"GET / HTTP/1.1\r\n" + b"".join(b"x-%d: y\r\n" % n for n in range(5000)) + b"\r\n",
    b"GET / HTTP/1.1\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n12345",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    b"POST / HTTP/1.1\r\nExpect: 200-maybe\r\nContent-Length: 1\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 500,
]


def test_what_is_no_http_harms_nobody(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with attacked() as server:
        for sent in NO_HTTP:
            answer = server.send(sent)
            assert status_of(answer) in (0, 400, 401, 404, 405, 410, 413, 417, 431), (sent[:60], answer[:200])

    assert "".join(capfd.readouterr()) == ""
    assert [record for record in caplog.records if "asyncio" not in record.name] == []


def test_clients_that_stop_halfway_hold_up_nobody() -> None:
    with attacked() as server:
        whole = server.request(json.dumps(QUESTION).encode())
        idle = [server.connect() for _ in range(200)]
        for number, connection in enumerate(idle):
            connection.sendall(whole[: number * len(whole) // len(idle)])
        server.still_answers()
        for connection in idle:
            connection.close()


@pytest.mark.slow
def test_without_descriptors_it_neither_spins_nor_fills_the_log() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    clients: list[socket.socket] = []
    with attacked() as server:
        server.still_answers()
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 60, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                clients.extend(iter(server.connect, None))
            time.sleep(2.0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for client in clients:
                client.close()
        server.settle()
        told, server.faults = server.faults, []
        assert len(told) < 200  # asyncio says for each connection of each turn that it cannot be accepted


# -- fuzzing --------------------------------------------------------------------------------------------------

WHOLE: tuple[Any, ...] = (
    QUESTION | {"stream": True, "stream_options": {"include_usage": True}, "n": 1, "seed": 1, "stop": ["x"]},
    {"messages": [QUESTION["messages"][0], {"role": "assistant", "content": None, "tool_calls": [CALL]}]},
    {"messages": [{"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "x"}]}]},
    QUESTION
    | {"max_tokens": 5, "system": [{"type": "text", "text": "s"}], "tools": [TOOL], "tool_choice": {"type": "any"}},
    {
        "max_tokens": 5,
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]},
        ],
    },
    {"input": "What is 6 * 7?", "instructions": "s", "tools": [{"type": "function", "name": "f", "parameters": {}}]},
    {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}], "stream": True},
)


BODIES_OF_REQUESTS = json_of(st.sampled_from(WHOLE))
INPUTS = BODIES_OF_REQUESTS | st.builds(changed, BODIES_OF_REQUESTS, st.integers(0, 10**6), SCRAPS, st.integers(0, 20))


def test_every_body_gets_a_reply_or_a_refusal(fuzz: Fuzzer) -> None:
    """An error of ours would be a 500."""
    with attacked() as server:

        def target(body: bytes) -> None:
            for path in ("/chat/completions", "/messages", "/responses"):
                answer = server.send(server.request(body, path), ends=False)
                assert status_of(answer) in (200, 400), answer
                if b"text/event-stream" not in answer:
                    json.loads(answer.partition(b"\r\n\r\n")[2])

        fuzz("endpoint", target, INPUTS)
