"""Overrides of the config: by options, by environment variables and by pytest's ini.

`PYTEST_OSMOSIS_<OPTION>` sets an option that takes a value. `PYTEST_OSMOSIS_SET__<TABLE>__<KEY>` sets a key of the
config whose names are bare and lower case ([env] variables keep their case). `PYTEST_OSMOSIS_SET` sets any keys, one
`table.key=value` per line, and `PYTEST_OSMOSIS_GATE` holds gates, one per line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import pytest

from pytest_osmosis.config import Override
from pytest_osmosis.config.kinds import Unfit, refuse, toml, typed_json, typed_toml
from pytest_osmosis.config.named_keys import (
    OPTIONS,
    PRIME_KEYS,
    PrimeKey,
    Setting,
    gate_settings,
    sampling_keys,
    setting,
)
from pytest_osmosis.errors import Problem
from pytest_osmosis.plugin.command import options
from pytest_osmosis.plugin.command.options import Option
from pytest_osmosis.text.names import suggestion

_PREFIX = "PYTEST_OSMOSIS_"
_SET = options.SET.variable
PRIME_OPTIONS: Mapping[str, PrimeKey] = {key.option: key for key in PRIME_KEYS.values()}
"""The settings of `prime eval` by the names of our options. `sampling-args` is none, because it sets several keys."""
_LINES = ("header", "header-from-state")
_COMMAND_ONLY = {
    f"{_PREFIX}{name}": f"cannot {what}; pass {typed} on the command line"
    for what, typed, names in (
        ("name an eval (evals cost money)", "--osmosis-config=PATH", ("CONFIG", "ENV", "FROM")),
        ("turn on requests to models (they cost money)", "--osmosis-source=model", ("SOURCE",)),
        ("publish results", "--osmosis-save-to-hf-hub", ("SAVE_TO_HF_HUB",)),
        ("begin a run anew", "--osmosis-fresh", ("FRESH",)),
        ("update a baseline", "--osmosis-update-baseline", ("UPDATE_BASELINE",)),
    )
    for name in names
}
"""Variables that only an option of the command may stand for, and why."""
VARIABLES = {
    option.variable: option
    for option in (*options.OF_KEYS, *options.OF_SESSION)
    if option.variable not in _COMMAND_ONLY
}
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


class OptionValue(NamedTuple):
    """The value of an option as text, None if it was not set, and the option, variable or ini key that set it."""

    text: str | None
    origin: str

    @property
    def shown(self) -> str:
        return self.origin if (self.text or "").lower() in _TRUE else f"{self.origin}={self.text}"


def flag(value: OptionValue, problems: list[Problem]) -> bool:
    text = (value.text or "").lower()
    if text not in (*_TRUE, *_FALSE):
        problems.append(Problem(value.origin, f"must be 1 or 0, got {toml(value.text)}"))
    return text in _TRUE


def read_overrides(config: pytest.Config, environ: Mapping[str, str], problems: list[Problem]) -> list[Override]:
    origin = f"ini {options.INI_SET}"
    settings = [setting(text, origin) for text in config.getini(options.INI_SET)]
    ini = [override for parsed in settings for override in _set(parsed, origin, "ini", problems)]
    return [*ini, *_environment(environ, problems), *_command(config, problems)]


def _command(config: pytest.Config, problems: list[Problem]) -> Iterator[Override]:
    for text in config.getoption(options.SET.dest):
        yield from _set(setting(text, options.SET.flag), options.SET.flag, "command", problems)
    for gate in gate_settings(config.getoption(options.GATE.dest), options.GATE.flag):
        yield from _set(gate, options.GATE.flag, "command", problems)
    given = {option: config.getoption(option.dest) for option in options.OF_KEYS}
    of_options = [
        override
        for option, value in given.items()
        if value not in (None, [], False)
        for override in _of_option(option, value, option.flag, "command", problems)
    ]
    problems += _contradictions(of_options)
    yield from of_options


def _of_option(
    option: Option, value: Any, origin: str, level: Literal["command", "environment"], problems: list[Problem]
) -> Iterator[Override]:
    """Yield the overrides of an option, under its name here or in `prime eval`."""
    own = OPTIONS.get(option.dest.removeprefix("osmosis_"))
    if own is not None:
        yield Override(*own, value, origin, level=level)
        return
    try:
        settings = _prime_settings(option, value)
    except Unfit as error:
        shown = "" if option.name in _LINES else f", got {toml(value)}"  # headers can hold secrets
        problems.extend(Problem(origin, f"{fault.text}{shown}") for fault in error.faults)
        return
    for (table, key, *below), item in settings.items():
        yield Override(table, key, item, origin, tuple(below), level=level)


def _prime_settings(option: Option, value: Any) -> dict[tuple[str, ...], Any]:
    """Return the keys that an option of `prime eval` sets, and their values. Raises `Unfit`."""
    if option.name == "sampling-args":
        sampling = sampling_keys(_json_object(value))
        body = sampling.pop("extra_body", {})
        return {("sampling", key): item for key, item in sampling.items()} | {
            ("sampling", "extra_body", key): item for key, item in body.items()
        }
    return PRIME_OPTIONS[option.name].settings(_typed_table(value) if option.metavar == "JSON" else value)


def _typed_table(text: str) -> object:
    """Return a table typed as JSON, or as an inline table of TOML. Raises `Unfit` if it is neither."""
    value = typed_toml(text)
    return value if isinstance(value, dict) else _json_object(text)


def _json_object(text: str) -> dict[str, Any]:
    value = typed_json(text)
    if not isinstance(value, dict):
        raise refuse("must be a JSON object")
    return value


def _contradictions(overrides: Iterable[Override]) -> Iterator[Problem]:
    """Yield a problem for each key that options with different names set."""
    origins: dict[tuple[str, ...], list[str]] = {}
    for override in overrides:
        same = origins.setdefault((override.table, override.key, *override.below), [])
        if override.origin not in same:
            same.append(override.origin)
    for (table, *keys), (first, *others) in origins.items():
        if others:
            text = f"sets [{table}] {'.'.join(keys)}, as {first} does; leave out one of them"
            yield from (Problem(other, text) for other in others)


def _environment(environ: Mapping[str, str], problems: list[Problem]) -> Iterator[Override]:
    of_options: list[Override] = []
    for name, value in sorted(environ.items()):
        if not name.startswith(_PREFIX) or not value:
            continue
        if not value.strip():
            problems.append(Problem(name, options.BLANK))
            continue
        if name == _SET:
            for line in filter(str.strip, value.splitlines()):
                yield from _set(setting(line, name), name, "environment", problems)
        elif name == options.GATE.variable:
            for gate in gate_settings(filter(str.strip, value.splitlines()), name):
                yield from _set(gate, name, "environment", problems)
        elif name.startswith(f"{_SET}__"):
            yield from _set(_key_variable(name, value), "", "environment", problems)
        elif name in VARIABLES:
            of_options += _option_variable(VARIABLES[name], value, problems)
        elif name in _COMMAND_ONLY:
            if value.lower() not in _FALSE:
                problems.append(Problem(name, _COMMAND_ONLY[name]))
        else:
            hint = suggestion(name, [*VARIABLES, _SET, options.GATE.variable], "{}")
            problems.append(Problem(name, f"unknown variable{hint}"))
    problems += _contradictions(of_options)
    yield from of_options


def _option_variable(option: Option, value: str, problems: list[Problem]) -> Iterator[Override]:
    if option not in options.OF_KEYS:
        return
    typed: object = value
    if option.metavar is None:
        typed = flag(OptionValue(value, option.variable), problems)
    elif option.repeatable:
        lines = option.name in _LINES
        typed = list(filter(str.strip, value.splitlines())) if lines else value.replace(",", " ").split()
    yield from _of_option(option, typed, option.variable, "environment", problems)


def _key_variable(name: str, value: str) -> Setting | Problem:
    """Return the setting of `PYTEST_OSMOSIS_SET__TABLE__KEY`; more parts lead to keys inside the key."""
    keys = name.removeprefix(f"{_SET}__").split("__")
    if len(keys) < 2 or not all(keys):
        return Problem(name, f"must be {_SET}__TABLE__KEY")
    table, key, *below = keys
    in_env = table.lower() == "env"
    return Setting(table.lower(), key if in_env else key.lower(), tuple(map(str.lower, below)), value)


def _set(
    parsed: Setting | Problem,
    where: str,
    level: Literal["command", "environment", "ini"],
    problems: list[Problem],
) -> Iterator[Override]:
    if isinstance(parsed, Problem):
        problems.append(parsed)
        return
    variable = "__".join([_SET, *map(str.upper, (parsed.table, parsed.key, *parsed.below))])
    origin = f"{where} {parsed.path}" if where else variable
    yield Override(parsed.table, parsed.key, parsed.value, origin, parsed.below, as_toml=True, level=level)
