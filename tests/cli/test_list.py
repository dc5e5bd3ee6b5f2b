"""`pytest-osmosis runs list`."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.cli.stored_runs import RESULTS, Cli, Stored
from tests.unit.made import A, finished, published

ENDED = {"ev": "ended", "at": "2026-01-01T00:00:09+00:00", "status": "finished", "reason": None}
(GATE,) = published([finished({A: 1.0})], minimum=0.7)["gates"]


LISTED = """\
run     model                  started (UTC)           status  pass rate                 passed  gates  tokens      cost
new     demo/arithmetic  2026-01-02 03:04:05         finished      0.500                 1 of 2      -  12,345   unknown
part    demo/arithmetic  2026-01-02 03:04:05  failed, partial          -  1 of 2, 6 did not run      -  12,345  >= $1.25
torn    -                                  -       unreadable          -                      -      -       -         -
killed  demo/arithmetic  2026-01-01 00:00:00           failed          -           0 of 4 ended      -       -         -
old     demo/arithmetic  2026-01-02 03:04:05         finished      0.500                 1 of 2      -  12,345     $1.25
"""


def test_runs_lists_the_newest_first(typed: Cli, stored: Stored) -> None:
    stored("old", age_s=4)
    stored("killed", results=None, age_s=3)
    stored("torn", ENDED, results="{", age_s=2)
    summary = {**RESULTS["summary"], "cost_unknown": 1}
    begun = {**summary, "total_rows": 8, "pending": 6}
    stopped = {"status": "failed", "stop_reason": "401", "stopped_by": "systemic", "partial": True}
    stored("part", results={**RESULTS, **stopped, "summary": begun}, age_s=1)
    stored("new", results={**RESULTS, "summary": {**summary, "cost_usd": None}}, age_s=0)
    assert typed("runs").splitlines() == LISTED.splitlines()


def test_each_says_what_was_measured_and_what_its_gates_found(typed: Cli, stored: Stored) -> None:
    cut = {"selected": 58, "pending": 4}
    summaries: dict[str, dict[str, Any]] = {
        "unmeasured": {"measured": 0, "pass_rate": 0.0},
        "measured": {"measured": 1},
        "never": {"selected": 4, "pending": 4, "measured": 0, "total_tokens": 0, "cost_usd": None},
        "stopped": cut,
        "decided": cut,  # the latter as no missing run could change its gates
    }
    for name, changes in summaries.items():
        status = "stopped" if name == "stopped" else "finished"
        stored(name, results={**RESULTS, "status": status, "summary": {**RESULTS["summary"], **changes}})
    for states in (["holds"], ["fails"], ["holds", "fails"], ["holds"] * 2, ["not measured"]):
        stored("+".join(states), results={**RESULTS, "gates": [{**GATE, "state": state} for state in states]})

    cells = [re.split(r"\s{2,}", line) for line in typed("runs").splitlines()[1:]]

    assert {line[0]: line[4:] for line in cells} == {
        "unmeasured": ["-", "none of 2 measured", "-", "12,345", "$1.25"],
        "measured": ["0.500", "1 of 2, 1 not measured", "-", "12,345", "$1.25"],
        "never": ["-", "none of 2 measured, 4 did not run", "-", "0", "$0"],
        "stopped": ["-", "1 of 2, 4 did not run", "-", "12,345", "$1.25"],
        "decided": ["0.500", "1 of 2, 4 did not run", "-", "12,345", "$1.25"],
        "holds": ["0.500", "1 of 2", "holds", "12,345", "$1.25"],
        "fails": ["0.500", "1 of 2", "fails", "12,345", "$1.25"],
        "holds+fails": ["0.500", "1 of 2", "1 of 2 fails", "12,345", "$1.25"],
        "holds+holds": ["0.500", "1 of 2", "hold", "12,345", "$1.25"],
        "not measured": ["0.500", "1 of 2", "not measured", "12,345", "$1.25"],
    }


def test_runs_as_json(typed: Cli, stored: Stored) -> None:
    code = {"git_commit": "1f3a" * 10, "git_dirty": True}
    stored("x-1", results={**RESULTS, "gates": [GATE], "provenance": {**RESULTS["provenance"], **code}})
    stored("torn", ENDED, results="{")
    page = json.loads(typed("runs", "--json"))
    torn, run = sorted(page["runs"], key=lambda run: run["name"])
    assert (run["status"], run["passed"], run["counted"], run["gates"]) == ("finished", 1, 2, ["holds"])
    assert (run["git_commit"], run["git_dirty"], run["duration_s"]) == (code["git_commit"], True, 3.21)
    assert (torn["status"], torn["passed"], torn["git_commit"]) == ("unreadable", None, None)
    assert "results.json: is not JSON" in torn["problem"]


def test_runs_list_is_what_runs_does_without_a_command(typed: Cli, stored: Stored) -> None:
    assert typed("runs") == "no eval runs in .osmosis/runs; pytest CONFIG.toml makes one\n"
    stored("x-20260102T000000Z-aaaaaa")
    stored("y-20260102T000000Z-aaaaaa", results={**RESULTS, "config": {**RESULTS["config"], "name": "sums"}})
    assert typed("runs", "list") == typed("runs")
    assert typed("runs", "list", "sums") == typed("runs", "sums")
    assert len(typed("runs", "sums").splitlines()) == 2
    assert typed("runs", "--json", "sums") == typed("runs", "list", "--json", "sums")
    said = typed("runs", "sumz", fails=1)
    assert said == 'eval "sumz": no eval runs in .osmosis/runs; did you mean "sums"? there are eval runs of sums, x\n'


def test_the_newest_runs_are_listed_unless_all_are_asked_for(typed: Cli, stored: Stored) -> None:
    for number in range(23):
        stored(f"x-20260102T0000{number:02}Z-aaaaaa")
    lines = typed("runs").splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == [f"x-20260102T0000{n:02}Z-aaaaaa" for n in range(22, 2, -1)]
    assert lines[-1] == "and 3 older eval runs; --all lists them too"
    assert len(typed("runs", "list", "--all").splitlines()) == 24
    assert typed("runs", "x", "--all") == typed("runs", "--all")
    page = json.loads(typed("runs", "--json"))
    assert (len(page["runs"]), page["not_listed"]) == (20, 3)
    for name in ("set10", "set2", "set1"):
        stored(f"{name}-20260103T000000Z-aaaaaa")
    names = [line.split("-")[0] for line in typed("runs").splitlines()[1:4]]
    assert names == ["set1", "set2", "set10"], "evals that began together are in natural order"
