"""Tests over rollouts: the request of a marker, a rollout as a test sees it, and reference solutions with scores."""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.lab.rollout import RecordedScores, Rollout, Scores
from pytest_osmosis.addons.lab.rollout_tests import MarkerRequest, ReferenceSolutions, request_of
from pytest_osmosis.config import Override
from pytest_osmosis.errors import CodeError, ConfigError, ScoreError
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RewardError
from pytest_osmosis.rewards.graders import Reward
from tests.preparing import prepare
from tests.raised import raised

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


def references_of(folder: Path, code: str, rows: list[dict[str, Any]], scoring: str) -> ReferenceSolutions:
    (folder / "code_of_mine.py").write_text(code)
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "x.toml").write_text(
        '[experiment]\nmodel_path = "demo/arithmetic"\n[data]\npath = "rows.jsonl"\nrows = "all"\n'
        f'[scoring]\n{scoring}\n[env]\nFACTOR = "7"\n[secrets]\nrequired = []\n'
    )
    return ReferenceSolutions(prepare(folder / "x.toml", environ={}, listing=True), {}, [])


@pytest.fixture
def references(tmp_path: Path) -> Iterator[ReferenceSolutions]:
    """Make an eval of six rows, each with another solution or none."""
    rows = [{"user_prompt": "2?", "ground_truth": "4", "solution_str": solution} for solution in SOLUTIONS]
    scoring = 'eval_fns = ["code_of_mine:exact", "code_of_mine:asked"]\ngrader = "code_of_mine:Judge"'
    references = references_of(tmp_path, CODE, rows, scoring)
    yield references
    references.close()


def test_the_reference_is_the_last_answer_of_the_rows_conversation_if_it_has_one(
    references: ReferenceSolutions,
) -> None:
    rollout = references.rollout(RunId(0, 1))

    assert rollout is not None
    assert (rollout.row_index, rollout.run_index, rollout.source, rollout.usage) == (0, 1, "reference", None)
    assert rollout.messages == [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "4"}]
    assert (rollout.ground_truth, rollout.row["solution_str"]) == ("4", "4")
    assert [references.rollout(RunId(row, 0)) is None for row in range(6)] == [False, True, True, True, False, False]
    assert references.exist


def scores_of(references: ReferenceSolutions, row: int) -> Mapping[str, float]:
    rollout = references.rollout(RunId(row, 0))
    assert rollout is not None
    return rollout.scores


def test_functions_and_graders_score_references_and_leave_nothing_behind(references: ReferenceSolutions) -> None:
    scores, before = scores_of(references, 0), list(sys.path)

    assert dict(scores) == {"code_of_mine:exact": 1.0, "code_of_mine:asked": 1.0, "reward": 0.25}
    assert "code_of_mine" not in sys.modules
    assert sys.path == before


async def test_scores_can_be_looked_up_in_a_coroutine(references: ReferenceSolutions) -> None:
    scores = scores_of(references, 0)

    assert scores["code_of_mine:asked"] == 1.0
    await asyncio.sleep(0)
    assert scores["code_of_mine:exact"] == 1.0


def test_a_traceback_begins_at_the_users_code_and_a_removed_sample_has_no_score(references: ReferenceSolutions) -> None:
    broken, removed = scores_of(references, 4), scores_of(references, 5)

    with pytest.raises(ZeroDivisionError, match="it broke") as caught:
        broken["code_of_mine:exact"]

    entries = [entry.name for entry in caught.traceback]
    assert entries[-1] == "exact"
    assert "run_until_complete" not in entries
    with pytest.raises(ScoreError, match="reward removed the reference solution"):
        removed["reward"]


def test_code_that_does_not_load_is_a_code_error(references: ReferenceSolutions, tmp_path: Path) -> None:
    (tmp_path / "code_of_mine.py").write_text("import nowhere_at_all")

    with pytest.raises(CodeError, match="nowhere_at_all"):
        list(scores_of(references, 0))


def test_a_function_sees_the_reference_as_it_is_whatever_the_test_and_others_did_to_it(tmp_path: Path) -> None:
    code = (
        "def spoils(messages, ground_truth, metadata):\n"
        "    right = messages[0]['content'] == '2?' and ground_truth == ['4'] and metadata['tags'] == ['a']\n"
        "    messages[0].clear(), ground_truth.clear(), metadata['tags'].clear()\n"
        "    return right\n"
        "def again(messages, ground_truth, metadata):\n"
        "    return spoils(messages, ground_truth, metadata)\n"
    )
    row = {"user_prompt": "2?", "ground_truth": ["4"], "tags": ["a"], "solution_str": "4"}
    scoring = 'eval_fns = ["code_of_mine:spoils", "code_of_mine:again"]'
    references = references_of(tmp_path, code, [row], scoring)
    rollout = references.rollout(RunId(0, 0))
    assert rollout is not None
    rollout.messages[0].clear()
    rollout.ground_truth.clear()
    rollout.row["tags"].clear()

    assert dict(rollout.scores) == {"code_of_mine:spoils": 1.0, "code_of_mine:again": 1.0}
    references.close()


