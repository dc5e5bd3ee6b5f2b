"""Every rule of an eval config, broken: the problems that users read, beginning with the line number."""

# ruff: noqa: E501 (messages are not broken)

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_osmosis.config import EvalConfig, Override, load_eval_config
from pytest_osmosis.config.eval_tables import EVAL_TABLES
from pytest_osmosis.errors import ConfigError

Problems = Callable[..., list[str]]
Case = tuple[str, list[str]]
"""The body of a table, and all problems, with their lines."""

CLIENTS = '"auto", "openai", "anthropic", "light", "litellm"'
EVALUATION_KEYS = "(valid: limit, n, batch_size, pass_threshold, agent_workflow_timeout_s, grader_timeout_s)"
TABLES = "(valid: experiment, evaluation, advanced, env, secrets, model, sampling, scoring, judge, agent, environment, data, execution, gate, limits, baseline, output, cassette, prices)"
GATE_KEYS = '(valid: pass_rate, mean, max_regression, pass_at_K, pass_hat_K, "module:function")'
ROWS = 'row numbers and inclusive ranges like "3,7,10-20", or "all"'
ENV_NAME = "the name must match ^[A-Z_][A-Z0-9_]*$ and must not start with _OSMOSIS_ (reserved)"
RESERVED = "set by the run itself; leave it out (reserved: messages, model, tools, stream, n)"
SHARE = 'must be ">= X" or {min = X, rule = "lower"} with X between 0 and 1, like ">= 0.7"'
ERRORS = 'a count of runs (an integer of at least 0) or a share of them like "5%"'
ROLLOUT_BOUNDS = (
    "a table with any of tokens, tool_calls (integers of at least 1) and cost_usd (a finite number above 0)"
)
UNASKED = "needs [scoring] rubric, by which the judge scores; without one it is not asked"
JUDGE = 'name the model that judges by [scoring] rubric, like "openai/gpt-5.4-mini"'
RUBRIC_PATH = "a rubric that ends in .md or .txt is the path of one"
RANGE = "an array of the lowest and the highest score, like [0, 1]"
NOT_NEGATIVE = "a finite number of at least 0"
PRICE = "a finite number from 0 to 1,000,000"


def got(table: str, key: str, problem: str, *values: str, above: str = "", below: str = "") -> list[Case]:
    """Cases of one key, with one problem that ends with the value. `above` and `below` are other lines of the table."""
    return [
        (
            "\n".join(filter(None, (above, f"{key} = {value}", below))),
            [f"{above.count('=') + 2}: [{table}] {key}: {problem}, got {value}"],
        )
        for value in values
    ]


