"""Kinds of values that only an eval config has: URLs, code, headers, prices, conditions on the eval, rows.

Conditions are the values of `[gate]` and `[limits] max_errors`. A `RowSelection` results of all levels of precedence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis.checks.kinds import (
    AFTER,
    JSON,
    PARTS,
    PATH,
    CheckKind,
    Paths,
    Pattern,
    Schema,
    Table,
    Texts,
    load,
    plain_type,
)
from pytest_osmosis.config.kinds import (
    ANYTHING,
    MOST,
    TEXT,
    Fault,
    Unfit,
    ValueKind,
    array_of,
    choice,
    faults_of,
    integer,
    kind,
    matching,
    name_shown,
    number,
    quoted_list,
    record_of,
    refuse,
    string,
    table_of,
    toml,
    typed_array,
    typed_integer,
    typed_json,
    typed_toml,
)
from pytest_osmosis.text.names import suggestion

EMPTY: Mapping[str, Any] = MappingProxyType({})
A_CPU: Mapping[str, Any] = MappingProxyType({"num_cpus": 1})
RESERVED_ENV_PREFIX = "_OSMOSIS_"
RESERVED_BODY_KEYS = ("messages", "model", "tools", "stream", "n")


def folder_name() -> ValueKind:
    expects = "the name of one folder under rollouts/, not a path"
    return string(expects, lambda value: value.strip() not in ("", ".", "..") and not re.search(r"[/\\\0]", value))


def code_reference(attribute_text: str, *others: str, others_are: str = "") -> ValueKind:
    """A reference like "module:function", with `attribute_text` after the colon in messages, or one of `others`.

    `others_are` describes the others where they are too many for a message.
    """
    expects = f'"module:{attribute_text}"'
    if others:
        expects = f"{expects} or {others_are}" if others_are else f"{', '.join(map(toml, others))} or {expects}"

    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise refuse(f"must be {expects}")
        module, colon, attribute = value.rpartition(":" if ":" in value else ".")
        dotted = all(part.isidentifier() for part in f"{module}.{attribute}".split("."))
        if value in others or (colon == ":" and dotted):
            return value
        meant = f"; did you mean {toml(f'{module}:{attribute}')}?" if colon and dotted else suggestion(value, others)
        raise refuse(f"must be {expects}, got {toml(value)}{meant}", got="")

    return ValueKind(expects, read, schema={"type": "string"})


def url() -> ValueKind:
    def fits(value: str) -> bool:
        with suppress(ValueError):
            parts = urlsplit(value)
            has_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            return has_server and value.isprintable() and " " not in value
        return False

    return string("an http:// or https:// URL with a host", fits)


def variable_name(got: Callable[[str], str] = name_shown) -> ValueKind:
    return matching("[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable, not the key itself", got)


HEADER_NAME = matching(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", "an HTTP header name")


def headers() -> ValueKind:
    """HTTP headers. Names are checked, and values are never shown."""
    value = matching(r"[^\r\n\0]*", "a string without line breaks", lambda _: "one with a line break or a NUL")
    return table_of("a table of header names to strings", HEADER_NAME, value)


FLAG = kind("true or false", lambda value: isinstance(value, bool), typed=typed_toml, schema={"type": "boolean"})


def json_table(*reserved: str) -> ValueKind:
    """A table of JSON values; as an option, written as JSON or as a TOML inline table. `reserved` keys do not fit."""
    expects = "a table of JSON values"
    of_run = f"set by the run itself; leave it out (reserved: {', '.join(reserved)})"

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise refuse(f"must be {expects}")
        faults = [Fault(of_run, (key,), "") for key in reserved if key in value]
        faults += [
            Fault("must be a JSON value", (key,), toml(item)) for key, item in value.items() if not _is_json(item)
        ]
        if faults:
            raise Unfit(faults)
        return value

    def typed(text: str) -> object:
        try:
            return typed_json(text)
        except Unfit:
            return typed_toml(text)

    schema = {"propertyNames": {"not": {"enum": list(reserved)}}} if reserved else {}
    return ValueKind(expects, read, typed, {"type": "object", **schema})


def stop() -> ValueKind:
    """One stop text or several, kept as a tuple."""
    text = {"type": "string", "minLength": 1}
    return kind(
        "a string or an array of strings, none of them empty",
        lambda value: (
            isinstance(value, list | str) and value != "" and all(isinstance(each, str) and each for each in value)
        ),
        lambda value: (value,) if isinstance(value, str) else tuple(value),
        typed_array,
        {"anyOf": [text, {"type": "array", "items": text}]},
    )


EXTRA_BODY = json_table(*RESERVED_BODY_KEYS)
ABOVE_0 = number(" above 0", exclusiveMinimum=0)
AT_LEAST_0 = number(" of at least 0", minimum=0)
TOP_P = number(" above 0 and at most 1", exclusiveMinimum=0, maximum=1)


def score_range() -> ValueKind:
    """The lowest and the highest score, kept as a tuple."""
    expects = "an array of the lowest and the highest score, like [0, 1]"

    def read(value: Any) -> tuple[float, float]:
        if not isinstance(value, list | tuple) or len(value) != 2 or any(faults_of(number(), end) for end in value):
            raise refuse(f"must be {expects}")
        low, high = map(float, value)
        if low >= high:
            raise refuse("the highest score must be above the lowest")
        return low, high

    schema = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    return ValueKind(expects, read, typed_toml, schema)


MOST_SECONDS = 31_536_000.0
"""A year. Clocks and locks of the operating system refuse much longer times."""
SECONDS = number(f" above 0 and at most {MOST_SECONDS:,.0f} (a year)", exclusiveMinimum=0, maximum=MOST_SECONDS)


def rollout_bounds() -> ValueKind:
    """The bounds of each rollout by name, kept as a dict."""
    expects = "a table with any of tokens, tool_calls (integers of at least 1) and cost_usd (a finite number above 0)"
    return record_of(expects, {"tokens": integer(1), "cost_usd": ABOVE_0, "tool_calls": integer(1)})


MOST_PRICE = 1_000_000.0
"""US dollars per million tokens: a dollar for each. What more would cost, no sum has to hold."""


class TokenPrices(Struct, frozen=True):
    """The price of a model in US dollars per million tokens. A price of None equals `input`."""

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None


def token_prices() -> ValueKind:
    """The prices of a model, kept as `TokenPrices`."""
    price = number(f" from 0 to {MOST_PRICE:,.0f}", minimum=0, maximum=MOST_PRICE)
    required = ("input", "output")
    names = TokenPrices.__struct_fields__
    optional = ", ".join(names[len(required) :])
    expects = f"a table of {', '.join(required)} and optionally {optional}, each {price.expects}"
    table = record_of(expects, dict.fromkeys(names, price), required)
    return replace(table, read=lambda value: TokenPrices(**table.read(value)))


def _is_json(value: object) -> bool:
    """Return True for what JSON holds; TOML has no null, and options typed as JSON do."""
    if isinstance(value, dict):
        return all(map(_is_json, value.values()))
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or isinstance(value, (str, bool, int)) or (isinstance(value, float) and math.isfinite(value))


def env_name() -> ValueKind:
    expects = f"^[A-Z_][A-Z0-9_]*$ and must not start with {RESERVED_ENV_PREFIX} (reserved)"

    def read(value: Any) -> str:
        if not re.fullmatch("[A-Z_][A-Z0-9_]*", value) or value.startswith(RESERVED_ENV_PREFIX):
            raise refuse(f"must match {expects}")
        return str(value)

    return ValueKind(expects, read, schema={"type": "string"})


Metric = Literal["pass_rate", "mean", "pass_at", "pass_hat", "max_regression"]
Rule = Literal["point", "lower", "upper"]


class GateRule(Struct, frozen=True):
    """One condition of `[gate]` on the whole eval: `metric >= minimum`.

    `rule` selects the compared value: the measured one, or the lower or upper end of its interval. `k` is that of
    pass@k and pass^k. `function` is the function whose scores are compared, or None for the outcomes of the runs. For
    "max_regression", the difference to the baseline is compared, and `minimum` is minus the acceptable loss.
    """

    metric: Metric
    minimum: float
    rule: Rule = "point"
    k: int | None = None
    function: str | None = None

    @property
    def name(self) -> str:
        """The metric as a config contains it: "pass_rate", "pass_at_3"."""
        return self.metric if self.k is None else f"{self.metric}_{self.k}"

    @property
    def is_regression(self) -> bool:
        """True if the gate compares with the baseline."""
        return self.metric == "max_regression"


METRICS = "pass_rate, mean, pass_at_3, pass_hat_3"
LOSS: Metric = "max_regression"
FUNCTION = re.compile(r"reward|rubric|.*:.*", re.DOTALL)  # keys of [gate] that name functions
PASS_AT = re.compile(r"pass_at_([1-9][0-9]{0,5})")
PASS_HAT = re.compile(r"pass_hat_([1-9][0-9]{0,5})")
_RATIO = number(" between 0 and 1", minimum=0, maximum=1)


def condition(metric: str) -> ValueKind:
    """A condition on a metric ("pass_rate", "mean", "pass_at_3", ...), or an array of them, kept as `GateRule`s."""
    bound, text = (number(), "a finite number") if metric == "mean" else (_RATIO, "between 0 and 1")
    expects = f'">= X" or {{min = X, rule = "lower"}} with X {text}, like ">= 0.7"'
    table = record_of(expects, {"min": bound, "rule": choice(*get_args(Rule))}, required=("min",))

    match = PASS_AT.fullmatch(metric) or PASS_HAT.fullmatch(metric)
    name, k = (metric.removesuffix(f"_{match[1]}"), int(match[1])) if match else (metric, None)

    def read_one(value: Any) -> GateRule:
        if not isinstance(value, str):
            fields = table.read(value)
            return GateRule(cast("Metric", name), fields["min"], fields.get("rule", "point"), k)
        typed = re.fullmatch(r">=\s*([^<>=!\s]+)", value.strip())
        with suppress(ValueError, Unfit):
            if typed is not None:
                return GateRule(cast("Metric", name), float(bound.read(float(typed[1]))), k=k)
        raise refuse(f"must be {expects}")

    one = ValueKind(expects, read_one)

    def read(value: Any) -> tuple[GateRule, ...]:
        entries = value if isinstance(value, list) and value else [value]
        faults = [fault for entry in entries for fault in faults_of(one, entry)]
        if faults:
            raise Unfit(faults)
        return tuple(dict.fromkeys(map(read_one, entries)))

    either = {"anyOf": [{"type": "string"}, table.schema]}
    schema = {"anyOf": [*either["anyOf"], {"type": "array", "items": either, "minItems": 1}]}
    return ValueKind(expects, read, typed_condition, schema)


def conditions_of_function() -> ValueKind:
    """The conditions on the scores of one function, kept as a mapping of metrics to their `GateRule`s."""
    expects = f"a table of conditions, each a key like {METRICS}"

    def read(value: Any) -> Mapping[str, tuple[GateRule, ...]]:
        if not isinstance(value, dict) or not value:
            raise refuse(f"must be {expects}")
        faults = []
        for key, entry in value.items():
            if is_metric(key):
                faults += faults_of(condition(key), entry, key)
            else:
                faults.append(Fault(f"unknown key (valid: {METRICS})", (key,), ""))
        if faults:
            raise Unfit(faults)
        return MappingProxyType({key: condition(key).read(entry) for key, entry in value.items()})

    schema = {
        "type": "object",
        "minProperties": 1,
        "properties": {key: condition(key).schema for key in ("pass_rate", "mean")},
        "patternProperties": {f"^{k.pattern}$": condition("pass_at_1").schema for k in (PASS_AT, PASS_HAT)},
        "additionalProperties": False,
    }
    return ValueKind(expects, read, typed_toml, schema)


def is_metric(key: str) -> bool:
    return key in ("pass_rate", "mean") or any(k.fullmatch(key) for k in (PASS_AT, PASS_HAT))


def typed_condition(text: str) -> object:
    """Return a typed TOML table or array, or any other text unchanged."""
    return typed_toml(text) if text.lstrip().startswith(("{", "[")) else text


def loss() -> ValueKind:
    """The largest acceptable loss, kept as `GateRule`s like a condition. On the command line it follows "=" or "<="."""

    def read(value: Any) -> tuple[GateRule, ...]:
        share: float = _RATIO.read(value)
        return (GateRule(LOSS, -share),)

    def typed(text: str) -> object:
        return _RATIO.typed(text.strip().removeprefix("<").removeprefix("=").strip())

    return ValueKind(f"{_RATIO.expects}, like 0.02", read, typed, _RATIO.schema)


ERRORS_EXPECTED = 'a count of runs (an integer of at least 0) or a share of them like "5%"'


def error_bound() -> ValueKind:
    """The most runs that may stay unmeasured, kept as an int (a count) or a float (a share from 0 to 1)."""

    def read(value: Any) -> int | float:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST:
            return value
        share = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*", value) if isinstance(value, str) else None
        if share is None or float(share[1]) > 100:
            raise refuse(f"must be {ERRORS_EXPECTED}")
        return float(share[1]) / 100

    schema = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}
    return ValueKind(ERRORS_EXPECTED, read, typed_integer, schema)


Ranges = tuple[tuple[int, int], ...]  # inclusive, of row indices

ROWS_EXPECTED = 'row numbers and inclusive ranges like "3,7,10-20", or "all"'
_PART = re.compile(r"([0-9]{1,18})(?:\s*-\s*([0-9]{1,18}))?")


def rows() -> ValueKind:
    """Row numbers and ranges, kept sorted and merged, or "all"."""

    def read(value: Any) -> Ranges | Literal["all"]:
        if not isinstance(value, str):
            raise refuse(f"must be {ROWS_EXPECTED}, as a string")
        if value.strip() == "all":
            return "all"
        ranges = []
        for part in map(str.strip, value.split(",")):
            match = _PART.fullmatch(part)
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if last < first:
                raise refuse(f"must be {ROWS_EXPECTED}; {toml(part)} is neither a number nor a range")
            ranges.append((first, last))
        return merged(ranges)

    return ValueKind(ROWS_EXPECTED, read, schema={"type": "string"})


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the ranges in order. Ranges that overlap or touch are joined.

    >>> merged([(10, 20), (3, 3), (4, 5), (15, 30)])
    ((3, 5), (10, 30))
    """
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return tuple(result)


