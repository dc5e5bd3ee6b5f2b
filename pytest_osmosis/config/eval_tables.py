"""Every table and key of an eval config, declared: what it is, what it may hold, what holds without it.

Sources: the eval config of Osmosis (`[experiment]` to `[secrets]`); the others are local to this plugin.
Rules between keys, and those that look at files, are in `rules`.
"""

from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from typing import Any
from urllib.parse import urlsplit

from pytest_osmosis.config.conditions import (
    FUNCTION,
    PASS_AT,
    PASS_HAT,
    condition,
    conditions_of_function,
    error_bound,
    loss,
)
from pytest_osmosis.config.fields import Entries, Family, Field, Table, Tables
from pytest_osmosis.config.kinds import (
    Fault,
    Unfit,
    ValueKind,
    anything,
    array_of,
    choice,
    faults_of,
    integer,
    integer_or_all,
    name,
    number,
    refuse,
    string,
    table_of,
    text,
    toml,
    typed_array,
    typed_toml,
)
from pytest_osmosis.config.selection import rows
from pytest_osmosis.config.tables import ROW_COLUMNS, TokenPrices

RESERVED_ENV_PREFIX = "_OSMOSIS_"
RESERVED_BODY_KEYS = ("messages", "model", "tools", "stream", "n")


def _folder_name() -> ValueKind:
    expects = "the name of one folder under rollouts/, not a path"
    pattern = r"^(?!\s*\.{0,2}\s*$)[^/\\\u0000]+$"
    return string(
        expects, lambda value: value.strip() not in ("", ".", "..") and not re.search(r"[/\\\0]", value), pattern
    )


def _reference(what: str, *others: str) -> ValueKind:
    expects = " or ".join([*map(toml, others), f'"module:{what}"'])

    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise refuse(f"must be {expects}")
        module, colon, attribute = value.rpartition(":" if ":" in value else ".")
        dotted = all(part.isidentifier() for part in f"{module}.{attribute}".split("."))
        if value in others or (colon == ":" and dotted):
            return value
        meant = f"; did you mean {toml(f'{module}:{attribute}')}?" if colon and dotted else ""
        raise refuse(f"must be {expects}, got {toml(value)}{meant}", got="")

    name = r"[^\W\d]\w*"
    schema = {"type": "string", "pattern": rf"^{name}(\.{name})*:{name}(\.{name})*$"}
    return ValueKind(
        expects, read, schema={"anyOf": [*({"const": other} for other in others), schema]} if others else schema
    )


def _url() -> ValueKind:
    def fits(value: str) -> bool:
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError:
            return False
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and port != 0
            and value.isprintable()
            and " " not in value
        )

    host = r"(\[[0-9A-Fa-f:.]+\]|[^/?#@:\s\[\]]+)"
    port = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6([0-4][0-9]{3}|5([0-4][0-9]{2}|5([0-2][0-9]|3[0-5]))))"
    pattern = rf"^[Hh][Tt][Tt][Pp][Ss]?://([^/?#@\s]*@)?{host}(:{port}?)?([/?#]\S*)?$"
    return string("an http:// or https:// URL with a host", fits, pattern)


def _variable() -> ValueKind:
    return name("[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable, not the key itself")


def _header_value() -> ValueKind:
    expects = "a string without line breaks"

    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise refuse(f"must be {expects}")
        if re.search(r"[\r\n\0]", value):
            raise refuse(f"must be {expects}", got="one with a line break or a NUL")
        return value

    return ValueKind(expects, read, schema={"type": "string", "not": {"pattern": r"[\r\n\u0000]"}})


def _headers() -> ValueKind:
    pattern = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
    token = string("an HTTP header name", lambda value: bool(re.fullmatch(pattern, value)), f"^{pattern}$")
    return table_of("a table of header names to strings", token, _header_value())


def _stop() -> ValueKind:
    expects = "a string or an array of strings, none of them empty"

    def read(value: Any) -> tuple[str, ...]:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
            raise refuse(f"must be {expects}")
        return tuple(items)

    one = {"type": "string", "minLength": 1}
    return ValueKind(expects, read, typed_array, {"anyOf": [one, {"type": "array", "items": one}]})