BROKEN: dict[str, list[Case]] = {
    "experiment": [
        *got("experiment", "model_path", "must be a string that is not blank", '" "', "5"),
        *got("experiment", "dataset", "must be a string that is not blank", '" "', "5", '"a\\u0000"'),
        *got(
            "experiment",
            "commit_sha",
            "must be a commit SHA of 7 to 40 hexadecimal digits",
            '"abc12"',
            '"abcdefg"',
            '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"',
        ),
        *got("experiment", "branch", "must be a branch name without whitespace", '""', '"my branch"', "3"),
        (
            'branch = "main"\ncommit_sha = "abcdef7"',
            ["2: [experiment] branch: cannot be used with commit_sha; keep one of them"],
        ),
        ('rollout = "multiply"', ["1: [experiment] entrypoint: missing; set both rollout and entrypoint, or neither"]),
        ('entrypoint = "main.py"', ["1: [experiment] rollout: missing; set both rollout and entrypoint, or neither"]),
        *got(
            "experiment",
            "rollout",
            "must be the name of one folder under rollouts/, not a path",
            '""',
            '"."',
            '".."',
            '"a/b"',
            '"/abs"',
            '"a\\\\b"',
            "7",
            below='entrypoint = "main.py"',
        ),
        (
            'rollout = "nope"\nentrypoint = "main.py"',
            [
                '2: [experiment] rollout: must be a folder in rollouts, got "nope" (available: elsewhere, empty, multiply)'
            ],
        ),
        *got("experiment", "entrypoint", "must be a string that is not blank", '" "', above='rollout = "multiply"'),
        (
            'rollout = "multiply"\nentrypoint = "man.py"',
            [
                '3: [experiment] entrypoint: must be a file in rollouts/multiply/, got "man.py" (available: link.py, main.py, tools.py)'
            ],
        ),
        (
            'rollout = "multiply"\nentrypoint = "sub"',
            [
                '3: [experiment] entrypoint: must be a file in rollouts/multiply/, got "sub" (available: link.py, main.py, tools.py)'
            ],
        ),
        (
            'rollout = "empty"\nentrypoint = "main.py"',
            ['3: [experiment] entrypoint: must be a file in rollouts/empty/, got "main.py" (available: none)'],
        ),
        *got(
            "experiment",
            "entrypoint",
            "must be under rollouts/multiply/ (symlinks resolved)",
            '"../../../outside.py"',
            '"/etc/hostname"',
            '"link.py"',
            above='rollout = "multiply"',
        ),
        (
            "x.y = 1",
            ["2: [experiment] x: unknown key (valid: rollout, entrypoint, model_path, dataset, commit_sha, branch)"],
        ),
        *got(
            "experiment",
            "rollout",
            "must be under rollouts/ (symlinks resolved)",
            '"elsewhere"',
            below='entrypoint = "outside.py"',
        ),
    ],
    "evaluation": [
        *got(
            "evaluation", "n", "must be an integer of at least 1 and at most 9,223,372,036,854,775,807", "1" + "0" * 30
        ),
        *got("evaluation", "limit", "must be an integer of at least 1", "0", "-1", "true", "1.0", '"3"', '"all"'),
        *got("evaluation", "n", "must be an integer of at least 1", "0", "-1", "true", "1.0", '"3"'),
        *got("evaluation", "batch_size", "must be an integer of at least 1", "0", "-1", "true", "1.0", '"3"'),
        *got("evaluation", "pass_threshold", "must be a finite number", "nan", "inf", "-inf", "true", '"1"'),
        (
            "pass_threshold = 1" + 400 * "0",
            ["2: [evaluation] pass_threshold: must be a finite number, got 1" + 96 * "0" + "..."],
        ),
        *got(
            "evaluation",
            "agent_workflow_timeout_s",
            "must be a finite number above 0 and at most 31,536,000 (a year)",
            "0",
            "-1.5",
            "nan",
            "inf",
            "false",
            '"1"',
        ),
        *got(
            "evaluation",
            "grader_timeout_s",
            "must be a finite number above 0 and at most 31,536,000 (a year)",
            "0",
            "-1.5",
            "nan",
            "inf",
            "false",
            '"1"',
        ),
        (
            "pass_treshold = 1",
            [f'2: [evaluation] pass_treshold: unknown key, did you mean "pass_threshold"? {EVALUATION_KEYS}'],
        ),
        ("zzz = 1", [f"2: [evaluation] zzz: unknown key {EVALUATION_KEYS}"]),
        (
            "temperature = 1",
            [f"2: [evaluation] temperature: unknown key, did you mean [sampling] temperature? {EVALUATION_KEYS}"],
        ),
    ],
    "env": [
        ('log_level = "x"', [f'2: [env] log_level: {ENV_NAME}, got "log_level"']),
        ('1A = "x"', [f'2: [env] 1A: {ENV_NAME}, got "1A"']),
        ('_OSMOSIS_X = "x"', [f'2: [env] _OSMOSIS_X: {ENV_NAME}, got "_OSMOSIS_X"']),
        ('"A B" = "x"', [f'2: [env] "A B": {ENV_NAME}, got "A B"']),
        *got("env", "A", "must be a string without NUL", "1", '"\\u0000"'),
        ("a = 1", [f'2: [env] a: {ENV_NAME}, got "a"', "2: [env] a: must be a string without NUL, got 1"]),
    ],
    "secrets": [
        *got("secrets", "required", "must be an array of distinct names", '"A"'),
        (
            'required = ["a", "B", 3, "_C"]',
            [
                '2: [secrets] required: each must be a name that matches ^[A-Z][A-Z0-9_]*$, got "a"',
                "2: [secrets] required: each must be a name that matches ^[A-Z][A-Z0-9_]*$, got 3",
                '2: [secrets] required: each must be a name that matches ^[A-Z][A-Z0-9_]*$, got "_C"',
            ],
        ),
        (
            'required = ["sk-proj-1234567890abcdef"]',
            [
                "2: [secrets] required: each must be a name that matches ^[A-Z][A-Z0-9_]*$, got a string of 24 characters"
            ],
        ),
        ('required = ["A", "B", "A"]', ['2: [secrets] required: duplicate "A"']),
        (
            'required = ["A", "b-key", "A", "b-key"]',
            [
                *['2: [secrets] required: each must be a name that matches ^[A-Z][A-Z0-9_]*$, got "b-key"'] * 2,
                '2: [secrets] required: duplicate "A"',
            ],
        ),
        ("optional = []", ["2: [secrets] optional: unknown key (valid: required)"]),
    ],
    "model": [
        *got(
            "model",
            "base_url",
            "must be an http:// or https:// URL with a host",
            '"localhost:8000"',
            '"ftp://host"',
            '"http://"',
            '"http://h ost"',
            '"http://host:99999"',
            '"http://host:0"',
            '"http://[::1"',
            "8000",
            '""',
        ),
        *got("model", "api_key_env", "must be the name of an environment variable, not the key itself", '"MY-KEY"'),
        (
            'api_key_env = "sk-proj-1234567890abcdef"',
            [
                "2: [model] api_key_env: must be the name of an environment variable, not the key itself, got a string of 24 characters"
            ],
        ),
        *got("model", "client", f"must be one of {CLIENTS}", '"curl"', "[]"),
        ('headers = "Bearer s3cr3t"', ["2: [model] headers: must be a table of header names to strings, got a string"]),
        (
            'headers = {"X Y" = "1", B = 2, C = "s3cr3t\\r\\nD: 1"}',
            [
                '2: [model] headers."X Y": the name must be an HTTP header name, got "X Y"',
                "2: [model] headers.B: must be a string without line breaks, got 2",
                "2: [model] headers.C: must be a string without line breaks, got one with a line break or a NUL",
            ],
        ),
        *got("model", "max_response_mb", "must be an integer of at least 1", "0", "true", "0.5"),
        *got("model", "max_retries", "must be an integer from 0 to 1,000", "-1", "true", "1.5"),
        *got(
            "model", "timeout_s", "must be a finite number above 0 and at most 31,536,000 (a year)", "0", "inf", "true"
        ),
    ],
    "sampling": [
        *got("sampling", "temperature", f"must be {NOT_NEGATIVE}", "-0.1", "nan", "true", '"hot"'),
        *got("sampling", "top_p", "must be a finite number above 0 and at most 1", "0", "1.1", "inf", "true"),
        *got("sampling", "max_tokens", "must be an integer of at least 1", "0", "1.0", "true"),
        *got("sampling", "seed", "must be an integer", "1.0", "true", '"1"'),
        *got(
            "sampling",
            "stop",
            "must be a string or an array of strings, none of them empty",
            "1",
            '""',
            '["a", 1]',
            '["a", ""]',
        ),
        *got("sampling", "extra_body", "must be a table of JSON values", '"x"'),
        ("extra_body = {a = 1, messages = 1}", [f"2: [sampling] extra_body.messages: {RESERVED}"]),
        ("extra_body = {a = 1, model = 1}", [f"2: [sampling] extra_body.model: {RESERVED}"]),
        ("extra_body = {a = 1, tools = 1}", [f"2: [sampling] extra_body.tools: {RESERVED}"]),
        ("extra_body = {a = 1, stream = 1}", [f"2: [sampling] extra_body.stream: {RESERVED}"]),
        ("extra_body = {a = 1, n = 1}", [f"2: [sampling] extra_body.n: {RESERVED}"]),
        ("extra_body = {a = nan}", ["2: [sampling] extra_body.a: must be a JSON value, got nan"]),
        ("extra_body = {a = 2020-01-01}", ["2: [sampling] extra_body.a: must be a JSON value, got 2020-01-01"]),
        ("extra_body = {a = [inf]}", ["2: [sampling] extra_body.a: must be a JSON value, got [inf]"]),
        ("extra_body = {a = {d = 07:32:00}}", ["2: [sampling] extra_body.a: must be a JSON value, got {d = 07:32:00}"]),
    ],
    "scoring": [
        *got(
            "scoring", "eval_fns", 'must be an array of distinct functions, each "module:function"', '"rewards:exact"'
        ),
        (
            'eval_fns = ["exact", "a:b", "a b:c", "a:", 1]',
            [
                '2: [scoring] eval_fns: each must be "module:function", got "exact"',
                '2: [scoring] eval_fns: each must be "module:function", got "a b:c"',
                '2: [scoring] eval_fns: each must be "module:function", got "a:"',
                '2: [scoring] eval_fns: each must be "module:function", got 1',
            ],
        ),
        ('eval_fns = ["a:b", "a:b"]', ['2: [scoring] eval_fns: duplicate "a:b"']),
        *got("scoring", "grader", 'must be "module:Class"', '"Grader"'),
        ('rubric = "be kind"', [f"1: [judge] model_path: missing; {JUDGE}"]),
        (
            'rubric = "rubrics/none.md"',
            [
                f"1: [judge] model_path: missing; {JUDGE}",
                f"2: [scoring] rubric: must be an existing file (looked for rubrics/none.md); {RUBRIC_PATH}",
            ],
        ),
        (
            'rubric = "../outside.txt"',
            [
                f"1: [judge] model_path: missing; {JUDGE}",
                '2: [scoring] rubric: must be inside the workspace (symlinks resolved), got "../outside.txt"',
            ],
        ),
        *got("scoring", "thresholds", "must be a table of function names to numbers", "0.5"),
        (
            'thresholds = {"rewards:exact" = nan, "rewards:close" = "1"}',
            [
                '2: [scoring] thresholds."rewards:exact": must be a finite number, got nan',
                '2: [scoring] thresholds."rewards:close": must be a finite number, got "1"',
            ],
        ),
        (
            'thresholds = {"rewards:exakt" = 1}',
            [
                '2: [scoring] thresholds."rewards:exakt": unknown function, did you mean "rewards:exact"? (valid: "rewards:exact", "rewards:close")'
            ],
        ),
        *got("scoring", "score_ranges", "must be a table of function names to ranges, like [-1, 1]", "[-1, 1]"),
        (
            'score_ranges = {"rewards:exact" = [1, 0], "rewards:close" = [0]}',
            [
                '2: [scoring] score_ranges."rewards:exact": the highest score must be above the lowest, got [1, 0]',
                '2: [scoring] score_ranges."rewards:close": must be an array of the lowest and the highest score, like [0, 1], got [0]',
            ],
        ),
        (
            'score_ranges = {"rewards:exakt" = [0, 1]}',
            [
                '2: [scoring] score_ranges."rewards:exakt": unknown function, did you mean "rewards:exact"? (valid: "rewards:exact", "rewards:close")'
            ],
        ),
        (
            "thresholds = {reward = 1}",
            [
                '2: [scoring] thresholds.reward: unknown function, did you mean "rewards:exact"? (valid: "rewards:exact", "rewards:close")'
            ],
        ),
        (
            'decide = "rewards:clos"',
            [
                '2: [scoring] decide: must be "all", "any" or one function, got "rewards:clos", did you mean "rewards:close"? (valid: "all", "any", "rewards:exact", "rewards:close")'
            ],
        ),
        (
            'decide = "reward"',
            [
                '2: [scoring] decide: must be "all", "any" or one function, got "reward", did you mean "rewards:exact"? (valid: "all", "any", "rewards:exact", "rewards:close")'
            ],
        ),
        *got("scoring", "decide", "must be a string that is not blank", "true"),
    ],
    "judge": [
        *got("judge", "model_path", "must be a string that is not blank", '" "', "5"),
        *got("judge", "base_url", "must be an http:// or https:// URL with a host", '"localhost:8000"'),
        *got("judge", "client", f"must be one of {CLIENTS}", '"gpt"'),
        *got("judge", "votes", "must be an integer from 1 to 100", "0", "101", "true"),
        (
            'model_path = "m"\nvotes = 3\nmax_retries = 1\nrequests_per_minute = 9',
            [f"{line}: [judge] {key}: {UNASKED}" for line, key in ((2, "model_path"), (3, "votes"))],
        ),
        *got("judge", "score_range", f"must be {RANGE}", "1", "[1]", '["0", "1"]', "[0, nan]"),
        *got("judge", "score_range", "the highest score must be above the lowest", "[1, 1]", "[1, 0]"),
        *got("judge", "sees", 'must be one of "answer", "conversation"', '"all"'),
        *got("judge", "max_retries", "must be an integer from 0 to 1,000", "-1"),
        *got("judge", "requests_per_minute", "must be an integer of at least 1", "0"),
        ('metadata = ["a", "a"]', ['2: [judge] metadata: duplicate "a"']),
        ("extra_body = {model = 1}", [f"2: [judge] extra_body.model: {RESERVED}"]),
    ],
    "agent": [
        *got("agent", "agent", 'must be "chat", "recorded" or "module:attr"', '"server"', '"a:b c"', "1"),
        *got("agent", "max_turns", "must be an integer of at least 1", "0", "true"),
        ('mcp = "nothing"', ['2: [agent] mcp: must be a folder, got "nothing" (looked for nothing)']),
        ('mcp = "rollouts"', ['2: [agent] mcp: must hold main.py with a FastMCP server, got "rollouts"']),
        ('mcp = ".."', ['2: [agent] mcp: must be inside the workspace (symlinks resolved), got ".."']),
        ('agent = "chat"\nmcp = "rollouts"', ["3: [agent] mcp: cannot be used with agent; keep one of them"]),
    ],
    "data": [
        *(
            (
                f'path = "{path}"',
                [
                    f'2: [data] path: "{path}" lies outside the workspace (symlinks resolved); copy it in, '
                    f"or use --osmosis-dataset={path}"
                ],
            )
            for path in ("../outside.jsonl", "/etc/x.jsonl", "data/link.jsonl")
        ),
        (
            'path = "data/none.jsonl"',
            ['2: [data] path: must be an existing file, got "data/none.jsonl" (looked for data/none.jsonl)'],
        ),
        (
            'path = "data/folder.jsonl"',
            ['2: [data] path: "data/folder.jsonl" is a folder, not a file'],
        ),
        *got("data", "path", "must end in .jsonl, .json, .csv, .parquet", '"data/multiply.txt"'),
        *got("data", "path", "must be a string that is not blank", '""'),
        *got("data", "offset", "must be an integer of at least 0", "-1", "true", "1.0"),
        *got("data", "rows", f"must be {ROWS}, as a string", "3"),
        *got("data", "rows", f'must be {ROWS}; "x" is neither a number nor a range', '"3,x"'),
        *got("data", "rows", f'must be {ROWS}; "" is neither a number nor a range', '""', '"1,,2"'),
        *got("data", "rows", f'must be {ROWS}; "-3" is neither a number nor a range', '"-3"'),
        *got("data", "rows", f'must be {ROWS}; "all" is neither a number nor a range', '"all,3"'),
        *got("data", "rows", f'must be {ROWS}; "20-10" is backwards, write "10-20"', '"20-10"'),
        *got("data", "seed", "must be an integer", "true", "0.5"),
        *got("data", "columns", "must be a table of our column names to the dataset's", '"question"'),
        (
            'columns = {prompt = "q", user_prompt = ""}',
            [
                '2: [data] columns.prompt: the name must be one of "user_prompt", "system_prompt", "ground_truth", "messages", "metadata", "solution_str", got "prompt"',
                '2: [data] columns.user_prompt: must be a string that is not blank, got ""',
            ],
        ),
    ],
    "execution": [
        *got("execution", "hosts", 'must be an integer from 1 to 10,000, or "auto"', "0", "10001"),
        (
            "hosts = 513",
            [
                '2: [execution] hosts: must be at most 512 with engine = "local", one machine, got 513; set it by --osmosis-hosts=N'
            ],
        ),
        *got("execution", "engine", 'must be one of "local", "ray"', '"dask"'),
        *got(
            "execution",
            "ray",
            "must be a table with any of address, resources, workspace, exclude, runtime_env",
            '"auto"',
        ),
        (
            """engine = "ray"
hosts = 6400
[execution.ray]
adress = "auto"
resources = {num_cpus = -1, cpus = 2, memory = 1.5, resources = {GPU = 1}, label_selector = {zone = 3}}
workspace = "copy"
exclude = [1]""",
            [
                '5: [execution] ray.adress: unknown key, did you mean "address"? (valid: address, resources, '
                "workspace, exclude, runtime_env)",
                "6: [execution] ray.resources.num_cpus: must be a finite number of at least 0, got -1",
                '6: [execution] ray.resources.cpus: unknown key, did you mean "num_cpus"? (valid: num_cpus, num_gpus, '
                "memory, resources, label_selector, accelerator_type)",
                "6: [execution] ray.resources.memory: must be an integer of at least 0, got 1.5",
                "6: [execution] ray.resources.resources.GPU: the name must be the name of a custom resource, not CPU, "
                'GPU, memory, object_store_memory, got "GPU"',
                "6: [execution] ray.resources.label_selector.zone: must be a string that is not blank, got 3",
                '7: [execution] ray.workspace: must be one of "shared", "upload", got "copy"',
                "8: [execution] ray.exclude: each must be a string that is not blank, got 1",
            ],
        ),
        *(
            (
                f'ray.address = "{address}"',
                [
                    '2: [execution] ray.address: must be "auto" or the address of the head, like "10.0.0.1:6379"'
                    f'{why}, got "{address}"'
                ],
            )
            for address, why in {
                "local": "",
                "10.0.0.1": "",
                "ray://10.0.0.1:10001": ": Ray Client (ray://) is not supported; run pytest on a node of the cluster",
            }.items()
        ),
        (
            """[execution.ray.runtime_env]
pip = 3
conda = 3
env_vars = {A = "b"}
working_dir = "."
container = "x"
""",
            [
                "3: [execution] ray.runtime_env.pip: must be an array of packages, the path of a requirements file, or a "
                "table with packages, got 3",
                "4: [execution] ray.runtime_env.conda: must be the name of an environment, the path of its YAML file, or "
                "a table with what such a file holds, got 3",
                "5: [execution] ray.runtime_env.env_vars: put them in [env]: Ray would write them to its logs",
                '6: [execution] ray.runtime_env.working_dir: workspace = "upload" does that',
                "7: [execution] ray.runtime_env.container: unknown key (valid: pip, uv, conda, image_uri)",
            ],
        ),
        (
            'ray.runtime_env = {pip = ["numpy"], uv = "requirements.txt"}',
            ["2: [execution] ray.runtime_env.uv: cannot be used with pip; keep one of them"],
        ),
        (
            'engine = "ray"\nray = {workspace = "upload", runtime_env = {image_uri = "x/y"}}',
            [
                '3: [execution] ray.runtime_env.image_uri: cannot be used with workspace = "upload", which Ray refuses; '
                "keep one of them"
            ],
        ),
        *got("execution", "granularity", 'must be one of "run", "row"', "1", '"rows"'),
        *got("execution", "watchdog_s", "must be a finite number above 0 and at most 31,536,000 (a year)", "0"),
        ("warnings = 1", ["2: [execution] warnings: not supported yet; leave it out"]),
        *got("execution", "requests_per_minute", "must be an integer of at least 1", "0"),
        *got("execution", "tokens_per_minute", "must be an integer of at least 1", "1.5"),
        (
            "host = 1",
            [
                '2: [execution] host: unknown key, did you mean "hosts"? (valid: engine, ray, hosts, granularity, watchdog_s, '
                "max_concurrent_generation, max_concurrent_scoring, interleave_scoring, requests_per_minute, "
                "tokens_per_minute)"
            ],
        ),
    ],
    "baseline": [
        *got("baseline", "model_path", "must be a string that is not blank", '" "'),
        (
            'model_path = "x"\nresults = "x.json"',
            ["3: [baseline] results: cannot be used with model_path; keep one of them"],
        ),
        (
            'base_url = "http://localhost/v1"\napi_key_env = "K"',
            [
                "2: [baseline] base_url: needs [baseline] model_path",
                "3: [baseline] api_key_env: needs [baseline] model_path",
            ],
        ),
        *got("baseline", "results", "must be inside the workspace (symlinks resolved)", '"../x.json"'),
    ],
    "prices": [
        ("m = {input = 1, output = 1e300}", [f"2: [prices] m.output: must be {PRICE}, got 1e+300"]),
        ('"openai/gpt-5-mini" = {input = 1}', [f'2: [prices] "openai/gpt-5-mini".output: missing; must be {PRICE}']),
        (
            'm = {input = -1, output = "2", cached_input = 0, cached = 1}',
            [
                f"2: [prices] m.input: must be {PRICE}, got -1",
                f'2: [prices] m.output: must be {PRICE}, got "2"',
                '2: [prices] m.cached: unknown key, did you mean "cached_input"? (valid: input, output, cached_input, cache_write)',
            ],
        ),
        *got(
            "prices",
            "m",
            f"must be a table of input, output and optionally cached_input, cache_write, each {PRICE}",
            "0.25",
        ),
    ],
    "cassette": [
        *got(
            "cassette",
            "path",
            "must be inside the workspace (symlinks resolved)",
            '"../x.jsonl"',
            '"/elsewhere/x.jsonl"',
            '"link_out/x.jsonl"',
        ),
        *got("cassette", "path", "must be a string that is not blank", "1"),
        *got("cassette", "path", "must end in .jsonl", '"x.json"'),
        *got("cassette", "record", 'must be one of "off", "all", "new"', '"everything"', "true"),
        ("recod = 1", ['2: [cassette] recod: unknown key, did you mean "record"? (valid: path, record)']),
    ],
    "output": [
        *got(
            "output",
            "dir",
            "must be inside the workspace (symlinks resolved)",
            '"../out"',
            '"/elsewhere/out"',
            '"link_out/x"',
        ),
        *got("output", "dir", "must be a string that is not blank", "1"),
        *got(
            "output",
            "results",
            "must be inside the workspace (symlinks resolved)",
            '"../out"',
            '"/elsewhere/out"',
            '"link_out/x"',
        ),
        *got("output", "results", "must be a string that is not blank", "1"),
        *got(
            "output",
            "html",
            "must be inside the workspace (symlinks resolved)",
            '"../report.html"',
        ),
        *got("output", "html", "must be a string that is not blank", "true"),
        *got("output", "html_conversations", 'must be one of "all", "failed", "none"', '"some"'),
    ],
    "gate": [
        *got(
            "gate", "pass_rate", SHARE, "0.7", '">="', '">= 1.1"', '">= -0.1"', '">= nan"', '">= x"', '"at least 0.7"'
        ),
        *got(
            "gate",
            "pass_rate",
            f'{SHARE}; only the operator ">=" is supported',
            '"<= 0.7"',
            '"== 0.7"',
            '"!= 0.7"',
            '"= 0.7"',
            '"> 0.7"',
            '"< 0.7"',
        ),
        *got("gate", "pass_rate", f'{SHARE}; the operator ">=" is missing', '"0.7"'),
        *got("gate", "pass_rate", f"{SHARE}; write a share as 0.7, not 70%", '">= 70%"'),
        *got("gate", "pass_rate", SHARE, "[]"),
        (
            'pass_rate = [">= 0.5", ">= 2", {min = 3}]',
            [
                '2: [gate] pass_rate: must be ">= X" or {min = X, rule = "lower"} with X between 0 and 1, like ">= 0.7", got ">= 2"',
                "2: [gate] pass_rate.min: must be a finite number between 0 and 1, got 3",
            ],
        ),
        ('pass_rate = {rule = "point"}', ["2: [gate] pass_rate.min: missing; must be a finite number between 0 and 1"]),
        ("pass_rate = {min = 2}", ["2: [gate] pass_rate.min: must be a finite number between 0 and 1, got 2"]),
        (
            'pass_rate = {min = 0.7, rule = "exact"}',
            ['2: [gate] pass_rate.rule: must be one of "point", "lower", "upper", got "exact"'],
        ),
        (
            "pass_rate = {min = 0.7, rule = []}",
            ['2: [gate] pass_rate.rule: must be one of "point", "lower", "upper", got []'],
        ),
        (
            "pass_rate = {min = 0.7, rulez = 1}",
            ['2: [gate] pass_rate.rulez: unknown key, did you mean "rule"? (valid: min, rule)'],
        ),
        ("pass_rate = {min = 0.7, zzz = 1}", ["2: [gate] pass_rate.zzz: unknown key (valid: min, rule)"]),
        (
            'mean = ">= 0.7"',
            [
                '2: [gate] mean: needs a single deciding function: name it in [scoring] decide, or write [gate."rewards:exact"] mean = ...'
            ],
        ),
        *got(
            "gate",
            "mean",
            'must be ">= X" or {min = X, rule = "lower"} with X a finite number, like ">= 0.7"',
            '">= nan"',
        ),
        ("mean = {}", ["2: [gate] mean.min: missing; must be a finite number"]),
        (
            'max_regression = ">= 0.7"',
            [
                '2: [gate] max_regression: must be a finite number between 0 and 1, got ">= 0.7"',
                "2: [gate] max_regression: needs a baseline: set [baseline] results or model_path",
            ],
        ),
        ("max_regression = 0.02", ["2: [gate] max_regression: needs a baseline: set [baseline] results or model_path"]),
        (
            '"rewards:exact" = {max_regression = 0.1}',
            ['2: [gate] "rewards:exact".max_regression: unknown key (valid: pass_rate, mean, pass_at_3, pass_hat_3)'],
        ),
        ('pass_at_3 = ">= 0.7"', ["2: [gate] pass_at_3: needs [evaluation] n of at least 3, n is 1"]),
        ('pass_hat_10 = ">= 0.7"', ["2: [gate] pass_hat_10: needs [evaluation] n of at least 10, n is 1"]),
        ("pas_rate = 1", [f'2: [gate] pas_rate: unknown key, did you mean "pass_rate"? {GATE_KEYS}']),
        ("pass_at_0 = 1", [f'2: [gate] pass_at_0: unknown key, did you mean "pass_rate"? {GATE_KEYS}']),
    ],
    'gate."rewards:exact"': [
        (
            "",
            [
                '1: [gate] "rewards:exact": must be a table of conditions, each a key like pass_rate, mean, pass_at_3, pass_hat_3, got {}'
            ],
        ),
        (
            'mean = "0.7"\nmedian = 1',
            [
                '2: [gate] "rewards:exact".mean: must be ">= X" or {min = X, rule = "lower"} with X a finite number, like ">= 0.7"; the operator ">=" is missing, got "0.7"',
                '3: [gate] "rewards:exact".median: unknown key (valid: pass_rate, mean, pass_at_3, pass_hat_3)',
            ],
        ),
        ('pass_at_2 = ">= 0.7"', ['2: [gate] "rewards:exact".pass_at_2: needs [evaluation] n of at least 2, n is 1']),
    ],
    "gate.reward": [
        (
            'mean = ">= 0.7"',
            [
                '1: [gate] reward: unknown function, did you mean "rewards:exact"? (valid: "rewards:exact", "rewards:close")'
            ],
        ),
    ],
    "limits": [
        *got("limits", "max_errors", f"must be {ERRORS}", "-1", "0.05", "true", '"5"', '"101%"', '"-5%"', '"x%"'),
        *got("limits", "max_cost_usd", "must be a finite number above 0", "0"),
        *got("limits", "max_tokens", "must be an integer of at least 1", "0"),
        *got("limits", "max_duration_s", "must be a finite number above 0 and at most 31,536,000 (a year)", '"1 h"'),
        *got("limits", "rollout", f"must be {ROLLOUT_BOUNDS}", "5000"),
        (
            "max_errors = 0\n[limits.rollout]\ntokens = 0\ncost = 1\ntool_calls = true",
            [
                "4: [limits] rollout.tokens: must be an integer of at least 1, got 0",
                '5: [limits] rollout.cost: unknown key, did you mean "cost_usd"? (valid: tokens, cost_usd, tool_calls)',
                "6: [limits] rollout.tool_calls: must be an integer of at least 1, got true",
            ],
        ),
    ],
    "evaluaton": [
        ("n = 1", [f"1: [evaluaton]: unknown table, did you mean [evaluation]? {TABLES}"]),
    ],
    "zzz": [
        ("n = 1", [f"1: [zzz]: unknown table {TABLES}"]),
    ],
    "eval": [
        ("n = 1", ["1: [eval]: must be an array of tables; write [[eval]]"]),
    ],
    "[zzz]": [
        ("n = 1", [f"1: [zzz]: unknown table {TABLES}"]),
    ],
    "[model]": [
        ("timeout_s = 1", ["1: [model]: must be a table, got [{timeout_s = 1}]"]),
    ],
}


