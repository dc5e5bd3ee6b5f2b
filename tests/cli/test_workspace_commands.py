"""`pytest-osmosis` and `python -m pytest_osmosis`: begin a workspace, run it, and look at it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis import __version__, cli
from pytest_osmosis.cli.init import create_workspace
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.journal import encode
from tests.unit.made import BROKE, MANIFEST, finished, published

Cli = Callable[..., Any]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command in an empty folder, check its exit status (0, or `fails`) and return what it prints."""
    monkeypatch.chdir(tmp_path)

    def typed(*arguments: str, fails: int = 0) -> str:
        assert cli.main(arguments) == fails
        said = capsys.readouterr()
        return said.err if fails else said.out

    return typed


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120
    )
    return done


# -- init --------------------------------------------------------------------------------------------------


def test_a_new_workspace_runs_green_by_the_command_that_init_prints(tmp_path: Path) -> None:
    began = python(tmp_path, "-m", "pytest_osmosis", "init", "sums")
    command = began.stdout.splitlines()[-1].split()
    assert command[0] == "pytest"

    ran = python(tmp_path, "-m", "pytest", "-p", "no:asyncio", *command[1:])
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "40 rollouts" in ran.stdout
    assert "note:" not in ran.stdout
    shown = python(tmp_path, "-m", "pytest_osmosis", "show", "row3-run1").stdout
    assert "assistant:\n    56 + 37 = 93\n" in shown
    assert "  reward 1 >= 1\n" in shown
    listed = python(tmp_path, "-m", "pytest_osmosis", "runs").stdout.splitlines()
    assert re.fullmatch(r"sums-\S+ +\S+ \S+ +finished +20 +40 +0\.\d+ +\d+ +\$0", listed[1])


