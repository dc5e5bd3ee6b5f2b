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
from typing import Any, Self

from pytest_osmosis import __version__
from pytest_osmosis.cluster import relays as relays_module
from pytest_osmosis.cluster.actors import ActorState, Closed, Failed, Nodes, Order, RelayActor, Started
from pytest_osmosis.cluster.backlog import Said
from pytest_osmosis.cluster.frames import Frame, Kind
from pytest_osmosis.cluster.places import Node
from pytest_osmosis.cluster.relays import Relays
from pytest_osmosis.config.tables import RayOptions

Post = Callable[[Started | Failed | Nodes], None]


class SimulatedActor:
    """An actor that starts every host at once. It is its own handle, id and reference to a result."""

    def __init__(self, name: str, node_id: str, cluster: SimulatedCluster) -> None:
        self._actor_id = self
        self._name = name
        self._cluster = cluster
        self._says: list[Said] = []
        self._listener: Future[Any] | None = None
        self.node_id = node_id
        self.hangs = False

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
                pass
            case "where" if self.node_id in self._cluster.bad_nodes:
                future.set_exception(RuntimeError("No module named 'pytest_osmosis'"))
            case "where":
                where = {"node": self.node_id, "node_id": self.node_id, "devices": {}, "address": self.node_id}
                future.set_result({**where, "version": __version__})
            case "do" if self.hangs:
                pass
            case "do":
                self._do(arguments[0])
                future.set_result(None)
            case _:
                self._listener = future
                self._speak()
        return future

    def _do(self, orders: Sequence[Order]) -> None:
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

    An actor for which no node has room waits for ever, and Ray says that somebody wants what it wants. No relay can
    start on `bad_nodes`.
    """

    def __init__(self, n_nodes: int, cpus: int) -> None:
        self.n_cpus = {f"10.0.{index // 250}.{index % 250}": float(cpus) for index in range(n_nodes)}
        self.bad_nodes: set[str] = set()
        self.actors: dict[RelayActor, SimulatedActor] = {}
        self.n_made = 0
        self._demands: dict[RelayActor, int] = {}
        self._post: Post = lambda message: None
        self._heard = threading.Condition()
        self._frames: list[Frame] = []
        self.relays: Relays

    @contextmanager
    def running(self, options: RayOptions | None = None) -> Iterator[Self]:
        """Have hosts placed."""
        names = {"Actors": lambda options, needs, post: self._joined(post), "NodeWatch": lambda post: self}
        before = {name: getattr(relays_module, name) for name in names}
        try:
            for name, made in names.items():
                setattr(relays_module, name, made)
            self.relays = Relays(options or RayOptions(), self._hear, lambda *seen: b"{}")
        finally:
            for name, made in before.items():
                setattr(relays_module, name, made)
        thread = threading.Thread(target=self.relays.run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.relays.put(Closed())
            thread.join(60)
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

    def wait_for(self, kind: Kind, n_hosts: int, seconds: float = 60.0) -> None:
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
        """Let the nodes be seen as they are now."""
        used: Counter[str] = Counter()
        for relay, actor in self.actors.items():
            used[actor.node_id] += relay.seats
        nodes = [Node(node, node, {"CPU": cpus}, {"CPU": cpus - used[node]}) for node, cpus in [*self.n_cpus.items()]]
        states = {
            actor.hex(): ActorState(True, actor.node_id, 1) if actor.node_id else ActorState()
            for actor in self.actors.values()
        }
        self._post(Nodes(nodes, states, [{"CPU": float(seats)} for seats in self._demands.values()]))

    def make(self, relay: RelayActor, options: Mapping[str, Any]) -> None:
        self.n_made += 1
        avoided = str(options.get("label_selector", {}).get("ray.io/node-id", ""))
        taken: Counter[str] = Counter()
        for other, actor in self.actors.items():
            taken[actor.node_id] += other.seats
        free = [
            node
            for node, cpus in self.n_cpus.items()
            if cpus - taken[node] >= relay.seats
            and node not in avoided.removeprefix("!in(").removesuffix(")").split(",")
        ]
        if not free:
            self._demands[relay] = relay.seats
        node_id = min(free, key=lambda node: taken[node], default="")
        self.actors[relay] = SimulatedActor(str(self.n_made), node_id, self)
        self._post(Started(relay, self.actors[relay]))

    def kill(self, relay: RelayActor) -> None:
        self.actors.pop(relay, None)
        self._demands.pop(relay, None)

    def find_failed(self, relay: RelayActor, error: Exception) -> None:
        self._post(Failed(relay, error, self.actors[relay].node_id))

    def close(self, relays: object) -> None:
        pass

    @property
    def n_demanded(self) -> int:
        """The CPUs for which Ray is asked, and of which it has none."""
        return sum(self._demands.values())

    def _hear(self, frame: Frame) -> None:
        with self._heard:
            self._frames.append(frame)
            self._heard.notify_all()
