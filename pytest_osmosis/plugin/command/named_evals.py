"""Which evals a command names: with `--osmosis-config`, as arguments, or with `--osmosis-agent` and no TOML.

Only what was typed counts, and not addopts or PYTEST_ADDOPTS: an eval costs money, and starts when the command names
it. The one exception is the ini `osmosis_collect`.
"""

from __future__ import annotations

import fnmatch
import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest

from pytest_osmosis.config.tables import DATASET_SUFFIXES
from pytest_osmosis.errors import OsmosisError, Problem
from pytest_osmosis.plugin.command import options
from pytest_osmosis.plugin.items.node_ids import eval_id_of, node_id, unit_key
from pytest_osmosis.plugin.reward_tests.reward_options import path_of
from pytest_osmosis.record.plan import Granularity
from pytest_osmosis.record.run_id import RowId, RunId, Unit

if TYPE_CHECKING:
    from pytest_osmosis.record.find_run import StoredEvalRun

_VERIFIERS = "not supported yet; name an eval with --osmosis-config=PATH or --osmosis-agent=MODULE:ATTR"
_HOW = (
    "name one: --osmosis-config=PATH, the path of its TOML, or --osmosis-agent=MODULE:ATTR (or chat); "
    "tests marked osmosis_eval: --osmosis-source=model"
)


class NamedEvals(NamedTuple):
    """The evals of a session: TOMLs, or None for the one that options alone describe.

    `listed` are those that are only shown; `aside` is what addopts name and this command does not. With `stored` the
    eval is on the rollouts of that run, and named `by_itself` or only by the run. `source` is where tests marked
    `osmosis_eval` take their rollouts from.
    """

    evals: tuple[Path | None, ...]
    listed: tuple[Path, ...] = ()
    aside: tuple[str, ...] = ()
    stored: StoredEvalRun | None = None
    by_itself: bool = True
    source: Literal["reference", "model"] = "reference"

    @property
    def runs_evals(self) -> bool:
        """True where some are not only shown."""
        return any(path not in self.listed for path in self.evals)


def named_evals(config: pytest.Config) -> NamedEvals:
    """What this command names. pytest's own arguments are left with what it may collect.

    `pytest.UsageError` for a path that holds no eval, and for options that say something of evals where none is named.
    """
    typed = config._parser.parse_known_args([str(arg) for arg in config.invocation_params.args])
    _refuse_later(typed)
    source = _source(typed)
    tomls = [path for given in typed.osmosis_config for path in _files(config, given)]
    positional = [path_of(config, arg) for arg in typed.file_or_dir if _is_toml(arg)]
    named: list[Path | None] = list(dict.fromkeys([*tomls, *positional]))
    if not named and typed.osmosis_agent and source is None:
        named = [None]
    asked = config.getoption(options.FROM.dest) if named else typed.osmosis_from
    stored = _stored(config, asked, named) if asked else None
    by_itself = bool(named)
    if stored is not None and not named:
        named = [stored.config]
    aside = _take_aside(config, named, asks_models=source == "model")
    found = _found(config, named)
    listing = config.getini(options.COLLECT) == "list"
    if not named and not found:
        _refuse_stray(typed, source)
        _refuse_rows_alone(typed)
    if named:
        if config.args_source is not config.ArgsSource.ARGS:  # testpaths, or nothing typed
            config.args.clear()
        config.args_source = config.ArgsSource.ARGS
    return NamedEvals(
        (*named, *found), tuple(found) if listing else (), aside, stored, by_itself, source or "reference"
    )


def _stored(config: pytest.Config, asked: str, named: Sequence[Path | None]) -> StoredEvalRun:
    """The run whose rollouts are decided again. `pytest.UsageError` without one."""
    from pytest_osmosis.record.find_run import find_run

    if len(named) > 1:
        raise pytest.UsageError(f"{options.FROM.flag}={asked}: is of one eval, and {len(named)} are named; name one")
    try:
        return find_run(config.invocation_params.dir, asked)
    except OsmosisError as error:
        raise pytest.UsageError(f"{options.FROM.flag}: {error}") from None


