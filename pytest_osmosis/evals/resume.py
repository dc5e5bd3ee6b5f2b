"""Resume a stored eval run (`--osmosis-resume`, `--osmosis-run=NAME`): which run, and if its inputs are the same.

`prepare` prepares the present config as for a new eval run; `resumed` then gives it the rollouts that are stored.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis.config import EvalConfig
from pytest_osmosis.errors import JournalError, OsmosisError, ProblemsError, ResultsError
from pytest_osmosis.evals.prepared import Prepared
from pytest_osmosis.evals.rollout_source import NewRollouts, ResumeSource, spent_text
from pytest_osmosis.evals.run_directory import changed_in_manifest, changed_inputs, is_reserved, refusal, runs_folder
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.record.find_run import LATEST, StoredEvalRun, began_at, is_run, stored
from pytest_osmosis.record.plan import Shard
from pytest_osmosis.record.run_directory import RunDirectory, held_text, holder_of
from pytest_osmosis.record.stored_rollouts import Resumption, StoredProgress
from pytest_osmosis.results.previous_run import previous_run
from pytest_osmosis.results.read import read_head
from pytest_osmosis.text.names import listed, shown
from pytest_osmosis.text.numbers import seconds

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=,~-]{0,209}")
MOST_CANDIDATES = 5
PATIENCE_S = 1.0
"""A process that was killed a moment ago may still hold the lock."""


class ResumeRequest(Struct, frozen=True):
    """The request to resume a run: the run called `name`, or else the newest one that has something left.

    `only_resumes` if no run may begin. `retries_failed` also repeats runs that broke in the agent or in a function.
    `fresh` renames the run that has the name, and begins anew.
    """

    name: str | None
    only_resumes: bool
    retries_failed: bool = False
    fresh: bool = False


def why_no_name(name: str) -> str | None:
    """Return why a run cannot have this name, None if it can.

    >>> why_no_name("nightly-2026.11") is None, why_no_name("latest")
    (True, 'means the newest eval run; choose another name')
    """
    if not _NAME.fullmatch(name):
        rule = "letters, digits, - _ . + = , and ~ make a name; it begins with a letter or a digit, and has at most 210"
        return f'"{name}" is no name of a run: {rule}'
    if name == LATEST:
        return "means the newest eval run; choose another name"
    return "is the name of a config; choose a name without .toml" if name.endswith(".toml") else None


def resumed(prepared: Prepared, request: ResumeRequest, *, n_evals: int = 1) -> Prepared:
    """Return an eval with the stored rollouts that it resumes, or with the name that its new run gets.

    With several evals in the command, each run is called by the name and its eval. So is one that began so, if the
    command names its eval alone. Raises `ProblemsError`.
    """
    if request.name is None:
        return _newest(prepared, request, n_evals)
    name = _name(prepared.config, request.name, n_evals)
    directory = RunDirectory(runs_folder(prepared.config) / name)
    if is_run(directory.path) and not is_reserved(directory):
        _refuse_held(directory)
        if request.fresh:
            return replace(prepared, source=NewRollouts(name, archives=True))
        try:
            run = stored(directory)
        except OsmosisError as error:
            raise _problem(name, str(error)) from None
        source = _source(request, run)
        _refuse_others(prepared, source.run, source.resumption.progress)
        return _going_on(prepared, source)
    if something_at(directory.path) and not is_reserved(directory):
        fix = "choose another name, or move it away"
        raise _problem(name, f"{shown(directory.path)} exists, and holds no eval run; {fix}")
    if request.only_resumes:
        fix = "leave out --osmosis-resume to begin an eval run with this name"
        raise _problem(name, f"not found in {shown(directory.path.parent)}, so there is nothing to resume; {fix}")
    return replace(prepared, source=NewRollouts(name))


def _name(config: EvalConfig, name: str, n_evals: int) -> str:
    runs, of_several = runs_folder(config), f"{name}-{config.name}"
    began_with_others = config.entry is not None and is_run(runs / of_several) and not something_at(runs / name)
    return of_several if n_evals > 1 or began_with_others else name


def _newest(prepared: Prepared, request: ResumeRequest, n_evals: int) -> Prepared:
    """Resume the newest run that fits and has something left. One of several evals may be finished."""
    finished: ResumeSource | None = None
    others = dict[str, str]()
    for run in _runs_of(prepared):
        name = run.directory.name
        if (why := _why_unfit(prepared, run)) is not None:
            others[name] = why
            continue
        source = _source(request, run)
        if changes := changed_inputs(run, prepared, source.resumption.progress):
            others[name] = "; ".join(changes)
        elif any(map(source.resumption.is_left, prepared.collected.every_run())):
            _refuse_held(run.directory)
            return _going_on(prepared, source)
        else:
            others[name] = "has nothing left to do"
            finished = finished or source
    if n_evals > 1 and finished is not None:
        return _going_on(prepared, finished)
    text = _why_none(prepared, others, finished)
    if n_evals > 1:
        return replace(prepared, source=NewRollouts(refused=text))
    raise ProblemsError.at(shown(prepared.config.path), text)


def _why_unfit(prepared: Prepared, run: StoredEvalRun) -> str | None:
    """Return why a run is not the one to resume, by its manifest; None if it may be.

    As for `prime eval`, environment, model and runs per row are the same, and its rows are among those of now. Ours may
    not differ in the other inputs of rollouts either.
    """
    then, now = run.manifest.plan.n, prepared.plan.n
    if changes := changed_in_manifest(run, prepared):
        return "; ".join(changes)
    return f"[evaluation] n: {then:,} -> {now:,}; --osmosis-run={run.directory.name} adds them" if then < now else None


def _why_none(prepared: Prepared, others: Mapping[str, str], finished: ResumeSource | None) -> str:
    """Return why no run can be resumed. `others` are the runs of the eval, newest first, with what is against each."""
    config = prepared.config
    if not others:
        prefix = "" if prepared.shard is None else f"{prepared.shard} of "
        return (
            f"no eval run of {prefix}{config.name} is stored in {shown(runs_folder(config))}, so there is "
            "nothing to resume; leave out --osmosis-resume to begin one"
        )
    begin = "leave out --osmosis-resume to begin a new eval run, which costs money"
    if len(set(others.values())) == 1 and finished is not None:
        return (
            f"no eval run has anything left to do: {listed(others, 3)}; {begin}, or name one with --osmosis-run=NAME "
            "to report it again; --osmosis-retry-failed repeats runs that failed"
        )
    lines = [f"  {name}: {why}" for name, why in others.items()]
    further = [f"  and {len(lines) - MOST_CANDIDATES:,} more"] if len(lines) > MOST_CANDIDATES else []
    shown_lines = "\n".join([*lines[:MOST_CANDIDATES], *further])
    return f"no stored eval run of {config.name} can be resumed:\n{shown_lines}\nundo what differs, or {begin}"


def _runs_of(prepared: Prepared) -> list[StoredEvalRun]:
    """Return the stored runs of an eval, newest first; those whose manifest cannot be read are left out.

    They are runs of the same shard, if the eval is limited to one.
    """
    found = []
    for path in sorted(filter(is_run, runs_folder(prepared.config).glob("*")), key=began_at, reverse=True):
        if is_reserved(RunDirectory(path)):
            continue
        try:
            run = stored(RunDirectory(path))
        except OsmosisError:
            continue
        if _is_of(run, prepared) and run.manifest.shard == prepared.shard and ".archived-" not in path.name:
            found.append(run)
    return found


def _is_of(run: StoredEvalRun, prepared: Prepared) -> bool:
    """Return True for a run of the same config, if it was one of the same kind: whole, or a smoke test."""
    config, manifest = prepared.config, run.manifest
    same_config = run.config is None if config.text is None else run.config == config.path
    return same_config and manifest.eval == config.name and manifest.smoke == (prepared.smoke is not None)


def _of_shard(shard: Shard | None) -> str:
    return "a run of all rows" if shard is None else f"{shard}"


def _going_on(prepared: Prepared, source: ResumeSource) -> Prepared:
    """Return an eval that resumes stored rollouts."""
    without = source.run.directory.path
    head = previous_run(runs_folder(prepared.config), prepared.plan_digest, without=without).head
    return replace(prepared, source=source, last=head)


def _refuse_held(directory: RunDirectory) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while (holder := holder_of(directory)) is not None:
        if time.monotonic() > give_up_at:
            raise _problem(directory.name, held_text(directory, holder))
        time.sleep(0.02)


def _refuse_others(prepared: Prepared, run: StoredEvalRun, progress: StoredProgress) -> None:
    """Raise `ProblemsError` if a run belongs to another eval, or if its rollouts would be others now."""
    name, config = run.directory.name, prepared.config
    if not _is_of(run, prepared):
        smoke = "a smoke test of " if run.manifest.smoke else ""
        text = f"belongs to {smoke}{run.manifest.eval} ({shown(Path(run.manifest.plan.path))}), not to {config.name}"
        raise _problem(name, f"{text}; choose another name")
    if run.manifest.shard != prepared.shard:
        then = run.manifest.shard
        fix = "leave out --osmosis-shard" if then is None else f"add --osmosis-shard={then.index}/{then.of}"
        text = f"is {_of_shard(then)}, and not {_of_shard(prepared.shard)}; {fix} to resume it"
        raise _problem(name, f"{text}, or choose another name")
    if changes := changed_inputs(run, prepared, progress):
        raise _problem(name, f"{refusal(changes)}, or only score its rollouts with --osmosis-from={name}")


def _source(request: ResumeRequest, run: StoredEvalRun) -> ResumeSource:
    name, journal = run.directory.name, run.directory.journal
    if not something_at(journal):
        raise _problem(name, f"has no journal ({shown(journal)}); begin a new eval run")
    try:
        progress = StoredProgress(journal)
    except JournalError as error:
        raise _problem(name, str(error)) from None
    if progress.is_empty and _hold_runs(run.results):
        text = f"its journal ({shown(journal)}) is empty, though results were written, so it was damaged"
        raise _problem(name, f"{text}; restore it, or begin a new eval run")
    return ResumeSource(run=run, resumption=Resumption(progress, request.retries_failed))


def _hold_runs(results: Path | None) -> bool:
    """Return True for results with runs that ended. An eval whose turn never came has none, and an empty journal."""
    try:
        return results is not None and read_head(results).summary.total_runs > 0
    except ResultsError:
        return True


def _problem(name: str, text: str) -> ProblemsError:
    return ProblemsError.at(f"eval run {name}", text)


def spent_before(prepared: Prepared, source: ResumeSource) -> str:
    """Return what the earlier sessions of a run used in words, also for rollouts that were made again since."""
    progress = source.resumption.progress
    rolled = [*(record for record in progress.records.values() if record.rolled), *progress.replaced]
    return f"{spent_text(prepared, rolled)}, {seconds(progress.took_ms / 1000)}"
