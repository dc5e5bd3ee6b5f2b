"""Texts about clusters, and addresses that only this machine can reach."""

from __future__ import annotations

import pytest

from pytest_osmosis.addons.ray.clusters import hosts_text, is_of_this_machine
from pytest_osmosis.addons.ray.frames import ClusterFacts
from pytest_osmosis.config.tables import RayOptions


@pytest.mark.parametrize(
    ("n", "n_nodes", "n_places", "expected"),
    [
        (48, 12, 48, "48 hosts on 12 nodes"),
        (1, 1, 8, "1 host on 1 node"),
        (1, 12, 48, "1 host on a cluster of 12 nodes"),
        (48, 8, 32, "32 of 48 hosts placed on 8 nodes; the rest waits for 32 CPUs and 8 GPUs"),
        (3, 1, 2, "2 of 3 hosts placed on 1 node; the rest waits for 2 CPUs and 0.5 GPUs"),
        (3, 2, 0, "0 of 3 hosts placed on 2 nodes; the rest waits for 6 CPUs and 1.5 GPUs"),
    ],
)
def test_hosts_without_a_place_are_counted(n: int, n_nodes: int, n_places: int, expected: str) -> None:
    facts = ClusterFacts("10.0.0.1:6379", "2.60.0", n_nodes, n_places)
    options = RayOptions(resources={"num_cpus": 2, "num_gpus": 0.5})

    at = " (Ray 2.60.0 at 10.0.0.1:6379)"
    assert hosts_text(n, facts, options).replace(at, "") == expected
    assert at in hosts_text(n, facts, options)


HERE = [
    *("http://127.0.0.1:8000/v1", "http://127.9.9.9/v1", "http://LOCALHOST:1/v1", "http://localhost./v1"),
    *("http://x.localhost/v1", "http://[::1]:8000/v1", "http://[::ffff:127.0.0.1]/v1", "http://0.0.0.0:8000/v1"),
]
ELSEWHERE = [
    *("http://10.0.0.1:8000/v1", "https://api.openai.com/v1", "http://[fd00::1]/v1", "http://localhost.example/v1"),
]


def test_only_the_loopback_is_this_machine() -> None:
    assert [url for url in HERE + ELSEWHERE if is_of_this_machine(url)] == HERE
