"""`pytest-osmosis runs wait` on eval runs that are over: its exit status is that of the pytest which ran them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from pytest_osmosis.addons.viewer import wait
from tests.plugin.workspaces import BROKEN, CONFIG, FAIL, PASS, Row, Workspace

HALF = [PASS, FAIL]
GATE: Mapping[str, Any] = {"gate": {"pass_rate": ">= 0.5"}}
SESSIONS: Mapping[str, tuple[int, list[Row], Mapping[str, Any], list[str]]] = {
    "gate holds": (0, HALF, GATE, []),
    "gate fails": (1, HALF, GATE, ["--osmosis-gate=pass_rate >= 0.9"]),
    "nothing measured": (9, [BROKEN] * 2, GATE, []),
    "a limit": (9, HALF, {}, ["--osmosis-set=limits.max_tokens=1"]),
    "a limit, the gate is decided": (0, HALF, GATE, ["--osmosis-set=limits.max_tokens=1"]),
    "part under a gate": (1, HALF, GATE, ["-k", "row1"]),
    "-x": (1, HALF, {}, ["-x"]),
    "smoke": (0, HALF, GATE, ["--osmosis-smoke"]),
    "shard that is not measured": (9, [BROKEN] * 2, GATE, ["--osmosis-shard=2/2"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", SESSIONS)
def test_an_eval_run_that_is_over_has_the_exit_status_of_its_pytest(workspace: Workspace, case: str) -> None:
    status, rows, tables, words = SESSIONS[case]
    workspace.eval(rows=rows, **tables)
    workspace.run(CONFIG, *words, exits=status)
    waited = workspace.cli("runs", "wait", "latest")
    assert waited.ret == status, waited.outlines
    assert waited.outlines[-1].endswith(f"(exit status {status})")


def test_an_eval_run_that_is_not_there_is_no_verdict(workspace: Workspace) -> None:
    workspace.eval()
    assert workspace.cli("runs", "wait", "nightly").ret == 4
    assert workspace.cli("runs", "wait", "nightly", "--timeout=soon").ret == 2


@pytest.mark.slow
def test_results_of_an_earlier_session_are_no_verdict(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "RESULTS_S", 0.0)
    workspace.eval(rows=[{}])
    workspace.run(CONFIG, exits=0)
    earlier = (workspace.run_dirs()[-1] / "results.json").read_bytes()
    workspace.eval(rows=[BROKEN] * 2)
    workspace.run(CONFIG, exits=9)
    results = workspace.run_dirs()[-1] / "results.json"
    results.write_bytes(earlier)
    assert workspace.cli("runs", "wait", "latest").ret == 0
    os.utime(results, (0, 0))
    assert workspace.cli("runs", "wait", "latest").ret == 9
