"""The table of a workspace's eval runs."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_osmosis.report.columns import aligned
from pytest_osmosis.report.style import STATUSES, Style, StyledText, bold
from pytest_osmosis.results.run_entry import RunEntry
from pytest_osmosis.text.numbers import count, money, score

_HEAD = ["run", "started (UTC)", "status", "pass rate", "passed", "gates", "tokens", "cost"]


def table_lines(entries: Sequence[RunEntry]) -> list[str]:
    """Return a line on each eval run, under a head."""
    head, *lines = aligned([_HEAD, *map(_cells, entries)])
    return [bold(head), *lines]


def _cells(entry: RunEntry) -> list[str]:
    status = ", ".join([entry.status, *["partial"] * entry.partial, *["replayed"] * entry.replayed])
    return [
        entry.name,
        "-" if entry.started_at is None else entry.started_at[:19].replace("T", " "),
        StyledText((status, STATUSES.get(entry.status))),
        "-" if entry.partial else score(entry.pass_rate),
        _passed(entry),
        StyledText((gates := gates_text(entry), _gate_style(gates))),
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


def _gate_style(text: str) -> Style | None:
    if text in ("-", "not decided", "partial"):
        return None
    return "bad" if "fail" in text else "good" if "hold" in text else "warning"
