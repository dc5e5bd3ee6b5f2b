"""Preparation of the named evals before anything runs: checked, planned, and with the session's options applied.

Arguments of pytest name entries, rows and runs of an eval, or its dataset; others name no test of it.
"""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from pytest_osmosis import seams
from pytest_osmosis.config import Override, is_training_config
from pytest_osmosis.config.entries import in_order, read_entries
from pytest_osmosis.config.eval_config import NOT_OF_TRAINING
from pytest_osmosis.config.eval_kinds import name_of
from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.config.tables import DATASET_SUFFIXES
from pytest_osmosis.errors import ConfigError, Problem, ProblemsError
from pytest_osmosis.evals import EvalRequest, NotLoaded, Prepared, Surroundings, baseline_path, begin
from pytest_osmosis.evals.prepare import hide_secrets
from pytest_osmosis.evals.rescore import concerns_rollouts, prepare_rescore
from pytest_osmosis.evals.resume import resumed
from pytest_osmosis.plugin.items import eval_id, file_id, node_id, uncollected, ungrouped, unit_key
from pytest_osmosis.plugin.named_evals import NamedEvals
from pytest_osmosis.plugin.options import ENV, FROM, is_eval_toml, path_of, plans_setup, typed_arguments
from pytest_osmosis.plugin.reports import OutputPaths
from pytest_osmosis.plugin.session_options import SMOKE_ROWS, SessionOptions, environments_of
from pytest_osmosis.plugin.session_sanitizer import sanitizer_of
from pytest_osmosis.record.run_id import Unit
from pytest_osmosis.text.names import shown


class PreparedEvals(NamedTuple):
    """Evals by id, in the order of the command line.

    `not_listed` are lines about evals that have problems and were only to be shown, `files` what pytest must collect.
    `not_loaded` have environments that do not load; their tests are not known.
    """

    prepared: dict[str, Prepared]
    not_listed: list[str]
    files: list[Path]
    not_loaded: dict[str, NotLoaded]


