"""Scoring: sync functions in the scorer, async ones and Graders in the host, one record; invalid scores are errors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.engine.evaluating import Live, Workspace, asked_rows, evaluated, running
from tests.host_clock import HostClock
from tests.servers import ChatServer


def scored_by(workspace: Workspace, code: str, *names: str, **tables: Mapping[str, Any]) -> Live:
    """Run an eval of a few rows on the embedded model, scored by functions of `code`."""
    workspace.write("rewards.py", "import asyncio, os, sys, time\n" + code)
    scoring = {"eval_fns": [f"rewards:{name}" for name in names], **tables.pop("scoring", {})}
    return evaluated(workspace.config(None, scoring=scoring, **tables))


def test_sync_functions_async_ones_and_a_grader_fold_into_one_record(workspace: Workspace) -> None:
    workspace.write(
        "graders.py",
        """
        import os
        from pytest_osmosis import Grader
        class Half(Grader):
            async def grade(self, ctx):
                assert ctx.label == "42" and ctx.metadata["user_prompt"].startswith("row")
                assert str(ctx.project_path) == os.getcwd()
                (ctx.artifacts_dir / "graded").touch()
                print("graded", ctx.sample.messages[0]["content"])
                ctx.set_reward(0.5)
        """,
    )
    code = """
def sync(solution_str):
    print("sync in", os.getpid())
    return 0.25
async def later(messages):
    await asyncio.sleep(0.01)
    print("later in", os.getpid())
    return 0.75
"""
    live = scored_by(workspace, code, "sync", "later", scoring={"grader": "graders:Half"}, evaluation={"n": 2})
    for record in live.results.records:
        assert dict(record.scores) == {"rewards:sync": 0.25, "rewards:later": 0.75, "reward": 0.5}
        assert not record.scorer_errors
        assert (live.run.directory.path / "artifacts" / str(record.run) / "graded").exists()
    told = dict(live.outcome(0).sections)["stdout"]
    pids = {line.split()[-1] for line in told.splitlines() if " in " in line}
    assert "graded row 0" in told
    assert len(pids) == 2, "sync functions score in a process of their own"


VALUES = {
    "None": "must return a number, got NoneType",
    "float('nan')": "must return a finite number, got nan",
    "1 / 0": "ZeroDivisionError: division by zero",
    "sys.exit(3)": "SystemExit: 3",
    "sys.exit('bye')": "SystemExit: bye",
}


NUMBERS = """
from fractions import Fraction
class Scalar:
    shape = ()
    def item(self): return 0.5
def good(solution_str): return True
def a_fraction(solution_str): return Fraction(1, 4)
def a_scalar(solution_str): return Scalar()
"""


def test_an_invalid_score_is_an_error_of_that_function_only(workspace: Workspace) -> None:
    names = [f"bad{index}" for index in range(len(VALUES))]
    code = NUMBERS
    for name, value in zip(names, VALUES, strict=True):
        code += f"def {name}(solution_str):\n    return {value}\nasync def a{name}(solution_str):\n    return {value}\n"
    everyone = ["good", "a_fraction", "a_scalar", *names, *(f"a{name}" for name in names)]
    live = scored_by(workspace, code, *everyone, scoring={"decide": "rewards:good"}, data={"rows": "0"})
    record = live.record(0)
    assert live.kinds() == ["passed"], "functions that do not decide harm nothing"
    assert record.scores == {"rewards:good": 1.0, "rewards:a_fraction": 0.25, "rewards:a_scalar": 0.5}
    for name, message in zip(names, VALUES.values(), strict=True):
        assert message in record.scorer_errors[f"rewards:{name}"].message
        assert message in record.scorer_errors[f"rewards:a{name}"].message
    assert "return 1 / 0" in record.scorer_errors["rewards:bad2"].details
    assert not record.scorer_errors["rewards:bad0"].details


def test_each_mode_gets_its_arguments_and_only_those_it_takes(workspace: Workspace) -> None:
    """Async objects, and async functions that decorators hide, are awaited."""
    workspace.rows([{"user_prompt": "row 0", "ground_truth": "42", "level": 3}])
    code = """
def simple(solution_str, ground_truth, extra_info):
    assert isinstance(solution_str, str) and ground_truth == "42", (solution_str, ground_truth)
    assert extra_info == {"user_prompt": "row 0", "ground_truth": "42", "level": 3}, extra_info
    return 1
def full(messages, ground_truth, metadata):
    assert [message["role"] for message in messages] == ["user", "assistant"] and metadata["level"] == 3
    return 1
def anything(solution_str, **kwargs):
    assert set(kwargs) == {"ground_truth", "extra_info"}, kwargs
    return 1
def defaults(solution_str, threshold=0.5):
    return threshold

class Judge:
    async def __call__(self, solution_str, ground_truth):
        return 1
