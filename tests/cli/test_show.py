"""`pytest-osmosis show` of stored eval runs that were made by hand, and pages on a terminal: colours and widths."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.record.journal import Journal, encode
from tests.cli.stored_runs import MESSAGES, RESULTS, ROLLOUT, SCORE, Cli, Stored
from tests.golden import Golden
from tests.unit.made import MANIFEST


def test_runs_and_rows_are_shown_line_by_line(typed: Cli, stored: Stored, golden: Golden) -> None:
    broken = {**ROLLOUT, "boundary": "agent", "error": "RuntimeError: \x07", "details": "Traceback", "usage": None}
    scored = {**SCORE, "scores": {"rewards:exact": 0.25, "rewards:style": 1.0}, "errors": {}}
    runs: dict[str, list[dict[str, Any]]] = {
        "a run that did not pass": [ROLLOUT, SCORE],
        "a run that was not finished": [{"ev": "skip", "row": 3, "run": 1, "reason": "401"}],
        "a run that was not scored": [{**broken, "attempt": 2}],
        "a run that met a bound": [{**ROLLOUT, "bound": "[limits.rollout] tokens = 1000"}, SCORE],
        "a rollout without an answer": [{**ROLLOUT, "messages": MESSAGES[:1]}, SCORE],
        "a rollout with calls alone": [{**ROLLOUT, "messages": MESSAGES[:2]}, SCORE],
        "all runs of a row": [*answered(0, "two", 0.25), *answered(1, "2", 1.0)],
    }
    for number, events in enumerate(runs.values()):
        stored(f"x-{number}", *events)
    stored("x-killed", ROLLOUT, scored, results=None)

    shown = {
        what: typed("show", f"x-{number}", "row3" if "row" in what else "row3-run1").splitlines()
        for number, what in enumerate(runs)
    }

    golden({**shown, "thresholds of a manifest": typed("show", "x-killed", "row3-run1").splitlines()})


def test_show_takes_a_node_id_and_looks_above(
    typed: Cli, stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored("x-1", ROLLOUT, {**SCORE, "output": {"stderr": "scored\n"}})
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert typed("show", "configs/eval/x.toml::x[row3-run1]").startswith("x-1 row3-run1: did not pass\n")
    text = typed("show", "row3-run1", "--json")
    assert text.isascii()
    (run,) = json.loads(text)["runs"]
    assert run["messages"] == MESSAGES
    assert run["output"] == [{"stdout": "printed\n"}, {"stderr": "scored\n"}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["row9-run0"], "row9-run0: not in .osmosis/runs/x-1; it has row 3\n"),
        (["row3-run7"], "row3-run7: not in .osmosis/runs/x-1; of row 3 it has row3-run1\n"),
        (["row9"], "row9: not in .osmosis/runs/x-1; it has row 3\n"),
        (
            ["row3-run1", "--all"],
            "--all: selects the runs on the page of an eval run, but row3-run1 is named; leave one",
        ),
        (["x-1", "third"], '"third": must be a run like row3-run1, a row like row3, or a node id that ends in one of'),
        (["x-2", "row3-run1"], "row3-run1: not in .osmosis/runs/x-2; no run of it has begun\n"),
        (["xx1"], 'eval run "xx1": not found in .osmosis/runs; did you mean "x-1"? the newest are x-1, x-2\n'),
    ],
)
def test_show_says_what_is_wrong(typed: Cli, stored: Stored, arguments: list[str], said: str) -> None:
    stored("x-1", ROLLOUT, SCORE, age_s=1)
    stored("x-2", age_s=2)
    assert typed("show", *arguments, fails=1).startswith(said)


def test_show_without_any_run(typed: Cli) -> None:
    how = "pytest CONFIG.toml makes one"
    nothing = f"no eval runs in .osmosis/runs; {how}\n"
    assert typed("show", "row3-run1", fails=1) == nothing
    assert typed("show", fails=1) == nothing
    assert typed("show", "x", fails=1) == f'eval run "x": not found in .osmosis/runs; there are none; {how}\n'


def answered(run: int, text: str, score: float) -> list[dict[str, Any]]:
    """The events of a run of row 3 that ended with an answer."""
    messages = [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": text}]
    rollout = {**ROLLOUT, "run": run, "messages": messages, "n_prompt": 1, "output": {}}
    scores = {"rewards:exact": score, "rewards:style": 1.0}
    return [rollout, {**SCORE, "run": run, "scores": scores, "errors": {}, "ground_truth": "2"}]


def test_a_long_message_is_shortened_unless_all_of_it_is_asked_for(typed: Cli, stored: Stored) -> None:
    text = "begin " + "x" * 10_000 + " end"
    stored("x-1", *answered(1, text, 1.0))
    short = typed("show", "row3-run1")
    assert "characters left out" in short
    assert short.endswith("\n1 long text is shortened; --full shows everything\n")
    assert text not in short
    assert text in typed("show", "row3-run1", "--full")


RULE = {"pass_threshold": 0.5, "thresholds": {}, "decide": "rewards:exact"}
PLANNED = {**MANIFEST, "pass_rule": RULE, "gates": ["pass_rate >= 0.7"]}


def test_an_eval_run_that_was_killed_before_its_code_was_loaded_has_no_runs(typed: Cli, stored: Stored) -> None:
    (stored("x-1", results=None, manifest=PLANNED) / "journal.jsonl").write_bytes(b"")
    said = typed("show")
    assert said.startswith("x-1: failed, 0 of 4 planned runs ended\n")
    assert "pass_rate >= 0.7: not decided (the eval run did not end)" in said
    assert "eval function" not in said  # nothing is known of functions, so there is no table
    assert "these numbers" not in said
    assert typed("show", "--all").endswith("no run ended\n")
    page = json.loads(typed("show", "--json"))
    assert (page["runs"], page["results"]["summary"]["total_runs"]) == ([], 0)
    assert json.loads(typed("runs", "export", "x-1"))["summary"]["total_runs"] == 0


def test_json_is_redacted_and_commands_no_runner(typed: Cli, stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-123456")
    said = "key sk-secret-123456 ##[error]x ###[group] section_start:0"
    stored("x-1", *answered(1, said, 1.0))
    text = typed("show", "row3-run1", "--json")
    assert "sk-secret" not in text
    assert not any(sign in text for sign in ("##[", "section_start"))
    (run,) = json.loads(text)["runs"]
    assert run["answer"] == "key [OPENAI_API_KEY] ##[error]x ###[group] section_start:0"


def test_results_outlive_a_journal_without_their_runs(typed: Cli, stored: Stored) -> None:
    (row,) = RESULTS["rows"]
    noted = {**row["runs"][0], "metrics": {"rewards:exact": {"words": 3.0}}, "reasons": {"rewards:exact": "too short"}}
    stored("x-1", ROLLOUT, SCORE, results={**RESULTS, "rows": [{**row, "runs": [noted, row["runs"][1]]}]})
    page = typed("show")
    assert "  row3-run0  score 0.25 < 0.5: too short\n" in page
    assert "words" in page
    run = json.loads(typed("show", "--json"))["runs"][0]
    assert (run["metrics"], run["reasons"], run["answer"]) == (noted["metrics"], noted["reasons"], None)


def test_events_of_a_later_version_are_passed_over_and_a_missing_journal_is_named(typed: Cli, stored: Stored) -> None:
    later = [{"ev": "rows", "rows": {}, "digests": {}, "row": 3}, {"ev": "dream", "row": "x"}, {**SCORE, "dream": [1]}]
    journal = stored("x-1", ROLLOUT, SCORE, *later) / "journal.jsonl"
    assert typed("show", "row3-run1").startswith("x-1 row3-run1: did not pass")
    assert typed("show").startswith("x-1: finished\n")
    journal.unlink()
    assert "journal.jsonl" in typed("show", fails=1)


def test_a_row_of_a_folder_has_no_line(typed: Cli, stored: Stored, tmp_path: Path) -> None:
    plan = {**MANIFEST["plan"], "dataset": str(tmp_path), "spans": [[0, 4, 1]]}
    stored("x-1", ROLLOUT, SCORE, manifest={**MANIFEST, "plan": plan})

    assert "dataset row: row 3 of data/x.jsonl\n" in typed("show", "x-1", "row3-run1")


AT = "2026-01-01T00:00:01+00:00"
BEGAN: dict[str, Any] = {"ev": "began", "at": AT, "pid": 4711, "machine": "build7", "resumed": False}
START: dict[str, Any] = {"ev": "start", "row": 4, "run": 0, "attempt": 1, "at": AT}


@pytest.fixture
def unfinished(stored: Stored) -> Path:
    """An eval run of 4 planned ones: two are done, one passed, and one had begun. Its host may have begun two more."""
    events = [*answered(0, "two", 0.25), *answered(1, "2", 1.0), {"ev": "handed_out", "n": 3}, START]
    return stored("x-1", BEGAN, *events, results=None, manifest=PLANNED)


@pytest.mark.usefixtures("unfinished")
def test_a_killed_run_says_how_far_it_got_and_how_to_go_on(typed: Cli) -> None:
    lines = typed("show").splitlines()
    assert lines[0] == "x-1: failed, 2 of 4 planned runs ended, 1 more had begun"
    assert lines[3].startswith("  its process, 4711 on build7, was killed, or its machine failed: these numbers are")
    said = "\n".join(lines)
    assert "\n  up to 3 rollouts were lost in flight, possibly billed\n" in said
    assert "\n  to resume, without running again what is stored: " in said
    assert "--osmosis-run=x-1\n" in said
    assert "\n1 of 2 runs passed (4 planned; rewards:exact decides)\n" in said
    assert "\ngate pass_rate >= 0.7: not decided (the eval run did not end)\n" in said
    page = json.loads(typed("show", "--json"))
    assert (page["planned_runs"], page["in_flight"], len(page["runs"])) == (4, 1, 2)
    assert page["results"]["summary"]["pass_rate"] == 0.5
    assert "rewards:exact     >= 0.5  0.625  1 of 2\n" in said
    assert '\n  row3-run0  score 0.25 < 0.5: answered "two", expected "2"\n' in said
    assert typed("show", "row4-run0").startswith("x-1 row4-run0: begun, but not finished\n")


def test_a_run_is_pending_then_running_and_its_numbers_grow(typed: Cli, unfinished: Path) -> None:
    journal = Journal.reopen(unfinished / "journal.jsonl")
    try:
        assert typed("show", "x-1").startswith("x-1: pending, 2 of 4 planned runs ended, 1 more had begun\n")
        journal.append(encode({**BEGAN, "resumed": True}))
        assert "x-1: running, 2 of 4 planned runs ended, 1 more in flight\n" in typed("show", "x-1")
        page = json.loads(typed("show", "x-1", "--json"))
        assert (page["status"], page["in_flight"], page["ended_at"]) == ("running", 1, None)
        rollout, score = ({**event, "row": 4, "run": 0} for event in answered(0, "2", 1.0))
        journal.append(encode(rollout))
        journal.append(encode(score))
        said = typed("show", "x-1")
        assert said.startswith("x-1: running, 3 of 4 planned runs ended\n")
        assert "\n  written by process " in said
        assert "  the numbers are those of the runs that ended so far\n" in said
        assert "\n2 of 3 runs passed (4 planned; rewards:exact decides)\n" in said
        assert said.endswith("pytest-osmosis runs stop x-1\n")
        assert "to resume" not in said
    finally:
        journal.close()


def test_a_finished_run_has_its_numbers_from_its_results_and_says_what_ran_and_when(typed: Cli, stored: Stored) -> None:
    ended = {"ev": "ended", "at": "2026-01-01T00:00:09+00:00", "status": "finished", "reason": None}
    stored("x-1", BEGAN, ROLLOUT, SCORE, ended, manifest={**PLANNED, "inputs": {"experiment": {"rollout": "sums"}}})
    page = json.loads(typed("show", "--json"))
    assert (page["eval_run"], page["status"], page["in_flight"]) == ("x-1", "finished", 0)
    assert (page["model"], page["dataset"], page["rollout"]) == ("demo/arithmetic", "data/x.jsonl", "sums")
    assert (page["started_at"], page["ended_at"]) == (PLANNED["started_at"], ended["at"])
    assert page["results"]["summary"]["total_runs"] == 2
    assert [run["run"] for run in page["runs"]] == ["row3-run0", "row3-run1"]
    run = page["runs"][1]
    assert (run["outcome"], run["reason"], run["cost_usd"]) == ("failed", "score 0.25 < 0.5", 0.0123)
    assert "messages" not in run
    said = typed("show")
    assert said.splitlines()[:3] == [
        "x-1: finished",
        f"  {RESULTS['config']['path']}, model demo/arithmetic, rollout sums, data/x.jsonl (rows: all 2 rows), n = 2",
        "  started 2026-01-01 00:00 UTC, ended 2026-01-01 00:00 UTC",
    ]
    assert "runs stop" not in said


BOLD, RED = "\x1b[1m", "\x1b[31m"
COLOURED = {
    "": False,
    "terminal": True,
    "terminal NO_COLOR=1": False,
    "FORCE_COLOR=1": True,
    "FORCE_COLOR=1 NO_COLOR=1": False,
    "NO_COLOR=1 PY_COLORS=1": True,
    "NO_COLOR=1 --color=yes": True,
    "FORCE_COLOR=1 --color=no": False,
}
"""Variables, an option and a place to print to, and whether they mean colours, as they do to pytest."""


def given(monkeypatch: pytest.MonkeyPatch, words: str) -> list[str]:
    """Set the variables among words, let standard output be a terminal if they say so, and return the options."""
    for name in ("NO_COLOR", "FORCE_COLOR", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in re.findall(r"([A-Z_]+)=(\d+)", words):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: "terminal" in words)
    return [word for word in words.split() if word.startswith("--")]


@pytest.mark.parametrize("words", COLOURED)
def test_colours_follow_pytests_rules(typed: Cli, stored: Stored, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    stored("x-1", ROLLOUT, SCORE)
    option = given(monkeypatch, words)
    page = typed("show", *option)
    coloured = page.startswith(f"{BOLD}x-1") and f"  {RED}row3-run0\x1b[0m  score 0.25 < 0.5" in page
    assert coloured is ("\x1b[" in page) is ("\x1b[" in typed("runs", *option)) is COLOURED[words]
    assert "    \\x1b[31mred\n" in typed("show", "row3-run1", *option), "text of others has no colour of its own"


@pytest.mark.parametrize(("columns", "answer"), [(50, 'answered "two \\x1b[...'), (200, 'answered "two \\x1b[31mred"')])
def test_an_answer_that_does_not_fit_is_cut(
    typed: Cli, stored: Stored, monkeypatch: pytest.MonkeyPatch, columns: int, answer: str
) -> None:
    stored("x-1", ROLLOUT, SCORE)
    given(monkeypatch, f"terminal NO_COLOR=1 COLUMNS={columns}")
    assert f"  row3-run1  score 0.25 < 0.5: {answer}\n" in typed("show")