class EvalPreparer:
    def __init__(self, config: pytest.Config, named: NamedEvals, options: SessionOptions) -> None:
        self._config = config
        self._named = named
        self._options = options
        self._outputs = OutputPaths(config, options)
        self.around = Surroundings(
            os.environ,
            config.invocation_params.dir,
            options.secrets,
            sanitizer_of(config),
            environments=environments_of(config),
        )

    @uncollected()  # digests of rows, and records of stored rollouts
    def prepare_all(self) -> PreparedEvals:
        """Prepare every named eval. Raises `pytest.UsageError` with the problems of all of them."""
        evals = PreparedEvals({}, [], [], {})
        running: list[Prepared] = []
        by_path: dict[Path | None, list[Problem]] = {}
        names = self._names(evals, by_path)
        n_run = sum(1 for name in names if name.path not in self._named.listed)
        for name, checked in [(name, self._checked(name, n_run)) for name in names]:  # all before an environment loads
            path, listed = name.path, name.path in self._named.listed
            problems = by_path.setdefault(path, [])
            try:
                if isinstance(checked, ProblemsError):
                    raise checked
                prepared = self._outputs.with_output(checked(), len(names))
                id = eval_id(self._config, prepared.plan)
            except ProblemsError as error:
                if listed:
                    evals.not_listed.extend(f"osmosis: not listed: {problem}" for problem in error.problems)
                elif isinstance(error, NotLoaded) and not units_in_arguments(self._config, path, name.entry):
                    file = name.path or Path()
                    evals.not_loaded[f"{file_id(self._config, file)}::{name.entry or file.stem}"] = error
                else:
                    problems += [problem for problem in error.problems if problem not in problems]
                    problems += self._problems_of_ids(name)
                continue
            evals.prepared[id] = prepared
            if not listed:
                running.append(prepared)
                if self._options.stop_when_decided is not None and not prepared.config.gates:
                    text = f"the eval {prepared.config.name} has no gate, so nothing can be decided"
                    fix = 'pass --osmosis-gate="pass_rate >= 0.7", add [gate], or leave the option out'
                    problems.append(Problem(self._options.stop_when_decided, f"{text}; {fix}"))
                problems += problems_of_ids(self._config, path, prepared)
                evals.files.append(prepared.config.path)
        problems = self._rescore_problems()
        for path, found in by_path.items():
            problems += [each for each in in_order(found, shown(path or Path())) if each not in problems]
        updating = self._options.update_baseline
        if updating and not problems and not any(baseline_path(prepared.config) for prepared in running):
            text = 'no eval names a file for its baseline; add [baseline] results = "baselines/x.json"'
            problems.append(Problem("--osmosis-update-baseline", text))
        problems += self._outputs.problems(running)
        if problems or not running:  # else evals need not wait for an environment that does not load
            problems += dict.fromkeys(problem for error in evals.not_loaded.values() for problem in error.problems)
        if problems:
            raise pytest.UsageError(*map(str, problems))
        if evals.not_listed and not evals.prepared:
            typed = typed_arguments(self._config)
            left = [arg for arg in typed if not is_eval_toml(arg) or path_of(self._config, arg) in evals.files]
            if typed and not left:
                raise pytest.UsageError(*evals.not_listed)
        return evals

    def _problems_of_ids(self, name: NamedEntry) -> Iterator[Problem]:
        """Yield problems with node ids of an eval that cannot run, but can be listed: without a secret, for example."""
        rows = [unit.row for unit in units_in_arguments(self._config, name.path, name.entry)]
        if self._named.stored is not None or not rows:
            return
        request = replace(self.request(name.path, name.entry, listed=True), named_rows=rows, shard=self._options.shard)
        try:
            yield from problems_of_ids(self._config, name.path, begin(request, self.around)())
        except ProblemsError:
            return

    def _names(self, evals: PreparedEvals, by_path: dict[Path | None, list[Problem]]) -> list[NamedEntry]:
        """Return the evals that the command names, or that are only shown. Adds problems, or lines on those shown."""
        names: list[NamedEntry] = []
        for path in self._named.evals:
            listed = path in self._named.listed
            problems: list[Problem] = []
            try:
                entries = named_entries(self._config, path, problems, all_of_them=listed)
            except ConfigError:  # reported with everything else about this eval
                entries = [NamedEntry(path)]
            if problems:
                hide_secrets(self.request(path, listed=True), self.around)  # which problems may quote
            if listed:
                evals.not_listed.extend(f"osmosis: not listed: {problem}" for problem in problems)
            else:
                by_path.setdefault(path, []).extend(problems)
            if self._named.stored is not None and not listed:  # of several, the one that made the rollouts
                made = self._named.stored.manifest.eval
                entries = [each for each in entries if each.entry == made] or entries[:1]
            names += entries
        return names

    def _checked(self, name: NamedEntry, n_evals: int) -> Callable[[], Prepared] | ProblemsError:
        """Check one of `n_evals`. Return the function that plans it, or the problems."""
        path, listed = name.path, name.path in self._named.listed
        stored = None if listed else self._named.stored
        request = self.request(path, name.entry, listed=listed)
        if stored is not None:  # an eval that the command does not name keeps the options of its stored run
            request = request if self._named.names_config else replace(request, path=None)
            return functools.partial(prepare_rescore, stored, request, self.around, rescore_all=self._options.rescore)
        rows = [unit.row for unit in units_in_arguments(self._config, path, name.entry)]
        smoke, shard = self._options.smoke, self._options.shard
        request = replace(request, named_rows=rows, smoke=smoke, shard=shard)
        try:
            if path is not None and is_training_config(path):
                if shard is not None and not listed:
                    text = "a preflight of a training config has no shards (--osmosis-shard)"
                    raise ProblemsError.at(shown(path), f"{text}; run it in a job of its own")
                if (self._options.replay or "").startswith("--"):
                    raise ProblemsError.at(str(self._options.replay), NOT_OF_TRAINING)
                request = replace(request, training=True, replay=False, smoke=smoke or SMOKE_ROWS, shard=None)
            planned = begin(request, self.around)
        except ProblemsError as error:
            return error
        if listed or request.training:
            return planned
        return lambda: self.resumed(planned(), n_evals)

    def resumed(self, prepared: Prepared, n_evals: int) -> Prepared:
        """Return an eval that resumes a run, or whose new run has a name, if the options say so."""
        request, folder = self._options.resume, self._options.resume_from
        if folder is not None:
            if n_evals > 1:
                text = f"holds files of one eval, and the command names {n_evals}; name that one"
                raise ProblemsError.at(f"--osmosis-resume-from={shown(folder)}", text)
            return seams.resumed_from(prepared, folder, None if request is None else request.name)
        return prepared if request is None else resumed(prepared, request, n_evals=n_evals)

    def request(self, path: Path | None, entry: str | None = None, *, listed: bool = False) -> EvalRequest:
        """Return what the command says of an eval, which it may only list."""
        return EvalRequest(
            path,
            entry,
            self._overrides(path),
            # a dry run needs keys, as the run itself does
            listing=listed or bool(self._config.option.collectonly or plans_setup(self._config)),
            updating=self._options.update_baseline,
            replay=self._options.replay is not None,
            most_in_flight=self._options.max_in_flight,
        )

    def _rescore_problems(self) -> list[Problem]:
        """Return typed options that would change rollouts, which are not repeated when stored ones are rescored."""
        if self._named.stored is None:
            return []
        name, then, shard = self._named.stored.directory.name, self._named.stored.manifest.shard, self._options.shard
        if shard is not None and shard != then:
            it = f"{name} is {then or 'a run of all rows'}"
            text = f"contradicts {FROM.flag}: {it}, and all its rollouts are scored; leave out --osmosis-shard"
            return [Problem(f"--osmosis-shard={shard.index}/{shard.of}", text)]
        text = f"contradicts {FROM.flag}, which does not change rollouts; leave out one of them"
        typed = [override for override in self._options.overrides if override.level == "command"]
        origins = [override.origin for override in typed if concerns_rollouts(override)]
        origins += ["--osmosis-smoke"] if self._options.smoke is not None else []
        return [Problem(origin, text) for origin in origins]

    def _overrides(self, path: Path | None) -> Sequence[Override]:
        """Return the overrides of an eval. Without a TOML, an argument may name its dataset."""
        overrides, own = self._options.overrides, OPTIONS["dataset"]
        if path is not None or any((override.table, override.key) == own for override in overrides):
            return overrides
        paths = [arg.partition("::")[0] for arg in typed_arguments(self._config)]
        datasets = [each for each in paths if each.lower().endswith(DATASET_SUFFIXES)]
        return (*overrides, *(Override(*own, dataset, dataset) for dataset in datasets[:1]))


