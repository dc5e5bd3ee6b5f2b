"""Overrides of the config: by options, by environment variables and by pytest's ini.

`PYTEST_OSMOSIS_<OPTION>` sets an option that takes a value. `PYTEST_OSMOSIS_SET__<TABLE>__<KEY>` sets a key of the
config whose names are bare and lower case ([env] variables keep their case). `PYTEST_OSMOSIS_SET` sets any keys, one
`table.key=value` per line, and `PYTEST_OSMOSIS_GATE` holds gates, one per line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import pytest

from pytest_osmosis.config import Override
from pytest_osmosis.config.conditions import gate_settings
from pytest_osmosis.config.named_keys import OPTIONS, Setting, setting
from pytest_osmosis.errors import Problem
from pytest_osmosis.plugin.command import options
from pytest_osmosis.plugin.command.options import Option
from pytest_osmosis.text.suggest import suggestion

_PREFIX = "PYTEST_OSMOSIS_"
_SET = options.SET.variable
VARIABLES = {option.variable: option for option in (*options.AGENTS, *options.OF_CONFIG, *options.OF_SESSION)}
_COMMAND_ONLY = {
    **dict.fromkeys(
        (options.NAMING[0].variable, options.NAMING[2].variable, options.FROM.variable),
        f"cannot name an eval (evals cost money); pass {options.NAMING[0].flag}=PATH on the command line",
    ),
    options.SOURCE.variable: f"cannot turn on requests to models (they cost money); pass {options.SOURCE.flag}=model "
    "on the command line",
}


def read_overrides(config: pytest.Config, environ: Mapping[str, str], problems: list[Problem]) -> list[Override]:
    origin = f"ini {options.INI_SET}"
    settings = [setting(text, origin) for text in config.getini(options.INI_SET)]
    ini = [override for parsed in settings for override in _set(parsed, origin, "ini", problems)]
    return [*ini, *_environment(environ, problems), *_command(config, problems)]


def _command(config: pytest.Config, problems: list[Problem]) -> Iterator[Override]:
    for text in config.getoption(options.SET.dest):
        yield from _set(setting(text, options.SET.flag), options.SET.flag, "command", problems)
    yield from _gates(config.getoption(options.GATE.dest), options.GATE.flag, "command", problems)
    for option in (*options.AGENTS, *options.OF_CONFIG):
        value = config.getoption(option.dest)
        if value not in (None, []):
            yield Override(*OPTIONS[option.dest.removeprefix("osmosis_")], value, option.flag)


def _environment(environ: Mapping[str, str], problems: list[Problem]) -> Iterator[Override]:
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
            yield from _gates(filter(str.strip, value.splitlines()), name, "environment", problems)
        elif name.startswith(f"{_SET}__"):
            yield from _set(_key_variable(name, value), "", "environment", problems)
        elif name in VARIABLES:
            yield from _option_variable(VARIABLES[name], value)
        elif name in _COMMAND_ONLY:
            problems.append(Problem(name, _COMMAND_ONLY[name]))
        else:
            hint = suggestion(name, [*VARIABLES, _SET, options.GATE.variable], "{}")
            problems.append(Problem(name, f"unknown variable{hint}"))


def _option_variable(option: Option, value: str) -> Iterator[Override]:
    key = OPTIONS.get(option.dest.removeprefix("osmosis_"))
    if key is not None:
        values = value.replace(",", " ").split() if option.repeatable else value
        yield Override(*key, values, option.variable, level="environment")


def _key_variable(name: str, value: str) -> Setting | Problem:
    """Return the setting of `PYTEST_OSMOSIS_SET__TABLE__KEY`; more parts lead to keys inside the key."""
    keys = name.removeprefix(f"{_SET}__").split("__")
    if len(keys) < 2 or not all(keys):
        return Problem(name, f"must be {_SET}__TABLE__KEY")
    table, key, *below = keys
    in_env = table.lower() == "env"
    return Setting(table.lower(), key if in_env else key.lower(), tuple(map(str.lower, below)), value)


def _gates(
    texts: Iterable[str], origin: str, level: Literal["command", "environment"], problems: list[Problem]
) -> Iterator[Override]:
    for parsed in gate_settings(texts, origin):
        if isinstance(parsed, Problem):
            problems.append(parsed)
        else:
            gate, value = parsed
            where = f"{origin} {gate.path}"
            yield Override(gate.table, gate.key, value, where, gate.below, as_toml=True, level=level)


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