class AddoptsNotice:
    """Says, in a session without an eval, which ones were left alone."""

    def __init__(self, config: pytest.Config, naming: NamedEvals) -> None:
        self._config = config
        self._naming = naming

    def pytest_report_header(self) -> list[str]:
        """One line."""
        return ignored_eval_lines(self._naming)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """A worker of xdist reads addopts anew: tell it what is left of them."""
        node.workerinput["osmosis-args"] = list(self._config.args)


def ignored_eval_lines(naming: NamedEvals) -> list[str]:
    """What to say of evals that only addopts name."""
    text = "named by addopts alone, which starts no eval; name it in the command"
    return [f"osmosis: {', '.join(naming.aside)}: {text}"] if naming.aside else []


def collect_too(config: pytest.Config, path: Path) -> None:
    """Let pytest collect the file of a named eval, unless it is an argument already or will be found in one.

    Of a folder and a file in it, pytest 8 collects the file alone.
    """
    given = [path_of(config, arg) for arg in config.args]
    if path not in given and not any(_is_found_in(config, folder, path) for folder in given):
        config.args.append(str(path))


def _is_found_in(config: pytest.Config, folder: Path, path: Path) -> bool:
    """True where pytest comes across a file as it looks through a folder."""
    if not path.is_relative_to(folder) or not folder.is_dir():
        return False
    return not any(_is_skipped(config, part) for part in path.relative_to(folder).parts[:-1])


def named_parts(config: pytest.Config, path: Path | None) -> dict[str, Unit]:
    """What node ids among the arguments ask for of the eval in `path`; None is the one without a TOML."""
    ids = [arg for arg in config.args if "::" in arg and _concerns(config, arg, path)]
    return {arg: named.unit for arg in ids if (named := unit_key(arg))}


def misnamed(parts: Mapping[str, Unit], granularity: Granularity) -> list[Problem]:
    """The node ids that name a run where tests are of rows, or a row where they are of runs."""
    return [
        Problem(arg, _of_a_run(arg, part) if isinstance(part, RunId) else _of_a_row(arg, part))
        for arg, part in parts.items()
        if isinstance(part, RunId) != (granularity == "run")
    ]


def _of_a_run(arg: str, run: RunId) -> str:
    row = shlex.quote(node_id(eval_id_of(arg), RowId(run.row, run.model)))
    instead = f"type {row} for all of them, or add --osmosis-granularity=run for this one"
    return f'names a run, but here a test is a row with all its runs (granularity = "row"); {instead}'


def _of_a_row(arg: str, part: RowId) -> str:
    file = shlex.quote(arg.split("::", 1)[0])
    first = shlex.quote(node_id(eval_id_of(arg), RunId(part.row, 0, part.model)))
    instead = f"type {file} -k '{part}-' for all runs of the row, {first} for one, or add --osmosis-granularity=row"
    return f"names a row, but here a test is one run; {instead}"


def typed_dataset(config: pytest.Config) -> str | None:
    """The dataset among the arguments, with or without a node id, None where there is none."""
    paths = [arg.split("::", 1)[0] for arg in config.args]
    return next((path for path in paths if path.lower().endswith(DATASET_SUFFIXES)), None)


def _concerns(config: pytest.Config, arg: str, path: Path | None) -> bool:
    file = arg.split("::", 1)[0]
    return file.lower().endswith(DATASET_SUFFIXES) if path is None else path_of(config, file) == path


def _refuse_later(typed: Any) -> None:
    if typed.osmosis_env:
        raise pytest.UsageError(f"--osmosis-env: {_VERIFIERS}")


def _source(typed: Any) -> Literal["reference", "model"] | None:
    """Where tests take their rollouts from, None where nothing was typed of it."""
    said = typed.osmosis_source
    if said not in (None, "reference", "model"):
        raise pytest.UsageError(f'{options.SOURCE.flag}: must be "reference" or "model", got "{said}"')
    if said == "model" and typed.osmosis_from:
        raise pytest.UsageError(f"{options.FROM.flag}: asks no model, and {options.SOURCE.flag}=model does; give one")
    source: Literal["reference", "model"] | None = said
    return source