def _extra_body() -> ValueKind:
    expects = "a table of what JSON can hold"
    reserved = f"set by the run itself; leave it out (reserved: {', '.join(RESERVED_BODY_KEYS)})"

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise refuse(f"must be {expects}")
        faults = [Fault(reserved, (key,), "") for key in value if key in RESERVED_BODY_KEYS]
        faults += [
            Fault("must be a value that JSON can hold", (key,), toml(one))
            for key, one in value.items()
            if not _is_json(one)
        ]
        if faults:
            raise Unfit(faults)
        return value

    schema = {"type": "object", "propertyNames": {"not": {"enum": list(RESERVED_BODY_KEYS)}}}
    return ValueKind(expects, read, typed_toml, schema)


def _above_0() -> ValueKind:
    return number(" above 0", lambda value: value > 0, exclusiveMinimum=0)


def _rates() -> ValueKind:
    rate = number(" of at least 0", lambda value: value >= 0, minimum=0)
    names = tuple(field.name for field in fields(TokenPrices))
    needed = ("input", "output")
    expects = f"a table of {', '.join(needed)} and maybe {', '.join(names[len(needed) :])}, each {rate.expects}"

    def read(value: Any) -> TokenPrices:
        if not isinstance(value, dict):
            raise refuse(f"must be {expects}")
        faults = [Fault(f"unknown key (valid: {', '.join(names)})", (key,), "") for key in value if key not in names]
        faults += [Fault(f"missing; must be {rate.expects}", (key,), "") for key in needed if key not in value]
        faults += [
            replace(fault, below=(key,)) for key in names if key in value for fault in faults_of(rate, value[key])
        ]
        if faults:
            raise Unfit(faults)
        return TokenPrices(**{key: rate.read(one) for key, one in value.items()})

    schema = {
        "type": "object",
        "properties": dict.fromkeys(names, rate.schema),
        "required": list(needed),
        "additionalProperties": False,
    }
    return ValueKind(expects, read, typed_toml, schema)


def _is_json(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_json, value.values()))
    if isinstance(value, list):
        return all(map(_is_json, value))
    return isinstance(value, (str, bool, int)) or (isinstance(value, float) and math.isfinite(value))


def _env_name() -> ValueKind:
    pattern = re.compile("[A-Z_][A-Z0-9_]*")
    expects = f"^[A-Z_][A-Z0-9_]*$ and not start with {RESERVED_ENV_PREFIX}, which is reserved"

    def read(value: Any) -> str:
        if not pattern.fullmatch(value) or value.startswith(RESERVED_ENV_PREFIX):
            raise refuse(f"must match {expects}")
        return str(value)

    return ValueKind(expects, read, schema={"pattern": rf"^(?!{RESERVED_ENV_PREFIX}){pattern.pattern}$"})


EXPERIMENT = Table(
    "experiment",
    "What is evaluated.",
    (
        Field("rollout", _folder_name(), "Folder of the code under rollouts/."),
        Field("entrypoint", text(), "Python file with the workflow and the Grader, from the rollout's folder."),
        Field("model_path", text(), 'The model, like "openai/gpt-5-mini".', required=True),
        Field("dataset", text(), "Name or path of the dataset; required unless [data] path is given."),
        Field(
            "commit_sha",
            string(
                "a commit SHA of 7 to 40 hexadecimal digits",
                lambda value: bool(re.fullmatch("[0-9a-fA-F]{7,40}", value)),
                "^[0-9a-fA-F]{7,40}$",
            ),
            "Commit whose code is evaluated; excludes branch.",
            supported=False,
        ),
        Field(
            "branch",
            string("a branch name without whitespace", lambda value: bool(re.fullmatch(r"\S+", value)), r"^\S+$"),
            "Branch whose code is evaluated; excludes commit_sha.",
            supported=False,
        ),
    ),
)

