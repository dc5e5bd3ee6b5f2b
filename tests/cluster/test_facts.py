"""Facts about a cluster whose free resources change all the time, by looks at nodes that are made up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import cycle
from types import SimpleNamespace

import pytest

from pytest_osmosis.cluster import relays
from pytest_osmosis.cluster.actors import Nodes
from pytest_osmosis.cluster.facts import ClusterFacts
from pytest_osmosis.cluster.frames import Frame, Kind
from pytest_osmosis.cluster.places import HostNeeds, Node
from pytest_osmosis.cluster.relays import UNSETTLED_S, Relays, described
from pytest_osmosis.config.tables import RayOptions

LOOK_S = 2.0


class Looks:
    """Relays that look at one node with eight CPUs, and what they tell, at the times of a clock of their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.told: list[tuple[float, int]] = []
        monkeypatch.setattr(relays, "time", SimpleNamespace(monotonic=lambda: self.now))
        self._relays = Relays(RayOptions(resources={"num_cpus": 1}), self._hear, self._describe)

    @staticmethod
    def _describe(nodes: Sequence[Node], n_places: int, lacks: str, n_elsewhere: int) -> bytes:
        needs = HostNeeds({"num_cpus": 1})
        return described(nodes, n_places, lacks, n_elsewhere, needs=needs, address="head:1", ray="2")

    def _hear(self, frame: Frame) -> None:
        assert frame.kind is Kind.FACTS
        self.told.append((self.now, ClusterFacts.from_json(json.loads(frame.first)).n_places))

    def look(self, free: float) -> None:
        self._relays._take_nodes(Nodes([Node("n", "127.0.0.1", {"CPU": 8.0}, {"CPU": free})], {}))
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
