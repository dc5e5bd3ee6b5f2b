"""The end of an actor: how, and by whose end, as told by what Ray raises."""

from __future__ import annotations

from typing import Literal, NamedTuple

SAID_CHARS = 600
OUT_OF_MEMORY = ("running low on memory", "memory usage threshold", "OutOfMemoryError")
NODE_DIED = ("node has died", "node is dead", "node was terminated", "its node died")
NEVER_RAN = "The actor never ran - it was cancelled before it started running."
"""Parts of the texts of exceptions, by which alone these ends can be told apart."""


class EndOfActor(NamedTuple):
    """The end of the processes of an actor, as in `Died`. It `is_of_node` if their node is gone, too."""

    how: str
    by: Literal["host", "machine"]
    is_of_node: bool = False


def end_of_actor(error: BaseException, node: str) -> EndOfActor:
    """Return how an actor that ran on `node` ended, by the exception of a call."""
    from ray.exceptions import ActorUnavailableError, NodeDiedError, OutOfMemoryError, RayTaskError

    said = str(error)
    if isinstance(error, OutOfMemoryError) or any(words in said for words in OUT_OF_MEMORY):
        return EndOfActor(f"node {node} is out of memory: Ray ended the actor of a host", "machine")
    if isinstance(error, NodeDiedError) or any(words in said for words in NODE_DIED):
        return EndOfActor(f"node {node} was lost", "machine", is_of_node=True)
    if isinstance(error, ActorUnavailableError):
        return EndOfActor(f"the connection to node {node} was lost", "machine", is_of_node=True)
    if isinstance(error, RayTaskError):
        return EndOfActor(f"the actor of a host failed on node {node}: {_last_line(said)}", "machine")
    return EndOfActor(f"the actor of a host ended on node {node}", "machine")


def failed_start(error: BaseException) -> EndOfActor:
    """Return why an actor could not start on a node: by mistakes of the user's, or by the machine."""
    from ray.exceptions import ActorUnschedulableError, NodeDiedError, RuntimeEnvSetupError, TaskUnschedulableError

    said = " ".join(map(str, error.args)) if isinstance(error, ValueError) else str(error)  # Ray's may have parts
    if isinstance(error, RuntimeEnvSetupError):
        how = f"Ray cannot make the environment of hosts: {_telling_line(said)}"
        return EndOfActor(f"{how}; check [execution.ray] runtime_env, workspace and exclude", "host")
    if isinstance(error, (ActorUnschedulableError, TaskUnschedulableError)):
        how = f"Ray can place no host: {said.strip()[:SAID_CHARS]}\nCheck [execution.ray] resources."
        return EndOfActor(how, "host")
    if isinstance(error, (ValueError, TypeError)):
        how = f"Ray does not take the options of hosts: {said.strip()[:SAID_CHARS]}\n"
        return EndOfActor(f"{how}Check [execution.ray] resources and runtime_env.", "host")
    if isinstance(error, NodeDiedError) or any(words in said for words in NODE_DIED):
        return EndOfActor("a node was lost before a host had started there", "machine")
    if any(words in said for words in OUT_OF_MEMORY):
        return EndOfActor("a node is out of memory: Ray ended the actor of a host", "machine")
    why = _last_line(said.replace(NEVER_RAN, ""))
    return EndOfActor(f"the actor of a host did not start: {why}", "machine")


def _telling_line(text: str) -> str:
    """Return the last line that speaks of an error, as installers explain at length what they could not do."""
    lines = [line for line in text.splitlines() if "error" in line.lower()]
    return _last_line("\n".join(lines) or text)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:SAID_CHARS] if lines else "no reason given"
