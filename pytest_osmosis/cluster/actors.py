"""Actors of Ray: made, ended and looked at in threads of their own, as that waits for the head of the cluster."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any, Literal, NamedTuple

from pytest_osmosis.clock import SYSTEM, Clock
from pytest_osmosis.cluster.places import HostNeeds, Node
from pytest_osmosis.config.tables import RayOptions

NODES_S = 2.0
CLOSE_S = 5.0
KEEP = "RAY_RUNTIME_ENV_TEMPORARY_REFERENCE_EXPIRATION_S"
KEEP_S = 600
"""Ray keeps an upload that no process uses for this long, unless the variable says otherwise."""
KEEP_LOOK_S = 1.0
NEVER_UPLOADED = (".env*", ".osmosis", ".git", ".venv", "__pycache__")

Role = Literal["host", "scorer", "quarantine"]
Order = tuple[str, int, bytes, bytes]
EvalKey = tuple[int, str]
"""The number of an eval in the order of a session, and its workspace on the nodes."""


@dataclass(slots=True, eq=False)
class PlacedHost:
    """A host, and what has to be sent to it while it waits for a seat.

    Evals are numbered in their order. One that takes as many hosts as there is room for can do without `optional` ones:
    Ray is not asked for room for them.
    """

    number: int
    role: Role
    orders: list[Order]
    workspace: str
    eval_number: int = 0
    optional: bool = False
    gather_s: float = 0.0
    waits: str = ""

    @property
    def of_eval(self) -> EvalKey:
        return self.eval_number, self.workspace


@dataclass(slots=True, eq=False)
class RelayActor:
    """A relay as its driver knows it. It serves hosts of one `workspace`, or just the quarantine `only_for`.

    `places` are those that each eval has, of `seats` in all, and `n_seated` the hosts and scorers of each in them.

    Ray can start it on no other node than `pinned_to`, if that is given. There it asks for nothing, and its hosts use
    the accelerators named by the variables `devices`.
    """

    seats: int
    workspace: str
    only_for: int | None = None
    pinned_to: str = ""
    devices: Mapping[str, str] | None = None
    handle: Any = None
    runs: bool = False
    node: str = ""
    node_id: str = ""
    optional: bool = False
    hosts: dict[int, PlacedHost] = field(default_factory=dict)
    places: Counter[EvalKey] = field(default_factory=Counter)
    n_seated: Counter[tuple[EvalKey, Role]] = field(default_factory=Counter)
    orders: list[Order] = field(default_factory=list)
    sent_at: float | None = None
    """The time since which an order has not been answered."""
    n_waits: int = 0
    """The number of looks in a row in which Ray said that the actor waits for its resources."""
    asked_at: float = 0.0
    idle_since: float = 0.0
    alive_since: float | None = None

    def n_filled(self, of_eval: EvalKey) -> int:
        """Return in how many of its places an eval has a host or a scorer."""
        return max(self.n_seated[of_eval, "host"], self.n_seated[of_eval, "scorer"])


class Started(NamedTuple):
    relay: RelayActor
    handle: Any


class Failed(NamedTuple):
    """An actor could not start, on the node `node_id` if Ray placed it at all."""

    relay: RelayActor
    error: Exception
    node_id: str = ""


class CallAnswered(NamedTuple):
    """The future of a call is done."""

    relay: RelayActor
    call: Literal["where", "do", "listen"]
    future: Any


class ActorState(NamedTuple):
    """An actor as the head of the cluster sees it. It has no process, `pid`, while it waits for its resources.

    `node_id` is that of the node where it waits, or runs.
    """

    is_alive: bool = False
    node_id: str = ""
    pid: int = 0


class Nodes(NamedTuple):
    """The living nodes, the actors that were asked about, by their ids, and the demands.

    A demand is what an actor or task of anybody asks for, and has not got yet: amounts of resources.
    """

    nodes: Sequence[Node]
    actors: Mapping[str, ActorState]
    demands: Sequence[Mapping[str, float]] = ()


class Closed(NamedTuple):
    pass


class Actors:
    """Makes and ends actors, in a thread of its own: this waits for the head of the cluster, and for uploads."""

    def __init__(
        self,
        options: RayOptions,
        needs: HostNeeds,
        post: Callable[[Started | Failed | Nodes], None],
        clock: Clock = SYSTEM,
    ) -> None:
        self._options = options
        self._needs = needs
        self._post = post
        self._uploaded: dict[str, dict[str, Any]] = {}
        self._keep_s = int(os.environ.get(KEEP, KEEP_S))
        self._clock = clock
        self._kept_at = clock.now()
        self._relay_class: Any = None
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="osmosis-actors", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def make(self, relay: RelayActor, options: Mapping[str, Any]) -> None:
        self._jobs.put(partial(self._make, relay, options))

    def kill(self, relay: RelayActor) -> None:
        """End an actor, even one that waits for resources; one that is still being made is ended when that is done."""
        if relay.handle is not None:
            self._jobs.put(partial(self._kill, relay.handle))

    def find_failed(self, relay: RelayActor, error: Exception) -> None:
        """Have it told that an actor could not start, and where."""
        self._jobs.put(partial(self._find_failed, relay, error))

    def close(self, relays: Iterable[RelayActor]) -> None:
        """End all hosts, then their actors."""
        import ray

        relays = [*relays]
        ends = [relay.handle.close.remote() for relay in relays if relay.runs]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=CLOSE_S)
        for relay in relays:
            self.kill(relay)
        self._jobs.put(None)
        self._thread.join(CLOSE_S)

    def _work(self) -> None:
        while True:
            with contextlib.suppress(queue.Empty):
                job = self._clock.wait(self._jobs, KEEP_LOOK_S)
                if job is None:
                    return
                job()
            if self._clock.now() - self._kept_at >= self._keep_s / 3:
                self._keep_uploads()

    def _keep_uploads(self) -> None:
        """Have the cluster keep what was uploaded, for nodes that join: by itself it does so for some minutes only."""
        # Private, as nothing public does it. If it changes, `test_an_upload_is_kept_for_nodes_that_join_late` fails.
        from ray._private.runtime_env.packaging import pin_runtime_env_uri

        self._kept_at = self._clock.now()
        for environment in self._uploaded.values():
            try:
                pin_runtime_env_uri(environment["working_dir"], expiration_s=self._keep_s)
            except Exception as error:  # the head does not answer; the next time is soon enough
                log(f"the cluster was not asked to keep the workspace: {error}")

    def _find_failed(self, relay: RelayActor, error: Exception) -> None:
        from ray._private.state import actors

        node_id = ""
        try:
            table: Any = actors(actor_id(relay.handle))
            node_id = str(table["Address"]["NodeID"]) if table else ""
        except Exception as unknown:
            log(f"the node of an actor cannot be found: {unknown}")
        self._post(Failed(relay, error, node_id))

    def _make(self, relay: RelayActor, options: Mapping[str, Any]) -> None:
        try:
            handle = self._class().options(**self._all_options(relay, options)).remote(devices=relay.devices)
        except Exception as error:
            self._post(Failed(relay, error))
        else:
            self._post(Started(relay, handle))

    def _class(self) -> Any:
        """Return the class of all actors, which Ray sends to its head once."""
        import ray

        from pytest_osmosis.cluster.relay import Relay

        if self._relay_class is None:
            remote: Any = ray.remote
            self._relay_class = remote(concurrency_groups={"in": 1, "out": 1})(Relay)
        return self._relay_class

    def _all_options(self, relay: RelayActor, options: Mapping[str, Any]) -> dict[str, Any]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        all_options = {**self._needs.of_actor(relay.seats), **options}
        if relay.pinned_to:
            affinity = NodeAffinitySchedulingStrategy(node_id=relay.pinned_to, soft=False)
            all_options = {"num_cpus": 0, "scheduling_strategy": affinity}
        environment = self._runtime_env(relay.workspace)
        if environment:
            all_options["runtime_env"] = environment
        return {**all_options, "max_restarts": 0, "max_task_retries": 0, "enable_task_events": False}

    def _runtime_env(self, workspace: str) -> dict[str, Any]:
        environment = dict(self._options.runtime_env)
        if not workspace:
            return environment
        if workspace in self._uploaded:  # all hosts of a session run the same code
            return self._uploaded[workspace]
        # Actors take no local folder, only jobs do, and they before there is a workspace. Ray's own function is the
        # one that they use: if it changes, `test_a_workspace_that_nodes_do_not_share_is_uploaded` fails.
        from ray._private.runtime_env.working_dir import upload_working_dir_if_needed

        excludes = [*NEVER_UPLOADED, *self._options.exclude]
        packed = {**environment, "working_dir": workspace, "excludes": excludes}
        upload: Any = upload_working_dir_if_needed
        named = {"include_gitignore": True} if "include_gitignore" in signature(upload).parameters else {}
        with tempfile.TemporaryDirectory(prefix="pytest-osmosis-") as folder:  # older releases always read .gitignore
            uploaded: dict[str, Any] = upload(packed, scratch_dir=folder, **named)
        self._uploaded[workspace] = uploaded
        return uploaded

    @staticmethod
    def _kill(handle: Any) -> None:
        import ray

        try:
            ray.kill(handle, no_restart=True)
        except Exception as error:  # it ended by itself, or with the head of the cluster
            log(f"an actor was not ended: {error}")


def actor_id(handle: Any) -> str:
    return str(handle._actor_id.hex())  # all of Ray's tools show it, but handles have no public name for it


class NodeWatch:
    """Looks at the nodes every other second, in a thread of its own: this waits for the head of the cluster.

    `asked` are the ids of actors that have not answered yet. Free resources of nodes, the states of actors, and demands
    are in the API for developers of Ray; its public names for them ask the dashboard, which may not run. If demands
    change, `test_hosts_that_wait_are_split_for_a_smaller_room` fails.
    """

    def __init__(self, post: Callable[[Started | Failed | Nodes], None]) -> None:
        self.asked: tuple[str, ...] = ()
        self._post = post
        self._thread = threading.Thread(target=self._work, name="osmosis-nodes", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def look(self) -> None:
        """Post the nodes as they are now. Raises what Ray raises if its head does not answer."""
        import ray
        from ray._private.state import actors, available_resources_per_node

        list_free: Any = available_resources_per_node
        list_nodes: Any = ray.nodes
        free = list_free()
        nodes = [
            Node(
                each["NodeID"], each["NodeManagerAddress"], each["Resources"], free.get(each["NodeID"], {}),
                each.get("Labels") or {},
            )
            for each in list_nodes()
            if each["Alive"]
        ]  # fmt: skip
        tables = {actor_id: actors(actor_id) for actor_id in self.asked}
        states = {
            actor_id: ActorState(table["State"] == "ALIVE", table["Address"]["NodeID"], table["Pid"])
            for actor_id, table in tables.items()
            if table
        }
        self._post(Nodes(nodes, states, list_demands() if self.asked else ()))

    def _work(self) -> None:
        while True:
            time.sleep(NODES_S)
            try:
                self.look()
            except Exception as error:
                log(f"the nodes of the cluster cannot be listed: {error}")


def list_demands() -> list[Mapping[str, float]]:
    """Return what actors and tasks of the cluster ask for, and have not got yet."""
    import ray
    from ray.autoscaler.v2.sdk import get_cluster_resource_state

    worker: Any = ray._private.worker.global_worker
    state: Any = get_cluster_resource_state(worker.gcs_client)
    return [dict(each.request.resources_bundle) for each in state.pending_resource_requests]


def log(text: str) -> None:
    """Write a line to the bridge's log, its standard error."""
    sys.stderr.write(f"pytest-osmosis: {text}\n")
    sys.stderr.flush()
