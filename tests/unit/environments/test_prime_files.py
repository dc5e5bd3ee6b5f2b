"""Files of `prime eval`, written and read back, those of other programs, episodes of verifiers 0.4, and heartbeats."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from pytest_osmosis.addons.verifiers import prime_files
from pytest_osmosis.addons.verifiers.prime_files import GrowingPrimeFiles, Heartbeat, folder_of, write_prime_files
from pytest_osmosis.addons.verifiers.prime_import import (
    PrimeRun,
    has_failed,
    prompt_of,
    read_prime_run,
    took_ms,
    usage_of,
)
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import StoredEvalRun, stored
from pytest_osmosis.record.journal import encode
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.verdicts.pass_rule import PassRule
from tests.plugin.workspaces import wait_until
from tests.unit.made import MANIFEST, A

RULE = PassRule((A,))
MESSAGES = [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]
OF_MODULE = {"env_id": "owner/word-count", "module": "word_count", "code": "", "n_rows": 1, "pass_threshold": 1.0}
ENVIRONMENT: Mapping[str, Any] = {
    **OF_MODULE,
    **{name: {} for name in ("env_args", "extra_env_kwargs", "sampling")},
    **{name: [] for name in ("state_columns", "functions", "tools", "notes")},
    **dict.fromkeys(("version", "framework")),
    "grouped": False,
}


def rollout(row: int, run: int = 0, **fields: Any) -> dict[str, Any]:
    at = {"row": row, "run": run, "attempt": 1}
    return {"ev": "rollout", **at, "ms": 5.0, "messages": MESSAGES, "n_prompt": 1, **fields}


def score(value: float, row: int, run: int = 0) -> dict[str, Any]:
    return {**rollout(row, run), "ev": "score", "scores": {A: value}, "errors": {}, "output": {}}


def eval_run(folder: Path, *events: Mapping[str, Any], **manifest: Any) -> StoredEvalRun:
    directory = RunDirectory(folder / ".osmosis/runs/x-1")
    directory.path.mkdir(parents=True)
    directory.manifest.write_text(json.dumps({**MANIFEST, "pass_rule": RULE.to_json(), **manifest}))
    loaded = {"ev": "loaded", "scorers": [A], "digests": {A: "0"}}
    directory.journal.write_bytes(b"".join(map(encode, (loaded, *events))))
    return stored(directory)


def of_another_program(folder: Path, results: str, **metadata: Any) -> PrimeRun:
    (folder / "results.jsonl").write_text(results)
    (folder / "metadata.json").write_text(json.dumps({"env_id": "sums", "model": "m", **metadata}))
    return read_prime_run(folder)


def test_a_line_has_the_reward_of_a_run_or_the_reason_why_there_is_none(tmp_path: Path) -> None:
    told = {"error": "ToolError", "error_chain_repr": "ToolError('no')", "error_chain_str": "ToolError"}
    broke: dict[str, Any] = {"boundary": "agent", "error": "ValueError: no", "details": ""}
    events = [rollout(0), score(0.25, 0), rollout(1, **broke), rollout(2, **broke, environment={"error": told})]

    assert write_prime_files(eval_run(tmp_path, *events), tmp_path / "out", Redaction()) == 3

    lines = read_prime_run(tmp_path / "out").lines
    assert [line["reward"] for line in lines] == [0.25, 0.0, 0.0]
    assert [line["error"] for line in lines] == [
        None,
        {"error": "ValueError", "error_chain_repr": "ValueError: no", "error_chain_str": "ValueError"},
        told,
    ]
    assert [has_failed(line) for line in lines] == [False, True, True]
    assert lines[0]["prompt"] + lines[0]["completion"] == MESSAGES


def test_files_replace_links(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name in ("results.jsonl", "metadata.json"):
        (tmp_path / name).write_text("another's")
        (tmp_path / "out" / name).symlink_to(tmp_path / name)

    write_prime_files(eval_run(tmp_path, rollout(0), score(1.0, 0)), tmp_path / "out", Redaction())

    assert [(tmp_path / name).read_text() for name in ("results.jsonl", "metadata.json")] == ["another's"] * 2
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())


def test_a_folder_is_named_after_environment_or_eval(tmp_path: Path) -> None:
    for fields, name in (({}, "x"), ({"environment": ENVIRONMENT}, "word-count")):
        run = eval_run(tmp_path / name, **fields)
        assert folder_of(run, tmp_path) == tmp_path / f"evals/{name}--demo--arithmetic/x-1"


def test_a_row_is_written_once_all_of_its_runs_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prime_files, "PAUSE_S", 0.0)
    run = eval_run(tmp_path, rollout(0, 0), score(1.0, 0, 0), rollout(0, 1), score(0.5, 0, 1), rollout(1))
    runs = [RunId(0, 0), RunId(0, 1), RunId(0, 0, ModelTag.BASELINE), RunId(1, 0)]
    folder = folder_of(run, tmp_path)
    growing = GrowingPrimeFiles(run.directory, tmp_path, runs, lambda: RULE, Redaction())

    growing.run_done(RunId(0, 0))
    growing.run_done(RunId(0, 0, ModelTag.BASELINE))
    assert not folder.exists()
    growing.run_done(RunId(0, 1))
    wait_until(lambda: (folder / "metadata.json").exists(), "the first row")
    assert rewards(folder) == {(0, 0): 1.0, (0, 1): 0.5}
    with run.directory.journal.open("ab") as journal:
        journal.write(encode(score(0.25, 1)))
    growing.run_done(RunId(1, 0))
    wait_until(lambda: len(rewards(folder)) == 3, "the second row")
    growing.close()

    assert rewards(folder) == {(0, 0): 1.0, (0, 1): 0.5, (1, 0): 0.25}
    assert read_prime_run(folder).metadata["avg_reward"] == pytest.approx(1.75 / 3)


def rewards(folder: Path) -> dict[tuple[int, int], float]:
    lines = read_prime_run(folder).lines
    return {(line["example_id"], line["run_index"]): line["reward"] for line in lines}


@pytest.mark.parametrize("end", ["", '{"example_id": 2, "rew'])
def test_blank_lines_count_and_a_torn_last_line_is_passed_over(tmp_path: Path, end: str) -> None:
    found = of_another_program(tmp_path, f'\n{{"example_id": 0}}\n  \n{{"example_id": 1, "reward": 1}}\n{end}')

    assert [(line["example_id"], has_failed(line)) for line in found.lines] == [(0, True), (1, False)]
    assert found.torn == bool(end)
    empty = of_another_program(tmp_path, "")
    assert (empty.lines, empty.torn) == ([], False)


@pytest.mark.parametrize(("name", "value"), [("rollouts_per_example", 0), ("env_id", None)])
def test_metadata_of_another_form_is_refused_with_its_place(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(OsmosisError, match=f"metadata.json: {name}: "):
        of_another_program(tmp_path, "", **{name: value})


# -- means and pass rates, with the cases of verifiers' own tests (tests/test_save_utils.py) --------------


USAGE = {"input_tokens": 10.0, "output_tokens": 5.0}


def totals(runs: int, rewards: Mapping[int, Sequence[float]], threshold: float = 0.5, **members: Any) -> Any:
    found = prime_files._Totals(runs, threshold)
    for example, values in rewards.items():
        for reward in values:
            line: dict[str, Any] = {"example_id": example, "reward": reward, "error": None, "tool_defs": []}
            found.add({**line, "metrics": {}, **members})
    return found


@pytest.mark.parametrize(
    ("runs", "threshold", "rewards", "at", "hat"),
    [
        (4, 0.5, {0: [1, 1, 1, 1], 1: [0, 0, 0, 0]}, {"1": 0.5, "2": 0.5, "4": 0.5}, {"1": 0.5, "2": 0.5, "4": 0.5}),
        (4, 0.7, {0: [0.4, 0.6, 0.8, 0.3]}, {"1": 0.25, "2": 0.5, "4": 1.0}, {"1": 0.25, "2": 0.0, "4": 0.0}),
        (4, 0.5, {0: [0.49, 0.5, 1, 0]}, {"1": 0.5, "2": 5 / 6, "4": 1.0}, {"1": 0.5, "2": 1 / 6, "4": 0.0}),
        (4, 0.5, {0: [1, 1, 1, 1], 1: [0, 0]}, {"1": 1.0, "2": 1.0, "4": 1.0}, {"1": 1.0, "2": 1.0, "4": 1.0}),
        (3, 0.5, {0: [1, 1, 1]}, {"1": 1.0, "2": 1.0}, {"1": 1.0, "2": 1.0}),
        (1, 0.5, {0: [1]}, {}, {}),
        (4, 0.5, {}, {}, {}),
    ],
)
def test_pass_rates_are_those_of_verifiers(
    runs: int, threshold: float, rewards: Any, at: dict[str, float], hat: dict[str, float]
) -> None:
    found_at, found_hat = totals(runs, rewards, threshold).pass_rates()

    assert (found_at, found_hat) == (pytest.approx(at), pytest.approx(hat))


def test_metrics_and_usage_are_means_over_the_lines_that_have_them() -> None:
    found = totals(2, {0: [1.0, 0.0]}, metrics={"a": 1.0}, token_usage=USAGE)
    found.add({"example_id": 1, "reward": 0.0, "error": {"error": "X"}, "metrics": {"b": 0.5}, "tool_defs": []})

    mean = prime_files._mean
    assert {name: mean(values) for name, values in found.metrics.items()} == {"a": 1.0, "b": 0.5}
    assert {name: mean(values) for name, values in found.usage.items()} == USAGE
    assert mean(found.rewards) == pytest.approx(1 / 3)
    assert found.n_errors == 1
    assert (mean([1.7e308, 1.7e308, -1.7e308, 0.5]), mean([])) == (1.7e308 / 4, 0.0), "no float holds the first sum"


URL = "https://monitor.example/ping/private"


class Monitor:
    """A monitor, as urllib asks it: it answers once its gate is open, or fails."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.gate = threading.Event()
        self.failure: Exception | None = None

    def open(self, url: str, timeout: float) -> io.BytesIO:
        self.seen.append(url)
        self.gate.wait(60.0)
        if self.failure is not None:
            raise self.failure
        return io.BytesIO()