judge = Judge()
def hidden(solution_str):
    return judge(solution_str, "")
"""
    scores = {**dict.fromkeys(("simple", "full", "anything", "judge", "hidden"), 1.0), "defaults": 0.5}
    live = scored_by(workspace, code, *scores)
    assert not live.record(0).scorer_errors
    assert live.record(0).scores == {f"rewards:{name}": score for name, score in scores.items()}


def test_no_more_than_batch_size_judges_run_at_once(workspace: Workspace) -> None:
    workspace.rows([{"user_prompt": f"row {index}"} for index in range(9)])
    code = """
now = most = 0
three = asyncio.Event()
async def judge(solution_str):
    global now, most
    now += 1
    most = max(most, now)
    if now == 3:
        three.set()
    await three.wait()
    for _ in range(200):  # a fourth would begin meanwhile
        await asyncio.sleep(0)
    now -= 1
    return most
"""
    live = scored_by(workspace, code, "judge", evaluation={"batch_size": 3})
    assert max(record.scores["rewards:judge"] for record in live.results.records) == 3


HANGS = {
    "def": {
        "loop": ("while True: pass", "while True: pass"),
        "sleep": ("time.sleep(1000)", "time.sleep(1000)"),
        "regex": ("re.match(r'(a+)+$', 'a' * 64 + 'b')", "re.match"),
        "own": ("asyncio.run(asyncio.sleep(1000))", "asyncio.run("),
    },
    "async def": {"aloop": ("while True: pass", "while True: pass")},
}


@pytest.mark.parametrize("define", HANGS)
def test_functions_that_hang_are_interrupted_where_they_are(
    workspace: Workspace, server: ChatServer, tmp_path: Path, define: str
) -> None:
    """Each function hangs in a row of its own and scores 1 in the others."""
    hangs, clock = HANGS[define], HostClock(tmp_path / "clock")
    workspace.rows([{"user_prompt": f"row {row}"} for row in range(len(hangs) + 2)])
    code = "import asyncio, re, time\n"
    for row, (name, (hang, _)) in enumerate(hangs.items()):
        code += (
            f"{define} {name}(solution_str, extra_info):\n    if extra_info['user_prompt'] != 'row {row}': return 1\n"
        )
        code += f"    open('holds-{name}', 'w').close()\n    {hang}\n"
    workspace.write("rewards.py", code)
    scoring = {"eval_fns": [f"rewards:{name}" for name in hangs]}
    config = workspace.config(server, scoring=scoring, evaluation={"grader_timeout_s": 60})
    with running(config, environ=clock.environ) as live:
        for n in range(1, len(hangs) + 1):
            live.wait_for(lambda n=n: len(list(workspace.root.glob("holds-*"))) == n, "for one that hangs")  # type: ignore[misc]
            clock.advance(60)
        live.wait()
        assert not live.run.engine.notices.texts, "no process was lost"
    assert live.kinds() == ["error"] * len(hangs) + ["passed"] * 2
    for row, (name, (_, stack)) in enumerate(hangs.items()):
        (error,) = live.record(row).scorer_errors.items()
        assert (error[0], error[1].message) == (f"rewards:{name}", "took longer than 60 s (grader_timeout_s)")
        assert stack in error[1].details
    assert asked_rows(server) == dict.fromkeys(range(len(hangs) + 2), 1)


def test_scorers_get_an_unusual_conversation_as_plain_json(workspace: Workspace) -> None:
    workspace.agent(
        """
        class Note:
            def __str__(self): return "a note"
        async def rollout(ctx):
            return [{"role": "assistant", "content": "x", "share": float("nan"), "note": Note(), 1: ("a", {"b"})}]
        """
    )
    code = """
def sync(messages):
    plain = {"role": "assistant", "content": "x", "share": "nan", "note": "a note", "1": ["a", "{'b'}"]}
    return float(messages == [plain])
async def later(messages):
    return sync(messages)
"""
    live = scored_by(workspace, code, "sync", "later", data={"rows": "0"})
    assert live.kinds() == ["passed"]


def test_the_sum_of_scores_so_far_takes_a_crash_for_the_lowest_score(workspace: Workspace) -> None:
    workspace.agent(
        """
        async def rollout(ctx):
            if ctx.row_index % 2:
                raise ValueError("crashed")
            return [*ctx.prompt, (await ctx.chat(ctx.prompt)).message]
        """
    )
    code = """
def low(messages):
    return -0.5 if "2" in messages[0]["content"] else 0.25
"""

    live = scored_by(workspace, code, "low", evaluation={"batch_size": 1})

    mean = live.results.by_function["rewards:low"].mean
    assert live.run.engine.progress.score / 4 == mean == (0.25 - 0.5 - 0.5 - 0.5) / 4
