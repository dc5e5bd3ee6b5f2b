"""A cluster that is simulated in the thread of `Actors`: nodes with CPUs, and actors that answer at once.

Only Ray's part is played: what it says of nodes, the class of actors, and their handles.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Self

from pytest_osmosis.addons.ray import placement
from pytest_osmosis.addons.ray.actor import Said
from pytest_osmosis.addons.ray.frames import ClusterFacts, Frame, Kind
from pytest_osmosis.addons.ray.needs import HostNeeds, Node, selects
from pytest_osmosis.addons.ray.placement import NODE_ID, Actors, Look

DEADLINE_S = 180.0


class SimulatedActor:
    """An actor that starts every host at once. It is its own handle, method and reference to a result."""

    def __init__(self, cluster: SimulatedCluster, options: Mapping[str, Any]) -> None:
        self.options = options
        self.node_id = ""
        self.calls: list[tuple[Any, ...]] = []
        """The calls of `do`."""
        self._cluster = cluster
        self._says: list[Said] = []
        self._started: Future[Any] = Future()
        self._listener: Future[Any] | None = None

    def __getattr__(self, call: str) -> Any:
        if call not in ("start", "do", "listen"):
            raise AttributeError(call)
        return _Call(self, call)

    def answer(self, call: str, *arguments: Any) -> Future[Any]:
        match call:
            case "start":
                return self._started
            case "do":
                self._do(*arguments)
                return Future()
        self._listener = Future()
        listener = self._listener
        self._speak()
        return listener

    def start_on(self, node_id: str) -> None:
        self.node_id = node_id
        problem = self._cluster.problems.get(node_id, "")
        self._started.set_result({"node": node_id, "node_id": node_id, "problem": problem})

    def fail(self, error: Exception) -> None:
        """Let the call that is not answered raise an error."""
        listener = self._listener or self._started
        listener.set_exception(error)

    def _do(self, method: str, number: int, *arguments: Any) -> None:
        self.calls.append((method, number, *arguments))
        if method == "kill":
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

    def remote(self, *arguments: Any) -> Self:
        self._future = self._actor.answer(self._name, *arguments)
        return self

    def future(self) -> Future[Any]:
        return self._future


class SimulatedCluster:
    """Nodes with as many CPUs each, and actors on them, which take a CPU each. One without room waits.

    On nodes that have `problems` no host can run, and others use some of their CPUs.
    """

    def __init__(self, n_nodes: int, cpus: int) -> None:
        self.n_cpus = {f"10.0.{index // 250}.{index % 250}": float(cpus) for index in range(n_nodes)}
        self.problems: dict[str, str] = {}
        self.used_by_others = 0.0
        self.actors: list[SimulatedActor] = []
        self._lock = threading.RLock()  # protects the nodes and actors
        self._heard = threading.Condition()
        self._frames: list[Frame] = []
        self.driver: Actors

    @contextmanager
    def played(self) -> Iterator[None]:
        """Take Ray's place in this process."""
        names = {"look": self.look, "kill": self.kill, "actor_class": lambda: self}
        before = {name: getattr(placement, name) for name in names}
        for name, made in names.items():
            setattr(placement, name, made)
        try:
            yield
        finally:
            for name, made in before.items():
                setattr(placement, name, made)

    @contextmanager
    def running(self, needs: Mapping[str, Any] | None = None, **options: Any) -> Iterator[Self]:
        with self.played():
            self.driver = Actors(HostNeeds(needs or {"num_cpus": 1}), self._hear, **options)
            thread = threading.Thread(target=self.driver.run, args=("head:1", "2"), daemon=True)
            thread.start()
            try:
                yield self
            finally:
                self.driver.close()
                thread.join(DEADLINE_S)
                assert not thread.is_alive()

    def open(self, number: int, role: str = "host", of_eval: int = 1, setup: bytes = b"{}") -> None:
        body = json.dumps({"role": role, "environ": {"SECRET": "s"}, "eval": of_eval}).encode()
        self.driver.put(Frame(Kind.OPEN, number, setup, body))

    def opened_in(self, number: int) -> SimulatedActor:
        self.wait_for(Kind.PLACED, number)
        [actor] = [each for each in self.actors if any(call[:2] == ("open", number) for call in each.calls)]
        return actor

    def opened(self, number: int, role: str = "host", **options: Any) -> SimulatedActor:
        self.open(number, role, **options)
        return self.opened_in(number)

    def have(self, node: str, n_cpus: float) -> None:
        """Let a node be seen with so many CPUs."""
        self.n_cpus[node] = n_cpus
        self.see()

    def see(self) -> None:
        self.driver.see(self.look())

    def heard(self, kind: Kind) -> dict[int, Any]:
        """Return the last frame of a kind of each host."""
        with self._heard:
            found = {frame.number: frame.first.decode() for frame in self._frames if frame.kind is kind}
        return found if kind is Kind.PLACED else {number: json.loads(body) for number, body in found.items()}

    @property
    def facts(self) -> ClusterFacts:
        self.wait_for(Kind.FACTS, 0)
        return ClusterFacts(**self.heard(Kind.FACTS)[0])

    def wait_for(self, kind: Kind, *numbers: int) -> None:
        with self._heard:
            done = self._heard.wait_for(
                lambda: {*numbers} <= {frame.number for frame in self._frames if frame.kind is kind}, DEADLINE_S
            )
        assert done, f"{self.heard(kind)} of {numbers}: {kind.name}"

    # What follows is Ray's.

    def options(self, **options: Any) -> Any:
        return _Class(self, options)

    def made(self, options: Mapping[str, Any]) -> SimulatedActor:
        return SimulatedActor(self, options)

    def join(self, actor: SimulatedActor) -> None:
        with self._lock:
            self.actors.append(actor)
            self._place()

    def look(self) -> Look:
        with self._lock:
            self._place()
            nodes = [Node(each, each, {"CPU": cpus}, {NODE_ID: each}) for each, cpus in self.n_cpus.items()]
            n_used = sum(bool(actor.node_id) for actor in self.actors) + self.used_by_others
            return Look(nodes, {"CPU": sum(self.n_cpus.values()) - n_used})

    def kill(self, handle: SimulatedActor) -> None:
        with self._lock:
            self.actors.remove(handle)
            self._place()

    def _place(self) -> None:
        for actor in [each for each in self.actors if not each.node_id]:
            used = Counter(each.node_id for each in self.actors)
            selector = actor.options.get("label_selector", {})
            free = [
                node for node, cpus in self.n_cpus.items() if cpus > used[node] and selects(selector, {NODE_ID: node})
            ]
            if free:
                actor.start_on(min(free, key=lambda node: used[node]))

    def _hear(self, frame: Frame) -> None:
        with self._heard:
            self._frames.append(frame)
            self._heard.notify_all()


class _Class:
    def __init__(self, cluster: SimulatedCluster, options: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._options = options

    def remote(self) -> SimulatedActor:
        actor = self._cluster.made(self._options)
        self._cluster.join(actor)
        return actor
