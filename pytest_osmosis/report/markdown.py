"""Results as Markdown, for a job's summary page and for comments on pull requests."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_osmosis.files.reading import FileFault, open_file
from pytest_osmosis.report.overview import footnotes, overview_rows, total_line
from pytest_osmosis.report.statistics import better_and_worse, metric_rows, passes_text, row_name, statistics_rows
from pytest_osmosis.report.summary import account_lines, rate_lines, state_text
from pytest_osmosis.results.results import Results, changed_rows
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.safe import escaped, shortened
from pytest_osmosis.verdicts.comparison import Against, ChangedRow
from pytest_osmosis.verdicts.pass_rule import kind_of

MOST_LISTED = 50
MOST_CHANGED = 1000
REASON_CHARS = 300

AGAINST: Mapping[Against, str] = {
    "rescored": "Against the previous verdicts",
    "last_run": "Against the last eval run",
    "baseline": "Against the baseline",
}

MARK = "<!-- Written by pytest-osmosis, which replaces this file. -->\n\n"


def page(evals: Sequence[Results]) -> str:
    """Return a file with the same sections."""
    return MARK + sections(evals)


def sections(evals: Sequence[Results]) -> str:
    """Return a section on each eval, after the table of all if there are several."""
    parts = [*map(markdown, evals)]
    if len(evals) > 1:
        texts = map(_text, (*footnotes(evals), total_line(evals)))
        head = [f"### {plural(len(evals), 'eval')}", _table(overview_rows(evals)), *texts]
        parts.insert(0, "\n\n".join(head) + "\n")
    return "\n".join(parts)


def is_page(path: Path) -> bool:
    """Return True for a file that holds a page."""
    try:
        with open_file(path) as file:
            return file.read(len(MARK)) == MARK.encode()
    except FileFault:
        return False


def markdown(results: Results) -> str:
    """Return a section on one eval: its verdict, its gates, the table of statistics, and the runs and rows of note."""
    blocks = [f"### {_text(results.description.name)}: {_verdict(results)}", _text(_subject(results))]
    if results.verdicts:
        gates = [[verdict.title, str(state_text(verdict)).lower(), verdict.text] for verdict in results.verdicts]
        blocks.append(_table([["gate", "", ""], *gates]))
    blocks.append(_table(statistics_rows(results)))
    if metrics := metric_rows(results):
        blocks.append(_table(metrics[: MOST_LISTED + 1]))
    blocks.append("\n".join(f"- {_text(line)}" for line in (*rate_lines(results), *account_lines(results))))
    blocks += _not_passed(results)
    blocks += [block for against in AGAINST for block in _changed(changed_rows(results, against))]
    return "\n\n".join(blocks) + "\n"


def _subject(results: Results) -> str:
    """Return what was evaluated on which rows: the title names the eval alone."""
    found = results.description
    models = ", baseline ".join(each.model for each in results.models)
    rows = f" on {found.extra['dataset']} (rows: {found.extra['selection']})" if "dataset" in found.extra else ""
    return models + rows + (f", n = {found.n}" if found.n > 1 else "")


def _verdict(results: Results) -> str:
    states = [verdict.state for verdict in results.verdicts]
    if results.stopped and not results.decided:
        return "stopped"
    if fails := states.count("fails"):
        return "a gate fails" if fails == 1 else f"{fails} gates fail"
    if "not measured" in states:
        return "not measured"
    if "holds" in states and "partial" not in states:
        return "every gate holds"
    return f"{results.passed:,} of {plural(len(results.records) - results.count('skipped'), 'run')} passed"


def _not_passed(results: Results) -> list[str]:
    """Return a folded table of the runs that failed or were not scored, at most `MOST_LISTED` of them."""
    records = [record for record in results.records if kind_of(record, results.pass_rule) in ("failed", "error")]
    if not records:
        return []
    rows = [[str(each.run), shortened(results.reason_of(each), REASON_CHARS)] for each in records[:MOST_LISTED]]
    if more := len(records) - len(rows):
        rows.append(["...", f"{more:,} more"])
    return _folded(f"{plural(len(records), 'run')} did not pass", [["run", "reason"], *rows])


def _folded(title: str, rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"<details><summary>{title}</summary>", _table(rows), "</details>"]


def _changed(changed: Sequence[ChangedRow]) -> list[str]:
    """Return a folded table of the rows that changed, the worse ones first, at most `MOST_CHANGED` of them."""
    if not changed:
        return []
    rows = [[row_name(row), passes_text(row.old), passes_text(row.new)] for row in changed[:MOST_CHANGED]]
    if more := len(changed) - len(rows):
        rows.append(["...", f"{more:,} more in results.json", ""])
    n_worse = sum(row.change == "worse" for row in changed)
    title = f"{AGAINST[changed[0].against]}: {better_and_worse(len(changed) - n_worse, n_worse)}"
    return _folded(title, [["row", "passed then", "passed now"], *rows])


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    return "\n".join([_row(head), "|" + "---|" * len(head), *map(_row, body)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_text, cells)) + " |"


def _text(text: str) -> str:
    r"""Return untrusted text on one line, escaped for Markdown, HTML, GitHub's mentions and links that it finds itself.

    >>> print(_text("a | b\n<img> `x` @team #1 http://x www.x"))
    a \| b &lt;img&gt; \`x\` &#64;team &#35;1 http&#58;//x www&#46;x
    """
    flat = html.escape(escaped(" ".join(text.split())), quote=False)
    for sign in "\\`*_[]|~":
        flat = flat.replace(sign, f"\\{sign}")
    flat = flat.replace("#", "&#35;").replace("@", "&#64;").replace("://", "&#58;//")
    return re.sub(r"(www)\.", r"\1&#46;", flat, flags=re.IGNORECASE)
