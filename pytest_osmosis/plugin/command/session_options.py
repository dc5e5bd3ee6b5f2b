"""What a command, its environment and pytest's ini say of evals, read once into `SessionOptions`.

`PYTEST_OSMOSIS_<OPTION>` stands for an option that takes a value, `PYTEST_OSMOSIS_SET__<TABLE>__<KEY>` for a key of the
config whose names are bare and lower case ([env] variables keep their case), `PYTEST_OSMOSIS_SET` for any others, one
`table.key=value` a line, `PYTEST_OSMOSIS_GATE` for gates, one a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from pytest_osmosis.config import Override
from pytest_osmosis.config.conditions import gate_setting
from pytest_osmosis.config.kinds import faults_of, integer, number, toml, typed_integer
from pytest_osmosis.config.named_keys import OPTIONS, Setting, setting
from pytest_osmosis.errors import Problem
from pytest_osmosis.plugin.command import options
from pytest_osmosis.plugin.command.options import Option, plans_setup
from pytest_osmosis.text.suggest import closest

_PREFIX = "PYTEST_OSMOSIS_"
_SET = options.SET.variable
VARIABLES = {option.variable: option for option in (*options.NAMING[1:2], *options.OF_CONFIG, *options.OF_SESSION)}
_NAMES_ONE = "names an eval, which only the command itself can do, as it costs money"
_ASKS_MODELS = "asks models, which only the command itself can do, as it costs money"
SMOKE_ROWS = 5
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


class InFlightLimit(NamedTuple):
    """How many rollouts may be in flight, and where that was said."""

    n: int
    origin: str


class SessionOptions(NamedTuple):
    """What is said, beside which evals.

    `smoke` is how many rows a smoke test takes, None where none is asked for; `stop_when_decided` where that was said,
    None where it was not. `update_baseline` lets results become the baseline.
    """

    overrides: tuple[Override, ...]
    secrets_file: Path | Literal["-"] | None
    output: str | None
    markdown: Path | None
    probe: bool
    max_in_flight: InFlightLimit | None
    confirm_above: float | None
    stop_when_decided: str | None
    dry_run: bool
    not_measured_exit: int
    inline: bool
    smoke: int | None
    update_baseline: bool
    rescore: bool


def read(config: pytest.Config, environ: Mapping[str, str]) -> SessionOptions:
    """The options of this command. `pytest.UsageError` with all that cannot be one."""
    problems: list[Problem] = []
    overrides = [*_ini(config, problems), *_environment(environ, problems), *_command(config, problems)]
    session = {option.name: _value(config, environ, option) for option in options.OF_SESSION}
    cap = _cap(session["max-in-flight"], problems)
    no_probe, dry_run, inline = (_flag(session[name], problems) for name in ("no-probe", "dry-run", "inline"))
    decided = session["stop-when-decided"]
    stop_when_decided = decided.origin if _flag(decided, problems) else None
    rescore = _flag(session["rescore"], problems)
    if rescore and not config.getoption(options.FROM.dest):
        problems.append(
            Problem(session["rescore"].origin, f"says how stored rollouts are scored: add {options.FROM.flag}")
        )
    usd = _usd(session["confirm-above"], problems)
    smoke = _smoke(session["smoke"], session["smoke-rows"], overrides, problems)
    update_baseline = _update_baseline(session["update-baseline"], smoke, stop_when_decided, problems)
    if problems:
        raise pytest.UsageError(*map(str, problems))
    return SessionOptions(
        overrides=tuple(overrides),
        secrets_file=_path_or_stdin(config, session["secrets-file"].text),
        output=session["output"].text,
        markdown=_path(config, session["markdown"].text),
        probe=not no_probe,
        max_in_flight=cap,
        confirm_above=usd,
        stop_when_decided=stop_when_decided,
        dry_run=dry_run or plans_setup(config),
        not_measured_exit=_exit_status(config.getini(options.NOT_MEASURED_EXIT)),
        inline=_inline(config, session["inline"].origin if inline else None),
        smoke=smoke,
        update_baseline=update_baseline,
        rescore=rescore,
    )


def typed(config: pytest.Config) -> list[str]:
    """Our options as they were typed, for commands that run something again."""
    words = []
    for option in (options.NAMING[1], *options.OF_CONFIG, options.SET, *options.OF_SESSION):
        value = config.getoption(option.dest)
        if option.name in _OF_WHOLE_RUNS or not value:
            continue
        if option.metavar is None:
            words.append(option.flag)
        else:
            words += [f"{option.flag}={one}" for one in (value if option.repeatable else [value])]
    return words


_OF_WHOLE_RUNS = ("output", "markdown", "inline", "stop-when-decided", "update-baseline")
"""SessionOptions that mean nothing, or the wrong thing, where a single run is run again."""


def read_stdin(config: pytest.Config) -> str:
    """All that stands on standard input, which pytest's capture keeps from everyone else."""
    import sys

    capture = config.pluginmanager.getplugin("capturemanager")
    capture.suspend_global_capture(in_=True)
    try:
        return sys.stdin.read()
    finally:
        capture.resume_global_capture()


