"""All that the engine counts as runs change, counted anew from the runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from pytest_osmosis.engine.host_starts import Host
from pytest_osmosis.engine.run_state import RunState, Stage
from pytest_osmosis.engine.run_table import RunTable


def miscounts(table: RunTable, hosts: Iterable[Host]) -> Iterator[str]:
    """Yield each count of a table, and of its hosts, that is wrong."""
    states, tally = list(table.states.values()), table.tally
    to_roll_out = [state for state in states if not state.is_rolled_out]
    rolling = [state for state in states if state.stage is Stage.ROLLING]
    waiting = Counter("retrying" if each.retrying else "held" if each.held else "in flight" for each in rolling)
    counts = {
        "to roll out": (+tally.to_roll_out, Counter(state.run.model for state in to_roll_out)),
        "not begun": (tally.n_unbegun, sum(not state.is_begun for state in states)),
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
