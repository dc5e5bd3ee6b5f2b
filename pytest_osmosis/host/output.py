"""The output of user code: prints, log records and warnings, separated by run.

A `ContextVar` holds the run's sink, so tasks and `asyncio.to_thread` inherit it. Output without a run (of a bare
thread, of code at import) goes to the host's own standard error, which is its log file. So does output to the raw file
descriptors.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Self, TextIO

HEAD_CHARS = 32 * 1024
TAIL_CHARS = 32 * 1024
"""A run keeps this much of the beginning and the end of each kind of output."""


class TruncatedText:
    """Keeps only the head and the tail of the text that is written to it."""

    def __init__(self) -> None:
        self._head = io.StringIO()
        self._room = HEAD_CHARS
        self._tail = io.StringIO()
        self._left_out = 0

    def write(self, text: str) -> None:
        if self._room:
            self._head.write(text[: self._room])
            text, self._room = text[self._room :], max(0, self._room - len(text))
        self._tail.write(text)
        if self._tail.tell() > 16 * TAIL_CHARS:
            self._cut_tail()

    def text(self) -> str:
        """Return head and tail, with a line between them that says how much is missing."""
        self._cut_tail()
        gap = f"\n[... {self._left_out:,} characters left out ...]\n" if self._left_out else ""
        return self._head.getvalue() + gap + self._tail.getvalue()

    def _cut_tail(self) -> None:
        tail = self._tail.getvalue()
        self._left_out += max(0, len(tail) - TAIL_CHARS)
        self._tail = io.StringIO()
        self._tail.write(tail[-TAIL_CHARS:])


class Sink:
    """The output of one run, by kind: "stdout" (with stderr, in order), "log", "warnings".

    As a context, it takes the output of that context and of tasks that are started in it.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, TruncatedText] = {}

    def __enter__(self) -> Self:
        self._token = CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        CURRENT.reset(self._token)
        del self._token  # it has the context that has this sink

    def write(self, kind: str, text: str) -> None:
        if text:
            self._kinds.setdefault(kind, TruncatedText()).write(text)

    def take(self) -> dict[str, str]:
        texts = {kind: kept.text() for kind, kept in self._kinds.items()}
        self._kinds = {}
        return texts


CURRENT: ContextVar[Sink | None] = ContextVar("osmosis_sink", default=None)


def _write(kind: str, text: str, fallback: TextIO) -> None:
    sink = CURRENT.get()
    if sink is not None:
        sink.write(kind, text)
    else:
        fallback.write(text)


class _StreamTo(io.TextIOBase):
    """A text stream that leads to the stream `log`. A full disk loses text but raises no error."""

    def __init__(self, log: TextIO) -> None:
        self._log = log

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._log.encoding

    def fileno(self) -> int:
        """Return the descriptor of the log, for code that passes it to a subprocess."""
        return self._log.fileno()

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._log.flush()


class RoutedStream(_StreamTo):
    """A `sys.stdout` that writes to the current sink, or to the log outside of a run."""

    @property
    def buffer(self) -> io.BufferedIOBase:
        return RoutedBytes(self)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        _write("stdout", text, self._log)
        return len(text)


class RoutedBytes(io.BufferedIOBase):
    """The bytes side of a routed stream."""

    def __init__(self, stream: RoutedStream) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(bytes(data).decode("utf-8", errors="replace"))
        return len(data)


class RoutedHandler(logging.Handler):
    """A root log handler that writes to the current sink, or to `fallback` outside of a run."""

    def __init__(self, fallback: TextIO) -> None:
        super().__init__()
        self._fallback = fallback
        self.setFormatter(logging.Formatter("%(levelname)-8s %(name)s:%(filename)s:%(lineno)d %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
        except Exception:
            self.handleError(record)
        else:
            _write("log", line, self._fallback)


class RedactedLog(_StreamTo):
    """The process's own log, whose text passes through `redact` first."""

    def __init__(self, log: TextIO, redact: Callable[[str], str]) -> None:
        super().__init__(log)
        self._redact = redact

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._log.write(self._redact(text))
        return len(text)


def install(redact: Callable[[str], str]) -> None:
    """Route stdout, stderr, logging and warnings of this process; `redact` is applied to text for its log."""
    log: Any = RedactedLog(sys.stderr, redact)

    def show(
        message: Any, category: type[Warning], filename: str, lineno: int, file: Any = None, line: str | None = None
    ) -> None:
        _write("warnings", warnings.formatwarning(message, category, filename, lineno, line), log)

    stream: Any = RoutedStream(log)
    sys.stdout = sys.stderr = stream
    logging.getLogger().addHandler(RoutedHandler(log))
    warnings.showwarning = show
