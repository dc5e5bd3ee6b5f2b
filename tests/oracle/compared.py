"""The results and tests of a command, beside those that the model says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.oracle.model import TOKENS, Baseline, Run, Session
from tests.plugin.workspaces import junit_cases


def baseline_of(session: Session) -> Baseline:
    """Return the file that a session's results make."""
    rows: dict[tuple[int, int], list[bool | None]] = {}
    for (row, _), each in session.outcomes.items():
        passed = each.passed if each is not None and each.measured else None
        rows.setdefault((row, session.content[row]), []).append(passed)
    return rows


def differences(results: Mapping[str, Any], session: Session) -> Iterable[tuple[str, tuple[object, object]]]:
    """Yield what the results hold by its name, as seen and as the model says."""
    runs, expected = runs_of(results), _expected_runs(session)
    yield "differing runs", (_only(runs, expected), _only(expected, runs))
    pending = {(each["row_index"], each["run_index"]) for each in results["pending"]}
    missing = {run for run, each in session.outcomes.items() if each is None}
    yield "pending runs", (pending - session.may_lack, missing - session.may_lack)
    yield "partial", (results["partial"], not session.whole or session.shard)
    yield "verdicts", ({_gate(each["gate"]): each["state"] for each in results["gates"]}, session.verdicts())
    summary, counts = results["summary"], session.counts
    mean = summary["eval_fns"]["rewards:score"]["mean"]
    for name in ("measured", "boundaries", "rolled_out_again"):
        yield name, (summary[name], counts[name])
    for name, value in (("pass_rate", summary["pass_rate"]), ("mean", mean)):
        yield name, (_rounded(value), _rounded(counts[name]))
    yield "total_tokens", (summary["total_tokens"], TOKENS * len(session.answered))


def runs_of(results: Mapping[str, Any]) -> dict[Run, object]:
    return {
        (row["row_index"], run["run_index"]): (run.get("boundary"), run["scores"].get("rewards:score"), run["passed"])
        for row in results["rows"]
        for run in row["runs"]
    }


def _expected_runs(session: Session) -> dict[Run, object]:
    return {run: (e.boundary, None if e.boundary else e.score, e.passed) for run, e in session.ended.items()}


def _only(these: Mapping[Run, object], those: Mapping[Run, object]) -> dict[Run, object]:
    return {run: value for run, value in these.items() if those.get(run) != value}


def _rounded(value: Any) -> float | None:
    return None if value is None else round(float(value), 9)


def _gate(title: str) -> str:
    return title.split(" ")[0]


def tests_of(file: Path, session: Session) -> tuple[dict[str, str], dict[str, str]]:
    """Return the outcomes of tests that differ, seen and expected. Tests of stops and the like may come on top."""
    expected = session.tests()
    seen = {}
    for name, case in junit_cases(file).items() if file.exists() else ():
        test = name.removeprefix("x[").removesuffix("]")
        key = " ".join(test.split(" ")[:2]) if test.startswith("gate ") else test
        if key in expected:
            seen[key] = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
    differing = [name for name in expected if seen.get(name) != expected[name]]
    return {name: seen.get(name, "none") for name in differing}, {name: expected[name] for name in differing}
