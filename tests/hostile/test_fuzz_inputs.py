"""Fuzzing of what users write: configs and datasets. Only an `OsmosisError` may come of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_osmosis.config import is_training_config
from pytest_osmosis.datasets import check_rows, open_dataset
from pytest_osmosis.errors import DatasetError, OsmosisError
from tests.hostile.fuzzing import Fuzzer, check_message, json_document, json_lines, mutated_bytes
from tests.preparing import prepare

CONFIG = b"""[experiment]
model_path = "openai/gpt-5-mini" # a comment
dataset = "x"
baseline = {results = "base.json"}
[model]
base_url = "http://localhost:8000/v1"
headers = {X-Trace = "a"}
timeout_s = 30
client = "light"
[data]
rows = "0-1, 1"
seed = 3
columns = {user_prompt = "user_prompt"}
[sampling]
temperature = 0.5
seed = 0
stop = ["END"]
[scoring]
eval_fns = ["rewards:f", "rewards:g"]
decide = "all"
[evaluation]
n = 2
limit = 2
pass_threshold = {"rewards:f" = 0.5}
batch_size = 4
[secrets]
required = ["TOKEN"]
[gate]
pass_rate = ">= 0.7"
mean = {min = 0.5, rule = "lower"}
[limits]
max_errors = "5%"
max_cost_usd = 1.5
[prices]
"openai/gpt-5-mini" = {input = 1, output = 2.5}
[execution]
granularity = "row"
hosts = 2
[baseline]
model_path = "demo/arithmetic"
[output]
dir = "runs"
"""
LEAST = b"""[experiment]
model_path = "demo/arithmetic"
dataset = "x"
[scoring]
eval_fns = ["rewards:f"]
[secrets]
required = []
"""
TRAINING = b"""[experiment]
rollout = "mine" # a comment
entrypoint = "main.py"
model_path = "Qwen/Qwen3.6-35B-A3B"
dataset = "x"
[training]
lr = 1e-6
total_epochs = 1
max_prompt_length = 3
agent_workflow_timeout_s = 450
[sampling]
rollout_temperature = 1.0
[checkpoints]
eval_interval = 10
[advanced]
a = {b = [1]}
[env]
LOG_LEVEL = "INFO"
[secrets]
required = ["TOKEN", "OTHER"]
[model]
base_url = "http://localhost:8000/v1"
[limits.rollout]
tokens = 5000
[data]
columns = {user_prompt = "user_prompt"}
"""
MESSAGES = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "1 + 1?"}]}]
ROWS = (
    {"user_prompt": "1 + 1?", "ground_truth": "2", "extra": {"a": [1]}},
    {"messages": MESSAGES, "ground_truth": 2, "solution_str": "2"},
    {"system_prompt": "s", "user_prompt": "é\U0001f600", "ground_truth": None, "score": 0.5},
)
CSV = b'user_prompt,ground_truth,note\r\n"1 + 1?",2,"a\nb"\r\n"a ""quoted"" one",3,\r\n'
SUFFIXES = (".jsonl", ".json", ".csv")


def test_configs(fuzz: Fuzzer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x.jsonl").write_text('{"user_prompt": "1 + 1?", "ground_truth": "2"}\n' * 3, encoding="utf-8")
    path = tmp_path / "configs/eval/x.toml"
    path.parent.mkdir(parents=True)

    def target(content: bytes) -> None:
        path.write_bytes(content)
        try:
            prepare(path, environ={"OPENAI_API_KEY": "sk-fuzz-0123456789", "TOKEN": "x" * 20})
        except OsmosisError as error:
            check_message(error)

    fuzz("toml", target, mutated_bytes([CONFIG, LEAST]))


def test_training_configs(fuzz: Fuzzer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("data", "rollouts/mine", "configs/training"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "data/x.jsonl").write_text('{"user_prompt": "1 + 1?", "ground_truth": "2"}\n{}\n', encoding="utf-8")
    (tmp_path / "rollouts/mine/main.py").write_text("", encoding="utf-8")
    path = tmp_path / "configs/training/x.toml"

    def target(content: bytes) -> None:
        path.write_bytes(content)
        assert is_training_config(path)
        try:
            prepare(path, environ={"TOKEN": "x" * 20}, training=True)
        except OsmosisError as error:
            check_message(error)

    fuzz("training", target, mutated_bytes([TRAINING]))


def test_datasets(fuzz: Fuzzer, tmp_path: Path) -> None:
    def target(content: bytes) -> None:
        for suffix in SUFFIXES:
            path = tmp_path / f"rows{suffix}"
            path.write_bytes(content)
            try:
                dataset = open_dataset(path, display=path.name)
                checked = check_rows(dataset, range(len(dataset)))
                rows = [dataset.row(index) for index in range(len(dataset))]
            except DatasetError as error:
                check_message(error)
                continue
            assert all(row.messages for row in rows)
            json.dumps([checked.notes, [row.record for row in rows]], allow_nan=False)

    rows = json_document(list(ROWS)) | json_lines(ROWS) | mutated_bytes([CSV])
    fuzz("rows", target, rows)