@pytest.mark.parametrize("table", BROKEN)
def test_broken_rules_are_reported_with_their_lines(table_problems: Problems, table: str) -> None:
    found = [(body, table_problems(table, body), expected) for body, expected in BROKEN[table]]

    wrong = [f"{body}\n  said: {said}\n  not:  {expected}" for body, said, expected in found if said != expected]
    assert not wrong, "\n".join(wrong)


SECRETS = "[secrets]\nrequired = []\n"
SCORING = '[scoring]\neval_fns = ["a:b"]\n'
EXPERIMENT = '[experiment]\nmodel_path = "m"\ndataset = "d"\n'
NO_CODE = (
    "[experiment] rollout: missing, and so is entrypoint; name the code under rollouts/, "
    'or set [scoring] eval_fns = ["module:function"] to score the built-in chat'
)
NO_SCORING = (
    '[scoring] eval_fns: missing; nothing scores the runs: set eval_fns = ["module:function"] or '
    'grader = "module:Class", or use the Grader of a rollout\'s entrypoint'
)
NO_DATASET = "[experiment] dataset: missing; name a dataset under datasets/ or data/, or set [data] path"
NO_MODEL = "[experiment] model_path: missing; must be a string that is not blank"
STRAY = "belongs to a training config{0}; take it out, or make a config of its own in configs/training/"
OF_TRAINING = "this is a training config, and an eval is needed here: name one in configs/eval/"
NO_SECRETS = "1: [secrets]: missing; add [secrets] with required = [...] ([] if the eval needs none)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [NO_SECRETS, f"1: {NO_MODEL}", f"1: {NO_CODE}", f"1: {NO_DATASET}"]),
        (EXPERIMENT + SCORING, [NO_SECRETS]),
        (
            EXPERIMENT + SCORING + "[secrets]\n",
            ["6: [secrets] required: missing; must be an array of distinct names"],
        ),
        (SECRETS + SCORING + '[experiment]\nmodel_path = "m"\n', [f"5: {NO_DATASET}"]),
        (SECRETS + SCORING + '[experiment]\ndataset = "d"\n', [f"5: {NO_MODEL}"]),
        (SECRETS + EXPERIMENT, [f"3: {NO_CODE}"]),
        (SECRETS + EXPERIMENT + "[scoring]\neval_fns = []\n", [f"3: {NO_CODE}"]),
        (SECRETS + EXPERIMENT + '[agent]\nagent = "chat"\n', [f"1: {NO_SCORING}"]),
        (SECRETS + EXPERIMENT + '[agent]\nagent = "a:b"\n[scoring]\neval_fns = []\n', [f"9: {NO_SCORING}"]),
        (
            SCORING + EXPERIMENT + '[env]\nA = "x"\nB = "y"\n[secrets]\nrequired = ["A", "B", "C"]\n',
            [
                '10: [secrets] required: "A" is also in [env]; keep it in one of them',
                '10: [secrets] required: "B" is also in [env]; keep it in one of them',
            ],
        ),
        (
            SECRETS + EXPERIMENT + '[scoring]\ngrader = "a:B"\nthresholds = {rewrd = 1}\n',
            ['8: [scoring] thresholds.rewrd: unknown function, did you mean "reward"? (valid: "reward")'],
        ),
        (
            "n = 5\nevaluaton = 1\nzzz = 1\n" + SECRETS + EXPERIMENT + SCORING,
            [
                "1: n: unknown key, did you mean [evaluation] n? (keys must be inside a table)",
                "2: evaluaton: unknown key, did you mean [evaluation]? (keys must be inside a table)",
                "3: zzz: unknown key (keys must be inside a table)",
            ],
        ),
        ("secrets = 1\n" + EXPERIMENT + SCORING, ["1: [secrets]: must be a table, got 1"]),
    ],
)
def test_a_broken_rule_between_tables_is_reported_with_its_line(
    problems: Problems, text: str, expected: list[str]
) -> None:
    assert problems(text) == expected