def _refuse_stray(typed: Any, source: Literal["reference", "model"] | None) -> None:
    """What is said of evals where there are none, or where only tests ask for rollouts and it means nothing to them."""
    meant: Collection[options.Option] = ()
    why = f"no eval is named; {_HOW}"
    if source == "reference":
        meant = (*options.OF_CONFIG, options.SET)
        why = f"{options.SOURCE.flag}=reference asks no model, so there is no eval that could run"
    elif source == "model":
        meant = [option for option in options.OF_AN_EVAL if option not in options.NOT_OF_TESTS]
        why = f"with {options.SOURCE.flag}=model tests decide, each by itself, so there are no gates; leave it out"
    stray = [option.flag for option in options.OF_AN_EVAL if getattr(typed, option.dest) and option not in meant]
    if stray:
        raise pytest.UsageError(f"{', '.join(stray)}: {why}")


def _refuse_rows_alone(typed: Any) -> None:
    rows = [arg for arg in typed.file_or_dir if options.names_a_row(arg)]
    if rows:
        raise pytest.UsageError(f"{rows[0]}: no eval is named; add --osmosis-agent=..., and its other options")


def _take_aside(config: pytest.Config, named: list[Path | None], *, asks_models: bool) -> tuple[str, ...]:
    """Keep pytest from collecting evals that only addopts name; gives what they were."""
    typed = config.args_source is config.ArgsSource.ARGS  # and not testpaths
    stray = [arg for arg in config.args if typed and _is_toml(arg) and path_of(config, arg) not in named]
    if stray:
        config.args[:] = [arg for arg in config.args if arg not in stray] or [str(config.invocation_params.dir)]
    given = [given for given in config.getoption("osmosis_config") if path_of(config, given) not in named]
    unnamed = [given for given in given if not any(path_of(config, given) in path.parents for path in named if path)]
    others = [config.getoption(one) for one in ("osmosis_agent", options.FROM.dest)]
    models = config.getoption(options.SOURCE.dest) == "model" and not asks_models
    return (
        *stray,
        *unnamed,
        *(other for other in others if other and not named),
        *([f"{options.SOURCE.flag}=model"] if models else []),
    )


def _found(config: pytest.Config, named: list[Path | None]) -> list[Path]:
    """The evals in the folders that pytest collects, where ini says that they are collected."""
    collect = config.getini(options.COLLECT)
    if collect not in ("never", "list", "run"):
        raise pytest.UsageError(f'{options.COLLECT}: must be "never", "list" or "run", got "{collect}"')
    if collect == "never" or (collect == "list" and not config.option.collectonly):
        return []
    if named and config.args_source is not config.ArgsSource.ARGS:
        return []
    folders = [folder for arg in config.args if (folder := path_of(config, arg)).is_dir()]
    found = dict.fromkeys(path for folder in folders for path in _tomls_under(config, folder))
    return [path for path in found if path not in named]


def _tomls_under(config: pytest.Config, folder: Path) -> Iterator[Path]:
    """configs/eval/*.toml under a folder, without those folders that pytest does not look into."""
    for where, folders, _ in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_skipped(config, name))
        path = Path(where)
        if path.parts[-2:] == ("configs", "eval"):
            yield from _tomls_in(path)


def _is_skipped(config: pytest.Config, name: str) -> bool:
    """True for a folder that pytest does not look into."""
    return any(fnmatch.fnmatch(name, one) for one in config.getini("norecursedirs"))


def _is_toml(arg: str) -> bool:
    path = arg.split("::", 1)[0]
    return path.endswith(".toml") and Path(path).name != "pyproject.toml"


def _files(config: pytest.Config, given: str) -> list[Path]:
    """A TOML, or those directly in a folder. `pytest.UsageError` where there is none."""
    path = path_of(config, given)
    if path.is_dir():
        files = _tomls_in(path)
        if not files:
            raise pytest.UsageError(f"--osmosis-config={given}: the folder holds no *.toml")
        return files
    if not path.is_file():
        raise pytest.UsageError(f"--osmosis-config={given}: no such file{_did_you_mean(path)}")
    return [path]


def _did_you_mean(path: Path) -> str:
    """The eval, or folder of evals, beside a path that is not there and named much like it."""
    from pytest_osmosis.text.paths import shown
    from pytest_osmosis.text.suggest import closest

    there = [other.name for other in path.parent.glob("*") if other.suffix == ".toml" or other.is_dir()]
    close = closest(path.name, there)
    return f", did you mean {shown(path.with_name(close))}?" if close else ""


def _tomls_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.toml") if file.name != "endpoints.toml")
