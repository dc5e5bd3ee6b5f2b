"""The actors of a session, as Ray's driver knows them: each is one host with its scorer, and belongs to one eval.

Ray places them, by their resources and labels. A host goes to an actor of its eval that lacks one, such as one whose
host crashed, and so does a scorer; else a new actor is made. The quarantine, which repeats runs alone, is a guest in
any actor of its eval: a place of its own might never become free.

One thread owns everything here. It takes messages from a queue, where the answers of actors arrive, too. Two other
threads make the calls that may wait for the head of the cluster: one makes and ends actors, one looks at the nodes.
"""

from __future__ import annotations

import contextlib
import json
import platform
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from pytest_osmosis import __version__
from pytest_osmosis.addons.ray.frames import ClusterFacts, Frame, Kind
from pytest_osmosis.addons.ray.needs import HostNeeds, Node, is_here

SAID_CHARS = 600
OUT_OF_MEMORY = ("running low on memory", "memory usage threshold", "OutOfMemoryError")
NODE_DIED = ("node has died", "node is dead", "node was terminated", "its node died")
NEVER_RAN = "The actor never ran - it was cancelled before it started running."
"""Parts of the texts of exceptions, by which alone these ends can be told apart."""
TICK_S = 0.5
LOOK_S = 2.0
ANSWER_S = 30.0
"""An actor answers every few seconds; one that has not for this long is lost."""
IDLE_S = 1.0
"""An actor without processes ends after this long: what replaces a host arrives within a few hundredths."""
AVOID_S = 60.0
"""Ray places actors even on a node that is gone, until its own check notices. For this long we ask for others."""
PIECE_BYTES = 60_000
"""Ray sends arguments below 100 KB with the call; larger ones go through its object store."""
FEW_ACTORS = 4
"""Up to this many actors may answer as often as they like."""
ANSWERS_PER_S = 2000.0
"""This many answers of actors a second are about half of what a core of the bridge can take."""
NODE_ID = "ray.io/node-id"


class EndOfActor(NamedTuple):
    """The end of the processes of an actor, as in `Died`. It `is_of_node` if their node is gone, too."""

    how: str
    by: Literal["host", "machine"]
    is_of_node: bool = False


def end_of_actor(error: BaseException, node: str = "") -> EndOfActor:
    """Return how an actor that ran on `node` ended, by the exception of a call.

    Without a node it could not start: by a mistake of the user's, or by the machine.
    """
    from ray.exceptions import ActorUnavailableError, NodeDiedError, OutOfMemoryError, RayTaskError

    if not node and (mistake := _mistake(error)):
        return EndOfActor(mistake, "host")
    said, on = str(error), f"node {node}" if node else "a node"
    if isinstance(error, OutOfMemoryError) or _says(said, OUT_OF_MEMORY):
        return EndOfActor(f"{on} is out of memory: Ray ended the actor of a host", "machine")
    if isinstance(error, NodeDiedError) or _says(said, NODE_DIED):
        return EndOfActor(f"{on} was lost{'' if node else ' before a host had started there'}", "machine", bool(node))
    if not node:
        why = _last_line(said.replace(NEVER_RAN, ""))
        return EndOfActor(f"the actor of a host did not start: {why}", "machine")
    if isinstance(error, ActorUnavailableError):
        return EndOfActor(f"the connection to {on} was lost", "machine", is_of_node=True)
    if isinstance(error, RayTaskError):
        return EndOfActor(f"the actor of a host failed on {on}: {_last_line(said)}", "machine")
    return EndOfActor(f"the actor of a host ended on {on}", "machine")


def _mistake(error: BaseException) -> str:
    """Return the mistake of the user's by which no host can start, and what to do about it; "" for other errors."""
    from ray.exceptions import ActorUnschedulableError, RuntimeEnvSetupError, TaskUnschedulableError

    if isinstance(error, RuntimeEnvSetupError):  # installers explain at length what they could not do
        why = "\n".join(line for line in str(error).splitlines() if "error" in line.lower()) or str(error)
        how = f"Ray cannot make the environment of hosts: {_last_line(why)}"
        return f"{how}; check [execution.ray] runtime_env, workspace and exclude"
    if isinstance(error, (ActorUnschedulableError, TaskUnschedulableError, ValueError, TypeError)):
        said = " ".join(map(str, error.args)) or str(error)  # Ray's may have parts
        return f"Ray can place no host: {said.strip()[:SAID_CHARS]}\nCheck [execution.ray] resources and runtime_env."
    return ""


