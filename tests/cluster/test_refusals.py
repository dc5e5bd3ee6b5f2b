"""The reasons for which there is no connection to a cluster: addresses, and what Ray raises, in words. No Ray."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pytest_osmosis.addons.ray import bridge
from pytest_osmosis.addons.ray.bridge import ConnectionRefusal, check_form, refusal_text
from pytest_osmosis.addons.ray.clusters import ClusterHosts
from pytest_osmosis.addons.ray.placement import end_of_actor
from pytest_osmosis.config.tables import RayOptions
from pytest_osmosis.errors import ClusterError

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
