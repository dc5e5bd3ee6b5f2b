"""The end of a relay, by what Ray says."""

from __future__ import annotations

import pytest

from pytest_osmosis.cluster.ends import end_of_relay, failed_start


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
    end = end_of_relay(ActorDied(said), "n1")
    assert how in end.how
    assert end.by == "machine"
    assert end.is_of_node is ("lost" in how)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (ActorDied("ModuleNotFoundError: No module named 'pytest_osmosis'"), "install it there"),
        (ValueError("Invalid option keyword nothing"), "Check [execution.ray] resources"),
    ],
)
def test_a_mistake_of_the_users_says_what_to_do(error: Exception, advice: str) -> None:
    end = failed_start(error)
    assert end.by == "host"
    assert advice in end.how


def test_a_machine_that_ends_a_relay_at_its_start_is_no_mistake() -> None:
    assert failed_start(ActorDied("Worker exit type: SYSTEM_ERROR")).by == "machine"


@pytest.mark.parametrize(
    ("said", "how"),
    [
        ("The actor is dead because its node has died.\n{}", "a node was lost before hosts had started there"),
        ("The owner left.\n{}", "the process that would run the hosts did not start on a node: The owner left."),
    ],
)
def test_a_relay_that_never_ran_says_why(said: str, how: str) -> None:
    never_ran = "The actor never ran - it was cancelled before it started running."
    assert failed_start(ActorDied(said.format(never_ran))).how == how


def test_an_environment_that_cannot_be_made_is_told_in_one_line() -> None:
    from ray.exceptions import RuntimeEnvSetupError

    said = "Failed:\nCollecting nothing\nERROR: No matching distribution found for nothing\n[notice] a new pip"
    end = failed_start(RuntimeEnvSetupError(said), "node 10.0.0.7")
    assert end.how == (
        "Ray cannot make the environment of the hosts on node 10.0.0.7: ERROR: No matching distribution found for "
        "nothing; check [execution.ray] runtime_env, workspace and exclude"
    )
    assert end.by == "host"
