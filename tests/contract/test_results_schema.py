"""The JSON Schema of results.json and the results of real evals have the same keys."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import pytest_osmosis
from tests.plugin.conftest import shell, workspace
from tests.plugin.workspaces import Workspace

__all__ = ["shell", "workspace"]

SCHEMA = json.loads((Path(pytest_osmosis.__file__).parent / "results.schema.json").read_text(encoding="utf-8"))

CONFIG = """
[experiment]
model_path = "demo/arithmetic"
dataset = "x"
[evaluation]
n = 2
batch_size = 4
limit = 7
[scoring]
eval_fns = ["answering:exact"]
[agent]
agent = "answering:rollout"
max_turns = 1
[gate]
pass_rate = ">= 0.1"
[limits]
max_errors = 100
[secrets]
required = []
"""

RECORDED = """
[experiment]
dataset = "r"
[data]
rows = "all"
[scoring]
eval_fns = ["answering:exact"]
score_ranges = {"answering:exact" = [-1, 1]}
rubric = "Right?"
[judge]
model_path = "demo/judge"
votes = 2
[agent]
agent = "recorded"
[secrets]
required = []
"""

CODE = """
from pytest_osmosis import AgentWorkflowOutput


async def rollout(ctx):
    word = ctx.prompt[-1]["content"].split()[0]
    if word == "raise":
        raise RuntimeError("the agent broke")
    if word == "loop":
        await ctx.chat(ctx.prompt)
    messages = [*ctx.prompt, (await ctx.chat(ctx.prompt)).message]
    return AgentWorkflowOutput(messages, metrics={"turns": 1}, info={"plan": ["multiply"]})


def exact(solution_str, ground_truth):
    if ground_truth == "broken":
        raise ValueError("the scorer broke")
    score = float(ground_truth in solution_str)
    return {"score": score, "reason": "it looked", "metrics": {"length": len(solution_str)}}
