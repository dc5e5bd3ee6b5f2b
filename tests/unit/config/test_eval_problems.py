"""Every rule of an eval config, broken: the whole line that is said of it, from the number of its line on."""

# ruff: noqa: E501 (what users read stands here whole)

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_osmosis.config import Override, load_eval_config
from pytest_osmosis.config.eval_tables import EVAL_TABLES
from pytest_osmosis.errors import ConfigError

Problems = Callable[..., list[str]]

RATE = "a finite number of at least 0"
CLIENTS = '"auto", "openai", "anthropic", "light", "litellm"'

BROKEN: dict[str, list[tuple[str, list[str]]]] = {
    "experiment": [
        ('model_path = " "', ['2: [experiment] model_path: must be a string that is not blank, got " "']),
        ("model_path = 5", ["2: [experiment] model_path: must be a string that is not blank, got 5"]),
        ('dataset = " "', ['2: [experiment] dataset: must be a string that is not blank, got " "']),
        ("dataset = 5", ["2: [experiment] dataset: must be a string that is not blank, got 5"]),
        ('dataset = "a\\u0000"', ['2: [experiment] dataset: must be a string that is not blank, got "a\\u0000"']),
        (
            'commit_sha = "abc12"',
            ['2: [experiment] commit_sha: must be a commit SHA of 7 to 40 hexadecimal digits, got "abc12"'],
        ),
        (
            'commit_sha = "abcdefg"',
            ['2: [experiment] commit_sha: must be a commit SHA of 7 to 40 hexadecimal digits, got "abcdefg"'],
        ),
        (
            'commit_sha = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"',
            [
                '2: [experiment] commit_sha: must be a commit SHA of 7 to 40 hexadecimal digits, got "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"'
            ],
        ),
        ('commit_sha = "abcDEF7"', ["2: [experiment] commit_sha: not supported yet; leave it out"]),
        ('branch = "main"', ["2: [experiment] branch: not supported yet; leave it out"]),
        ('branch = ""', ['2: [experiment] branch: must be a branch name without whitespace, got ""']),
        ('branch = "my branch"', ['2: [experiment] branch: must be a branch name without whitespace, got "my branch"']),
        ("branch = 3", ["2: [experiment] branch: must be a branch name without whitespace, got 3"]),
        (
            'branch = "main"\ncommit_sha = "abcdef7"',
            [
                "2: [experiment] branch: not supported yet; leave it out",
                "2: [experiment] branch: cannot be used with commit_sha; keep one of them",
                "3: [experiment] commit_sha: not supported yet; leave it out",
            ],
        ),
        (
            'rollout = "multiply"',
            ["1: [experiment] entrypoint: missing; set both rollout and entrypoint, or neither"],
        ),
        (
            'entrypoint = "main.py"',
            ["1: [experiment] rollout: missing; set both rollout and entrypoint, or neither"],
        ),
        (
            'rollout = ""\nentrypoint = "main.py"',
            ['2: [experiment] rollout: must be the name of one folder under rollouts/, not a path, got ""'],
        ),
        (
            'rollout = "."\nentrypoint = "main.py"',
            ['2: [experiment] rollout: must be the name of one folder under rollouts/, not a path, got "."'],
        ),
        (
            'rollout = ".."\nentrypoint = "main.py"',
            ['2: [experiment] rollout: must be the name of one folder under rollouts/, not a path, got ".."'],
        ),
        (
            'rollout = "a/b"\nentrypoint = "main.py"',
            ['2: [experiment] rollout: must be the name of one folder under rollouts/, not a path, got "a/b"'],
        ),
        (
            'rollout = "/abs"\nentrypoint = "main.py"',
            ['2: [experiment] rollout: must be the name of one folder under rollouts/, not a path, got "/abs"'],
        ),
        (
            'rollout = "a\\\\b"\nentrypoint = "main.py"',
            ['2: [experiment] rollout: must be the name of one folder under rollouts/, not a path, got "a\\\\b"'],
        ),
        (
            'rollout = 7\nentrypoint = "main.py"',
            ["2: [experiment] rollout: must be the name of one folder under rollouts/, not a path, got 7"],
        ),
        (
            'rollout = "nope"\nentrypoint = "main.py"',
            [
                '2: [experiment] rollout: must be a folder in rollouts, got "nope" (available: elsewhere, empty, multiply)'
            ],
        ),
        (
            'rollout = "multiply"\nentrypoint = " "',
            ['3: [experiment] entrypoint: must be a string that is not blank, got " "'],
        ),
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
        (
            'rollout = "multiply"\nentrypoint = "../../../outside.py"',
            [
                '3: [experiment] entrypoint: must be under rollouts/multiply/ (symlinks resolved), got "../../../outside.py"'
            ],
        ),
        (
            'rollout = "multiply"\nentrypoint = "/etc/hostname"',
            ['3: [experiment] entrypoint: must be under rollouts/multiply/ (symlinks resolved), got "/etc/hostname"'],
        ),
        ("x.y = 1", ["2: [experiment] x: unknown key (valid: rollout, entrypoint, model_path, dataset)"]),
        (
            'rollout = "multiply"\nentrypoint = "link.py"',
            ['3: [experiment] entrypoint: must be under rollouts/multiply/ (symlinks resolved), got "link.py"'],
        ),
        (
            'rollout = "elsewhere"\nentrypoint = "outside.py"',
            ['2: [experiment] rollout: must be under rollouts/ (symlinks resolved), got "elsewhere"'],
        ),
    ],
    "evaluation": [
        ("limit = 0", ["2: [evaluation] limit: must be an integer of at least 1, got 0"]),
        ("limit = -1", ["2: [evaluation] limit: must be an integer of at least 1, got -1"]),
        ("limit = true", ["2: [evaluation] limit: must be an integer of at least 1, got true"]),
        ("limit = 1.0", ["2: [evaluation] limit: must be an integer of at least 1, got 1.0"]),
        ('limit = "3"', ['2: [evaluation] limit: must be an integer of at least 1, got "3"']),
        ("n = 0", ["2: [evaluation] n: must be an integer of at least 1, got 0"]),
        ("n = -1", ["2: [evaluation] n: must be an integer of at least 1, got -1"]),
        ("n = true", ["2: [evaluation] n: must be an integer of at least 1, got true"]),
        ("n = 1.0", ["2: [evaluation] n: must be an integer of at least 1, got 1.0"]),
        ('n = "3"', ['2: [evaluation] n: must be an integer of at least 1, got "3"']),
        ("batch_size = 0", ["2: [evaluation] batch_size: must be an integer of at least 1, got 0"]),
        ("batch_size = -1", ["2: [evaluation] batch_size: must be an integer of at least 1, got -1"]),
        ("batch_size = true", ["2: [evaluation] batch_size: must be an integer of at least 1, got true"]),
        ("batch_size = 1.0", ["2: [evaluation] batch_size: must be an integer of at least 1, got 1.0"]),
        ('batch_size = "3"', ['2: [evaluation] batch_size: must be an integer of at least 1, got "3"']),
        ('limit = "all"', ['2: [evaluation] limit: must be an integer of at least 1, got "all"']),
        ("pass_threshold = nan", ["2: [evaluation] pass_threshold: must be a finite number, got nan"]),
        ("pass_threshold = inf", ["2: [evaluation] pass_threshold: must be a finite number, got inf"]),
        ("pass_threshold = -inf", ["2: [evaluation] pass_threshold: must be a finite number, got -inf"]),
        ("pass_threshold = true", ["2: [evaluation] pass_threshold: must be a finite number, got true"]),
        ('pass_threshold = "1"', ['2: [evaluation] pass_threshold: must be a finite number, got "1"']),
        (
            "pass_threshold = 10000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
            [
                "2: [evaluation] pass_threshold: must be a finite number, got 1000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000..."
            ],
        ),
        (
            "agent_workflow_timeout_s = 0",
            ["2: [evaluation] agent_workflow_timeout_s: must be a finite number above 0, got 0"],
        ),
        (
            "agent_workflow_timeout_s = -1.5",
            ["2: [evaluation] agent_workflow_timeout_s: must be a finite number above 0, got -1.5"],
        ),
        (
            "agent_workflow_timeout_s = nan",
            ["2: [evaluation] agent_workflow_timeout_s: must be a finite number above 0, got nan"],
        ),
        (
            "agent_workflow_timeout_s = inf",
            ["2: [evaluation] agent_workflow_timeout_s: must be a finite number above 0, got inf"],
        ),
        (
            "agent_workflow_timeout_s = false",
            ["2: [evaluation] agent_workflow_timeout_s: must be a finite number above 0, got false"],
        ),
        (
            'agent_workflow_timeout_s = "1"',
            ['2: [evaluation] agent_workflow_timeout_s: must be a finite number above 0, got "1"'],
        ),
        ("grader_timeout_s = 0", ["2: [evaluation] grader_timeout_s: must be a finite number above 0, got 0"]),
        ("grader_timeout_s = -1.5", ["2: [evaluation] grader_timeout_s: must be a finite number above 0, got -1.5"]),
        ("grader_timeout_s = nan", ["2: [evaluation] grader_timeout_s: must be a finite number above 0, got nan"]),
        ("grader_timeout_s = inf", ["2: [evaluation] grader_timeout_s: must be a finite number above 0, got inf"]),
        ("grader_timeout_s = false", ["2: [evaluation] grader_timeout_s: must be a finite number above 0, got false"]),
        ('grader_timeout_s = "1"', ['2: [evaluation] grader_timeout_s: must be a finite number above 0, got "1"']),
        (
            "pass_treshold = 1",
            [
                '2: [evaluation] pass_treshold: unknown key, did you mean "pass_threshold"? (valid: limit, n, batch_size, pass_threshold, agent_workflow_timeout_s, grader_timeout_s)'
            ],
        ),
        (
            "zzz = 1",
            [
                "2: [evaluation] zzz: unknown key (valid: limit, n, batch_size, pass_threshold, agent_workflow_timeout_s, grader_timeout_s)"
            ],
        ),
        (
            "temperature = 1",
            [
                "2: [evaluation] temperature: unknown key, did you mean [sampling] temperature? (valid: limit, n, batch_size, pass_threshold, agent_workflow_timeout_s, grader_timeout_s)"
            ],
        ),
    ],
    "env": [
        (
            'log_level = "x"',
            [
                '2: [env] log_level: the name must match ^[A-Z_][A-Z0-9_]*$ and must not start with _OSMOSIS_ (reserved), got "log_level"'
            ],
        ),
        (
            '1A = "x"',
            [
                '2: [env] 1A: the name must match ^[A-Z_][A-Z0-9_]*$ and must not start with _OSMOSIS_ (reserved), got "1A"'
            ],
        ),
        (
            '_OSMOSIS_X = "x"',
            [
                '2: [env] _OSMOSIS_X: the name must match ^[A-Z_][A-Z0-9_]*$ and must not start with _OSMOSIS_ (reserved), got "_OSMOSIS_X"'
            ],
        ),
        (
            '"A B" = "x"',
            [
                '2: [env] "A B": the name must match ^[A-Z_][A-Z0-9_]*$ and must not start with _OSMOSIS_ (reserved), got "A B"'
            ],
        ),
        ("A = 1", ["2: [env] A: must be a string without NUL, got 1"]),
        ('A = "\\u0000"', ['2: [env] A: must be a string without NUL, got "\\u0000"']),
        (
            "a = 1",
            [
                '2: [env] a: the name must match ^[A-Z_][A-Z0-9_]*$ and must not start with _OSMOSIS_ (reserved), got "a"',
                "2: [env] a: must be a string without NUL, got 1",
            ],
        ),
    ],
    "secrets": [
        ('required = "A"', ['2: [secrets] required: must be an array of distinct names, got "A"']),
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
        ("optional = []", ["2: [secrets] optional: unknown key (valid: required)"]),
    ],
    "model": [
        (
            'base_url = "localhost:8000"',
            ['2: [model] base_url: must be an http:// or https:// URL with a host, got "localhost:8000"'],
        ),
        (
            'base_url = "ftp://host"',
            ['2: [model] base_url: must be an http:// or https:// URL with a host, got "ftp://host"'],
        ),
        (
            'base_url = "http://"',
            ['2: [model] base_url: must be an http:// or https:// URL with a host, got "http://"'],
        ),
        (
            'base_url = "http://h ost"',
            ['2: [model] base_url: must be an http:// or https:// URL with a host, got "http://h ost"'],
        ),
        (
            'base_url = "http://host:99999"',
            ['2: [model] base_url: must be an http:// or https:// URL with a host, got "http://host:99999"'],
        ),
        (
            'base_url = "http://host:0"',
            ['2: [model] base_url: must be an http:// or https:// URL with a host, got "http://host:0"'],
        ),
        (
            'base_url = "http://[::1"',
            ['2: [model] base_url: must be an http:// or https:// URL with a host, got "http://[::1"'],
        ),
        ("base_url = 8000", ["2: [model] base_url: must be an http:// or https:// URL with a host, got 8000"]),
        ('base_url = ""', ['2: [model] base_url: must be an http:// or https:// URL with a host, got ""']),
        (
            'api_key_env = "MY-KEY"',
            ['2: [model] api_key_env: must be the name of an environment variable, not the key itself, got "MY-KEY"'],
        ),
        (
            'api_key_env = "sk-proj-1234567890abcdef"',
            [
                "2: [model] api_key_env: must be the name of an environment variable, not the key itself, got a string of 24 characters"
            ],
        ),
        ('client = "curl"', [f'2: [model] client: must be one of {CLIENTS}, got "curl"']),
        ("client = []", [f"2: [model] client: must be one of {CLIENTS}, got []"]),
        ('headers = "Bearer s3cr3t"', ["2: [model] headers: must be a table of header names to strings, got a string"]),
        (
            'headers = {"X Y" = "1", B = 2, C = "s3cr3t\\r\\nD: 1"}',
            [
                '2: [model] headers."X Y": the name must be an HTTP header name, got "X Y"',
                "2: [model] headers.B: must be a string without line breaks, got 2",
                "2: [model] headers.C: must be a string without line breaks, got one with a line break or a NUL",
            ],
        ),
        ("max_retries = -1", ["2: [model] max_retries: must be an integer of at least 0, got -1"]),
        ("max_retries = true", ["2: [model] max_retries: must be an integer of at least 0, got true"]),
        ("max_retries = 1.5", ["2: [model] max_retries: must be an integer of at least 0, got 1.5"]),
        ("timeout_s = 0", ["2: [model] timeout_s: must be a finite number above 0, got 0"]),
        ("timeout_s = inf", ["2: [model] timeout_s: must be a finite number above 0, got inf"]),
        ("timeout_s = true", ["2: [model] timeout_s: must be a finite number above 0, got true"]),
    ],
    "sampling": [
        ("temperature = -0.1", ["2: [sampling] temperature: must be a finite number of at least 0, got -0.1"]),
        ("temperature = nan", ["2: [sampling] temperature: must be a finite number of at least 0, got nan"]),
        ("temperature = true", ["2: [sampling] temperature: must be a finite number of at least 0, got true"]),
        ('temperature = "hot"', ['2: [sampling] temperature: must be a finite number of at least 0, got "hot"']),
        ("top_p = 0", ["2: [sampling] top_p: must be a finite number above 0 and at most 1, got 0"]),
        ("top_p = 1.1", ["2: [sampling] top_p: must be a finite number above 0 and at most 1, got 1.1"]),
        ("top_p = inf", ["2: [sampling] top_p: must be a finite number above 0 and at most 1, got inf"]),
        ("top_p = true", ["2: [sampling] top_p: must be a finite number above 0 and at most 1, got true"]),
        ("max_tokens = 0", ["2: [sampling] max_tokens: must be an integer of at least 1, got 0"]),
        ("max_tokens = 1.0", ["2: [sampling] max_tokens: must be an integer of at least 1, got 1.0"]),
        ("max_tokens = true", ["2: [sampling] max_tokens: must be an integer of at least 1, got true"]),
        ("seed = 1.0", ["2: [sampling] seed: must be an integer, got 1.0"]),
        ("seed = true", ["2: [sampling] seed: must be an integer, got true"]),
        ('seed = "1"', ['2: [sampling] seed: must be an integer, got "1"']),
        ("stop = 1", ["2: [sampling] stop: must be a string or an array of strings, none of them empty, got 1"]),
        ('stop = ""', ['2: [sampling] stop: must be a string or an array of strings, none of them empty, got ""']),
        (
            'stop = ["a", 1]',
            ['2: [sampling] stop: must be a string or an array of strings, none of them empty, got ["a", 1]'],
        ),
        (
            'stop = ["a", ""]',
            ['2: [sampling] stop: must be a string or an array of strings, none of them empty, got ["a", ""]'],
        ),
        ('extra_body = "x"', ['2: [sampling] extra_body: must be a table of JSON values, got "x"']),
        (
            "extra_body = {a = 1, messages = 1}",
            [
                "2: [sampling] extra_body.messages: set by the run itself; leave it out (reserved: messages, model, tools, stream, n)"
            ],
        ),
        (
            "extra_body = {a = 1, model = 1}",
            [
                "2: [sampling] extra_body.model: set by the run itself; leave it out (reserved: messages, model, tools, stream, n)"
            ],
        ),
        (
            "extra_body = {a = 1, tools = 1}",
            [
                "2: [sampling] extra_body.tools: set by the run itself; leave it out (reserved: messages, model, tools, stream, n)"
            ],
        ),
        (
            "extra_body = {a = 1, stream = 1}",
            [
                "2: [sampling] extra_body.stream: set by the run itself; leave it out (reserved: messages, model, tools, stream, n)"
            ],
        ),
        (
            "extra_body = {a = 1, n = 1}",
            [
                "2: [sampling] extra_body.n: set by the run itself; leave it out (reserved: messages, model, tools, stream, n)"
            ],
        ),
        ("extra_body = {a = nan}", ["2: [sampling] extra_body.a: must be a JSON value, got nan"]),
        (
            "extra_body = {a = 2020-01-01}",
            ["2: [sampling] extra_body.a: must be a JSON value, got 2020-01-01"],
        ),
        ("extra_body = {a = [inf]}", ["2: [sampling] extra_body.a: must be a JSON value, got [inf]"]),
        (
            "extra_body = {a = {d = 07:32:00}}",
            ["2: [sampling] extra_body.a: must be a JSON value, got {d = 07:32:00}"],
        ),
    ],
    "scoring": [
        (
            'eval_fns = "rewards:exact"',
            [
                '2: [scoring] eval_fns: must be an array of distinct functions, each "module:function", got "rewards:exact"'
            ],
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
        ('grader = "Grader"', ['2: [scoring] grader: must be "module:Class", got "Grader"']),
        ('rubric = "be kind"', ["2: [scoring] rubric: not supported yet; leave it out"]),
        ("thresholds = 0.5", ["2: [scoring] thresholds: must be a table of function names to numbers, got 0.5"]),
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
        ("decide = true", ["2: [scoring] decide: must be a string that is not blank, got true"]),
    ],
    "agent": [
        ('agent = "server"', ['2: [agent] agent: must be "chat" or "module:attr", got "server"']),
        ('agent = "a:b c"', ['2: [agent] agent: must be "chat" or "module:attr", got "a:b c"']),
        ("agent = 1", ['2: [agent] agent: must be "chat" or "module:attr", got 1']),
        ("max_turns = 0", ["2: [agent] max_turns: must be an integer of at least 1, got 0"]),
        ("max_turns = true", ["2: [agent] max_turns: must be an integer of at least 1, got true"]),
    ],
    "data": [
        (
            'path = "../outside.jsonl"',
            ['2: [data] path: must be inside the workspace (symlinks resolved), got "../outside.jsonl"'],
        ),
        (
            'path = "/etc/x.jsonl"',
            ['2: [data] path: must be inside the workspace (symlinks resolved), got "/etc/x.jsonl"'],
        ),
        (
            'path = "data/link.jsonl"',
            ['2: [data] path: must be inside the workspace (symlinks resolved), got "data/link.jsonl"'],
        ),
        (
            'path = "data/none.jsonl"',
            ['2: [data] path: must be an existing file, got "data/none.jsonl" (looked for data/none.jsonl)'],
        ),
        (
            'path = "data/folder.jsonl"',
            ['2: [data] path: must be an existing file, got "data/folder.jsonl" (looked for data/folder.jsonl)'],
        ),
        (
            'path = "data/multiply.txt"',
            ['2: [data] path: must end in .jsonl, .json, .csv, .parquet, got "data/multiply.txt"'],
        ),
        ('path = ""', ['2: [data] path: must be a string that is not blank, got ""']),
        ("offset = -1", ["2: [data] offset: must be an integer of at least 0, got -1"]),
        ("offset = true", ["2: [data] offset: must be an integer of at least 0, got true"]),
        ("offset = 1.0", ["2: [data] offset: must be an integer of at least 0, got 1.0"]),
        (
            "rows = 3",
            ['2: [data] rows: must be row numbers and inclusive ranges like "3,7,10-20", or "all", as a string, got 3'],
        ),
        (
            'rows = "3,x"',
            [
                '2: [data] rows: must be row numbers and inclusive ranges like "3,7,10-20", or "all"; "x" is neither a number nor a range, got "3,x"'
            ],
        ),
        (
            'rows = ""',
            [
                '2: [data] rows: must be row numbers and inclusive ranges like "3,7,10-20", or "all"; "" is neither a number nor a range, got ""'
            ],
        ),
        (
            'rows = "1,,2"',
            [
                '2: [data] rows: must be row numbers and inclusive ranges like "3,7,10-20", or "all"; "" is neither a number nor a range, got "1,,2"'
            ],
        ),
        (
            'rows = "-3"',
            [
                '2: [data] rows: must be row numbers and inclusive ranges like "3,7,10-20", or "all"; "-3" is neither a number nor a range, got "-3"'
            ],
        ),
        (
            'rows = "all,3"',
            [
                '2: [data] rows: must be row numbers and inclusive ranges like "3,7,10-20", or "all"; "all" is neither a number nor a range, got "all,3"'
            ],
        ),
        (
            'rows = "20-10"',
            [
                '2: [data] rows: must be row numbers and inclusive ranges like "3,7,10-20", or "all"; "20-10" is backwards, write "10-20", got "20-10"'
            ],
        ),
        ("seed = true", ["2: [data] seed: must be an integer, got true"]),
        ("seed = 0.5", ["2: [data] seed: must be an integer, got 0.5"]),
        (
            'columns = "question"',
            ['2: [data] columns: must be a table of our column names to the dataset\'s, got "question"'],
        ),
        (
            'columns = {prompt = "q", user_prompt = ""}',
            [
                '2: [data] columns.prompt: the name must be one of "user_prompt", "system_prompt", "ground_truth", "messages", got "prompt"',
                '2: [data] columns.user_prompt: must be a string that is not blank, got ""',
            ],
        ),
    ],
    "execution": [
        ("hosts = 0", ["2: [execution] hosts: must be an integer of at least 1, got 0"]),
        ("granularity = 1", ['2: [execution] granularity: must be one of "run", "row", got 1']),
        ('granularity = "rows"', ['2: [execution] granularity: must be one of "run", "row", got "rows"']),
        ("watchdog_s = 0", ["2: [execution] watchdog_s: must be a finite number above 0, got 0"]),
        ("warnings = 1", ["2: [execution] warnings: not supported yet; leave it out"]),
        ("requests_per_minute = 0", ["2: [execution] requests_per_minute: must be an integer of at least 1, got 0"]),
        ("tokens_per_minute = 1.5", ["2: [execution] tokens_per_minute: must be an integer of at least 1, got 1.5"]),
        (
            "host = 1",
            [
                '2: [execution] host: unknown key, did you mean "hosts"? '
                "(valid: hosts, granularity, watchdog_s, requests_per_minute, tokens_per_minute)"
            ],
        ),
    ],
    "baseline": [
        ('model_path = " "', ['2: [baseline] model_path: must be a string that is not blank, got " "']),
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
        (
            'results = "../x.json"',
            ['2: [baseline] results: must be inside the workspace (symlinks resolved), got "../x.json"'],
        ),
    ],
    "prices": [
        ('"openai/gpt-5-mini" = {input = 1}', ['2: [prices] "openai/gpt-5-mini".output: missing; must be ' + RATE]),
        (
            'm = {input = -1, output = "2", cached_input = 0, cached = 1}',
            [
                "2: [prices] m.cached: unknown key (valid: input, output, cached_input, cache_write)",
                f"2: [prices] m.input: must be {RATE}, got -1",
                f'2: [prices] m.output: must be {RATE}, got "2"',
            ],
        ),
        (
            "m = 0.25",
            [
                "2: [prices] m: must be a table of input, output and optionally cached_input, cache_write, "
                f"each {RATE}, got 0.25"
            ],
        ),
    ],
    "output": [
        ('dir = "../out"', ['2: [output] dir: must be inside the workspace (symlinks resolved), got "../out"']),
        (
            'dir = "/elsewhere/out"',
            ['2: [output] dir: must be inside the workspace (symlinks resolved), got "/elsewhere/out"'],
        ),
        (
            'dir = "link_out/x"',
            ['2: [output] dir: must be inside the workspace (symlinks resolved), got "link_out/x"'],
        ),
        ("dir = 1", ["2: [output] dir: must be a string that is not blank, got 1"]),
        (
            'results = "../out"',
            ['2: [output] results: must be inside the workspace (symlinks resolved), got "../out"'],
        ),
        (
            'results = "/elsewhere/out"',
            ['2: [output] results: must be inside the workspace (symlinks resolved), got "/elsewhere/out"'],
        ),
        (
            'results = "link_out/x"',
            ['2: [output] results: must be inside the workspace (symlinks resolved), got "link_out/x"'],
        ),
        ("results = 1", ["2: [output] results: must be a string that is not blank, got 1"]),
        ("html = true", ["2: [output] html: not supported yet; leave it out"]),
        ("transcripts = true", ["2: [output] transcripts: not supported yet; leave it out"]),
    ],
    "gate": [
        (
            "pass_rate = 0.7",
            [
                '2: [gate] pass_rate: must be ">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7", got 0.7'
            ],
        ),
        (
            'pass_rate = ">="',
            [
                '2: [gate] pass_rate: must be ">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7", got ">="'
            ],
        ),
        (
            'pass_rate = "<= 0.7"',
            [
                '2: [gate] pass_rate: must be ">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7"; only the operator ">=" is supported, got "<= 0.7"'
            ],
        ),
        (
            'pass_rate = "== 0.7"',
            [
                '2: [gate] pass_rate: must be ">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7"; only the operator ">=" is supported, got "== 0.7"'
            ],
        ),
        (
            'pass_rate = "!= 0.7"',
            [
                '2: [gate] pass_rate: must be ">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7"; only the operator ">=" is supported, got "!= 0.7"'
            ],
        ),
        (
            'pass_rate = "= 0.7"',
            [
                '2: [gate] pass_rate: must be ">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7"; only the operator ">=" is supported, got "= 0.7"'
            ],
        ),
        (
            'pass_rate = "> 0.7"',
            [
                '2: [gate] pass_rate: must be ">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7"; only the operator ">=" is supported, got "> 0.7"'
            ],
        ),
        (
            'pass_rate = "< 0.7"',
            [
                '2: [gate] pass_rate: must be ">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7"; only the operator ">=" is supported, got "< 0.7"'
            ],
        ),
        (
            'pass_rate = "0.7"',
            [
                '2: [gate] pass_rate: must be ">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7"; the operator ">=" is missing, got "0.7"'
            ],
        ),
        (
            'pass_rate = ">= 70%"',
            [
                '2: [gate] pass_rate: must be ">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7"; write a share as 0.7, not 70%, got ">= 70%"'
            ],
        ),
        (
            'pass_rate = ">= 1.1"',
            [
                '2: [gate] pass_rate: must be ">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7", got ">= 1.1"'
            ],
        ),
        (
            'pass_rate = ">= -0.1"',
            [
                '2: [gate] pass_rate: must be ">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7", got ">= -0.1"'
            ],
        ),
        (
            'pass_rate = ">= nan"',
            [
                '2: [gate] pass_rate: must be ">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7", got ">= nan"'
            ],
        ),
        (
            'pass_rate = ">= x"',
            [
                '2: [gate] pass_rate: must be ">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7", got ">= x"'
            ],
        ),
        (
            'pass_rate = "at least 0.7"',
            [
                '2: [gate] pass_rate: must be ">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7", got "at least 0.7"'
            ],
        ),
        (
            'pass_rate = {rule = "point"}',
            ['2: [gate] pass_rate: min is missing; must be a finite number between 0 and 1, got {rule = "point"}'],
        ),
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
        (
            'mean = ">= nan"',
            [
                '2: [gate] mean: must be ">= X" or {min = X, rule = "point"} with X a finite number, like ">= 0.7", got ">= nan"'
            ],
        ),
        ("mean = {}", ["2: [gate] mean: min is missing; must be a finite number, got {}"]),
        (
            'max_regression = ">= 0.7"',
            [
                '2: [gate] max_regression: must be a finite number between 0 and 1, got ">= 0.7"',
                "2: [gate] max_regression: needs a baseline: set [baseline] results or model_path",
            ],
        ),
        (
            "max_regression = 0.02",
            ["2: [gate] max_regression: needs a baseline: set [baseline] results or model_path"],
        ),
        (
            '"rewards:exact" = {max_regression = 0.1}',
            ['2: [gate] "rewards:exact".max_regression: unknown key (valid: pass_rate, mean, pass_at_3, pass_hat_3)'],
        ),
        ('pass_at_3 = ">= 0.7"', ["2: [gate] pass_at_3: needs [evaluation] n of at least 3, n is 1"]),
        ('pass_hat_10 = ">= 0.7"', ["2: [gate] pass_hat_10: needs [evaluation] n of at least 10, n is 1"]),
        (
            "pas_rate = 1",
            [
                '2: [gate] pas_rate: unknown key, did you mean "pass_rate"? (valid: pass_rate, mean, max_regression, pass_at_K, pass_hat_K, "module:function")'
            ],
        ),
        (
            "pass_at_0 = 1",
            [
                '2: [gate] pass_at_0: unknown key, did you mean "pass_rate"? (valid: pass_rate, mean, max_regression, pass_at_K, pass_hat_K, "module:function")'
            ],
        ),
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
                '2: [gate] "rewards:exact".mean: must be ">= X" or {min = X, rule = "point"} with X a finite number, like ">= 0.7"; the operator ">=" is missing, got "0.7"',
                '3: [gate] "rewards:exact".median: unknown key (valid: pass_rate, mean, pass_at_3, pass_hat_3)',
            ],
        ),
        (
            'pass_at_2 = ">= 0.7"',
            ['2: [gate] "rewards:exact".pass_at_2: needs [evaluation] n of at least 2, n is 1'],
        ),
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
        (
            "max_errors = -1",
            [
                '2: [limits] max_errors: must be a count of runs (an integer of at least 0) or a share of them like "5%", got -1'
            ],
        ),
        (
            "max_errors = 0.05",
            [
                '2: [limits] max_errors: must be a count of runs (an integer of at least 0) or a share of them like "5%", got 0.05'
            ],
        ),
        (
            "max_errors = true",
            [
                '2: [limits] max_errors: must be a count of runs (an integer of at least 0) or a share of them like "5%", got true'
            ],
        ),
        (
            'max_errors = "5"',
            [
                '2: [limits] max_errors: must be a count of runs (an integer of at least 0) or a share of them like "5%", got "5"'
            ],
        ),
        (
            'max_errors = "101%"',
            [
                '2: [limits] max_errors: must be a count of runs (an integer of at least 0) or a share of them like "5%", got "101%"'
            ],
        ),
        (
            'max_errors = "-5%"',
            [
                '2: [limits] max_errors: must be a count of runs (an integer of at least 0) or a share of them like "5%", got "-5%"'
            ],
        ),
        (
            'max_errors = "x%"',
            [
                '2: [limits] max_errors: must be a count of runs (an integer of at least 0) or a share of them like "5%", got "x%"'
            ],
        ),
        ("max_cost_usd = 0", ["2: [limits] max_cost_usd: must be a finite number above 0, got 0"]),
        ("max_tokens = 0", ["2: [limits] max_tokens: must be an integer of at least 1, got 0"]),
        ('max_duration_s = "1 h"', ['2: [limits] max_duration_s: must be a finite number above 0, got "1 h"']),
    ],
    "evaluaton": [
        (
            "n = 1",
            [
                "1: [evaluaton]: unknown table, did you mean [evaluation]? (valid: experiment, evaluation, advanced, env, secrets, model, sampling, scoring, agent, data, execution, gate, limits, baseline, output, prices)"
            ],
        ),
    ],
    "zzz": [
        (
            "n = 1",
            [
                "1: [zzz]: unknown table (valid: experiment, evaluation, advanced, env, secrets, model, sampling, scoring, agent, data, execution, gate, limits, baseline, output, prices)"
            ],
        ),
    ],
    "eval": [
        (
            "n = 1",
            [
                "1: [eval]: unknown table (valid: experiment, evaluation, advanced, env, secrets, model, sampling, scoring, agent, data, execution, gate, limits, baseline, output, prices)"
            ],
        ),
    ],
    "[zzz]": [
        (
            "n = 1",
            [
                "1: [zzz]: unknown table (valid: experiment, evaluation, advanced, env, secrets, model, sampling, scoring, agent, data, execution, gate, limits, baseline, output, prices)"
            ],
        ),
    ],
    "[model]": [
        ("timeout_s = 1", ["1: [model]: must be a table, got [{timeout_s = 1}]"]),
    ],
}


