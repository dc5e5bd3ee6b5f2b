"""Recovery of runs whose host died, was stalled by user code, or failed because of a bug.

A run that had not begun is queued again. One that was rolling is rolled out once more, one at a time, in a quarantine
host; if that host dies too, the run was the culprit. A run whose rollout is in the journal is only scored again, and
the same rule holds for the function that was scoring it.

A machine that is lost with its hosts accuses nobody: what it had begun is queued again. What was lost twice waits for
the quarantine, as it may be what ends machines, and what was lost three times fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_osmosis.engine.host_connection import EndedBy
from pytest_osmosis.engine.host_starts import Host
from pytest_osmosis.engine.run_table import RunState, ScoringGroup, Stage
from pytest_osmosis.engine.runs import Runs
from pytest_osmosis.formats.words import Boundary
from pytest_osmosis.host.protocol import Key
from pytest_osmosis.record.run_record import ENDED_TWICE, LOST_OFTEN, UNINTERRUPTIBLE
from pytest_osmosis.record.stop import Stop
from pytest_osmosis.text.numbers import plural

GROUP = "the functions of its group"
SUSPECT_AT = 2
"""A run or function that loses its machine this often waits for the quarantine."""
REPORT_S = 3.0
"""The hosts of a machine are not lost all at once, as each notices by itself."""
MOST_LOST = 3
"""A run or function that loses its machine this often fails."""


@dataclass(slots=True)
class Loss:
    """A machine that was lost at `since`: how, and the attempts that follow those which it ended."""

    how: str
    since: float
    repeats: list[Key] = field(default_factory=list)


class Recovery:
    """Takes runs back from hosts that are lost."""

    def __init__(self, runs: Runs) -> None:
        self._runs, self._table, self._hosts = runs, runs.table, runs.hosts
        self._recorder, self._notices, self._clock = runs.recorder, runs.notices, runs.job.clock
        self._losses: dict[str, Loss] = {}
        self._told: set[str] = set()

    def stalled(self, host: Host, state: RunState | None, stack: str) -> None:
        """End a host whose user code cannot be interrupted. `state` is the culprit, None if a task that an earlier
        run left behind holds the event loop."""
        if state is not None:
            name = state.running.pop(host, None)
            if state.group is not None and state.group.host is host:
                self._runs.fail_group(state.group, UNINTERRUPTIBLE, stack)
            elif host.role == "scorer" or state.is_rolled_out:
                self._runs.fail_scores(state, [name] if name is not None else [], UNINTERRUPTIBLE, stack)
            else:
                self._runs.fail_rollout(state, "timeout", UNINTERRUPTIBLE, stack)
        host.connection.kill()

    def broken(self, host: Host, state: RunState, boundary: Boundary, error: str) -> None:
        """Fail what a host did for a run: user code cancelled it or damaged the host, or the host has a bug.

        Of a damaged host nothing more is expected. It ends, and as after a crash the run that ends two was the culprit.
        """
        if boundary == "host":
            host.connection.kill()
            if host.role != "quarantine" and state.running.get(host) not in state.accused:
                return
        if not state.is_rolled_out:
            self._runs.fail_rollout(state, boundary, error)
        elif state.group is not None and state.group.host is host:
            self._runs.fail_group(state.group, error)
        elif host.role == "scorer":
            self._runs.fail_scores(state, self._recorder.unscored_blocking(state.run), error)
        else:
            self._runs.fail_scores(state, self._recorder.unscored_async(state.run), error)

    def died(self, host: Host, how: str, by: EndedBy = "host", machine: str = "") -> None:
        """Take back the runs of a dead host."""
        states = list(host.runs)
        if by == "machine":
            loss = self._losses.get(machine or how) or Loss(how, self._clock.now())
            if not self._hosts.closing:
                self._losses[machine or how] = loss
            self._machine_lost(states, host, how, loss)
            return
        match host.role:
            case "host":
                self._rolling_host_died(states, host, how)
            case "quarantine":
                self._quarantine_died(states, host, how)
            case "scorer":
                self._scorer_died(states, host, how)

    def _machine_lost(self, states: list[RunState], host: Host, how: str, loss: Loss) -> None:
        """Repeat what a lost machine did for runs. Several hosts are lost with it: `report_lost` tells of all."""
        for state in reversed(states):  # those that are queued keep their order
            if state.run not in self._table.states:
                continue  # the failure of another one stopped the eval, or it was of a group that failed
            if state.group is not None and state.group.host is host:
                self._lose_group(state.group, host, how)
            elif state.is_rolled_out:
                self._lose_scoring(state, host, how)
            elif state.stage is Stage.ROLLING:
                self._lose_rollout(state, host, how, loss)
            else:
                self._recorder.lose(1)  # what it told of a beginning may be lost too
                if host.role == "quarantine":
                    self._wait_for_quarantine(state)
                else:
                    self._runs.requeue(state)

    def _lose_rollout(self, state: RunState, host: Host, how: str, loss: Loss) -> None:
        """Roll a run out once more that was rolling."""
        self._table.lost[state.run, ""] += 1
        n_lost = self._table.lost[state.run, ""]
        if n_lost >= MOST_LOST:
            self._runs.fail_rollout(state, "host", f"{LOST_OFTEN} ({how})")
            return
        if self._runs.why_never(state.run) is not None:
            self._runs.skip(state.run, "its machine was lost after the eval had stopped")
            return
        repeat = Key(state.run, state.attempt + 1)
        loss.repeats.append(repeat)
        self._runs.unbegun_repeats.add(repeat)
        if host.role == "quarantine" or n_lost >= SUSPECT_AT:
            self._suspect(state)
        else:
            state.attempt += 1
            self._recorder.count(repeated=1)
            self._table.queue_again(state)

    def _wait_for_quarantine(self, state: RunState) -> None:
        """Let a suspect wait before all others that the quarantine had not begun."""
        if (why := self._runs.why_never(state.run)) is not None:
            self._runs.skip(state.run, why)
        else:
            state.host = None
            state.become(Stage.SUSPECT)
            self._table.suspects.appendleft(state)

    def _lose_scoring(self, state: RunState, host: Host, how: str) -> None:
        """Let a run be scored elsewhere, unless its function was lost too often."""
        running = state.running.pop(host, None)
        if running is not None:
            self._table.lost[state.run, running] += 1
        n_lost = 0 if running is None else self._table.lost[state.run, running]
        if host.role == "scorer":
            state.scorer = None
        else:
            state.host = None
        if running is not None and n_lost >= MOST_LOST:
            self._runs.fail_scores(state, [running], f"{LOST_OFTEN} ({how})", boundary="host")
        if not state.is_rolled_out:
            return
        if host.role == "scorer" and self._recorder.unscored_blocking(state.run):
            self._table.unscored_blocking.appendleft(state)
        elif host.role != "scorer" and self._recorder.unscored_async(state.run):
            is_suspect = host.role == "quarantine" or n_lost == SUSPECT_AT
            (self._table.suspects if is_suspect else self._table.unscored_async).append(state)

    def _lose_group(self, group: ScoringGroup, host: Host, how: str) -> None:
        """Let another host score a group, unless it was lost too often."""
        began, first = group.take_back(), group.members[0]
        self._table.lost[first.run, GROUP] += began
        n_lost = self._table.lost[first.run, GROUP]
        if began and n_lost >= MOST_LOST:
            self._runs.fail_group(group, f"{LOST_OFTEN} ({how})", boundary="host")
            return
        self._runs.again(group)
        if host.role == "quarantine" or (began and n_lost == SUSPECT_AT):
            self._table.suspects.append(first)
        else:
            self._table.groups.ready.append(group)

    def report_lost(self, now: float) -> None:
        """Tell the user in one line of each machine that was lost, once all of its hosts should have been heard of.

        The line on a machine that fails again and again appears once, and the summary counts how often.
        """
        due = [machine for machine, loss in self._losses.items() if now - loss.since >= REPORT_S]
        for loss in [self._losses.pop(machine) for machine in due]:
            text = self._loss_text(loss)
            if text in self._told:
                self._notices.add(text)
            else:
                self._told.add(text)
                self._notices.alert(text)

    def _loss_text(self, loss: Loss) -> str:
        """Describe a loss, with the number of runs that have begun once more, or will."""
        unbegun = self._runs.unbegun_repeats
        n = sum(key not in unbegun or self._runs.why_never(key.run) is None for key in loss.repeats)
        verb = "is" if n == 1 else "are"
        return f"{loss.how}; {plural(n, 'run')} that had begun there {verb} rolled out once more" if n else loss.how

    def _rolling_host_died(self, states: list[RunState], host: Host, how: str) -> None:
        for state in reversed([state for state in states if state.stage is Stage.HANDED_OUT]):
            self._runs.requeue(state)
        rolling = [state for state in states if state.stage is Stage.ROLLING]
        if rolling and self._runs.stopped is None:
            again = "is rolled out" if len(rolling) == 1 else "are rolled out"
            runs = plural(len(rolling), "run")
            self._notices.add(
                f"a process that runs your code ended ({how}); {runs} that it had begun {again} once more"
            )
        for state in states:
            if state.group is not None and state.group.host is host:
                self._score_group_elsewhere(state.group)
            elif state.is_rolled_out and state.host is host:
                self._score_elsewhere(state, host)
            elif state.stage is Stage.ROLLING:
                self._suspect(state)

    def _score_group_elsewhere(self, group: ScoringGroup) -> None:
        """Let another host score a group: the quarantine, if a function was running."""
        began = group.take_back()
        self._runs.again(group)
        if began:
            self._table.suspects.append(group.members[0])
        else:
            self._table.groups.ready.append(group)

    def _suspect(self, state: RunState) -> None:
        """Let a run that was rolling wait for the quarantine."""
        if self._runs.why_never(state.run) is not None:
            self._runs.skip(state.run, "its process ended after the eval had stopped")
            return
        state.become(Stage.SUSPECT)
        state.host, state.retrying = None, 0
        state.attempt += 1
        self._recorder.count(repeated=1)
        self._table.suspects.append(state)

    def _score_elsewhere(self, state: RunState, host: Host) -> None:
        """Let another host score a run on its event loop: the quarantine, if a function was running."""
        state.host = None
        running = state.running.pop(host, None)
        (self._table.unscored_async if running is None else self._table.suspects).append(state)

    def _quarantine_died(self, states: list[RunState], host: Host, how: str) -> None:
        """Fail the run that had begun there: both of its hosts died, so it was the culprit."""
        text, details = f"{ENDED_TWICE} ({how})", host.connection.last_words()
        for state in states:
            if state.group is not None and state.group.host is host:
                if any(host in member.running for member in state.group.members):
                    self._runs.fail_group(state.group, text, details)
                else:
                    self._score_group_elsewhere(state.group)
                continue
            if state.run not in self._table.states or state.host is not host:
                continue  # it was of such a group
            state.host = None
            if state.is_rolled_out:
                running = state.running.pop(host, None)
                self._runs.fail_scores(state, [running] if running is not None else [], text, details)
                if state.is_rolled_out and self._recorder.unscored_async(state.run):
                    self._table.unscored_async.append(state)
            elif state.stage is Stage.ROLLING:
                self._runs.fail_rollout(state, "agent", text, details)
            else:
                self._wait_for_quarantine(state)

    def _scorer_died(self, states: list[RunState], host: Host, how: str) -> None:
        """Give its runs to another scorer. A function whose second scorer died fails."""
        for state in states:
            running = state.running.pop(host, None)
            if running in state.accused:
                self._runs.fail_scores(state, [running], f"{ENDED_TWICE} ({how})", host.connection.last_words())
            elif running is not None:
                state.accused.add(running)
            state.scorer = None
            if state.is_rolled_out and self._recorder.unscored_blocking(state.run):
                self._table.unscored_blocking.appendleft(state)

    def give_up_hosts(self, why: str) -> None:
        """Fail what needs a host that cannot be started; runs whose host lives continue."""
        table, hosts = self._table, self._hosts
        lacking = (
            table.suspects,
            table.unscored_async and not hosts.rolling,
            table.groups.ready and not hosts.rolling,
            table.unscored_blocking and not hosts.scorers,
        )
        if not (self._runs.any_left or any(lacking)):
            return
        for state in [*table.suspects]:
            if state not in table.suspects:
                continue  # the failure of an earlier suspect stopped the eval, which skipped this one
            if not state.is_rolled_out:
                self._runs.fail_rollout(state, "host", why)
            elif state.group is not None and state.group.host is None:
                table.suspects.discard(state)
                self._runs.fail_group(state.group, why, boundary="host")
            elif hosts.quarantine is None:
                table.suspects.discard(state)
                self._runs.fail_scores(state, self._recorder.unscored_async(state.run), why, boundary="host")
        self._runs.stop(Stop("systemic", why))
        while table.unscored_async and not hosts.rolling:
            state = table.unscored_async.popleft()
            self._runs.fail_scores(state, self._recorder.unscored_async(state.run), why, boundary="host")
        while table.groups.ready and not hosts.rolling:
            self._runs.fail_group(table.groups.ready.popleft(), why, boundary="host")
        while table.unscored_blocking and not hosts.scorers:
            state = table.unscored_blocking.popleft()
            self._runs.fail_scores(state, self._recorder.unscored_blocking(state.run), why, boundary="host")