"""

ROWS = [
    ("2 * 3?", "6"),
    ("2 * 4?", "7"),
    ("raise", "1"),
    ("2 * 5?", "broken"),
    ("2 * 6?", "12"),
    ("2 * 7?", "14"),
    ("loop", "1"),
]

Evaluate = Callable[..., Any]


@pytest.fixture
def evaluate(workspace: Workspace) -> Evaluate:
    """A function that runs a session of an eval, and returns its results."""
    workspace.write("answering.py", CODE)
    lines = [json.dumps({"user_prompt": prompt, "ground_truth": truth}) for prompt, truth in ROWS]
    workspace.write("data/x.jsonl", "\n".join(lines))

    def evaluate(config: str = CONFIG, *words: str) -> Any:
        path = workspace.write("x.toml", config)
        workspace.run(*(words or ["x.toml"]), "--osmosis-no-probe")
        return workspace.results(path.stem)

    return evaluate


def faults(results: object) -> list[str]:
    validator = Draft202012Validator(SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(results)]


def removing(config: str) -> str:
    """Return the config with a Grader that removes every run."""
    Path("taking.py").write_text(
        "from pytest_osmosis import Grader\n\n\nclass Out(Grader):\n"
        "    async def grade(self, ctx):\n        ctx.sample.remove_sample = True\n        ctx.set_reward(0.0)\n"
    )
    return config.replace('eval_fns = ["answering:exact"]', 'grader = "taking:Out"')


def test_the_schema_is_a_valid_json_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


OF_ENTRIES = {
    name for table in ("entries", "entry", "entry_difference") for name in SCHEMA["$defs"][table]["properties"]
} | {"comparison"}
"""Keys of evals that ran with others of their config: `unit/results/test_metrics.py` writes and reads them."""
ELSEWHERE = OF_ENTRIES | {
    *("repeated", "shards", "imported", "imported_from", "replicas", "left_out", "back"),
}
"""Also those of runs whose host crashed, and of merged shards, which `unit/results/test_merge.py` writes and reads; of
imported runs, which `plugin/test_prime_files.py` reads; and of replicas, which `plugin/test_baseline_results.py` does.
"""


@pytest.mark.slow
def test_results_of_every_kind_are_valid_and_use_every_key_of_the_schema(evaluate: Evaluate) -> None:
    whole = evaluate()
    again = evaluate()
    rescored = evaluate(CONFIG, "--osmosis-from=latest")
    partial = evaluate(CONFIG, "x.toml::x[row0-run0]")
    interrupted = evaluate(CONFIG, "x.toml", "--osmosis-set=limits.max_tokens=1")
    nowhere = '[model]\nbase_url = "http://127.0.0.1:9/v1"\nmax_retries = 0\n'  # port 9 is discard
    served = CONFIG.replace("demo/arithmetic", "served").replace("max_turns", 'prompt = "Be brief."\nmax_turns')
    stopped = evaluate(served + nowhere)
    removed = evaluate(removing(CONFIG))
    base = copy.deepcopy(whole)
    base["rows"][1]["runs"][0].update(passed=True, scores={"answering:exact": 1.0})
    Path("base.json").write_text(json.dumps(base))
    compared = evaluate(f'{CONFIG}[baseline]\nresults = "base.json"\n')
    judged = CONFIG.replace("[scoring]", '[judge]\nmodel_path = "demo/judge"\n[scoring]\nrubric = "Right?"')
    two_models = evaluate(f'{judged}[baseline]\nmodel_path = "demo/arithmetic"\n')

    answers = [{"solution_str": "42", "ground_truth": str(truth)} for truth in (42, 43)]
    Path("data/r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answers))
    recorded = evaluate(RECORDED)

    assert faults(recorded) == []
    shard = evaluate(f'{CONFIG}[baseline]\nresults = "base.json"\n', "x.toml", "--osmosis-shard=1/2")
    kept = evaluate(f'{CONFIG}[cassette]\nrecord = "new"\n')
    kinds = [whole, again, rescored, partial, interrupted, stopped, removed, compared, two_models, kept, shard]
    assert [faults(results) for results in kinds] == [[]] * len(kinds)
    assert [results for results in kinds if results["partial"]] == [partial, shard]
    statuses = {run["status"] for results in kinds for row in results["rows"] for run in row["runs"]}
    assert statuses == {"finished", "failed", "skipped"}
    assert {"agent", "reward", "provider"} == {name for results in kinds for name in results["summary"]["boundaries"]}
    assert [results["status"] for results in (stopped, interrupted)] == ["failed", "stopped"]
    assert interrupted["pending"]
    assert [results for results in kinds if results["last_run"] is not None] == [again, compared, kept]
    assert [results for results in kinds if results["rescored"] is not None] == [rescored]
    found = {key for results in (*kinds, recorded) for key in keys_of(results)}
    declared = {key for each in (SCHEMA, *SCHEMA["$defs"].values()) for key in each.get("properties", {})}
    assert found >= declared - ELSEWHERE


def keys_of(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        for member in value.values():
            yield from keys_of(member)
    elif isinstance(value, list):
        for item in value:
            yield from keys_of(item)


def test_every_key_is_described() -> None:
    objects = {"results": SCHEMA, **SCHEMA["$defs"]}
    undescribed = [
        f"{title}.{name}"
        for title, schema in objects.items()
        for name, declared in {**schema.get("properties", {}), **schema.get("patternProperties", {})}.items()
        if not (declared.get("description") or SCHEMA["$defs"][declared["$ref"].rpartition("/")[2]].get("description"))
    ]
    assert undescribed == []


def test_an_unknown_key_is_invalid_in_every_object() -> None:
    declared = {name: each for name, each in SCHEMA["$defs"].items() if "properties" in each}
    parts = {"judge_sums", "judges"}  # of which other objects are made

    assert SCHEMA["additionalProperties"] is False
    assert {name for name, each in declared.items() if each.get("additionalProperties") is not False} == parts


CHANGES: dict[str, tuple[Callable[[Any], object], str]] = {
    "a missing table": (lambda results: results.pop("gates"), "gates"),
    "a missing key": (lambda results: results["rows"][0]["runs"][0].pop("tokens"), "tokens"),
    "a rate above 1": (lambda results: results["summary"].update(pass_rate=1.5), "pass_rate"),
    "stopped without a reason": (lambda results: results.update(status="stopped"), "stop_reason"),
}
"""Changes that break the format, and a name that the fault has."""


def test_results_that_break_the_format_are_invalid(evaluate: Evaluate) -> None:
    results = evaluate(CONFIG, "x.toml::x[row0-run0]")
    found = {}
    for name, (change, _) in CHANGES.items():
        changed = copy.deepcopy(results)
        change(changed)
        found[name] = "".join(faults(changed))

    assert [name for name, (_, place) in CHANGES.items() if place not in found[name]] == []