BENCHMARK = '[experiment]\nbenchmark = "terminal-bench-2-1"\n'
AGENTS = '[[agents]]\nharness = "codex"\n[agents.model]\ntype = "provider"\n'
OF_BENCHMARK = (
    "this is a config of `osmosis benchmark`, whose tasks only the Osmosis platform runs, and an eval is needed here: "
    "name one in configs/eval/"
)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (f"{BENCHMARK}[execution]\nattempts_per_task = 1\n{AGENTS}", "2: [experiment] benchmark"),
        (BENCHMARK, "2: [experiment] benchmark"),
        (AGENTS, "1: [agents]"),
        (f"{SECRETS}{EXPERIMENT}{AGENTS}", "6: [agents]"),
    ],
)
def test_a_config_of_a_benchmark_is_named_as_one_and_nothing_else_is_said(
    problems: Problems, text: str, where: str
) -> None:
    assert problems(text) == [f"{where}: {OF_BENCHMARK}"]


def test_a_mistyped_table_for_the_agent_is_no_benchmark(problems: Problems) -> None:
    (problem,) = problems(SECRETS + EXPERIMENT + SCORING + '[agents]\nagent = "chat"\n')
    assert "unknown table, did you mean [agent]?" in problem


def test_invalid_functions_cause_no_problems_with_names_that_refer_to_them(problems: Problems) -> None:
    text = SECRETS + EXPERIMENT + '[scoring]\neval_fns = ["a"]\nthresholds = {"b:c" = 1}\ndecide = "b:c"\n'
    assert problems(text) == ['7: [scoring] eval_fns: each must be "module:function", got "a"']


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[experiment]\n[training]\nlr = 1\n",
            f"2: [training]: {STRAY.format('')}",
        ),
        (
            'env_id = "gsm8k"\nnum_examples = 5\n',
            '1: env_id: names no eval; add [[eval]] with env_id = "...", or with rollout, entrypoint and dataset',
        ),
        (
            "[checkpoints]\neval_interval = 1\n[gate]\n",
            f"1: [checkpoints]: {STRAY.format(', and [gate] on line 3 to an eval')}",
        ),
        ("n = \n", "1: not valid TOML: Invalid value (column 5)"),
        ("[experiment]\nn = \n", "2: not valid TOML: Invalid value (column 5)"),
        ("[experiment]\nn = [1", "2: not valid TOML: Unclosed array (column 7)"),
    ],
)
def test_a_file_that_is_not_an_eval_config_is_one_problem(problems: Problems, text: str, expected: str) -> None:
    assert problems(text) == [expected]


