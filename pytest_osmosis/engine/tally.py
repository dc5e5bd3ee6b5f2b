"""Counts of runs under way, kept as they change: a turn of the engine looks at no run that nothing happened to."""

from __future__ import annotations

from pytest_osmosis.engine.run_state import RunState, Stage


class Tally:
    """Counts the runs of a table by what they do or wait for. `Host` has those of a host.

    `n_to_roll_out` are under way and not rolled out. `n_unbegun` of them have not begun, as far as hosts have told, and
    `n_handed_out` of these are with hosts. `n_unscored` are rolled out and could be scored. Of those that roll,
    `n_retrying` wait for a retry, `n_held` for a permit, and `n_in_flight` for nothing.
    """

    def __init__(self) -> None:
        self.n_to_roll_out = 0
        self.n_unbegun = 0
        self.n_handed_out = 0
        self.n_in_flight = 0
        self.n_retrying = 0
        self.n_held = 0
        self.n_unscored = 0
        self.n_stored = 0

    def enter(self, state: RunState) -> None:
        """Count a run, which tells of its changes from now on."""
        state.tally = self
        self.count(state, 1)

    def leave(self, state: RunState) -> None:
        """Count a run no more. It leaves its hosts."""
        self.count(state, -1)
        state.tally = None
        state.host = state.scorer = None

    def count(self, state: RunState, by: int) -> None:
        """Add 1 or -1 to all counts that a run is in."""
        if state.stage is Stage.ROLLED_OUT:
            self.n_stored += by * state.stored
            self.n_unscored += by * (not state.waits)
            return
        self.n_to_roll_out += by
        host, rolls, retries = state.host, state.stage is Stage.ROLLING, state.retrying > 0
        if not rolls:
            self.n_unbegun += by
            if host is not None:
                self.n_handed_out += by
        elif retries:
            self.n_retrying += by
        elif state.held > 0:
            self.n_held += by
        else:
            self.n_in_flight += by
        if host is not None:
            host.n_to_roll_out += by
            host.n_rolling += by * rolls
            host.n_in_slots += by * (rolls and not retries)
