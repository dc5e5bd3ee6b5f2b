"""Reference solutions as rollouts, and their scores by the eval's own functions, in this process."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_osmosis.errors import CodeError, ScoreError
from pytest_osmosis.plugin.rollout_tests import ReferenceSolutions
from pytest_osmosis.record.run_id import RunId
from tests.preparing import prepare

CODE = """
import os
from pytest_osmosis import Grader

def exact(solution_str, ground_truth, **kwargs):
    if solution_str == "broken":
        raise ZeroDivisionError("it broke")
    return float(solution_str == ground_truth)

async def asked(messages, ground_truth, metadata):
    return len(messages) / 2 if os.environ.get("FACTOR") == "7" else 0.0

class Judge(Grader):
    async def grade(self, ctx):
        if ctx.sample.messages[-1]["content"] == "removed":
            ctx.sample.remove_sample = True
        else:
            ctx.set_reward(0.25)
"""
SOLUTIONS = ["4", None, " ", 7, "broken", "removed"]


@pytest.fixture
def references(tmp_path: Path) -> Iterator[ReferenceSolutions]:
    """Make an eval of six rows, each with another solution or none."""
    (tmp_path / "code_of_mine.py").write_text(CODE)
    rows = [{"user_prompt": "2?", "ground_truth": "4", "solution_str": solution} for solution in SOLUTIONS]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "x.toml").write_text(
        '[experiment]\nmodel_path = "demo/arithmetic"\n[data]\npath = "rows.jsonl"\nrows = "all"\n'
        '[scoring]\neval_fns = ["code_of_mine:exact", "code_of_mine:asked"]\ngrader = "code_of_mine:Judge"\n'
        '[env]\nFACTOR = "7"\n[secrets]\nrequired = []\n'
    )
    references = ReferenceSolutions(prepare(tmp_path / "x.toml", environ={}, listing=True), {}, [])
    yield references
    references.close()


def test_the_reference_is_the_last_answer_of_the_rows_conversation(references: ReferenceSolutions) -> None:
    rollout = references.rollout(RunId(0, 1))

    assert rollout is not None
    assert (rollout.row_index, rollout.run_index, rollout.source, rollout.usage) == (0, 1, "reference", None)
    assert rollout.messages == [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "4"}]
    assert (rollout.ground_truth, rollout.row["solution_str"]) == ("4", "4")


def test_a_row_without_a_reference_has_no_rollout(references: ReferenceSolutions) -> None:
    assert [references.rollout(RunId(row, 0)) is None for row in range(6)] == [False, True, True, True, False, False]
    assert references.exist


def test_functions_and_graders_score_references_and_leave_nothing_behind(references: ReferenceSolutions) -> None:
    rollout = references.rollout(RunId(0, 0))
    assert rollout is not None
    before = list(sys.path)

    assert dict(rollout.scores) == {"code_of_mine:exact": 1.0, "code_of_mine:asked": 1.0, "reward": 0.25}
    assert "code_of_mine" not in sys.modules
    assert sys.path == before


async def test_scores_can_be_looked_up_in_a_coroutine(references: ReferenceSolutions) -> None:
    rollout = references.rollout(RunId(0, 0))
    assert rollout is not None

    assert rollout.scores["code_of_mine:asked"] == 1.0
    await asyncio.sleep(0)
    assert rollout.scores["code_of_mine:exact"] == 1.0


def test_a_traceback_begins_at_the_users_code_and_a_removed_sample_has_no_score(references: ReferenceSolutions) -> None:
    broken, removed = references.rollout(RunId(4, 0)), references.rollout(RunId(5, 0))
    assert broken is not None
    assert removed is not None

    with pytest.raises(ZeroDivisionError, match="it broke") as raised:
        broken.scores["code_of_mine:exact"]

    assert [entry.name for entry in raised.traceback][-1] == "exact"
    assert "run_until_complete" not in [entry.name for entry in raised.traceback]
    with pytest.raises(ScoreError, match="reward removed the reference solution"):
        removed.scores["reward"]


def test_code_that_does_not_load_is_a_code_error(references: ReferenceSolutions, tmp_path: Path) -> None:
    (tmp_path / "code_of_mine.py").write_text("import nowhere_at_all")
    rollout = references.rollout(RunId(0, 0))
    assert rollout is not None

    with pytest.raises(CodeError, match="nowhere_at_all"):
        list(rollout.scores)


def test_a_function_sees_the_reference_as_it_is_whatever_the_test_and_others_did_to_it(tmp_path: Path) -> None:
    (tmp_path / "code_of_mine.py").write_text(
        "def spoils(messages, ground_truth, metadata):\n"
        "    right = messages[0]['content'] == '2?' and ground_truth == ['4'] and metadata['tags'] == ['a']\n"
        "    messages[0].clear(), ground_truth.clear(), metadata['tags'].clear()\n"
        "    return right\n"
        "def again(messages, ground_truth, metadata):\n"
        "    return spoils(messages, ground_truth, metadata)\n"
    )
    row = {"user_prompt": "2?", "ground_truth": ["4"], "tags": ["a"], "solution_str": "4"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    (tmp_path / "x.toml").write_text(
        '[experiment]\nmodel_path = "demo/arithmetic"\n[data]\npath = "rows.jsonl"\nrows = "all"\n'
        '[scoring]\neval_fns = ["code_of_mine:spoils", "code_of_mine:again"]\n[secrets]\nrequired = []\n'
    )
    references = ReferenceSolutions(prepare(tmp_path / "x.toml", environ={}, listing=True), {}, [])
    rollout = references.rollout(RunId(0, 0))
    assert rollout is not None
    rollout.messages[0].clear()
    rollout.ground_truth.clear()
    rollout.row["tags"].clear()

    assert dict(rollout.scores) == {"code_of_mine:spoils": 1.0, "code_of_mine:again": 1.0}
    references.close()