class _OptionValue(NamedTuple):
    """The value of an option of the session, and where it was said."""

    text: str | None
    origin: str


def _value(config: pytest.Config, environ: Mapping[str, str], option: Option) -> _OptionValue:
    typed = config.getoption(option.dest)
    if typed:
        return _OptionValue(str(typed), option.flag)
    if environ.get(option.variable):
        return _OptionValue(environ[option.variable], option.variable)
    if option.name in options.INI_OF_SESSION and config.getini(option.dest):
        return _OptionValue(config.getini(option.dest), f"ini {option.dest}")
    return _OptionValue(None, option.flag)


def _command(config: pytest.Config, problems: list[Problem]) -> Iterator[Override]:
    for text in config.getoption(options.SET.dest):
        yield from _set(setting(text, options.SET.flag), options.SET.flag, "command", problems)
    for text in config.getoption(options.GATE.dest):
        yield from _set(gate_setting(text, options.GATE.flag), options.GATE.flag, "command", problems)
    for option in (options.NAMING[1], *options.OF_CONFIG):
        value = config.getoption(option.dest)
        if value not in (None, []):
            yield Override(*OPTIONS[option.dest.removeprefix("osmosis_")], value, option.flag)


def _environment(environ: Mapping[str, str], problems: list[Problem]) -> Iterator[Override]:
    for name, value in sorted(environ.items()):
        if not name.startswith(_PREFIX) or not value:
            continue
        if name == _SET:
            for line in filter(str.strip, value.splitlines()):
                yield from _set(setting(line, name), name, "environment", problems)
        elif name == options.GATE.variable:
            for line in filter(str.strip, value.splitlines()):
                yield from _set(gate_setting(line, name), name, "environment", problems)
        elif name.startswith(f"{_SET}__"):
            yield from _set(_named(name, value), "", "environment", problems)
        elif name in VARIABLES:
            yield from _of_variable(VARIABLES[name], value)
        elif name in (options.NAMING[0].variable, options.NAMING[2].variable, options.FROM.variable):
            problems.append(Problem(name, f"{_NAMES_ONE}; give {options.NAMING[0].flag}=PATH"))
        elif name == options.SOURCE.variable:
            problems.append(Problem(name, f"{_ASKS_MODELS}; give {options.SOURCE.flag}=model"))
        else:
            close = closest(name, [*VARIABLES, _SET, options.GATE.variable])
            problems.append(Problem(name, f"unknown variable{f', did you mean {close}?' if close else ''}"))


def _of_variable(option: Option, value: str) -> Iterator[Override]:
    place = OPTIONS.get(option.dest.removeprefix("osmosis_"))
    if place is not None:
        several = value.replace(",", " ").split() if option.repeatable else value
        yield Override(*place, several, option.variable, level="environment")


def _named(name: str, value: str) -> Setting | Problem:
    """PYTEST_OSMOSIS_SET__TABLE__KEY, and keys further in."""
    keys = name.removeprefix(f"{_SET}__").split("__")
    if len(keys) < 2 or not all(keys):
        return Problem(name, f"must be {_SET}__TABLE__KEY")
    table, key, *below = keys
    in_env = table.lower() == "env"
    return Setting(table.lower(), key if in_env else key.lower(), tuple(map(str.lower, below)), value)


def _ini(config: pytest.Config, problems: list[Problem]) -> Iterator[Override]:
    for text in config.getini(options.INI_SET):
        yield from _set(setting(text, f"ini {options.INI_SET}"), f"ini {options.INI_SET}", "ini", problems)


def _set(
    said: Setting | Problem,
    where: str,
    level: Literal["command", "environment", "ini"],
    problems: list[Problem],
) -> Iterator[Override]:
    if isinstance(said, Problem):
        problems.append(said)
        return
    origin = (
        f"{where} {said.path}" if where else "__".join([_SET, *map(str.upper, (said.table, said.key, *said.below))])
    )
    yield Override(said.table, said.key, said.value, origin, said.below, as_toml=True, level=level)


