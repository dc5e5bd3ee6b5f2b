"""Hosts that `Relays` places on a simulated cluster. What Ray itself does is in test_bridge."""

from __future__ import annotations

import pytest

from pytest_osmosis.cluster import relays
from pytest_osmosis.cluster.frames import Frame, Kind
from pytest_osmosis.config.tables import RayOptions
from tests.cluster.clusters import until
from tests.cluster.simulated import SimulatedCluster


def test_a_hundred_nodes_get_all_hosts_and_hardly_a_relay_is_made_twice() -> None:
    with SimulatedCluster(100, 16).running() as cluster:
        for number in range(1, 1601):
            cluster.open(number)
        cluster.wait_for(Kind.PLACED, 1600)
        assert 200 <= cluster.n_made <= 210  # hosts are opened while the first ones are placed


def test_optional_hosts_ask_ray_for_nothing_and_start_once_there_is_room() -> None:
    with SimulatedCluster(1, 2).running() as cluster:
        for number in range(1, 9):
            cluster.open(number, eval=number % 2, optional=True)
        cluster.wait_for(Kind.PLACED, 2)
        cluster.look()
        cluster.look()
        cluster.wait_for(Kind.WAITS, 6)
        assert cluster.n_demanded == 0
        cluster.n_cpus["10.1.0.1"] = 4.0
        cluster.look()
        cluster.wait_for(Kind.PLACED, 6)
        assert cluster.n_demanded == 0


def test_the_first_optional_host_is_waited_for() -> None:
    with SimulatedCluster(1, 0).running() as cluster:
        for number in range(1, 5):
            cluster.open(number, optional=True)
        until(lambda: cluster.n_demanded, "for a demand")
        cluster.look()
        assert cluster.n_demanded == 1


def test_room_for_optional_hosts_that_is_gone_is_asked_for_no_longer() -> None:
    with SimulatedCluster(1, 2).running() as cluster:
        cluster.wait_for(Kind.FACTS, 1)
        cluster.n_cpus.clear()
        for number in range(1, 3):
            cluster.open(number, optional=True)
        until(lambda: cluster.n_demanded == 2, "for the demand of two hosts")
        cluster.look()
        cluster.look()
        until(lambda: cluster.n_demanded == 1, "for that of the first one")


def test_hosts_whose_number_is_set_ask_ray_for_room() -> None:
    with SimulatedCluster(1, 2).running() as cluster:
        for number in range(1, 7):
            cluster.open(number)
        cluster.wait_for(Kind.PLACED, 2)
        assert cluster.n_demanded == 4


def test_a_node_on_which_no_relay_starts_is_named_and_avoided_while_others_work() -> None:
    with SimulatedCluster(1, 2).running(RayOptions(hosts_per_actor=1)) as cluster:
        cluster.open(1)
        cluster.wait_for(Kind.PLACED, 1)
        cluster.n_cpus["10.1.0.1"] = 2.0
        cluster.bad_nodes = {"10.1.0.1"}
        cluster.look()
        for number in range(2, 5):
            cluster.open(number)
        cluster.wait_for(Kind.DIED, 1)
        died = cluster.heard(Kind.DIED)
        cluster.wait_for(Kind.PLACED, 2)
        for number in died:
            cluster.open(100 + number)
        cluster.look()
        cluster.look()
        cluster.wait_for(Kind.WAITS, len(died))
        assert cluster.heard(Kind.DIED).keys() == died.keys(), "the node was used again"
    for death in died.values():
        assert death["by"] == "machine"
        assert "cannot be imported on node 10.1.0.1 " in death["how"]


@pytest.mark.clock
def test_a_relay_that_takes_no_orders_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "ORDERS_S", 0.2)
    with SimulatedCluster(1, 2).running() as cluster:
        cluster.open(1)
        cluster.wait_for(Kind.PLACED, 1)
        [actor] = cluster.actors.values()
        actor.hangs = True
        cluster.relays.put(Frame(Kind.SEND, 1, b"a line\n"))
        cluster.wait_for(Kind.DIED, 1)
        [death] = cluster.heard(Kind.DIED).values()
        assert death == {"how": f"node {actor.node_id} did not start hosts, or feed them, for 0 s", "by": "machine"}
        cluster.open(2)
        cluster.wait_for(Kind.PLACED, 2)


def test_hosts_that_wait_are_told_when_other_evals_have_all_places_and_when_there_is_room() -> None:
    with SimulatedCluster(1, 2).running() as cluster:
        for number, of_eval in ((1, 1), (2, 1), (3, 2)):
            cluster.open(number, eval=of_eval)
        cluster.wait_for(Kind.PLACED, 2)
        cluster.look()
        cluster.look()
        cluster.wait_for(Kind.WAITS, 1)
        assert cluster.waits() == {3: "other evals of this command have all 2 places of the cluster"}
        cluster.n_cpus["10.1.0.1"] = 4.0
        cluster.bad_nodes = {"10.1.0.1"}  # it has room, but takes its time
        cluster.look()
        cluster.look()
        until(lambda: cluster.waits() == {3: ""}, "for the end of the reason to wait")
