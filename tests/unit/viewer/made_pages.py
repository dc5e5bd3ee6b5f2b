"""Pages of the front end, made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_osmosis.addons.viewer.run_entry import RunEntry
from pytest_osmosis.addons.viewer.shapes import Outcome, RunPage, RunsPage

RESULTS = {"summary": {}, "config": {"decide": "run"}, "gates": [{"gate": "pass_rate >= 0.9", "state": "fails"}]}
OUTCOMES: Sequence[Outcome] = ("passed", "failed", "unmeasured", "removed", "running", "pending")


def run_entry(name: str) -> RunEntry:
    return RunEntry(
        name=name, path=f".osmosis/runs/{name}", eval="sums", status="finished", model="m", dataset="d.jsonl",
        started_at="2026-11-22T14:03:00Z", duration_s=0.001, passed=1, measured=2, counted=2, ended=3, selected=3,
        pass_rate=0.5, gates=["fails"], tokens=3,
    )  # fmt: skip


def run_page(name: str, outcomes: Sequence[int], prompt: str = "1 + 1?") -> RunPage:
    """Return a page of an eval run with one run for each row, of these outcomes (positions in `OUTCOMES`)."""
    n = len(outcomes)
    return {
        "head": {
            "row": run_entry(name), "path": f".osmosis/runs/{name}",
            "models": ["m"], "circumstances": [],
            "remarks": [], "verdict": ["gate pass_rate >= 0.9: FAILS: 0.5"], "account": [],
            "functions": [{"name": "reward", "model": 0, "threshold": 1.0, "decides": True, "statistics": {}}],
            "curves": [], "slices": [], "no_slices": "", "results": RESULTS, "outcomes": OUTCOMES,
            "boundaries": ["provider"], "errors": ["401 <b>no key</b>"], "finish_reasons": [], "rerun": None,
            "html_conversations": "all",
        },
        "rows": {"index": list(range(n)), "prompt": [prompt] * n},
        "runs": {
            "row": list(range(n)), "run": [0] * n, "model": [0] * n, "outcome": outcomes,
            "boundary": [0 if each == 2 else -1 for each in outcomes],
            "error": [0 if each == 2 else -1 for each in outcomes],
            "scores": {"reward": [1.0 if each == 0 else 0.25 for each in outcomes]}, "metrics": {},
            "duration_ms": [1.0] * n, "tokens": [1] * n, "cost_usd": [None] * n, "turns": [1] * n,
            "finish_reason": [-1] * n, "chunk": [], "line": [],
        },
    }  # fmt: skip


def list_of(*pages: RunPage) -> RunsPage:
    return {"workspace": "w", "runs": [page["head"]["row"] for page in pages], "tables": []}
