"""A report: eval runs, their conversations and the front end in one HTML file, which asks nothing of anybody.

Its parts, in this order: a content security policy that lets nothing but our own script and style in; a summary that
needs no script; the index (`ReportIndex`); the front end; and the chunks of conversations, behind all else, so that the
first paint does not wait for them. Index and chunks are in elements `<script type="application/octet-stream">`, which
browsers do not run. The file is streamed, so memory holds one chunk at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis import __version__
from pytest_osmosis.files import private
from pytest_osmosis.files.reading import FileFault, open_file
from pytest_osmosis.results.files import replacing
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.text.safe import escaped
from pytest_osmosis.viewer.bundle import Bundle, read_bundle
from pytest_osmosis.viewer.chunks import Chunk, ReportedRun, packed, placed
from pytest_osmosis.viewer.shapes import ReportIndex, RunPage
from pytest_osmosis.viewer.static_summary import reasons_of, summary_html, title_of

MARK = "<!doctype html>\n<!-- Written by pytest-osmosis, which replaces this file. -->\n"
"""The beginning of a report, by which it is recognised."""
END = b"</body>\n</html>\n"
_POLICY = (
    "default-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
_OWN_KEYS = frozenset({"status", "outcomes", "boundaries", "html_conversations", "change", "state"})
"""Keys of the index whose values are words of ours."""


class WrittenReport(NamedTuple):
    """A report that was written, its size, and how much of it are conversations, in bytes."""

    path: Path
    size: int
    conversations_size: int
    n_conversations: int


def write_report(
    path: Path,
    index: ReportIndex,
    runs: Sequence[ReportedRun],
    redaction: Redaction,
    bundle: Bundle | None = None,
) -> WrittenReport:
    """Write a report atomically, readable by its owner only. The pages of `index` are those of `runs`.

    Raises `OsmosisError` if the front end is missing, and `OSError` if the file cannot be written.
    """
    bundle = bundle or read_bundle()
    chunks: list[Chunk] = []
    pages: dict[str, RunPage] = {}
    for each in runs:
        run, more = placed(each, len(chunks))
        chunks += more
        pages[run.page["head"]["row"]["name"]] = run.page
    whole: ReportIndex = {**index, "pages": pages}
    text = _json(whole)
    if redaction.may_be_in(text):
        whole = redaction.value(whole, unchanged=_OWN_KEYS)
        text = _json(whole)
    reasons = {each.page["head"]["row"]["name"]: reasons_of(each, redaction) for each in runs}
    with replacing(path) as scratch, open(scratch, "wb", opener=private.opener) as file:
        file.write(_head(bundle, title_of(whole)).encode())
        file.write(f'<div id="static">\n{summary_html(whole, reasons)}</div>\n<div id="app"></div>\n'.encode())
        file.writelines(_element("index", text))
        file.write(f"<script>{bundle.js}</script>\n".encode())
        begin = file.tell()
        for number, chunk in enumerate(chunks):
            file.writelines(_element(f"chunk-{number}", chunk.text(redaction)))
        end = file.tell()
        file.write(END)
    return WrittenReport(path, end + len(END), end - begin, sum(len(chunk.at) for chunk in chunks))


def _json(index: ReportIndex) -> bytes:
    return json.dumps(index, separators=(",", ":"), allow_nan=False).encode()


def _head(bundle: Bundle, title: str) -> str:
    policy = "; ".join([*_POLICY, f"script-src {bundle.js_hash}", f"style-src {bundle.css_hash}"])
    return f"""{MARK}<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="pytest-osmosis {__version__}">
<title>{escape(escaped(title))}</title>
<style>{bundle.css}</style>
</head>
<body>
"""


def _element(id: str, text: bytes) -> Iterator[bytes]:
    yield f'<script type="application/octet-stream" id="{id}">'.encode()
    yield packed(text)
    yield b"</script>\n"


def is_report(path: Path) -> bool:
    """Return True for a file that holds a report."""
    try:
        with open_file(path) as file:
            return file.read(len(MARK)) == MARK.encode()
    except FileFault:
        return False
