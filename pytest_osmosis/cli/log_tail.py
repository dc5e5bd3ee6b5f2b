"""A log that grows while it is read, line by line."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from pytest_osmosis.files.reading import FileFault, open_file

CHUNK_BYTES = 1 << 20
SHORTENED = "[this log was rewritten, so lines may be missing here]"


class LogTail:
    """Reads a file that others append to. A file that does not exist is empty; it may begin to exist later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = self._n_lines = 0
        self._line = b""

    def last(self, n: int | None) -> list[str]:
        """Return the whole lines that there are now, at most the last `n` of them."""
        return list(deque(self.new(), maxlen=n))

    def new(self) -> Iterator[str]:
        """Yield the whole lines that were added since they were read last."""
        for chunk in self._chunks():
            *lines, self._line = (self._line + chunk).split(b"\n")
            self._n_lines += len(lines)
            yield from map(_text, lines)

    def rest(self) -> Iterator[str]:
        """Yield what is still to be read, a last line without its end too."""
        yield from self.new()
        if self._line:
            yield _text(self._line)
            self._line = b""

    def _chunks(self) -> Iterator[bytes]:
        try:
            with open_file(self._path) as file:
                size = file.seek(0, os.SEEK_END)
                if size < self._position:
                    file.seek(0)
                    yield from self._reread(file.read())
                file.seek(self._position)
                while chunk := file.read(CHUNK_BYTES):
                    self._position += len(chunk)
                    yield chunk
        except (FileFault, OSError):
            return

    def _reread(self, content: bytes) -> Iterator[bytes]:
        """Find the place again in a file that was rewritten: behind as many lines, if secrets were taken out of it."""
        lines = content.split(b"\n")
        known, self._position, self._line = self._n_lines, len(content), b""
        if known < len(lines):
            yield b"\n".join(lines[known:])
        else:
            self._n_lines = len(lines) - 2  # the note is no line of the file
            yield f"{SHORTENED}\n".encode()


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="replace").removesuffix("\r")