@pytest.mark.parametrize(
    ("table", "body", "expected"), [(table, *case) for table, cases in BROKEN.items() for case in cases]
)
def test_a_broken_rule_is_said(table_problems: Problems, table: str, body: str, expected: list[str]) -> None:
    assert table_problems(table, body) == expected


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
NO_SECRETS = "1: [secrets]: missing; add [secrets] with required = [...] ([] if the eval needs none)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [f"1: {NO_MODEL}", NO_SECRETS, f"1: {NO_CODE}", f"1: {NO_DATASET}"]),
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
def test_a_broken_rule_between_tables_is_said(problems: Problems, text: str, expected: list[str]) -> None:
    assert problems(text) == expected


def test_functions_that_do_not_fit_say_nothing_about_the_names_that_follow_from_them(problems: Problems) -> None:
    text = SECRETS + EXPERIMENT + '[scoring]\neval_fns = ["a"]\nthresholds = {"b:c" = 1}\ndecide = "b:c"\n'
    assert problems(text) == ['7: [scoring] eval_fns: each must be "module:function", got "a"']


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'x = 1\n[[eval]]\nname = "a"\n',
            "2: [[eval]]: multi-eval configs are not supported yet; an eval config has [experiment] and [secrets]",
        ),
        (
            '[[ablation]]\nname = "a"\n',
            "1: [[ablation]]: multi-eval configs are not supported yet; an eval config has [experiment] and [secrets]",
        ),
        (
            "[experiment]\n[training]\nlr = 1\n",
            "2: [training]: training configs are not supported yet; an eval config has no [training]",
        ),
        (
            "[checkpoints]\neval_interval = 1\n",
            "1: [checkpoints]: training configs are not supported yet; an eval config has no [checkpoints]",
        ),
        ("[experiment\n", "1: not valid TOML: Expected ']' at the end of a table declaration (column 12)"),
        ("[experiment]\nn = \n", "2: not valid TOML: Invalid value (column 5)"),
    ],
)
def test_what_is_no_eval_config_is_one_problem(problems: Problems, text: str, expected: str) -> None:
    assert problems(text) == [expected]