def _says(said: str, any_of: Sequence[str]) -> bool:
    return any(words in said for words in any_of)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:SAID_CHARS] if lines else "no reason given"


class RayActor(Struct, eq=False):
    """An actor of Ray. It has processes of an eval, by their numbers; `calls` wait for it to be made."""

    of_eval: int
    roles: dict[int, str] = {}
    handle: Any = None
    calls: list[tuple[Any, ...]] = []
    runs: bool = False
    node: str = ""
    node_id: str = ""
    asked_at: float = 0.0
    idle_since: float = 0.0


class Look(NamedTuple):
    """The living nodes, and the resources that are free on all of them together."""

    nodes: Sequence[Node]
    free: Mapping[str, float]


class Actors:
    """Has hosts started and hears them. `say` sends a frame to pytest's process.

    The folder `upload` is what Ray copies to nodes, if they do not share it. With `only_here` nodes on other machines
    than this one get no hosts.
    """

    def __init__(
        self, needs: HostNeeds, say: Callable[[Frame], None], *, upload: str = "", only_here: bool = False
    ) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._needs = needs
        self._say = say
        self._upload = upload
        self._only_here = only_here
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._actors: dict[RayActor, None] = {}
        self._of_number: dict[int, RayActor] = {}
        self._nodes: Sequence[Node] = ()
        self._avoided_until: dict[str, float] = {}
        self._facts = ClusterFacts("", "", 0, 0)
        self._class: Any = None
        self._maker = ThreadPoolExecutor(1, "osmosis-actors")
        self._closed = threading.Event()
        self._ticked_at = time.monotonic()

    def put(self, frame: Frame) -> None:
        """Hand over a frame. From any thread."""
        self._inbox.put(partial(self._take_frame, frame))

    def see(self, seen: Look) -> None:
        """Hand over what the cluster has now. From any thread."""
        self._inbox.put(partial(self._take_look, seen))

    def close(self) -> None:
        """Let `run` end. From any thread."""
        self._inbox.put(None)

    def run(self, address: str, ray: str) -> None:
        """Have hosts started and hear them until `close`, then end them all."""
        self._facts = ClusterFacts(address, ray, 0, 0)
        self._take_look(look())
        threading.Thread(target=self._watch, name="osmosis-nodes", daemon=True).start()
        is_open = True
        while is_open:
            with contextlib.suppress(queue.Empty):
                take = self._inbox.get(timeout=max(self._ticked_at + TICK_S - time.monotonic(), 0.0))
                is_open = take is not None
                if take is not None:
                    take()
            if (now := time.monotonic()) - self._ticked_at >= TICK_S:
                self._tick(now)
        self._closed.set()
        for actor in [*self._actors]:
            self._end(actor)
        self._maker.shutdown()

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_S):
            try:
                self.see(look())
            except Exception as error:
                log(f"the nodes of the cluster cannot be listed: {error}")

    def _take_frame(self, frame: Frame) -> None:
        actor = self._of_number.get(frame.number)
        match frame.kind:
            case Kind.OPEN:
                self._open(frame.number, frame.first, json.loads(frame.second))
            case Kind.SEND if actor is not None:
                self._call(actor, "do", "send", frame.number, *pieces(frame.first))
            case Kind.KILL if actor is not None:
                self._call(actor, "do", "kill", frame.number)
                if not actor.runs:
                    self._died(actor, frame.number, EndOfActor("it was ended while it waited for a place", "machine"))
                    if not actor.roles:
                        self._end(actor)

    def _open(self, number: int, setup: bytes, fields: Mapping[str, Any]) -> None:
        of_eval, role = fields["eval"], fields["role"]
        lacking = [each for each in self._actors if each.of_eval == of_eval and role not in each.roles.values()]
        actor = max(lacking, key=lambda each: each.runs, default=None) or self._made(of_eval)
        actor.roles[number], self._of_number[number] = role, actor
        given = json.dumps({"environ": fields["environ"], "upload": self._upload}).encode()
        first = pieces(setup)
        self._call(actor, "do", "open", number, len(first), *first, *pieces(given))
        if actor.runs:
            self._say(Frame(Kind.PLACED, number, actor.node_id.encode()))

    def _made(self, of_eval: int) -> RayActor:
        """Have Ray asked for one more actor."""
        actor = RayActor(of_eval)
        self._actors[actor] = None
        self._maker.submit(self._make, actor, {"num_cpus": 0, **self._needs.options, **self._placing()})
        self._call(actor, "start", __version__, platform.node() if self._only_here else "")
        return actor

    def _placing(self) -> dict[str, Any]:
        """Return the options that spread actors over nodes, without those that must not get any."""
        avoided = {node_id for node_id, until in self._avoided_until.items() if time.monotonic() < until}
        avoided |= {node.node_id for node in self._nodes if node not in self._allowed(self._nodes)}
        others = {NODE_ID: f"!in({','.join(sorted(avoided))})"} if avoided else {}
        return {"scheduling_strategy": "SPREAD", "label_selector": {**self._needs.selector, **others}}

    def _allowed(self, nodes: Sequence[Node]) -> list[Node]:
        return [node for node in nodes if not self._only_here or is_here(node.address)]

    def _make(self, actor: RayActor, options: Mapping[str, Any]) -> None:
        try:
            self._class = self._class or actor_class()
            handle = self._class.options(**options).remote()
        except Exception as error:
            self._inbox.put(partial(self._abandon, actor, end_of_actor(error)))
        else:
            self._inbox.put(partial(self._take_handle, actor, handle))

    def _take_handle(self, actor: RayActor, handle: Any) -> None:
        if actor not in self._actors:
            self._maker.submit(kill, handle)
            return
        actor.handle = handle
        calls, actor.calls = actor.calls, []
        for call in calls:
            self._call(actor, *call)

    def _call(self, actor: RayActor, method: Literal["start", "do", "listen"], *arguments: Any) -> None:
        """Call an actor, once it is made. What is wrong with it is said by what answers: "start" and "listen"."""
        if actor.handle is None:
            actor.calls.append((method, *arguments))
            return
        reference = getattr(actor.handle, method).remote(*arguments)
        if method != "do":
            reference.future().add_done_callback(
                lambda future: self._inbox.put(partial(self._take_answer, actor, method, future))
            )

    def _listen(self, actor: RayActor) -> None:
        actor.asked_at = time.monotonic()
        self._call(actor, "listen", max(len(self._actors) - FEW_ACTORS, 0) / ANSWERS_PER_S)

    def _take_answer(self, actor: RayActor, call: str, future: Any) -> None:
        if actor not in self._actors:
            return  # those that ended are heard no more
        try:
            answer = future.result()
        except Exception as error:
            self._abandon(actor, end_of_actor(error, actor.node if actor.runs else ""))
            return
        if call == "start":
            self._started(actor, **answer)
            return
        for kind, number, first, second in answer:
            if number in actor.roles:
                self._say(Frame(Kind(kind), number, first, second))
                if kind == Kind.DIED:
                    self._forget(actor, number)
        self._listen(actor)

    def _started(self, actor: RayActor, node: str, node_id: str, problem: str) -> None:
        actor.node, actor.node_id = node, node_id
        if problem:
            others = [each for each in self._allowed(self._nodes) if each.node_id != node_id]
            if any(self._needs.room_on(each) for each in others):
                self._avoided_until[node_id] = time.monotonic() + AVOID_S
            self._abandon(actor, EndOfActor(problem, "host"))
            return
        actor.runs = True
        for number in actor.roles:
            self._say(Frame(Kind.PLACED, number, node_id.encode()))
        self._listen(actor)

    def _died(self, actor: RayActor, number: int, end: EndOfActor) -> None:
        self._say(Frame(Kind.DIED, number, json.dumps({"how": end.how, "by": end.by}).encode()))
        self._forget(actor, number)

    def _forget(self, actor: RayActor, number: int) -> None:
        del actor.roles[number], self._of_number[number]
        actor.idle_since = time.monotonic()

    def _abandon(self, actor: RayActor, end: EndOfActor) -> None:
        """End an actor, unless it has ended, and say how its processes ended."""
        if actor not in self._actors:
            return
        if end.by == "host" and any(each.runs for each in self._actors):
            end = end._replace(by="machine")  # other nodes can run these hosts
        if end.is_of_node and actor.node_id:
            self._avoided_until[actor.node_id] = time.monotonic() + AVOID_S
        for number in [*actor.roles]:
            self._died(actor, number, end)
        self._end(actor)

    def _end(self, actor: RayActor) -> None:
        del self._actors[actor]
        for number in [*actor.roles]:
            self._forget(actor, number)
        if actor.handle is not None:
            self._maker.submit(kill, actor.handle)

    def _tick(self, now: float) -> None:
        stood_still_s, self._ticked_at = now - self._ticked_at - TICK_S, now
        if stood_still_s > TICK_S:  # answers may have arrived meanwhile, which nobody has taken yet
            for actor in self._actors:
                actor.asked_at += stood_still_s
        running = [each for each in self._actors if each.runs]
        silent = {each.node_id for each in running if now - each.asked_at > ANSWER_S}
        for actor in running:
            if actor.node_id in silent and now - actor.asked_at > ANSWER_S / 2:  # the others of a node are about to be
                how = f"node {actor.node} said nothing for {ANSWER_S:.0f} s"
                self._abandon(actor, EndOfActor(how, "machine", is_of_node=True))
            elif not actor.roles and now - actor.idle_since > IDLE_S:
                self._end(actor)

    def _take_look(self, seen: Look) -> None:
        """Take in the nodes, and tell what follows if it has changed."""
        self._nodes, told = seen.nodes, self._facts
        nodes = [node for node in self._allowed(seen.nodes) if self._needs.room_on(node)]
        free = self._needs.room_in(seen.free) + sum(actor.runs for actor in self._actors)
        n_places = min(sum(map(self._needs.room_on, nodes)), max(free, told.n_places))
        is_local = all(is_here(node.address) for node in seen.nodes)
        facts = ClusterFacts(told.address, told.ray, len(nodes), n_places, is_local)
        if facts != self._facts:
            self._facts = facts
            self._say(Frame(Kind.FACTS, 0, json.dumps(facts._asdict()).encode()))


