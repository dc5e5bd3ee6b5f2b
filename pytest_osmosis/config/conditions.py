"""The values of `[gate]` and `[limits] max_errors`: conditions on the whole eval, and bounds as a count or a share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

from pytest_osmosis.config.kinds import (
    MOST,
    Fault,
    Unfit,
    ValueKind,
    choice,
    faults_of,
    number,
    record_of,
    refuse,
    toml,
    typed_integer,
    typed_toml,
)
from pytest_osmosis.config.named_keys import Setting
from pytest_osmosis.config.tables import GateRule, Metric, Rule
from pytest_osmosis.errors import Problem

RULES = ("point", "lower", "upper")
METRICS = "pass_rate, mean, pass_at_3, pass_hat_3"
LOSS: Metric = "max_regression"
FUNCTION = re.compile(r"reward|rubric|.*:.*", re.DOTALL)  # keys of [gate] that name functions
PASS_AT = re.compile(r"pass_at_([1-9][0-9]{0,5})")
PASS_HAT = re.compile(r"pass_hat_([1-9][0-9]{0,5})")
_CONDITION = re.compile(r"(>=|<=|==|!=|[=<>])?\s*([^<>=!\s]+)")
_RATIO = number(" between 0 and 1", minimum=0, maximum=1)


def condition(metric: str) -> ValueKind:
    """A condition on a metric ("pass_rate", "mean", "pass_at_3", ...), or an array of them, kept as `GateRule`s."""
    bound, text = (number(), "a finite number") if metric == "mean" else (_RATIO, "between 0 and 1")
    expects = f'">= X" or {{min = X, rule = "lower"}} with X {text}, like ">= 0.7"'
    table = record_of(expects, {"min": bound, "rule": choice(*RULES)}, required=("min",))

    def read_one(value: Any) -> GateRule:
        if isinstance(value, str):
            return _rule(metric, _minimum(bound, expects, value))
        fields = table.read(value)
        return _rule(metric, fields["min"], fields.get("rule", "point"))

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
                faults += [replace(fault, below=(key, *fault.below)) for fault in faults_of(condition(key), entry)]
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


def gate_setting(text: str, origin: str) -> Setting | Problem:
    """Parse a typed gate, or return the problem with it. `origin` is the place that a problem names.

    >>> gate_setting("rewards:f mean >= 0.5", "--osmosis-gate")
    Setting(table='gate', key='rewards:f', below=('mean',), value='>= 0.5')
    """
    match = re.fullmatch(r"\s*(?:(reward|rubric|\S*:\S*)\s+)?(\w+)\s*([^\s\w].*)", text, re.DOTALL)
    if match is None or not (is_metric(match[2]) or (match[2] == LOSS and not match[1])):
        expects = 'must be a condition like "pass_rate >= 0.7" or "rewards:exact_match mean >= 0.5"'
        return Problem(origin, f"{expects} (metrics: {METRICS}, {LOSS}), got {toml(text)}")
    function, metric, bound = match.groups()
    return Setting("gate", function or metric, (metric,) if function else (), bound.strip())


def gate_settings(texts: Iterable[str], origin: str) -> Iterator[Setting | Problem]:
    """Parse the gates of one level. Several conditions on one metric are one setting; all of them are decided."""
    together: dict[tuple[str, ...], list[Setting]] = {}
    for text in dict.fromkeys(texts):
        parsed = gate_setting(text, origin)
        if isinstance(parsed, Problem):
            yield parsed
        else:
            together.setdefault((parsed.key, *parsed.below), []).append(parsed)
    for settings in together.values():
        first, values = settings[0], [str(setting.value) for setting in settings]
        if first.key == LOSS and len(values) > 1:
            yield Problem(origin, f"{LOSS} is given {len(values)} times ({', '.join(values)}); keep one")
        else:
            yield first if len(values) == 1 else first._replace(value=list(map(typed_condition, values)))


def typed_condition(text: str) -> object:
    """Return a typed TOML table or array, or any other text unchanged."""
    return typed_toml(text) if text.lstrip().startswith(("{", "[")) else text


def _rule(metric: str, minimum: float, rule: str = "point") -> GateRule:
    for name, pattern in (("pass_at", PASS_AT), ("pass_hat", PASS_HAT)):
        if match := pattern.fullmatch(metric):
            return GateRule(cast("Metric", name), minimum, cast("Rule", rule), k=int(match[1]))
    return GateRule(cast("Metric", metric), minimum, cast("Rule", rule))


def _minimum(bound: ValueKind, expects: str, text: str) -> float:
    match = _CONDITION.fullmatch(text.strip())
    if match is None:
        raise refuse(f"must be {expects}")
    operator, number_text = match.groups()
    if operator != ">=":
        wrong = 'only the operator ">=" is supported' if operator else 'the operator ">=" is missing'
        raise refuse(f"must be {expects}; {wrong}")
    try:
        return float(bound.read(float(number_text)))
    except (ValueError, Unfit):
        hint = "; write a share as 0.7, not 70%" if number_text.endswith("%") else ""
        raise refuse(f"must be {expects}{hint}") from None


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
        share = _share(value) if isinstance(value, str) else None
        if share is None:
            raise refuse(f"must be {ERRORS_EXPECTED}")
        return share

    schema = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}
    return ValueKind(ERRORS_EXPECTED, read, typed_integer, schema)


def _share(text: str) -> float | None:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*%", text.strip())
    return float(match[1]) / 100 if match and float(match[1]) <= 100 else None
