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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
    Started,
    actor_id,
)
from pytest_osmosis.cluster.ends import EndOfRelay, end_of_relay, failed_start, is_loss_of_node
from pytest_osmosis.cluster.facts_teller import FactsTeller, Look, waiting_text
from pytest_osmosis.cluster.frames import Frame, Kind
from pytest_osmosis.cluster.known_nodes import KnownNodes
from pytest_osmosis.cluster.places import HostNeeds, Node, rooms_after, seats_of_actors
from pytest_osmosis.cluster.seating import Seating
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
ORDERS_S = 180.0
"""A relay gets this long to take orders, though it listens: what it starts hosts with, such as a disk, may hang."""
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
        self._seating = Seating()
        self._due: set[RelayActor] = set()
        self._settle_at: float | None = None
        self._is_watch_old = False
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
            now = time.monotonic()
            if self._settle_at is not None and now >= self._settle_at:
                self._settle()
            self._send()
            if now - self._ticked_at >= TICK_S:
                self._tick(now)
            if self._is_watch_old:
                self._watch_actors()
        self._actors.close(self._relays)

    @property
    def _relays(self) -> Collection[RelayActor]:
        return self._seating.relays.keys()

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
            case Failed(relay, error, node_id):
                if relay in self._relays:
                    relay.node_id = node_id
                    self._abandon(relay, failed_start(error, self._nodes.name_of(node_id)))
            case CallAnswered(relay, call, future):
                if relay in self._relays:  # those that were abandoned are heard no more
                    self._take_answer(relay, call, future)

    def _take_frame(self, frame: Frame) -> None:
        host = self._seating.host(frame.number)
        match frame.kind:
            case Kind.OPEN:
                self._open(frame)
            case Kind.SEND if host is not None:
                pieces = (frame.first[i : i + CALL_BYTES] for i in range(0, len(frame.first), CALL_BYTES))
                self._order(host, [("send", host.number, piece, b"") for piece in pieces])
            case Kind.GATHER if host is not None:
                host.gather_s = float(frame.first)
            case Kind.KILL if frame.number in self._seating.waiting:
                self._seating.drop(frame.number)
                self._died(frame.number, EndOfRelay("it was ended while it waited for a place", "machine"))
                self._settle_soon(0.0)
            case Kind.KILL if host is not None:
                self._order(host, [("kill", host.number, b"", b"")])

    def _open(self, frame: Frame) -> None:
        fields = json.loads(frame.second)
        workspace = json.loads(frame.first)["setup"]["workspace"]
        upload = self._options.workspace == "upload"
        order = {"role": fields["role"], "environ": fields["environ"], "move_from": workspace if upload else None}
        host = PlacedHost(
            frame.number,
            fields["role"],
            opening_orders(frame.number, frame.first, json.dumps(order).encode()),
            workspace if upload else "",
            eval_number=fields.get("eval", 0),
            optional=fields.get("optional", False),
        )
        self._seating.wait(host)
        if self._settle_at is None:
            self._settle_soon(SETTLE_S)

    def _settle_soon(self, delay_s: float) -> None:
        self._settle_at = min(self._settle_at or float("inf"), time.monotonic() + delay_s)

    def _settle(self) -> None:
        """Give seats to hosts that wait, and have as many relays made as the others need."""
        self._settle_at = None
        for relay, host in self._seating.seat():
            self._take_along(relay, host)
        for workspace in self._seating.workspaces():
            self._provide(workspace)
        self._provide_quarantines()
        if len(self._seating.waiting) > len(self._seating.quarantines):  # an idle relay may hold what the others need
            for relay in [each for each in self._relays if each.runs and not each.hosts and not each.places.total()]:
                self._end(relay)

    def _take_along(self, relay: RelayActor, host: PlacedHost) -> None:
        """Let the relay of a host have what was to be sent to it while it waited."""
        orders, host.orders = host.orders, []
        self._hand(relay, orders)

    def _provide(self, workspace: str) -> None:
        """Have as many seats made as hosts wait for, and no more; for optional ones only where there is room."""
        waiting = Counter(host.optional for host in self._seating.hosts_waiting(workspace))
        coming = [each for each in self._relays if not each.runs and each.only_for is None]
        ours = sorted((each for each in coming if each.workspace == workspace), key=lambda each: each.seats)
        if not (waiting or ours):
            return
        nodes = self._nodes.nodes_of(self._relays)
        rooms = rooms_after(self._nodes.rooms(), [each.seats for each in coming if not nodes[each]])
        n_coming = sum(each.seats for each in ours)
        n_optional = min(waiting[True], max(sum(rooms) + n_coming - waiting[False], 0))
        asks = not (waiting[False] or n_optional) and not self._relays  # the first host is there to be waited for
        n_needed = waiting[False] + (1 if asks else n_optional)
        for relay in ours:
            if n_coming - relay.seats >= n_needed:
                n_coming -= relay.seats
                self._end(relay)
        n_firm = max(n_needed - n_optional - n_coming, 0)
        self._make_relays(n_firm, rooms, workspace, optional=False)
        if n_firm:
            rooms = rooms_after(rooms, self._split_up(n_firm, rooms))
        self._make_relays(n_needed - n_coming - n_firm, rooms, workspace, optional=True)

    def _split_up(self, n_hosts: int, rooms: Sequence[int]) -> list[int]:
        """Return the seats of each relay for hosts."""
        largest = max(map(self._needs.most_on, self._nodes.usable()), default=1)
        at_most = self._needs.most_seats(self._options.hosts_per_actor)
        return [*seats_of_actors(n_hosts, rooms, at_most=at_most, largest=largest)]

    def _make_relays(self, n_hosts: int, rooms: Sequence[int], workspace: str, *, optional: bool) -> None:
        options = self._nodes.spread()
        for seats in self._split_up(n_hosts, rooms):
            self._make(RelayActor(seats, workspace, optional=optional), options)

    def _provide_quarantines(self) -> None:
        alone = self._seating.quarantines
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

    def _neighbour_of_quarantine(self) -> RelayActor | None:
        """Return a relay on whose node the quarantine takes no resources besides, as a host of that one is idle."""
        avoided, troubled = self._nodes.avoided(), self._nodes.troubled()
        relays = [each for each in self._relays if each.runs and each.node_id not in avoided]
        return min(relays, key=lambda each: each.node_id in troubled, default=None)

    def _make(self, relay: RelayActor, options: Mapping[str, Any]) -> None:
        relay.asked_at = time.monotonic()
        self._seating.add(relay)
        self._actors.make(relay, options)

    def _end(self, relay: RelayActor) -> None:
        self._seating.remove(relay)
        self._due.discard(relay)
        self._actors.kill(relay)
        self._is_watch_old = True

    def _watch_actors(self) -> None:
        """Have the actors looked at that have not answered yet."""
        self._is_watch_old = False
        self._watch.asked = tuple(actor_id(each.handle) for each in self._relays if each.handle and not each.runs)

    def _take_actor(self, relay: RelayActor, handle: Any) -> None:
        relay.handle = handle
        if relay not in self._relays:
            self._actors.kill(relay)
            return
        self._is_watch_old = True
        self._call(relay, "where")

    def _call(self, relay: RelayActor, call: Literal["where", "do", "listen"], *arguments: Any) -> None:
        group = {"where": "out", "do": "in", "listen": "out"}[call]
        reference = getattr(relay.handle, call).options(concurrency_group=group).remote(*arguments)
        reference.future().add_done_callback(lambda future: self._inbox.put(CallAnswered(relay, call, future)))

    def _order(self, host: PlacedHost, orders: Iterable[Order]) -> None:
        relay = self._seating.relay_of(host.number)
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
            if relay.sent_at is not None or not relay.orders:
                continue
            n, size = 0, 0
            for _, _, first, second in relay.orders:
                size += len(first) + len(second)
                if n and size > CALL_BYTES:
                    break
                n += 1
            batch, relay.orders = relay.orders[:n], relay.orders[n:]
            relay.sent_at = time.monotonic()
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
                self._actors.find_failed(relay, error)
            return
        match call:
            case "where":
                self._arrive(relay, answer)
            case "do":
                relay.sent_at = None
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
        self._is_watch_old = True
        self._nodes.started(relay)
        self._listen(relay)
        if relay.only_for is None:
            self._seating.opened(relay)
        elif (host := self._seating.seat_alone(relay)) is not None:
            self._take_along(relay, host)
        self._settle_soon(0.0)

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
                self._seating.closed(relay)
            self._leave(relay, number)

    def _leave(self, relay: RelayActor, number: int) -> None:
        self._seating.leave(number)
        relay.orders = [order for order in relay.orders if order[1] != number]
        relay.idle_since = time.monotonic()
        if relay.only_for == number or (not relay.seats and not relay.hosts):
            self._end(relay)
        self._settle_if_any_wait()

    def _settle_if_any_wait(self) -> None:
        if self._seating.waiting:
            self._settle_soon(0.0)

    def _died(self, number: int, end: EndOfRelay) -> None:
        self._say(Frame(Kind.DIED, number, json.dumps({"how": end.how, "by": end.by}).encode()))

    def _abandon(self, relay: RelayActor, end: EndOfRelay) -> None:
        """End a relay and its hosts. The hosts of one that never ran are those that would have got its seats."""
        if end.by == "host" and not relay.runs and any(each.runs for each in self._relays):
            end = end._replace(by="machine")  # other nodes can run these hosts
        if end.is_of_node and relay.node_id:
            self._nodes.trouble(relay.node_id)
            self._nodes.lose(relay.node_id)
        elif relay.node_id:
            (self._nodes.trouble if relay.runs else self._nodes.fail)(relay.node_id)
        ended = [*relay.hosts] if relay.runs else self._seating.next_for(relay)
        for number in [] if relay.runs else ended:
            self._seating.drop(number)
        self._end(relay)
        for number in ended:
            self._died(number, end)
        self._settle_if_any_wait()

    def _tick(self, now: float) -> None:
        stood_still_s = now - self._ticked_at - TICK_S
        self._ticked_at = now
        if stood_still_s > TICK_S:  # answers may have arrived meanwhile, which nobody has taken yet
            for relay in self._relays:
                relay.asked_at += stood_still_s
                relay.sent_at = None if relay.sent_at is None else relay.sent_at + stood_still_s
        if self._seating.free_places(now):
            self._settle_if_any_wait()
        late = self._unanswered(now)
        for relay in [*self._relays]:
            if relay in late:
                node = f"node {relay.node}" if relay.node else "a node"
                how = f"{node} said nothing for {ANSWER_S:.0f} s"
                self._abandon(relay, EndOfRelay(how, "machine", is_of_node=True))
            elif relay.sent_at is not None and now - relay.sent_at > ORDERS_S:
                how = f"node {relay.node} did not start hosts, or feed them, for {ORDERS_S:.0f} s"
                self._abandon(relay, EndOfRelay(how, "machine"))
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
        holds = self._facts.take(self._nodes.listed, n_places, self._seating.n_wanted, self._nodes.n_elsewhere)
        if holds is not None:
            self._tell_waiting(holds)
        self._settle_if_any_wait()  # there may be room for optional hosts

    def _split(self) -> None:
        """End relays that wait although the largest room suffices for smaller ones, which are then made. One for
        optional hosts ends if there is no room at all."""
        waiting = [relay for relay in self._relays if relay.n_waits and not relay.runs]
        roomiest = max(rooms_after(self._nodes.rooms(), [relay.seats for relay in waiting]), default=0)
        for relay in waiting:
            if relay.n_waits >= SPLIT_LOOKS and (0 < roomiest < relay.seats or (relay.optional and not roomiest)):
                self._end(relay)

    def _tell_waiting(self, look: Look) -> None:
        """Tell hosts for which there is no room why they wait, and those that now have room that they do not."""
        for host in self._seating.waiting.values():
            if host.role == "host":
                why = self._why_waiting(host, look)
                if host.waits != why:
                    host.waits = why
                    self._say(Frame(Kind.WAITS, host.number, why.encode()))

    def _why_waiting(self, host: PlacedHost, look: Look) -> str:
        n_of_others = self._seating.n_of_others(host.of_eval)
        n_lacking = self._seating.n_wanted_by(host.of_eval) - max(look.n_places - n_of_others, 0)
        return waiting_text(look.n_places, n_lacking, self._needs, n_of_others=n_of_others) if n_lacking > 0 else ""


def opening_orders(number: int, setup: bytes, fields: bytes) -> list[Order]:
    """Return the order that starts a host, in parts of which each can travel in a call of its own.

    >>> [(kind, len(setup), len(fields)) for kind, _, setup, fields in opening_orders(1, b"s" * 70_000, b"f")]
    [('part', 30000, 1), ('part', 30000, 0), ('open', 10000, 0)]
    """
    size = CALL_BYTES // 2
    begins = range(0, max(len(setup), len(fields), 1), size)
    parts = [(number, setup[begin : begin + size], fields[begin : begin + size]) for begin in begins]
    return [*(("part", *part) for part in parts[:-1]), ("open", *parts[-1])]
