"""The dashboard under attack: any program and any web page of this machine can send to its port."""

from __future__ import annotations

import json
import resource
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.viewer_runs import SyntheticRun, write_run
from tests.cli.dashboards import RunningDashboard, dashboard
from tests.hostile.test_endpoint import answered
from tests.journals import with_checksums

NAME = "support-1"
END = b"\r\n\r\n"
SECRET = "hidden-elsewhere-4711"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDashboard]:
    folder = tmp_path_factory.mktemp("attacked")
    write_run(folder, SyntheticRun(NAME, rows=2, n=1))
    (folder / "secret.json").write_text(json.dumps({"key": SECRET}))
    (folder / ".osmosis/secret.json").write_text(json.dumps({"key": SECRET}))
    with dashboard(folder, "--no-open") as found:
        yield found


def sent(running: RunningDashboard, request: bytes) -> bytes:
    return answered(running.port, request, ends=not request.endswith(END))


def raw(target: str, *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    lines = (f"{method} {target} HTTP/{version}", *headers, "Connection: close", "", "")
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")


TARGETS = [
    *("/../secret.json", "/..%2fsecret.json", "/%2e%2e/secret.json", "/app.js/../../secret.json", "//etc/passwd"),
    *("/api/runs/..%2f..%2fsecret.json", "/api/runs/../../secret.json", "/api/runs/%00", "/api/runs/..%5c..%5csecret"),
    *("/api/runs/%2fetc%2fpasswd", "/api/runs/.", f"/api/runs/{NAME}%2f..%2f..", f"/api/runs/{NAME}/../..", "/assets/"),
    *(f"/api/runs/{NAME}/journal.jsonl", f"/api/runs/{NAME}/conversations/-1", "/api/comparisons/../..", "/api/%ff"),
    *(f"/api/runs/{NAME}/conversations/99999999", f"/api/runs/{NAME}/changes?from=1", "/api/histories/..%2f.."),
    *(
        f"/api/runs/{NAME}/search?text=a",
        f"/api/runs/{NAME}/search/-1?text=a",
        f"/api/runs/{NAME}/search/1e9?text=a",
        "/api/runs/" + "a" * 5000,
    ),
]
WITHOUT_TOKEN = [
    raw("/api/runs", "Host: 127.0.0.1", "Host: evil.example"),
    raw("/api/runs", "Host: evil.example", "Host: 127.0.0.1"),
    raw("/api/runs", version="1.0"),
    raw("/api/runs", version="1.1"),
    raw("http://evil.example/api/runs", "Host: 127.0.0.1"),
    raw("/api/runs", "Host: 127.0.0.1", "Authorization: Bearer", "Authorization: Bearer x"),
    raw("/api/runs", "Host: 127.0.0.1", "Authorization: Bearer \udcff\udcfe"),
    raw("/api/runs", "Host: 127.0.0.1\udcff"),
    raw("/api/token", "Host: 127.0.0.1", "Authorization: Bearer "),
    raw("/api%2fruns", "Host: 127.0.0.1"),
    raw("//api/runs", "Host: 127.0.0.1"),
    raw("/API/runs", "Host: 127.0.0.1"),
    raw("/api/runs", "Host: 127.0.0.1", method="CONNECT"),
    raw("/api/runs", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade"),
    raw("/api/runs", "Host: 127.0.0.1", "Transfer-Encoding: chunked", "Content-Length: 3"),
    raw("/api/runs", "Host: 127.0.0.1", f"X: {'a' * 100_000}"),
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    b"GET /api/runs",
    b"\x00" * 100,
    b"",
]


def test_no_path_of_a_request_leads_to_a_file(running: RunningDashboard) -> None:
    own = (f"Host: 127.0.0.1:{running.port}", f"Authorization: Bearer {running.token}")
    answers = {target: sent(running, raw(target, *own)) for target in TARGETS}
    wrong = {
        target: answer[:300]
        for target, answer in answers.items()
        if int(answer.split(b" ", 2)[1]) not in (400, 404)
        or any(leaked in answer for leaked in (SECRET.encode(), b"root:", b"Traceback"))
    }
    assert not wrong


def test_whoever_lacks_the_token_gets_no_data(running: RunningDashboard) -> None:
    for request in WITHOUT_TOKEN:
        answer = sent(running, request)
        assert answer or not request.endswith(END), request[:200]
        for told in (NAME.encode(), running.token.encode()):
            assert told not in answer, request[:200]
        assert not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")), request[:200]
        assert running.api("runs").json["runs"][0]["name"] == NAME
        assert running.process.poll() is None, request[:200]


def test_a_key_that_the_journal_has_is_not_told(tmp_path: Path) -> None:
    """A text that becomes secret after the run, because it is a key by then."""
    directory = write_run(tmp_path, SyntheticRun(NAME, rows=2, n=1))
    lines = directory.journal.read_bytes().replace(b'"content":"', b'"content":"' + SECRET.encode() + b" ")
    directory.journal.write_bytes(with_checksums(lines))
    (tmp_path / "data/support.jsonl").unlink()  # so the page shows prompts as they were sent
    with dashboard(tmp_path, "--no-open", OPENAI_API_KEY=SECRET) as running:
        page = running.api(f"runs/{NAME}").json
        texts = [running.api(f"runs/{NAME}/conversations/{at}").text for at in range(len(page["runs"]["row"]))]
    assert all("[OPENAI_API_KEY] " in text for text in (*texts, json.dumps(page["rows"])))
    assert SECRET not in json.dumps([page, texts])


def test_many_connections_that_say_nothing_delay_no_request(running: RunningDashboard) -> None:
    silent = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(200)]
    try:
        assert running.api("runs").status == 200
    finally:
        for connection in silent:
            connection.close()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="sets the limit of another process")
def test_neither_nonsense_nor_more_connections_than_files_may_be_open_print_anything(tmp_path: Path) -> None:
    with dashboard(tmp_path, "--no-open") as other:
        sent(other, b"\x16\x03\x01 nonsense" + END)
        sent(other, raw("/api/runs", f"Host: 127.0.0.1:{other.port}", "Authorization: Bearer \x1b[31m"))
        assert other.api("runs/x").status == 404
        resource.prlimit(other.process.pid, resource.RLIMIT_NOFILE, (30, 30))
        silent = [socket.create_connection(("127.0.0.1", other.port)) for _ in range(60)]
        for connection in silent:
            connection.close()
        assert other.api("runs").status == 200
        assert other.interrupt() == (0, "")
