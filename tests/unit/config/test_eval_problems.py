"""Every rule of an eval config, broken: the problems that users read, beginning with the line number."""

# ruff: noqa: E501 (messages are not broken)

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from string import Template

import pytest

from pytest_osmosis.config import Override, load_eval_config
from pytest_osmosis.config.eval_kinds import CHECKS
from pytest_osmosis.config.tables import EVAL_TABLES
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


POSITIVE = "must be an integer of at least 1"
SECONDS = "must be a finite number above 0 and at most 31,536,000 (a year)"
INSIDE = "must be inside the workspace (symlinks resolved)"
TEXT = "must be a string that is not blank"
KINDS = ", ".join(f'"{name}"' for name in CHECKS)
ON = '"answer", "last_line", "code_block", {after = "####"} or {json = "order.id"}'
FUNCTIONS = 'unknown function, did you mean "rewards:exact"? (valid: "rewards:exact", "rewards:close")'


def cases_of(text: str) -> dict[str, list[Case]]:
    """Read the cases of each table: lines of it, and after `> ` their problems; or a key, its problem and the values
    that have it, of which each is a case, and perhaps another line `with` it."""
    found: dict[str, list[Case]] = {}
    for part in Template(text).safe_substitute(globals()).strip().split("\n\n"):
        title, *lines = part.splitlines()
        table = title.removeprefix("== ")
        cases = found[table] = []
        for line in lines:
            if line.startswith("> "):
                cases[-1][1].append(line.removeprefix("> "))
            elif short := re.fullmatch(r"([\w.]+): (.*), got (.*?)(?: with (.*))?", line):
                key, problem, values, other = short.groups(default="")
                for value in values.split(" | "):
                    body = f"{key} = {value}\n{other}".rstrip()
                    cases.append((body, [f"2: [{table}] {key}: {problem}, got {value}"]))
            elif cases and not cases[-1][1]:
                cases[-1] = (f"{cases[-1][0]}\n{line}", [])
            else:
                cases.append((line, []))
    return found