@pytest.fixture
def high_recursion_limit() -> Iterator[None]:
    """Let recursive code go much deeper than usual, as some libraries do."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(50_000)
    yield
    sys.setrecursionlimit(before)


NESTED = ["[" * 5000 + "]" * 5000, "{a=" * 350 + "1" + "}" * 350]


@pytest.mark.parametrize("value", [*NESTED, "9" * 5000], ids=["arrays", "tables", "digits"])
def test_a_value_that_cannot_be_read_is_one_problem(problems: Problems, value: str) -> None:
    (problem,) = problems(f"a = {value}\n")
    assert problem.startswith("1: not valid TOML: ")


@pytest.mark.parametrize("value", NESTED, ids=["arrays", "tables"])
def test_what_a_config_may_nest_does_not_depend_on_the_recursion_limit(
    problems: Problems, value: str, high_recursion_limit: None
) -> None:
    (problem,) = problems(f"a = {value}\n")
    assert problem.startswith("1: not valid TOML: ")


def test_a_config_may_nest_a_hundred_levels(problems: Problems) -> None:
    """The table of the file is the first of them."""
    (unknown, *_), too_deep = (problems(f"a = {'[' * levels}{']' * levels}\n") for levels in (99, 100))
    assert unknown.startswith("1: a: unknown key")
    assert too_deep == ["1: not valid TOML: arrays and tables are nested more than 100 levels"]


@pytest.fixture
def old_tomli(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Python's own copy of tomli 2.0, which reads TOML 1.0, take the place of tomli."""
    monkeypatch.setitem(sys.modules, "tomli", tomllib)


