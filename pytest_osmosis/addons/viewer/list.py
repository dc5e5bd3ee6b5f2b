"""`pytest-osmosis runs list`: the eval runs of a workspace, the newest first."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from pytest_osmosis.addons.viewer.run_entry import RunEntry, listing_order, run_entry
from pytest_osmosis.cli.output import CommandOutput, add_output_options
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import NO_RUNS, eval_of, runs_above
from pytest_osmosis.report.style import STATUSES, Style, StyledText, aligned, bold, dim
from pytest_osmosis.text.arguments import filled
from pytest_osmosis.text.names import hint, listed, natural_key, shown
from pytest_osmosis.text.numbers import count, money, plural, score
from pytest_osmosis.text.safe import fitted_middle, one_line

_HEAD = ["run", "model", "started (UTC)", "status", "pass rate", "passed", "gates", "tokens", "cost"]
DESCRIPTION = """\
List the eval runs of this workspace, newest first: their model, status, pass
rate, gates and cost. The statuses are those of Osmosis' hosted evals: pending (no
code is loaded yet), running, finished, failed (killed, or every run met the
same error) and stopped. A run that fails a gate has finished.
"""
EXAMPLES = """\
examples:
  pytest-osmosis runs                       the newest 20
  pytest-osmosis runs list --all            all of them
  pytest-osmosis runs list sums             only those of the eval "sums"
  pytest-osmosis runs list --json           for other programs
"""
SCHEMA_VERSION = 1
NEWEST = 20
"""The number of runs that are listed unless all are asked for."""
MOST_LISTED = 10
MODEL_COLUMNS = 30


def _cells(entry: RunEntry) -> list[str]:
    status = ", ".join([entry.status, *["partial"] * entry.partial, *["replayed"] * entry.replayed])
    gates = gates_text(entry)
    style: Style | None = "bad" if "fail" in gates else "good" if "hold" in gates else "warning"
    cost = "unknown" if entry.cost_usd is None and entry.ended else money(entry.cost_usd or 0.0)
    if entry.n_cost_unknown and entry.cost_usd is not None:
        cost = f">= {cost}"
    return [
        entry.name,
        "-" if entry.model is None else fitted_middle(one_line(entry.model), MODEL_COLUMNS),
        "-" if entry.started_at is None else entry.started_at[:19].replace("T", " "),
        StyledText((status, STATUSES.get(entry.status))),
        score(entry.pass_rate),
        _passed(entry),
        StyledText((gates, None if gates in ("-", "not decided", "partial") else style)),
        "-" if entry.tokens is None else count(entry.tokens),
        "-" if entry.tokens is None else cost,
    ]


def _passed(entry: RunEntry) -> str:
    """Return how many runs passed and how many did not run, or how many rollouts ended if that is all that is known."""
    ended, selected = entry.ended, entry.selected
    if entry.counted is None:
        return "-" if ended is None or selected is None else f"{count(ended)} of {count(selected)} ended"
    unmeasured, missing = entry.counted - (entry.measured or 0), (selected or 0) - (ended or 0)
    if entry.passed is None:
        found, unmeasured = f"none of {count(entry.counted)} measured" * bool(entry.counted), 0
    else:
        found = f"{count(entry.passed)} of {count(entry.counted)}"
    others = f"{count(unmeasured)} not measured" * bool(unmeasured), f"{count(missing)} did not run" * bool(missing)
    return ", ".join(filter(None, (found, *others))) or "-"


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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("eval", nargs="?", type=filled, metavar="EVAL", help="only the runs of this eval")
    parser.add_argument("--all", action="store_true", help="list all runs (default: the newest 20)")
    add_output_options(parser)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    if options.json:
        output.json(runs_json(folder, options.eval, every=options.all))
    else:
        output.lines(list_runs(folder, options.eval, every=options.all))
    return 0


def list_runs(folder: Path, eval: str | None = None, *, every: bool = False) -> list[str]:
    """Return a table of the workspace's eval runs, or of those of one eval. Raises `OsmosisError` if it has none."""
    home, entries, n_more = _found(folder, eval, every)
    if not entries:
        return [f"no eval runs in {shown(home)}; {NO_RUNS}"]
    more = [dim(f"and {plural(n_more, 'older eval run')}; --all lists {'it' if n_more == 1 else 'them'} too")]
    head, *lines = aligned([_HEAD, *map(_cells, entries)], left=[0, 1])
    return [bold(head), *lines, *(more if n_more else [])]


def runs_json(folder: Path, eval: str | None = None, *, every: bool = False) -> dict[str, Any]:
    """Return the same as JSON."""
    home, entries, n_more = _found(folder, eval, every)
    return {
        "schema_version": SCHEMA_VERSION,
        "path": shown(home),
        "not_listed": n_more,
        "runs": to_builtins(entries),
    }


def _found(folder: Path, eval: str | None, every: bool) -> tuple[Path, list[RunEntry], int]:
    """Return the folder of the runs, those that are listed, and the number of those that are not."""
    home, folders = runs_above(folder)
    folders = sorted(folders, key=listing_order)
    most = None if every else NEWEST
    if eval is None:
        entries = list(map(run_entry, folders[:most]))
        return home, entries, len(folders) - len(entries)
    names = [(entry, entry.eval or eval_of(entry.name)) for entry in map(run_entry, folders)]
    evals = sorted({name for _, name in names if name}, key=natural_key)
    if eval not in evals:
        there = f"there are eval runs of {listed(evals, MOST_LISTED)}" if evals else NO_RUNS
        raise OsmosisError(f'eval "{eval}": no eval runs in {shown(home)}; {hint(eval, evals)}{there}')
    found = [entry for entry, name in names if name == eval]
    entries = found[:most]
    return home, entries, len(found) - len(entries)
