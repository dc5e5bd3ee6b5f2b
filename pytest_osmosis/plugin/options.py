"""Command line and ini: what a command says of evals, read once into `Options`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import pytest

from pytest_osmosis.plugin import reward_options

if TYPE_CHECKING:
    from pytest_osmosis.config import Override

MARKER = "osmosis: a run of an eval, one row of its dataset rolled out and scored (pytest-osmosis)"
NOT_MEASURED_EXIT = "osmosis_not_measured_exit"

OVERRIDES = {
    "--osmosis-n": ("evaluation", "n"),
    "--osmosis-limit": ("evaluation", "limit"),
    "--osmosis-batch-size": ("evaluation", "batch_size"),
}
"""Options that stand for a key of the config."""


def add(parser: pytest.Parser) -> None:
    """Add our options to pytest's."""
    group = parser.getgroup("osmosis", "evaluations of LLM agents (write options with '=')")
    group.addoption(
        "--osmosis-config",
        action="append",
        default=[],
        metavar="PATH",
        help="run the eval in this TOML, or those directly in this folder; repeatable",
    )
    group.addoption("--osmosis-n", metavar="N", help="runs per dataset row (overrides [evaluation] n)")
    group.addoption(
        "--osmosis-limit",
        metavar="N|all",
        help="take the first N rows, or all (overrides the config's selection of rows)",
    )
    group.addoption(
        "--osmosis-batch-size", metavar="N", help="rollouts in flight at once (overrides [evaluation] batch_size)"
    )
    group.addoption(
        "--osmosis-output",
        metavar="PATH",
        help="write results.json here too; a folder, or a path with {name}, when several evals run",
    )
    group.addoption(
        "--osmosis-markdown",
        metavar="PATH",
        help="write a summary in Markdown here; in GitHub Actions it is on the job's page without this",
    )
    group.addoption(
        "--osmosis-secrets-file", metavar="PATH|-", help="dotenv file with the values of [secrets] required; - is stdin"
    )
    group.addoption(
        "--osmosis-no-probe", action="store_true", help="do not ask the model one question before the first rollout"
    )
    group.addoption(
        "--osmosis-inline",
        action="store_true",
        help="run user code in pytest's own process, one rollout at a time, for debuggers (implied by --trace)",
    )
    reward_options.add(parser)
    parser.addini(NOT_MEASURED_EXIT, "exit status when an eval could not be measured (default: 9)", default="9")


class Options(NamedTuple):
    """What the command line says, beside which evals. Not a dataclass: making one costs every pytest run 1.5 ms."""

    overrides: tuple[Override, ...]
    secrets_file: Path | Literal["-"] | None
    output: str | None
    markdown: Path | None
    probe: bool
    not_measured_exit: int
    inline: bool


def read(config: pytest.Config) -> Options:
    """The options of this command. `pytest.UsageError` for an ini value that is none."""
    from pytest_osmosis.config import Override

    overrides = [
        Override(table, key, value, flag)
        for flag, (table, key) in OVERRIDES.items()
        if (value := config.getoption(flag)) is not None
    ]
    secrets, markdown = config.getoption("--osmosis-secrets-file"), config.getoption("--osmosis-markdown")
    return Options(
        overrides=tuple(overrides),
        secrets_file=secrets if secrets in (None, "-") else config.invocation_params.dir / secrets,
        output=config.getoption("--osmosis-output"),
        markdown=config.invocation_params.dir / markdown if markdown else None,
        probe=not config.getoption("--osmosis-no-probe"),
        not_measured_exit=_exit_status(config.getini(NOT_MEASURED_EXIT)),
        inline=_inline(config),
    )


def _inline(config: pytest.Config) -> bool:
    """Whether user code runs in this process. `pytest.UsageError` where there are workers."""
    flag = next((flag for flag in ("--osmosis-inline", "--trace") if config.getoption(flag)), None)
    if flag is not None and config.getoption("dist", "no") != "no":
        raise pytest.UsageError(f"{flag}: user code runs in pytest's own process, so there can be no workers: use -n0")
    return flag is not None


def read_stdin(config: pytest.Config) -> str:
    """All that stands on standard input, which pytest's capture keeps from everyone else."""
    import sys

    capture = config.pluginmanager.getplugin("capturemanager")
    capture.suspend_global_capture(in_=True)
    try:
        return sys.stdin.read()
    finally:
        capture.resume_global_capture()


def typed(config: pytest.Config) -> list[str]:
    """Our options as they were typed, for commands that run something again."""
    flags = [*OVERRIDES, "--osmosis-secrets-file"]
    words = [f"{flag}={value}" for flag in flags if (value := config.getoption(flag)) is not None]
    return words + (["--osmosis-no-probe"] if config.getoption("--osmosis-no-probe") else [])


def _exit_status(value: str) -> int:
    if not value.isdecimal() or not 0 < int(value) < 256:
        raise pytest.UsageError(f"{NOT_MEASURED_EXIT}: must be an exit status from 1 to 255, got {value!r}")
    return int(value)


def named_evals(config: pytest.Config) -> list[Path]:
    """The TOMLs that this command names, with `--osmosis-config` or as arguments, each once.

    Those of `--osmosis-config` join pytest's arguments, so that pytest collects them, and only them where it was given
    no others.
    """
    named = [path for given in config.getoption("--osmosis-config") for path in _files(config, given)]
    typed_too = config.args if config.args_source is config.ArgsSource.ARGS else []  # and not testpaths
    positional = [_path(config, arg) for arg in typed_too if _is_eval_argument(arg)]
    if named:
        config.args[:] = [*typed_too, *(str(path) for path in dict.fromkeys(named) if path not in positional)]
        config.args_source = config.ArgsSource.ARGS
    return list(dict.fromkeys([*named, *positional]))


def _is_eval_argument(arg: str) -> bool:
    path = arg.split("::", 1)[0]
    return path.endswith(".toml") and Path(path).name != "pyproject.toml"


def _path(config: pytest.Config, arg: str) -> Path:
    import os

    return Path(os.path.abspath(config.invocation_params.dir / arg.split("::", 1)[0]))  # noqa: PTH100 (keeps symlinks)


def _files(config: pytest.Config, given: str) -> list[Path]:
    """A TOML, or those directly in a folder. `pytest.UsageError` where there is none."""
    path = _path(config, given)
    if path.is_dir():
        files = sorted(file for file in path.glob("*.toml") if file.name != "endpoints.toml")
        if not files:
            raise pytest.UsageError(f"--osmosis-config={given}: the folder holds no *.toml")
        return files
    if not path.is_file():
        raise pytest.UsageError(f"--osmosis-config={given}: no such file")
    return [path]


def named_rows(config: pytest.Config, path: Path) -> list[int]:
    """Rows of the eval in `path` that node ids among the arguments ask for."""
    import re

    ids = [arg.partition("::")[2] for arg in config.args if "::" in arg and _path(config, arg) == path]
    return [int(match[1]) for name in ids if (match := re.search(r"\[row(\d+)-run\d+\]$", name))]