WHERE = "tests/test_x.py:3: test_x"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a rootdir with one workspace inside another."""
    for folder in (".", "inner", "inner/tests/deep"):
        (tmp_path / folder / "configs").mkdir(parents=True)
    for path in ("x.toml", "y.toml", "inner/x.toml"):
        (tmp_path / path).touch()
    return tmp_path


def requested(root: Path, *args: object, file: str = "inner/tests/deep/test_x.py", **kwargs: object) -> MarkerRequest:
    return request_of(args, kwargs, WHERE, root / file, root)


def test_a_path_is_looked_for_from_the_tests_folder_upwards_to_the_rootdir_or_there_alone(root: Path) -> None:
    assert requested(root, "x.toml").path == root / "inner/x.toml"
    assert requested(root, "y.toml").path == root / "y.toml"
    assert requested(root, "x.toml", file="tests/test_x.py").path == root / "x.toml"
    assert requested(root, Path("../../x.toml")).path == root / "inner/x.toml"
    assert requested(root, root / "y.toml").path == root / "y.toml"
    with pytest.raises(ConfigError, match=r'no file "y.toml"; looked in .*deep and the folders above it up to .*inner'):
        request_of(["y.toml"], {}, WHERE, root / "inner/tests/deep/test_x.py", root / "inner")
    assert requested(root, "x.toml::gsm8k").named == (root / "inner/x.toml", "gsm8k")
    assert requested(root, "x.toml").named == (root / "inner/x.toml", None)
    assert request_of(["x.toml"], {}, WHERE, root / "test_x.py", root / "inner").path == root / "x.toml"
    assert request_of(["x.toml"], {}, WHERE, root / "tests/test_x.py", root / "inner").path == root / "inner/x.toml"


def test_arguments_become_overrides_that_name_their_place_and_requests_for_the_same_are_equal(root: Path) -> None:
    request = requested(root, "x.toml", limit=5, rows="1-2", offset=1, n=2)

    assert request.overrides() == [
        Override("evaluation", "limit", 5, f"{WHERE}: osmosis_eval(limit=5)", level="test"),
        Override("evaluation", "n", 2, f"{WHERE}: osmosis_eval(n=2)", level="test"),
        Override("data", "offset", 1, f"{WHERE}: osmosis_eval(offset=1)", level="test"),
        Override("data", "rows", "1-2", f"{WHERE}: osmosis_eval(rows='1-2')", level="test"),
    ]
    assert pickle.loads(pickle.dumps(request)) == request
    first = requested(root, "x.toml", n=2, limit=5)
    second = request_of(["x.toml"], {"limit": 5, "n": 2}, "elsewhere", root / "inner/test_y.py", root)

    assert first == second
    assert first != requested(root, "x.toml", limit=5)


@pytest.mark.parametrize("path", ["rows.jsonl", "configs"])
def test_a_file_that_is_not_a_toml_is_refused(root: Path, path: str) -> None:
    (root / "rows.jsonl").touch()

    with pytest.raises(ConfigError, match=rf'"{path}" is not a TOML file; name the'):
        requested(root, path)


def test_every_problem_is_reported(root: Path) -> None:
    problems = raised(ConfigError, requested, root, "z.toml", limt=5, n=[2]).problems

    assert [(problem.where, problem.text.partition(";")[0]) for problem in problems] == [
        (WHERE, 'osmosis_eval: no file "z.toml"'),
        (WHERE, "osmosis_eval: limt=: unknown argument, did you mean limit=? (valid: rows, offset, limit, n)"),
        (WHERE, "osmosis_eval: n=: must be a number or a string, got [2]"),
    ]


MESSAGES = [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "\ud800 4"}]


def test_a_rollout_survives_the_way_to_a_worker_and_an_unknown_function_is_a_key_error() -> None:
    scores = RecordedScores(["a", "b", "c"], {"b": 0.5}, {"a": RewardError("ValueError: no", "Traceback ...")})
    row: dict[str, Any] = {"ground_truth": "4"}
    rollout = Rollout(3, 1, "model", MESSAGES, "4", row, scores, {"output_tokens": 2}, 0.5, "stop")
    copy = pickle.loads(pickle.dumps(rollout))

    assert (copy.row_index, copy.run_index, copy.source, copy.messages) == (3, 1, "model", MESSAGES)
    assert (copy.ground_truth, copy.row, copy.usage) == ("4", {"ground_truth": "4"}, {"output_tokens": 2})
    assert (copy.duration_s, copy.finish_reason, copy.solution_str) == (0.5, "stop", "\ud800 4")
    assert (list(copy.scores), copy.scores["b"]) == (["a", "b", "c"], 0.5)
    with pytest.raises(ScoreError, match=r"a gave no score: ValueError: no\nTraceback \.\.\."):
        copy.scores["a"]
    with pytest.raises(ScoreError, match="c gave no score: it never ran"):
        copy.scores.get("c")
    with pytest.raises(KeyError, match=r"'d' scores this eval \(valid: a, b, c\)"):
        scores["d"]
    assert "a" in scores
    assert "d" not in scores
    assert scores.get("d") is None
    long = Rollout(0, 0, "reference", [{"role": "assistant", "content": "x" * 1000}], None, {})

    assert repr(long).startswith("<reference rollout row0-run0: 'xxx")
    assert len(repr(long)) < 300


def test_a_score_is_computed_once_and_only_when_it_is_looked_up() -> None:
    computed: list[str] = []

    def reward(name: str) -> Reward:
        computed.append(name)
        return Reward(1.0, "exact", {"overlap": 0.5})

    scores = Scores(lambda: ["a", "b"], reward)

    assert (repr(scores), computed) == ("Scores({})", [])
    assert (scores["a"], scores["a"], computed) == (1.0, 1.0, ["a"])
    found = Rollout(0, 0, "reference", MESSAGES, None, {}, scores)
    assert (found.reasons["a"], found.score_metrics["a"], computed) == ("exact", {"overlap": 0.5}, ["a"])
