"""The values of `[gate]` and `[limits]`: conditions on the pass rate, error bounds as count or share."""

from __future__ import annotations

import re
from typing import Any

from pytest_osmosis.config.fields import NOT_SUPPORTED, closest
from pytest_osmosis.config.kinds import (
    Fault,
    Kind,
    Unfit,
    faults_of,
    number,
    refuse,
    toml,
    typed_integer,
    typed_toml,
)
from pytest_osmosis.config.tables import GateRule

CONDITION_EXPECTED = '">= X" or {min = X, rule = "point"} with X between 0 and 1, like ">= 0.7"'
_CONDITION = re.compile(r"(>=|<=|==|!=|[=<>])?\s*([^<>=!\s]+)")
_RATIO = number(" between 0 and 1", lambda value: 0 <= value <= 1, minimum=0, maximum=1)
_WRITTEN_RATIO = r"(0*\.[0-9]+|0+(\.[0-9]*)?|0*1(\.0*)?|[0-9](\.[0-9]*)?[eE]-0*[1-9][0-9]*)"
_LATER_RULES = ("lower", "upper")


def pass_rate() -> Kind:
    """A condition on the pass rate, kept as a `GateRule`."""

    def read(value: Any) -> GateRule:
        if isinstance(value, dict):
            return _from_table(value)
        if isinstance(value, str):
            return GateRule("pass_rate", _minimum(value))
        raise refuse(f"must be {CONDITION_EXPECTED}")

    written = {"type": "string", "pattern": rf"^\s*>=\s*{_WRITTEN_RATIO}\s*$"}
    table = {
        "type": "object",
        "properties": {"min": _RATIO.schema, "rule": {"const": "point"}},
        "required": ["min"],
        "additionalProperties": False,
    }
    return Kind(CONDITION_EXPECTED, read, _typed_condition, {"anyOf": [written, table]})


def _typed_condition(text: str) -> object:
    return typed_toml(text) if text.lstrip().startswith("{") else text


def _minimum(text: str) -> float:
    found = _CONDITION.fullmatch(text.strip())
    if found is None:
        raise refuse(f"must be {CONDITION_EXPECTED}")
    operator, bound = found.groups()
    if operator != ">=":
        wrong = (
            f'the operator "{operator}" is not possible, only ">=" is' if operator else 'the operator ">=" is missing'
        )
        raise refuse(f"must be {CONDITION_EXPECTED}; {wrong}")
    try:
        return float(_RATIO.read(float(bound)))
    except (ValueError, Unfit):
        hint = "; a share is written as 0.7, not 70%" if bound.endswith("%") else ""
        raise refuse(f"must be {CONDITION_EXPECTED}{hint}") from None


def _from_table(value: dict[str, Any]) -> GateRule:
    faults = [fault for key, one in value.items() for fault in _entry_faults(key, one)]
    if "min" not in value:
        faults.append(Fault("min is missing; must be a number between 0 and 1"))
    if faults:
        raise Unfit(faults)
    return GateRule("pass_rate", _RATIO.read(value["min"]))


def _entry_faults(key: str, value: object) -> list[Fault]:
    if key == "min":
        return [Fault(fault.text, ("min",), fault.got) for fault in faults_of(_RATIO, value)]
    if key == "rule":
        return _rule_faults(value)
    close = closest(key, ("min", "rule"))
    meant = f', did you mean "{close}"?' if close else ""
    return [Fault(f"unknown key{meant} (valid: min, rule)", (key,), "")]


def _rule_faults(value: object) -> list[Fault]:
    if value == "point":
        return []
    if value in _LATER_RULES:
        return [Fault(f'{toml(value)} is {NOT_SUPPORTED} (valid: "point")', ("rule",), "")]
    return [Fault('must be "point"', ("rule",), toml(value))]


ERRORS_EXPECTED = 'a count of runs (an integer of at least 0) or a share of them like "5%"'


def error_bound() -> Kind:
    """How many runs may stay unmeasured: an int is a count, a float a share of the runs (0..1)."""

    def read(value: Any) -> int | float:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        share = _share(value) if isinstance(value, str) else None
        if share is None:
            raise refuse(f"must be {ERRORS_EXPECTED}")
        return share

    share = {"type": "string", "pattern": r"^\s*0*(100(\.0+)?|[0-9]{1,2}(\.[0-9]+)?)\s*%\s*$"}
    return Kind(ERRORS_EXPECTED, read, typed_integer, {"anyOf": [{"type": "integer", "minimum": 0}, share]})


def _share(text: str) -> float | None:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*%", text.strip())
    share = float(found.group(1)) / 100 if found else None
    return share if share is not None and share <= 1 else None
