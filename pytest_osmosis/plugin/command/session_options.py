"""The options of a session, read from the command line, environment variables and pytest's ini."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from pytest_osmosis.config import Override, SecretsSource
from pytest_osmosis.config.eval_kinds import AT_LEAST_0
from pytest_osmosis.config.kinds import ValueKind, faults_of, integer, integer_or, toml
from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.config.secrets import MOST_BYTES
from pytest_osmosis.errors import Problem
from pytest_osmosis.evals import AnswerStore, InFlightLimit
from pytest_osmosis.evals.resume import ResumeRequest, why_no_name
from pytest_osmosis.files.reading import read_stdin
from pytest_osmosis.plugin.command import options
from pytest_osmosis.plugin.command.options import Option, plans_setup
from pytest_osmosis.plugin.command.overrides import VARIABLES, OptionValue, flag, read_overrides
from pytest_osmosis.record.plan import Shard
from pytest_osmosis.results.publish import why_not_writable

SMOKE_ROWS = 5
SHOW_FAILURES = 10


class AnswersOption(NamedTuple):
    """From where recorded answers are given again, and the option or variable that asked for it."""

    store: AnswerStore
    origin: str


class SessionOptions(NamedTuple):
    """The options of a session, apart from the evals that it names.

    `resume` is the request to resume a run, or to give the new one a name; None without either.
    `smoke` is the number of rows of a smoke test, None without one. `stop_when_decided` is the option or variable that
    requested it, None without one. `shard` is the only one of the evals' shards that runs. `update_baseline` writes
    results over the baseline. `show_failures` is how many failed runs pytest shows, None for all. Without `answers`,
    the config decides if recorded answers are given again. `resume_from` holds files of `prime eval` to resume.
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
    answers: AnswersOption | None
    resume_from: Path | None = None

    @property
    def answer_store(self) -> AnswerStore | None:
        return None if self.answers is None else self.answers.store


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
    problems += _needs(given, values)
    problems += _exclusions(given, values)
    max_in_flight: int | None = _number(values["max-in-flight"], integer(1), problems)
    usd: float | None = _number(values["confirm-above"], AT_LEAST_0, problems)
    smoke_rows: int | None = _number(values["smoke-rows"], integer(1), problems)
    if given["smoke"]:
        problems += _smoke_problems(values["smoke"].origin, overrides)
    answers = _answers(given, values, overrides, problems)
    if given["update-baseline"] and answers is not None:
        text = f"contradicts {answers.origin}: a baseline is measured, not repeated from recorded answers; {_LEAVE}"
        problems.append(Problem(values["update-baseline"].origin, text))
    name = values["run"].text
    if name is not None and (why := why_no_name(name)) is not None:
        problems.append(Problem(values["run"].origin, why))
    shard = _shard(values["shard"], problems)
    markdown, html = (_file(config, values[name], problems) for name in ("markdown", "html"))
    show_failures = _show_failures(config, values["show-failures"], problems)
    if problems:
        raise pytest.UsageError(*map(str, problems))
    secrets_file = values["secrets-file"].text
    return SessionOptions(
        overrides=tuple(overrides),
        secrets=SecretsSource("-" if secrets_file == "-" else _path(config, secrets_file), lambda: _read_stdin(config)),
        output=values["output"].text,
        markdown=markdown,
        html=html,
        probe=not given["no-probe"],
        max_in_flight=None if max_in_flight is None else InFlightLimit(max_in_flight, values["max-in-flight"].origin),
        confirm_above=usd,
        stop_when_decided=values["stop-when-decided"].origin if given["stop-when-decided"] else None,
        dry_run=given["dry-run"] or plans_setup(config),
        not_measured_exit=_exit_status(config.getini(options.NOT_MEASURED_EXIT)),
        inline=_inline(config, values["inline"].origin if given["inline"] else None),
        resume=ResumeRequest(name, given["resume"], given["retry-failed"], given["fresh"])
        if given["resume"] or name is not None
        else None,
        smoke=(smoke_rows or SMOKE_ROWS) if given["smoke"] else None,
        shard=shard,
        update_baseline=given["update-baseline"],
        rescore=given["rescore"],
        overwrite=given["overwrite"],
        show_failures=show_failures,
        answers=answers,
        resume_from=_path(config, values["resume-from"].text),
    )


def typed(config: pytest.Config) -> list[str]:
    """Return our options as they were typed, for commands that repeat a run."""
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


def _read_stdin(config: pytest.Config) -> str:
    """Return the secrets on standard input. Raises `FileFault`."""
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.suspend_global_capture(in_=True)
    try:
        return read_stdin(MOST_BYTES)
    finally:
        capture.resume_global_capture()


def workers(config: pytest.Config) -> int:
    """Return the number of xdist workers, 1 without xdist."""
    n = config.getoption("numprocesses", None)
    return n if isinstance(n, int) and n > 0 else 1


def pythonpath(config: pytest.Config) -> list[str]:
    """Return the import roots of the ini key `pythonpath`, absolute."""
    return [str(config.rootpath / folder) for folder in config.getini("pythonpath")]


def _value(config: pytest.Config, environ: Mapping[str, str], option: Option) -> OptionValue:
    value = config.getoption(option.dest)
    if value:
        return OptionValue(str(value), option.flag)
    if option.variable in VARIABLES and environ.get(option.variable):
        return OptionValue(environ[option.variable], option.variable)
    if "ini" in option.marks and config.getini(option.dest):
        return OptionValue(config.getini(option.dest), f"ini {option.dest}")
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