def _cap(said: _OptionValue, problems: list[Problem]) -> InFlightLimit | None:
    value = _positive(said, problems)
    return None if value is None else InFlightLimit(value, said.origin)


def _positive(said: _OptionValue, problems: list[Problem]) -> int | None:
    if said.text is None:
        return None
    value = typed_integer(said.text)
    problems += [Problem(said.origin, f"{fault.text}, got {toml(said.text)}") for fault in faults_of(integer(1), value)]
    return value if isinstance(value, int) else None


def _smoke(
    smoke: _OptionValue, rows: _OptionValue, overrides: Iterable[Override], problems: list[Problem]
) -> int | None:
    """How many rows a smoke test takes. What says otherwise contradicts it, unless a command goes before it."""
    asked, n_rows = _flag(smoke, problems), _positive(rows, problems)
    if not asked:
        if rows.text is not None:
            problems.append(Problem(rows.origin, f"says how many rows a smoke test takes: add {options.SMOKE.flag}"))
        return None
    levels = ("command",) if smoke.origin == options.SMOKE.flag else ("command", "environment")
    for one in overrides:
        fix = _INSTEAD_OF.get((one.table, one.key))
        if fix is not None and one.level in levels:
            text = f"contradicts {smoke.origin}, which makes one run of each of the first rows; {fix}"
            problems.append(Problem(one.origin, text))
    return SMOKE_ROWS if n_rows is None else n_rows


def _update_baseline(said: _OptionValue, smoke: int | None, decided: str | None, problems: list[Problem]) -> bool:
    """Whether results become the baseline, which nothing but the command says; a part of an eval cannot become it."""
    if not _flag(said, problems):
        return False
    if said.origin != options.UPDATE_BASELINE.flag:
        fix = f"give {options.UPDATE_BASELINE.flag} in the command"
        problems.append(
            Problem(said.origin, f"a baseline is never written but where the command itself says so; {fix}")
        )
    for other in (options.SMOKE.flag if smoke is not None else None, decided):
        if other is not None:
            problems.append(
                Problem(said.origin, f"contradicts {other}: a baseline is a whole eval; leave out one of them")
            )
    return True


_INSTEAD_OF = {
    OPTIONS["n"]: "leave out one of them",
    OPTIONS["limit"]: "leave out one of them, or say how many rows with --osmosis-smoke-rows=N",
}
"""What to do in a smoke test about keys of the config that would say which runs are made."""


def _usd(said: _OptionValue, problems: list[Problem]) -> float | None:
    if said.text is None:
        return None
    kind = number(" of at least 0", lambda value: value >= 0)
    value = kind.typed(said.text)
    problems += [Problem(said.origin, f"{fault.text}, got {toml(said.text)}") for fault in faults_of(kind, value)]
    return value if isinstance(value, float) else None


def _flag(said: _OptionValue, problems: list[Problem]) -> bool:
    text = (said.text or "").lower()
    if text not in (*_TRUE, *_FALSE):
        problems.append(Problem(said.origin, f"must be 1 or 0, got {toml(said.text)}"))
    return text in _TRUE


def _path_or_stdin(config: pytest.Config, text: str | None) -> Path | Literal["-"] | None:
    return "-" if text == "-" else _path(config, text)


def _path(config: pytest.Config, text: str | None) -> Path | None:
    return None if text is None else config.invocation_params.dir / text


def workers(config: pytest.Config) -> int:
    """How many processes xdist was asked for, 1 where it was not."""
    asked = config.getoption("numprocesses", None)
    return asked if isinstance(asked, int) and asked > 0 else 1


def pythonpath(config: pytest.Config) -> list[str]:
    """The import roots of the ini key `pythonpath`, absolute."""
    return [str(config.rootpath / folder) for folder in config.getini("pythonpath")]


def _inline(config: pytest.Config, origin: str | None) -> bool:
    """Whether user code runs in this process. `pytest.UsageError` where there are workers."""
    said = origin or ("--trace" if config.getoption("trace") else None)
    if said is not None and config.getoption("dist", "no") != "no":
        raise pytest.UsageError(f"{said}: user code runs in pytest's own process, so there can be no workers: use -n0")
    return said is not None


def _exit_status(value: str) -> int:
    if not value.isdecimal() or not 0 < int(value) < 256:
        raise pytest.UsageError(f"{options.NOT_MEASURED_EXIT}: must be an exit status from 1 to 255, got {value!r}")
    return int(value)
