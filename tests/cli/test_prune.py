"""`pytest-osmosis runs prune`."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pytest_osmosis.record import run_removal
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_lock import RunLock
from pytest_osmosis.results.pruning import PruneRules, prune_plan
from tests.cli.real_runs import RealRuns
from tests.cli.stored_runs import RESULTS, Cli, Stored
from tests.unit.made import PROVENANCE

NOW = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.fixture
def runs(real_runs: RealRuns, typed: Cli, tmp_path: Path) -> RealRuns:
    """A copy of the runs in the folder where `typed` types."""
    return real_runs.copied(tmp_path)


def names(runs: RealRuns) -> set[str]:
    return {path.name for path in runs.then.parent.iterdir()}


def ended(days_ago: int, plan: str = "0") -> dict[str, object]:
    """Results of a plan that ended so many days before `NOW`."""
    at = (NOW - timedelta(days=days_ago)).isoformat()
    return {**RESULTS, "provenance": {**PROVENANCE, "finished_at": at, "plan_digest": plan * 32}}


def chosen(folder: Path, **rules: object) -> dict[str, str]:
    plan = prune_plan(folder, PruneRules(**rules), NOW)  # type: ignore[arg-type]
    return {run.directory.name: run.why for run in plan.removed}


def test_the_oldest_go_and_what_is_needed_stays(runs: RealRuns, typed: Cli) -> None:
    before = names(runs)
    said = typed("runs", "prune", "--keep=0", "--dry-run")
    assert said.startswith("to be removed: 1 of 3 eval runs, ")
    assert names(runs) == before
    assert f"  {runs.then.name}  finished" in said
    needed = said.partition("kept, though the rules choose them:\n")[2].splitlines()
    assert [line.split()[0] for line in needed] == [runs.other.name, runs.now.name]
    assert all(line.endswith("the next run of its plan is compared with its results.json") for line in needed)
    assert typed("runs", "prune", "--keep=0", "--yes").splitlines()[-1].startswith("removed 1 eval run, ")
    assert names(runs) == before - {runs.then.name}
    assert typed("runs", "prune", "--keep=2", "--yes").startswith("nothing to remove: 2 eval runs, ")


def test_what_a_baseline_refers_to_stays(runs: RealRuns, typed: Cli) -> None:
    config = runs.root / "configs/eval/x.toml"
    shutil.copy(runs.then / "results.json", runs.root / "old.json")
    config.write_text(config.read_text() + '[baseline]\nresults = "old.json"\n')
    said = typed("runs", "prune", "--keep=0", "--yes")
    assert "nothing to remove" in said
    assert f"{runs.then.name}" in said
    assert "the source of the baseline old.json" in said
    config.write_text(config.read_text().replace("old.json", str(runs.then.relative_to(runs.root) / "results.json")))
    assert "holds a baseline" in typed("runs", "prune", "--keep=0", "--yes")
    (runs.then / "results.json").write_text("{")
    said = typed("runs", "prune", "--keep=0", "--yes", fails=1)
    assert "it is a baseline, and the eval run that made it must be kept: mend or remove it" in said
    assert runs.then.is_dir()


def test_a_baseline_of_the_command_line_is_in_the_manifest(runs: RealRuns, typed: Cli) -> None:
    shutil.copy(runs.then / "results.json", runs.root / "old.json")
    manifest = json.loads((runs.now / "manifest.json").read_text())
    assert manifest["baseline_results"] is None
    (runs.now / "manifest.json").write_text(json.dumps({**manifest, "baseline_results": str(runs.root / "old.json")}))
    assert "the source of the baseline old.json" in typed("runs", "prune", "--keep=0", "--yes")


def test_a_run_that_is_written_stays(runs: RealRuns, typed: Cli) -> None:
    lock = RunLock.take(RunDirectory(runs.then))
    try:
        said = typed("runs", "prune", "--keep=0", "--yes")
    finally:
        lock.close()
    assert f"  {runs.then.name}  pending" in said or f"  {runs.then.name}  running" in said
    assert runs.then.is_dir()


def test_age_number_and_size_choose(tmp_path: Path, stored: Stored) -> None:
    for name, days, plan in (
        ("new", 1, "0"),
        ("old", 40, "0"),
        ("older", 50, "0"),
        ("other", 60, "1"),
        ("last", 70, "1"),
    ):
        folder = stored(f"{name}-1", results=ended(days, plan), age_s=days * 86_400)
        os.utime(folder / "results.json", ((NOW - timedelta(days=days)).timestamp(),) * 2)
    month = timedelta(days=30)
    assert chosen(tmp_path, older_than=month) == {
        "old-1": "ended 40 days ago",
        "older-1": "ended 50 days ago",
        "last-1": "ended 70 days ago",
    }, "the newest of each plan stays, however old"
    assert [*chosen(tmp_path, older_than=month, keep=3)] == ["last-1"]
    assert [*chosen(tmp_path, keep=1)] == ["old-1", "older-1", "last-1"]
    assert [*chosen(tmp_path, keep_per_eval=2)] == ["older-1", "last-1"]
    assert chosen(tmp_path, keep=2, keep_per_eval=2)["older-1"] == "not among the newest 2 or 2 of its eval"
    size = prune_plan(tmp_path, PruneRules(keep=9), NOW).n_bytes
    assert size == sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert chosen(tmp_path, max_bytes=size) == {}
    assert chosen(tmp_path, max_bytes=size - 1) == {"last-1": "all runs together are too large"}
    tiny = prune_plan(tmp_path, PruneRules(max_bytes=1), NOW)
    assert [run.directory.name for run in tiny.removed] == ["old-1", "older-1", "last-1"]
    assert tiny.too_large == size - tiny.freed_bytes


def test_links_are_not_followed(runs: RealRuns, typed: Cli, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "precious").write_text("x" * 10_000_000)
    (runs.then / "artifacts").mkdir(exist_ok=True)
    (runs.then / "artifacts/link").symlink_to(elsewhere)
    (runs.then / "artifacts/sealed").mkdir()
    (runs.then / "artifacts/sealed/file").write_text("x")
    (runs.then / "artifacts/sealed").chmod(0o500)
    linked = runs.now.with_name("linked-20200101T000000Z-aaaaaa")
    shutil.move(runs.now, elsewhere / "run")
    linked.symlink_to(elsewhere / "run")
    found = json.loads(typed("runs", "prune", "--keep=0", "--yes", "--json"))
    assert [run["run"] for run in found["removed"]] == [runs.then.name]
    assert found["freed_bytes"] == found["removed"][0]["bytes"] < 1_000_000
    assert {run["run"]: run["why"] for run in found["kept"]}[linked.name] == "is a link, which is not followed"
    assert (elsewhere / "precious").exists()
    assert (elsewhere / "run/manifest.json").exists()
    assert not runs.then.exists()


def test_an_interrupted_removal_is_finished_by_the_next(runs: RealRuns, typed: Cli) -> None:
    program = (
        "import sys; from pytest_osmosis import cli; from pytest_osmosis.record import run_removal\n"
        "def interrupted(folder): raise KeyboardInterrupt\n"
        "run_removal._delete = interrupted\n"
        "sys.exit(cli.main(['runs', 'prune', '--keep=0', '--yes']))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=runs.root, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert "interrupted: removed 0 of 1 eval run; the next prune deletes what is left of the last one" in done.stdout
    assert not runs.then.exists()
    (left,) = (runs.then.parent / run_removal.REMOVED).iterdir()
    assert (left / "journal.jsonl").exists()
    assert len(typed("runs").splitlines()) == 3
    typed("runs", "prune", "--keep=9", "--yes")
    assert run_removal.REMOVED not in names(runs)


def test_without_a_terminal_nothing_goes_unless_yes_is_typed(runs: RealRuns, typed: Cli) -> None:
    for options in ([], ["--json"]):
        said = typed("runs", "prune", "--keep=0", *options, fails=1)
        assert said == "runs prune: nobody can be asked here; --yes removes without asking, --dry-run only shows\n"
    found = json.loads(typed("runs", "prune", "--keep=0", "--json", "--dry-run"))
    assert (found["dry_run"], found["schema_version"], len(found["removed"]), len(found["kept"])) == (True, 1, 1, 2)
    assert "needs a rule: --older-than" in typed("runs", "prune", "--yes", fails=1)
    assert len(names(runs)) == 3


@pytest.mark.parametrize(("typed_answer", "goes"), [("y\n", True), ("\n", False), ("no\n", False)])
def test_at_a_terminal_it_asks(runs: RealRuns, typed_answer: str, goes: bool) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "pytest_osmosis", "runs", "prune", "--keep=0", "--color=no"]
    process = subprocess.Popen(command, cwd=runs.root, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, typed_answer.encode())
    said = b""
    while True:
        try:
            read = os.read(ours, 65536)
        except OSError:  # the terminal is closed
            break
        if not read:
            break
        said += read
    assert process.wait(60) == (0 if goes else 1)
    assert b"remove 1 eval run? [y/N] " in said
    assert (b"nothing was removed" in said) is not goes
    assert runs.then.exists() is not goes


@pytest.mark.parametrize(
    "option", ["--older-than=30", "--older-than=3months", "--max-size=2G", "--keep=-1", "--keep=x"]
)
def test_values_that_are_none_are_usage_errors(typed: Cli, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        typed("runs", "prune", option)
    assert "must be a number" in capsys.readouterr().err
