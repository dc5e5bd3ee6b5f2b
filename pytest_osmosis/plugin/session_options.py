"""The options of a session, and its overrides of the config: from the command line, variables and pytest's ini.

`PYTEST_OSMOSIS_<OPTION>` sets an option that takes a value. `PYTEST_OSMOSIS_SET` sets any keys, one `table.key=value`
per line, and `PYTEST_OSMOSIS_GATE` holds gates, one per line.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest

from pytest_osmosis import seams
from pytest_osmosis.config import Override, SecretsSource
from pytest_osmosis.config.eval_kinds import AT_LEAST_0
from pytest_osmosis.config.kinds import (
    Unfit,
    ValueKind,
    faults_of,
    integer,
    integer_or,
    refuse,
    toml,
    typed_json,
    typed_toml,
)
from pytest_osmosis.config.named_keys import (
    HEADER_LINES,
    OPTIONS,
    PRIME_KEYS,
    PrimeKey,
    gate_settings,
    sampling_keys,
    setting,
)
from pytest_osmosis.config.secrets import MOST_BYTES
from pytest_osmosis.config.tables import EVAL_TABLES
from pytest_osmosis.errors import Problem
from pytest_osmosis.evals import InFlightLimit
from pytest_osmosis.evals.resume import ResumeRequest, why_no_name
from pytest_osmosis.files.reading import read_stdin
from pytest_osmosis.plugin import options
from pytest_osmosis.plugin.items import ungrouped
from pytest_osmosis.plugin.options import Option, plans_setup
from pytest_osmosis.record.plan import Shard
from pytest_osmosis.results.publish import why_not_writable
from pytest_osmosis.text.names import suggestion

if TYPE_CHECKING:
    from pytest_osmosis.processes.child import PrestartedHost


SMOKE_ROWS = 5


class SessionOptions(NamedTuple):
    """The options of a session, apart from the evals that it names.

    `resume` is the request to resume a run, or to give the new one a name; None without either.
    `smoke` is the number of rows of a smoke test, None without one. `stop_when_decided` is the option or variable that
    requested it, None without one. `shard` is the only one of the evals' shards that runs. `update_baseline` writes
    results over the baseline. `show_failures` is how many failed runs pytest shows, None for all. `replay` is
    the option or variable that lets no model be asked, None without one. `resume_from` holds files of `prime eval` to
    resume.
    """

    overrides: tuple[Override, ...]
    secrets: SecretsSource
    output: str | None
    markdown: Path | None
    html: Path | None
    probe: bool
    max_in_flight: InFlightLimit | None
    confirm_above: float | None
    stop_when_decided: str | None
    dry_run: bool
    not_measured_exit: int
    inline: bool
    resume: ResumeRequest | None
    smoke: int | None
    shard: Shard | None
    update_baseline: bool
    rescore: bool
    overwrite: bool
    show_failures: int | None
    replay: str | None
    resume_from: Path | None


def read(config: pytest.Config, environ: Mapping[str, str]) -> SessionOptions:
    """Return the options of this command. Raises `pytest.UsageError` with all problems."""
    problems: list[Problem] = []
    overrides = read_overrides(config, environ, problems)
    of_command = (*options.OF_SESSION, options.FROM, options.SOURCE)
    values = {option.name: _value(config, environ, option) for option in of_command}
    given = {
        option.name: flag(values[option.name], problems) if option.metavar is None else bool(values[option.name].text)
        for option in of_command
    } | {"source": values["source"].text == "model"}
    problems += _conflicts(given, values)
    max_in_flight: int | None = _number(values["max-in-flight"], integer(1), problems)
    usd: float | None = _number(values["confirm-above"], AT_LEAST_0, problems)
    smoke_rows: int | None = _number(values["smoke-rows"], integer(1), problems)
    replay = values["replay"].origin if given["replay"] and _replays(values["replay"], overrides, problems) else None
    if given["update-baseline"] and replay is not None:
        text = f"contradicts {replay}: a baseline is measured, not repeated from recorded answers; {_LEAVE}"
        problems.append(Problem(values["update-baseline"].origin, text))
    run_name = values["run"].text
    if run_name is not None and (why := why_no_name(run_name)) is not None:
        problems.append(Problem(values["run"].origin, why))
    shard = _shard(values["shard"], problems)
    markdown, html = (_file(config, values[name], problems) for name in ("markdown", "html"))
    most_failures = _number(values["show-failures"], integer_or("all", "all", integer(0)), problems)
    if most_failures is None:
        most_failures = "all" if config.get_verbosity() > 1 else 10
    if problems:
        raise pytest.UsageError(*map(str, problems))
    secrets_file = values["secrets-file"].text
    status = config.getini(options.NOT_MEASURED_EXIT)
    if not status.isdecimal() or not 0 < int(status) < 256:
        raise pytest.UsageError(f"{options.NOT_MEASURED_EXIT}: must be an exit status from 1 to 255, got {status!r}")
    inline = values["inline"].origin if given["inline"] else None
    if config.getoption("trace", False):
        inline = inline or "--trace"
    if inline is not None and config.getoption("dist", "no") != "no":
        raise pytest.UsageError(f"{inline}: user code runs in pytest's own process, so xdist cannot be used; add -n0")

    def read_secrets() -> str:
        """Return the secrets on standard input. Raises `FileFault`."""
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.suspend_global_capture(in_=True)
        try:
            return read_stdin(MOST_BYTES)
        finally:
            capture.resume_global_capture()

    return SessionOptions(
        overrides=tuple(overrides),
        secrets=SecretsSource("-" if secrets_file == "-" else _path(config, secrets_file), read_secrets),
        output=values["output"].text,
        markdown=markdown,
        html=html,
        probe=not given["no-probe"],
        max_in_flight=None if max_in_flight is None else InFlightLimit(max_in_flight, values["max-in-flight"].origin),
        confirm_above=usd,
        stop_when_decided=values["stop-when-decided"].origin if given["stop-when-decided"] else None,
        dry_run=given["dry-run"] or plans_setup(config),
        not_measured_exit=int(status),
        inline=inline is not None,
        resume=ResumeRequest(run_name, given["resume"], given["retry-failed"], given["fresh"])
        if given["resume"] or run_name is not None
        else None,
        smoke=(smoke_rows or SMOKE_ROWS) if given["smoke"] else None,
        shard=shard,
        update_baseline=given["update-baseline"],
        rescore=given["rescore"],
        overwrite=given["overwrite"],
        show_failures=None if most_failures == "all" else most_failures,
        replay=replay,
        resume_from=_path(config, values["resume-from"].text),
    )


def rerun_command(config: pytest.Config, nodeid: str, *more: str) -> str:
    """Return the command that repeats a test, for the folder in which pytest was called."""
    file, _, name = ungrouped(nodeid).partition("::")
    path = os.path.relpath(config.rootpath / file, config.invocation_params.dir)
    return shlex.join(["pytest", f"{path}::{name}", *_typed(config), *more])


def _typed(config: pytest.Config) -> list[str]:
    """Return our options as they were typed, without those that hold once."""
    words = []
    for option in (*options.OF_KEYS, options.SET, *options.OF_SESSION):
        value = config.getoption(option.dest)
        if "once" in option.marks or not value:
            continue
        if option.metavar is None:
            words.append(option.flag)
        else:
            words += [f"{option.flag}={text}" for text in (value if option.repeatable else [value])]
    return words


def workers(config: pytest.Config) -> int:
    """Return the number of xdist workers, 1 without xdist."""
    n = config.getoption("numprocesses", None)
    return n if isinstance(n, int) and n > 0 else 1


def pythonpath(config: pytest.Config) -> list[str]:
    """Return the import roots of the ini key `pythonpath`, absolute."""
    return [str(config.rootpath / folder) for folder in config.getini("pythonpath")]


def _value(config: pytest.Config, environ: Mapping[str, str], option: Option) -> OptionValue:
    if value := config.getoption(option.dest):
        return OptionValue(str(value), option.flag)
    if option.variable in VARIABLES and (value := environ.get(option.variable)):
        return OptionValue(value, option.variable)
    if "ini" in option.marks and (value := config.getini(option.dest)):
        return OptionValue(value, f"ini {option.dest}")
    return OptionValue(None, option.flag)


def _number(value: OptionValue, kind: ValueKind, problems: list[Problem]) -> Any:
    """Return the number that an option holds, None if it was not set or is not of this kind."""
    if value.text is None:
        return None
    typed = kind.typed(value.text)
    faults = list(faults_of(kind, typed))
    problems += [Problem(value.origin, f"{fault.text}, got {toml(value.text)}") for fault in faults]
    return None if faults else typed


def _path(config: pytest.Config, text: str | None) -> Path | None:
    return None if text is None else config.invocation_params.dir / text


def _file(config: pytest.Config, value: OptionValue, problems: list[Problem]) -> Path | None:
    """Return the path of a file that the session writes. It must be writable before anything is paid for."""
    path = _path(config, value.text)
    reason = None if path is None else why_not_writable(path)
    if reason is not None:
        problems.append(Problem(f"{value.origin}={value.text}", f"cannot be written: {reason}"))
    return path


_LEAVE = "leave out one of them"
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "rescore": ("from",),
    "smoke-rows": ("smoke",),
    "retry-failed": ("resume", "run"),
    "fresh": ("run",),
}
"""Options, and those of which each needs one."""
_EXCLUDES: Mapping[str, tuple[str, ...]] = {
    "smoke": ("shard",),
    "stop-when-decided": ("shard",),
    "update-baseline": ("shard", "smoke", "stop-when-decided"),
    "shard": ("source",),
    "fresh": ("resume", "retry-failed"),
    "resume": ("from",),
    "run": ("from",),
    "resume-from": ("resume", "fresh", "from", "smoke", "shard"),
}
"""Options, and those that each excludes."""


def _conflicts(given: Mapping[str, bool], values: Mapping[str, OptionValue]) -> Iterator[Problem]:
    for name, others in _NEEDS.items():
        if given[name] and not any(given[other] for other in others):
            yield Problem(values[name].origin, f"needs {' or '.join(options.BY_NAME[other].flag for other in others)}")
    for name, others in _EXCLUDES.items():
        contradicted = [values[other].shown for other in others if given[other]] if given[name] else []
        yield from (Problem(values[name].origin, f"contradicts {other}; {_LEAVE}") for other in contradicted)


def _shard(value: OptionValue, problems: list[Problem]) -> Shard | None:
    if value.text is None:
        return None
    parts = _SHARD.fullmatch(value.text.strip())
    shard = None if parts is None else Shard(int(parts[1]), int(parts[2]))
    if shard is None or not 1 <= shard.index <= shard.of <= MOST_SHARDS:
        text = f"must be K/N, the K-th of N shards, like 1/8 to 8/8 (N at most {MOST_SHARDS}), got {toml(value.text)}"
        problems.append(Problem(value.origin, text))
    return shard


_SHARD = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")
MOST_SHARDS = 10_000


def _replays(replay: OptionValue, overrides: Iterable[Override], problems: list[Problem]) -> bool:
    """Return True if recorded answers are given again, False if the command line records although a variable replays.

    Both on one level contradict each other.
    """
    level = "command" if replay.origin.startswith("--") else "environment"
    recording = {each.level: each for each in overrides if (each.table, each.key) == _RECORD and each.value != "off"}
    if level == "environment" and "command" in recording:
        return False
    if level in recording:
        text = "an answer is recorded, or comes from the cassette; keep one of them"
        problems.append(Problem(replay.origin, f"contradicts {recording[level].origin}: {text}"))
    return True


_RECORD = OPTIONS["record"]


_PREFIX = "PYTEST_OSMOSIS_"
_SET = options.SET.variable
PRIME_OPTIONS: Mapping[str, PrimeKey] = {key.option: key for key in PRIME_KEYS.values()}
"""The settings of `prime eval` by the names of our options. `sampling-args` is none, because it sets several keys."""


def key_of(option: Option) -> tuple[str, str] | None:
    """Return the table and the key of the config that an option sets; None if it sets none, or several."""
    prime = PRIME_OPTIONS.get(option.name)
    return OPTIONS.get(option.dest.removeprefix("osmosis_")) or (None if prime is None else (prime.table, prime.key))


def help_of(option: Option) -> str:
    """Return the help of an option: its own, or that of its key."""
    if option.help or (home := key_of(option)) is None:
        return option.help
    table, name = home
    (key,) = (field for field in EVAL_TABLES[table].fields if field.name == name)
    default = f"; default: {key.default}" if key.default is not None and key.default is not False else ""
    return f"{key.help.removesuffix('.')} ([{table}] {name}{default}{'; repeatable' if option.repeatable else ''})."


_LINES = tuple(name.replace("_", "-") for name in HEADER_LINES)
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
    ini = _valid((setting(text, origin, "ini") for text in config.getini(options.INI_SET)), problems)
    return [*ini, *_environment(environ, problems), *_command(config, problems)]


def _command(config: pytest.Config, problems: list[Problem]) -> Iterator[Override]:
    settings = (setting(text, options.SET.flag) for text in config.getoption(options.SET.dest))
    yield from _valid(settings, problems)
    yield from _valid(gate_settings(config.getoption(options.GATE.dest), options.GATE.flag), problems)
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
    if option.metavar == "JSON":  # or an inline table of TOML
        table = typed_toml(value)
        value = table if isinstance(table, dict) else _json_object(value)
    return PRIME_OPTIONS[option.name].settings(value)


def _json_object(text: str) -> dict[str, Any]:
    value = typed_json(text)
    if not isinstance(value, dict):
        raise refuse("must be a JSON object")
    return value


def _contradictions(overrides: Iterable[Override]) -> Iterator[Problem]:
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
        lines = [*filter(str.strip, value.splitlines())]
        if name == _SET:
            yield from _valid((setting(line, name, "environment") for line in lines), problems)
        elif name == options.GATE.variable:
            yield from _valid(gate_settings(lines, name, "environment"), problems)
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


def _valid(settings: Iterable[Override | Problem], problems: list[Problem]) -> Iterator[Override]:
    for each in settings:
        if isinstance(each, Problem):
            problems.append(each)
        else:
            yield each


ENVIRONMENTS: pytest.StashKey[seams.Environments | None] = pytest.StashKey()


def environments_of(config: pytest.Config, prestarted: PrestartedHost | None = None) -> seams.Environments | None:
    """Return the environments of a session, which closes them at its end."""
    if ENVIRONMENTS not in config.stash:
        from pytest_osmosis.plugin.terminal import say  # which imports what imports this module

        environments = seams.environments(
            pythonpath(config),
            lambda line: say(config, [line]),
            sdk_shim=options.stands_in(config),
            prestarted=prestarted,
        )
        config.stash[ENVIRONMENTS] = environments
        if environments is not None:
            config.add_cleanup(environments.close)
    return config.stash[ENVIRONMENTS]
