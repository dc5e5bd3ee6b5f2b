"""The list of eval runs, read again and again while they change."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.viewer_runs import RunInProgress, SyntheticRun
from pytest_osmosis.addons.viewer.run_list import RunList
from pytest_osmosis.formats import codec
from pytest_osmosis.record.journal import encode
from pytest_osmosis.results.entry_table import entry_table
from pytest_osmosis.results.heads import RunEntry, run_entry
from tests.unit.made import MANIFEST, A, finished, published, results_of
from tests.unit.record.test_run_lock import HOLD

LOADED = {"ev": "loaded", "scorers": [A], "digests": {A: "0"}}


def store(home: Path, name: str, results: Mapping[str, Any], **manifest: Any) -> Path:
    folder = home / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps({**MANIFEST, **manifest}))
    (folder / "journal.jsonl").write_bytes(encode(LOADED))
    (folder / "results.json").write_text(json.dumps(results))
    return folder


def test_the_table_over_evals_that_ran_together_is_there_once(tmp_path: Path) -> None:
    scores = {"sums~t=0": [1.0, 0.0] * 10, "sums~t=1": [0.0] * 20}
    records = {name: [finished({A: each}, row) for row, each in enumerate(values)] for name, values in scores.items()}
    table = entry_table("configs/eval/sums.toml", {name: results_of(each) for name, each in records.items()})
    folders = [
        store(
            tmp_path,
            f"{name}-20261123T000000Z-aaaaaa",
            {**published(records[name]), "comparison": codec.encode(table)},
            entry=name,
        )
        for name in scores
    ]
    alone = store(tmp_path, "other-20261123T000000Z-aaaaaa", published(records["sums~t=0"]))
    page = RunList().page("evals", [*reversed(folders), alone])
    assert [run.name.partition("-")[0] for run in page["runs"]] == ["other", "sums~t=0", "sums~t=1"]
    (rows,) = page["tables"]
    assert [(row["name"], row["pass_rate"]) for row in rows] == [("sums~t=0", 0.5), ("sums~t=1", 0.0)]
    assert rows[0]["finding"] == ""
    assert rows[1]["finding"].startswith("worse: -0.500 over 20 rows")
    assert rows[1]["pass_rate_interval"] is not None


def test_a_damaged_table_or_interval_leaves_the_eval_run_in_the_list(tmp_path: Path) -> None:
    results = published([finished({A: 1.0}, 0)])
    summary = {**results["summary"], "pass_rate_interval": {"low": "x"}}
    folder = store(tmp_path, "x-1", {**results, "summary": summary, "comparison": {"entry": 1}}, entry="x")
    page = RunList().page("evals", [folder])
    assert page["tables"] == []
    assert page["runs"][0].status == "unreadable"
    assert "summary.pass_rate_interval.low: must be a number, got 'x'" in (page["runs"][0].problem or "")


def test_the_list_follows_an_eval_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = RunInProgress(tmp_path, SyntheticRun("support-live", rows=4, n=2))
    runs = RunList()
    read: list[Path] = []

    def counted(folder: Path, *rest: Any) -> RunEntry:
        read.append(folder)
        return run_entry(folder, *rest)

    monkeypatch.setattr("pytest_osmosis.addons.viewer.run_list.run_entry", counted)

    def row() -> tuple[str, int | None, float | None]:
        found = runs.page("evals", [made.directory.path])["runs"][0]
        return found.status, found.ended, found.pass_rate

    assert row() == ("running", 0, None)
    made.append(9)
    assert row() == ("running", 1, None)
    made.append(12)
    status, ended, _ = row()
    assert (status, ended) == ("running", made.directory.journal.read_bytes().count(b'{"ev":"rollout"'))
    lines = made.directory.journal.read_bytes().splitlines(keepends=True)
    again = next(line for line in lines if line.startswith(b'{"ev":"rollout"'))
    made.journal.append(again)
    assert row()[:2] == ("running", ended), "a run counts once, however often it was rolled out"
    n_read = len(read)
    assert row()[:2] == ("running", ended)
    assert len(read) == n_read, "nothing had changed"
    made.append()
    made.finish()
    status, ended, pass_rate = row()
    assert (status, ended) == ("finished", 8)
    assert pass_rate == json.loads(made.directory.results.read_text())["summary"]["pass_rate"]


def test_a_changed_byte_in_the_journal_of_a_run_without_results_makes_it_unreadable(tmp_path: Path) -> None:
    made = RunInProgress(tmp_path, SyntheticRun("support-live", rows=4, n=2))
    made.append(9)
    runs = RunList()
    assert runs.row(made.directory.path).status == "running"
    n_lines = made.directory.journal.read_bytes().count(b"\n")
    made.journal.append(encode({"ev": "rollout", "row": 3, "run": 1, "attempt": 1, "ms": 1}).replace(b"out", b"oat"))
    row = runs.row(made.directory.path)
    made.journal.close()
    assert row.status == "unreadable"
    assert f"journal.jsonl:{n_lines + 1}: not a journal line: its checksum (crc)" in (row.problem or "")


def test_an_eval_run_has_failed_once_its_process_is_killed_which_changes_no_file(tmp_path: Path) -> None:
    made = RunInProgress(tmp_path, SyntheticRun("support-live", rows=4, n=2))
    made.journal.close()
    runs = RunList()
    command = [sys.executable, "-c", HOLD, str(made.directory.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("taken")
        assert runs.row(made.directory.path).status == "pending"
        process.kill()
    assert runs.row(made.directory.path).status == "failed"
