"""The way of runs through an eval: they are submitted, rolled out, scored, done or skipped, until it stops."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence, Set

from msgspec.structs import replace

from pytest_osmosis.engine.budget import Budget, Systemic
from pytest_osmosis.engine.hosts import Hosts
from pytest_osmosis.engine.job import Job
from pytest_osmosis.engine.notices import Notices
from pytest_osmosis.engine.recorder import Recorder
from pytest_osmosis.engine.run_table import Host, RunState, RunTable, ScoringGroup, Stage
from pytest_osmosis.formats.events import RolloutEvent, ScoreEvent, ScoringError, score_event
from pytest_osmosis.host.protocol import JUDGE, Key, ProgressEvent
from pytest_osmosis.record.lifecycle import Stop
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import Boundary, RunRecord
from pytest_osmosis.record.stored_rollouts import Resumption, StoredProgress
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.verdicts.pass_rule import Transcript


class Runs:
    """Moves runs through their stages, and stops the eval.

    `stopped` says why no further run begins, `baseline_stopped` why no further run of the baseline begins.
    """

    def __init__(self, job: Job, table: RunTable, hosts: Hosts, recorder: Recorder, notices: Notices) -> None:
        self.stopped: Stop | None = None
        self.baseline_stopped: str | None = None
        self.job = job
        self.table = table
        self.hosts = hosts
        self.recorder = recorder
        self.notices = notices
        self._n_skipped = 0
        self._replicas_out: set[str] = set()
        self._systemic = {tag: Systemic(job.batch_size) for tag in ModelTag}
        self._budget = Budget(job.bounds, job.hosts)
        self.scorings = RunScorings(self)
        if job.resume is not None:
            self._learn_from(job.resume.resumption.progress)

    def _learn_from(self, progress: StoredProgress) -> None:
        """Learn from the rollouts of earlier sessions: what they used, and that some succeeded."""
        stored = [record for record in progress.records.values() if record.rolled]
        for record in stored:
            self._systemic[record.run.model].succeeded |= record.boundary is None
        for record in (*stored, *progress.replaced):
            self._budget.recall(record)

    def submit(self, runs: Sequence[RunId]) -> None:
        """Take runs that will be performed. With grouped functions, they bring the other runs of their row."""
        if self.recorder.grouped:
            runs = list(dict.fromkeys([*runs, *(each for run in runs for each in self.table.groups.members(run))]))
        new = self.table.submit(runs)
        self.recorder.reports.count(submitted=len(new))
        for run in new:
            if self._is_stored(run):
                self.table.stored.append(run)
            elif (why := self.why_never(run)) is not None:
                self.skip(run, why)
            else:
                self.table.queue.append(run)

    def _is_stored(self, run: RunId) -> bool:
        """Return True if an earlier session rolled a run out, and this one does not again."""
        return self.job.resume is not None and self.job.resume.resumption.is_kept(run)

    def dropped(self, key: Key) -> None:
        state = self.table.states.get(key.run)
        if state is not None and state.key == key and not state.is_begun:
            self.requeue(state)

    def requeue(self, state: RunState) -> None:
        """Queue a run again that has not begun, before all others; skip it if it will not begin any more."""
        if (why := self.why_never(state.run)) is not None:
            self.skip(state.run, why)
        else:
            self.table.queue_again(state)

    def may_begin(self) -> bool:
        """True if a further run probably fits the budget. Stops the eval if it never will: nothing is in flight.

        Runs that judges score are in flight, but not those that wait for other runs to be rolled out.
        """
        table = self.table
        n_to_judge = table.tally.n_unscored + len(table.stored) if self.job.bounds.judged else 0
        n_in_flight = table.tally.n_to_roll_out + n_to_judge
        misfit = self._budget.misfit(n_in_flight)
        if misfit is not None and not n_in_flight:
            self.stop(misfit.full())
        return misfit is None

    def why_never(self, run: RunId) -> str | None:
        """Return why a run will not begin, None if it will."""
        if self.stopped is not None:
            return self.stopped.text
        return self.baseline_stopped if run.is_baseline else None

    @property
    def any_left(self) -> bool:
        table, resume = self.table, self.job.resume
        n_own = self.job.n_runs - (0 if resume is None else resume.n_kept)
        n_under_way = len(table.states) - table.tally.n_stored
        n_seen = self.recorder.reports.n_rolled_out + self._n_skipped + n_under_way
        return bool(table.queue) or n_seen < n_own or table.tally.n_unbegun > 0

    def check_time(self, now: float) -> None:
        """Stop once the eval has run for as long as it may. Its time begins with the first call."""
        reached = self._budget.at(now)
        if reached is not None and self.any_left:
            self.stop(reached)

    def stop(self, stop: Stop) -> None:
        """Begin no further run; those that had not begun are skipped."""
        if self.stopped is None:
            self.stopped = stop
            self._skip_unbegun(None)

    def stop_baseline(self, text: str) -> None:
        """Begin no further run of the baseline; the eval continues."""
        if self.baseline_stopped is None and self.stopped is None:
            self.baseline_stopped = text
            self.notices.alert(f"no further request is sent to the baseline's model: {text}")
            self._skip_unbegun(ModelTag.BASELINE)

    def probe_failed(self, tag: str, error: str) -> None:
        """Remember an error of the probe that runs need not meet."""
        if tag != JUDGE:
            self._systemic[ModelTag(tag)].probe_error = error

    def stop_model(self, tag: str, cause: str) -> None:
        """Stop the eval, or its baseline, because no further run of this model, or of this judge, could succeed."""
        if tag == ModelTag.BASELINE:
            self.stop_baseline(cause)
        else:
            self.stop(Stop("systemic", f"the judge: {cause}" if tag == JUDGE else cause))

    def _skip_unbegun(self, model: ModelTag | None) -> None:
        """Skip the runs that have not begun: all of them, or those of one model."""
        table = self.table
        suspects = [state.run for state in table.suspects if not state.is_rolled_out]
        skipped = [run for run in (*suspects, *table.queue) if model in (None, run.model)]
        table.queue = deque(run for run in table.queue if model not in (None, run.model))
        for run in skipped:
            self.skip(run, self.why_never(run) or "")
        self.hosts.broadcast({"op": "drop", "model_tag": model and str(model)})

    def give_up(self, reason: str, submitted: Iterable[RunId] = ()) -> None:
        """Skip everything, as the engine itself is broken."""
        self.stopped = self.stopped or Stop("systemic", reason)
        self.recorder.lose(self.table.tally.n_handed_out)
        self.table.submit(submitted)
        self.table.clear()
        self.recorder.give_up(self.table.submitted, reason)

    def abandon(self, reason: str) -> None:
        """Skip all that is under way. Hosts that did not give their runs back may have begun them."""
        self.recorder.lose(self.table.tally.n_handed_out)
        for state in list(self.table.states.values()):
            if state.run not in self.table.states:
                continue
            if state.group is None:
                self.skip(state.run, reason)
            else:  # its scores stand if it was only scored again with others
                self.scorings.end_unscored(state, reason)

    def heard(self, host: Host, state: RunState, event: ProgressEvent, raw: bytes) -> None:
        match event["ev"]:
            case "start":
                self.hosts.starts.has_begun(host)
                state.become(Stage.ROLLING)
                self.recorder.enter(event, raw)
            case "retry":
                state.retrying += 1 if event["waits"] else -1
            case "rollout":
                self._rolled_out(state, event, raw)
            case "scoring":
                self.hosts.starts.has_begun(host)
                state.running[host] = event["name"]
            case "score":
                host.score_ms += (event["ms"] - host.score_ms) / 8
                state.running.pop(host, None)
                self.scorings.scored(state, event, raw)

    def _announce_replicas(self, record: RunRecord) -> None:
        """Tell the user once which replica of the model was left out."""
        for replica in record.replicas:
            if replica.left_out and replica.name not in self._replicas_out:
                self._replicas_out.add(replica.name)
                _, error = replica.left_out[0]
                self.notices.announce(f"replica {replica.name} is left out, and the others get its requests: {error}")

    def judge_all(self) -> None:
        """Say so at the end if all runs of a model met the same error, and too few to stop it earlier."""
        self.baseline_stopped = self.baseline_stopped or self._systemic[ModelTag.BASELINE].met_by_all()
        cause = self._systemic[ModelTag.PRIMARY].met_by_all()
        if cause is not None and (self.stopped is None or self.stopped.reason in ("closed", "decided")):
            self.stopped = Stop("systemic", cause)

    def _rolled_out(self, state: RunState, event: RolloutEvent, raw: bytes) -> None:
        systemic = self._systemic[state.run.model]
        if systemic.is_of_probe(event):
            event, raw = self.recorder.redacted(event | {"boundary": "provider"})
        record = self.recorder.enter(event, raw)
        state.become(Stage.ROLLED_OUT)
        state.take(event)
        self._announce_replicas(record)
        self.recorder.reports.count(tokens=record.tokens or 0)
        if self.hosts.throttle.pauses and record.boundary is None:
            self.hosts.throttle.finished()
            self.hosts.shares.renew()
        if (cause := systemic.saw(event)) is not None:
            self.stop_model(state.run.model, cause)
        elif (reached := self._budget.rolled_out(record)) is not None and self.any_left:
            self.stop(reached)
        if record.boundary is not None:
            self.done(state)
            return
        state.rolled_in = state.host
        self.scorings.await_scores(state, scored_in=state.host if self.job.setup.scores_at_once else None)

    def fail_rollout(self, state: RunState, boundary: Boundary, error: str, details: str = "") -> None:
        """Enter the `rollout` event of a run whose host cannot write it."""
        event: RolloutEvent = {
            "ev": "rollout",
            **state.key.to_json(),  # type: ignore[typeddict-item]  # it lacks optional fields
            "ms": 0.0,
            "messages": list(state.row.messages),
            "n_prompt": len(state.row.messages),
            "boundary": boundary,
            "error": error,
            "details": details,
        }
        self._rolled_out(state, *self.recorder.redacted(event))

    def done(self, state: RunState) -> None:
        """Report a run that failed or has all its scores, and stop the eval if that decides it."""
        recorder, record = self.recorder, self.recorder.ledger.records[state.run]
        self.table.remove(state, Stage.DONE)
        if recorder.grouped:
            self.table.groups.leave_out(state.run, failed=record.boundary is not None)
        transcript = Transcript(
            messages=state.rollout.get("messages", ()),
            n_prompt=state.rollout.get("n_prompt", 0),
            details=state.details,
            output=tuple(state.output.items()),
            line=state.row.line,
            ground_truth=state.row.ground_truth,
        )
        recorder.reports.done(record, recorder.pass_rule, transcript)
        reached = self._counted(state, record)
        decided = None if state.run.is_baseline else self.job.decided(record, recorder.pass_rule)
        if recorder.reports.n_unmeasured > self.job.bounds.max_errors:
            text = f"more runs than [limits] max_errors ({self.job.bounds.max_errors_text}) could not be measured"
            self.stop(Stop("max_errors", text))
        elif reached is not None and self.any_left:
            self.stop(reached)
        elif decided is not None and self.any_left:
            self.stop(Stop("decided", decided))

    def _counted(self, state: RunState, record: RunRecord) -> Stop | None:
        """Count the judges of a run that is done, but not those of earlier sessions again."""
        n_before = state.n_judge_uses
        further = replace(record, judge_uses=record.judge_uses[n_before:]) if n_before else record
        if not state.stored or self.job.resume is None:
            return self._budget.done(further)
        self.recorder.reports.count(stored=1)
        before = self.job.resume.resumption.progress.records[state.run]
        return self._budget.done(further, is_new=before.status == "pending")

    def skip(self, run: RunId, reason: str) -> None:
        if self.stopped is None:  # the eval continues without it
            self.recorder.reports.count(submitted=-1)
        self._n_skipped += not self._is_stored(run)
        if (state := self.table.states.get(run)) is not None:
            self.table.remove(state, Stage.DONE)
        self.recorder.skip(run, reason)
        if self.recorder.grouped:
            self.scorings.break_group(run, reason)


class RunScorings:
    """Lets runs that are rolled out be scored: alone, by hosts and scorers, or with the others of their row."""

    def __init__(self, runs: Runs) -> None:
        self._runs, self._job, self._table, self._recorder = runs, runs.job, runs.table, runs.recorder

    def await_scores(self, state: RunState, *, scored_in: Host | None = None) -> None:
        """Let a run that is rolled out be scored; `scored_in` is the host that scores it without a further request."""
        if not self._job.interleaved and self._job.rescore is None:
            state.waits, state.host = True, None
            self._table.held.append(state)
        else:
            self._begin(state, scored_in)

    def begin_held(self, most: int) -> None:
        """Let up to `most` runs be scored that waited for the last rollout, if it has ended."""
        table = self._table
        if not table.held or (self._runs.any_left and self._runs.stopped is None):
            return
        if table.queue or table.tally.n_to_roll_out:
            return
        while table.held and table.tally.n_unscored < most:
            state = table.held.popleft()
            state.waits = False
            self._begin(state, None)

    def _begin(self, state: RunState, scored_in: Host | None) -> None:
        if self._recorder.unscored(state.run, "scorer"):
            self._table.unscored["scorer"].append(state)
        if not self._recorder.unscored(state.run, "host"):
            state.host = None
            self._seek_group(state)
        elif scored_in is None:
            state.host = None
            self._table.unscored["host"].append(state)

    def scored(self, state: RunState, event: ScoreEvent, raw: bytes) -> None:
        recorder, group = self._recorder, state.group
        recorder.enter(event, raw)
        state.take(event)
        if not recorder.unscored(state.run, "scorer"):
            state.scorer = None
        if group is not None and group.host is not None:
            self._scored_with_group(state, group, {*event["scores"], *event["errors"]})
            return
        is_out = not recorder.unscored(state.run, "host")
        if is_out:
            state.host = None
        if recorder.is_scored(state.run):
            self._runs.done(state)
        elif is_out:
            self._seek_group(state)

    def _scored_with_group(self, state: RunState, group: ScoringGroup, names: Set[str]) -> None:
        """Take a score of a member: until all have theirs, the death of the host lets all be scored again."""
        if names & self._recorder.grouped and not self._recorder.unscored(state.run, "group"):
            group.arrived.add(state.run)
        if group.arrived != group.waiting.keys():
            return
        members, group.host = group.members, None
        for member in members:
            member.host, member.rolled_in = None, None
            if self._recorder.is_scored(member.run):
                self._runs.done(member)

    def fail(
        self, state: RunState, names: Sequence[str], error: str, details: str = "", *, boundary: Boundary = "reward"
    ) -> None:
        """Enter the `score` event of functions whose process cannot write it, if there are any."""
        if not names:
            return
        failed: ScoringError = {"message": error, "details": details}
        if boundary != "reward":
            failed["boundary"] = boundary
        errors = dict.fromkeys(names, failed)
        event = score_event(state.key.to_json(), 0.0, {}, errors, state.row.ground_truth)
        self.scored(state, *self._recorder.redacted(event))

    def fail_group(self, group: ScoringGroup, error: str, details: str = "", *, boundary: Boundary = "reward") -> None:
        """Enter that no member of a group can be scored."""
        group.take_back()
        self.repeat(group)
        for state in group.members:
            self.fail(state, self._recorder.unscored(state.run, "group"), error, details, boundary=boundary)

    def repeat(self, group: ScoringGroup) -> None:
        """Let all members of a group be scored again, also those that have their scores."""
        for run in group.arrived:
            self._recorder.score_again(run)
        group.arrived.clear()

    def _seek_group(self, state: RunState) -> None:
        """Let a run wait for the others of its row if only grouped functions are left, besides those that block."""
        if state.group is not None or not self._recorder.unscored(state.run, "group"):
            return
        broken = self._table.groups.of(state.run).broken
        if broken is not None:
            self.end_unscored(state, broken)
        else:
            self._table.groups.wait(state)

    def break_group(self, run: RunId, reason: str) -> None:
        """Give up the group of a run that will not be rolled out: a part of a group is never scored."""
        group = self._table.groups.of(run)
        if group.broken is None:
            group.broken = f"not every run of its row was rolled out: {reason}"
            for state in group.members:
                if state.run in self._table.states and state.run != run:
                    self.end_unscored(state, group.broken)

    def end_unscored(self, state: RunState, reason: str) -> None:
        """Skip a run whose group is broken; one that has scores of an earlier session keeps them."""
        self._recorder.keep_scores(state.run)
        if self._recorder.is_scored(state.run):
            self._runs.done(state)
        else:
            self._runs.skip(state.run, reason)

    def recall_group(self, run: RunId, resumption: Resumption) -> None:
        """Let a stored rollout be scored again if grouped functions score any run of its row again."""
        grouped = self._recorder.grouped
        if not grouped or self._runs.why_never(run) is not None:
            return

        def is_complete(member: RunId) -> bool:
            if not resumption.is_kept(member):
                return False  # it is rolled out now
            record = resumption.progress.records[member]
            scored = {*record.scores, *record.scorer_errors} - resumption.scored_again(record)
            return record.boundary is not None or grouped <= scored

        if not all(map(is_complete, self._table.groups.members(run))):
            self._recorder.score_again(run)

    def say_what_groups_lacked(self) -> None:
        """Tell the user at the end of groups that were scored without runs that failed."""
        groups = self._table.groups
        if groups.n_smaller:
            rows, runs = plural(groups.n_smaller, "row"), plural(groups.n_left_out, "run")
            self._runs.notices.add(f"the runs of {rows} were scored together without {runs} that failed")
