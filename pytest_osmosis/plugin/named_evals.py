"""The evals that a command names: with `--osmosis-config`, as arguments, or with `--osmosis-agent` or `--osmosis-env`
and no TOML.

Only what was typed counts, not addopts or PYTEST_ADDOPTS, because an eval costs money. The one exception is the ini
key `osmosis_collect`. With "list", IDEs show evals, and to run everything they pass the node id of every test. So node
ids then name an eval only if all arguments are its own.
"""

from __future__ import annotations

import fnmatch
import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_osmosis import seams
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.files.reading import fault_of
from pytest_osmosis.plugin import options
from pytest_osmosis.plugin.items import unit_key
from pytest_osmosis.plugin.options import is_eval_toml, names_reward_files, path_of, typed_arguments
from pytest_osmosis.text.names import absolute, natural_key, shown

if TYPE_CHECKING:
    from pytest_osmosis.record.find_run import StoredEvalRun


_HOW = (
    "name its TOML, --osmosis-agent=MODULE:ATTR (or chat) or --osmosis-env=ID; "
    "for tests marked osmosis_eval add --osmosis-source=model"
)


class NamedEvals(NamedTuple):
    """The evals of a session: paths of TOMLs, or None for the eval that options alone describe.

    `explicit` are named by the command, `found` are in folders that pytest collects; those `listed` are only shown,
    and nothing runs then. `ignored` are named by addopts alone. The rollouts of the run `stored` are rescored;
    `names_config` is True if the command names the eval too, and not only that run. `asks_models`: tests marked
    `osmosis_eval` get rollouts of models, not reference solutions. `untyped` are the arguments from testpaths or the
    current folder, if none were typed. `withheld` are named by node ids, among others, and are not started.
    """

    explicit: tuple[Path | None, ...]
    found: tuple[Path, ...] = ()
    listed: tuple[Path, ...] = ()
    ignored: tuple[str, ...] = ()
    stored: StoredEvalRun | None = None
    names_config: bool = True
    asks_models: bool = False
    untyped: tuple[str, ...] = ()
    withheld: tuple[Path, ...] = ()

    @property
    def evals(self) -> tuple[Path | None, ...]:
        return (*self.explicit, *self.found)


def named_evals(config: pytest.Config) -> NamedEvals:
    """Return the evals that this command names.

    Raises `pytest.UsageError` for a path without an eval, and for options of evals in a command that names none.
    """
    # Parsing again with pytest's private parser is the one way to see what was typed, without addopts.
    words = [str(arg) for arg in config.invocation_params.args]
    options.spell_out(words)
    typed = config._parser.parse_known_args(words)
    source = _typed_source(typed)
    tomls = _option_tomls(config, typed.osmosis_config)
    arguments: list[str] = list(typed.file_or_dir)
    positional = [path_of(config, arg) for arg in arguments if is_eval_toml(arg)]
    withheld = [path for path in _withheld(config, arguments) if path not in tomls]
    if withheld and not tomls and all(path_of(config, arg) in withheld for arg in arguments):
        raise pytest.UsageError(_withheld_text(withheld))
    explicit: list[Path | None] = [path for path in dict.fromkeys([*tomls, *positional]) if path not in withheld]
    names_agent = any(getattr(typed, option.dest) for option in options.AGENTS)
    if not explicit and not withheld and names_agent and source is None:
        explicit = [None]
    run = config.getoption(options.FROM.dest) if explicit else typed.osmosis_from
    stored = _stored_run(config, run, explicit) if run else None
    names_config = bool(explicit)
    if stored is not None and not explicit:
        explicit = [stored.config]
    found = _found_evals(config, explicit)
    if not explicit and not found and not withheld:
        _refuse_eval_options(typed, source)
        if rows := [arg for arg in arguments if options.names_a_row(arg)]:
            raise pytest.UsageError(f"{rows[0]}: no eval is named; add --osmosis-agent=... and its other options")
    return NamedEvals(
        explicit=tuple(explicit),
        found=tuple(found),
        listed=tuple(found) if config.getini(options.COLLECT) == "list" else (),
        ignored=_ignored(config, [*explicit, *withheld], asks_models=source == "model"),
        stored=stored,
        names_config=names_config,
        asks_models=source == "model",
        untyped=() if typed_arguments(config) else tuple(config.args),
        withheld=tuple(withheld),
    )


def _withheld(config: pytest.Config, arguments: Sequence[str]) -> list[Path]:
    """Return the evals that only node ids name, among other arguments, if `osmosis_collect` is "list"."""
    if config.getini(options.COLLECT) != "list" or config.option.collectonly:
        return []
    paths = {arg: path_of(config, arg) for arg in arguments}
    tomls = [arg for arg in arguments if is_eval_toml(arg)]
    whole = {paths[arg] for arg in tomls if unit_key(arg) is None}
    units = dict.fromkeys(paths[arg] for arg in tomls if unit_key(arg))
    return [path for path in units if path not in whole] if len({*paths.values()}) > 1 else []


