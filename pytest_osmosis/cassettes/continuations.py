"""Requests that continue an earlier one: only their new messages are stored.

The messages of a request mostly begin with those of an earlier request of the same asker and its answer. Stored whole,
a conversation of n turns would be there n times, and a change of its first message would change every line. So a
request names the turn that it continues, how many messages of that turn's conversation it begins with, and then only
its own. The conversation of a turn is its messages, and the message of its reply. What else is equal (model, seed,
sampling, tools) is left out too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pytest_osmosis.cassettes.exchange import API, SETTINGS, Body, Fingerprint, digest_of


class _Prefix(NamedTuple):
    turn: int
    length: int


class Continuations:
    """The requests of one asker so far, by digests alone. A request continues the one with the longest equal prefix."""

    def __init__(self) -> None:
        self._prefixes: dict[str, _Prefix] = {}
        self._settings: dict[int, Mapping[str, str]] = {}

    def shortened(self, body: Body, fingerprint: Fingerprint) -> dict[str, Any]:
        """Return a request without what it shares with the one that it continues; whole if it continues none."""
        base = next((self._prefixes[each] for each in reversed(fingerprint.prefixes) if each in self._prefixes), None)
        if base is None or base.length == 0:
            return body
        known = self._settings[base.turn]
        own = {name: body.get(name, EMPTY[name]) for name in SETTINGS if fingerprint.settings[name] != known[name]}
        continues = {"turn": base.turn, "messages": base.length}
        return {"continues": continues, **own, "messages": body["messages"][base.length :]}

    def add(self, turn: int, fingerprint: Fingerprint, message: Mapping[str, Any] | None) -> None:
        """Let later requests continue this one; `message` is that of its reply, if there was one."""
        prefixes = list(fingerprint.prefixes)
        if message is not None:
            prefixes.append(digest_of(prefixes[-1], message))
        self._settings[turn] = fingerprint.settings
        for length, prefix in enumerate(prefixes[1:], 1):
            self._prefixes[prefix] = _Prefix(turn, length)


class _Known(NamedTuple):
    prefixes: Sequence[str]
    settings: Mapping[str, str]


class Digests:
    """The digests of the requests of one asker, as they follow from their stored forms, in the order of a cassette."""

    def __init__(self) -> None:
        self._turns: dict[int, _Known] = {}

    def of(self, turn: int, request: Mapping[str, Any], reply: Mapping[str, Any] | None) -> str | None:
        """Return the digest of a stored request, None if it continues one that was not given before."""
        prefixes, settings = [""], {name: digest_of(None) for name in SETTINGS}
        if (continues := request.get("continues")) is not None:
            earlier = self._turns.get(continues["turn"])
            if earlier is None:
                return None
            prefixes, settings = [*earlier.prefixes[: continues["messages"] + 1]], {**earlier.settings}
        for name in SETTINGS:
            if name in request:
                settings[name] = digest_of(None if request[name] == [] else request[name])
        for message in request["messages"]:
            prefixes.append(digest_of(prefixes[-1], message))
        answered = [] if reply is None else [digest_of(prefixes[-1], reply["message"])]
        self._turns[turn] = _Known([*prefixes, *answered], settings)
        return Fingerprint.digest_from(settings, prefixes[-1])


EMPTY: Mapping[str, Any] = {"model": "", API: None, "seed": None, "sampling": {}, "tools": []}
"""The values of settings that a request lacks, while the one that it continues has them."""


def whole(request: Mapping[str, Any], earlier: Body, reply: Mapping[str, Any] | None) -> Body:
    """Return a whole request from its shortened form, and from the whole one that it continues with its `reply`."""
    conversation = [*earlier["messages"], *([reply["message"]] if reply is not None else [])]
    settings = {name: request[name] if name in request else earlier.get(name) for name in SETTINGS}
    given = {name: value for name, value in settings.items() if value not in (None, []) or name == "model"}
    return {**given, "messages": [*conversation[: request["continues"]["messages"]], *request["messages"]]}
