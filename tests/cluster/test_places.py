"""The room on nodes, in plain numbers."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_osmosis.cluster.places import HostNeeds, Node, rooms_after, seats_of_actors, selects


def node(total: dict[str, float], free: dict[str, float] | None = None, **labels: str) -> Node:
    return Node("id", "10.0.0.1", total, total if free is None else free, labels)


def test_the_scarcest_resource_bounds_the_hosts_on_a_node() -> None:
    needs = HostNeeds({"num_cpus": 0.5, "memory": 2e9, "resources": {"licence": 1}})
    assert needs.room_on(node({"CPU": 4, "memory": 9e9, "licence": 5})) == 4
    assert needs.room_on(node({"CPU": 4, "memory": 9e9})) == 0


def test_tenths_of_a_cpu_add_up() -> None:
    assert HostNeeds({"num_cpus": 0.1}).room_on(node({"CPU": 1.0}, {"CPU": 0.3})) == 3


def test_hosts_of_this_session_count_as_room_but_never_beyond_the_node() -> None:
    needs = HostNeeds({"num_cpus": 1})
    assert needs.room_on(node({"CPU": 4}, {"CPU": 1}), held=2) == 3
    assert needs.room_on(node({"CPU": 4}, {"CPU": 4}), held=2) == 4  # the head has not heard of them yet


def test_a_node_of_the_wrong_kind_has_no_room() -> None:
    needs = HostNeeds({"num_cpus": 1, "label_selector": {"zone": "in(a, b)"}})
    assert needs.room_on(node({"CPU": 4}, zone="b")) == 4
    assert needs.most_on(node({"CPU": 4}, zone="c")) == 0


@pytest.mark.parametrize(
    ("selector", "matches"), [("a", True), ("!a", False), ("in(b,c)", False), ("!in(b,c)", True), ("!in(a)", False)]
)
def test_selectors_match_labels_as_in_ray(selector: str, matches: bool) -> None:
    assert selects({"zone": selector}, {"zone": "a"}) is matches


def test_hosts_that_ask_for_nothing_are_as_many_as_cpus() -> None:
    assert HostNeeds({"num_cpus": 0}).room_on(node({"CPU": 3})) == 3
    assert HostNeeds({"num_cpus": 0}).room_on(node({"CPU": 0})) == 0


def test_an_actor_asks_for_all_of_its_seats() -> None:
    options: dict[str, Any] = {"num_cpus": 0.5, "resources": {"licence": 1}, "label_selector": {"zone": "a"}}
    assert HostNeeds(options).of_actor(4) == {**options, "num_cpus": 2.0, "resources": {"licence": 4}}
    assert HostNeeds({"num_gpus": 1}).of_actor(2) == {"num_cpus": 0, "num_gpus": 2}


@pytest.mark.parametrize(
    ("n_hosts", "rooms", "seats"),
    [
        (2, [4, 4], [2]),
        (8, [4, 4], [4, 4]),
        (12, [4, 4], [4, 4, 4]),
        (3, [], [3]),
        (6, [1, 2], [2, 1, 3]),
        (0, [4], []),
    ],
)
def test_actors_are_as_large_as_nodes_have_room_for(n_hosts: int, rooms: list[int], seats: list[int]) -> None:
    assert list(seats_of_actors(n_hosts, rooms, at_most=8, largest=4)) == seats


def test_no_actor_has_more_seats_than_was_asked_for() -> None:
    assert list(seats_of_actors(5, [64], at_most=2, largest=64)) == [2, 2, 1]


def test_actors_that_are_on_their_way_take_the_roomiest_nodes() -> None:
    assert rooms_after([4, 2], [3]) == [1, 2]
    assert rooms_after([1, 2], [3]) == [1, 2]  # it waits


@pytest.mark.parametrize(
    ("gpus", "seats"), [(0.25, 4), (0.3, 3), (0.4, 2), (0.6, 1), (1, 1), (2, 1)], ids=lambda each: str(each)
)
def test_the_hosts_of_an_actor_share_one_device_at_most(gpus: float, seats: int) -> None:
    assert HostNeeds({"num_cpus": 1, "num_gpus": gpus}).most_seats(8) == seats
    assert HostNeeds({"num_cpus": 1, "resources": {"NPU": gpus}}).most_seats(8) == seats
    assert HostNeeds({"num_cpus": 1, "num_gpus": gpus}).most_seats(1) == 1


def test_a_demand_is_told_by_what_it_asks_for() -> None:
    needs = HostNeeds({"num_cpus": 0.1, "memory": 2e9})
    assert needs.is_demand({"CPU": 0.3, "memory": 6e9}, 3)
    assert needs.is_demand({"CPU": 0.3, "memory": 6e9, "accelerator_type:A10": 0.001}, 3)
    assert not needs.is_demand({"CPU": 0.2, "memory": 6e9}, 3)
    assert not needs.is_demand({"CPU": 0.3}, 3)
    assert not needs.is_demand({"CPU": 0.3, "memory": 6e9, "GPU": 1.0}, 3)


def test_other_resources_do_not_bound_the_hosts_of_an_actor() -> None:
    assert HostNeeds({"num_cpus": 3, "resources": {"licence": 0.4}}).most_seats(8) == 8


def test_no_host_has_parts_of_two_devices() -> None:
    assert HostNeeds({"num_gpus": 0.4}).room_on(node({"GPU": 2})) == 4
    assert HostNeeds({"num_gpus": 0.4}).room_on(node({"GPU": 2}, {"GPU": 1.4})) == 3
    assert HostNeeds({"num_gpus": 0.1}).room_on(node({"GPU": 1}, {"GPU": 0.3})) == 3
    assert HostNeeds({"num_gpus": 2}).room_on(node({"GPU": 5})) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_cpus": 1}, "1 CPU"),
        ({"num_cpus": 2, "num_gpus": 0.5}, "2 CPUs and 0.5 GPUs"),
        ({"num_cpus": 0, "resources": {"licence": 1}}, "1 licence"),
    ],
)
def test_needs_are_told_in_words(options: dict[str, Any], words: str) -> None:
    assert HostNeeds(options).amounts_text(1) == words


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"num_cpus": 64}, ""),
        ({"resources": {"num_cpu": 1}}, "no node has num_cpu (they have CPU, licence)"),
        ({"label_selector": {"zone": "b"}}, 'no node has labels that match label_selector {"zone": "b"}'),
        ({"accelerator_type": "H100"}, "no node has an accelerator of the type H100"),
    ],
)
def test_what_every_node_lacks_is_named(options: dict[str, Any], why: str) -> None:
    nodes = [node({"CPU": 4, "node:10.0.0.1": 1}, zone="a"), node({"licence": 1, "object_store_memory": 8e7}, zone="a")]
    assert HostNeeds(options).unmet(nodes) == why