def _show_failures(config: pytest.Config, value: OptionValue, problems: list[Problem]) -> int | None:
    """Return the number of failed runs that pytest shows, None for all of them."""
    if value.text is None:
        return None if config.get_verbosity() > 1 else SHOW_FAILURES
    n: int | Literal["all"] | None = _number(value, integer_or("all", "all", integer(0)), problems)
    return None if n == "all" else n


def _exit_status(value: str) -> int:
    if not value.isdecimal() or not 0 < int(value) < 256:
        raise pytest.UsageError(f"{options.NOT_MEASURED_EXIT}: must be an exit status from 1 to 255, got {value!r}")
    return int(value)


_LEAVE = "leave out one of them"
_NEEDS = (
    ("rescore", ("from",), f"{options.FROM.flag}: it scores stored rollouts"),
    ("smoke-rows", ("smoke",), "--osmosis-smoke: it sets the rows of a smoke test"),
    (
        "retry-failed",
        ("resume", "run"),
        "--osmosis-resume or --osmosis-run=NAME: it repeats runs that are stored",
    ),
    ("fresh", ("run",), "--osmosis-run=NAME, the run to begin anew"),
)
"""Options, those of which each needs one, and what a problem says of it."""
_EXCLUDES = (
    ("smoke", ("shard",), f": a smoke test has few rows; {_LEAVE}"),
    ("stop-when-decided", ("shard",), f": a shard does not know the runs of the others; {_LEAVE}"),
    (
        "update-baseline",
        ("shard",),
        ": a baseline is a whole eval; make it of the merged results: pytest-osmosis merge FILES -o BASELINE",
    ),
    ("update-baseline", ("smoke", "stop-when-decided"), f": a baseline is a whole eval; {_LEAVE}"),
    ("shard", ("source",), ": tests over rollouts have no shards; run these tests in a job of their own"),
    ("fresh", ("resume", "retry-failed"), f": one begins anew, the other resumes; {_LEAVE}"),
    ("resume", ("from",), f", which rolls nothing out; {_LEAVE}"),
    ("run", ("from",), f", which rolls nothing out; {_LEAVE}"),
    (
        "resume-from",
        ("resume", "fresh", "from", "smoke", "shard"),
        f": it names the rollouts to resume; {_LEAVE}",
    ),
)
"""Options, those that each excludes, and why."""


def _needs(given: Mapping[str, bool], values: Mapping[str, OptionValue]) -> Iterator[Problem]:
    for name, others, what in _NEEDS:
        if given[name] and not any(given[other] for other in others):
            yield Problem(values[name].origin, f"needs {what}")


def _exclusions(given: Mapping[str, bool], values: Mapping[str, OptionValue]) -> Iterator[Problem]:
    for name, others, why in _EXCLUDES:
        for other in others:
            if given[name] and given[other]:
                yield Problem(values[name].origin, f"contradicts {values[other].shown}{why}")


_SMOKE_EXCLUDES = {
    OPTIONS["n"]: _LEAVE,
    OPTIONS["limit"]: f"{_LEAVE}, or set the number of rows with --osmosis-smoke-rows=N",
}
"""Keys of the config that contradict a smoke test, and the fix."""


def _smoke_problems(origin: str, overrides: Iterable[Override]) -> Iterator[Problem]:
    """Yield the overrides that contradict a smoke test. One in the command wins over variables."""
    levels = ("command",) if origin == "--osmosis-smoke" else ("command", "environment")
    for override in overrides:
        fix = _SMOKE_EXCLUDES.get((override.table, override.key))
        if fix is not None and override.level in levels:
            text = f"contradicts {origin}, which runs each of the first rows once; {fix}"
            yield Problem(override.origin, text)


def _shard(value: OptionValue, problems: list[Problem]) -> Shard | None:
    """Return the shard to which the session is limited, None without one."""
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


def _answers(
    given: Mapping[str, bool],
    values: Mapping[str, OptionValue],
    overrides: Iterable[Override],
    problems: list[Problem],
) -> AnswersOption | None:
    """Return from where recorded answers are given again, None if the config decides.

    The command line wins over the environment. Two requests on one of them contradict each other.
    """
    flags: Mapping[str, AnswerStore] = {"replay": "cassette", "cache": "cache"}
    stores = {values[name].origin: store for name, store in flags.items() if given[name]}
    levels: dict[str, str] = {origin: "command" if origin.startswith("--") else "environment" for origin in stores}
    recording = (each for each in overrides if (each.table, each.key) == _RECORD and each.value != "off")
    levels |= {each.origin: each.level for each in recording if each.level in ("command", "environment")}
    origins = [origin for origin in levels if levels[origin] == "command"] or list(levels)
    for origin in origins if len(origins) > 1 else ():
        others = " and ".join(other for other in origins if other != origin)
        text = "an answer is recorded, comes from the cassette, or comes from the cache; keep one of them"
        problems.append(Problem(origin, f"contradicts {others}: {text}"))
    return AnswersOption(stores[origins[0]], origins[0]) if origins and origins[0] in stores else None


_RECORD = OPTIONS["record"]


def _inline(config: pytest.Config, origin: str | None) -> bool:
    """True if user code runs in this process. Raises `pytest.UsageError` if xdist has workers."""
    option = origin or ("--trace" if config.getoption("trace", False) else None)
    if option is not None and config.getoption("dist", "no") != "no":
        raise pytest.UsageError(f"{option}: user code runs in pytest's own process, so xdist cannot be used; add -n0")
    return option is not None
