"""A cluster that is simulated in the thread of `Relays`: nodes with room, and actors that answer at once.

Ray's part is played (`Actors`, `NodeWatch`, the handles of actors); what places hosts is the real code. Nothing is
asked for more often than in reality, so what it costs is what a cluster of that size costs the bridge.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

from pytest_osmosis import __version__
from pytest_osmosis.cluster import relays as relays_module
from pytest_osmosis.cluster.actors import ActorState, Closed, Failed, Nodes, Order, RelayActor, Started
from pytest_osmosis.cluster.backlog import Said
from pytest_osmosis.cluster.facts import ClusterFacts
from pytest_osmosis.cluster.facts_teller import facts_body
from pytest_osmosis.cluster.frames import Frame, Kind
from pytest_osmosis.cluster.places import HostNeeds, Node
from pytest_osmosis.cluster.relays import Relays
from pytest_osmosis.config.tables import RayOptions

DEADLINE_S = 180.0
Post = Callable[[Started | Failed | Nodes], None]


class SimulatedActor:
    """An actor that starts every host at once. It is its own handle, id and reference to a result."""

    def __init__(self, name: str, node_id: str, cluster: SimulatedCluster) -> None:
        self._actor_id = self
        self._name = name
        self._cluster = cluster
        self._says: list[Said] = []
        self._listener: Future[Any] | None = None
        self._asked_where: Future[Any] | None = None
        self.node_id = node_id
        self.hangs = False
        self.batches: list[Sequence[Order]] = []
        """The orders that came, those of each call together."""

    def hex(self) -> str:
        return self._name

    def __getattr__(self, call: str) -> Any:
        if call not in ("where", "do", "listen"):
            raise AttributeError(call)
        return _Call(self, call)

    def answer(self, call: str, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        match call:
            case "where" if not self.node_id:
                self._asked_where = future
            case "where" if self.node_id in self._cluster.bad_nodes:
                future.set_exception(RuntimeError("No module named 'pytest_osmosis'"))
            case "where":
                where = {"node": self.node_id, "node_id": self.node_id, "devices": {}, "address": self.node_id}
                future.set_result({**where, "version": self._cluster.versions.get(self.node_id, __version__)})
            case "do" if self.hangs:
                pass
            case "do":
                self._do(arguments[0])
                future.set_result(None)
            case _:
                self._listener = future
                self._speak()
        return future

    def fail(self, error: Exception) -> None:
        """Let the call that is not answered raise an error."""
        assert self._listener is not None
        self._listener.set_exception(error)

    def start_on(self, node_id: str) -> None:
        """Have a node at last."""
        self.node_id = node_id
        if self._asked_where is not None:
            self.answer("where").add_done_callback(_passed_on(self._asked_where))

    def close(self) -> None:
        """End all hosts."""

    def _do(self, orders: Sequence[Order]) -> None:
        self.batches.append(orders)
        for kind, number, *_ in orders:
            if kind == "open":
                place = {"node": self.node_id, "node_id": self.node_id, "pid": 1}
                self._says.append((int(Kind.PLACED), number, json.dumps(place).encode(), b""))
            elif kind == "kill":
                death = json.dumps({"how": "SIGKILL", "by": "host"}).encode()
                self._says.append((int(Kind.DIED), number, death, b""))
        self._speak()

    def _speak(self) -> None:
        if self._says and self._listener is not None:
            listener, self._listener = self._listener, None
            says, self._says = self._says, []
            listener.set_result(says)


def _passed_on(future: Future[Any]) -> Callable[[Future[Any]], None]:
    """Return what gives a future the result of another one."""

    def pass_on(done: Future[Any]) -> None:
        error = done.exception()
        future.set_result(done.result()) if error is None else future.set_exception(error)

    return pass_on


class _Call:
    """One call of an actor, with the shape that Ray's have."""

    def __init__(self, actor: SimulatedActor, name: str) -> None:
        self._actor = actor
        self._name = name

    def options(self, **options: Any) -> Self:
        return self

    def remote(self, *arguments: Any) -> Self:
        self._arguments = arguments
        return self

    def future(self) -> Future[Any]:
        return self._actor.answer(self._name, *self._arguments)


