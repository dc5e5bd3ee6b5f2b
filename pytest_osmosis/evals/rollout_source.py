"""The two sources of an eval run's rollouts: the run makes them, or it scores stored ones again.

All that differs between the two is a method here, so that the rest of the eval run does not ask which it has.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from pytest_osmosis.engine.engine import LoadedCode
from pytest_osmosis.engine.job import RescoreJob, ResumeJob
from pytest_osmosis.errors import JournalError, writing
from pytest_osmosis.evals.eval_models import own_sampling, request_sampling
from pytest_osmosis.evals.run_directory import (
    archive,
    check_files,
    check_same_code,
    new_run_directory,
    renew_manifest,
    runs_folder,
    utc_text,
)
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.journal import Journal
from pytest_osmosis.record.lifecycle import Lifecycle
from pytest_osmosis.record.plan import selected_runs
from pytest_osmosis.record.run_directory import RunDirectory, RunLock
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.record.stored_rollouts import Resumption, StoredRollouts
from pytest_osmosis.report.failure_text import lost_text
from pytest_osmosis.results import publish
from pytest_osmosis.results.read import PublishedResults
from pytest_osmosis.results.results import EvalDescription, Rescored, Results
from pytest_osmosis.results.totals import CassetteUse, present
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import count, money, plural
from pytest_osmosis.verdicts.comparison import compare, matched_by_run
from pytest_osmosis.verdicts.pass_rule import PassRule

if TYPE_CHECKING:
    from pytest_osmosis.evals.prepared import Prepared, SelectedRuns
    from pytest_osmosis.evals.run import EvalRun


class _Rollouts:
    """The rollouts of an eval run, of which none is resumed."""

    __slots__ = ()

    def check_code(self, prepared: Prepared, code: Mapping[str, str]) -> None:
        """Raise `CodeError` if rollouts or rows are of other code than was loaded, of which these are the digests."""

    def discard(self, directory: RunDirectory) -> None:
        """Take back what `open_run` did. A directory that holds stored rollouts stays."""

    def resume_job(
        self, prepared: Prepared, selected: SelectedRuns, shows: Callable[[RunRecord, PassRule], bool]
    ) -> ResumeJob | None:
        """Return how the engine resumes stored rollouts, of which it `shows` some; None if it has none."""
        return None

    def leaves_out(self, selected: SelectedRuns) -> bool:
        """Return True if this session leaves out runs that an earlier one performed or left."""
        return False

    def notes(self, run: EvalRun) -> Sequence[str]:
        """Return what to know about the rollouts of a run that is over, besides its results."""
        return ()


@dataclass(frozen=True, slots=True)
class NewRollouts(_Rollouts):
    """The rollouts that an eval run makes itself, in a run directory of its own.

    `name` is that of its directory, None for one that says when it began. With `archives`, the run that has the name
    is renamed first. `refused` says why no run may begin, None if one may.
    """

    asks_models: ClassVar[bool] = True
    status_before: ClassVar[Lifecycle | None] = None
    cassette_then: ClassVar[CassetteUse | None] = None
    outside_of_stored_part: ClassVar[Collection[RunId]] = frozenset()

    name: str | None = None
    archives: bool = False
    refused: str | None = None
    _archived: list[Path] = field(default_factory=list, compare=False, repr=False)

    def open_run(self, prepared: Prepared, began_at: datetime) -> tuple[RunDirectory, Journal]:
        """Return the run directory and its journal, open for writing. Raises `JournalError` if that fails."""
        if self.refused is not None:
            raise JournalError(self.refused)
        if self.archives and self.name is not None:
            self._archived.append(archive(RunDirectory(runs_folder(prepared.config) / self.name), began_at))
        try:
            directory = new_run_directory(prepared, began_at, self.name)
            return directory, Journal.create(directory.journal)
        except JournalError:
            self._restore()
            raise

    def check_code(self, prepared: Prepared, code: Mapping[str, str]) -> None:
        if prepared.environment is not None:
            check_files(prepared.environment, code)

    def rollout_code(self, loaded: LoadedCode) -> Mapping[str, str]:
        """Return the digests of the files that made the rollouts, by path, as far as they are known."""
        return loaded.rollouts or {}

    def discard(self, directory: RunDirectory) -> None:
        """Remove a run directory that was opened in vain, and give its name back to the run that had it.

        The directory of a submitted run stays, because its log says what failed.
        """
        if something_at(directory.submission):
            return
        shutil.rmtree(directory.path, ignore_errors=True)
        self._restore()

    def _restore(self) -> None:
        while self._archived and self.name is not None:
            path = self._archived.pop()
            with suppress(OSError):
                path.rename(path.with_name(self.name))

    def n_to_roll_out(self, runs: Collection[RunId]) -> int:
        """Return how many of these runs ask a model."""
        return len(runs)

    def notes(self, run: EvalRun) -> Sequence[str]:
        n_lost = run.engine.ledger.most_lost
        return [f"{lost_text(n_lost)}, and not counted here"] if n_lost else []

    def provenance(self, began_at: datetime) -> Mapping[str, Any]:
        """Return when the first rollout could begin, and the sessions in which all were made, as results say it."""
        return {"started_at": utc_text(began_at), "sessions": 1}

    def description(self, prepared: Prepared) -> EvalDescription:
        """Return the description of the eval that results contain."""
        config = prepared.config
        seed = config.sampling.seed if prepared.models.target.seed_key is not None else None
        own, prompt = own_sampling(config, prepared.environment), prepared.dataset.system_prompt
        return EvalDescription(
            name=config.name,
            model=config.experiment.model_path,
            n=config.evaluation.n,
            extra={
                "path": shown(config.path),
                "dataset": prepared.dataset.display,
                "selection": prepared.plan.selection,
                "batch_size": config.evaluation.batch_size,
                "sampling": {
                    "seed": None,
                    **own,
                    **request_sampling(config),
                    **({} if seed is None else {"seed": seed}),
                },
                "overridden": [*config.overridden, *config.preset],
                **present(recorded=config.agent.is_recorded),
                **({} if prompt is None else {"system_prompt": prompt}),
                **present(judge=prepared.published_judge),
            },
        )

    def rescore_job(self, *, whole: bool) -> RescoreJob | None:
        """Return what the engine has to score again; `whole` if that is all of the plan."""
        return None

    def rollouts_took_ms(self, eval_run_ms: float) -> float:
        """Return the time from the start of the first rollout to the end of the last."""
        return eval_run_ms

    def results_path(self, run: EvalRun) -> Path:
        """Return the path of the results in the run directory. A partial rescoring does not replace earlier results."""
        return run.directory.results

    def rescored(self, results: Results, run: EvalRun) -> Results:
        """Return the results with the comparison with those that were made of the same rollouts before."""
        return results


NEW_ROLLOUTS = NewRollouts()


def spent_text(prepared: Prepared, rolled: Collection[RunRecord]) -> str:
    """Return the tokens of rollouts and their judges, and what they cost, in words."""
    known = [record for record in rolled if record.was_answered or record.boundary is None]
    costs = [*map(prepared.cost_usd, known), *(prepared.judge_cost_usd(each) for each in rolled if each.judge_uses)]
    tokens = sum((record.tokens or 0) + (record.judge_tokens or 0) for record in rolled)
    cost = "an unknown cost" if None in costs else money(sum(cost for cost in costs if cost is not None))
    return f"{plural(tokens, 'token')}, {cost}"


@dataclass(frozen=True, slots=True)
class PartlyStored(NewRollouts):
    """The rollouts of an eval run for which some are stored already, by a `resumption`; it makes the others itself."""

    resumption: Resumption = field(kw_only=True)

    @property
    def origin(self) -> str:
        """The origin of the stored rollouts, in words."""
        return "earlier sessions"

    def n_to_roll_out(self, runs: Collection[RunId]) -> int:
        return sum(not self.resumption.is_kept(run) for run in runs)

    def resume_job(
        self, prepared: Prepared, selected: SelectedRuns, shows: Callable[[RunRecord, PassRule], bool]
    ) -> ResumeJob | None:
        n_kept = len(selected.runs) - self.n_to_roll_out(selected.runs)
        resumption = self.resumption._replace(part=self.leaves_out(selected))
        return ResumeJob(resumption, n_kept, shows, lambda: self.begin(prepared, selected))

    def begin(self, prepared: Prepared, selected: SelectedRuns) -> None:
        """Prepare the run directory for this session, before it adds to the journal. Raises `JournalError`."""

    def leaves_out(self, selected: SelectedRuns) -> bool:
        return not {*selected.runs}.issuperset(self.resumption.progress.records)

    def notes(self, run: EvalRun) -> Sequence[str]:
        n_stored, of = run.engine.progress.stored, len(run.selected.runs)
        are = "is" if n_stored == 1 else "are"
        stored = [f"{count(n_stored)} of {plural(of, 'run')} {are} from {self.origin}"] if n_stored else []
        return [*stored, *NewRollouts.notes(self, run)]


@dataclass(frozen=True, slots=True)
class ResumeSource(PartlyStored):
    """The rollouts of a resumed eval run: earlier sessions made some of them, this one makes the others."""

    run: StoredEvalRun = field(kw_only=True)

    def open_run(self, prepared: Prepared, began_at: datetime) -> tuple[RunDirectory, Journal]:
        return self.run.directory, Journal.reopen(self.run.directory.journal)

    def check_code(self, prepared: Prepared, code: Mapping[str, str]) -> None:
        if not self.resumption.progress.is_empty:
            check_same_code(self.run.directory, self.resumption.progress.rollout_code, code)
        NewRollouts.check_code(self, prepared, code)

    def discard(self, directory: RunDirectory) -> None:
        """Keep the directory, which holds the stored rollouts."""

    def begin(self, prepared: Prepared, selected: SelectedRuns) -> None:
        """Let the manifest hold the present plan, and keep earlier results apart. Raises `JournalError`."""
        directory, then = self.run.directory, self.run.manifest
        rows = (row for row, _ in then.plan.rows() if row < len(prepared.dataset))
        widened = replace(prepared, plan=prepared.plan.with_named(rows, prepared.dataset.line))
        with writing(shown(directory.path), JournalError):
            if not self.leaves_out(selected) and directory.results.exists():
                directory.results.rename(publish.kept_path(directory.results))
            renew_manifest(directory, widened, datetime.fromisoformat(then.started_at))

    def rollouts_took_ms(self, eval_run_ms: float) -> float:
        return self.resumption.progress.took_ms + eval_run_ms

    def results_path(self, run: EvalRun) -> Path:
        return run.directory.partial_results if self.leaves_out(run.selected) else run.directory.results

    def notes(self, run: EvalRun) -> Sequence[str]:
        notes, progress = PartlyStored.notes(self, run), self.resumption.progress
        again = (
            record
            for record in progress.records.values()
            if record.rolled and run.record(record.run).rolled and run.record(record.run).attempt > record.attempt
        )
        replaced = [*progress.replaced, *again]
        if not replaced:
            return notes
        one, used = len(replaced) == 1, spent_text(run.prepared, replaced)
        before = f"{plural(len(replaced), 'rollout')} {'was' if one else 'were'} made again"
        return [*notes, f"{before}; what {'it' if one else 'they'} used before is not counted here: {used}"]

    def provenance(self, began_at: datetime) -> Mapping[str, Any]:
        manifest, sessions = self.run.manifest, self.resumption.progress.n_sessions + 1
        return {
            "started_at": manifest.started_at,
            "sessions": sessions,
            **present(imported=dict(manifest.imported)),
        }


@dataclass(frozen=True, slots=True)
class RescoreSource(_Rollouts):
    """The stored rollouts of an earlier eval run, to be scored and judged again in its directory.

    `results_then` are those of the earlier run, None if it wrote none. `status_before` is its status, which scoring
    does not change. `without_rollout` holds the reason for each planned run that cannot be scored. With `rescore_all`
    no stored score is reused, even if code and row are unchanged.
    """

    asks_models: ClassVar[bool] = False

    run: StoredEvalRun
    rollouts: StoredRollouts
    results_then: PublishedResults | None
    status_before: Lifecycle
    without_rollout: Mapping[RunId, str]
    rescore_all: bool

    @property
    def outside_of_stored_part(self) -> Collection[RunId]:
        """The runs that no session of the earlier eval run was to roll out."""
        return self.without_rollout.keys() - selected_runs(self.rollouts.selected)

    @property
    def cassette_then(self) -> CassetteUse | None:
        """The cassette from which the stored rollouts were replayed, None if they were measured."""
        use = None if self.results_then is None else self.results_then.cassette
        return use if use is not None and use.mode == "replay" else None

    @property
    def rolled_out_at(self) -> str:
        """The time at which the earlier eval run began, UTC, ISO 8601."""
        return self.run.manifest.started_at

    def open_run(self, prepared: Prepared, began_at: datetime) -> tuple[RunDirectory, Journal]:
        return self.run.directory, Journal.reopen(
            self.run.directory.journal, RunLock.take(self.run.directory, "scoring")
        )

    def rollout_code(self, loaded: LoadedCode) -> Mapping[str, str]:
        return self.rollouts.rollout_code

    def n_to_roll_out(self, runs: Collection[RunId]) -> int:
        return 0

    def provenance(self, began_at: datetime) -> Mapping[str, Any]:
        return {"started_at": self.rolled_out_at}

    def description(self, prepared: Prepared) -> EvalDescription:
        """Return the earlier description, with the name and the overrides of the present config."""
        config, then = prepared.config, EvalDescription.of(self.run.manifest)
        now = {"path": shown(config.path), "overridden": [*config.overridden, *config.preset]}
        extra = {key: value for key, value in then.extra.items() if key != "judge"}
        return replace(then, name=config.name, extra={**extra, **now, **present(judge=prepared.published_judge)})

    def rescore_job(self, *, whole: bool) -> RescoreJob | None:
        return RescoreJob(self.rollouts, self.without_rollout, self.rescore_all, whole)

    def rollouts_took_ms(self, eval_run_ms: float) -> float:
        return self.rollouts.took_ms

    def results_path(self, run: EvalRun) -> Path:
        return run.directory.results if run.engine.recorder.is_rescored else run.directory.partial_results

    def rescored(self, results: Results, run: EvalRun) -> Results:
        now, then = run.directory.results, self.results_then
        kept = publish.kept_path(now) if run.engine.recorder.is_rescored else now
        compared = compare(matched_by_run(results.measured_runs(), {} if then is None else then.measured_runs()))
        rescored = Rescored(
            rolled_out_at=self.rolled_out_at,
            duration_ms=round(run.duration_ms, 3),
            kept=run.engine.recorder.kept,
            previous=None if then is None else kept.name,
            **compared.counts,
        )
        changed = [*compared.changed("rescored"), *results.changed_rows]
        return replace(results, rescored=rescored, status_before=self.status_before, changed_rows=changed)
