"""The end of an actor, by what Ray says."""

from __future__ import annotations

import pytest

from pytest_osmosis.addons.ray.placement import end_of_actor, failed_start


class ActorDied(Exception):
    """Has the text of an `ActorDiedError`, which only Ray's own messages can make."""


@pytest.mark.parametrize(
    ("said", "how"),
    [
        ("Worker exit detail: the node is running low on memory", "node n1 is out of memory"),
        ("The actor is dead because its node has died.", "node n1 was lost"),
        ("Worker exit type: SYSTEM_ERROR (1) killed by the OOM killer due to high memory usage", "ended on node n1"),
    ],
)
def test_what_ray_says_becomes_a_line(said: str, how: str) -> None:
    end = end_of_actor(ActorDied(said), "n1")
    assert how in end.how
    assert end.by == "machine"
    assert end.is_of_node is ("lost" in how)


def test_a_mistake_of_the_users_says_what_to_do() -> None:
    end = failed_start(ValueError("Invalid option keyword nothing"))
    assert end.by == "host"
    assert "Check [execution.ray] resources" in end.how


def test_a_machine_that_ends_an_actor_at_its_start_is_no_mistake() -> None:
    assert failed_start(ActorDied("Worker exit type: SYSTEM_ERROR")).by == "machine"


@pytest.mark.parametrize(
    ("said", "how"),
    [
        ("The actor is dead because its node has died.\n{}", "a node was lost before a host had started there"),
        ("The owner left.\n{}", "the actor of a host did not start: The owner left."),
    ],
)
def test_an_actor_that_never_ran_says_why(said: str, how: str) -> None:
    never_ran = "The actor never ran - it was cancelled before it started running."
    assert failed_start(ActorDied(said.format(never_ran))).how == how


def test_an_environment_that_cannot_be_made_is_told_in_one_line() -> None:
    from ray.exceptions import RuntimeEnvSetupError

    said = "Failed:\nCollecting nothing\nERROR: No matching distribution found for nothing\n[notice] a new pip"
    end = failed_start(RuntimeEnvSetupError(said))
    assert end.how == (
        "Ray cannot make the environment of hosts: ERROR: No matching distribution found for "
        "nothing; check [execution.ray] runtime_env, workspace and exclude"
    )
    assert end.by == "host"
