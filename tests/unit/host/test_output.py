"""The output of runs: routed by context, truncated, in order."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.host import output


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

    async def print_in_task(name: str) -> None:
        print("task", name, file=stream)

    async def work(name: str) -> dict[str, str]:
        with output.Sink() as sink:
            print("begin", name, file=stream)
            await asyncio.sleep(0)
            await asyncio.to_thread(print, "thread", name, file=stream)
            await asyncio.create_task(print_in_task(name))
            return sink.take()

    print("no run", file=stream)
    first, second = await asyncio.gather(work("a"), work("b"))
    assert first == {"stdout": "begin a\nthread a\ntask a\n"}
    assert second == {"stdout": "begin b\nthread b\ntask b\n"}
    assert log.getvalue() == "no run\n"


def test_take_empties_the_sink_to_which_log_records_go_even_after_one_that_cannot_be_formatted() -> None:
    logger = logging.Logger("mine")
    handler = output.RoutedHandler(io.StringIO())
    logger.addHandler(handler)
    raised, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        with output.Sink() as sink:
            logger.warning("%d", "no number")
            logger.warning("number %d", 1)
            assert "number 1" in sink.take()["log"]
    finally:
        logging.raiseExceptions = raised
    with output.Sink() as sink:
        sink.write("stdout", "once")
        sink.write("log", "")
        assert sink.take() == {"stdout": "once"}
        assert sink.take() == {}


def test_the_log_is_redacted_and_a_full_disk_raises_no_error_in_code_that_logs() -> None:
    log = io.StringIO()
    stream = output.RoutedStream(output.RedactedLog(log, lambda text: text.replace("secret", "[S]")))  # type: ignore[arg-type]
    assert stream.write("a secret\n") == 9
    assert log.getvalue() == "a [S]\n"
    with Path("/dev/full").open("w", buffering=1) as full:
        lost: Any = output.RedactedLog(full, str)
        assert output.RoutedStream(lost).write("lost\n") == 5
        output.RoutedHandler(lost).emit(logging.LogRecord("mine", logging.WARNING, "f.py", 1, "lost", None, None))
        lost.flush()
        lost.close()  # as the interpreter does at its end
        with contextlib.suppress(OSError):
            full.close()