class SimulatedCluster:
    """Nodes with as many CPUs each, and relays that run on them. Hosts take a CPU each.

    An actor for which no node has room waits, and Ray says that somebody wants what it wants. No relay can start on
    `bad_nodes`. Nodes have our package in one of `versions`, this one by default, and others use some of their
    CPUs.
    """

    def __init__(self, n_nodes: int, cpus: int) -> None:
        self.n_cpus = {f"10.0.{index // 250}.{index % 250}": float(cpus) for index in range(n_nodes)}
        self.bad_nodes: set[str] = set()
        self.versions: dict[str, str] = {}
        self.used_by_others: Counter[str] = Counter()
        self.actors: dict[RelayActor, SimulatedActor] = {}
        self.n_made = 0
        self._demands: dict[RelayActor, Mapping[str, Any]] = {}
        self._lock = threading.RLock()  # protects the nodes and actors
        self._post: Post = lambda message: None
        self._heard = threading.Condition()
        self._frames: list[Frame] = []
        self.relays: Relays

    @contextmanager
    def running(self, options: RayOptions | None = None, *, only_here: bool = False) -> Iterator[Self]:
        """Have hosts placed."""
        names = {"Actors": lambda options, needs, post: self._joined(post), "NodeWatch": lambda post: self}
        before = {name: getattr(relays_module, name) for name in names}
        try:
            for name, made in names.items():
                setattr(relays_module, name, made)
            options = options or RayOptions()
            described = partial(facts_body, needs=HostNeeds(options.resources), address="head:1", ray="2")
            self.relays = Relays(options, self._hear, described, only_here=only_here)
        finally:
            for name, made in before.items():
                setattr(relays_module, name, made)
        thread = threading.Thread(target=self.relays.run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.relays.put(Closed())
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

    def open(self, number: int, role: str = "host", **fields: Any) -> None:
        body = json.dumps({"role": role, "environ": {}, **fields}).encode()
        self.relays.put(Frame(Kind.OPEN, number, b'{"setup": {"workspace": "/w"}}', body))

    def heard(self, kind: Kind) -> dict[int, Mapping[str, Any]]:
        """Return the last frame of a kind of each host."""
        with self._heard:
            return {frame.number: json.loads(frame.first) for frame in self._frames if frame.kind is kind}

    def waits(self) -> dict[int, str]:
        """Return why hosts wait, as they were told last."""
        with self._heard:
            return {frame.number: frame.first.decode() for frame in self._frames if frame.kind is Kind.WAITS}

    @property
    def facts(self) -> ClusterFacts:
        """The facts that were told last."""
        return ClusterFacts.from_json(self.heard(Kind.FACTS)[0])

    def wait_for(self, kind: Kind, n_hosts: int, seconds: float = DEADLINE_S) -> None:
        """Wait until so many hosts have said something of a kind."""
        with self._heard:
            done = self._heard.wait_for(
                lambda: len({frame.number for frame in self._frames if frame.kind is kind}) >= n_hosts, seconds
            )
        assert done, f"{len(self.heard(kind))} of {n_hosts} hosts: {kind.name}"

    # `Relays` calls the following methods as those of `Actors` and of `NodeWatch`.

    asked: tuple[str, ...] = ()

    def _joined(self, post: Post) -> Self:
        self._post = post
        return self

    def start(self) -> None:
        pass

    def look(self) -> None:
        """Let the nodes be seen as they are now, and actors start for which there is room."""
        with self._lock:
            for relay, options in [*self._demands.items()]:
                if node_id := self._node_for(relay, options):
                    del self._demands[relay]
                    self.actors[relay].start_on(node_id)
            used = self._used()
            nodes = [Node(node, node, {"CPU": cpus}, {"CPU": cpus - used[node]}) for node, cpus in self.n_cpus.items()]
            states = {
                actor.hex(): ActorState(True, actor.node_id, 1) if actor.node_id else ActorState()
                for actor in self.actors.values()
            }
            self._post(Nodes(nodes, states, [{"CPU": float(relay.seats)} for relay in self._demands]))

    def make(self, relay: RelayActor, options: Mapping[str, Any]) -> None:
        with self._lock:
            self.n_made += 1
            node_id = relay.pinned_to or self._node_for(relay, options)
            if not node_id:
                self._demands[relay] = options
            self.actors[relay] = self._actor(relay, str(self.n_made), node_id)
        self._post(Started(relay, self.actors[relay]))

    def _actor(self, relay: RelayActor, name: str, node_id: str) -> SimulatedActor:
        return SimulatedActor(name, node_id, self)

    def _node_for(self, relay: RelayActor, options: Mapping[str, Any]) -> str:
        """Return the node on which a relay starts, "" if none has room for it."""
        avoided = str(options.get("label_selector", {}).get("ray.io/node-id", ""))
        used = self._used()
        free = [
            node
            for node, cpus in self.n_cpus.items()
            if cpus - used[node] >= relay.seats
            and node not in avoided.removeprefix("!in(").removesuffix(")").split(",")
        ]
        return min(free, key=lambda node: used[node], default="")

    def _used(self) -> Counter[str]:
        """Return how many CPUs of each node are in use. A relay that must start on one node takes none."""
        used = Counter(self.used_by_others)
        for relay, actor in self.actors.items():
            used[actor.node_id] += 0 if relay.pinned_to else relay.seats
        return used

    def kill(self, relay: RelayActor) -> None:
        with self._lock:
            self.actors.pop(relay, None)
            self._demands.pop(relay, None)

    def find_failed(self, relay: RelayActor, error: Exception) -> None:
        self._post(Failed(relay, error, self.actors[relay].node_id))

    def close(self, relays: object) -> None:
        pass

    @property
    def n_demanded(self) -> int:
        """The CPUs for which Ray is asked, and of which it has none."""
        return sum(relay.seats for relay in [*self._demands])

    def _hear(self, frame: Frame) -> None:
        with self._heard:
            self._frames.append(frame)
            self._heard.notify_all()
