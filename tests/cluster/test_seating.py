"""Which hosts get the places of relays: by moments that matter, and by random histories in which all is recounted."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from pytest_osmosis.cluster.actors import PlacedHost, RelayActor, Role
from pytest_osmosis.cluster.seating import HOLD_S, Seating

FIRST, SECOND = 1, 2


class Cluster:
    """A seating, its relays and hosts, and a clock."""

    def __init__(self) -> None:
        self.seating = Seating()
        self.now = 100.0
        self.n_opened = 0

    def relay(self, seats: int, workspace: str = "") -> RelayActor:
        """Add a relay that runs."""
        relay = RelayActor(seats, workspace)
        self.seating.add(relay)
        relay.runs = True
        self.seating.opened(relay)
        return relay

    def open(self, eval_number: int, *roles: Role, workspace: str = "", optional: bool = False) -> list[int]:
        """Let hosts wait, and return their numbers."""
        numbers = []
        for role in roles:
            self.n_opened += 1
            host = PlacedHost(self.n_opened, role, [], workspace, eval_number=eval_number, optional=optional)
            self.seating.wait(host)
            numbers.append(host.number)
        return numbers

    def seated(self) -> set[int]:
        """Give seats, and return the numbers of the hosts that got one."""
        return {host.number for _, host in self.seating.seat()}

    def pass_time(self) -> None:
        """Let the places be free that their evals have left."""
        self.seating.free_places(self.now)
        self.now += HOLD_S
        self.seating.free_places(self.now)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_what_replaces_a_host_gets_its_place_though_another_eval_waits_for_longer(cluster: Cluster) -> None:
    cluster.relay(1)
    host, scorer = cluster.open(FIRST, "host", "scorer")
    waiting, waiting_scorer = cluster.open(SECOND, "host", "scorer")
    assert cluster.seated() == {host, scorer}

    cluster.seating.leave(host)
    assert not cluster.seated()
    [replacing] = cluster.open(FIRST, "host")
    assert cluster.seated() == {replacing}

    cluster.seating.leave(replacing)
    cluster.seating.leave(scorer)
    for _ in range(3):
        cluster.seating.free_places(cluster.now)
        assert not cluster.seated(), "the place is held for what may replace them"
        cluster.now += HOLD_S / 4
    cluster.pass_time()
    assert cluster.seated() == {waiting, waiting_scorer}


def test_a_place_stays_with_its_eval_as_long_as_a_scorer_is_in_it(cluster: Cluster) -> None:
    cluster.relay(1)
    host, scorer = cluster.open(FIRST, "host", "scorer")
    [waiting] = cluster.open(SECOND, "host")
    cluster.seated()
    cluster.seating.leave(host)
    cluster.pass_time()
    assert not cluster.seated()
    cluster.seating.leave(scorer)
    cluster.pass_time()
    assert cluster.seated() == {waiting}


def test_scorers_go_only_where_their_eval_has_places(cluster: Cluster) -> None:
    cluster.relay(3)
    [host, *_] = cluster.open(FIRST, "host")
    scorers = cluster.open(FIRST, "scorer", "scorer", "scorer")
    others = cluster.open(SECOND, "host", "host", "scorer", "scorer")
    assert cluster.seated() == {host, scorers[0], *others}


def test_evals_get_places_in_their_order(cluster: Cluster) -> None:
    late = cluster.open(SECOND, "host", "host")
    early = cluster.open(FIRST, "host", "host")
    cluster.relay(3)
    assert cluster.seated() == {*early, late[0]}
    assert cluster.seating.n_wanted == 4
    assert cluster.seating.n_of_others((SECOND, "")) == 2


def test_hosts_get_no_places_for_another_workspace(cluster: Cluster) -> None:
    cluster.relay(2, "/a")
    [_, here] = [*cluster.open(FIRST, "host", workspace="/b"), *cluster.open(FIRST, "host", workspace="/a")]
    assert cluster.seated() == {here}
    assert cluster.seating.workspaces() == {"/a", "/b"}


def test_a_closed_relay_keeps_its_hosts_and_takes_no_more(cluster: Cluster) -> None:
    relay = cluster.relay(2)
    [host] = cluster.open(FIRST, "host")
    cluster.seated()
    cluster.seating.closed(relay)
    cluster.open(FIRST, "host", "scorer")
    assert not cluster.seated()
    assert cluster.seating.host(host) is not None
    cluster.seating.remove(relay)
    assert cluster.seating.host(host) is None
    assert cluster.seating.n_wanted == 1
    assert cluster.seating.n_of_others((SECOND, "")) == 0


def test_the_hosts_of_a_relay_that_never_ran_are_the_next_ones(cluster: Cluster) -> None:
    cluster.open(SECOND, "host")
    first = cluster.open(FIRST, "scorer", "host", "host")
    relay = RelayActor(2, "")
    cluster.seating.add(relay)
    assert cluster.seating.next_for(relay) == first[1:]


@pytest.mark.parametrize("seed", range(40))
def test_random_histories_lose_no_host_and_mix_no_places(cluster: Cluster, seed: int) -> None:
    chance = random.Random(seed)
    alive: dict[int, tuple[int, Role]] = {}
    for _ in range(400):
        relays = [*cluster.seating.relays]
        match chance.randrange(8):
            case 0:
                if len(relays) < 5:
                    cluster.relay(chance.randint(1, 3))
            case 1:
                if relays:
                    relay = chance.choice(relays)
                    for number in relay.hosts:
                        del alive[number]
                    cluster.seating.remove(relay)
            case 2:
                if relays:
                    cluster.seating.closed(chance.choice(relays))
            case 3 | 4:
                role: Role = chance.choice(("host", "host", "scorer"))
                eval_number = chance.randint(1, 3)
                [number] = cluster.open(eval_number, role)
                alive[number] = eval_number, role
            case 5:
                if alive:
                    number = chance.choice([*alive])
                    del alive[number]
                    (cluster.seating.drop if number in cluster.seating.waiting else cluster.seating.leave)(number)
            case _:
                cluster.now += chance.choice((0.1, 0.5, HOLD_S))
                cluster.seating.free_places(cluster.now)
        seated = cluster.seated()
        assert seated <= alive.keys()
        check(cluster, alive)


def check(cluster: Cluster, alive: dict[int, tuple[int, Role]]) -> None:
    seating = cluster.seating
    in_relays = {number for relay in seating.relays for number in relay.hosts}
    assert in_relays | seating.waiting.keys() == alive.keys()
    assert not in_relays & seating.waiting.keys()
    assert seating.n_wanted == sum(role == "host" for _, role in alive.values())
    n_places: Counter[int] = Counter()
    n_free_seats: Counter[tuple[int, Role]] = Counter()
    for relay in seating.relays:
        assert relay.places.total() <= relay.seats or not relay.seats
        for (eval_number, _), n in relay.places.items():
            n_places[eval_number] += n
            roles = Counter(alive[number][1] for number in relay.hosts if alive[number][0] == eval_number)
            assert max(roles.values(), default=0) <= n
            for role in ("host", "scorer"):
                n_free_seats[eval_number, role] += (n - roles[role]) if relay.seats else 0
    any_free = any(relay.places.total() < relay.seats for relay in seating.relays)
    for number in seating.waiting:
        eval_number, role = alive[number]
        assert not n_free_seats[eval_number, role], "a seat is free, and one that wants it waits"
        assert role == "scorer" or not any_free, "a place is free, and a host waits"
    for eval_number in (1, 2, 3):
        assert seating.n_of_others((eval_number, "")) == n_places.total() - n_places[eval_number]
