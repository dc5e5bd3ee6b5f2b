"""Feeds hosts with runs to roll out, somewhat ahead of their turn, and with conversations to score."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from heapq import heapify, heapreplace
from typing import BinaryIO

from pytest_osmosis.datasets import Row
from pytest_osmosis.engine.job import RescoreJob, ResumeJob, undecided
from pytest_osmosis.engine.run_table import Host, Place, RunState, ScoringGroup, Stage
from pytest_osmosis.engine.runs import Runs
from pytest_osmosis.errors import DatasetError
from pytest_osmosis.host.protocol import Request, RunRequest, ScoreRequest, ScoringFields, scoring_fields
from pytest_osmosis.record.plan import run_seed
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import Event
from pytest_osmosis.record.stored_rollouts import StoredScore
from pytest_osmosis.verdicts.pass_rule import Transcript

SCORER_AHEAD_MS = 20.0
MAX_CREDITS = 64
"""A scorer scores one run after the other. Besides that one it is handed enough to be busy for `SCORER_AHEAD_MS` and
twice the delay of its connection, at most `MAX_CREDITS` runs: it never waits for the next one, and slow functions leave
runs to whichever scorer is free first."""
UNREADABLE = "its row can no longer be read: {}"
STORED_A_TURN = 256
"""A turn reports at most this many stored runs, so that new ones do not wait."""


class Feed:
    """Refills hosts and scorers from the table of runs."""

    def __init__(self, runs: Runs) -> None:
        self._job, self._table, self._runs = runs.job, runs.table, runs
        self._hosts, self._recorder = runs.hosts, runs.recorder
        self._row: Row | None = None
        self._n_not_stored = 0
        eager, batch_size = runs.job.decided is undecided, runs.job.batch_size
        self._most_unscored = 4 * batch_size + 64 if eager else batch_size

    @property
    def has_rescored_all(self) -> bool:
        """True if stored rollouts are rescored, and all of them have been."""
        n_rescored = self._recorder.reports.n_done + self._n_not_stored
        return self._job.rescore is not None and self._job.rescore.whole and n_rescored == self._job.n_runs

    def refill(self, *, rollouts: bool) -> None:
        """Refill all hosts. Without `rollouts` no run begins, and those that are rolled out are scored."""
        if rollouts:
            self._refill_quarantine()
        self._hosts.shares.tell()
        if rollouts and self._job.rescore is not None:
            self._recall(self._job.rescore)
        elif rollouts:
            self._take_back()
            self._refill_hosts()
            if self._job.resume is not None:
                self._report_stored(self._job.resume)
        self._runs.scorings.begin_held(self._most_unscored)
        self._refill_async_scoring()
        self._refill_groups()
        for host in self._hosts.scorers:
            self._refill_scorer(host)

    def _refill_hosts(self) -> None:
        """Hand out the runs that hosts can begin, and more ahead, so that no slot waits for a round trip even if many
        runs end at once; fewer ahead if another host might begin them sooner. A few runs are not worth a message. The
        last ones are for the hosts that can begin them.

        Runs that wait for a retry have no slot, so more than `limit` may have begun. Nothing is handed out while
        scoring lags behind: conversations would pile up, and scores may show that no further run is needed.
        """
        rooms = Counter[Host]()
        handed: list[tuple[Host, RunState]] = []
        if len(self._table.queue) <= self._job.batch_size:
            self._choose(rooms, handed, ahead=False)
        self._choose(rooms, handed, ahead=True)
        self._hand_out(handed)
        for host, room in rooms.items():
            self._hosts.pace(host, room)

    def _choose(self, rooms: Counter[Host], handed: list[tuple[Host, RunState]], *, ahead: bool) -> None:
        """Choose hosts for runs, which are added to `handed`, and the room that hosts had for them to `rooms`."""
        is_alone = self._job.hosts == 1
        for host in self._hosts.rolling:
            if not self._table.queue or self._table.tally.n_unscored > self._most_unscored:
                return
            limit, n_rolling = host.share.limit, host.n_rolling
            most_ahead = limit if is_alone else limit >> 1
            most_ahead = (2 if most_ahead < 2 else most_ahead) if ahead else 0
            room = (limit if limit > n_rolling else n_rolling) + most_ahead - host.n_to_roll_out
            if room >= (most_ahead >> 3 or 1) and limit and host.ready:
                rooms[host] += room
                for state in list(self._next_states(room, host)):
                    state.host = host
                    handed.append((host, state))

    def _hand_out(self, handed: Sequence[tuple[Host, RunState]]) -> None:
        """Send runs to their hosts once the journal says so: from then on the engine may be killed."""
        requests: dict[Host, list[Request]] = {}
        for host, state in handed:
            why = self._runs.why_never(state.run)  # an unreadable row among them may have stopped the eval
            if why is None:
                requests.setdefault(host, []).append(self._run_request(state))
            else:
                self._runs.skip(state.run, why)
        if not requests:
            return
        if self._recorder.hand_out(self._table.tally.n_handed_out):
            for host, requests_of_host in requests.items():
                host.hand(requests_of_host)
            return
        for _, state in reversed(handed):
            if state.run in self._table.states:
                self._runs.requeue(state)

    def _take_back(self) -> None:
        """Let hosts give back what they have not begun, if they may begin nothing or another host could begin it now.

        Runs that are scored together stay with their host.
        """
        rolling = self._hosts.rolling
        others_idle = not (self._table.queue or self._recorder.grouped) and any(
            host.ready and host.n_to_roll_out < host.limit for host in rolling
        )
        for host in rolling:
            if host.gives_back or host.n_to_roll_out <= host.n_rolling:
                continue
            if host.limit < 1 or (others_idle and self._hosts.is_behind(host)):
                host.gives_back = True
                host.hand([{"op": "drop", "model_tag": None}])

    def _next_for(self, host: Host) -> int | None:
        """Return the place in the queue of the next run for a host, None if others have begun the rows of all.

        Runs that are scored together are rolled out in one host, which then has what their environment knows of them.
        """
        queue = self._table.queue
        if not self._recorder.grouped or len(self._hosts.rolling) < 2:
            return 0 if queue else None
        owners = (self._table.groups.of(run).owner for run in queue)
        others = [each for each in self._hosts.rolling if each is not host and each.ready and each.limit > 0]
        return next((place for place, owner in enumerate(owners) if owner not in others), None)

    def _next_states(self, room: int, host: Host) -> Iterator[RunState]:
        """Take up to `room` runs for a host from the queue and read their rows. A run whose row cannot be read fails.

        The budget must have room for each run, beside all that are not rolled out.
        """
        queue, resume = self._table.queue, self._job.resume
        with ExitStack() as stack:
            file: BinaryIO | None = None
            while room > 0 and (place := self._next_for(host)) is not None:
                run = queue[place]
                if not self._runs.may_begin():
                    break
                del queue[place]
                attempt = 1 if resume is None else resume.resumption.attempt(run)
                if self._recorder.grouped:
                    self._table.groups.of(run).owner = host
                try:
                    if self._row is None or self._row.row_index != run.row:
                        file = file or stack.enter_context(self._job.dataset.open())
                        self._row = self._job.dataset.read(file, run.row)
                except DatasetError as error:
                    state = self._table.add(run, self._unread(run), Stage.HANDED_OUT, attempt=attempt)
                    self._runs.fail_rollout(state, "host", UNREADABLE.format(error))
                    continue
                room -= 1
                yield self._table.add(run, self._row, Stage.HANDED_OUT, attempt=attempt)

    def _unread(self, run: RunId) -> Row:
        return Row(run.row, [], None, {}, self._job.dataset.line(run.row))

    def _refill_quarantine(self) -> None:
        """Give the quarantine one run at a time; start it for the first suspect, and close it after the last."""
        suspects = self._table.suspects
        if self._hosts.quarantine is None and suspects:
            self._hosts.add("quarantine")
        host = self._hosts.quarantine
        if host is None or not host.ready or host.runs:
            return
        if not suspects:
            self._hosts.retire_quarantine(host)
            return
        may_take = self._may_score() if suspects.first.is_rolled_out else not self._hosts.shares.are_full
        if not may_take:
            return
        state = suspects.popleft()
        if state.group is not None:
            self._hand_group(host, state.group)
            return
        state.host = host
        if state.is_rolled_out:
            host.hand([self._score_request(state, "host")])
        else:
            state.become(Stage.HANDED_OUT)
            self._hand_out([(host, state)])

    def _recall(self, rescore: RescoreJob) -> None:
        """Let stored rollouts wait for the functions that have no reusable score of them."""
        table = self._table
        unstored = [run for run in table.queue if run in rescore.without_rollout]
        if unstored:
            table.queue = deque(run for run in table.queue if run not in rescore.without_rollout)
            self._n_not_stored += len(unstored)
        for run in unstored:
            self._runs.skip(run, rescore.without_rollout[run])
        while table.queue and table.tally.n_unscored < self._most_unscored:
            run = table.queue.popleft()
            try:
                if self._row is None or self._row.row_index != run.row:
                    self._row = self._job.dataset.row(run.row)
            except DatasetError as error:
                self._runs.skip(run, UNREADABLE.format(error))
                continue
            row = self._row
            rollout = rescore.rollouts.rollout(run)
            state = table.add(run, row, Stage.ROLLED_OUT, attempt=rollout["attempt"])
            state.take(rollout)
            kept = self._reusable(rescore, run)
            record = self._recorder.recall(rescore.rollouts.records[run], kept, row.ground_truth)
            state.n_judge_uses = len(record.judge_uses)
            if record.boundary is not None or record.scored:
                self._runs.done(state)
            else:
                self._runs.scorings.await_scores(state)

    def _reusable(self, rescore: RescoreJob, run: RunId) -> dict[str, StoredScore]:
        """Return the scores of a run that are reused. Those of grouped functions are if they are for all its row."""
        row, grouped = self._job.score_inputs.rows[run.row].whole, self._recorder.grouped
        codes = {} if rescore.calls_all else self._recorder.codes
        kept = rescore.rollouts.scores(run, codes, row)
        for member in self._table.groups.members(run) if grouped else ():
            record = rescore.rollouts.records.get(member)
            is_scored = record is not None and record.rolled and record.boundary is None
            if is_scored and not grouped <= rescore.rollouts.scores(member, codes, row).keys():
                return {name: score for name, score in kept.items() if name not in grouped}
        return kept

    def _report_stored(self, resume: ResumeJob) -> None:
        """Report runs that earlier sessions rolled out, or let them be scored: some at a time, after new runs began."""
        for _ in range(min(STORED_A_TURN, len(self._table.stored))):
            run = self._table.stored[0]
            self._recorder.recall_again(run, resume.resumption)
            self._runs.scorings.recall_group(run, resume.resumption)
            lacks_scores = self._lacks_scores(run)
            if lacks_scores and self._table.tally.n_unscored >= self._most_unscored:
                return
            self._table.stored.popleft()
            self._report_stored_run(resume, run, lacks_scores=lacks_scores)

    def _report_stored_run(self, resume: ResumeJob, run: RunId, *, lacks_scores: bool) -> None:
        record = self._recorder.ledger.records[run]
        why = self._runs.why_never(run) if lacks_scores else None
        row = self._unread(run)
        events: Sequence[Event] = ()
        if lacks_scores or resume.shows(record, self._recorder.pass_rule):
            events = resume.resumption.progress.events(run)
            try:
                row = self._job.dataset.row(run.row)
            except DatasetError as error:
                why = UNREADABLE.format(error) if lacks_scores else None
        if why is not None:
            self._runs.skip(run, why)
            return
        state = self._table.add(run, row, Stage.ROLLED_OUT, attempt=record.attempt)
        state.stored, state.n_judge_uses = True, len(record.judge_uses)
        for event in events:
            state.take(event)
        if lacks_scores:
            self._runs.scorings.await_scores(state)
        else:
            self._runs.done(state)

    def _lacks_scores(self, run: RunId) -> bool:
        return self._recorder.ledger.records[run].boundary is None and not self._recorder.is_scored(run)

    def report_rest(self, reason: str) -> None:
        """Report the stored runs that nothing was done for, because the session ends."""
        while self._table.stored:
            run = self._table.stored.popleft()
            if self._lacks_scores(run):
                self._runs.skip(run, reason)
            else:
                reports, record = self._recorder.reports, self._recorder.ledger.records[run]
                reports.done(record, self._recorder.pass_rule, Transcript())
                reports.count(stored=1)

    def _refill_async_scoring(self) -> None:
        """Let the least busy hosts score what another host left, or what is stored."""
        hosts = self._hosts.scoring
        waiting = self._table.unscored["host"]
        if not hosts or not waiting:
            return
        requests: dict[Host, list[Request]] = {}
        by_load = [(len(host.runs) / host.share.scorings, place) for place, host in enumerate(hosts)]
        heapify(by_load)
        while waiting and self._may_score():
            state = waiting.popleft()
            place = by_load[0][1]
            state.host = host = hosts[place]
            heapreplace(by_load, (len(host.runs) / host.share.scorings, place))
            requests.setdefault(host, []).append(self._score_request(state, "host"))
        for host, requests_of_host in requests.items():
            host.hand(requests_of_host)

    def _refill_groups(self) -> None:
        """Let the host score a group in which most of its runs were rolled out."""
        hosts = self._hosts.scoring
        while hosts and self._table.groups.ready and self._may_score():
            group = self._table.groups.ready.popleft()
            rolled_in = Counter(state.rolled_in for state in group.members)
            host = max(hosts, key=lambda host: (rolled_in[host], -len(host.runs)))
            self._hand_group(host, group)

    def _may_score(self) -> bool:
        """Return True if one more scoring may be handed out; a group is one. Nothing else is limited by the engine."""
        most, states = self._job.most_scorings, self._table.states.values()
        if most is None:
            return True
        in_hosts = {state.group or state for state in states if state.is_rolled_out and state.host is not None}
        return len(in_hosts) + sum(state.scorer is not None for state in states) < most

    def _hand_group(self, host: Host, group: ScoringGroup) -> None:
        group.host = host
        for state in group.members:
            state.host = host
        names = self._recorder.unscored(group.members[0].run, "group")
        runs = [_scoring_fields(state) for state in group.members]
        host.hand([{"op": "score_group", "names": names, "runs": runs}])

    def _refill_scorer(self, host: Host) -> None:
        waiting = self._table.unscored["scorer"]
        if not host.ready or not waiting:
            return
        requests: list[Request] = []
        delay_ms = 1000 * host.connection.delay_s
        ahead_ms = SCORER_AHEAD_MS + 2 * delay_ms
        credits = min(MAX_CREDITS, 1 + math.ceil(ahead_ms / max(host.score_ms, 0.01)))
        while waiting and len(host.runs) < credits and self._may_score():
            state = waiting.popleft()
            state.scorer = host
            requests.append(self._score_request(state, "scorer"))
        host.gather_s = SCORER_AHEAD_MS / 2000 + host.connection.delay_s
        host.hand(requests)

    def _run_request(self, state: RunState) -> RunRequest:
        seed = run_seed(self._job.seed, state.run) if self._job.seed is not None else None
        request: RunRequest = {
            "op": "run",
            **state.key.to_json(),  # type: ignore[typeddict-item]  # it has no "script", which is not required
            "prompt": state.row.messages,
            "ground_truth": state.row.ground_truth,
            "record": state.row.record,
            "seed": seed,
        }
        if self._job.script is not None:
            key = str(state.run if seed is None else seed)
            request["script"] = self._job.script.cell(self._job.dataset, state.row, key)
        return request

    def _score_request(self, state: RunState, place: Place) -> ScoreRequest:
        names = self._recorder.unscored(state.run, place)
        return {"op": "score", "names": names, **_scoring_fields(state)}


def _scoring_fields(state: RunState) -> ScoringFields:
    return scoring_fields(state.key, state.rollout, state.row.ground_truth, state.row.record)
