"""Facts about a cluster whose free resources change all the time, by looks at nodes that are made up."""

from __future__ import annotations

import json
from functools import partial
from itertools import cycle
from types import SimpleNamespace

import pytest

from pytest_osmosis.cluster import facts_teller
from pytest_osmosis.cluster.facts import ClusterFacts
from pytest_osmosis.cluster.facts_teller import UNSETTLED_S, FactsTeller, facts_body, waiting_text
from pytest_osmosis.cluster.frames import Frame, Kind
from pytest_osmosis.cluster.places import HostNeeds, Node

LOOK_S = 2.0
NEEDS = HostNeeds({"num_cpus": 1})


class Looks:
    """Looks at a node with eight CPUs, and the frames that follow, at the times of a clock of their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.told: list[tuple[float, int]] = []
        monkeypatch.setattr(facts_teller, "time", SimpleNamespace(monotonic=lambda: self.now))
        self._teller = FactsTeller(self._hear, partial(facts_body, needs=NEEDS, address="head:1", ray="2"))

    def _hear(self, frame: Frame) -> None:
        assert frame.kind is Kind.FACTS
        self.told.append((self.now, ClusterFacts.from_json(json.loads(frame.first)).n_places))

    def look(self, free: float) -> None:
        node = Node("n", "127.0.0.1", {"CPU": 8.0}, {"CPU": free})
        self._teller.take([node], NEEDS.room_on(node), 0, 0)
        self.now += LOOK_S


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def test_the_first_look_is_told_and_then_what_two_in_a_row_see(looks: Looks) -> None:
    for free in (4, 4, 6, 4, 4, 6, 6, 6):
        looks.look(free)
    assert looks.told == [(100.0, 4), (112.0, 6)]


def test_where_no_two_looks_see_the_same_the_least_room_is_told(looks: Looks) -> None:
    looks.look(1)
    for free, _ in zip(cycle((5, 7, 6)), range(20), strict=False):
        looks.look(free)
    (_, first), (second_at, second) = looks.told
    assert (first, second) == (1, 5)
    assert second_at <= 100.0 + UNSETTLED_S + 2 * LOOK_S


def test_hosts_that_wait_for_the_only_place_are_told_who_has_it() -> None:
    assert waiting_text(1, 1, NEEDS, n_of_others=1) == "other evals of this command have the only place of the cluster"
