"""The shares of evals that run together: the cap is used, and never exceeded, whatever they do."""

from __future__ import annotations

import threading
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.plugin.eval_queue import SharedCap, fair_shares
from pytest_osmosis.record.run_record import RunCounts


@given(st.integers(0, 50), st.dictionaries(st.integers(), st.integers(0, 30), max_size=8))
def test_fair_shares_use_the_cap_and_give_nobody_more_than_it_needs(cap: int, needs: dict[int, int]) -> None:
    shares = fair_shares(cap, needs)

    assert shares.keys() == needs.keys()
    assert sum(shares.values()) == min(cap, sum(needs.values()))
    assert all(0 <= shares[name] <= needs[name] for name in needs)
    short = [shares[name] for name in needs if shares[name] < needs[name]]
    assert max(shares.values(), default=0) - min(short, default=max(shares.values(), default=0)) <= 1


class Engine:
    """The side of an engine that a cap sees: rollouts begin up to the limit, and those that have begun may last."""

    def __init__(self, n_runs: int) -> None:
        self.left = n_runs
        self.in_flight = self._limit = 0
        self.progress = RunCounts()

    def limit(self, in_flight: int) -> None:
        self._limit = in_flight

    @property
    def most_in_flight(self) -> int:
        return max(self._limit, self.in_flight)

    def begin(self) -> None:
        self.in_flight = max(self.in_flight, min(self._limit, self.left))

    def end(self, n: int) -> None:
        n = min(n, self.in_flight)
        self.in_flight -= n
        self.left -= n


@pytest.mark.parametrize("seed", range(20))
def test_evals_that_come_and_go_never_exceed_the_cap_and_use_it(seed: int) -> None:
    random = Random(seed)
    cap = SharedCap(batch_size := random.randint(1, 12), threading.RLock())
    cap.close()  # no thread: this test moves the shares itself
    waiting = [Engine(random.randint(1, 30)) for _ in range(8)]
    running: list[Engine] = []
    while waiting or running:
        while waiting and len(running) < min(4, batch_size):
            engine = waiting.pop()
            cap.add(engine, random.randint(1, batch_size), lambda engine=engine: engine.left)  # type: ignore[misc]
            running.append(engine)
        for _ in range(3):
            settled = cap.share()
            for engine in running:
                engine.begin()
            assert sum(engine.in_flight for engine in running) <= batch_size
            if settled:
                break
            engine = random.choice(running)
            engine.end(1)
        for engine in running:
            engine.end(random.randint(0, 3))
        for engine in [engine for engine in running if not engine.left]:
            running.remove(engine)
            cap.remove(engine)


def test_a_share_moves_once_it_was_really_given_back() -> None:
    cap = SharedCap(4, threading.RLock())
    cap.close()
    first, second = Engine(20), Engine(20)
    cap.add(first, 4, lambda: first.left)
    assert cap.share()
    first.begin()
    cap.add(second, 4, lambda: second.left)

    assert not cap.share()
    assert (first.most_in_flight, second.most_in_flight) == (4, 0)
    first.end(1)
    assert not cap.share()
    assert second.most_in_flight == 1
    first.end(1)
    assert cap.share()
    assert (first.most_in_flight, second.most_in_flight) == (2, 2)
    cap.remove(first)
    assert cap.share()
    assert second.most_in_flight == 4
