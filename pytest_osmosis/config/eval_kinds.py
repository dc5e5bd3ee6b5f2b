"""Kinds of values that only an eval config has: URLs, references to code, headers, prices and others."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any
from urllib.parse import urlsplit

from pytest_osmosis.config.kinds import (
    TEXT,
    Fault,
    Unfit,
    ValueKind,
    faults_of,
    integer,
    name,
    name_shown,
    number,
    record_of,
    refuse,
    string,
    table_of,
    toml,
    typed_array,
    typed_json,
    typed_toml,
)
from pytest_osmosis.config.tables import TokenPrices

RESERVED_ENV_PREFIX = "_OSMOSIS_"
RESERVED_BODY_KEYS = ("messages", "model", "tools", "stream", "n")


def folder_name() -> ValueKind:
    expects = "the name of one folder under rollouts/, not a path"
    return string(expects, lambda value: value.strip() not in ("", ".", "..") and not re.search(r"[/\\\0]", value))


def code_reference(attribute_text: str, *others: str) -> ValueKind:
    """A reference like "module:function", with `attribute_text` after the colon in messages, or one of `others`."""
    named = ", ".join(map(toml, others))
    expects = f'{named} or "module:{attribute_text}"' if others else f'"module:{attribute_text}"'

    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise refuse(f"must be {expects}")
        module, colon, attribute = value.rpartition(":" if ":" in value else ".")
        dotted = all(part.isidentifier() for part in f"{module}.{attribute}".split("."))
        if value in others or (colon == ":" and dotted):
            return value
        meant = f"; did you mean {toml(f'{module}:{attribute}')}?" if colon and dotted else ""
        raise refuse(f"must be {expects}, got {toml(value)}{meant}", got="")

    return ValueKind(expects, read, schema={"type": "string"})


def url() -> ValueKind:
    def fits(value: str) -> bool:
        try:
            parts = urlsplit(value)
            has_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            return False
        return has_server and value.isprintable() and " " not in value

    return string("an http:// or https:// URL with a host", fits)


def variable_name(got: Callable[[str], str] = name_shown) -> ValueKind:
    return name("[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable, not the key itself", got)


def _header_name() -> ValueKind:
    pattern = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
    return string("an HTTP header name", lambda value: bool(re.fullmatch(pattern, value)))


def headers() -> ValueKind:
    """HTTP headers. Names are checked, and values are never shown."""
    value = string(
        "a string without line breaks",
        lambda value: not re.search(r"[\r\n\0]", value),
        got=lambda _: "one with a line break or a NUL",
    )
    return table_of("a table of header names to strings", _header_name(), value)


def headers_from_state() -> ValueKind:
    """HTTP headers whose values come from the state of a rollout."""
    return table_of("a table of header names to keys of the state", _header_name(), TEXT)


def any_flag() -> ValueKind:
    def read(value: Any) -> bool:
        if not isinstance(value, bool):
            raise refuse("must be true or false")
        return value

    return ValueKind("true or false", read, typed_toml, {"type": "boolean"})


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

    schema = {"propertyNames": {"not": {"enum": list(reserved)}}} if reserved else {}
    return ValueKind(expects, read, _typed_json, {"type": "object", **schema})


def _typed_json(text: str) -> object:
    try:
        return typed_json(text)
    except Unfit:
        return typed_toml(text)


def stop() -> ValueKind:
    """One stop text or several, kept as a tuple."""
    expects = "a string or an array of strings, none of them empty"

    def read(value: Any) -> tuple[str, ...]:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
            raise refuse(f"must be {expects}")
        return tuple(items)

    text = {"type": "string", "minLength": 1}
    return ValueKind(expects, read, typed_array, {"anyOf": [text, {"type": "array", "items": text}]})


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
    return record_of(expects, {"tokens": integer(1), "cost_usd": ABOVE_0, "tool_calls": integer(1)}, ())


MOST_PRICE = 1_000_000.0
"""US dollars per million tokens: a dollar for each. What more would cost, no sum has to hold."""


def token_prices() -> ValueKind:
    """The prices of a model, kept as `TokenPrices`."""
    price = number(f" from 0 to {MOST_PRICE:,.0f}", minimum=0, maximum=MOST_PRICE)
    required = ("input", "output")
    names = tuple(field.name for field in fields(TokenPrices))
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