@pytest.fixture
def monitor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Monitor]:
    monitor = Monitor()
    monkeypatch.setattr("urllib.request.urlopen", monitor.open)
    yield monitor
    monitor.gate.set()


def test_a_row_that_is_done_is_told_unless_a_request_is_open(monitor: Monitor) -> None:
    heartbeat = Heartbeat(URL, [RunId(row, index) for row in range(3) for index in range(2)])
    heartbeat.run_done(RunId(0, 0))
    heartbeat.run_done(RunId(1, 0))
    assert monitor.seen == []
    heartbeat.run_done(RunId(0, 1))
    wait_until(lambda: len(monitor.seen) == 1, "the request")
    heartbeat.run_done(RunId(1, 1))
    monitor.gate.set()
    wait_until(lambda: not heartbeat._idle.locked(), "the answer")
    heartbeat.run_done(RunId(2, 0))
    heartbeat.run_done(RunId(2, 1))
    wait_until(lambda: len(monitor.seen) == 2 and not heartbeat._idle.locked(), "another")
    assert heartbeat.notice is None


@pytest.mark.parametrize("failure", [HTTPError(URL, 404, "Not Found", Message(), None), ValueError("no address")])
def test_failures_are_told_once_and_without_the_rest_of_the_url(monitor: Monitor, failure: Exception) -> None:
    monitor.failure = failure
    monitor.gate.set()
    heartbeat = Heartbeat(URL, [RunId(row, 0) for row in range(2)])
    for row in range(2):
        heartbeat.run_done(RunId(row, 0))
        wait_until(lambda: not heartbeat._idle.locked(), "the answer")
    heartbeat.close()
    assert heartbeat.notice == f"2 of 2 heartbeats to monitor.example failed: {failure}"


# -- episodes of verifiers 0.4 --------------------------------------------------------------------------------


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
