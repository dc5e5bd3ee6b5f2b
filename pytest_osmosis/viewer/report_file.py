"""A report: eval runs, their conversations and the front end in one HTML file, which asks nothing of anybody.

Its parts, in this order: a content security policy that lets nothing but our own script and style in; the verdicts for
readers without scripts (mail, hosts that run none, `grep`); the index (`ReportIndex`), with the page of a single eval
run; the front end; and behind it all other pages and the chunks of conversations, so that the first paint does not wait
for them. Pages and chunks are elements `<script type="application/octet-stream">`, which browsers do not run. The file
is streamed: memory holds one chunk.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from pytest_osmosis import __version__
from pytest_osmosis.files import private
from pytest_osmosis.files.reading import FileFault, open_file
from pytest_osmosis.results.files import replacing
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.text.safe import escaped
from pytest_osmosis.viewer.bundle import Bundle, read_bundle
from pytest_osmosis.viewer.chunks import Chunk, ReportedRun, packed, placed
from pytest_osmosis.viewer.shapes import ComparisonPage, HistoryPage, RunPage, RunsPage

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
OWN_KEYS = frozenset({"status", "outcomes", "boundaries", "html_conversations", "change", "state"})
"""Keys of pages whose values are words of ours."""


class WrittenReport(NamedTuple):
    """A report that was written, its size in bytes, how much of it are conversations, and of how many runs."""

    path: Path
    size: int
    conversations_size: int
    n_conversations: int


def write_report(
    path: Path,
    listed: RunsPage,
    runs: Sequence[ReportedRun],
    comparisons: Mapping[str, ComparisonPage],
    histories: Mapping[str, HistoryPage],
    redaction: Redaction,
) -> WrittenReport:
    """Write a report atomically, readable by its owner only. Its pages are found by the names in `ReportIndex`.

    Raises `OsmosisError` if the front end is missing, and `OSError` if the file cannot be written.
    """
    bundle = read_bundle()
    chunks: list[Chunk] = []
    pages: dict[str, RunPage] = {}
    for run in runs:
        page, more = placed(run, len(chunks))
        chunks += more
        pages[run.name] = page
    index: dict[str, Any] = {"list": _clean(listed, redaction)}
    elements: dict[str, Any] = {"index": index}
    for kind, named in {"pages": pages, "comparisons": comparisons, "histories": histories}.items():
        index[kind] = {name: f"{kind}-{number}" for number, name in enumerate(named)}
        elements |= {index[kind][name]: _clean(page, redaction) for name, page in named.items()}
    n_first = 2 if len(pages) == 1 else 1
    with replacing(path) as scratch, open(scratch, "wb", opener=private.opener) as file:
        file.write(_head(bundle, ", ".join(pages)).encode())
        summaries = "".join(_summary(elements[id]) for id in index["pages"].values())
        file.write(f'<div id="static">\n{summaries}</div>\n<div id="app"></div>\n'.encode())
        for number, (id, page) in enumerate(elements.items(), 1):
            file.writelines(_element(id, encoded(page)))
            if number == n_first:
                file.write(f"<script>{bundle.js}</script>\n".encode())
        begin = file.tell()
        for number, chunk in enumerate(chunks):
            file.writelines(_element(f"chunk-{number}", chunk.text(redaction)))
        end = file.tell()
        file.write(END)
    return WrittenReport(path, end + len(END), end - begin, sum(len(chunk.at) for chunk in chunks))


def is_report(path: Path) -> bool:
    """Return True for a file that holds a report."""
    try:
        with open_file(path) as file:
            return file.read(len(MARK)) == MARK.encode()
    except FileFault:
        return False


def encoded(page: Any) -> bytes:
    """Return a page as JSON, in ASCII."""
    return json.dumps(page, separators=(",", ":"), allow_nan=False).encode("ascii")


def _clean(page: Any, redaction: Redaction) -> Any:
    """Return a page without secrets."""
    return redaction.value(page, unchanged=OWN_KEYS) if redaction.may_be_in(encoded(page)) else page


def _summary(page: RunPage) -> str:
    """Return the verdict on an eval run and its facts as HTML. The front end removes it once it runs."""
    head = page["head"]
    row = head["row"]
    end = row["status"] + (f" ({row['reason']})" if row["reason"] else "")
    verdict = "<br>".join(map(_text, [end, *head["verdict"]]))
    facts = "<br>".join(map(_text, [*head["remarks"], *head["account"], *head["circumstances"]]))
    return f'<h1>{_text(row["name"])}</h1>\n<p class="verdict">{verdict}</p>\n<p class="facts">{facts}</p>\n'


def _text(text: str) -> str:
    return escape(escaped(text))


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
<title>{_text(title)}</title>
<style>{bundle.css}</style>
</head>
<body>
"""


def _element(id: str, text: bytes) -> Iterator[bytes]:
    yield f'<script type="application/octet-stream" id="{id}">'.encode()
    yield packed(text)
    yield b"</script>\n"
