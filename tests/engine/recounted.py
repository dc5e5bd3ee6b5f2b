"""All that the engine counts as runs change, counted anew from the runs, and what a journal says as it grows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from pytest_osmosis.engine.run_table import Host, RunState, RunTable, Stage
from pytest_osmosis.host.protocol import Key
from pytest_osmosis.record.journal import events_from
from pytest_osmosis.record.run_record import Ledger


def miscounts(table: RunTable, hosts: Iterable[Host]) -> Iterator[str]:
    """Yield each count of a table, and of its hosts, that is wrong."""
    states, tally = list(table.states.values()), table.tally
    to_roll_out = [state for state in states if not state.is_rolled_out]
    rolling = [state for state in states if state.stage is Stage.ROLLING]
    waiting = Counter("retrying" if each.retrying else "held" if each.held else "in flight" for each in rolling)
    counts: dict[str, tuple[object, object]] = {
        "to roll out": (tally.n_to_roll_out, len(to_roll_out)),
        "not begun": (tally.n_unbegun, sum(not state.is_begun for state in states)),
        "handed out": (tally.n_handed_out, sum(each.host is not None and not each.is_begun for each in states)),
        "stored": (tally.n_stored, sum(state.stored for state in states)),
        "unscored": (tally.n_unscored, sum(state.is_rolled_out and not state.waits for state in states)),
        "retrying": (tally.n_retrying, waiting["retrying"]),
        "held": (tally.n_held, waiting["held"]),
        "in flight": (tally.n_in_flight, waiting["in flight"]),
    }
    for host in hosts:
        own = [state for state in to_roll_out if state.host is host]
        counts |= {
            f"of {host.role} {id(host)}": (set(host.runs), of(host, states)),
            f"to roll out in {id(host)}": (host.n_to_roll_out, len(own)),
            f"rolling in {id(host)}": (host.n_rolling, sum(state.stage is Stage.ROLLING for state in own)),
            f"in slots of {id(host)}": (
                host.n_in_slots,
                sum(state.stage is Stage.ROLLING and not state.retrying for state in own),
            ),
        }
    for name, (counted, real) in counts.items():
        if counted != real:
            yield f"{counted} runs {name} are counted, and there are {real}"


def of(host: Host, states: Iterable[RunState]) -> set[RunState]:
    """Return the runs that a host rolls out or scores."""
    return {state for state in states if host in (state.host, state.scorer)}


class StoredNow:
    """The journal as a process finds it that goes on after the engine was killed now."""

    def __init__(self, path: Path) -> None:
        self.ledger = Ledger()
        self._path = path
        self._n_bytes = 0
        self._ended: set[Key] = set()

    def miscount(self, begun: Container[Key], n_seen: int, n_handed_out: float) -> Iterator[str]:
        """Yield the number of lost rollouts if it is wrong: the server saw `n_seen` of those that were handed out."""
        size = self._path.stat().st_size
        new = events_from(self._path, self._n_bytes, 1) if size > self._n_bytes else ()
        for event, self._n_bytes in new:
            self.ledger.apply(event)
            if event["ev"] == "rollout" and Key.of(event) in begun:
                self._ended.add(Key.of(event))
        n_ended, said = len(self._ended), self.ledger.most_lost
        if not n_seen - n_ended <= said <= n_handed_out - n_ended:
            yield f"up to {said} rollouts are lost, of {n_handed_out}: {n_seen} were seen, and {n_ended} are stored"