TOML_1_1 = [
    'a = "\\e[1m"',
    'a = "\\x41"',
    '"\\x41" = 1',
    'a = """\n\\e"""',
    "a = {\n b = 1 }",
    "a = {\r\n b = 1 }",
    "a = { # b\n b = 1 }",
    "a = { b = 1, }",
    "a = { b = 1\n }",
    "a = { b = 1 # b\n # c\n , c = 2 }",
    "a = { b = 1, # b\n c = 2 }",
    "a = [{ b = 1,\n }, ]",
    "a = 07:32",
    "a = 2020-01-01T07:32",
    "a = 2020-01-01 07:32Z",
    "a = [07:32]",
]
INVALID = [
    'a = "\\q"',
    'a = "\\xq1"',
    "a = [1,\n q]",
    "a = {,}",
    "a = { b = 1",
    "a = 1\n}",
    "a = 1 }",
    "a.\n",
    "a = 07:32:00x",
]


@pytest.mark.parametrize("text", TOML_1_1)
def test_toml_1_1_that_an_old_tomli_cannot_read_is_named(problems: Problems, text: str, old_tomli: None) -> None:
    (problem,) = problems(f"# ä\n{text}\n")
    assert re.fullmatch(
        r"[234]: not valid TOML: .* \(column \d+\); this is TOML 1\.1, install tomli>=2\.4 to read it", problem
    )