def test_init_writes_what_it_says_and_no_more(typed: Cli, tmp_path: Path) -> None:
    said = typed("init", "my-sums")
    written = {line.split()[1] for line in said.splitlines() if line.startswith("written")}
    assert written == {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    rows = (tmp_path / "data/my-sums.jsonl").read_text().splitlines()
    assert len({json.loads(row)["user_prompt"] for row in rows}) == 20
    assert [path for path in written if re.search("@[a-z]+@", (tmp_path / path).read_text())] == []


def test_init_never_overwrites_an_eval(typed: Cli, tmp_path: Path) -> None:
    config = tmp_path / "configs/eval/sums.toml"
    config.parent.mkdir(parents=True)
    config.write_text("mine")
    assert typed("init", "sums", fails=1) == (
        "init sums: cannot overwrite configs/eval/sums.toml; choose another name or delete it\n"
    )
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["sums.toml"]
    assert config.read_text() == "mine"


def test_a_second_eval_keeps_the_shared_files_and_still_runs(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text("mine = 1\n")
    said = create_workspace(tmp_path, "sums")
    assert "kept     rewards.py (it exists already)" in said
    assert (tmp_path / "rewards.py").read_text() == "mine = 1\n"
    ran = python(tmp_path, "-m", "pytest", "-p", "no:asyncio", *said[-1].split()[1:])
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-x", "a b", "x.toml", "é"])
def test_init_takes_no_name_that_is_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(OsmosisError, match="the name must be letters"):
        create_workspace(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


# -- show and runs -----------------------------------------------------------------------------------------

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
MESSAGES = [
    {"role": "user", "content": [{"type": "text", "text": "1 + 1?"}, {"type": "image_url", "image_url": {}}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "2"},
    {"role": "assistant", "content": "two\n\x1b[31mred"},
]
LOADED = {"ev": "loaded", "scorers": ["rewards:exact", "rewards:style"]}
ROLLOUT = {
    "ev": "rollout",
    "row": 3,
    "run": 1,
    "attempt": 1,
    "ms": 1500.0,
    "messages": MESSAGES,
    "finish_reason": "stop",
    "usage": {"input_tokens": 1200, "output_tokens": 7},
    "model": "m",
    "retries": 2,
    "output": {"stdout": "printed\n"},
}
SCORE = {
    "ev": "score",
    "row": 3,
    "run": 1,
    "attempt": 1,
    "ms": 20.0,
    "scores": {"rewards:exact": 0.25},
    "errors": {"rewards:style": {"message": "ValueError: no style", "details": "Traceback\n  line"}},
}
A, B = "rewards:exact", "rewards:style"
RECORDS = [finished({A: 0.25}, 3, 0), finished({A: 0.25}, 3, 1, errors={B: BROKE})]
RESULTS = published(RECORDS, scorers=(A, B), decide=A, thresholds={A: 0.5}, n=2)
RESULTS["summary"] |= {"total_rows": 1000, "total_runs": 4000, "selected": 2000, "pass_rate": 0.5}
RESULTS["summary"] |= {"total_tokens": 12345, "cost_usd": 1.25, "cost_unknown": 0}
RESULTS["provenance"]["started_at"] = "2026-01-02T03:04:05.678+00:00"
for run, cost_usd in zip(RESULTS["rows"][0]["runs"], (9.0, 0.0123), strict=True):
    run["cost_usd"] = cost_usd


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., Path]:
    """The folder of an eval run that ended earlier, `age_s` seconds ago."""

    def stored(name: str, *events: Any, results: Any = RESULTS, age_s: int = 100) -> Path:
        folder = tmp_path / ".osmosis/runs" / name
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(json.dumps(MANIFEST))
        os.utime(folder / "manifest.json", (2_000_000_000 - age_s,) * 2)
        (folder / "journal.jsonl").write_bytes(b"".join(map(encode, (LOADED, *events))))
        if results is not None:
            (folder / "results.json").write_text(results if isinstance(results, str) else json.dumps(results))
        return folder

    return stored


WHOLE = """\
x-1 row3-run1: did not pass
  model m, rollout 1.5 s, scoring 0.02 s, 1,200 + 7 tokens, $0.012, finish reason stop, 2 repeated requests
  rewards:exact 0.25 < 0.5
  rewards:style: ValueError: no style (does not decide)
      Traceback
        line

user:
    1 + 1?
    [image_url]

assistant:
    -> add({"a": 1}) (c1)

tool (c1):
    2

assistant:
    two
    \\x1b[31mred

stdout:
    printed
"""


@pytest.mark.parametrize("name", ["latest", "x-1", "x", ".osmosis/runs/x-1", None])
def test_show_prints_the_stored_conversation(typed: Cli, stored: Callable[..., Path], name: str | None) -> None:
    stored("x-1", ROLLOUT, SCORE)
    assert typed("show", *([name] if name else []), "row3-run1") == WHOLE


@pytest.mark.parametrize(
    ("messages", "fault"),
    [(MESSAGES[:1], "the rollout has no assistant message"), (MESSAGES[:2], "assistant messages only call tools")],
)
def test_show_says_that_there_is_no_answer(
    typed: Cli, stored: Callable[..., Path], messages: list[Any], fault: str
) -> None:
    stored("x-1", {**ROLLOUT, "messages": messages, "n_prompt": 1}, SCORE)
    assert f"{fault}\n\nuser:" in typed("show", "latest", "row3-run1")


def test_show_takes_a_node_id_and_looks_above(
    typed: Cli, stored: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored("x-1", ROLLOUT, SCORE)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert typed("show", "configs/eval/x.toml::x[row3-run1]") == WHOLE


def test_latest_is_the_newest(typed: Cli, stored: Callable[..., Path]) -> None:
    stored("a", ROLLOUT, SCORE, age_s=1)
    stored("b", ROLLOUT, SCORE, age_s=2)
    assert typed("show", "row3-run1").startswith("a row3-run1")


def test_show_of_a_rollout_that_broke(typed: Cli, stored: Callable[..., Path]) -> None:
    broken = {**ROLLOUT, "boundary": "agent", "error": "RuntimeError: \x07", "details": "Traceback", "usage": None}
    stored("x-1", {**broken, "attempt": 2})
    lines = typed("show", "row3-run1").splitlines()
    assert lines[0] == "x-1 row3-run1: not scored, boundary agent"
    assert lines[1].endswith("tokens unknown, $0.012, finish reason stop, 2 repeated requests, attempt 2")
    assert lines[2:4] == ["  error: RuntimeError: \\x07", "    Traceback"]


def test_show_of_a_killed_eval_says_that_thresholds_are_not_known(typed: Cli, stored: Callable[..., Path]) -> None:
    stored("x-1", ROLLOUT, SCORE, results=None)
    lines = typed("show", "row3-run1").splitlines()
    assert lines[0] == (
        "x-1 row3-run1: scored; the eval ended before it wrote results, so the thresholds are not known"
    )
    assert lines[2] == "  rewards:exact 0.25"


def test_show_of_a_run_that_never_ran(typed: Cli, stored: Callable[..., Path]) -> None:
    stored("x-1", {"ev": "skip", "row": 3, "run": 1, "reason": "401"})
    assert typed("show", "row3-run1").startswith("x-1 row3-run1: not finished (401)\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["row9-run0"], "row9-run0: not in .osmosis/runs/x-1, which holds 1 rollout, the last of row3-run1"),
        (["row3"], '"row3": must be a run like row3-run1, or a node id that ends in [row3-run1]'),
        (["y", "row3-run1"], 'run "y": not found in .osmosis/runs; the newest are x-1, x-2'),
        (["x", "row3-run1"], 'run "x": matches 2 runs, x-1, x-2; type more of the name'),
    ],
)
def test_show_says_what_is_wrong(typed: Cli, stored: Callable[..., Path], arguments: list[str], said: str) -> None:
    stored("x-1", ROLLOUT, SCORE, age_s=1)
    stored("x-2", age_s=2)
    assert typed("show", *arguments, fails=1).startswith(said)


def test_show_names_the_place_where_results_are_not_valid(typed: Cli, stored: Callable[..., Path]) -> None:
    runs = [{**RESULTS["rows"][0]["runs"][0], "passed": "no"}]
    stored("x-1", ROLLOUT, SCORE, results={**RESULTS, "rows": [{**RESULTS["rows"][0], "runs": runs}]})

    assert typed("show", "row3-run1", fails=1) == (
        ".osmosis/runs/x-1/results.json: rows[0].runs[0].passed: 'no' is not a boolean\n"
    )


def test_show_without_any_run(typed: Cli) -> None:
    assert typed("show", "row3-run1", fails=1) == 'run "latest": not found in .osmosis/runs; there are none\n'


def test_runs_lists_the_newest_first(typed: Cli, stored: Callable[..., Path]) -> None:
    stored("old", age_s=4)
    stored("killed", results=None, age_s=3)
    stored("torn", results="{", age_s=2)
    summary = {**RESULTS["summary"], "cost_unknown": 1}
    begun = {**summary, "total_rows": 8, "pending": 1986}
    stopped = {"status": "stopped", "stop_reason": "401", "partial": True}
    stored("part", results={**RESULTS, **stopped, "summary": begun}, age_s=1)
    stored("new", results={**RESULTS, "summary": {**summary, "cost_usd": None}}, age_s=0)
    assert typed("runs").splitlines() == [
        "run           started (UTC)            status   rows         runs  pass rate  tokens      cost",
        "new     2026-01-02 03:04:05          finished  1,000        2,000      0.500  12,345   unknown",
        "part    2026-01-02 03:04:05  stopped, partial      8  14 of 2,000      0.500  12,345  >= $1.25",
        "torn                      -        unreadable      -            -          -       -         -",
        "killed  2026-01-01 00:00:00        no results      -            -          -       -         -",
        "old     2026-01-02 03:04:05          finished  1,000        2,000      0.500  12,345     $1.25",
    ]


def test_runs_without_any_run(typed: Cli) -> None:
    assert typed("runs") == "no runs in .osmosis/runs; pytest --osmosis-config=CONFIG makes one\n"


# -- the rest ----------------------------------------------------------------------------------------------


def test_version(tmp_path: Path) -> None:
    assert python(tmp_path, "-m", "pytest_osmosis", "--version").stdout == f"pytest-osmosis {__version__}\n"


def test_schema_prints_the_schema_of_results_or_of_a_config(typed: Cli) -> None:
    assert json.loads(typed("schema"))["title"] == "Results of one eval run"
    assert typed("schema", "results") == typed("schema")
    assert json.loads(typed("schema", "config"))["title"] == "Eval config of pytest-osmosis"


def test_demo_is_the_demo_server(tmp_path: Path) -> None:
    assert "python -m pytest_osmosis.demo" in python(tmp_path, "-m", "pytest_osmosis", "demo", "--help").stdout


def test_a_missing_command_is_a_usage_error(tmp_path: Path) -> None:
    done = python(tmp_path, "-m", "pytest_osmosis")
    assert (done.returncode, "usage: python -m pytest_osmosis" in done.stderr) == (2, True)


def test_the_console_script_is_the_same_program(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("pytest-osmosis")
    done = subprocess.run([script, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "usage: pytest-osmosis [-h] [--version] COMMAND ...")


@pytest.mark.parametrize("command", [["init", "x"], ["runs"], ["schema"], ["--help"], ["show", "row0-run0"]])
def test_the_commands_need_no_pytest(tmp_path: Path, command: list[str]) -> None:
    code = (
        "import sys; sys.modules['pytest'] = sys.modules['_pytest'] = None\n"
        f"from pytest_osmosis.cli import main; sys.exit(main({command!r}))"
    )
    done = python(tmp_path, "-c", code)
    assert "Traceback" not in done.stderr
    assert done.returncode == (1 if command[0] == "show" else 0)


# -- arguments ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["show", "", "row0-run0"], ["show", " "], ["init", ""]])
def test_an_empty_argument_is_a_usage_error(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert "has an empty value" in capsys.readouterr().err


# -- standard output ---------------------------------------------------------------------------------------


def in_locale(folder: Path, command: str, encoding: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command line of the shell whose standard streams have an encoding."""
    env = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHON": sys.executable}
    return subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, check=False, timeout=120)


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", b"caf\\xe9 \\u2265"), ("latin-1", b"caf\xe9 \\u2265")])
def test_text_that_the_terminal_cannot_show_is_printed_as_escapes(tmp_path: Path, encoding: str, shown: bytes) -> None:
    done = in_locale(tmp_path, "$PYTHON -m pytest_osmosis show latest 'café ≥'", encoding)
    assert done.returncode == 1
    assert done.stderr.startswith(b'"' + shown + b'": must be a run like row3-run1')
    (tmp_path / ".osmosis/runs/café ≥-1").mkdir(parents=True)
    (tmp_path / ".osmosis/runs/café ≥-1/manifest.json").write_text("{}")
    done = in_locale(tmp_path, "$PYTHON -m pytest_osmosis runs", encoding)
    assert done.returncode == 0
    assert shown in done.stdout


@pytest.mark.parametrize("command", ["schema", "runs", "--help"])
def test_a_broken_pipe_ends_a_command_quietly(tmp_path: Path, command: str) -> None:
    done = in_locale(tmp_path, f"$PYTHON -m pytest_osmosis {command} | true", "utf-8")
    assert (done.stdout, done.stderr) == (b"", b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_a_full_disk_is_said(tmp_path: Path) -> None:
    done = in_locale(tmp_path, "$PYTHON -m pytest_osmosis schema > /dev/full", "utf-8")
    assert (done.returncode, done.stderr) == (1, b"cannot print: No space left on device\n")


def test_commands_work_without_standard_output(tmp_path: Path) -> None:
    done = in_locale(tmp_path, "$PYTHON -m pytest_osmosis runs >&-", "utf-8")
    assert (done.returncode, done.stderr) == (0, b"")
