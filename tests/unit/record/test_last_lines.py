"""The last lines of a file, found from its end."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.record import journal
from pytest_osmosis.record.journal import end_of_lines, last_line, last_line_with

LINES = st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=20)
TORN = st.binary(max_size=20).map(lambda line: line.replace(b"\n", b""))


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    """Make lines and the words in them cross the borders of pieces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "PIECE_BYTES", 2)
        patch.setattr(journal, "LARGEST_PIECE_BYTES", 7)
        yield


@given(LINES, TORN)
def test_the_last_whole_line_is_found_before_a_torn_one(lines: list[bytes], torn: bytes) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    file = io.BytesIO(whole + torn)
    assert end_of_lines(file) == len(whole)
    assert last_line(file) == (lines[-1] + b"\n" if lines else b"")


@given(LINES, TORN, st.lists(st.sampled_from([b"began", b"ended", b"other", b"xbegan"]), max_size=8))
def test_the_last_line_with_a_beginning_is_found(lines: list[bytes], torn: bytes, marks: list[bytes]) -> None:
    marked = [mark + line for mark, line in zip(marks, lines, strict=False)] + lines[len(marks) :]
    file = io.BytesIO(b"".join(line + b"\n" for line in marked) + b"began" + torn)
    wanted = [line for line in marked if line.startswith((b"began", b"ended"))]
    assert last_line_with(file, (b"began", b"ended")) == (wanted[-1] + b"\n" if wanted else b"")


def test_of_a_long_line_the_beginning_is_returned() -> None:
    long = b"x" * (journal.MOST_BYTES + 10)
    assert last_line(io.BytesIO(b"first\n" + long + b"\n")) == long[: journal.MOST_BYTES]
