"""Kinds of values for `[[scoring.checks]]`, made from the declarations of the kinds of checks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

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
from pytest_osmosis.config.eval_kinds import AT_LEAST_0, FLAG, json_table
from pytest_osmosis.config.kinds import (
    ANYTHING,
    Fault,
    Unfit,
    ValueKind,
    array_of,
    choice,
    faults_of,
    integer,
    matching,
    number,
    quoted_list,
    record_of,
    refuse,
    string,
    toml,
    typed_toml,
)
from pytest_osmosis.text.names import suggestion

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
