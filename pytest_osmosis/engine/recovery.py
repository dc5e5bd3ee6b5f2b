"""Recovery of runs whose host died, was stalled by user code, or failed because of a bug.

A run that had not begun is queued again. One that was rolling is rolled out once more, one at a time, in a quarantine
host; if that host dies too, the run was the culprit. A run whose rollout is in the journal is only scored again, and
the same rule holds for the function that was scoring it.

A machine that is lost with its hosts accuses nobody: what it had begun is queued again. What was lost twice waits for
the quarantine, as it may be what ends machines, and what was lost three times fails.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum, auto

from pytest_osmosis.engine.host_connection import EndedBy
from pytest_osmosis.engine.run_table import Host, Place, RunState, ScoringGroup, Stage
from pytest_osmosis.engine.runs import Runs
from pytest_osmosis.formats import Boundary
from pytest_osmosis.record.lifecycle import Stop
from pytest_osmosis.record.run_record import ENDED_TWICE, LOST_OFTEN, UNINTERRUPTIBLE
from pytest_osmosis.text.numbers import plural

GROUP = "the functions of its group"
SUSPECT_AT = 2
"""A run or function that loses its machine this often waits for the quarantine."""
REPORT_S = 3.0
"""The hosts of a machine are not lost all at once, as each notices by itself."""
MOST_LOST = 3
"""A run or function that loses its machine this often fails."""


class NextStep(Enum):
    """The place where a run or function that lost its host is tried again; FAILED: nowhere."""

    ELSEWHERE = auto()
    QUARANTINE = auto()
    FAILED = auto()


class Recovery:
    """Takes runs back from hosts that are lost."""

    def __init__(self, runs: Runs) -> None:
        self._runs, self._scorings, self._table, self._hosts = runs, runs.scorings, runs.table, runs.hosts
        self._recorder, self._notices, self._clock = runs.recorder, runs.notices, runs.job.clock
        self._lost_at: dict[str, float] = {}
        self._told: set[str] = set()

    def stalled(self, host: Host, state: RunState | None, stack: str) -> None:
        """End a host whose user code cannot be interrupted. `state` is the culprit, None if a task that an earlier
        run left behind holds the event loop."""
        if state is not None:
            name = state.running.pop(host, None)
            limit = "grader_timeout_s" if state.is_rolled_out else "agent_workflow_timeout_s"
            names = [name] if name is not None else []
            self._fail(host, state, names, "timeout", f"{UNINTERRUPTIBLE} ({limit})", stack)
        host.connection.kill()

    def broken(self, host: Host, state: RunState, boundary: Boundary, error: str) -> None:
        """Fail what a host did for a run: user code cancelled it or damaged the host, or the host has a bug.

        Of a damaged host nothing more is expected. It ends, and as after a crash the run that ends two was the culprit.
        """
        if boundary == "host":
            host.connection.kill()
            if host.role != "quarantine" and state.running.get(host) not in state.accused:
                return
        names = self._recorder.unscored(state.run, _place(host)) if state.is_rolled_out else []
        self._fail(host, state, names, boundary, error)

    def _fail(
        self, host: Host, state: RunState, names: Sequence[str], boundary: Boundary, error: str, details: str = ""
    ) -> None:
        """Fail what a host did for a run: its group, the functions `names`, or the rollout at `boundary`."""
        if not state.is_rolled_out:
            self._runs.fail_rollout(state, boundary, error, details)
        elif state.group is not None and state.group.host is host:
            self._scorings.fail_group(state.group, error, details)
        else:
            self._scorings.fail(state, names, error, details)

    def died(self, host: Host, how: str, by: EndedBy, machine: str) -> None:
        is_lost = by == "machine"
        if is_lost and not self._hosts.closing:
            self._tell_of_loss(machine or how, how)
        unbegun = [state for state in host.runs if state.stage is Stage.HANDED_OUT]
        begun = [state for state in host.runs if state.stage is not Stage.HANDED_OUT]
        for state in reversed(unbegun):  # so they keep their order
            self._take_back_unbegun(state, host, is_lost)
        n_rolling = sum(state.stage is Stage.ROLLING for state in begun)
        if n_rolling and not is_lost and host.role == "host" and self._runs.stopped is None:
            runs = (
                f"{plural(n_rolling, 'run')} that it had begun {'is' if n_rolling == 1 else 'are'} rolled out once more"
            )
            self._notices.add(f"a process that runs your code ended ({how}); {runs}")
        for state in begun if not is_lost and host.role != "scorer" else reversed(begun):
            if state.run not in self._table.states:
                continue  # the failure of another one stopped the eval, or it was of a group that failed
            if state.group is not None and state.group.host is host:
                self._take_back_group(state.group, host, how, is_lost)
            elif state.stage is Stage.ROLLING:
                self._take_back_rollout(state, host, how, is_lost)
            elif host in (state.host, state.scorer):
                self._take_back_scoring(state, host, how, is_lost)

    def _tell_of_loss(self, machine: str, how: str) -> None:
        """Tell the user once of a machine whose hosts end one after the other, and count in the summary how often."""
        now = self._clock.now()
        if now - self._lost_at.get(machine, -math.inf) >= REPORT_S:
            (self._notices.add if how in self._told else self._notices.alert)(how)
            self._told.add(how)
            self._lost_at[machine] = now

    def _next_step(self, state: RunState, name: str | None, host: Host, is_lost: bool) -> NextStep:
        """Return what follows for the function that a lost host ran for a run ("": its rollout), None if it ran none.

        A crash is the doing of what ran, the second time for sure. A machine takes with it whatever ran there.
        """
        if name is not None and not is_lost:
            if host.role != "scorer":
                return NextStep.FAILED if host.role == "quarantine" else NextStep.QUARANTINE
            is_second = name in state.accused
            state.accused.add(name)
            return NextStep.FAILED if is_second else NextStep.ELSEWHERE
        n_lost = 0
        if name is not None:
            self._table.lost[state.run, name] += 1
            n_lost = self._table.lost[state.run, name]
        if n_lost >= MOST_LOST:
            return NextStep.FAILED
        is_suspect = is_lost and (host.role == "quarantine" or n_lost >= SUSPECT_AT)
        return NextStep.QUARANTINE if is_suspect else NextStep.ELSEWHERE

    def _take_back_unbegun(self, state: RunState, host: Host, is_lost: bool) -> None:
        if state.run not in self._table.states:
            return
        if is_lost:
            self._recorder.lose(1)  # what it told of a beginning may be lost too
        if host.role != "quarantine":
            self._runs.requeue(state)
        elif (why := self._runs.why_never(state.run)) is not None:
            self._runs.skip(state.run, why)
        else:
            state.host = None
            state.become(Stage.SUSPECT)
            self._table.suspects.appendleft(state)

    def _take_back_rollout(self, state: RunState, host: Host, how: str, is_lost: bool) -> None:
        """Roll a run out once more that was rolling."""
        step = self._next_step(state, "", host, is_lost)
        if step is NextStep.FAILED:
            self._runs.fail_rollout(state, "host" if is_lost else "agent", *_blame(host, how, is_lost))
            return
        if self._runs.why_never(state.run) is not None:
            what = "its machine was lost" if is_lost else "its process ended"
            self._runs.skip(state.run, f"{what} after the eval had stopped")
            return
        state.attempt += 1
        self._recorder.reports.count(repeated=1)
        if step is NextStep.ELSEWHERE:
            self._table.queue_again(state)
            return
        state.become(Stage.SUSPECT)
        state.host, state.retrying = None, 0
        self._table.suspects.append(state)

    def _take_back_scoring(self, state: RunState, host: Host, how: str, is_lost: bool) -> None:
        """Let a run be scored elsewhere, without the function that was the culprit."""
        place, running = _place(host), state.running.pop(host, None)
        step = self._next_step(state, running, host, is_lost)
        if place == "host":
            state.host = None
        else:
            state.scorer = None
        if step is NextStep.FAILED and running is not None:
            boundary: Boundary = "host" if is_lost else "reward"
            self._scorings.fail(state, [running], *_blame(host, how, is_lost), boundary=boundary)
        if not state.is_rolled_out or not self._recorder.unscored(state.run, place):
            return
        if place == "scorer":
            self._table.unscored[place].appendleft(state)
        else:
            (self._table.suspects if step is NextStep.QUARANTINE else self._table.unscored[place]).append(state)

    def _take_back_group(self, group: ScoringGroup, host: Host, how: str, is_lost: bool) -> None:
        """Let another host score a group, unless one of its functions was the culprit."""
        first = group.members[0]
        step = self._next_step(first, GROUP if group.take_back() else None, host, is_lost)
        if step is NextStep.FAILED:
            boundary: Boundary = "host" if is_lost else "reward"
            self._scorings.fail_group(group, *_blame(host, how, is_lost), boundary=boundary)
            return
        self._scorings.repeat(group)
        if step is NextStep.QUARANTINE:
            self._table.suspects.append(first)
        else:
            self._table.groups.ready.append(group)

    def give_up_hosts(self, why: str) -> None:
        """Fail what needs a host that cannot be started; runs whose host lives continue."""
        table, hosts = self._table, self._hosts
        places: Mapping[Place, Sequence[Host]] = {"host": hosts.rolling, "scorer": hosts.scorers}
        unserved = [(place, table.unscored[place]) for place, able in places.items() if not able]
        groups = deque[ScoringGroup]() if hosts.rolling else table.groups.ready
        lacking = (table.suspects, groups, *(waiting for _, waiting in unserved))
        if not (self._runs.any_left or any(lacking)):
            return
        for state in [*table.suspects]:
            if state not in table.suspects:
                continue  # the failure of an earlier suspect stopped the eval, which skipped this one
            if not state.is_rolled_out:
                self._runs.fail_rollout(state, "host", why)
            elif state.group is not None and state.group.host is None:
                table.suspects.discard(state)
                self._scorings.fail_group(state.group, why, boundary="host")
            elif hosts.quarantine is None:
                table.suspects.discard(state)
                self._scorings.fail(state, self._recorder.unscored(state.run, "host"), why, boundary="host")
        self._runs.stop(Stop("systemic", why))
        while groups:
            self._scorings.fail_group(groups.popleft(), why, boundary="host")
        for place, waiting in unserved:
            while waiting:
                state = waiting.popleft()
                self._scorings.fail(state, self._recorder.unscored(state.run, place), why, boundary="host")


def _place(host: Host) -> Place:
    return "scorer" if host.role == "scorer" else "host"


def _blame(host: Host, how: str, is_lost: bool) -> tuple[str, str]:
    """Return the error of what ran in a lost host again and again, and its details."""
    if is_lost:
        return f"{LOST_OFTEN} ({how})", ""
    return f"{ENDED_TWICE} ({how})", host.connection.last_words()
