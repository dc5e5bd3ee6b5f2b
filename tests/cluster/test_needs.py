"""The room on nodes, in plain numbers."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_osmosis.addons.ray.needs import HostNeeds, Node, selects


def node(total: dict[str, float], **labels: str) -> Node:
    return Node("id", "10.0.0.1", total, labels)


def test_the_scarcest_resource_bounds_the_hosts_on_a_node() -> None:
    needs = HostNeeds({"num_cpus": 0.5, "memory": 2e9, "resources": {"licence": 1}})
    assert needs.room_on(node({"CPU": 4, "memory": 9e9, "licence": 5})) == 4
    assert needs.room_on(node({"CPU": 4, "memory": 9e9})) == 0


def test_a_node_of_the_wrong_kind_has_no_room() -> None:
    needs = HostNeeds({"num_cpus": 1, "label_selector": {"zone": "in(a, b)"}})
    assert needs.room_on(node({"CPU": 4}, zone="b")) == 4
    assert needs.room_on(node({"CPU": 4}, zone="c")) == 0


@pytest.mark.parametrize(
    ("selector", "matches"), [("a", True), ("!a", False), ("in(b,c)", False), ("!in(b,c)", True), ("!in(a)", False)]
)
def test_selectors_match_labels_as_in_ray(selector: str, matches: bool) -> None:
    assert selects({"zone": selector}, {"zone": "a"}) is matches


def test_hosts_that_ask_for_nothing_are_as_many_as_cpus() -> None:
    assert HostNeeds({"num_cpus": 0}).room_on(node({"CPU": 3})) == 3
    assert HostNeeds({"num_cpus": 0}).room_on(node({"CPU": 0})) == 0


def test_no_host_has_parts_of_two_gpus() -> None:
    assert HostNeeds({"num_gpus": 0.4}).room_on(node({"GPU": 2})) == 4
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
