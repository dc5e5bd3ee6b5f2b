"""`pytest-osmosis runs export --format=jsonl|csv|parquet`."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from pytest_osmosis.record.journal import encode
from pytest_osmosis.results.export_table import MEMBERS
from tests.cli.real_runs import FORMULA, RealRuns
from tests.cli.stored_runs import ROLLOUT, SCORE, Cli, Stored


@pytest.fixture
def there(real_runs: RealRuns, typed: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(real_runs.root)
    for name in ("CI", "TF_BUILD", "TEAMCITY_VERSION"):
        monkeypatch.delenv(name, raising=False)
    return typed


def jsonl(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_for_each_run_holds_what_results_and_conversation_say(there: Cli, real_runs: RealRuns) -> None:
    lines = jsonl(there("runs", "export", real_runs.then.name, "--format=jsonl"))
    results = json.loads((real_runs.then / "results.json").read_text())
    published = [(row, run) for row in results["rows"] for run in row["runs"]]
    assert len(lines) == len(published) == 14
    for line, (row, run) in zip(lines, published, strict=True):
        assert list(line) == [*MEMBERS, "messages"]
        assert (line["row_index"], line["row_digest"]) == (row["row_index"], row["row_digest"])
        same = ("run_index", "scores", "status", "success", "tokens", "cost_usd", "duration_ms", "retries", "attempt")
        assert {key: line[key] for key in same} == {key: run[key] for key in same}
        assert line["boundary"] == run.get("boundary")
        assert line["input_tokens"] + line["output_tokens"] == line["tokens"]
        assert line["messages"][0]["content"] == line["prompt"] == f"What is {row['row_index']} * 2?"
        assert line["messages"][-1]["content"] == line["answer"]
        assert (line["ground_truth"], line["eval_run"]) == (str(row["row_index"] * 2), real_runs.then.name)
    first, broken = lines[0], lines[8]
    assert (first["run"], first["outcome"], first["passed"]) == ("row0-run0", "passed", True)
    assert first["metrics"]["rewards:score"]["words"] == len(first["answer"].split())
    assert (broken["outcome"], broken["passed"], broken["boundary"]) == ("error", None, "reward")
    assert broken["errors"] == {"rewards:score": "ZeroDivisionError: the reward function broke"}
    assert broken["error"] == "rewards:score: ZeroDivisionError: the reward function broke"


def test_csv_has_the_same_values_in_flat_columns_and_changes_none(there: Cli, tmp_path: Path) -> None:
    lines = jsonl(there("runs", "export", "x", "--format=jsonl"))
    path = tmp_path / "new folder" / "runs.csv"
    said = there("runs", "export", "x", "--format=csv", "-o", str(path))
    assert said.endswith(f"runs.csv: 14 runs of {lines[0]['eval_run']}\n")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert path.read_text() == there("runs", "export", "x", "--format=csv")
    flat = [key for key, (kind, _) in MEMBERS.items() if kind is not None]
    assert [key for key in rows[0] if "." not in key] == flat
    for row, line in zip(rows, lines, strict=True):
        assert [row[key] for key in ("run", "row_digest", "prompt", "answer")] == [
            line[key] for key in ("run", "row_digest", "prompt", "answer")
        ]
        assert row["passed"] == {True: "true", False: "false", None: ""}[line["passed"]]
        assert row["scores.rewards:score"] == (str(line["scores"]["rewards:score"]) if line["scores"] else "")
        assert row["reasons.rewards:score"] == (FORMULA if line["reasons"] else "")


def test_parquet_has_the_types_of_its_columns(there: Cli, tmp_path: Path) -> None:
    lines = jsonl(there("runs", "export", "x", "--format=jsonl"))
    there("runs", "export", "x", "--format=parquet", "-o", str(tmp_path / "runs.parquet"))
    table = parquet.read_table(tmp_path / "runs.parquet")
    types = {field.name: field.type for field in table.schema}
    assert (types["row_index"], types["passed"]) == (pyarrow.int64(), pyarrow.bool_())
    assert types["scores.rewards:score"] == types["metrics.rewards:score.words"] == pyarrow.float64()
    assert table["passed"].to_pylist() == [line["passed"] for line in lines]
    assert table["scores.rewards:score"].to_pylist() == [line["scores"].get("rewards:score") for line in lines]
    assert table["answer"].to_pylist() == [line["answer"] for line in lines]


def test_an_eval_run_without_results_is_exported_as_far_as_it_got(
    typed: Cli, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = {"ev": "start", "row": 0, "run": 0, "attempt": 1, "at": "2026-01-01T00:00:00+00:00"}
    never = {"ev": "skip", "row": 1, "run": 0, "reason": "interrupted"}
    stored("killed", begun, ROLLOUT, SCORE, never, results=None)
    pending, done = jsonl(typed("runs", "export", "killed", "--format=jsonl"))
    assert (pending["run"], pending["status"], pending["outcome"], pending["prompt"]) == (
        "row0-run0",
        "pending",
        "pending",
        None,
    )
    assert (done["scores"], done["answer"], done["passed"]) == ({"rewards:exact": 0.25}, "two\n\x1b[31mred", None)


def test_texts_that_utf8_or_a_column_cannot_hold_do_not_break_a_table(
    typed: Cli, stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-0123456789abcdef")
    odd = [{"role": "user", "content": "\ud800 \0 sk-proj-0123456789abcdef"}, {"role": "assistant", "content": "a"}]
    noted = {
        **SCORE,
        "errors": {},
        "scores": {"rewards:exact": 1, "rewards:style": 1},
        "ground_truth": {"a": ["\ud800"]},
    }
    noted["metrics"] = {"rewards:exact": {"b.c": 1}, "rewards:exact.b": {"c": 2, "\ud800": 3}}
    stored("odd", {**ROLLOUT, "messages": odd, "n_prompt": 1}, noted, results=None)
    (line,) = jsonl(typed("runs", "export", "odd", "--format=jsonl"))
    assert line["prompt"] == "\ud800 \0 [OPENAI_API_KEY]"
    assert line["ground_truth"] == {"a": ["\ud800"]}
    for format in ("csv", "parquet"):
        typed("runs", "export", "odd", f"--format={format}", "-o", f"odd.{format}")
    (row,) = parquet.read_table(tmp_path / "odd.parquet").to_pylist()
    with (tmp_path / "odd.csv").open(encoding="utf-8", newline="") as file:
        (cells,) = csv.DictReader(file)
    assert row["prompt"] == cells["prompt"] == "\\ud800 \0 [OPENAI_API_KEY]"
    assert row["ground_truth"] == cells["ground_truth"] == '{"a": ["\\ud800"]}'
    assert row["metrics.rewards:exact.b.\\ud800"] == 3.0 == float(cells["metrics.rewards:exact.b.\\ud800"])
    assert [row[f"metrics.rewards:exact.b.c{suffix}"] for suffix in ("", "#2")] == [1.0, 2.0]


def test_the_files_of_prime_eval_hold_all_runs_that_ended(there: Cli, real_runs: RealRuns, tmp_path: Path) -> None:
    said = there("runs", "export", real_runs.then.name, "--format=prime", "-o", str(tmp_path / "new" / "x"))
    assert said.endswith(f"results.jsonl and metadata.json, 14 runs of {real_runs.then.name}\n")
    folder = tmp_path / "new" / "x"
    lines, metadata = jsonl((folder / "results.jsonl").read_text()), json.loads((folder / "metadata.json").read_text())
    table = jsonl(there("runs", "export", real_runs.then.name, "--format=jsonl"))
    for line, run in zip(lines, table, strict=True):
        assert (line["example_id"], line["run_index"], line["answer"]) == (
            run["row_index"],
            run["run_index"],
            str(2 * run["row_index"]) if run["ground_truth"] is not None else "",
        )
        assert line["reward"] == run["scores"].get("rewards:score", 0.0)
        assert [*line["prompt"], *line["completion"]] == run["messages"]
        assert (line["error"] is None) == (run["error"] is None)
        assert line["timing"]["generation_ms"] == run["duration_ms"]
    assert (metadata["num_examples"], metadata["rollouts_per_example"]) == (7, 2)
    assert metadata["avg_reward"] == 10 / 14
    assert metadata["pass_at_k"] == metadata["pass_all_k"] == {"1": 5 / 7, "2": 5 / 7}
    assert {path.name for path in folder.iterdir()} == {"results.jsonl", "metadata.json"}
    again = ("runs", "export", real_runs.then.name, "--format=prime", "-o", str(folder))
    assert there(*again) == said
    other = there("runs", "export", real_runs.other.name, "--format=prime", "-o", str(folder), fails=1)
    assert "results.jsonl of something else" in other


def test_what_cannot_be_exported_says_why(there: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "-o FILE" in there("runs", "export", "x", "--format=parquet", fails=1)
    assert "-o DIR" in there("runs", "export", "x", "--format=prime", fails=1)
    assert "it is a folder" in there("runs", "export", "x", "--format=csv", "-o", str(tmp_path), fails=1)
    assert 'did you mean "x"' in there("runs", "export", "xx", "--format=csv", fails=1)
    monkeypatch.setenv("CI", "true")
    assert "-o FILE" in there("runs", "export", "x", "--format=csv", fails=1)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    said = there("runs", "export", "x", "--format=parquet", "-o", str(tmp_path / "x"), fails=1)
    assert 'pip install "pytest-osmosis[parquet]"' in said
    assert not list(tmp_path.iterdir())


MOST_KB = 30_000
PEAKS = """
import pathlib, re
from pytest_osmosis.cli import main
from pytest_osmosis.results import table_files

