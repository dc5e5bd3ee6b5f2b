"""Formats that are no text, told from a file's first bytes, and what to do with such a file."""

from __future__ import annotations

HEAD_BYTES = 4096
"""The number of bytes from which a format is told."""

_PARQUET = b"PAR1\x15"  # the name, and the begin of the first page
_MARKS = (
    (b"\x1f\x8b", "is compressed with gzip; unpack it with gunzip"),
    (b"BZh91AY&SY", "is compressed with bzip2; unpack it with bunzip2"),
    (b"\xfd7zXZ\x00", "is compressed with xz; unpack it with unxz"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd; unpack it with unzstd"),
    (_PARQUET, "is a Parquet file; rename it to .parquet"),
    (b"\xd0\xcf\x11\xe0", "is an Excel workbook; save it as CSV, with the suffix .csv"),
    (b"SQLite format 3\x00", "is an SQLite database; export the table as CSV or JSON Lines"),
    (b"ARROW1\x00\x00", "is an Arrow file; write it as Parquet, with the suffix .parquet"),
    (b"%PDF-", "is a PDF document; save the text in it"),
    (b"\xff\xfe\x00\x00", "is UTF-32 text; save it as UTF-8"),
    (b"\x00\x00\xfe\xff", "is UTF-32 text; save it as UTF-8"),
    (b"\xff\xfe", "is UTF-16 text; save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16 text; save it as UTF-8"),
)
_ZIP = b"PK\x03\x04"


def foreign_format(head: bytes) -> str | None:
    r"""Return what a file is and what to do with it, None if it may be text. `head` holds its first bytes.

    >>> foreign_format(b"\x1f\x8b\x08")
    'is compressed with gzip; unpack it with gunzip'
    >>> foreign_format(b'{"user_prompt": "2 * 2?"}')
    """
    head = head[:HEAD_BYTES]
    if head.startswith(_ZIP):
        is_workbook = b"[Content_Types].xml" in head or b"xl/" in head
        return (
            "is an Excel workbook; save it as CSV, with the suffix .csv"
            if is_workbook
            else "is a zip archive; unpack it with unzip"
        )
    mark = next((text for mark, text in _MARKS if head.startswith(mark)), None)
    return mark or _without_mark(head)


def is_parquet(head: bytes) -> bool:
    return head.startswith(_PARQUET)


def _without_mark(head: bytes) -> str | None:
    """Return that a file is UTF-16 without a mark: every other byte of the ASCII in it is zero."""
    if len(head) < 4 or b"\0" not in head:
        return None
    even, odd = head[0::2].count(0), head[1::2].count(0)
    half = len(head) // 2
    if max(even, odd) > 0.7 * half and min(even, odd) < 0.1 * half:
        return "is UTF-16 text; save it as UTF-8"
    return None
