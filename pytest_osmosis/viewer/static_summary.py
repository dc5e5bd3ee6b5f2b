"""The summary of a report that needs no script: for mail, hosts that run none, and readers like `grep`.

It says what was decided, the gates, the statistics of each function, and which runs did not pass, with the reasons. All
text of others is escaped. The front end removes it once it runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.text.numbers import count, plural, score
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.text.safe import escaped, one_line
from pytest_osmosis.viewer.chunks import ReportedRun
from pytest_osmosis.viewer.report_pages import ReportPages
from pytest_osmosis.viewer.shapes import EntryRow, FunctionShape, IntervalShape, RunHead, RunPage, RunRow

MOST_RUNS = 50
REASON_CHARS = 300
_MARKS = {"passed": "✓", "failed": "✗", "unmeasured": "!", "removed": "-"}
_STATES = {"holds": "✓", "fails": "✗"}
Reasons = Mapping[int, str]
"""The reasons that functions gave, by the position of the run in its page."""


def summary_html(report: ReportPages, reasons: Mapping[str, Reasons]) -> str:
    """Return the summary as HTML. `reasons` are those of each eval run by name."""
    pages = list(report.runs.values())
    parts = [f"<h1>{_text(title_of(report))}</h1>\n"]
    if len(pages) > 1:
        parts += [_evals_table(pages)]
        parts += [_entries_table(table) for table in report.list["tables"]]
        parts += [_comparisons(report)]
    parts += [_section(page, reasons.get(page["head"]["row"]["name"], {})) for page in pages]
    parts.append("<p>This is a summary for readers without scripts. With them, this file shows every run.</p>\n")
    return "".join(parts)


def title_of(report: ReportPages) -> str:
    """Return the title of a report: the eval and its pass rate, or how many evals there are."""
    pages = list(report.runs.values())
    if len(pages) != 1:
        return plural(len(pages), "eval run")
    row = pages[0]["head"]["row"]
    return f"{row['eval'] or row['name']}: {'' if row['pass_rate'] is None else 'pass rate '}{_rate_of(row)}"


def reasons_of(run: ReportedRun, redaction: Redaction) -> Reasons:
    """Return the reasons that functions gave for the first runs that did not pass."""
    found: dict[int, str] = {}
    for at in _not_passed(run.page)[:MOST_RUNS]:
        line = run.conversation(at)
        if line is not None:
            said = _reasons(json.loads(line))
            found[at] = one_line(redaction.text("; ".join(said)), REASON_CHARS) if said else ""
    return found


def _reasons(conversation: Mapping[str, Any]) -> list[str]:
    reasons = {name: reason for event in conversation["scores"] for name, reason in event.get("reasons", {}).items()}
    return [f"{name}: {reason}" for name, reason in reasons.items()]


def _section(page: RunPage, reasons: Reasons) -> str:
    head = page["head"]
    row = head["row"]
    end = row["status"] + (f" ({row['reason']})" if row["reason"] else "")
    parts = [
        f"<section>\n<h2>{_text(row['name'])}</h2>\n",
        _lines("verdict", [end, *(_marked(line, head) for line in head["verdict"])]),
        _lines("facts", [*head["remarks"], *head["account"], *head["circumstances"]]),
    ]
    if head["functions"]:
        parts.append(_functions(head["functions"], head["models"], is_part=row["pass_rate"] is None))
    parts.append(_runs(page, reasons))
    return "".join([*parts, "</section>\n"])


def _marked(line: str, head: RunHead) -> str:
    """Return a line of a verdict, with a mark before the finding of a gate."""
    states = {f"gate {gate['gate']}:": gate["state"] for gate in head["gates"]}
    state = next((state for begin, state in states.items() if line.startswith(begin)), None)
    return line if state is None else f"{_STATES.get(state, '!')} {line}"


def _lines(kind: str, lines: Sequence[str]) -> str:
    """Return lines; those that begin with blanks explain the one before."""
    return f'<p class="{kind}">{"<br>".join(map(_text, lines))}</p>\n' if lines else ""


def _functions(functions: Sequence[FunctionShape], models: Sequence[str], *, is_part: bool) -> str:
    """Return the statistics of functions; for a part of the plan only the means of its runs."""
    names = ("mean",) if is_part else ("mean", "std", "min", "max", "pass_rate")
    rows = []
    for each in functions:
        found = each["statistics"]
        model = [models[each["model"]]] if len(models) > 1 else []
        values = [score(found.get(key) if found.get("measured") else None) for key in names]
        rows.append([each["name"], *model, f"{each['threshold']:g}", *values])
    named = ["model"] if len(models) > 1 else []
    header = ["function", *named, "threshold", *(name.replace("_", " ") for name in names)]
    return _table("Functions", header, rows, n_numbers=1 + len(names))


def _runs(page: RunPage, reasons: Reasons) -> str:
    at = _not_passed(page)
    if not at:
        return ""
    head, runs = page["head"], page["runs"]
    rows = []
    for each in at[:MOST_RUNS]:
        row, outcome = runs["row"][each], head["outcomes"][runs["outcome"][each]]
        tag = ModelTag.BASELINE if runs["model"][each] else ModelTag.PRIMARY
        name = str(RunId(page["rows"]["index"][row], runs["run"][each], tag))
        why = [part for part in (_error(page, each), _scores(page, each), reasons.get(each)) if part]
        rows.append([name, f"{_MARKS[outcome]} {outcome}", page["rows"]["prompt"][row], "; ".join(why)])
    more = f", the first {MOST_RUNS} of {count(len(at))}" if len(at) > MOST_RUNS else ""
    return _table(f"Runs that did not pass{more}", ["run", "outcome", "prompt", "reason"], rows)


def _not_passed(page: RunPage) -> list[int]:
    """Return the positions of the runs that ended and did not pass."""
    outcomes = page["head"]["outcomes"]
    ended = {number for number, outcome in enumerate(outcomes) if outcome in ("failed", "unmeasured", "removed")}
    return [at for at, outcome in enumerate(page["runs"]["outcome"]) if outcome in ended]


def _error(page: RunPage, at: int) -> str:
    boundary, error = page["runs"]["boundary"][at], page["runs"]["error"][at]
    parts = [page["head"]["boundaries"][boundary]] if boundary >= 0 else []
    parts += [one_line(page["head"]["errors"][error], REASON_CHARS)] if error >= 0 else []
    return ": ".join(parts)


def _scores(page: RunPage, at: int) -> str:
    """Return the scores below their thresholds."""
    model = page["runs"]["model"][at]
    below = []
    for each in page["head"]["functions"]:
        value = page["runs"]["scores"][each["name"]][at]
        if each["model"] == model and value is not None and value < each["threshold"]:
            below.append(f"{each['name']} {score(value)}, threshold {each['threshold']:g}")
    return "; ".join(below)


def _evals_table(pages: Sequence[RunPage]) -> str:
    rows = []
    for page in pages:
        row = page["head"]["row"]
        gates = ", ".join(f"{_STATES.get(gate, '!')} {gate}" for gate in row["gates"])
        rate = f"{_rate_of(row)}{_interval(row['pass_rate_interval'])}"
        rows.append([row["name"], row["status"], row["model"] or "", rate, gates])
    return _table("Eval runs", ["eval run", "status", "model", "pass rate", "gates"], rows)


def _entries_table(entries: Sequence[EntryRow]) -> str:
    rows = [
        [
            each["name"],
            each["model"],
            f"{_entry_rate(each)}{_interval(each['pass_rate_interval'])}",
            each["finding"],
        ]
        for each in entries
    ]
    return _table(f"Evals compared with {entries[0]['name']}", ["eval", "model", "pass rate", "finding"], rows)


def _entry_rate(entry: EntryRow) -> str:
    is_part = entry["pass_rate"] is None and entry["measured"] > 0
    return "none for a part" if is_part else _rate(entry["pass_rate"])


def _comparisons(report: ReportPages) -> str:
    rows = [
        [page["b"]["name"], page["a"]["name"], page["sentence"] or page["problem"]]
        for page in report.comparisons.values()
    ]
    return _table("Comparisons", ["eval run (B)", "compared with (A)", "finding"], rows) if rows else ""


def _rate_of(row: RunRow) -> str:
    """Return the pass rate of an eval run; counts for a part of it, whose rate would mislead."""
    if row["pass_rate"] is None and row["measured"] and row["passed"] is not None and row["counted"] is not None:
        return f"{count(row['passed'])} of {plural(row['counted'], 'run')} passed"
    return _rate(row["pass_rate"])


def _rate(rate: float | None) -> str:
    return "not measured" if rate is None else score(rate)


def _interval(interval: IntervalShape | None) -> str:
    return "" if interval is None else f" ({score(interval['low'])} to {score(interval['high'])})"


def _table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]], n_numbers: int = 0) -> str:
    """Return a table, whose last `n_numbers` columns hold numbers."""

    def line(tag: str, cells: Sequence[str]) -> str:
        first = len(cells) - n_numbers
        kinds = [' class="number"' if column >= first else "" for column in range(len(cells))]
        texts = (f"<{tag}{kind}>{_text(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
        return f"<tr>{''.join(texts)}</tr>\n"

    body = "".join(line("td", row) for row in rows)
    return f"<table>\n<caption>{_text(caption)}</caption>\n{line('th', header)}{body}</table>\n"


def _text(text: str) -> str:
    return escape(escaped(text))
