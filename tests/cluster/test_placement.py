"""The room on nodes, hosts that `Actors` has started on a simulated cluster, and reasons for which there is none.

What Ray itself does is in test_bridge.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.ray import bridge, placement
from pytest_osmosis.addons.ray.bridge import ConnectionRefusal, check_form, refusal_text
from pytest_osmosis.addons.ray.clusters import ClusterHosts
from pytest_osmosis.addons.ray.frames import Frame, Kind
from pytest_osmosis.addons.ray.needs import HostNeeds, Node, selects
from pytest_osmosis.addons.ray.placement import NODE_ID, end_of_actor
from pytest_osmosis.config.tables import RayOptions
from pytest_osmosis.errors import ClusterError
from tests.cluster.clusters import until
from tests.cluster.simulated import SimulatedCluster


def test_each_host_has_an_actor_with_its_scorer() -> None:
    with SimulatedCluster(2, 2).running() as cluster:
        for number in (1, 2, 3):
            cluster.open(number)
        for number in (4, 5, 6):
            cluster.open(number, "scorer")
        cluster.wait_for(Kind.PLACED, *range(1, 7))
        assert len(cluster.actors) == 3
        assert [[call[1] for call in each.calls] for each in cluster.actors] == [[1, 4], [2, 5], [3, 6]]
        assert len({cluster.heard(Kind.PLACED)[number] for number in (1, 2, 3)}) == 2


def test_an_actor_asks_for_what_a_host_needs() -> None:
    needs = {"num_gpus": 1, "label_selector": {"zone": "!b"}}
    with SimulatedCluster(1, 2).running(needs) as cluster:
        cluster.open(1)
        until(lambda: cluster.actors, "for an actor")
        assert cluster.actors[0].options == {"num_cpus": 0, "scheduling_strategy": "SPREAD", **needs}


def test_what_replaces_a_crashed_host_has_its_actor_and_a_quarantine_needs_no_room_of_its_own() -> None:
    with SimulatedCluster(1, 1).running() as cluster:
        actor = cluster.opened(1)
        cluster.driver.put(Frame(Kind.KILL, 1))
        cluster.wait_for(Kind.DIED, 1)
        assert cluster.opened(2) is actor
        assert cluster.opened(3, "quarantine") is actor
        assert cluster.heard(Kind.DIED) == {1: {"how": "SIGKILL", "by": "host"}}


def test_no_eval_has_a_process_in_an_actor_of_another() -> None:
    with SimulatedCluster(1, 2).running() as cluster:
        cluster.open(1, of_eval=1)
        assert cluster.opened_in(1) is not cluster.opened(2, "scorer", of_eval=2)


def test_a_host_without_room_waits_until_an_actor_has_no_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "IDLE_S", 0.0)
    with SimulatedCluster(1, 1).running() as cluster:
        cluster.open(1, of_eval=1)
        cluster.wait_for(Kind.PLACED, 1)
        cluster.open(2, of_eval=2)
        cluster.open(3, of_eval=3)
        cluster.driver.put(Frame(Kind.KILL, 2))
        cluster.wait_for(Kind.DIED, 2)
        assert cluster.heard(Kind.DIED)[2] == {"how": "it was ended while it waited for a place", "by": "machine"}
        assert 3 not in cluster.heard(Kind.PLACED)
        cluster.driver.put(Frame(Kind.KILL, 1))
        cluster.wait_for(Kind.PLACED, 3)
        until(lambda: len(cluster.actors) == 1, "for the end of the others")


def test_a_host_that_is_ended_before_its_actor_starts_is_ended_there_too() -> None:
    """The actor remains, because it has another process. It starts all that it was told to."""
    with SimulatedCluster(1, 0).running() as cluster:
        cluster.open(1)
        cluster.open(2, "scorer")
        cluster.driver.put(Frame(Kind.KILL, 1))
        cluster.wait_for(Kind.DIED, 1)
        assert cluster.heard(Kind.DIED)[1] == {"how": "it was ended while it waited for a place", "by": "machine"}
        cluster.have("10.0.0.0", 1.0)
        actor = cluster.opened_in(2)
        assert [call[:2] for call in actor.calls] == [("open", 1), ("open", 2), ("kill", 1)]


def test_what_a_host_is_sent_and_its_environment_come_whole_in_arguments_that_ray_keeps_out_of_its_store() -> None:
    lines = [bytes([each]) * 150_000 for each in b"ab"]
    with SimulatedCluster(1, 1).running() as cluster:
        actor = cluster.opened(1, setup=b"s" * 150_000)
        for line in lines:
            cluster.driver.put(Frame(Kind.SEND, 1, line))
        cluster.driver.put(Frame(Kind.KILL, 1))
        cluster.wait_for(Kind.DIED, 1)
        opened, *sent, _ = actor.calls
    setup, environ = opened[3 : 3 + opened[2]], opened[3 + opened[2] :]
    assert b"".join(setup) == b"s" * 150_000
    assert json.loads(b"".join(environ)) == {"environ": {"SECRET": "s"}, "upload": ""}
    assert "SECRET" not in str(actor.options)
    assert [b"".join(pieces) for _, _, *pieces in sent] == lines
    assert max(len(piece) for _, _, *pieces in sent for piece in pieces) <= placement.PIECE_BYTES


def test_the_hosts_of_a_lost_node_die_by_the_machine_and_start_elsewhere() -> None:
    with SimulatedCluster(2, 2).running() as cluster:
        cluster.open(1)
        actor = cluster.opened(2, "scorer")
        actor.fail(RuntimeError("The actor is dead because its node has died."))
        cluster.wait_for(Kind.DIED, 1, 2)
        lost = {"how": f"node {actor.node_id} was lost", "by": "machine"}
        assert cluster.heard(Kind.DIED) == {1: lost, 2: lost}
        other = cluster.opened(3)
        assert other.options["label_selector"] == {NODE_ID: f"!in({actor.node_id})"}
        assert other.node_id != actor.node_id


def test_a_node_that_says_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with SimulatedCluster(2, 2).running() as cluster:
        actor = cluster.opened(1)
        monkeypatch.setattr(placement, "ANSWER_S", 0.0)
        cluster.wait_for(Kind.DIED, 1)
        monkeypatch.undo()
        assert cluster.heard(Kind.DIED)[1] == {"how": f"node {actor.node_id} said nothing for 0 s", "by": "machine"}
        assert cluster.opened(2).node_id != actor.node_id


def test_the_actors_of_a_node_are_lost_together() -> None:
    with SimulatedCluster(1, 3).running() as cluster:
        for number in (1, 2, 3):
            cluster.open(number)
        cluster.wait_for(Kind.PLACED, 1, 2, 3)
        long, shorter, short = cluster.driver._actors
        long.asked_at -= 31
        shorter.asked_at -= 16
        cluster.wait_for(Kind.DIED, 1, 2)
        assert short in cluster.driver._actors
        assert not {long, shorter} & cluster.driver._actors.keys()


def test_a_node_on_which_no_host_can_run_is_named_and_avoided_while_there_are_others() -> None:
    with SimulatedCluster(1, 1).running() as cluster:
        cluster.problems = {"10.0.0.0": "it has no pytest-osmosis"}
        cluster.open(1)
        cluster.wait_for(Kind.DIED, 1)
        assert cluster.heard(Kind.DIED)[1] == {"how": "it has no pytest-osmosis", "by": "host"}
        cluster.open(2)
        cluster.wait_for(Kind.DIED, 2)
        cluster.have("10.1.0.1", 1.0)
        cluster.open(3)
        cluster.wait_for(Kind.DIED, 3)
        assert cluster.opened(4).node_id == "10.1.0.1"
        cluster.problems["10.2.0.1"] = "it has no pytest-osmosis"
        cluster.have("10.2.0.1", 1.0)
        cluster.open(5)
        cluster.wait_for(Kind.DIED, 5)
        assert cluster.heard(Kind.DIED)[5]["by"] == "machine", "another host runs"


def test_an_actor_that_cannot_be_made_is_the_users_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(options: object) -> None:
        raise ValueError("Invalid option keyword nothing")

    with SimulatedCluster(1, 1).running() as cluster:
        monkeypatch.setattr(cluster, "made", refused)
        cluster.open(1)
        cluster.wait_for(Kind.DIED, 1)
        assert cluster.heard(Kind.DIED)[1]["by"] == "host"
        assert "Invalid option keyword nothing" in cluster.heard(Kind.DIED)[1]["how"]


def test_there_are_as_many_places_as_are_free_or_ours_and_never_more_than_nodes_have() -> None:
    cluster = SimulatedCluster(2, 2)
    cluster.used_by_others = 1.0
    with cluster.running():
        assert (cluster.facts.n_nodes, cluster.facts.n_places) == (2, 3)
        cluster.open(1)
        cluster.wait_for(Kind.PLACED, 1)
        cluster.have("10.1.0.1", 2.0)
        until(lambda: (cluster.facts.n_nodes, cluster.facts.n_places) == (3, 5), "for the node that joined")
        cluster.used_by_others = 0.0
        cluster.see()
        until(lambda: cluster.facts.n_places == 6, "for what others have left")
        del cluster.n_cpus["10.1.0.1"]
        cluster.see()
        until(lambda: (cluster.facts.n_nodes, cluster.facts.n_places) == (2, 4), "for the node that left")


def test_hosts_that_must_stay_here_start_on_no_node_elsewhere() -> None:
    with SimulatedCluster(0, 0).running(only_here=True) as cluster:
        cluster.have("192.0.2.1", 2.0)
        until(lambda: not cluster.facts.is_local, "for the node elsewhere")
        assert cluster.facts.n_places == 0
        cluster.open(1)
        cluster.have("127.0.0.1", 2.0)
        assert cluster.opened_in(1).node_id == "127.0.0.1"


SCARCE = {"num_cpus": 0.5, "memory": 2e9, "resources": {"licence": 1}}
IN_ZONES = {"num_cpus": 1, "label_selector": {"zone": "in(a, b)"}}


@pytest.mark.parametrize(
    ("needs", "total", "zone", "room"),
    [
        pytest.param(SCARCE, {"CPU": 4, "memory": 9e9, "licence": 5}, "a", 4, id="the scarcest resource"),
        pytest.param(SCARCE, {"CPU": 4, "memory": 9e9}, "a", 0, id="a resource that the node lacks"),
        pytest.param(IN_ZONES, {"CPU": 4}, "b", 4, id="the right kind"),
        pytest.param(IN_ZONES, {"CPU": 4}, "c", 0, id="the wrong kind"),
        pytest.param({"num_cpus": 0}, {"CPU": 3}, "a", 3, id="nothing, as many as CPUs"),
        pytest.param({"num_cpus": 0}, {"CPU": 0}, "a", 0, id="nothing, and no CPU"),
        pytest.param({"num_gpus": 0.4}, {"GPU": 2}, "a", 4, id="no parts of two GPUs"),
        pytest.param({"num_gpus": 2}, {"GPU": 5}, "a", 2, id="whole GPUs"),
    ],
)
def test_so_many_hosts_fit_on_a_node(needs: dict[str, Any], total: dict[str, float], zone: str, room: int) -> None:
    assert HostNeeds(needs).room_on(Node("id", "10.0.0.1", total, {"zone": zone})) == room


@pytest.mark.parametrize(
    ("selector", "matches"), [("a", True), ("!a", False), ("in(b,c)", False), ("!in(b,c)", True), ("!in(a)", False)]
)
def test_selectors_match_labels_as_in_ray(selector: str, matches: bool) -> None:
    assert selects({"zone": selector}, {"zone": "a"}) is matches


MISMATCH = (
    "Version mismatch: The cluster was started with:\n    Ray: 2.60.0\n    Python: 3.12.1\n"
    "This process on node 192.0.2.2 was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\n"
)
"""The words of Ray 2.60; those of 2.52 differ in versions only."""


@pytest.mark.parametrize(
    ("address", "said"),
    [("ray://127.0.0.1:10001", "RAY_ADDRESS: ray://127.0.0.1:10001 is no address"), ("local", "HOST:PORT")],
)
def test_an_address_in_another_form_is_refused_with_what_to_do(address: str, said: str) -> None:
    with pytest.raises(ConnectionRefusal) as refusal:
        check_form(address, "RAY_ADDRESS")
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("option", "variable", "said"),
    [("127.0.0.1:1", None, "Check [execution.ray] address, and"), (None, "127.0.0.1:1", "Check RAY_ADDRESS, and")],
    ids=["option", "variable"],
)
def test_the_address_comes_from_the_config_or_the_environment(
    option: str | None, variable: str | None, said: str
) -> None:
    hosts = ClusterHosts(RayOptions(option), {**os.environ, "RAY_ADDRESS": variable or "127.0.0.1:2"})
    with pytest.raises(ClusterError) as error:
        hosts.open()
    assert "127.0.0.1:1" in str(error.value)
    assert said in str(error.value)


TRACEBACK = 'Failed to connect. Last error: Traceback (most recent call last):\n  File "node.py", line 1\n{}\n\n'


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ConnectionError(TRACEBACK.format("ray.exceptions.AuthenticationError: RPC error: InvalidAuthToken")),
            "Set RAY_AUTH_MODE=token, without which",
        ),
        (
            ConnectionError(TRACEBACK.format("ray.exceptions.RpcError: closed")),
            "driver: Failed to connect. Last error: ray.exceptions.RpcError: closed",
        ),
        (
            RuntimeError(MISMATCH),
            "Version mismatch: The cluster was started with: Ray: 2.60.0 Python: 3.12.1 This process on node 192.0.2.2 "
            "was started with: Ray: 2.60.0 Python: 3.11.7. Both must match, down to the patch: install here what the "
            "cluster at head:1 has.",
        ),
        (TimeoutError(), " as its driver: TimeoutError"),
    ],
    ids=["token", "no traceback", "another Python", "an error without words"],
)
def test_a_refusal_is_told_in_one_line(error: Exception, said: str) -> None:
    text = refusal_text(error, "head:1")
    assert said in text
    assert "\n" not in text


def test_no_private_name_of_ray_is_used() -> None:
    folder = Path(bridge.__file__).parent
    lines = [line.strip() for file in folder.glob("*.py") for line in file.read_text().splitlines()]
    private = [line for line in lines if re.search(r"\bray\.(_[a-z]|autoscaler)", line)]
    assert private == []


class ActorDied(Exception):
    """Has the text of an `ActorDiedError`, which only Ray's own messages can make."""