EVALUATION = Table(
    "evaluation",
    "How often, how many at once, and what passes.",
    (
        Field(
            "limit",
            integer(1),
            "How many rows, from the first (or [data] offset) on.",
            override=integer_or_all(1),
        ),
        Field("n", integer(1), "Runs per row.", default=1),
        Field("batch_size", integer(1), "Rollouts in flight.", default=1),
        Field("pass_threshold", number(), "The score from which on a run passes.", default=1.0),
        Field(
            "agent_workflow_timeout_s",
            number(" above 0", lambda value: value > 0, exclusiveMinimum=0),
            "Seconds for the rollout of one run, queue time not counted.",
            default=450.0,
        ),
        Field(
            "grader_timeout_s",
            number(" above 0", lambda value: value > 0, exclusiveMinimum=0),
            "Seconds for scoring one run, queue time not counted.",
            default=150.0,
        ),
    ),
)

ADVANCED = Table(
    "advanced",
    "Kept for the platform and unused here.",
    entries=Entries(anything(), anything(), "Any key and value."),
)

ENV = Table(
    "env",
    "Environment variables of the evaluated code that are no secrets.",
    entries=Entries(
        _env_name(),
        string("a string without NUL", lambda value: "\0" not in value, r"^[^\u0000]*$"),
        "Variable name to value.",
    ),
)

SECRETS = Table(
    "secrets",
    "Environment variables whose values stand in no config.",
    (
        Field(
            "required",
            array_of(name("[A-Z][A-Z0-9_]*", "a name that matches ^[A-Z][A-Z0-9_]*$"), "names, all different"),
            "Names of the secrets; [] where the eval needs none.",
            required=True,
        ),
    ),
    required=True,
)

MODEL = Table(
    "model",
    "Where the model is and how it is called.",
    (
        Field("base_url", _url(), "The server's API, like http://localhost:8000/v1."),
        Field("api_key_env", _variable(), "Environment variable that holds the API key."),
        Field(
            "client",
            choice("auto", "openai", "anthropic", "light", "litellm"),
            "Which client talks to the server.",
            default="auto",
        ),
        Field("headers", _headers(), "Headers sent with every request.", private=True),
        Field("max_retries", integer(0), "Retries of one request.", default=4),
        Field(
            "timeout_s",
            number(" above 0", lambda value: value > 0, exclusiveMinimum=0),
            "Seconds for one request.",
            default=120.0,
        ),
    ),
)

SAMPLING = Table(
    "sampling",
    "What is sent with every request beside messages and tools.",
    (
        Field("temperature", number(" of at least 0", lambda value: value >= 0, minimum=0), "Sampling temperature."),
        Field(
            "top_p",
            number(" above 0 and at most 1", lambda value: 0 < value <= 1, exclusiveMinimum=0, maximum=1),
            "Nucleus sampling.",
        ),
        Field("max_tokens", integer(1), "Longest answer."),
        Field("seed", integer(), "Base from which each run's own seed is made."),
        Field("stop", _stop(), "Where an answer ends."),
        Field("extra_body", _extra_body(), f"Further keys of the request, but {', '.join(RESERVED_BODY_KEYS)}."),
    ),
)

SCORING = Table(
    "scoring",
    "Who scores a rollout, and which scores decide whether the run passed.",
    (
        Field(
            "eval_fns",
            array_of(_reference("function"), 'functions as "module:function", all different'),
            "Functions that score.",
        ),
        Field("grader", _reference("Class"), "Grader that scores, in place of the entrypoint's."),
        Field("rubric", anything(), "An LLM judge.", supported=False),
        Field(
            "thresholds",
            table_of("a table of function names to numbers", text(), number()),
            "A function's own threshold; [evaluation] pass_threshold holds for the others.",
        ),
        Field("decide", text(), '"all", "any", or the one function that decides.', default="all"),
    ),
)

AGENT = Table(
    "agent",
    "What produces a rollout.",
    (
        Field(
            "agent",
            _reference("attr", "chat"),
            'The built-in "chat" or a "module:attr"; in place of the entrypoint\'s workflow.',
        ),
        Field("max_turns", integer(1), "Most turns of one rollout.", default=10),
    ),
)

DATA = Table(
    "data",
    "Where the rows are, and which are evaluated.",
    (
        Field("path", text(), "Dataset file inside the workspace."),
        Field("offset", integer(0), "Rows left out at the beginning."),
        Field("rows", rows(), "Which rows, by their position in the file; goes before offset and limit."),
        Field("seed", integer(), "Draws the 10% sample that is taken without rows, offset and limit.", default=0),
        Field(
            "columns",
            table_of("a table of our column names to the dataset's", choice(*ROW_COLUMNS), text()),
            "The dataset's names for our columns.",
        ),
    ),
)

