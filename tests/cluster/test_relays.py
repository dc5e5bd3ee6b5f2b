"""Hosts that `Relays` places on a simulated cluster. What Ray itself does is in test_bridge."""

from __future__ import annotations

import pytest

from pytest_osmosis import __version__
from pytest_osmosis.cluster import relays, seating
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


def test_a_relay_that_takes_no_orders_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with SimulatedCluster(1, 2).running() as cluster:
        cluster.open(1)
        cluster.wait_for(Kind.PLACED, 1)
        [actor] = cluster.actors.values()
        actor.hangs = True
        monkeypatch.setattr(relays, "ORDERS_S", 0.0)
        cluster.relays.put(Frame(Kind.SEND, 1, b"a line\n"))
        cluster.wait_for(Kind.DIED, 1)
        monkeypatch.undo()
        [death] = cluster.heard(Kind.DIED).values()
        assert death == {"how": f"node {actor.node_id} did not start hosts, or feed them, for 0 s", "by": "machine"}
        cluster.open(2)
        cluster.wait_for(Kind.PLACED, 2)


def test_hosts_without_room_wait_and_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seating, "HOLD_S", 0.0)
    with SimulatedCluster(2, 2).running() as cluster:
        for number in range(1, 7):
            cluster.open(number)
        cluster.wait_for(Kind.PLACED, 4)
        cluster.look()
        cluster.look()
        cluster.wait_for(Kind.WAITS, 2)
        assert cluster.waits() == dict.fromkeys((5, 6), "the cluster has room for 4 now; the others need 2 CPUs")
        assert (cluster.facts.n_places, cluster.facts.lacks) == (4, "2 CPUs")
        cluster.relays.put(Frame(Kind.KILL, 6))
        cluster.wait_for(Kind.DIED, 1)
        cluster.relays.put(Frame(Kind.KILL, 1))
        cluster.wait_for(Kind.PLACED, 5)
        assert cluster.heard(Kind.PLACED).keys() == {1, 2, 3, 4, 5}


def test_hosts_wait_one_by_one_for_room_on_nodes_that_others_use() -> None:
    with SimulatedCluster(2, 2).running() as cluster:
        cluster.used_by_others.update(dict.fromkeys(cluster.n_cpus, 2))
        cluster.look()
        cluster.open(1)
        cluster.open(2)
        until(lambda: cluster.n_demanded == 2, "for a demand")
        cluster.look()
        cluster.look()
        cluster.wait_for(Kind.WAITS, 2)
        assert set(cluster.waits().values()) == {"the cluster has room for none now; they need 2 CPUs"}
        cluster.used_by_others["10.0.0.1"] = 1
        cluster.look()
        cluster.wait_for(Kind.PLACED, 1)
        assert [place["node_id"] for place in cluster.heard(Kind.PLACED).values()] == ["10.0.0.1"]


def test_a_quarantine_needs_no_room_on_the_node_of_a_host() -> None:
    with SimulatedCluster(2, 1).running() as cluster:
        cluster.open(1)
        cluster.open(2)
        cluster.wait_for(Kind.PLACED, 2)
        cluster.open(3, "quarantine")
        cluster.wait_for(Kind.PLACED, 3)
        assert cluster.n_demanded == 0


def test_hosts_that_must_stay_here_start_on_no_node_elsewhere() -> None:
    with SimulatedCluster(0, 0).running(only_here=True) as cluster:
        cluster.open(1)
        cluster.n_cpus["192.0.2.1"] = 2.0
        cluster.look()
        cluster.look()
        until(lambda: cluster.facts.n_elsewhere == 1, "for the node elsewhere")
        assert (cluster.facts.is_local, cluster.facts.n_places) == (False, 0)
        assert not cluster.heard(Kind.PLACED)
        cluster.n_cpus["127.0.0.1"] = 2.0
        cluster.look()
        cluster.wait_for(Kind.PLACED, 1)
        assert cluster.heard(Kind.PLACED)[1]["node_id"] == "127.0.0.1"


def test_another_version_on_the_nodes_is_the_users_mistake() -> None:
    with SimulatedCluster(1, 2).running() as cluster:
        cluster.versions = {"10.0.0.0": "0.0.9"}
        cluster.open(1)
        cluster.wait_for(Kind.DIED, 1)
        death = cluster.heard(Kind.DIED)[1]
    ours = f"node 10.0.0.0 has pytest-osmosis 0.0.9, and this machine has {__version__}: install the same version on"
    assert death["how"].startswith(ours)
    assert "[execution.ray] runtime_env" in death["how"]
    assert death["by"] == "host"


def test_what_a_host_is_sent_comes_whole_in_calls_that_ray_keeps_out_of_its_store() -> None:
    lines = [bytes([each]) * 150_000 for each in b"ab"]
    with SimulatedCluster(1, 1).running() as cluster:
        cluster.open(1)
        cluster.wait_for(Kind.PLACED, 1)
        for line in lines:
            cluster.relays.put(Frame(Kind.SEND, 1, line))
        cluster.relays.put(Frame(Kind.KILL, 1))
        cluster.wait_for(Kind.DIED, 1)
        [actor] = cluster.actors.values()
        sent = [[body for kind, _, body, _ in batch if kind == "send"] for batch in actor.batches]
    assert b"".join(body for batch in sent for body in batch) == b"".join(lines)
    assert max(sum(map(len, batch)) for batch in sent) <= relays.CALL_BYTES


def test_the_hosts_of_a_lost_node_die_by_the_machine_and_start_elsewhere() -> None:
    with SimulatedCluster(2, 2).running() as cluster:
        cluster.open(1)
        cluster.open(2)
        cluster.wait_for(Kind.PLACED, 2)
        [(relay, actor)] = [(relay, actor) for relay, actor in cluster.actors.items() if 1 in relay.hosts]
        hosts = {*relay.hosts}
        actor.fail(RuntimeError("The actor is dead because its node has died."))
        cluster.wait_for(Kind.DIED, len(hosts))
        lost = {"how": f"node {actor.node_id} was lost", "by": "machine"}
        assert cluster.heard(Kind.DIED) == dict.fromkeys(hosts, lost)
        cluster.open(3)
        cluster.wait_for(Kind.PLACED, 3)
        assert cluster.heard(Kind.PLACED)[3]["node_id"] != actor.node_id


def test_a_node_that_says_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with SimulatedCluster(2, 2).running() as cluster:
        cluster.open(1)
        cluster.wait_for(Kind.PLACED, 1)
        [actor] = cluster.actors.values()
        monkeypatch.setattr(relays, "ANSWER_S", 0.0)
        cluster.wait_for(Kind.DIED, 1)
        monkeypatch.undo()
        assert cluster.heard(Kind.DIED)[1] == {"how": f"node {actor.node_id} said nothing for 0 s", "by": "machine"}
        cluster.open(2)
        cluster.wait_for(Kind.PLACED, 2)
        assert cluster.heard(Kind.PLACED)[2]["node_id"] != actor.node_id


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