def remaining_arguments(config: pytest.Config, evals: Collection[Path | None]) -> list[str]:
    """Return pytest's arguments without the TOMLs that are not among `evals`; the current folder if none is left.

    Such a TOML was named by addopts alone, or has a problem.
    """
    if config.args_source is not config.ArgsSource.ARGS:
        return list(config.args)
    arguments = [arg for arg in config.args if not is_eval_toml(arg) or path_of(config, arg) in evals]
    return arguments or [str(config.invocation_params.dir)]


def not_started_lines(named: NamedEvals) -> Iterator[str]:
    """Yield lines on the evals that only addopts name, or node ids among others."""
    if named.ignored:
        text = "ignored, because only addopts names it; an eval starts only if the command names it"
        yield f"osmosis: {', '.join(named.ignored)}: {text}"
    if named.withheld:
        yield f"osmosis: {_withheld_text(named.withheld)}"


def _withheld_text(evals: Sequence[Path]) -> str:
    text = 'with osmosis_collect = "list", node ids start an eval only if they all belong to it; select one eval'
    return f"not started: {', '.join(map(shown, evals))}: {text}"


class NotStartedNotice:
    """Reports, in a session without an eval, which evals were named in vain."""

    def __init__(self, config: pytest.Config, named: NamedEvals) -> None:
        self._config = config
        self._named = named

    def pytest_report_header(self) -> list[str]:
        from pytest_osmosis.plugin.session_sanitizer import sanitizer_of

        return [sanitizer_of(self._config).shown(line) for line in not_started_lines(self._named)]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send xdist workers the remaining arguments, because they read addopts again."""
        node.workerinput["osmosis-args"] = list(self._config.args)


def _option_tomls(config: pytest.Config, values: Sequence[str]) -> list[Path]:
    """Return the TOMLs that `--osmosis-config` names, by itself or by their folder, without its subfolders.

    Raises `pytest.UsageError` with all values that name none.
    """
    tomls: list[Path] = []
    problems: list[str] = []
    for value in values:
        path = absolute(config.invocation_params.dir / value)
        if not path.is_dir():
            tomls.append(path)
            if (fault := fault_of(path)) is not None:
                problems.append(f"--osmosis-config={value}: {fault}{_suggestion(path) if fault.missing else ''}")
        elif found := tomls_in(path):
            tomls += found
        else:
            problems.append(f"--osmosis-config={value}: the folder holds no *.toml")
    if problems:
        raise pytest.UsageError(*problems)
    return tomls


def _suggestion(path: Path) -> str:
    from pytest_osmosis.text.names import closest

    siblings = [other.name for other in path.parent.glob("*") if other.suffix == ".toml" or other.is_dir()]
    close = closest(path.name, siblings)
    return f", did you mean {shown(path.with_name(close))}?" if close else ""


def folders_under(config: pytest.Config, folder: Path) -> Iterator[Path]:
    """Yield a folder and its subfolders, apart from those that pytest skips."""
    for parent, folders, _ in os.walk(folder):
        folders[:] = sorted((name for name in folders if not is_skipped_folder(config, name)), key=natural_key)
        yield Path(parent)


def is_skipped_folder(config: pytest.Config, name: str) -> bool:
    """True for a folder that pytest does not collect from."""
    return any(fnmatch.fnmatch(name, pattern) for pattern in config.getini("norecursedirs"))


def tomls_in(folder: Path) -> list[Path]:
    """Return the evals directly in a folder."""
    tomls = (file for file in folder.glob("*.toml") if file.name != "endpoints.toml")
    return sorted(tomls, key=lambda file: natural_key(file.stem))


def _typed_source(typed: Any) -> str | None:
    value: str | None = typed.osmosis_source
    if value not in (None, "reference", "model"):
        raise pytest.UsageError(f'{options.SOURCE.flag}: must be "reference" or "model", got "{value}"')
    if value == "model" and typed.osmosis_from:
        raise pytest.UsageError(f"{options.FROM.flag} and {options.ASKS_MODELS} exclude each other; pass one")
    return value


def _stored_run(config: pytest.Config, run: str, explicit: Sequence[Path | None]) -> StoredEvalRun:
    """Return the run to rescore. Raises `pytest.UsageError` if there is none."""
    from pytest_osmosis.record.find_run import find_run, stored

    if len(explicit) > 1:
        raise pytest.UsageError(f"{options.FROM.flag} takes one eval, {len(explicit)} given")
    try:
        return stored(find_run(config.invocation_params.dir, run))
    except OsmosisError as error:
        raise pytest.UsageError(f"{options.FROM.flag}: {error}") from None


def _found_evals(config: pytest.Config, explicit: Sequence[Path | None]) -> list[Path]:
    """Return the evals in folders that pytest collects, if `osmosis_collect` allows it."""
    collect = config.getini(options.COLLECT)
    if collect not in ("never", "list", "run"):
        raise pytest.UsageError(f'{options.COLLECT}: must be "never", "list" or "run", got "{collect}"')
    if collect == "never" or (collect == "list" and not config.option.collectonly):
        return []
    if explicit and not typed_arguments(config):
        return []
    arguments = remaining_arguments(config, explicit)
    folders = [folder for arg in arguments if (folder := path_of(config, arg)).is_dir()]
    places = (place for folder in folders for place in folders_under(config, folder))
    of_evals = (place for place in places if place.parts[-2:] == ("configs", "eval"))
    found = dict.fromkeys(toml for place in of_evals for toml in tomls_in(place))
    return [path for path in found if path not in explicit]


def _ignored(config: pytest.Config, explicit: Sequence[Path | None], *, asks_models: bool) -> tuple[str, ...]:
    """Return the arguments and options of addopts that name an eval which this command does not name."""
    typed = [arg for arg in typed_arguments(config) if is_eval_toml(arg) and path_of(config, arg) not in explicit]
    folder = config.invocation_params.dir
    configs = {value: absolute(folder / value) for value in config.getoption("osmosis_config")}
    named = {*explicit, *(parent for path in explicit if path is not None for parent in path.parents)}
    others = [config.getoption(option.dest) for option in (*options.AGENTS, options.FROM)]
    models = config.getoption(options.SOURCE.dest) == "model" and not asks_models
    return (
        *typed,
        *(value for value, path in configs.items() if path not in named),
        *(other for other in others if other and not explicit),
        *([options.ASKS_MODELS] if models else []),
    )


def _refuse_eval_options(typed: Any, source: str | None) -> None:
    """Reject options of evals in a command that names none, and those that do not apply to marked tests."""
    allowed: Collection[options.Option] = ()
    reason = f"no eval is named; {_HOW}"
    if source == "reference":
        of_prime = [option for option in options.OF_PRIME if option in options.OF_TESTS]
        allowed = [*(option for option in options.OF_CONFIG if option is not options.RECORD), options.SET, *of_prime]
        reason = f"{options.SOURCE.flag}=reference requests no model, so no eval can run"
    elif source == "model":
        allowed = options.OF_TESTS
        reason = f"does not apply with {options.ASKS_MODELS}, where tests decide and gates are not evaluated"
    refused = [option.flag for option in options.OF_AN_EVAL if getattr(typed, option.dest) and option not in allowed]
    if refused:
        raise pytest.UsageError(f"{', '.join(refused)}: {reason}")


def set_arguments(config: pytest.Config, arguments: Iterable[str], *, as_typed: bool = False) -> None:
    """Let pytest collect from `arguments`; `as_typed` if they replace testpaths. Called at most once in a process.

    In the process of an eval that is in pytest_sessionstart, because only then the evals' files are known. xdist
    workers get the controller's arguments. Any other process does it in pytest_configure, if at all.
    """
    config.args[:] = arguments
    if as_typed:
        config.args_source = config.ArgsSource.ARGS


def session_arguments(config: pytest.Config, named: NamedEvals, files: Sequence[Path] = ()) -> list[str]:
    """Return the arguments of a session that collects the evals in `files`.

    A named eval replaces testpaths. TOMLs that only addopts name are left out. A file is left out if it lies in a
    folder among the arguments, because given both, pytest 8 collects the file alone.
    """
    evals = {*named.explicit, *files}
    if not named.explicit:
        others = seams.outside_testpaths(config) if names_reward_files(config) else ()
        arguments = [*remaining_arguments(config, evals), *others]
    elif tuple(config.args) == named.untyped:  # else another plugin chose them, like pytest-picked
        arguments = []
    else:
        arguments = remaining_arguments(config, evals)
    for file in files:
        paths = [path_of(config, arg) for arg in arguments]
        above = [path for path in paths if file.is_relative_to(path) and (path == file or path.is_dir())]
        parts = [file.relative_to(path).parts[:-1] for path in above]
        if all(any(is_skipped_folder(config, part) for part in each) for each in parts):
            arguments.append(str(file))
    return arguments


# -- nothing collected -------------------------------------------------------------------------------------


def hints(config: pytest.Config) -> Iterator[str]:
    """Yield lines about what a command that collected nothing may have meant."""
    paths = [path_of(config, arg) for arg in config.args]
    places = [place for path in paths for place in (path / "configs" / "eval", path / "eval", path)]
    for folder in dict.fromkeys(place for place in places if place.parts[-2:] == ("configs", "eval")):
        if n := len(tomls_in(folder)):
            runs, pronoun = ("an eval that runs", "it") if n == 1 else (f"{n} evals that run", "them")
            command = f"pytest --osmosis-config={shlex.quote(shown(folder))}"
            yield f"osmosis: {shown(folder)} holds {runs} only if the command names {pronoun}: {command}"