table_files.BYTES_AT_ONCE = 1 << 20  # Parquet takes some seven times that
for format in ("jsonl", "csv", "parquet"):
    for run in ("short", "long"):
        assert main(["runs", "export", run, f"--format={format}", "-o", "out"]) == 0
        print("peak", re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_texts(typed: Cli, stored: Stored, tmp_path: Path) -> None:
    for name, length in (("short", 1), ("long", 100_000)):
        texts = [{"role": "user", "content": "x" * length}, {"role": "assistant", "content": "y"}]
        with (stored(name, results=None) / "journal.jsonl").open("ab") as journal:
            for row in range(300):  # 30 MB of long texts
                journal.write(encode({**ROLLOUT, "row": row, "messages": texts, "n_prompt": 1}))

    done = subprocess.run([sys.executable, "-c", PEAKS], cwd=tmp_path, capture_output=True, text=True, check=True)

    peaks = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("peak")]
    grown_kb = [long - short for short, long in zip(peaks[::2], peaks[1::2], strict=True)]
    assert max(grown_kb) < MOST_KB, grown_kb


def test_results_are_exported_as_they_were_written_and_of_a_dead_run_from_its_journal(
    there: Cli, real_runs: RealRuns, tmp_path: Path
) -> None:
    written = json.loads((real_runs.then / "results.json").read_text())
    dead = real_runs.root / ".osmosis" / "runs" / f"{real_runs.then.name}0"
    shutil.copytree(real_runs.then, dead)
    (dead / "results.json").unlink()

    exported = json.loads(there("runs", "export", real_runs.then.name))
    there("runs", "export", str(dead), "-o", str(tmp_path / "rebuilt.json"))
    shutil.rmtree(dead)

    assert exported == written
    rebuilt = json.loads((tmp_path / "rebuilt.json").read_text())
    assert rebuilt["rows"] == written["rows"]
    assert rebuilt["summary"]["eval_fns"] == written["summary"]["eval_fns"]