@pytest.mark.parametrize("text", INVALID)
@pytest.mark.parametrize("old", [False, True])
def test_text_that_no_tomli_reads_is_not_taken_for_toml_1_1(
    problems: Problems, text: str, old: bool, request: pytest.FixtureRequest
) -> None:
    if old:
        request.getfixturevalue("old_tomli")
    (problem,) = problems(f"# ä\n{text}\n")
    assert re.fullmatch(r"[234]: not valid TOML: .* \(column \d+\)", problem)


def problem_of(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_eval_config(path)
    (problem,) = caught.value.problems
    return str(problem)


def test_a_config_under_configs_training_is_rejected(workspace: Path) -> None:
    path = workspace / "configs/training/deep/x.toml"
    path.parent.mkdir()
    path.write_text(EXPERIMENT + SECRETS)
    assert problem_of(path) == f"configs/training/deep/x.toml:1: {OF_TRAINING}"


def test_outside_of_both_folders_the_tables_of_a_config_decide(workspace: Path) -> None:
    path = workspace / "x.toml"
    path.write_text("[training]\n[experiment]\n")
    assert problem_of(path) == f"x.toml:1: [training]: {OF_TRAINING}"
    path.write_text("[training]\n[experiment]\n[scoring]\n")
    assert problem_of(path) == f"x.toml:1: [training]: {STRAY.format(', and [scoring] on line 3 to an eval')}"


def test_a_missing_file_is_reported_with_a_similar_one(workspace: Path) -> None:
    (workspace / "configs/eval/multiply.toml").write_text("")
    assert problem_of(Path("configs/eval/multipy.toml")) == (
        "configs/eval/multipy.toml: no such file, did you mean configs/eval/multiply.toml?"
    )


def test_a_missing_file_in_a_missing_folder_is_reported(workspace: Path) -> None:
    assert problem_of(Path("nowhere/x.toml")) == "nowhere/x.toml: no such file"


def test_a_folder_is_rejected_as_a_config(workspace: Path) -> None:
    assert problem_of(Path("configs/eval")) == "configs/eval: is a folder, not a file"


def test_a_path_through_a_file_cannot_be_read(workspace: Path) -> None:
    assert problem_of(Path("data/multiply.jsonl/x.toml")) == "data/multiply.jsonl/x.toml: no such file"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[data]\nseed = 1\nseed = 2\n", "3: [data] seed: given twice, first on line 2; keep one of them"),
        (
            '[experiment]\ndataset = """a\n"""\nn = 1\ndataset = "b"\n',
            "5: [experiment] dataset: given twice, first on line 2; keep one of them",
        ),
        (
            "[model]\nheaders = {A = 'x', A = 'y'}\n",
            "2: [model] headers.A: given twice, first on line 2; keep one of them",
        ),
        ("[data]\nseed = 1\n[secrets]\n[data]\n", "4: [data]: given twice, first on line 1; keep one of them"),
        ("[[eval]]\na = 1\n[[eval]]\na = 2\na = 3\n", "5: [eval] a: given twice, first on line 4; keep one of them"),
        ("n = 1\nn = 2\n", "2: n: given twice, first on line 1; keep one of them"),
    ],
)
def test_a_key_or_table_given_twice_is_named_with_both_lines(workspace: Path, text: str, problem: str) -> None:
    Path("configs/eval/x.toml").write_text(text)
    assert problem_of(Path("configs/eval/x.toml")) == f"configs/eval/x.toml:{problem}"