BROKEN = cases_of(r"""
== experiment
model_path: $TEXT, got " " | 5
dataset: $TEXT, got " " | 5 | "a\u0000"
commit_sha: must be a commit SHA of 7 to 40 hexadecimal digits, got "abc12" | "abcdefg" | "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
branch: must be a branch name without whitespace, got "" | "my branch" | 3
branch = "main"
commit_sha = "abcdef7"
> 2: [experiment] branch: cannot be used with commit_sha; keep one of them
rollout = "multiply"
> 1: [experiment] entrypoint: missing; set both rollout and entrypoint, or neither
entrypoint = "main.py"
> 1: [experiment] rollout: missing; set both rollout and entrypoint, or neither
rollout: must be the name of one folder under rollouts/, not a path, got "" | "." | ".." | "a/b" | "/abs" | "a\\b" | 7 with entrypoint = "main.py"
rollout = "nope"
entrypoint = "main.py"
> 2: [experiment] rollout: must be a folder in rollouts, got "nope" (available: elsewhere, empty, multiply)
entrypoint: $TEXT, got " " with rollout = "multiply"
rollout = "multiply"
entrypoint = "man.py"
> 3: [experiment] entrypoint: must be a file in rollouts/multiply/, got "man.py" (available: link.py, main.py, tools.py)
rollout = "multiply"
entrypoint = "sub"
> 3: [experiment] entrypoint: must be a file in rollouts/multiply/, got "sub" (available: link.py, main.py, tools.py)
rollout = "empty"
entrypoint = "main.py"
> 3: [experiment] entrypoint: must be a file in rollouts/empty/, got "main.py" (available: none)
entrypoint: must be under rollouts/multiply/ (symlinks resolved), got "../../../outside.py" | "/etc/hostname" | "link.py" with rollout = "multiply"
x.y = 1
> 2: [experiment] x: unknown key (valid: rollout, entrypoint, model_path, dataset, commit_sha, branch)
rollout: must be under rollouts/ (symlinks resolved), got "elsewhere" with entrypoint = "outside.py"

== evaluation
limit: $POSITIVE, got 0 | -1 | true | 1.0 | "3" | "all"
n: $POSITIVE, got 0 | -1 | true | 1.0 | "3"
batch_size: $POSITIVE, got 0 | -1 | true | 1.0 | "3"
pass_threshold: must be a finite number, got nan | inf | -inf | true | "1"
agent_workflow_timeout_s: $SECONDS, got 0 | -1.5 | nan | inf | false | "1"
grader_timeout_s: $SECONDS, got 0 | -1.5 | nan | inf | false | "1"
pass_treshold = 1
> 2: [evaluation] pass_treshold: unknown key, did you mean "pass_threshold"? $EVALUATION_KEYS
zzz = 1
> 2: [evaluation] zzz: unknown key $EVALUATION_KEYS
temperature = 1
> 2: [evaluation] temperature: unknown key, did you mean [sampling] temperature? $EVALUATION_KEYS

== env
log_level = "x"
> 2: [env] log_level: $ENV_NAME, got "log_level"
1A = "x"
> 2: [env] 1A: $ENV_NAME, got "1A"
_OSMOSIS_X = "x"
> 2: [env] _OSMOSIS_X: $ENV_NAME, got "_OSMOSIS_X"
"A B" = "x"
> 2: [env] "A B": $ENV_NAME, got "A B"
A: must be a string without NUL, got 1 | "\u0000"
a = 1
> 2: [env] a: $ENV_NAME, got "a"
> 2: [env] a: must be a string without NUL, got 1

== secrets
required: must be an array of distinct names, got "A"
required = ["a", "B", 3, "_C"]
> 2: [secrets] required: each must be a name that matches ^[A-Z][A-Z0-9_]*$, got "a"
> 2: [secrets] required: each must be a name that matches ^[A-Z][A-Z0-9_]*$, got 3
> 2: [secrets] required: each must be a name that matches ^[A-Z][A-Z0-9_]*$, got "_C"
required = ["sk-proj-1234567890abcdef"]
> 2: [secrets] required: each must be a name that matches ^[A-Z][A-Z0-9_]*$, got a string of 24 characters
required = ["A", "B", "A"]
> 2: [secrets] required: duplicate "A"
required = ["A", "b-key", "A", "b-key"]
> 2: [secrets] required: each must be a name that matches ^[A-Z][A-Z0-9_]*$, got "b-key"
> 2: [secrets] required: each must be a name that matches ^[A-Z][A-Z0-9_]*$, got "b-key"
> 2: [secrets] required: duplicate "A"
optional = []
> 2: [secrets] optional: unknown key (valid: required)

== model
endpoint_id = "qwen"
> 2: [model] endpoint_id: cannot be used with [experiment] model_path; keep one of them
base_url: must be an http:// or https:// URL with a host, got "localhost:8000" | "ftp://host" | "http://" | "http://h ost" | "http://host:99999" | "http://host:0" | "http://[::1" | 8000 | ""
api_key_env: must be the name of an environment variable, not the key itself, got "MY-KEY"
api_key_env = "sk-proj-1234567890abcdef"
> 2: [model] api_key_env: must be the name of an environment variable, not the key itself, got a string of 24 characters
client: must be one of $CLIENTS, got "curl" | []
headers = "Bearer s3cr3t"
> 2: [model] headers: must be a table of header names to strings, got a string
headers = {"X Y" = "1", B = 2, C = "s3cr3t\r\nD: 1"}
> 2: [model] headers."X Y": the name must be an HTTP header name, got "X Y"
> 2: [model] headers.B: must be a string without line breaks, got 2
> 2: [model] headers.C: must be a string without line breaks, got one with a line break or a NUL
max_retries: must be an integer from 0 to 1,000, got -1 | true | 1.5

== sampling
temperature: must be $NOT_NEGATIVE, got -0.1 | nan | true | "hot"
top_p: must be a finite number above 0 and at most 1, got 0 | 1.1 | inf | true
seed: must be an integer, got 1.0 | true | "1"
stop: must be a string or an array of strings, none of them empty, got 1 | "" | ["a", 1] | ["a", ""]
extra_body: must be a table of JSON values, got "x"
extra_body = {a = 1, messages = 1}
> 2: [sampling] extra_body.messages: $RESERVED
extra_body = {a = 1, model = 1}
> 2: [sampling] extra_body.model: $RESERVED
extra_body = {a = 1, tools = 1}
> 2: [sampling] extra_body.tools: $RESERVED
extra_body = {a = 1, stream = 1}
> 2: [sampling] extra_body.stream: $RESERVED
extra_body = {a = 1, n = 1}
> 2: [sampling] extra_body.n: $RESERVED
extra_body = {a = nan}
> 2: [sampling] extra_body.a: must be a JSON value, got nan
extra_body = {a = 2020-01-01}
> 2: [sampling] extra_body.a: must be a JSON value, got 2020-01-01
extra_body = {a = [inf]}
> 2: [sampling] extra_body.a: must be a JSON value, got [inf]
extra_body = {a = {d = 07:32:00}}
> 2: [sampling] extra_body.a: must be a JSON value, got {d = 07:32:00}

== scoring
eval_fns: must be an array of distinct functions, each "module:function" or the name of a check, got "rewards:exact"
eval_fns = ["exact", "a:b", "a b:c", "a:", 1]
> 2: [scoring] eval_fns: each must be "module:function" or the name of a check, got "exact"
> 2: [scoring] eval_fns: each must be "module:function" or the name of a check, got "a b:c"
> 2: [scoring] eval_fns: each must be "module:function" or the name of a check, got "a:"
> 2: [scoring] eval_fns: each must be "module:function" or the name of a check, got 1
eval_fns = ["a:b", "a:b"]
> 2: [scoring] eval_fns: duplicate "a:b"
eval_fns = ["contians"]
> 2: [scoring] eval_fns: each must be "module:function" or the name of a check, got "contians", did you mean "contains"?
checks = "contains"
> 2: [scoring] checks: must be an array of tables; write [[scoring.checks]]
eval_fns = ["a:b"]
[[scoring.checks]]
kind = "contains"
[[scoring.checks]]
name = "a"
kind = "contians"
value = 7
> 7: [scoring] checks.kind: must be one of $KINDS, got "contians", did you mean "contains"?
eval_fns = ["a:b"]
[[scoring.checks]]
value = 7
> 3: [scoring] checks.kind: missing; must be one of $KINDS
checks = [{kind = "contains", vallue = "a"}, {kind = "f1", negate = true},
  {kind = "regex", value = "("},
  {kind = "number", value = "7", within = -1}]
> 2: [scoring] checks.vallue: unknown key, did you mean "value"? (valid: name, kind, value, match, ignore_case, on, negate)
> 2: [scoring] checks.negate: unknown key, did you mean "name"? (valid: name, kind, value, on)
> 2: [scoring] checks.value: must be a regular expression: missing ), unterminated subpattern at position 0, got "("
> 2: [scoring] checks.value: must be a finite number, got "7"
> 2: [scoring] checks.within: must be a finite number of at least 0, got -1
eval_fns = ["a:b"]
[[scoring.checks]]
name = "a"
kind = "length"
[[scoring.checks]]
name = "b"
kind = "length"
min = 2
max = 1
[[scoring.checks]]
kind = "edit_distance"
> 5: [scoring] checks.kind: needs min or max
> 10: [scoring] checks.max: must be at least min, got 1
> 11: [scoring] checks.max: missing; must be an integer of at least 0
eval_fns = ["a:b"]
[[scoring.checks]]
kind = "json"
schema = {type = "objct"}
on = "first_line"
[[scoring.checks]]
name = "a b"
kind = "equals"
on = {json = "a..b"}
> 5: [scoring] checks.schema: must be a JSON Schema: 'objct' is not valid under any of the given schemas at $.type
> 6: [scoring] checks.on: must be $ON, got "first_line"
> 8: [scoring] checks.name: must be a name of letters, digits, _, . and -, got "a b"
> 10: [scoring] checks.on.json: must be a path into JSON, like "order.items[0].id", got "a..b"
eval_fns = ["contains"]
[[scoring.checks]]
kind = "contains"
value = "a"
[[scoring.checks]]
name = "mean"
kind = "contains"
> 3: [scoring] checks.name: "contains" is the name of another score too; give this check a name of its own
> 7: [scoring] checks.name: "mean" means something else; choose another name
grader: must be "module:Class", got "Grader"
rubric = "be kind"
> 1: [judge] model_path: missing; $JUDGE
rubric = "rubrics/none.md"
> 1: [judge] model_path: missing; $JUDGE
> 2: [scoring] rubric: must be an existing file (looked for rubrics/none.md); $RUBRIC_PATH
rubric = "../outside.txt"
> 1: [judge] model_path: missing; $JUDGE
> 2: [scoring] rubric: $INSIDE, got "../outside.txt"
thresholds: must be a table of function names to numbers, got 0.5
thresholds = {"rewards:exact" = nan, "rewards:close" = "1"}
> 2: [scoring] thresholds."rewards:exact": must be a finite number, got nan
> 2: [scoring] thresholds."rewards:close": must be a finite number, got "1"
thresholds = {"rewards:exakt" = 1}
> 2: [scoring] thresholds."rewards:exakt": $FUNCTIONS
score_ranges: must be a table of function names to ranges, like [-1, 1], got [-1, 1]
score_ranges = {"rewards:exact" = [1, 0], "rewards:close" = [0]}
> 2: [scoring] score_ranges."rewards:exact": the highest score must be above the lowest, got [1, 0]
> 2: [scoring] score_ranges."rewards:close": must be $RANGE, got [0]
score_ranges = {"rewards:exakt" = [0, 1]}
> 2: [scoring] score_ranges."rewards:exakt": $FUNCTIONS
thresholds = {reward = 1}
> 2: [scoring] thresholds.reward: $FUNCTIONS
decide = "rewards:clos"
> 2: [scoring] decide: must be "all", "any" or one function, got "rewards:clos", did you mean "rewards:close"? (valid: "all", "any", "rewards:exact", "rewards:close")
decide = "reward"
> 2: [scoring] decide: must be "all", "any" or one function, got "reward", did you mean "rewards:exact"? (valid: "all", "any", "rewards:exact", "rewards:close")
decide: $TEXT, got true

== judge
votes: must be an integer from 1 to 100, got 0 | 101 | true
model_path = "m"
votes = 3
max_retries = 1
requests_per_minute = 9
> 2: [judge] model_path: $UNASKED
> 3: [judge] votes: $UNASKED
score_range: must be $RANGE, got 1 | [1] | ["0", "1"] | [0, nan]
score_range: the highest score must be above the lowest, got [1, 1] | [1, 0]

== agent
agent = "recorded"
[baseline]
model_path = "demo/arithmetic"
> 4: [baseline] model_path: cannot be used with [agent] agent = "recorded", which asks no model; compare with [baseline] results
agent: must be "chat", "recorded" or "module:attr", got "server" | "a:b c" | 1
mcp = "nothing"
> 2: [agent] mcp: must be a folder, got "nothing" (looked for nothing)
mcp: must hold main.py with a FastMCP server, got "rollouts"
mcp: $INSIDE, got ".."
agent = "chat"
mcp = "rollouts"
> 3: [agent] mcp: cannot be used with agent; keep one of them

== data
path = "../outside.jsonl"
> 2: [data] path: "../outside.jsonl" lies outside the workspace (symlinks resolved); copy it in, or use --osmosis-dataset=../outside.jsonl
path = "/etc/x.jsonl"
> 2: [data] path: "/etc/x.jsonl" lies outside the workspace (symlinks resolved); copy it in, or use --osmosis-dataset=/etc/x.jsonl
path = "data/link.jsonl"
> 2: [data] path: "data/link.jsonl" lies outside the workspace (symlinks resolved); copy it in, or use --osmosis-dataset=data/link.jsonl
path = "data/none.jsonl"
> 2: [data] path: must be an existing file, got "data/none.jsonl" (looked for data/none.jsonl)
path = "data/folder.jsonl"
> 2: [data] path: "data/folder.jsonl" is a folder, not a file; a folder of trajectories needs [agent] agent = "recorded"
path: must end in .jsonl, .json, .csv, .parquet, got "data/multiply.txt"
offset: must be an integer of at least 0, got -1 | true | 1.0
rows: must be $ROWS, as a string, got 3
rows: must be $ROWS; "x" is neither a number nor a range, got "3,x"
rows: must be $ROWS; "" is neither a number nor a range, got "" | "1,,2"
rows: must be $ROWS; "-3" is neither a number nor a range, got "-3"
rows: must be $ROWS; "all" is neither a number nor a range, got "all,3"
rows: must be $ROWS; "20-10" is neither a number nor a range, got "20-10"
columns: must be a table of our column names to the dataset's, got "question"
columns = {prompt = "q", user_prompt = ""}
> 2: [data] columns.prompt: the name must be one of "user_prompt", "system_prompt", "ground_truth", "messages", "metadata", "solution_str", got "prompt"
> 2: [data] columns.user_prompt: $TEXT, got ""

== execution
hosts: must be an integer from 1 to 10,000, or "auto", got 0 | 10001
hosts = 513
> 2: [execution] hosts: must be at most 512 with engine = "local", one machine, got 513; set it by --osmosis-hosts=N
engine: must be one of "local", "ray", got "dask"
ray: must be a table with any of address, resources, workspace, exclude, runtime_env, got "auto"
engine = "ray"
hosts = 6400
[execution.ray]
adress = "auto"
resources = {num_cpus = -1, cpus = 2, memory = 1.5, resources = {"" = 1}, label_selector = {zone = 3}}
workspace = "copy"
exclude = [1]
> 5: [execution] ray.adress: unknown key, did you mean "address"? (valid: address, resources, workspace, exclude, runtime_env)
> 6: [execution] ray.resources.num_cpus: must be $NOT_NEGATIVE, got -1
> 6: [execution] ray.resources.cpus: unknown key, did you mean "num_cpus"? (valid: num_cpus, num_gpus, memory, resources, label_selector, accelerator_type)
> 6: [execution] ray.resources.memory: must be an integer of at least 0, got 1.5
> 6: [execution] ray.resources.resources."": the name $TEXT, got ""
> 6: [execution] ray.resources.label_selector.zone: $TEXT, got 3
> 7: [execution] ray.workspace: must be one of "shared", "upload", got "copy"
> 8: [execution] ray.exclude: each $TEXT, got 1
ray.address: must be "auto" or the address of the head, like "10.0.0.1:6379", got "local" | "10.0.0.1" | "ray://10.0.0.1:10001"
[execution.ray.runtime_env]
pip = 3
env_vars = {A = "b"}
> 3: [execution] ray.runtime_env.pip: must be a string, an array or a table, got 3
> 4: [execution] ray.runtime_env.env_vars: unknown key (valid: pip, uv, conda, image_uri)
warnings = 1
> 2: [execution] warnings: not supported yet; leave it out
host = 1
> 2: [execution] host: unknown key, did you mean "hosts"? (valid: engine, ray, hosts, granularity, watchdog_s, max_concurrent_generation, max_concurrent_scoring, interleave_scoring, requests_per_minute, tokens_per_minute)

== baseline
model_path = "x"
results = "x.json"
> 3: [baseline] results: cannot be used with model_path; keep one of them
base_url = "http://localhost/v1"
api_key_env = "K"
> 2: [baseline] base_url: needs [baseline] model_path
> 3: [baseline] api_key_env: needs [baseline] model_path
results: $INSIDE, got "../x.json"

== prices
m = {input = 1, output = 1e300}
> 2: [prices] m.output: must be $PRICE, got 1e+300
"openai/gpt-5-mini" = {input = 1}
> 2: [prices] "openai/gpt-5-mini".output: missing; must be $PRICE
m = {input = -1, output = "2", cached_input = 0, cached = 1}
> 2: [prices] m.input: must be $PRICE, got -1
> 2: [prices] m.output: must be $PRICE, got "2"
> 2: [prices] m.cached: unknown key, did you mean "cached_input"? (valid: input, output, cached_input, cache_write)
m: must be a table of input, output and optionally cached_input, cache_write, each $PRICE, got 0.25

== cassette
path: $INSIDE, got "../x.jsonl" | "/elsewhere/x.jsonl" | "link_out/x.jsonl"
path: must end in .jsonl, got "x.json"

== output
dir: $INSIDE, got "../out" | "/elsewhere/out" | "link_out/x"
results: $INSIDE, got "../out" | "/elsewhere/out" | "link_out/x"
html: $INSIDE, got "../report.html"

== gate
pass_rate: $SHARE, got 0.7 | ">=" | ">= 1.1" | ">= -0.1" | ">= nan" | ">= x" | "at least 0.7" | ">= 70%" | "0.7"
pass_rate: $SHARE, got "<= 0.7" | "== 0.7" | "!= 0.7" | "= 0.7" | "> 0.7" | "< 0.7"
pass_rate: $SHARE, got []
pass_rate = [">= 0.5", ">= 2", {min = 3}]
> 2: [gate] pass_rate: $SHARE, got ">= 2"
> 2: [gate] pass_rate.min: must be a finite number between 0 and 1, got 3
pass_rate = {rule = "point"}
> 2: [gate] pass_rate.min: missing; must be a finite number between 0 and 1
pass_rate = {min = 2}
> 2: [gate] pass_rate.min: must be a finite number between 0 and 1, got 2
pass_rate = {min = 0.7, rule = "exact"}
> 2: [gate] pass_rate.rule: must be one of "point", "lower", "upper", got "exact"
pass_rate = {min = 0.7, rule = []}
> 2: [gate] pass_rate.rule: must be one of "point", "lower", "upper", got []
pass_rate = {min = 0.7, rulez = 1}
> 2: [gate] pass_rate.rulez: unknown key, did you mean "rule"? (valid: min, rule)
pass_rate = {min = 0.7, zzz = 1}
> 2: [gate] pass_rate.zzz: unknown key (valid: min, rule)
mean = ">= 0.7"
> 2: [gate] mean: needs a single deciding function: name it in [scoring] decide, or write [gate."rewards:exact"] mean = ...
mean: must be ">= X" or {min = X, rule = "lower"} with X a finite number, like ">= 0.7", got ">= nan"
mean = {}
> 2: [gate] mean.min: missing; must be a finite number
max_regression = ">= 0.7"
> 2: [gate] max_regression: must be a finite number between 0 and 1, got ">= 0.7"
> 2: [gate] max_regression: needs a baseline: set [baseline] results or model_path
max_regression = 0.02
> 2: [gate] max_regression: needs a baseline: set [baseline] results or model_path
"rewards:exact" = {max_regression = 0.1}
> 2: [gate] "rewards:exact".max_regression: unknown key (valid: pass_rate, mean, pass_at_3, pass_hat_3)
pass_at_3 = ">= 0.7"
> 2: [gate] pass_at_3: needs [evaluation] n of at least 3, n is 1
pass_hat_10 = ">= 0.7"
> 2: [gate] pass_hat_10: needs [evaluation] n of at least 10, n is 1
pas_rate = 1
> 2: [gate] pas_rate: unknown key, did you mean "pass_rate"? $GATE_KEYS
pass_at_0 = 1
> 2: [gate] pass_at_0: unknown key, did you mean "pass_rate"? $GATE_KEYS

== gate."rewards:exact"
# nothing
> 1: [gate] "rewards:exact": must be a table of conditions, each a key like pass_rate, mean, pass_at_3, pass_hat_3, got {}
mean = "0.7"
median = 1
> 2: [gate] "rewards:exact".mean: must be ">= X" or {min = X, rule = "lower"} with X a finite number, like ">= 0.7", got "0.7"
> 3: [gate] "rewards:exact".median: unknown key (valid: pass_rate, mean, pass_at_3, pass_hat_3)
pass_at_2 = ">= 0.7"
> 2: [gate] "rewards:exact".pass_at_2: needs [evaluation] n of at least 2, n is 1

== gate.reward
mean = ">= 0.7"
> 1: [gate] reward: $FUNCTIONS

== limits
max_errors: must be $ERRORS, got -1 | 0.05 | true | "5" | "101%" | "-5%" | "x%"
max_cost_usd: must be a finite number above 0, got 0
rollout: must be $ROLLOUT_BOUNDS, got 5000
max_errors = 0
[limits.rollout]
tokens = 0
cost = 1
tool_calls = true
> 4: [limits] rollout.tokens: $POSITIVE, got 0
> 5: [limits] rollout.cost: unknown key, did you mean "cost_usd"? (valid: tokens, cost_usd, tool_calls)
> 6: [limits] rollout.tool_calls: $POSITIVE, got true

== evaluaton
n = 1
> 1: [evaluaton]: unknown table, did you mean [evaluation]? $TABLES

== zzz
n = 1
> 1: [zzz]: unknown table $TABLES

== eval
n = 1
> 1: [eval]: must be an array of tables; write [[eval]]

== [zzz]
n = 1
> 1: [zzz]: unknown table $TABLES

== [model]
timeout_s = 1
> 1: [model]: must be a table, got [{timeout_s = 1}]
""")
BROKEN["evaluation"] += [
    (
        "n = 1" + 30 * "0",
        [f"2: [evaluation] n: {POSITIVE} and at most 9,223,372,036,854,775,807, got 1" + 30 * "0"],
    ),
    (
        "pass_threshold = 1" + 400 * "0",
        ["2: [evaluation] pass_threshold: must be a finite number, got 1" + 96 * "0" + "..."],
    ),
]


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


