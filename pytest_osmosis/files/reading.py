"""Regular files, opened to be read, and strict JSON in them.

Nothing else is opened: a pipe makes its reader wait, a device may never end, and a file of /proc has no content of its
own. A file is looked at before it is opened, and again afterwards, and opening it never waits. `read_text` reads a pipe
where one may be named, like that of a shell's `<(command)`.

`parsed` takes JSON without what Python's parser accepts beyond the standard: NaN, infinities, any nesting.
"""

from __future__ import annotations

import errno
import functools
import json
import math
import os
import stat
import sys
import time
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from pytest_osmosis.text.safe import one_line

HEAD_BYTES = 4096
"""The bytes from which a format is told."""

PARQUET = b"PAR1\x15"  # the name, and the begin of the first page
_WORKBOOK = "is an Excel workbook; save it as CSV, with the suffix .csv"
_UTF16 = "is UTF-16 text; save it as UTF-8"
_MARKS = (
    (b"\x1f\x8b", "is compressed with gzip; unpack it with gunzip"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd; unpack it with unzstd"),
    (PARQUET, "is a Parquet file; rename it to .parquet"),
    (b"\xd0\xcf\x11\xe0", _WORKBOOK),
    *((mark, _UTF16) for mark in (b"\xff\xfe", b"\xfe\xff")),
)
NO_FILES = ("/proc", "/sys")
"""Folders of the kernel. What is in them looks like files, but has no size or end to rely on."""
PIPE_PATIENCE_S = 1.0
"""The longest that a pipe may be without a writer before it is empty."""
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def foreign_format(head: bytes) -> str | None:
    r"""Return what a file is and what to do with it, None if it may be text. `head` holds its first bytes.

    >>> foreign_format(b"\x1f\x8b\x08")
    'is compressed with gzip; unpack it with gunzip'
    >>> foreign_format(b'{"user_prompt": "2 * 2?"}')
    """
    head = head[:HEAD_BYTES]
    if head.startswith(b"PK\x03\x04"):
        is_workbook = b"[Content_Types].xml" in head or b"xl/" in head
        return _WORKBOOK if is_workbook else "is a zip archive; unpack it with unzip"
    for mark, text in _MARKS:
        if head.startswith(mark):
            return text
    even, odd, half = head[0::2].count(0), head[1::2].count(0), len(head) // 2
    is_utf16 = len(head) >= 4 and max(even, odd) > 0.7 * half and min(even, odd) < 0.1 * half
    return _UTF16 if is_utf16 else None  # without a mark, every other byte of the ASCII in it is zero


class FileFault(Exception):
    """The reason why a file cannot be read; it follows the path in a sentence: "is a folder, not a file".

    `missing` is True if there is nothing at the path. `line` is the line of the fault, None if it has none.
    """

    def __init__(self, text: str, *, missing: bool = False, line: int | None = None) -> None:
        super().__init__(text)
        self.missing = missing
        self.line = line


def fault_of(path: Path) -> FileFault | None:
    """Return why `path` is no file that could be opened, None if it is a regular file."""
    try:
        return _kind_fault(os.stat(path))  # noqa: PTH116 (Path.stat does the same)
    except (OSError, ValueError) as error:
        return _fault(path, error)


def something_at(path: Path) -> bool:
    """Return True if there is anything at `path`, even a link to nothing."""
    return os.path.lexists(path)


def open_file(path: Path) -> BufferedReader:
    """Open a regular file to read its bytes. Raises `FileFault`."""
    if (fault := fault_of(path)) is not None:
        raise fault
    try:
        file = open(path, "rb", opener=_open_without_waiting)  # noqa: SIM115 (Path.open takes no opener)
    except OSError as error:
        raise _fault(path, error) from error
    if (fault := _kind_fault(os.fstat(file.fileno()))) is not None:
        file.close()
        raise fault
    return file


def is_pipe(path: Path) -> bool:
    """Return True for a pipe, like that of a shell's `<(command)`."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)  # noqa: PTH116 (Path.stat does the same)
    except (OSError, ValueError):
        return False


def read_text(path: Path, *, most_bytes: int | None = None, byte_order_mark: bool = False, pipe: bool = False) -> str:
    """Return the text of a regular file in UTF-8. Raises `FileFault`, with the line of a byte that is not UTF-8.

    More than `most_bytes` are a fault. So is a byte order mark, unless `byte_order_mark` allows it; it is not part of
    the text. If `pipe` allows it, the path may be a pipe: it is read once in this process, whose later calls return the
    same text.
    """
    try:
        if pipe and is_pipe(path):
            status = os.stat(path)  # noqa: PTH116
            raw = _bounded(_bytes_of_pipe(path, status.st_dev, status.st_ino, most_bytes), most_bytes)
            if not raw:
                raise FileFault("is an empty pipe, or nothing writes to it")
        else:
            with open_file(path) as file:
                raw = _read(file, most_bytes)
    except OSError as error:
        raise _fault(path, error) from error
    return _decoded(raw, byte_order_mark=byte_order_mark)


@functools.cache
def _bytes_of_pipe(path: Path, device: int, inode: int, most_bytes: int | None) -> bytes:
    """Return what is written to a pipe until its writers are gone. `device` and `inode` tell it from a later one."""
    give_up_at = time.monotonic() + PIPE_PATIENCE_S
    with open(path, "rb", buffering=0, opener=_open_without_waiting) as file:
        # None: it has a writer, which has written nothing yet
        while (begin := file.read(1)) == b"" and time.monotonic() < give_up_at:
            time.sleep(0.01)
        os.set_blocking(file.fileno(), True)
        with os.fdopen(os.dup(file.fileno()), "rb") as rest:
            return (begin or b"") + rest.read(-1 if most_bytes is None else most_bytes + 1)


def read_stdin(most_bytes: int) -> str:
    """Return the text on standard input, in UTF-8. Raises `FileFault`."""
    if sys.stdin is None or sys.stdin.closed:
        raise FileFault("is closed")
    try:
        raw = _read(sys.stdin.buffer, most_bytes)
    except (OSError, ValueError) as error:
        raise FileFault(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return _decoded(raw, byte_order_mark=True)


def _read(file: BinaryIO, most_bytes: int | None) -> bytes:
    return _bounded(file.read(-1 if most_bytes is None else most_bytes + 1), most_bytes)


def _bounded(raw: bytes, most_bytes: int | None) -> bytes:
    if most_bytes is not None and len(raw) > most_bytes:
        raise FileFault(f"holds more than {most_bytes:,} bytes, the most that is read of such a file")
    return raw


def _decoded(raw: bytes, *, byte_order_mark: bool) -> str:
    foreign = foreign_format(raw)
    if foreign is not None:
        raise FileFault(foreign)
    if raw.startswith(b"\xef\xbb\xbf"):
        if not byte_order_mark:
            raise FileFault("begins with a byte order mark; save it as UTF-8 without BOM", line=1)
        raw = raw[3:]
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise FileFault(f"must be UTF-8 text, got the byte 0x{raw[error.start]:02x}", line=line) from None


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))


def _kind_fault(status: os.stat_result) -> FileFault | None:
    """Return a fault unless a status is that of a regular file on a disk."""
    kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), None)
    if kind is None and status.st_dev in _kernels_devices():
        kind = "a view of the kernel"
    return None if kind is None else FileFault(f"is {kind}, not a file")


@functools.cache
def _kernels_devices() -> set[int]:
    return {os.stat(folder).st_dev for folder in NO_FILES if os.path.ismount(folder)}  # noqa: PTH116


def _fault(path: Path, error: OSError | ValueError) -> FileFault:
    number = getattr(error, "errno", None)
    if number == errno.ELOOP:
        return FileFault("is a link to itself")
    if number in (errno.ENOENT, errno.ENOTDIR):
        try:
            return FileFault(f"is a link to {os.readlink(path)}, which does not exist")  # noqa: PTH115
        except OSError:
            return FileFault("no such file", missing=True)
    return FileFault(f"cannot be read: {getattr(error, 'strerror', None) or error}")


# -- strict JSON --------------------------------------------------------------------------------------------

DEEPEST = 500


class JsonFault(ValueError):
    """The reason why text is not JSON, in one line. `fix` says what to write instead, if that is known."""

    def __init__(self, text: str, fix: str = "") -> None:
        super().__init__(text)
        self.fix = fix


def parsed(text: str, *, deepest: int = DEEPEST, repeats: bool = True) -> Any:
    """Return the value of a JSON text. Raises `JsonFault`, also for a value nested deeper than `deepest`.

    Without `repeats`, a key that is in an object twice is a fault too.
    """
    try:
        value = _value_of(text) if repeats else WITHOUT_REPEATS.decode(text)
    except JsonFault:
        raise
    except RecursionError:
        raise JsonFault(f"it is nested deeper than {deepest}") from None
    except ValueError as error:  # no JSON, or a number with thousands of digits
        raise JsonFault(str(error)) from None
    if len(text) > 2 * deepest and text.count("[") + text.count("{") > deepest and depth(value) > deepest:
        raise JsonFault(f"it is nested deeper than {deepest}")
    return value


def _value_of(text: str) -> Any:
    """Return what `DECODER` does, in a fifth of the time unless the text has a fault or a lone surrogate."""
    from msgspec import MsgspecError, json  # not in sessions without an eval

    try:
        return json.decode(text)
    except (MsgspecError, UnicodeError, RecursionError):
        return DECODER.decode(text)


def depth(value: object) -> int:
    """Return how deep lists and objects are nested.

    >>> depth({"a": [1, []]}), depth(1)
    (3, 0)
    """
    level, levels = [value], 0
    while containers := [item for item in level if isinstance(item, (dict, list))]:
        levels += 1
        level = [inner for item in containers for inner in (item.values() if isinstance(item, dict) else item)]
    return levels


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise JsonFault(f"{text[:40]} is too large for a float", "write it as a string")
    return number


def _refused(text: str) -> NoReturn:
    raise JsonFault(f"{text} is not JSON", "use null or a finite number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise JsonFault(f'key "{one_line(twice, 100)}" appears more than once in one object', "keep one")
    return value


DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refused)
WITHOUT_REPEATS = json.JSONDecoder(parse_float=_finite, parse_constant=_refused, object_pairs_hook=_without_repeats)
