"""The relays of a session: actors of Ray, each with seats for several hosts and as many scorers.

One thread owns everything here. It takes messages from a queue, where the answers of actors arrive, too. Calls that
may wait for the head of the cluster are made by two other threads: one makes and ends actors, one looks at the nodes.

Hosts wait until a relay that runs has a seat for them. Until then their environment goes nowhere, and it goes to the
relay as an argument of a method: Ray writes constructors and runtime environments to its logs and its store, but not
those. Any error of a relay ends it and all of its hosts; whatever else it would say is dropped.
"""

from __future__ import annotations

import contextlib
import json
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from pytest_osmosis.cluster.actors import (
    Actors,
    CallAnswered,
    Closed,
    Failed,
    Nodes,
    NodeWatch,
    Order,
    PlacedHost,
    RelayActor,
    Role,
    Started,
    actor_id,
)
from pytest_osmosis.cluster.ends import EndOfRelay, end_of_relay, failed_start, is_loss_of_node
from pytest_osmosis.cluster.facts_teller import FactsTeller, Look, waiting_text
from pytest_osmosis.cluster.frames import Frame, Kind
from pytest_osmosis.cluster.known_nodes import KnownNodes
from pytest_osmosis.cluster.places import HostNeeds, Node, rooms_after, seats_of_actors
from pytest_osmosis.config.tables import RayOptions

TICK_S = 0.5
ANSWER_S = 30.0
"""A relay answers every few seconds; one that has not for this long is lost."""
IDLE_S = 10.0
"""A relay without hosts ends after this long."""
SETTLE_S = 0.03
"""Hosts that are opened within this time are placed together."""
SPLIT_LOOKS = 2
"""If a relay has waited for its resources in this many looks, smaller ones are made instead."""
CALL_BYTES = 60_000
"""Ray sends arguments below 100 KB with the call; larger ones go through its object store."""
FEW_RELAYS = 4
"""Up to this many relays may answer as often as they like."""
RELAYS_PER_S = 1000.0
"""This many answers of relays a second are about a quarter of what a core of the bridge can take."""


Message = Frame | Started | Failed | CallAnswered | Nodes | Closed