def test_invalid_functions_cause_no_problems_with_names_that_refer_to_them(problems: Problems) -> None:
    text = SECRETS + EXPERIMENT + '[scoring]\neval_fns = ["a"]\nthresholds = {"b:c" = 1}\ndecide = "b:c"\n'
    assert problems(text) == ['7: [scoring] eval_fns: each must be "module:function" or the name of a check, got "a"']


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
        ("n = \n", "1: not valid TOML: Invalid value (at line 1, column 5)"),
        ("[experiment]\nn = \n", "2: not valid TOML: Invalid value (at line 2, column 5)"),
        ("[experiment]\nn = [1", "2: not valid TOML: Unclosed array (at end of document)"),
    ],
)
def test_a_file_that_is_not_an_eval_config_is_one_problem(problems: Problems, text: str, expected: str) -> None:
    assert problems(text) == [expected]


@pytest.mark.parametrize("limit", [sys.getrecursionlimit(), 50_000])
@pytest.mark.parametrize(
    "value",
    ["[" * 5000 + "]" * 5000, "{a=" * 350 + "1" + "}" * 350, "9" * 5000],
    ids=["arrays", "tables", "digits"],
)
def test_a_value_that_cannot_be_read_is_one_problem_whatever_the_recursion_limit(
    problems: Problems, value: str, limit: int
) -> None:
    """Some libraries let recursive code go much deeper than usual."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        (problem,) = problems(f"a = {value}\n")
    finally:
        sys.setrecursionlimit(before)
    assert problem.startswith("1: not valid TOML: ")


def test_a_config_may_nest_a_hundred_levels(problems: Problems) -> None:
    """The table of the file is the first of them."""
    (unknown, *_), too_deep = (problems(f"a = {'[' * levels}{']' * levels}\n") for levels in (99, 100))
    assert unknown.startswith("1: a: unknown key")
    assert too_deep == ["1: not valid TOML: arrays and tables are nested more than 100 levels"]


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


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("configs/eval/multipy.toml", "no such file, did you mean configs/eval/multiply.toml?"),
        ("nowhere/x.toml", "no such file"),
        ("configs/eval", "is a folder, not a file"),
        ("data/multiply.jsonl/x.toml", "no such file"),
    ],
)
def test_a_missing_file_is_reported_with_a_similar_one(workspace: Path, path: str, problem: str) -> None:
    (workspace / "configs/eval/multiply.toml").write_text("")
    assert problem_of(Path(path)) == f"{path}: {problem}"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xef\xbb\xbf[experiment]\n", ":1: begins with a byte order mark; save it as UTF-8 without BOM"),
        (b'[experiment]\nmodel_path = "\xe9"\n', ":2: must be UTF-8 text, got the byte 0xe9"),
        *(
            (EXPERIMENT.encode(encoding), f": is {encoding.upper()[:6]} text; save it as UTF-8")
            for encoding in ("utf-16", "utf-16-le", "utf-16-be")
        ),
    ],
)
def test_a_config_that_is_not_utf8_is_named_with_its_encoding(workspace: Path, content: bytes, problem: str) -> None:
    Path("configs/eval/x.toml").write_bytes(content)
    assert problem_of(Path("configs/eval/x.toml")) == f"configs/eval/x.toml{problem}"


def test_an_endless_config_is_refused(workspace: Path) -> None:
    with Path("configs/eval/x.toml").open("wb") as file:
        file.truncate(1 << 40)
    assert problem_of(Path("configs/eval/x.toml")) == (
        "configs/eval/x.toml: holds more than 10,000,000 bytes, the most that is read of such a file"
    )


def test_all_problems_of_a_file_are_reported_at_once_in_the_order_of_its_lines(problems: Problems) -> None:
    text = """\
