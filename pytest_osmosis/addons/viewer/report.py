"""Reports: stored eval runs, their comparisons and histories, their conversations and the front end in one HTML file.

Up to `ALL_PAIRS` eval runs are each compared with every other, the earlier one first; more of them only with the first.

ARCHITECTURE.md lists the parts of the file. Pages and chunks of conversations are elements
`<script type="application/octet-stream">`, which browsers do not run; all but the first stand behind the front end, so
that the first paint does not wait for them. Memory holds one chunk.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from itertools import combinations, starmap
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from pytest_osmosis import __version__
from pytest_osmosis.addons.viewer.comparing import ComparedRun, PastRun, comparison_page, history_page, past_run_of
from pytest_osmosis.addons.viewer.open_run import OpenRun
from pytest_osmosis.addons.viewer.run_list import entry_rows
from pytest_osmosis.addons.viewer.shapes import (
    OWN_KEYS,
    ComparisonPage,
    EntryRow,
    HistoryPage,
    RunPage,
    RunsPage,
    encoded,
)
from pytest_osmosis.addons.viewer.stored_results import StoredResults
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.files import private
from pytest_osmosis.files.reading import FileFault, open_file
from pytest_osmosis.formats.codec import builtin
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.report.style import StyledText, dim, warning
from pytest_osmosis.results.entry_table import EntryTable, entry_table
from pytest_osmosis.results.publish import replacing
from pytest_osmosis.results.results import Results
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import byte_size, plural
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.text.safe import escaped

ALL_PAIRS = 6
LARGE = 50_000_000
"""A report of more bytes says how to get a smaller one: hosts refuse large files, and they are slow to send."""
Kept = Literal["all", "failed", "none"]
"""The runs whose conversations are kept. "failed" are those that did not pass, so unmeasured ones too."""


def report(path: Path, runs: Mapping[RunDirectory, Kept], redaction: Redaction) -> WrittenReport:
    """Write a report on eval runs whose directories have different names, with the conversations that each keeps.

    Raises `OsmosisError` if files of an eval run cannot be read, and `OSError` if the report cannot be written.
    """
    read = sorted(starmap(_read, runs.items()), key=lambda each: (each[0].row.started_at or "", each[0].row.name))
    sides = [side for side, _ in read]
    listed: RunsPage = {
        "workspace": ", ".join(dict.fromkeys(each.stored.run.workspace.name for each in sides)),
        "runs": [each.row for each in reversed(sides)],
        "tables": _tables(sides),
    }
    return write_report(path, listed, [run for _, run in read], _comparisons(sides), _histories(sides), redaction)


def report_lines(written: WrittenReport, option: str) -> Iterator[str | StyledText]:
    """Yield where a report is and its size; of a large one also how to get less, by an option or key."""
    holds = plural(written.n_conversations, "conversation")
    yield dim(f"report: {shown(written.path)} ({byte_size(written.size)}, {holds})")
    if written.size > LARGE:
        yield warning(
            f"{byte_size(written.conversations_size)} of it are conversations, and some hosts refuse large files: "
            f"{option}=failed leaves out those of runs that passed, and {option}=none leaves out all"
        )


def _read(directory: RunDirectory, kept: Kept) -> tuple[ComparedRun, ReportedRun]:
    opened = OpenRun(directory)
    opened.read()
    page = opened.page()
    side = ComparedRun(page["head"]["row"], opened.stored, opened.prompts)
    return side, ReportedRun(page, opened.conversation, kept)


def _tables(sides: Sequence[ComparedRun]) -> list[list[EntryRow]]:
    """Return the tables of evals that ran together, and one over all eval runs if none of those holds them all."""
    names = {each.row.name for each in sides}
    tables: dict[tuple[str, ...], EntryTable] = {}
    for each in sides:
        if (place := each.stored.results.among) is not None:
            runs = tuple(entry.run for entry in place.entries)
            if names.issuperset(runs):
                tables[runs] = place
    if len(names) > 1 and not any(names.issubset(runs) for runs in tables):
        named = {each.row.name: found for each in sides if (found := _comparable(each.stored)) is not None}
        if len(named) > 1:
            tables[()] = entry_table("", named)
    return [entry_rows(table, [each.row for each in sides]) for table in tables.values()]


def _comparable(stored: StoredResults) -> Results | None:
    """Return the results of an eval run for a table, None if no run of it has ended."""
    results = stored.results
    if not results.records:
        return None
    name = stored.run.directory.name
    named = replace(results, description=replace(results.description, name=name))
    return replace(named, stopped="its run did not end") if stored.is_from_journal else named


def _comparisons(sides: Sequence[ComparedRun]) -> dict[str, ComparisonPage]:
    pairs = combinations(sides, 2) if len(sides) <= ALL_PAIRS else ((sides[0], other) for other in sides[1:])
    return {f"{a.row.name} {b.row.name}": comparison_page(a, b) for a, b in pairs}


def _histories(sides: Sequence[ComparedRun]) -> dict[str, HistoryPage]:
    """Return the history of each eval, over its eval runs in the report."""
    by_eval: dict[str, list[PastRun]] = {}
    for side in sides:
        past = past_run_of(side.row, side.stored, partial(getattr, side, "prompts"))
        by_eval.setdefault(side.row.eval or side.row.name, []).append(past)
    return {name: history_page(name, runs) for name, runs in by_eval.items()}


# -- the file ------------------------------------------------------------------------------------------------

CHUNK_BYTES = 128 * 1024
"""A browser opens as much at once, and deflate still finds most repetition in it: chunks of 32 kB cost 10% more, those
of 512 kB save 3%. A longer conversation has a chunk of its own."""
LEVEL = 4
"""The level of deflate. Level 6 takes twice the time, for 2% less."""
ASSETS = Path(__file__).with_name("assets")
_SOURCES = re.compile(r"/\* sources ([0-9a-f]{64}) \*/\n")
_CLOSES = re.compile(r"</script|</style|<!--", re.IGNORECASE)
MARK = "<!doctype html>\n<!-- Written by pytest-osmosis, which replaces this file. -->\n"
END = b"</body>\n</html>\n"
_POLICY = (
    "default-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)


class ReportedRun(NamedTuple):
    """An eval run in a report. `conversation` gives the JSON of one in UTF-8, by the position of its run in the page.

    It gives None for a run without one, and the same bytes each time.
    """

    page: RunPage
    conversation: Callable[[int], bytes | None]
    kept: Kept = "all"

    @property
    def name(self) -> str:
        return self.page["head"]["row"].name

    @property
    def kept_runs(self) -> Sequence[int]:
        """The positions of the runs whose conversations are kept, if they have one."""
        outcomes, passed = self.page["runs"]["outcome"], self.page["head"]["outcomes"].index("passed")
        if self.kept == "none":
            return []
        return [at for at, outcome in enumerate(outcomes) if self.kept == "all" or outcome != passed]


class Chunk(NamedTuple):
    """Neighbouring runs whose conversations, one a line, are compressed together, by their positions in the page."""

    run: ReportedRun
    at: Sequence[int]

    def text(self, redaction: Redaction) -> bytes:
        """Return its lines. They are already without the secrets that were known when the journal was written."""
        lines = [line for line in map(self.run.conversation, self.at) if line is not None]
        if redaction.may_be_in(b"\n".join(lines)):
            lines = [_redacted(line, redaction) for line in lines]
        return b"\n".join(lines)


def placed(run: ReportedRun, first: int) -> tuple[RunPage, list[Chunk]]:
    """Return the chunks of an eval run, the first of which has the number `first`, and its page with their places."""
    n_runs = len(run.page["runs"]["row"])
    chunk, line = [-1] * n_runs, [-1] * n_runs
    chunks: list[Chunk] = []
    inside: list[int] = []
    n_bytes = 0
    for at in run.kept_runs:
        conversation = run.conversation(at)
        if conversation is None:
            continue
        if not chunks or n_bytes + len(conversation) > CHUNK_BYTES:
            inside, n_bytes = [], 0
            chunks.append(Chunk(run, inside))
        chunk[at], line[at] = first + len(chunks) - 1, len(inside)
        inside.append(at)
        n_bytes += len(conversation) + 1
    page: RunPage = {**run.page, "runs": {**run.page["runs"], "chunk": chunk, "line": line}}
    page["head"] = {**page["head"], "html_conversations": run.kept}
    return page, chunks


def packed(text: bytes) -> bytes:
    """Return base64 of raw deflate, in which HTML finds nothing to obey."""
    deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, 9)
    return b64encode(deflate.compress(text) + deflate.flush())


def _redacted(line: bytes, redaction: Redaction) -> bytes:
    """Return a conversation without secrets: each of its events as the journal would hold it."""
    conversation: Mapping[str, Any] = json.loads(line)
    scores = ",".join(map(redaction.event, conversation["scores"]))
    return f'{{"rollout":{redaction.event(conversation["rollout"])},"scores":[{scores}]}}'.encode()


class Bundle(NamedTuple):
    """The front end as it is shipped: app.js and app.css in `assets/`, which `make viewer` builds.

    Each begins with the hash of its sources. A page that holds them names their own hashes in its content security
    policy, so a browser runs them and nothing else.
    """

    js: str
    css: str


def read_bundle(assets: Path = ASSETS) -> Bundle:
    """Return the bundle. Raises `OsmosisError` if it is missing, of two builds, or would end the element around it."""
    js, css = (_asset(assets / name) for name in ("app.js", "app.css"))
    sources = {match[1] for text in (js, css) if (match := _SOURCES.match(text))}
    if len(sources) != 1 or any(map(_CLOSES.search, (js, css))):
        raise OsmosisError(f"the front end in {assets} is damaged; install pytest-osmosis again, or run: make viewer")
    return Bundle(js, css)


def _asset(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise OsmosisError(
            f"{path}: the front end of reports and of the dashboard cannot be read ({error.strerror}); install "
            "pytest-osmosis again, or in a clone of its repository run: make viewer"
        ) from None


def _csp_hash(text: str) -> str:
    """Return the source expression of a content security policy that lets a script or a style be inside the page."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


class WrittenReport(NamedTuple):
    """The path and size of a written report in bytes, and the size and number of its conversations."""

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


def _clean(page: Any, redaction: Redaction) -> Any:
    """Return a page without secrets."""
    text = encoded(page)
    return redaction.value(json.loads(text), unchanged=OWN_KEYS) if redaction.may_be_in(text) else page


def _summary(page: RunPage) -> str:
    """Return the verdict on an eval run and its facts as HTML. The front end removes it once it runs."""
    head = page["head"]
    row = builtin(head["row"])  # of a page that was cleaned, it is already
    end = row["status"] + (f" ({row['reason']})" if row["reason"] else "")
    verdict = "<br>".join(map(_text, [end, *head["verdict"]]))
    facts = "<br>".join(map(_text, [*head["remarks"], *head["account"], *head["circumstances"]]))
    return f'<h1>{_text(row["name"])}</h1>\n<p class="verdict">{verdict}</p>\n<p class="facts">{facts}</p>\n'


def _text(text: str) -> str:
    return escape(escaped(text))


def _head(bundle: Bundle, title: str) -> str:
    policy = "; ".join([*_POLICY, f"script-src {_csp_hash(bundle.js)}", f"style-src {_csp_hash(bundle.css)}"])
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