class Relays:
    """Places hosts and hears them. `say` sends a frame to pytest's process, `describe` says what nodes are to it.

    With `only_here` nodes on other machines than this one get no hosts.
    """

    def __init__(
        self,
        options: RayOptions,
        say: Callable[[Frame], None],
        describe: Callable[[Sequence[Node], int, int, int], bytes],
        *,
        only_here: bool = False,
    ) -> None:
        self._options = options
        self._needs = HostNeeds(options.resources)
        self._nodes = KnownNodes(self._needs, only_here=only_here)
        self._facts = FactsTeller(say, describe)
        self._say = say
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._actors = Actors(options, self._needs, self._inbox.put)
        self._watch = NodeWatch(self._inbox.put)
        self._waiting: dict[int, PlacedHost] = {}
        self._seated: dict[int, RelayActor] = {}
        self._relays: list[RelayActor] = []
        self._due: set[RelayActor] = set()
        self._settle_at: float | None = None
        self._ticked_at = time.monotonic()

    def put(self, message: Message) -> None:
        """Hand over a frame, or `Closed` to end `run`. From any thread."""
        self._inbox.put(message)

    def run(self) -> None:
        """Place hosts and hear them until `Closed`, then end them all."""
        self._watch.look()
        self._watch.start()
        self._actors.start()
        while True:
            for message in (arrived := self._arrived()):
                self._take(message)
            if any(isinstance(message, Closed) for message in arrived):
                break
            self._send()
            now = time.monotonic()
            if self._settle_at is not None and now >= self._settle_at:
                self._settle()
            if now - self._ticked_at >= TICK_S:
                self._tick(now)
        self._actors.close(self._relays)

    def _arrived(self) -> list[Message]:
        """Wait for a message, and return all that have arrived: what one turn sends to a relay is one call."""
        messages: list[Message] = []
        with contextlib.suppress(queue.Empty):
            messages.append(self._inbox.get(timeout=self._patience_s()))
            while True:
                messages.append(self._inbox.get_nowait())
        return messages

    def _patience_s(self) -> float:
        until = self._ticked_at + TICK_S
        return max(min(until, self._settle_at or until) - time.monotonic(), 0.0)

    def _take(self, message: Message) -> None:
        match message:
            case Frame():
                self._take_frame(message)
            case Nodes():
                self._take_nodes(message)
            case Started(relay, handle):
                self._take_actor(relay, handle)
            case Failed(relay, error):
                if relay in self._relays:
                    self._abandon(relay, failed_start(error))
            case CallAnswered(relay, call, future):
                if relay in self._relays:  # those that were abandoned are heard no more
                    self._take_answer(relay, call, future)

    def _take_frame(self, frame: Frame) -> None:
        host = self._host(frame.number)
        match frame.kind:
            case Kind.OPEN:
                self._open(frame)
            case Kind.SEND if host is not None:
                pieces = (frame.first[i : i + CALL_BYTES] for i in range(0, len(frame.first), CALL_BYTES))
                self._order(host, [("send", host.number, piece, b"") for piece in pieces])
            case Kind.GATHER if host is not None:
                host.gather_s = float(frame.first)
            case Kind.KILL if frame.number in self._waiting:
                self._died(frame.number, EndOfRelay("it was ended while it waited for a place", "machine"))
                self._settle_soon(0.0)
            case Kind.KILL if host is not None:
                self._order(host, [("kill", host.number, b"", b"")])

    def _host(self, number: int) -> PlacedHost | None:
        relay = self._seated.get(number)
        return self._waiting.get(number) if relay is None else relay.hosts.get(number)

    def _open(self, frame: Frame) -> None:
        fields = json.loads(frame.second)
        workspace = json.loads(frame.first)["setup"]["workspace"]
        upload = self._options.workspace == "upload"
        second = json.dumps({**fields, "move_from": workspace if upload else None}).encode()
        orders = opening_orders(frame.number, frame.first, second)
        host = PlacedHost(frame.number, fields["role"], orders, workspace if upload else "")
        self._waiting[host.number] = host
        if self._settle_at is None:
            self._settle_soon(SETTLE_S)

    def _settle_soon(self, delay_s: float) -> None:
        self._settle_at = min(self._settle_at or float("inf"), time.monotonic() + delay_s)

    def _settle(self) -> None:
        """Give seats to hosts that wait, and have as many relays made as the others need."""
        self._settle_at = None
        for host in [*self._waiting.values()]:
            if (relay := self._seat_for(host)) is not None:
                del self._waiting[host.number]
                self._seated[host.number] = relay
                relay.hosts[host.number] = host
                orders, host.orders = host.orders, []
                self._hand(relay, orders)
        common = [host for host in self._waiting.values() if not self._is_alone(host)]
        for workspace in {host.workspace for host in common} | {relay.workspace for relay in self._relays}:
            self._provide(workspace, [host for host in common if host.workspace == workspace])
        self._provide_quarantines()
        if common:  # a relay without hosts may hold the resources that they need
            for relay in [each for each in self._relays if each.runs and not each.hosts]:
                self._end(relay)

    def _seat_for(self, host: PlacedHost) -> RelayActor | None:
        if host.role == "quarantine":
            mine = [each for each in self._relays if each.runs and each.only_for == host.number]
            return mine[0] if mine else None
        free = [
            relay
            for relay in self._relays
            if relay.runs and relay.only_for is None and relay.workspace == host.workspace and relay.has_seat(host.role)
        ]
        return min(free, key=lambda relay: relay.n_of(host.role) if host.role == "scorer" else 0, default=None)

    def _provide(self, workspace: str, waiting: Sequence[PlacedHost]) -> None:
        """Have as many seats made as hosts wait for, and no more."""
        roles = Counter(host.role for host in waiting)
        needed = max(roles.values(), default=0)
        coming = [each for each in self._relays if not each.runs and each.only_for is None]
        ours = sorted((each for each in coming if each.workspace == workspace), key=lambda each: each.seats)
        for relay in ours:
            if sum(each.seats for each in ours if each in self._relays) - relay.seats >= needed:
                self._end(relay)
        needed -= sum(each.seats for each in ours if each in self._relays)
        unplaced = [each.seats for each in coming if not self._nodes.node_of(each, self._relays)]
        rooms = rooms_after(self._nodes.rooms(), unplaced)
        largest = max(map(self._needs.most_on, self._nodes.usable()), default=1)
        at_most = self._needs.most_seats(self._options.hosts_per_actor)
        for seats in seats_of_actors(needed, rooms, at_most=at_most, largest=largest):
            self._make(RelayActor(seats, workspace), self._nodes.spread())

    def _provide_quarantines(self) -> None:
        alone = {host.number: host for host in self._waiting.values() if self._is_alone(host)}
        served = {relay.only_for for relay in self._relays}
        for relay in [each for each in self._relays if not each.runs and each.only_for not in {None, *alone}]:
            self._end(relay)
        for number, host in alone.items():
            if number not in served:
                neighbour = self._neighbour_of_quarantine()
                if neighbour is None:
                    self._make(RelayActor(1, host.workspace, number), self._nodes.spread())
                else:
                    node_id, devices = neighbour.node_id, neighbour.devices
                    self._make(RelayActor(1, host.workspace, number, pinned_to=node_id, devices=devices), {})

    @staticmethod
    def _is_alone(host: PlacedHost) -> bool:
        return host.role == "quarantine"

    def _neighbour_of_quarantine(self) -> RelayActor | None:
        """Return a relay on whose node the quarantine takes no resources besides, as a host of that one is idle."""
        avoided, troubled = self._nodes.avoided(), self._nodes.troubled()
        relays = [each for each in self._relays if each.runs and each.node_id not in avoided]
        return min(relays, key=lambda each: each.node_id in troubled, default=None)

    def _make(self, relay: RelayActor, options: Mapping[str, Any]) -> None:
        relay.asked_at = time.monotonic()
        self._relays.append(relay)
        self._actors.make(relay, options)

    def _end(self, relay: RelayActor) -> None:
        self._relays.remove(relay)
        self._due.discard(relay)
        self._actors.kill(relay)
        self._watch_actors()

    def _watch_actors(self) -> None:
        self._watch.asked = tuple(actor_id(each.handle) for each in self._relays if each.handle and not each.runs)

    def _take_actor(self, relay: RelayActor, handle: Any) -> None:
        relay.handle = handle
        if relay not in self._relays:
            self._actors.kill(relay)
            return
        self._watch_actors()
        self._call(relay, "where")

    def _call(self, relay: RelayActor, call: Literal["where", "do", "listen"], *arguments: Any) -> None:
        group = {"where": "out", "do": "in", "listen": "out"}[call]
        reference = getattr(relay.handle, call).options(concurrency_group=group).remote(*arguments)
        reference.future().add_done_callback(lambda future: self._inbox.put(CallAnswered(relay, call, future)))

    def _order(self, host: PlacedHost, orders: Iterable[Order]) -> None:
        relay = self._seated.get(host.number)
        if relay is None:
            host.orders += orders
        else:
            self._hand(relay, orders)

    def _hand(self, relay: RelayActor, orders: Iterable[Order]) -> None:
        """Have orders sent at the end of this turn, or once the ones before them have arrived."""
        relay.orders += orders
        self._due.add(relay)

    def _send(self) -> None:
        """Send each relay what it is to do: one call at a time, and no more than fits in it."""
        for relay in self._due:
            if relay.is_sending or not relay.orders:
                continue
            n, size = 0, 0
            for _, _, first, second in relay.orders:
                size += len(first) + len(second)
                if n and size > CALL_BYTES:
                    break
                n += 1
            batch, relay.orders = relay.orders[:n], relay.orders[n:]
            relay.is_sending = True
            self._call(relay, "do", batch)
        self._due.clear()

    def _listen(self, relay: RelayActor) -> None:
        relay.asked_at = time.monotonic()
        gather_s = min((host.gather_s for host in relay.hosts.values()), default=0.0)
        least_s = max(len(self._relays) - FEW_RELAYS, 0) / RELAYS_PER_S
        self._call(relay, "listen", max(least_s, gather_s))

    def _take_answer(self, relay: RelayActor, call: Literal["where", "do", "listen"], future: Any) -> None:
        try:
            answer = future.result()
        except Exception as error:
            if relay.runs:
                self._abandon(relay, end_of_relay(error, relay.node))
            elif relay.pinned_to and is_loss_of_node(error):
                self._nodes.lose(relay.pinned_to)
                self._try_elsewhere(relay)
            else:
                self._abandon(relay, failed_start(error))
            return
        match call:
            case "where":
                self._arrive(relay, answer)
            case "do":
                relay.is_sending = False
                self._hand(relay, ())
            case "listen":
                for said in answer:
                    self._hear(relay, *said)
                if relay in self._relays:
                    self._listen(relay)

    def _arrive(self, relay: RelayActor, where: Mapping[str, Any]) -> None:
        from pytest_osmosis import __version__

        relay.node, relay.node_id, relay.devices = where["node"], where["node_id"], where["devices"]
        if not self._nodes.admits(relay.node_id, where["address"]):
            self._try_elsewhere(relay)
            return
        if where["version"] != __version__:
            how = (
                f"node {relay.node} has pytest-osmosis {where['version']}, and this machine has {__version__}: "
                "install the same version on all nodes, or name it in [execution.ray] runtime_env"
            )
            self._abandon(relay, EndOfRelay(how, "host"))
            return
        relay.runs, relay.idle_since = True, time.monotonic()
        self._watch_actors()
        self._listen(relay)
        self._settle()

    def _try_elsewhere(self, relay: RelayActor) -> None:
        """End a relay that has no hosts yet, and have another one made for those that wait for it."""
        self._end(relay)
        self._settle_soon(0.0)

    def _hear(self, relay: RelayActor, kind: int, number: int, first: bytes, second: bytes) -> None:
        if number not in relay.hosts:
            return
        self._say(Frame(Kind(kind), number, first, second))
        if kind == Kind.DIED:
            if json.loads(first)["by"] == "machine":  # this relay starts no more hosts
                relay.seats = 0
            self._leave(relay, number)

    def _leave(self, relay: RelayActor, number: int) -> None:
        del relay.hosts[number], self._seated[number]
        relay.orders = [order for order in relay.orders if order[1] != number]
        relay.idle_since = time.monotonic()
        if relay.only_for == number or (not relay.seats and not relay.hosts):
            self._end(relay)
        if self._waiting:
            self._settle_soon(0.0)

    def _died(self, number: int, end: EndOfRelay) -> None:
        self._waiting.pop(number, None)
        self._seated.pop(number, None)
        self._say(Frame(Kind.DIED, number, json.dumps({"how": end.how, "by": end.by}).encode()))

    def _abandon(self, relay: RelayActor, end: EndOfRelay) -> None:
        """End a relay and its hosts. The hosts of one that never ran are those that would have got its seats."""
        if end.by == "host" and not relay.runs and any(each.runs for each in self._relays):
            end = end._replace(by="machine", is_of_node=bool(relay.node_id))  # other nodes can run these hosts
        if relay.node_id:
            self._nodes.trouble(relay.node_id)
            if end.is_of_node:
                self._nodes.lose(relay.node_id)
        self._end(relay)
        for number in [*relay.hosts] if relay.runs else [*self._next_for(relay)]:
            self._died(number, end)
        if self._waiting:
            self._settle_soon(0.0)

    def _next_for(self, relay: RelayActor) -> Iterator[int]:
        if relay.only_for is not None:
            yield from {relay.only_for} & self._waiting.keys()
            return
        left = Counter({"host": relay.seats, "scorer": relay.seats})
        for host in [*self._waiting.values()]:
            if host.workspace == relay.workspace and left[host.role] > 0:
                left[host.role] -= 1
                yield host.number

    def _tick(self, now: float) -> None:
        stood_still_s = now - self._ticked_at - TICK_S
        self._ticked_at = now
        if stood_still_s > TICK_S:  # answers may have arrived meanwhile, which nobody has taken yet
            for relay in self._relays:
                relay.asked_at += stood_still_s
        late = self._unanswered(now)
        for relay in [*self._relays]:
            if relay in late:
                node = f"node {relay.node}" if relay.node else "a node"
                how = f"{node} said nothing for {ANSWER_S:.0f} s"
                self._abandon(relay, EndOfRelay(how, "machine", is_of_node=True))
            elif relay.runs and not relay.hosts and now - relay.idle_since > IDLE_S:
                self._end(relay)

    def _unanswered(self, now: float) -> list[RelayActor]:
        """Return the relays that have said nothing for too long, with others of their nodes that are about to be."""
        waited_s = {
            relay: now - relay.asked_at
            for relay in self._relays
            if relay.runs or (relay.alive_since is not None and now - relay.alive_since > ANSWER_S)
        }
        nodes = {relay.node_id for relay, seconds in waited_s.items() if seconds > ANSWER_S} - {""}
        return [
            relay
            for relay, seconds in waited_s.items()
            if seconds > (ANSWER_S / 2 if relay.node_id in nodes else ANSWER_S)
        ]

    def _take_nodes(self, seen: Nodes) -> None:
        self._nodes.take(seen)
        now = time.monotonic()
        for relay in [each for each in self._relays if each.handle is not None and not each.runs]:
            relay.alive_since = (relay.alive_since or now) if self._nodes.state_of(relay).is_alive else None
            relay.n_waits = relay.n_waits + 1 if self._nodes.is_demanded(relay) else 0
        n_places = self._nodes.n_places(self._relays)
        self._split()
        holds = self._facts.take(self._nodes.listed, n_places, self._n_wanted(), self._nodes.n_elsewhere)
        if holds is not None:
            self._tell_waiting(holds)

    def _split(self) -> None:
        """End relays that wait although the largest room suffices for smaller ones, which are then made."""
        waiting = [relay for relay in self._relays if relay.n_waits and not relay.runs]
        roomiest = max(rooms_after(self._nodes.rooms(), [relay.seats for relay in waiting]), default=0)
        for relay in waiting:
            if relay.n_waits >= SPLIT_LOOKS and 0 < roomiest < relay.seats:
                self._end(relay)
                self._settle_soon(0.0)

    def _n_wanted(self) -> int:
        """Return for how many hosts there should be a place, each with its scorer."""
        hosts = [*self._waiting.values()]
        for relay in self._relays:
            hosts += relay.hosts.values()
        return max(Counter(host.role for host in hosts if not self._is_alone(host)).values(), default=0)

    def _tell_waiting(self, look: Look) -> None:
        """Tell hosts for which there is no room why they wait."""
        if look.n_wanted <= look.n_places:
            return
        why = waiting_text(look.n_places, look.n_wanted - look.n_places, self._needs)
        roles: tuple[Role, ...] = ("host", "scorer")
        for role in roles:
            waiting = [host for host in self._waiting.values() if host.role == role]
            n_seated = sum(relay.n_of(role) for relay in self._relays)
            for host in waiting[max(look.n_places - n_seated, 0) :]:
                if host.waits != why:
                    host.waits = why
                    self._say(Frame(Kind.WAITS, host.number, why.encode()))


def opening_orders(number: int, setup: bytes, fields: bytes) -> list[Order]:
    """Return the order that starts a host, in parts of which each can travel in a call of its own.

    >>> [(kind, len(setup), len(fields)) for kind, _, setup, fields in opening_orders(1, b"s" * 70_000, b"f")]
    [('part', 30000, 1), ('part', 30000, 0), ('open', 10000, 0)]
    """
    size = CALL_BYTES // 2
    begins = range(0, max(len(setup), len(fields), 1), size)
    parts = [(number, setup[begin : begin + size], fields[begin : begin + size]) for begin in begins]
    return [*(("part", *part) for part in parts[:-1]), ("open", *parts[-1])]