[evaluation]
n = 0

[experiment]
rollout = "multiply"
entrypoint = "mian.py"
dataset = "d"

[env]
TOKEN = "x"

[scoring]
eval_fns = [
  "rewards:exact",
  "rewards:exact",
]

[gate]
pass_rate = "> 0.7"

[secrets]
required = [
  "TOKEN",
]

[baseline]
results = "/x.json"
"""
    assert problems(text, Override("evaluation", "batch_size", "0", "--osmosis-batch-size")) == [
        f"2: [evaluation] n: {POSITIVE}, got 0",
        f"4: {NO_MODEL}",
        '6: [experiment] entrypoint: must be a file in rollouts/multiply/, got "mian.py" (available: link.py, main.py, tools.py)',
        '13: [scoring] eval_fns: duplicate "rewards:exact"',
        f'19: [gate] pass_rate: {SHARE}, got "> 0.7"',
        '22: [secrets] required: "TOKEN" is also in [env]; keep it in one of them',
        f'27: [baseline] results: {INSIDE}, got "/x.json"',
        f'--osmosis-batch-size: {POSITIVE}, got "0"',
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
def test_no_value_of_any_key_raises_anything_but_a_config_error(load: Callable[..., object], table: str) -> None:
    text = EXPERIMENT + SECRETS + SCORING
    for key in [field.name for field in EVAL_TABLES[table].fields] + ["other", "a:b"]:
        for value in ODD_VALUES:
            with suppress(ConfigError):
                load(text, Override(table, key, value, "--x"))


# -- numbers without measure -----------------------------------------------------------------------------------

NUMBERS = ("1" + "0" * 30, "9" * 400, "-" + "9" * 400, "1e300", "9" * 5000, "9223372036854775808")
PLACES = [(table.name, field.name) for table in EVAL_TABLES.values() for field in table.fields]
PLACES += [("gate", "pass_at_" + "9" * 400), ("gate", "pass_at_999999"), ("prices", "m"), ("advanced", "x")]
BOUNDED = {
    "evaluation": ("n", "batch_size", "limit", "agent_workflow_timeout_s", "grader_timeout_s"),
    "data": ("offset", "seed"),
    "execution": ("hosts", "watchdog_s", "requests_per_minute", "tokens_per_minute"),
    "limits": ("max_errors", "max_tokens"),
    "model": ("timeout_s", "max_retries", "max_response_mb"),
    "agent": ("max_turns",),
    "sampling": ("max_tokens", "seed"),
}


@pytest.mark.parametrize("number", NUMBERS)
def test_no_number_in_a_toml_breaks_the_reader(problems: Problems, number: str) -> None:
    for table, key in PLACES:
        found = problems(f'[{table}]\n"{key}" = {number}\n')  # the rest of the config is missing
        bounded = key in BOUNDED.get(table, ())
        assert bounded <= any(f"{key}: must be" in line or "not valid TOML" in line for line in found)
        assert max(map(len, found)) < 1000


@pytest.mark.parametrize("rows", ["9" * 400, "0-" + "9" * 400, "1-999999999999999999"])
def test_rows_without_measure_are_refused_or_harmless(problems: Problems, rows: str) -> None:
    refused = any("[data] rows: must be row numbers" in line for line in problems(f'[data]\nrows = "{rows}"\n'))
    assert refused == (len(rows) > 100)
