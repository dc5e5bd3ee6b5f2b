"""The hosts that want places, and the evals that have those of relays. No Ray, no thread.

A place is what one host and its scorer need, and belongs to one eval: of two evals that share a cluster, none can hold
hosts without scorers while the other one holds scorers without hosts. Hosts get places in the order of their evals, and
scorers go where their eval has places. A place is free again once nothing of its eval was in it for `HOLD_S`: something
that crashed is replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from pytest_osmosis.cluster.actors import EvalKey, PlacedHost, RelayActor, Role

HOLD_S = 1.0
"""A place that its eval has left is held for this long: what replaces a host arrives within a few hundredths."""

_ROLES: tuple[Role, ...] = ("host", "scorer")


class Seating:
    """Hosts that wait, relays, and hosts in their seats. Times are of one monotonic clock.

    A quarantine waits for a relay of its own, and has none of the places that are counted here.
    """

    def __init__(self) -> None:
        self.relays: dict[RelayActor, None] = {}
        self.waiting: dict[int, PlacedHost] = {}
        self.quarantines: dict[int, PlacedHost] = {}
        """The quarantines among `waiting`."""
        self._seated: dict[int, RelayActor] = {}
        self._queues: dict[EvalKey, dict[Role, dict[int, PlacedHost]]] = {}
        self._with_seats: dict[tuple[EvalKey, Role], dict[RelayActor, None]] = {}
        self._with_free_places: dict[str, dict[RelayActor, None]] = {}
        self._vacant: dict[tuple[RelayActor, EvalKey], float] = {}
        self._n_hosts: Counter[EvalKey] = Counter()
        self._n_places: Counter[EvalKey] = Counter()

    def host(self, number: int) -> PlacedHost | None:
        """Return a host that waits or has a seat, None once it has ended."""
        relay = self._seated.get(number)
        return self.waiting.get(number) if relay is None else relay.hosts.get(number)

    def relay_of(self, number: int) -> RelayActor | None:
        """Return the relay in which a host has a seat."""
        return self._seated.get(number)

    @property
    def n_wanted(self) -> int:
        """The number of places that all evals want, those that they have included."""
        return self._n_hosts.total()

    def n_wanted_by(self, of_eval: EvalKey) -> int:
        return self._n_hosts[of_eval]

    def n_of_others(self, of_eval: EvalKey) -> int:
        """Return how many places other evals have."""
        return self._n_places.total() - self._n_places[of_eval]

    def add(self, relay: RelayActor) -> None:
        """Add a relay, whose places hosts get once `opened` is called."""
        self.relays[relay] = None

    def opened(self, relay: RelayActor) -> None:
        """Note that a relay runs: its places are free."""
        self._index(relay)

    def closed(self, relay: RelayActor) -> None:
        """Note that a relay takes no further hosts. Those that it has keep their seats."""
        relay.seats = 0
        for of_eval in relay.places:
            self._index_seats(relay, of_eval)
        self._index(relay)

    def remove(self, relay: RelayActor) -> None:
        """Forget a relay, with all of its hosts."""
        del self.relays[relay]
        for number in [*relay.hosts]:
            self.leave(number)
        relay.seats = 0
        for of_eval in [*relay.places]:
            self._give_up(relay, of_eval, relay.places[of_eval])
        self._index(relay)

    def wait(self, host: PlacedHost) -> None:
        """Let a host wait for a place."""
        self.waiting[host.number] = host
        if host.role == "quarantine":
            self.quarantines[host.number] = host
            return
        self._queues.setdefault(host.of_eval, {role: {} for role in _ROLES})[host.role][host.number] = host
        self._n_hosts[host.of_eval] += host.role == "host"

    def drop(self, number: int) -> None:
        """Forget a host that waits."""
        host = self._unqueue(number)
        if host.role == "host":
            self._n_hosts[host.of_eval] -= 1

    def seat(self) -> Iterator[tuple[RelayActor, PlacedHost]]:
        """Give seats to hosts that wait, and yield each with its relay."""
        for of_eval in sorted(self._queues):
            for role in _ROLES:
                queue = self._queues[of_eval][role]
                while queue and (relay := self._relay_for(next(iter(queue.values())))) is not None:
                    host = self._unqueue(next(iter(queue)))
                    self._take_seat(relay, host)
                    yield relay, host
            if not any(self._queues[of_eval].values()):
                del self._queues[of_eval]

    def seat_alone(self, relay: RelayActor) -> PlacedHost | None:
        """Give the relay of a quarantine to it, and return the quarantine, None if it is gone."""
        assert relay.only_for is not None
        if relay.only_for not in self.waiting:
            return None
        host = self._unqueue(relay.only_for)
        self._seated[host.number] = relay
        relay.hosts[host.number] = host
        return host

    def leave(self, number: int) -> None:
        """Free the seat of a host that has ended."""
        relay = self._seated.pop(number)
        host = relay.hosts.pop(number)
        if host.role == "quarantine":
            return
        relay.n_seated[host.of_eval, host.role] -= 1
        self._n_hosts[host.of_eval] -= host.role == "host"
        self._index_seats(relay, host.of_eval)

    def free_places(self, now: float) -> bool:
        """Free the places that their evals have left for good. Return True if there are any."""
        any_freed = False
        for (relay, of_eval), since in [*self._vacant.items()]:
            if not since:  # the first look at it
                self._vacant[relay, of_eval] = now
            elif now - since >= HOLD_S:
                self._give_up(relay, of_eval, relay.places[of_eval] - relay.n_filled(of_eval))
                any_freed = True
        return any_freed

    def next_for(self, relay: RelayActor) -> list[int]:
        """Return the hosts that would have got the places of a relay that never ran."""
        if relay.only_for is not None:
            return [relay.only_for] if relay.only_for in self.waiting else []
        hosts = self.hosts_waiting(relay.workspace)
        return [host.number for host, _ in zip(hosts, range(relay.seats), strict=False)]

    def hosts_waiting(self, workspace: str) -> Iterator[PlacedHost]:
        """Yield the hosts that want a place for a workspace, the next one first."""
        for of_eval in sorted(self._queues):
            if of_eval[1] == workspace:
                yield from self._queues[of_eval]["host"].values()

    def workspaces(self) -> set[str]:
        """Return the workspaces for which there are relays, or hosts that wait."""
        return {workspace for _, workspace in self._queues} | {relay.workspace for relay in self.relays}

    def _relay_for(self, host: PlacedHost) -> RelayActor | None:
        """Return a relay with a seat for a host: in a place that its eval has, or in one that is free."""
        relays: Iterable[RelayActor] = self._with_seats.get((host.of_eval, host.role), ())
        if not relays and host.role == "host":
            relays = self._with_free_places.get(host.workspace, ())
        return next(iter(relays), None)

    def _take_seat(self, relay: RelayActor, host: PlacedHost) -> None:
        self._seated[host.number] = relay
        relay.hosts[host.number] = host
        relay.n_seated[host.of_eval, host.role] += 1
        if relay.n_filled(host.of_eval) > relay.places[host.of_eval]:
            relay.places[host.of_eval] += 1
            self._n_places[host.of_eval] += 1
            self._index(relay)
        self._index_seats(relay, host.of_eval)

    def _unqueue(self, number: int) -> PlacedHost:
        host = self.waiting.pop(number)
        if host.role == "quarantine":
            del self.quarantines[number]
        else:
            del self._queues[host.of_eval][host.role][number]
        return host

    def _give_up(self, relay: RelayActor, of_eval: EvalKey, n_places: int) -> None:
        relay.places[of_eval] -= n_places
        self._n_places[of_eval] -= n_places
        if not relay.places[of_eval]:
            del relay.places[of_eval]
        self._index_seats(relay, of_eval)
        self._index(relay)

    def _index_seats(self, relay: RelayActor, of_eval: EvalKey) -> None:
        """Keep what is known of the seats that an eval has in a relay up to date."""
        n_places = relay.places[of_eval] if relay.seats else 0
        for role in _ROLES:
            relays = self._with_seats.setdefault((of_eval, role), {})
            _keep(relays, relay, relay.n_seated[of_eval, role] < n_places)
            if not relays:
                del self._with_seats[of_eval, role]
        if relay.n_filled(of_eval) < relay.places[of_eval]:
            self._vacant.setdefault((relay, of_eval), 0.0)
        else:
            self._vacant.pop((relay, of_eval), None)

    def _index(self, relay: RelayActor) -> None:
        """Keep what is known of the free places of a relay up to date."""
        relays = self._with_free_places.setdefault(relay.workspace, {})
        _keep(relays, relay, relay.runs and relay.only_for is None and relay.places.total() < relay.seats)


def _keep(relays: dict[RelayActor, None], relay: RelayActor, belongs: bool) -> None:
    if belongs:
        relays[relay] = None
    else:
        relays.pop(relay, None)
