"""Regular files are opened, and everything else is named without waiting for it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_osmosis.files.reading import FileFault, fault_of, open_file, read_text
from tests.raised import raised


def fault_at(path: Path) -> str:
    fault = str(raised(FileFault, open_file, path))
    assert str(fault_of(path)) == fault
    return fault


def put_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (Path.mkdir, "is a folder, not a file"),
        (os.mkfifo, "is a pipe, not a file"),
        (put_socket, "is a socket, not a file"),
        (lambda path: path.symlink_to("/dev/zero"), "is a device, not a file"),
        (lambda path: path.symlink_to("/proc/self/environ"), "is a view of the kernel, not a file"),
        (lambda path: path.symlink_to(path), "is a link to itself"),
        (lambda path: path.symlink_to("gone"), "is a link to gone, which does not exist"),
        (lambda path: None, "no such file"),
    ],
)
def test_what_is_no_file_is_named_and_only_a_missing_one_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    make(Path("x"))
    assert fault_at(Path("x")) == expected
    assert raised(FileFault, open_file, Path("x")).missing == (expected == "no such file")


def test_a_pipe_is_read_once_and_to_its_end_where_it_is_allowed(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("x" * 100_000,))
    writer.start()
    read = [read_text(pipe, most_bytes=200_000, pipe=True) for _ in range(2)]
    writer.join()
    assert read == ["x" * 100_000] * 2


def test_a_pipe_that_holds_too_much_is_a_fault_each_time() -> None:
    for content in (b"12345", b"67890"):
        reader, writer = os.pipe()
        os.write(writer, content)
        os.close(writer)
        path = Path(f"/dev/fd/{reader}")
        for _ in range(2):
            with pytest.raises(FileFault, match="holds more than 4 bytes"):
                read_text(path, most_bytes=4, pipe=True)
        os.close(reader)


def test_an_impossible_path_is_a_fault(tmp_path: Path) -> None:
    assert "null" in fault_at(tmp_path / "a\0b")
    assert fault_at(tmp_path / ("a" * 300)) == "cannot be read: File name too long"


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("é", encoding="utf-8")
    (tmp_path / "link").symlink_to("file")
    assert fault_of(tmp_path / "link") is None
    assert read_text(tmp_path / "link") == "é"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"\x1f\x8b\x08\x00", "is compressed with gzip; unpack it with gunzip"),
        (b"PK\x03\x04 some.txt", "is a zip archive; unpack it with unzip"),
        (b"PK\x03\x04 [Content_Types].xml", "is an Excel workbook; save it as CSV, with the suffix .csv"),
        ("a = 1".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
        ("a = 'é'".encode("utf-16-le"), "is UTF-16 text; save it as UTF-8"),
        (b"\xef\xbb\xbfa = 1", "begins with a byte order mark; save it as UTF-8 without BOM"),
        (b"a\nb\xff", "must be UTF-8 text, got the byte 0xff"),
        (b"a" * 101, "holds more than 100 bytes, the most that is read of such a file"),
    ],
)
def test_what_is_no_text_is_named(tmp_path: Path, raw: bytes, expected: str) -> None:
    (tmp_path / "x").write_bytes(raw)
    assert str(raised(FileFault, read_text, tmp_path / "x", most_bytes=100)) == expected
