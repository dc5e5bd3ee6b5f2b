"""The end of a relay: how, and by whose end, as told by what Ray raises."""

from __future__ import annotations

from typing import Literal, NamedTuple

SAID_CHARS = 600
OUT_OF_MEMORY = ("running low on memory", "memory usage threshold", "OutOfMemoryError")
NODE_DIED = ("node has died", "node is dead", "node was terminated", "its node died")
NEVER_RAN = "The actor never ran - it was cancelled before it started running."
CANNOT_IMPORT = ("No module named 'pytest_osmosis", "cannot import name", "failed to be imported")
"""Parts of the texts of exceptions, by which alone these ends can be told apart."""


class EndOfRelay(NamedTuple):
    """The end of all hosts of a relay, as in `Died`. It `is_of_node` if their node is gone, too."""

    how: str
    by: Literal["host", "machine"]
    is_of_node: bool = False


def end_of_relay(error: BaseException, node: str) -> EndOfRelay:
    """Return how a relay that ran on `node` ended, by the exception of a call."""
    from ray.exceptions import ActorUnavailableError, NodeDiedError, OutOfMemoryError, RayTaskError

    said = str(error)
    if isinstance(error, OutOfMemoryError) or any(words in said for words in OUT_OF_MEMORY):
        how = f"node {node} is out of memory: Ray ended the process that runs the hosts"
        return EndOfRelay(how, "machine")
    if isinstance(error, NodeDiedError) or any(words in said for words in NODE_DIED):
        return EndOfRelay(f"node {node} was lost", "machine", is_of_node=True)
    if isinstance(error, ActorUnavailableError):
        return EndOfRelay(f"the connection to node {node} was lost", "machine", is_of_node=True)
    if isinstance(error, RayTaskError):
        return EndOfRelay(f"the process that runs the hosts failed on node {node}: {_last_line(said)}", "machine")
    return EndOfRelay(f"the process that runs the hosts ended on node {node}", "machine")


def is_loss_of_node(error: BaseException) -> bool:
    """Return True if a relay that had to start on one node could not, as the node is gone."""
    from ray.exceptions import ActorUnschedulableError, NodeDiedError, TaskUnschedulableError

    gone = (NodeDiedError, ActorUnschedulableError, TaskUnschedulableError)
    return isinstance(error, gone) or any(words in str(error) for words in NODE_DIED)


def failed_start(error: BaseException, node: str = "a node") -> EndOfRelay:
    """Return why a relay could not start on a node: by mistakes of the user's, or by the machine."""
    from ray.exceptions import ActorUnschedulableError, NodeDiedError, RuntimeEnvSetupError, TaskUnschedulableError

    from pytest_osmosis import __version__

    said = " ".join(map(str, error.args)) if isinstance(error, ValueError) else str(error)  # Ray's may have parts
    if any(words in said for words in CANNOT_IMPORT):
        how = (
            f"pytest-osmosis {__version__} cannot be imported on {node} ({_last_line(said)}): "
            "install it there, or name it in [execution.ray] runtime_env"
        )
        return EndOfRelay(how, "host")
    if isinstance(error, RuntimeEnvSetupError):
        how = f"Ray cannot make the environment of the hosts on {node}: {_telling_line(said)}"
        return EndOfRelay(f"{how}; check [execution.ray] runtime_env, workspace and exclude", "host")
    if isinstance(error, (ActorUnschedulableError, TaskUnschedulableError)):
        how = f"Ray can place no host: {said.strip()[:SAID_CHARS]}\nCheck [execution.ray] resources."
        return EndOfRelay(how, "host")
    if isinstance(error, (ValueError, TypeError)):
        how = f"Ray does not take the options of the hosts: {said.strip()[:SAID_CHARS]}\n"
        return EndOfRelay(f"{how}Check [execution.ray] resources and runtime_env.", "host")
    if isinstance(error, NodeDiedError) or any(words in said for words in NODE_DIED):
        return EndOfRelay(f"{node} was lost before hosts had started there", "machine")
    if any(words in said for words in OUT_OF_MEMORY):
        return EndOfRelay(f"{node} is out of memory: Ray ended the process that would run the hosts", "machine")
    why = _last_line(said.replace(NEVER_RAN, ""))
    return EndOfRelay(f"the process that would run the hosts did not start on {node}: {why}", "machine")


def _telling_line(text: str) -> str:
    """Return the last line that speaks of an error, as installers explain at length what they could not do."""
    lines = [line for line in text.splitlines() if "error" in line.lower()]
    return _last_line("\n".join(lines) or text)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:SAID_CHARS] if lines else "no reason given"