# -- kinds of `[execution.ray]`: what Ray would refuse only when it is connected ----------------------------

_ADDRESS = re.compile(r"[^\s/]+:[0-9]{1,5}")


def address() -> ValueKind:
    """The address of a cluster that runs, or "auto", kept as None."""
    expects = '"auto" or the address of the head, like "10.0.0.1:6379"'

    def read(value: Any) -> str | None:
        if value == "auto":
            return None
        if isinstance(value, str) and _ADDRESS.fullmatch(value):
            return value
        raise refuse(f"must be {expects}")

    return ValueKind(expects, read, schema={"type": "string"})


def resources() -> ValueKind:
    """The resources of a host, as options of `ray.remote`, kept as a dict. One that names no `num_cpus` takes a CPU."""
    amount = replace(AT_LEAST_0, read=_as_written)
    kinds = {
        "num_cpus": amount,
        "num_gpus": amount,
        "memory": integer(0),
        "resources": table_of("a table of custom resources and their amounts", TEXT, amount),
        "label_selector": table_of("a table of labels and their values", TEXT, TEXT),
        "accelerator_type": TEXT,
    }
    table = record_of(f"a table with any of {', '.join(kinds)}, as in ray.remote", kinds)
    return replace(table, read=lambda value: {**A_CPU, **table.read(value)})


