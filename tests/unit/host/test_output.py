"""The output of runs: routed by context, truncated, in order; and the artifacts that are new or changed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.host import output
from pytest_osmosis.host.protocol import ArtifactEvent, HostEvent, Key
from pytest_osmosis.record.run_id import RunId


def test_head_and_tail_of_long_text_are_kept_with_the_size_of_the_gap() -> None:
    kept = output.TruncatedText()
    for number in range(200_000):
        kept.write(f"{number:06} ")
    text = kept.text()
    assert text.startswith("000000 000001 ")
    assert text.endswith(" 199999 ")
    assert f"[... {200_000 * 7 - output.HEAD_CHARS - output.TAIL_CHARS:,} characters left out ...]" in text
    assert len(text) < output.HEAD_CHARS + output.TAIL_CHARS + 100


@given(st.lists(st.integers(0, 3 * output.TAIL_CHARS), max_size=12))
def test_the_number_of_writes_does_not_matter(sizes: list[int]) -> None:
    whole = "".join(chr(97 + index % 26) for index in range(sum(sizes)))
    pieces, once = output.TruncatedText(), output.TruncatedText()
    once.write(whole)
    at = 0
    for size in sizes:
        pieces.write(whole[at : at + size])
        at += size
    assert pieces.text() == once.text()


async def test_each_context_writes_to_its_own_sink_and_other_code_to_the_log() -> None:
    log = io.StringIO()
    stream = output.RoutedStream(log)

    async def work(name: str) -> dict[str, str]:
        with output.captured() as sink:
            print("begin", name, file=stream)
            await asyncio.sleep(0)
            await asyncio.to_thread(print, "thread", name, file=stream)
            await asyncio.create_task(_print_in_task(stream, name))
            return sink.take()

    print("no run", file=stream)
    first, second = await asyncio.gather(work("a"), work("b"))
    assert first == {"stdout": "begin a\nthread a\ntask a\n"}
    assert second == {"stdout": "begin b\nthread b\ntask b\n"}
    assert log.getvalue() == "no run\n"


async def _print_in_task(stream: output.RoutedStream, name: str) -> None:
    print("task", name, file=stream)


def test_take_empties_the_sink() -> None:
    with output.captured() as sink:
        sink.write("stdout", "once")
        sink.write("log", "")
        assert sink.take() == {"stdout": "once"}
        assert sink.take() == {}


def test_log_records_go_to_the_sink_even_after_one_that_cannot_be_formatted() -> None:
    logger = logging.Logger("mine")
    handler = output.RoutedHandler(io.StringIO())
    logger.addHandler(handler)
    raised, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        with output.captured() as sink:
            logger.warning("%d", "no number")
            logger.warning("number %d", 1)
            assert "number 1" in sink.take()["log"]
    finally:
        logging.raiseExceptions = raised


def test_the_log_is_redacted() -> None:
    log = io.StringIO()
    stream = output.RoutedStream(output.RedactedLog(log, lambda text: text.replace("secret", "[S]")))  # type: ignore[arg-type]
    assert stream.write("a secret\n") == 9
    assert log.getvalue() == "a [S]\n"


def test_a_full_disk_raises_no_error_in_code_that_logs() -> None:
    with Path("/dev/full").open("w", buffering=1) as full:
        log: Any = output.RedactedLog(full, str)
        assert output.RoutedStream(log).write("lost\n") == 5
        output.RoutedHandler(log).emit(logging.LogRecord("mine", logging.WARNING, "f.py", 1, "lost", None, None))
        log.flush()
        log.close()  # as the interpreter does at its end
        with contextlib.suppress(OSError):
            full.close()


# -- artifacts -----------------------------------------------------------------------------------------------


KEY = Key(RunId(0, 0), 1)


class Sent:
    """Keeps what a host sends: files by path, and the reasons for what is left out."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.left_out: list[str] = []

    def send_artifact(self, event: ArtifactEvent) -> None:
        before = self.files.get(event["path"], b"") if event["offset"] else b""
        assert len(before) == event["offset"]
        self.files[event["path"]] = before + base64.b64decode(event["data"])

    def emit(self, event: HostEvent) -> None:
        assert event["ev"] == "left_out"
        self.left_out.append(event["why"])

    def unexpected(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError

    emit_from_thread = flush = redacted = hide = unexpected


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / str(KEY.run)
    run.mkdir()
    return run


def _settle(path: Path) -> None:
    """Wait until a later change of a file changes its time."""
    while time.time_ns() - path.stat().st_ctime_ns <= 2 * output.TICK_NS:
        time.sleep(0.005)


async def test_only_what_changed_meanwhile_is_sent_again(tmp_path: Path, run: Path, sent: Sent) -> None:
    for name in ("same", "changed"):
        (run / name).write_text("old")
    _settle(run / "changed")
    artifacts = output.ArtifactSender(str(tmp_path), sent)
    since_ns = time.time_ns()
    for name in ("changed", "added"):
        (run / name).write_text("new")
    await artifacts.send_changed(KEY, since_ns)
    assert (sent.files, sent.left_out) == ({"changed": b"new", "added": b"new"}, [])


async def test_a_change_within_the_same_tick_of_the_clock_is_sent(tmp_path: Path, run: Path, sent: Sent) -> None:
    artifacts = output.ArtifactSender(str(tmp_path), sent)
    for number in range(30):
        (run / "file").write_text(f"{number:05}")
        since_ns = time.time_ns()
        (run / "file").write_text(f"{-number:05}")
        await artifacts.send_changed(KEY, since_ns)
        assert sent.files == {"file": b"%05d" % -number}


async def test_a_run_without_artifacts_starts_no_thread(tmp_path: Path, sent: Sent) -> None:
    before = set(threading.enumerate())
    await output.ArtifactSender(str(tmp_path), sent).send_changed(KEY)
    assert set(threading.enumerate()) <= before  # one of an earlier test may end meanwhile


async def test_the_event_loop_runs_while_files_are_sent(tmp_path: Path, run: Path) -> None:
    (run / "file").write_bytes(bytes(1_000_000))
    turned = threading.Event()

    class Waiting(Sent):
        def send_artifact(self, event: ArtifactEvent) -> None:
            assert turned.wait(60)
            super().send_artifact(event)

    waiting = Waiting()
    sending = asyncio.ensure_future(output.ArtifactSender(str(tmp_path), waiting).send_changed(KEY))
    await asyncio.sleep(0)
    turned.set()
    await sending
    assert waiting.files == {"file": bytes(1_000_000)}


async def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path, sent: Sent) -> None:
    (tmp_path / str(KEY.run)).write_text("a file in its place")
    await output.ArtifactSender(str(tmp_path), sent).send_changed(KEY)
    assert (sent.files, sent.left_out) == ({}, ["special"])