def pieces(data: bytes) -> list[bytes]:
    """Return data in pieces that Ray keeps out of its object store, each as an argument of its own."""
    return [data[begin : begin + PIECE_BYTES] for begin in range(0, len(data), PIECE_BYTES)]


def look() -> Look:
    """Return the nodes as they are now. Raises what Ray raises if its head does not answer."""
    import ray

    list_nodes: Any = ray.nodes
    list_free: Any = ray.available_resources
    nodes = [
        Node(each["NodeID"], each["NodeManagerAddress"], each["Resources"], each.get("Labels") or {})
        for each in list_nodes()
        if each["Alive"]
    ]
    return Look(nodes, list_free())


def kill(handle: Any) -> None:
    """End an actor, even one that waits for resources."""
    import ray

    try:
        ray.kill(handle, no_restart=True)
    except Exception as error:  # it ended by itself, or with the head of the cluster
        log(f"an actor was not ended: {error}")


def actor_class() -> Any:
    """Return the class of all actors. Its code travels with it, so that it can say if its node lacks our package."""
    import ray

    class OsmosisHost:
        __qualname__ = "OsmosisHost"  # as Ray's tools show it
        host: Any = None

        def start(self, version: str, machine: str) -> dict[str, str]:
            """Return where this is, and why no host can run here; on other machines than `machine`, if that is set."""
            import platform
            from pathlib import Path

            import ray

            node, problem = platform.node(), ""
            fix = f"install pytest-osmosis {version} on all nodes, or name it in [execution.ray] runtime_env"
            try:
                from pytest_osmosis import __version__
                from pytest_osmosis.addons.ray.actor import HostActor

                if machine not in (node, ""):
                    problem = f"node {node} is not on the machine of pytest, at which a model's base_url points"
                elif __version__ != version:
                    problem = f"node {node} has pytest-osmosis {__version__}, and this machine has {version}: {fix}"
                else:
                    self.host = HostActor(str(Path.cwd()))
            except ImportError as error:
                problem = f"pytest-osmosis cannot be imported on node {node} ({error}): {fix}"
            return {"node": node, "node_id": ray.get_runtime_context().get_node_id(), "problem": problem}

        def do(self, method: str, *arguments: Any) -> None:
            if self.host is not None:
                getattr(self.host, method)(*arguments)

        @ray.method(concurrency_group="out")
        def listen(self, gather_s: float) -> Any:
            return self.host.listen(gather_s)

    remote: Any = ray.remote
    return remote(concurrency_groups={"out": 1}, max_restarts=0, enable_task_events=False)(OsmosisHost)


def log(text: str) -> None:
    """Write a line to the bridge's log, its standard error."""
    sys.stderr.write(f"pytest-osmosis: {text}\n")
    sys.stderr.flush()