def _as_written(value: Any) -> Any:
    """Return a number of at least 0, but 1 as 1, as texts about resources show it. Raises `Unfit`."""
    AT_LEAST_0.read(value)
    return value


def runtime_env() -> ValueKind:
    """The part of Ray's runtime_env that installs packages, kept as a dict. Ray checks what the values hold."""
    packages = kind(
        "a string, an array or a table", lambda value: isinstance(value, str | list | dict), schema={}, typed=typed_toml
    )
    kinds = {"pip": packages, "uv": packages, "conda": packages, "image_uri": TEXT}
    return record_of(f"a table with one of {', '.join(kinds)}", kinds)


def requirements_files(runtime_env: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the files that a runtime_env names, each with its key. They are relative to the workspace."""
    for key in ("pip", "uv"):
        packages = runtime_env.get(key)
        file = packages.get("packages") if isinstance(packages, Mapping) else packages
        if isinstance(file, str):
            yield key, file
    conda = runtime_env.get("conda")
    if isinstance(conda, str) and conda.endswith((".yml", ".yaml")):
        yield "conda", conda


def with_absolute_files(runtime_env: Mapping[str, Any], workspace: Path) -> dict[str, Any]:
    """Return a runtime_env with the paths of its files made absolute, as the bridge has another current folder."""
    found = dict(runtime_env)
    for key, file in requirements_files(runtime_env):
        path = str(workspace / file)
        found[key] = {**found[key], "packages": path} if isinstance(found[key], Mapping) else path
    return found


# -- kinds of `[[scoring.checks]]`, made from the declarations of the kinds of checks ------------------------

CHECKS = tuple(load())
BARE = tuple(name for name, each in load().items() if each.needs_nothing)
"""The kinds that a name in `eval_fns` stands for: they compare with the row's ground truth, or with nothing."""
_TEXT = string("a string that is not empty", bool)
_PATH = matching(PATH.pattern, 'a path into JSON, like "order.items[0].id"')
NAME = matching(r"\w[\w.-]*", "a name of letters, digits, _, . and -")


def _one_or_several(item: ValueKind, plural: str) -> ValueKind:
    """A value, or an array of at least one; kept as it is."""
    several = array_of(item, plural)
    expects = f"{item.expects}, or an array of {plural}"

    def read(value: Any) -> Any:
        fits = value != [] and not faults_of(several if isinstance(value, list) else item, value)
        if not fits:
            raise refuse(f"must be {expects}")
        return value

    return ValueKind(expects, read, schema={"anyOf": [item.schema, {**several.schema, "minItems": 1}]})


def _read_pattern(value: Any) -> Any:
    try:
        re.compile(_TEXT.read(value))
    except (re.error, RecursionError, OverflowError) as error:
        raise refuse(f"must be a regular expression: {error}") from None
    return value


def _read_schema(value: Any) -> Any:
    import jsonschema

    schema = json_table().read(value)
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        where = f" at {error.json_path}" if error.json_path != "$" else ""
        raise refuse(f"must be a JSON Schema: {error.message}{where}", got="") from None
    return schema


_KINDS: Mapping[Any, ValueKind] = {
    str: _TEXT,
    Texts: _one_or_several(_TEXT, "distinct strings"),
    Pattern: replace(_TEXT, expects="a regular expression", read=_read_pattern),
    Schema: replace(json_table(), expects="a JSON Schema, as a table", read=_read_schema),
    Paths: _one_or_several(_PATH, "distinct paths"),
    Table: json_table(),
    float: number(),
    int: integer(0),
    bool: FLAG,
    object: ANYTHING,
}
_ON_TABLES = {AFTER: _TEXT, JSON: _PATH}
_ON_EXPECTS = f'"{PARTS[0]}", "{PARTS[1]}", "{PARTS[2]}", {{{AFTER} = "####"}} or {{{JSON} = "order.id"}}'


def _read_on(value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1:
        return record_of(_ON_EXPECTS, _ON_TABLES).read(value)
    if value not in PARTS:
        raise refuse(f"must be {_ON_EXPECTS}")
    return value


_ON_TABLE = {**record_of("", _ON_TABLES).schema, "minProperties": 1, "maxProperties": 1}
ON = ValueKind(_ON_EXPECTS, _read_on, schema={"anyOf": [{"enum": list(PARTS)}, _ON_TABLE]})


def keys_of_check(of: CheckKind) -> dict[str, ValueKind]:
    """Return the keys of a check of this kind, with the kinds of their values."""
    keys = {"name": NAME, "kind": choice(of.name)}
    for name, parameter in of.parameters.items():
        wanted = plain_type(parameter)
        if get_origin(wanted) is Literal:
            keys[name] = choice(*get_args(wanted))
        else:
            keys[name] = AT_LEAST_0 if wanted is float and name in ("max", "within") else _KINDS[wanted]
    if of.sees_text:
        keys["on"] = ON
    if not of.is_degree:
        keys["negate"] = FLAG
    return keys


def _record(of: CheckKind) -> ValueKind:
    return record_of("a table", keys_of_check(of), ("kind", *of.required))


def _read_check(value: dict[str, Any]) -> Mapping[str, Any]:
    """Return a check with its name, which is that of its kind by default."""
    kind = value.get("kind")
    if kind not in CHECKS:
        got = "" if "kind" not in value else f", got {toml(kind)}{suggestion(str(kind), CHECKS)}"
        raise Unfit([Fault(f"{'' if got else 'missing; '}must be one of {quoted_list(CHECKS)}{got}", ("kind",), "")])
    of = load()[kind]
    check = _record(of).read(value)
    if of.bounds and not any(bound in check for bound in of.bounds):
        raise Unfit([Fault(f"needs {' or '.join(of.bounds)}", ("kind",), "")])
    if check.get("min", 0) > check.get("max", float("inf")):
        raise Unfit([Fault(f"must be at least min, got {check['max']}", ("max",), "")])
    return {"name": of.name, **check}


def checks() -> ValueKind:
    """The checks of a config, kept as a tuple of mappings, each with a name. Faults begin with a position."""
    expects = f"an array of tables, each with a kind: {', '.join(CHECKS)}"

    def read(value: Any) -> tuple[Mapping[str, Any], ...]:
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise refuse("must be an array of tables; write [[scoring.checks]]", got="")
        one = ValueKind("", _read_check)
        faults = [fault for index, each in enumerate(value) for fault in faults_of(one, each, index)]
        if faults:
            raise Unfit(faults)
        return tuple(map(_read_check, value))

    schema = {
        "type": "array",
        "items": {"anyOf": [_record(each).schema for each in load().values()]},
    }
    return ValueKind(expects, read, typed_toml, schema)


# -- values of settings of `prime eval`, made those of our keys ---------------------------------------------

EVERY_RUN_AT_ONCE = 1_000_000
"""The `batch_size` that stands for no limit: an eval has no more in flight than it has runs."""


def all_if_minus_1(value: Any) -> int | Literal["all"]:
    """Return the rows that `num_examples` selects: all of them if it is -1."""
    return "all" if str(value).strip() == "-1" else value


def unlimited_if_minus_1(value: Any) -> int:
    return EVERY_RUN_AT_ONCE if str(value).strip() == "-1" else value


def header_table(value: Any) -> Mapping[str, str]:
    """Return the headers of lines like "Name: Value". Of equal names, the last one counts."""
    lines = [value] if isinstance(value, str) else value
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise refuse('must be an array of lines like "Name: Value"')
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if not colon or not name.strip():
            raise refuse('must be lines like "Name: Value"')
        headers[name.strip()] = text.strip()
    return headers


def column_names(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def negated(value: Any) -> Any:
    return not value if isinstance(value, bool) else value


# -- ids of verifiers environments -------------------------------------------------------------------------
# A name, "owner/name" or "owner/name@version"; the module is called like the name, with `_` for `-`.
# Source: verifiers 0.1.14, `utils/env_utils.py` and `scripts/eval.py`.

_ANY_VERSION = "latest"
_MOST_ID_CHARS = 200
_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)*(?P<name>[A-Za-z_][\w-]*)(?:@(?P<version>\S+))?", re.ASCII)


class EnvironmentId(NamedTuple):
    """The name in an id, the module of that name, and the version that the id demands, None if it takes any."""

    name: str
    module: str
    version: str | None


class Unfound(Exception):
    """There is no such module, or it is not the one that the id names."""


def id_of(env_id: str) -> EnvironmentId:
    """Return the parts of an id. Raises `Unfound` if it is none.

    >>> id_of("primeintellect/math-python@0.1.2")
    EnvironmentId(name='math-python', module='math_python', version='0.1.2')
    """
    match = _ID.fullmatch(env_id) if len(env_id) <= _MOST_ID_CHARS else None
    if match is None:
        raise Unfound(f'must be like "gsm8k", "owner/name" or "owner/name@version", got {toml(env_id)}')
    version = match["version"]
    return EnvironmentId(match["name"], match["name"].replace("-", "_"), None if version == _ANY_VERSION else version)


def name_of(env_id: str | None) -> str:
    """Return the name of an eval of an environment, "" for what is no id.

    >>> name_of("owner/math-python@0.1.2"), name_of("../x")
    ('math-python', '')
    """
    try:
        return id_of(env_id or "").name
    except Unfound:
        return ""