def test_a_byte_order_mark_is_named(workspace: Path) -> None:
    Path("configs/eval/x.toml").write_bytes(b"\xef\xbb\xbf[experiment]\n")
    assert problem_of(Path("configs/eval/x.toml")) == (
        "configs/eval/x.toml:1: begins with a byte order mark; save it as UTF-8 without BOM"
    )


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_config_in_another_unicode_encoding_is_named(workspace: Path, encoding: str) -> None:
    Path("configs/eval/x.toml").write_text("[experiment]\nmodel_path = 'm'\n", encoding=encoding)
    assert problem_of(Path("configs/eval/x.toml")) == (
        f"configs/eval/x.toml: is {encoding.upper()[:6]} text; save it as UTF-8"
    )


def test_an_endless_config_is_refused(workspace: Path) -> None:
    with Path("configs/eval/x.toml").open("wb") as file:
        file.truncate(1 << 40)
    assert problem_of(Path("configs/eval/x.toml")) == (
        "configs/eval/x.toml: holds more than 10,000,000 bytes, the most that is read of such a file"
    )


def test_a_byte_that_is_not_utf8_is_reported_with_its_line(workspace: Path) -> None:
    Path("configs/eval/x.toml").write_bytes(b'[experiment]\nmodel_path = "\xe9"\n')
    assert problem_of(Path("configs/eval/x.toml")) == ("configs/eval/x.toml:2: must be UTF-8 text, got the byte 0xe9")


def test_paths_in_problems_are_relative_to_the_current_folder(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace / "data")
    (workspace / "configs/eval/x.toml").write_text("x = \n")
    assert problem_of(workspace / "configs/eval/x.toml") == (
        "../configs/eval/x.toml:1: not valid TOML: Invalid value (column 5)"
    )


def test_all_problems_of_a_file_are_reported_at_once_in_the_order_of_its_lines(problems: Problems) -> None:
    text = """\
[evaluation]
n = 0
limit = true
pass_treshold = 0.5

[experiment]
rollout = "multiply"
entrypoint = "mian.py"
dataset = "d"

[model]
client = "lite"
[model.headers]
"A B" = "x"
C = 1


[env]
TOKEN = "x"
lower = "y"

[scoring]
eval_fns = [
  "rewards:exact",
  "rewards:exact",
]

[gate]
pass_rate = "> 0.7"
pass_at_3 = ">= 2"

[secrets]
required = [
  "TOKEN",
]

[baseline]
results = "/x.json"
"""
    assert problems(text, Override("evaluation", "batch_size", "0", "--osmosis-batch-size")) == [
        "2: [evaluation] n: must be an integer of at least 1, got 0",
        "3: [evaluation] limit: must be an integer of at least 1, got true",
        '4: [evaluation] pass_treshold: unknown key, did you mean "pass_threshold"? (valid: limit, n, batch_size, pass_threshold, agent_workflow_timeout_s, grader_timeout_s)',
        "6: [experiment] model_path: missing; must be a string that is not blank",
        '8: [experiment] entrypoint: must be a file in rollouts/multiply/, got "mian.py" (available: link.py, main.py, tools.py)',
        f'12: [model] client: must be one of {CLIENTS}, got "lite"',
        '14: [model] headers."A B": the name must be an HTTP header name, got "A B"',
        "15: [model] headers.C: must be a string without line breaks, got 1",
        '20: [env] lower: the name must match ^[A-Z_][A-Z0-9_]*$ and must not start with _OSMOSIS_ (reserved), got "lower"',
        '23: [scoring] eval_fns: duplicate "rewards:exact"',
        '29: [gate] pass_rate: must be ">= X" or {min = X, rule = "lower"} with X between 0 and 1, like ">= 0.7"; only the operator ">=" is supported, got "> 0.7"',
        '30: [gate] pass_at_3: must be ">= X" or {min = X, rule = "lower"} with X between 0 and 1, like ">= 0.7", got ">= 2"',
        '33: [secrets] required: "TOKEN" is also in [env]; keep it in one of them',
        '38: [baseline] results: must be inside the workspace (symlinks resolved), got "/x.json"',
        '--osmosis-batch-size: must be an integer of at least 1, got "0"',
    ]


@pytest.mark.parametrize(
    ("table", "body", "problem"),
    [
        ("model", 'endpoint_id = "qwen"', "2: [model] endpoint_id: cannot be used with [experiment] model_path; keep one of them"),
        (
            "agent",
            'agent = "recorded"\n[baseline]\nmodel_path = "demo/arithmetic"',
            '4: [baseline] model_path: cannot be used with [agent] agent = "recorded", which asks no model; compare with [baseline] results',
        ),
        ("scoring", "calibrate_within = 0.5", "2: [scoring] calibrate_within: needs [scoring] calibrate, the column with scores by humans"),
    ],
)  # fmt: skip
def test_some_keys_do_not_go_together(table_problems: Problems, table: str, body: str, problem: str) -> None:
    assert table_problems(table, body) == [problem]


def test_scores_may_be_calibrated_within_a_distance(load_table: Callable[..., EvalConfig]) -> None:
    scoring = load_table("scoring", 'calibrate = "human"\ncalibrate_within = 0.5').scoring
    assert (scoring.calibrate, scoring.calibrate_within) == ("human", 0.5)


def test_one_machine_may_have_512_hosts(load_table: Callable[..., EvalConfig]) -> None:
    assert load_table("execution", "hosts = 512").execution.hosts == 512


ODD_VALUES: list[object] = [
    True,
    -1,
    1.5,
    float("nan"),
    "",
    "\0",
    "x" * 5000,
    [],
    [[1]],
    {},
    {"a": {"b": [1]}},
    "{",
    "[",
]


@pytest.mark.parametrize("table", EVAL_TABLES)
def test_no_value_of_any_key_raises_anything_but_a_config_error(load: Callable[..., object], table: str) -> None:
    text = EXPERIMENT + SECRETS + SCORING
    for key in [field.name for field in EVAL_TABLES[table].fields] + ["other", "a:b"]:
        for value in ODD_VALUES:
            with suppress(ConfigError):
                load(text, Override(table, key, value, "--x"))