def units_in_arguments(config: pytest.Config, path: Path | None, entry: str | None) -> list[Unit]:
    """Return the units of an eval that node ids among the arguments name. `path` is None for an eval without TOML.

    `entry` is the name of an eval in a TOML with several.
    """
    ids = [arg for arg in config.args if "::" in arg and _names_eval(config, arg, path, entry)]
    return [key.unit for arg in ids if (key := unit_key(arg))]


def _names_eval(config: pytest.Config, arg: str, path: Path | None, entry: str | None) -> bool:
    """Return True if an argument names the eval in `path`, or the entry of it, or a test of these."""
    file = path_of(config, arg)
    if path is not None:
        rest = arg.partition("::")[2]
        return file == path and (entry is None or _entry_of(rest, [entry]) is not None)
    name = name_of(config.getoption(ENV.dest) or "")
    return arg.rpartition("::")[2].startswith(f"{name}[") if name else file.name.lower().endswith(DATASET_SUFFIXES)


class NamedEntry(NamedTuple):
    """An eval as a command names it: its TOML, None without one, and its name in a TOML with several."""

    path: Path | None
    entry: str | None = None


def named_entries(
    config: pytest.Config, path: Path | None, problems: list[Problem], *, all_of_them: bool
) -> list[NamedEntry]:
    """Return the evals in a TOML: those that node ids name, or all if `all_of_them` or if an argument names the file.

    Adds problems with its keys and sweeps, or with node ids that name none of them. Raises `ConfigError` if the TOML
    cannot be read.
    """
    several = None if path is None else read_entries(path)
    if several is None or path is None:
        return [NamedEntry(path)]
    names = [entry.name for entry in several.entries]
    parts = {arg: arg.partition("::")[2] for arg in config.args if path_of(config, arg) == path}
    problems += several.problems
    if not all_of_them and parts and all(parts.values()):
        ids = {arg: ungrouped(rest) for arg, rest in parts.items()}
        entries = {arg: _entry_of(rest, names) for arg, rest in ids.items()}
        fix = f"type {shlex.quote(several.file.label)} for all of them"
        problems += [
            Problem(arg, f"{several.not_found(ids[arg].partition('[')[0])}; {fix}")
            for arg, entry in entries.items()
            if entry is None
        ]
        names = [name for name in names if name in entries.values()]
    return [NamedEntry(path, name) for name in names]


def _entry_of(rest: str, names: list[str]) -> str | None:
    return next((name for name in names if rest == name or rest.startswith(f"{name}[")), None)


def problems_of_ids(config: pytest.Config, path: Path | None, prepared: Prepared) -> Iterator[Problem]:
    """Yield a problem for each argument that names a test which the eval in `path` does not have.

    pytest would shorten it, say nothing about what there is instead, and under xdist merely collect no test.
    """
    plan = prepared.collected
    ids = [arg for arg in dict.fromkeys(config.args) if _names_eval(config, arg, path, prepared.config.entry)]
    if not any("::" in arg for arg in ids):
        return
    names = {"", plan.name, *(f"{plan.name}[{unit}]" for unit in plan.units())}
    rows = [row for span in plan.spans for row in span.rows]  # without those that node ids name
    for arg in ids:
        file, _, rest = arg.partition("::")
        if ungrouped(rest) not in names:
            first = next((node_id(f"{file}::{plan.name}", unit) for unit in plan.units()), f"{file}::{plan.name}")
            text = f"not found; this eval has tests like {shlex.quote(first)}, which --co lists"
            key = unit_key(ungrouped(rest))
            row = key.unit.row if key is not None and key.unit.row in rows else next(iter(rows), None)
            if plan.granularity == "run" and row is not None:
                text += f"; {shlex.quote(file)} -k 'row{row}-' selects all runs of a row"
            yield Problem(arg, text)
