"""Episodes of verifiers 0.4, as its files hold them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.verifiers.prime_import import (
    PrimeRun,
    has_failed,
    prompt_of,
    read_prime_run,
    took_ms,
    usage_of,
)
from pytest_osmosis.errors import OsmosisError

CHAINED = "its own\n\nThe above exception was the direct cause of the following exception:\n\nthat of a wrapper"
SPANS = {"start": 10.0, "agent": {"start": 10.5, "end": 11.0}, "scoring": {"start": 11.0, "end": 11.25}}
CALL = {"id": "c1", "type": "function", "name": "add", "arguments": "{}"}


def node(role: str, content: str, parent: int | None, **more: Any) -> dict[str, Any]:
    return {"message": {"role": role, "content": content, **more}, "parent": parent, "sampled": role == "assistant"}


NODES = [
    node("user", "1 + 1?", None),
    node("assistant", "a branch that was left", 0),
    node("assistant", "", 0, tool_calls=[CALL]),
    node("tool", "2", 2, tool_call_id="c1"),
    node("assistant", "2", 3),
]


def trace(agent: str = "solver", score: Any = 1.0, **fields: Any) -> dict[str, Any]:
    rewards = {"exact": {"score": score, "weight": 0.5}, "short": {"score": 0.5}, "unscored": None}
    usage = {"prompt_tokens": 7, "completion_tokens": 2}
    calls = [{"usage": usage}, {"error": {"type": "E"}}, {"finish_reason": "length"}]
    told = {"nodes": NODES, "calls": calls, "rewards": rewards, "metrics": {"turns": 2, "late": None}, "timing": SPANS}
    return {"agent": {"name": agent}, "ok": True, "is_completed": True, **told, **fields}


def read(folder: Path, *episodes: Any, **env_args: Any) -> PrimeRun:
    (folder / "configs/resolved").mkdir(parents=True, exist_ok=True)
    agent: dict[str, Any] = {"harness": None, "runtime": {}}
    settings = {"env": {"taskset": {"id": "sums"}, "solver": agent, "judge": agent}, "model": "m"}
    (folder / "configs/resolved/eval.json").write_text(json.dumps(settings))
    lines = [each if isinstance(each, str) else json.dumps(each) for each in episodes]
    (folder / "traces.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return read_prime_run(folder, env_args)


def episode(*traces: Any, ok: bool = True, **fields: Any) -> dict[str, Any]:
    return {"task": {"data": {"idx": 3, "answer": 2}, "key": "k"}, "traces": traces, "ok": ok, **fields}


def test_the_last_branch_of_the_scored_agent_is_the_conversation_and_scores(tmp_path: Path) -> None:
    judge = trace("judge", 0.0, nodes=[node("user", "Is it right?", None)])

    (line,) = read(tmp_path, episode(trace(), judge)).lines

    assert [message["content"] for message in [*prompt_of(line), *line["completion"]]] == ["1 + 1?", "", "2", "2"]
    assert (line["example_id"], line["answer"], line["task_key"]) == (3, 2, "k")
    assert (line["reward"], line["is_truncated"]) == (1.0, True)
    of_judge = {"judge.exact": 0.0, "judge.short": 0.5, "judge.reward": 0.5, "judge.turns": 2}
    assert line["metrics"] == {"exact": 1.0, "short": 0.5, "turns": 2, **of_judge}
    assert usage_of(line) == {"input_tokens": 14, "output_tokens": 4}
    assert took_ms(line, "generation") == 1250.0
    (line,) = read(tmp_path, episode(trace(), judge), scored_agent="judge").lines
    assert (prompt_of(line)[0]["content"], line["reward"]) == ("Is it right?", 0.5)


def broken(name: str, **fields: Any) -> dict[str, Any]:
    error = {"type": name, "message": "Env.finalize() failed", "traceback": CHAINED}
    return episode(*fields.get("traces", [trace(ok=False, errors=[error])]), ok=False, errors=fields.get("errors"))


OF_ENV = {"type": "EnvError", "message": "Env.finalize() failed"}


@pytest.mark.parametrize(
    ("told", "chain"),
    [
        (broken("SandboxError"), "SandboxError -> InfraError"),
        (broken("TaskError"), "TaskError -> RewardError"),
        (broken("", traces=[], errors=[OF_ENV]), "EnvError -> RewardError"),
        (episode(trace("judge")), "EnvError"),
        (episode(trace(ok=False), ok=False), "EnvError"),
        (episode(trace(score=float("nan"))), "EnvError"),
    ],
)
def test_an_episode_that_broke_has_no_reward(tmp_path: Path, told: Any, chain: str) -> None:
    (line,) = read(tmp_path, told).lines

    assert (has_failed(line), line["reward"], line["error"]["error_chain_str"]) == (True, None, chain)
    assert "wrapper" not in line["error"]["traceback"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (episode(trace(nodes=[node("user", "?", 0)])), "the parent of node 0 must come before it, got 0"),
        (episode(trace(metrics=[1])), "is not as verifiers writes it: AttributeError"),
        (episode(trace(rewards={"exact": {}})), "is not as verifiers writes it: KeyError"),
        (episode(trace(score=10**400)), "is not as verifiers writes it: OverflowError"),
        ('{"task": ' + '{"data": ' * 4000 + "{" + "}" * 4001 + ', "traces": []}', "it is nested deeper than"),
        ('{"task"', "Expecting"),
    ],
)
def test_a_line_of_another_form_is_refused_with_its_number(tmp_path: Path, line: Any, text: str) -> None:
    with pytest.raises(OsmosisError, match=f"traces.jsonl:1: {text}"):
        read(tmp_path, line, episode(trace()))


def test_settings_that_are_missing_are_named(tmp_path: Path) -> None:
    read(tmp_path)
    (tmp_path / "configs/resolved/eval.json").unlink()

    with pytest.raises(OsmosisError, match=r"configs/resolved/eval\.json: no such file"):
        read_prime_run(tmp_path)