@pytest.mark.parametrize("value", ["[" * 5000 + "]" * 5000, "9" * 5000])
def test_what_tomli_cannot_hold_is_one_problem(problems: Problems, value: str) -> None:
    (problem,) = problems(f"a = {value}\n")
    assert problem.startswith("1: not valid TOML: ")


def problem_of(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_eval_config(path)
    (problem,) = caught.value.problems
    return str(problem)


def test_a_config_under_configs_training_is_refused(workspace: Path) -> None:
    path = workspace / "configs/training/deep/x.toml"
    path.parent.mkdir()
    path.write_text(EXPERIMENT + SECRETS)
    assert problem_of(path) == (
        "configs/training/deep/x.toml:1: training configs are not supported yet; an eval config belongs in configs/eval/"
    )


def test_a_file_that_is_not_there_is_named_with_the_one_that_was_meant(workspace: Path) -> None:
    (workspace / "configs/eval/multiply.toml").write_text("")
    assert problem_of(Path("configs/eval/multipy.toml")) == (
        "configs/eval/multipy.toml: not found, did you mean configs/eval/multiply.toml?"
    )


def test_a_file_that_is_not_there_in_a_folder_that_is_not_there_is_named(workspace: Path) -> None:
    assert problem_of(Path("nowhere/x.toml")) == "nowhere/x.toml: not found"


def test_a_folder_is_no_config(workspace: Path) -> None:
    assert problem_of(Path("configs/eval")) == "configs/eval: must be a TOML file, but is a folder"


def test_a_path_through_a_file_cannot_be_read(workspace: Path) -> None:
    assert (
        problem_of(Path("data/multiply.jsonl/x.toml")) == "data/multiply.jsonl/x.toml: cannot be read: Not a directory"
    )


def test_bytes_that_are_not_utf8_are_named_with_their_line(workspace: Path) -> None:
    Path("configs/eval/x.toml").write_bytes(b'[experiment]\nmodel_path = "\xe9"\n')
    assert problem_of(Path("configs/eval/x.toml")) == ("configs/eval/x.toml:2: must be UTF-8 text, got the byte 0xe9")


def test_problems_are_told_from_the_current_folder(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace / "data")
    (workspace / "configs/eval/x.toml").write_text("x = \n")
    assert problem_of(workspace / "configs/eval/x.toml") == (
        "../configs/eval/x.toml:1: not valid TOML: Invalid value (column 5)"
    )


def test_every_problem_of_a_file_is_told_at_once_in_the_order_of_its_lines(problems: Problems) -> None:
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
headers = {
  "A B" = "x",
  C = 1,
}

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
        '29: [gate] pass_rate: must be ">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7"; only the operator ">=" is supported, got "> 0.7"',
        '30: [gate] pass_at_3: must be ">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7", got ">= 2"',
        '33: [secrets] required: "TOKEN" is also in [env]; keep it in one of them',
        '38: [baseline] results: must be inside the workspace (symlinks resolved), got "/x.json"',
        '--osmosis-batch-size: must be an integer of at least 1, got "0"',
    ]


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
def test_no_value_of_any_key_is_more_than_a_problem(load: Callable[..., object], table: str) -> None:
    text = EXPERIMENT + SECRETS + SCORING
    for key in [field.name for field in EVAL_TABLES[table].fields] + ["other", "a:b"]:
        for value in ODD_VALUES:
            with suppress(ConfigError):
                load(text, Override(table, key, value, "--x"))