NEVER_RAN = "\nThe actor never ran - it was cancelled before it started running."


@pytest.mark.parametrize(
    ("error", "node", "how", "by"),
    [
        (
            ActorDied("Worker exit detail: the node is running low on memory"),
            "n1",
            "node n1 is out of memory",
            "machine",
        ),
        (ActorDied("The actor is dead because its node has died."), "n1", "node n1 was lost", "machine"),
        (
            ActorDied("Worker exit type: SYSTEM_ERROR (1) killed by the OOM killer due to high memory usage"),
            *("n1", "ended on node n1", "machine"),
        ),
        (ActorDied("Worker exit type: SYSTEM_ERROR"), "", "", "machine"),
        (ValueError("Invalid option keyword nothing"), "", "Check [execution.ray] resources", "host"),
        (
            ActorDied(f"The actor is dead because its node has died.{NEVER_RAN}"),
            *("", "a node was lost before a host had started there", "machine"),
        ),
        (ActorDied(f"The owner left.{NEVER_RAN}"), "", "the actor of a host did not start: The owner left.", "machine"),
    ],
)
def test_the_end_of_an_actor_becomes_a_line(error: Exception, node: str, how: str, by: str) -> None:
    end = end_of_actor(error, node)
    assert how in end.how
    assert end.by == by
    if node:
        assert end.is_of_node is ("lost" in how)


def test_an_environment_that_cannot_be_made_is_told_in_one_line() -> None:
    from ray.exceptions import RuntimeEnvSetupError

    said = "Failed:\nCollecting nothing\nERROR: No matching distribution found for nothing\n[notice] a new pip"
    end = end_of_actor(RuntimeEnvSetupError(said))
    assert end.how == (
        "Ray cannot make the environment of hosts: ERROR: No matching distribution found for "
        "nothing; check [execution.ray] runtime_env, workspace and exclude"
    )
    assert end.by == "host"
