"""The table of a workspace's eval runs."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_osmosis.report.columns import aligned
from pytest_osmosis.report.style import Style, StyledText, bold
from pytest_osmosis.results.run_entry import RunEntry
from pytest_osmosis.text.numbers import count, money, score

_HEAD = ["run", "started (UTC)", "status", "pass rate", "passed", "gates", "tokens", "cost"]
_STATUSES: dict[str, Style] = {
    "pending": "bold",
    "running": "bold",
    "stopped": "warning",
    "failed": "bad",
    "unreadable": "bad",
}


def table_lines(entries: Sequence[RunEntry]) -> list[str]:
    """Return a line on each eval run, under a head."""
    rows = [_cells(entry) for entry in entries]
    head, *lines = aligned([_HEAD, *rows])
    return [bold(head), *map(_styled, lines, rows)]


def _cells(entry: RunEntry) -> list[str]:
    status = ", ".join([entry.status, *["partial"] * entry.partial, *["replayed"] * entry.replayed])
    return [
        entry.name,
        "-" if entry.started_at is None else entry.started_at[:19].replace("T", " "),
        status,
        "-" if entry.partial else score(entry.pass_rate),
        _passed(entry),
        gates_text(entry),
        "-" if entry.tokens is None else count(entry.tokens),
        _cost(entry),
    ]


def _passed(entry: RunEntry) -> str:
    """Return how many runs passed, or how many rollouts ended if that is all that is known."""
    if entry.counted is None:
        ended, selected = entry.ended, entry.selected
        return "-" if ended is None or selected is None else f"{count(ended)} of {count(selected)} ended"
    if entry.passed is None:
        return f"none of {count(entry.counted)} measured" if entry.counted else "-"
    unmeasured = entry.counted - (entry.measured or 0)
    return f"{count(entry.passed)} of {count(entry.counted)}" + (
        f", {count(unmeasured)} not measured" * bool(unmeasured)
    )


def gates_text(entry: RunEntry) -> str:
    """Return the verdicts of all gates in few words.

    >>> gates_text(RunEntry("x", ".", "finished", gates=("holds", "fails", "fails")))
    '2 of 3 fail'
    """
    gates = entry.gates
    if not gates:
        return "-"
    if fails := gates.count("fails"):
        return "fails" if len(gates) == 1 else f"{fails} of {len(gates)} {'fails' if fails == 1 else 'fail'}"
    if len({*gates}) == 1:
        return {"holds": "holds" if len(gates) == 1 else "hold"}.get(gates[0], gates[0])
    return "not measured" if "not measured" in gates else "not decided"


def _cost(entry: RunEntry) -> str:
    if entry.tokens is None:
        return "-"
    if entry.cost_usd is None:
        return "unknown"
    return f">= {money(entry.cost_usd)}" if entry.n_cost_unknown else money(entry.cost_usd)


def _styled(line: str, cells: Sequence[str]) -> str:
    """Return a line with colours for its status and its gates."""
    pieces: list[tuple[str, Style | None]] = []
    at = 0
    for index, style in ((2, _STATUSES.get(cells[2].partition(",")[0])), (5, _gate_style(cells[5]))):
        found = line.find(cells[index], at)
        if style is None or found < 0:
            continue
        pieces += [(line[at:found], None), (cells[index], style)]
        at = found + len(cells[index])
    return StyledText(*pieces, (line[at:], None))


def _gate_style(text: str) -> Style | None:
    if text in ("-", "not decided", "partial"):
        return None
    return "bad" if "fail" in text else "good" if "hold" in text else "warning"
