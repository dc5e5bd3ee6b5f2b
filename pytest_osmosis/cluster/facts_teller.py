"""Facts of a cluster as they are sent to pytest's process, and the reasons why hosts wait."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pytest_osmosis.cluster.facts import ClusterFacts
from pytest_osmosis.cluster.frames import Frame, Kind
from pytest_osmosis.cluster.places import HostNeeds, Node, is_here

UNSETTLED_S = 10.0
"""If no two looks in a row agree for this long, the smallest room that any of them saw is sent."""


class Look(NamedTuple):
    """The numbers of places and of hosts that want one, and the body of a FACTS frame that says so."""

    n_places: int
    n_wanted: int
    facts: bytes


class FactsTeller:
    """Tells the facts of a cluster by `say`, once they last. `describe` returns them as `facts_body` does.

    The free resources of a cluster that others use change all the time, and what one look sees may be true for a moment
    only: two in a row must see it.
    """

    def __init__(
        self, say: Callable[[Frame], None], describe: Callable[[Sequence[Node], int, int, int], bytes]
    ) -> None:
        self._say = say
        self._describe = describe
        self._told = b""
        self._looks: list[Look] = []
        self._settled_at = time.monotonic()

    def take(self, nodes: Sequence[Node], n_places: int, n_wanted: int, n_elsewhere: int) -> Look | None:
        """Take in a look at the cluster. Return what holds now, None if that is not clear."""
        look = Look(n_places, n_wanted, self._describe(nodes, n_places, n_wanted, n_elsewhere))
        self._looks.append(look)
        now = time.monotonic()
        if self._told:
            if now - self._settled_at > UNSETTLED_S:
                look = min(self._looks[1:], key=lambda each: each.n_places)  # there was never less room since
            elif look != self._looks[-2]:
                return None
        if look.facts != self._told:
            self._say(Frame(Kind.FACTS, 0, look.facts))
            self._told = look.facts
        self._looks, self._settled_at = self._looks[-1:], now
        return look


def facts_body(
    nodes: Sequence[Node], n_places: int, n_wanted: int, n_elsewhere: int, *, needs: HostNeeds, address: str, ray: str
) -> bytes:
    """Return the body of a FACTS frame: for `n_wanted` hosts there are `n_places` on `nodes`."""
    is_local = not n_elsewhere and all(is_here(node.address) for node in nodes)
    n_nodes = sum(needs.most_on(node) > 0 for node in nodes)
    lacks = needs.amounts_text(n_wanted - n_places) if n_wanted > n_places else ""
    unmet = "" if n_nodes else needs.unmet(nodes)
    facts = ClusterFacts(address, ray, n_nodes, n_places, lacks, is_local, n_elsewhere, unmet)
    return json.dumps(facts.to_json()).encode()


def waiting_text(n_places: int, n_lacking: int, needs: HostNeeds, *, n_of_others: int = 0) -> str:
    """Return why hosts of an eval wait: of `n_places`, other evals have `n_of_others`, and `n_lacking` find none.

    >>> waiting_text(3, 1, HostNeeds({"num_cpus": 2}))
    'the cluster has room for 3 now; the other needs 2 CPUs'
    >>> waiting_text(3, 1, HostNeeds({"num_cpus": 2}), n_of_others=2)
    'other evals of this command have 2 of the 3 places of the cluster'
    """
    if n_of_others:
        places = "the only place" if n_places == 1 else f"all {n_places} places"
        if n_of_others < n_places:
            places = f"{n_of_others} of the {n_places} places"
        return f"other evals of this command have {places} of the cluster"
    one, many = ("the other needs", "the others need") if n_places else ("it needs", "they need")
    need = one if n_lacking == 1 else many
    return f"the cluster has room for {n_places or 'none'} now; {need} {needs.amounts_text(n_lacking)}"
