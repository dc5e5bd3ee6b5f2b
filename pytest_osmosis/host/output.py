"""What user code prints, logs and warns of, kept apart by the run that it belongs to.

A `ContextVar` names the run's sink, so tasks and `asyncio.to_thread` inherit it. What has no run (a bare thread, code
at import) goes to the host's own standard error, which is the run's log file; so does what is written to the raw
file descriptors.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

HEAD_CHARS = 32 * 1024
TAIL_CHARS = 32 * 1024
"""Of each kind of output a run keeps this much of its beginning and of its end."""


class Bounded:
    """Text of which only the head and the tail are kept."""

    def __init__(self) -> None:
        self._head = io.StringIO()
        self._room = HEAD_CHARS
        self._tail = io.StringIO()
        self._left_out = 0

    def write(self, text: str) -> None:
        """Append."""
        if self._room:
            self._head.write(text[: self._room])
            text, self._room = text[self._room :], max(0, self._room - len(text))
        self._tail.write(text)
        if self._tail.tell() > 16 * TAIL_CHARS:
            self._cut_tail()

    def text(self) -> str:
        """What was kept, with a line that says how much was not."""
        self._cut_tail()
        gap = f"\n[... {self._left_out:,} characters left out ...]\n" if self._left_out else ""
        return self._head.getvalue() + gap + self._tail.getvalue()

    def _cut_tail(self) -> None:
        tail = self._tail.getvalue()
        self._left_out += max(0, len(tail) - TAIL_CHARS)
        self._tail = io.StringIO()
        self._tail.write(tail[-TAIL_CHARS:])


class Sink:
    """The output of one run, by kind: "stdout" (with stderr, in order), "log", "warnings"."""

    def __init__(self) -> None:
        self._kinds: dict[str, Bounded] = {}

    def write(self, kind: str, text: str) -> None:
        """Append `text` to one kind."""
        if text:
            self._kinds.setdefault(kind, Bounded()).write(text)

    def take(self) -> dict[str, str]:
        """All that was kept since the last call, by kind."""
        taken = {kind: bounded.text() for kind, bounded in self._kinds.items()}
        self._kinds = {}
        return taken


CURRENT: ContextVar[Sink | None] = ContextVar("osmosis_sink", default=None)


@contextmanager
def captured() -> Iterator[Sink]:
    """A sink for what this context, and tasks started in it, put out."""
    sink = Sink()
    token = CURRENT.set(sink)
    try:
        yield sink
    finally:
        CURRENT.reset(token)


class RoutedStream(io.TextIOBase):
    """A `sys.stdout` that writes to the current sink, or to `fallback` where there is none."""

    def __init__(self, fallback: TextIO) -> None:
        self._fallback = fallback

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As of the fallback."""
        return self._fallback.encoding

    @property
    def buffer(self) -> io.BufferedIOBase:
        """For code that writes bytes."""
        return RoutedBytes(self)

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """The fallback's, for code that hands it to a subprocess."""
        return self._fallback.fileno()

    def write(self, text: str) -> int:
        """Route `text`."""
        sink = CURRENT.get()
        if sink is not None:
            sink.write("stdout", text)
        else:
            self._fallback.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the fallback."""
        self._fallback.flush()


class RoutedBytes(io.BufferedIOBase):
    """The bytes side of a routed stream."""

    def __init__(self, stream: RoutedStream) -> None:
        self._stream = stream

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: Any) -> int:
        """Route `data` as text."""
        self._stream.write(bytes(data).decode("utf-8", errors="replace"))
        return len(data)


class RoutedHandler(logging.Handler):
    """A root log handler that writes to the current sink, or to `fallback`."""

    def __init__(self, fallback: TextIO) -> None:
        super().__init__()
        self._fallback = fallback
        self.setFormatter(logging.Formatter("%(levelname)-8s %(name)s:%(filename)s:%(lineno)d %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Route one record."""
        try:
            line = self.format(record) + "\n"
        except Exception:
            self.handleError(record)
            return
        sink = CURRENT.get()
        if sink is not None:
            sink.write("log", line)
        else:
            self._fallback.write(line)


class RedactedLog(io.TextIOBase):
    """The process's own log, with every text passed through `redact` first. What a full disk does not take is lost."""

    def __init__(self, log: TextIO, redact: Callable[[str], str]) -> None:
        self._log = log
        self._redact = redact

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As of the log."""
        return self._log.encoding

    def fileno(self) -> int:
        """The log's."""
        return self._log.fileno()

    def write(self, text: str) -> int:
        """Append `text`, redacted."""
        with contextlib.suppress(OSError):
            self._log.write(self._redact(text))
        return len(text)

    def flush(self) -> None:
        """Flush the log."""
        with contextlib.suppress(OSError):
            self._log.flush()


def install(redact: Callable[[str], str]) -> None:
    """Route stdout, stderr, logging and warnings of this process; `redact` is applied to what goes to its log."""
    log: Any = RedactedLog(sys.stderr, redact)

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        sink = CURRENT.get()
        if sink is not None:
            sink.write("warnings", text)
        else:
            log.write(text)

    stream: Any = RoutedStream(log)
    sys.stdout = sys.stderr = stream
    logging.getLogger().addHandler(RoutedHandler(log))
    warnings.showwarning = show