EXECUTION = Table(
    "execution",
    "How the engine works.",
    (
        Field(
            "hosts",
            integer(1),
            "Processes that roll out, and as many that score; batch_size holds for all together. "
            "By default as many as xdist's -n, else 1.",
        ),
        Field(
            "granularity",
            choice("run", "row"),
            "What a test reports of: one run, or all runs of a row, which makes large evals cheap for pytest.",
            default="run",
        ),
        Field(
            "watchdog_s",
            number(" above 0", lambda value: value > 0, exclusiveMinimum=0),
            "After so many seconds without a finished run, what is waited for is named.",
            default=120.0,
        ),
        Field("warnings", anything(), "What becomes of warnings.", supported=False),
        Field(
            "requests_per_minute",
            integer(1),
            "Most requests to the model in any minute, retries included, over all processes of the eval.",
        ),
        Field(
            "tokens_per_minute",
            integer(1),
            "Most tokens in any minute, of input and output: estimated before an answer, corrected after it.",
        ),
    ),
)

GATE = Table(
    "gate",
    "Conditions on the aggregate that decide the exit code. `rule` says what is compared: the value as measured "
    '("point", the default), or the "lower" or "upper" end of its interval (one-sided, 95%).',
    (
        Field("pass_rate", condition("pass_rate"), "Share of runs that pass."),
        Field("mean", condition("mean"), "Mean score of the one function that decides."),
        Field(
            "max_regression", loss(), "Largest loss of the pass rate against [baseline]; more, with p < 0.05, fails."
        ),
    ),
    families=(
        Family(PASS_AT, "pass_at_K", "pass_at_3", condition, "pass@k: at least one of K runs passes; needs n >= K."),
        Family(PASS_HAT, "pass_hat_K", "pass_hat_3", condition, "pass^k: all of K runs pass; needs n >= K."),
        Family(
            FUNCTION,
            '"module:function"',
            "module:function",
            lambda _: conditions_of_function(),
            "The same conditions on one function's scores; `reward` for a Grader's.",
        ),
    ),
)

LIMITS = Table(
    "limits",
    "Bounds that stop a run or make it not measured.",
    (
        Field("max_errors", error_bound(), "Runs that may stay unmeasured, as a count or a share.", default=0.10),
        Field(
            "max_cost_usd", _above_0(), "US dollars; nothing more is begun once they are spent. Needs a known price."
        ),
        Field("max_tokens", integer(1), "Tokens, of input and output; nothing more is begun once they are spent."),
        Field("max_duration_s", _above_0(), "Seconds from the first rollout on, after which nothing more is begun."),
    ),
)

BASELINE = Table(
    "baseline",
    "What the eval is compared with, row by row: another model or earlier results.",
    (
        Field("model_path", text(), "A model that is asked the same, side by side; excludes results."),
        Field("base_url", _url(), "The server of that model, like http://localhost:8000/v1."),
        Field("api_key_env", _variable(), "Environment variable that holds its API key."),
        Field("results", text(), "A results.json inside the workspace; --osmosis-update-baseline writes it."),
    ),
)

OUTPUT = Table(
    "output",
    "What is written where.",
    (
        Field("dir", text(), "Folder of the runs inside the workspace, .osmosis/runs by default."),
        Field("results", text(), "Results file inside the workspace."),
        Field("html", anything(), "Report as HTML.", supported=False),
        Field("transcripts", anything(), "Which conversations are kept.", supported=False),
    ),
)

PRICES = Table(
    "prices",
    "What models cost, in US dollars per million tokens; goes before the extra `prices`.",
    entries=Entries(
        text(),
        _rates(),
        'A model, as in model_path or as sent, to its prices: "openai/gpt-5-mini" = {input = 0.25, output = 2}.',
    ),
)

EVAL_TABLES: Tables = {
    table.name: table
    for table in (
        EXPERIMENT, EVALUATION, ADVANCED, ENV, SECRETS, MODEL, SAMPLING, SCORING, AGENT,
        DATA, EXECUTION, GATE, LIMITS, BASELINE, OUTPUT, PRICES,
    )
}  # fmt: skip
"""The eval dialect."""
