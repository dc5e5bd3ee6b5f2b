"""An exchange: one request to a model, and its answer, as plain JSON. The digest of a request tells equal ones.

The digest covers all that shapes an answer: the messages, the tools, the sampling, the seed, the name of the model. It
covers neither the address nor the key nor the time. It is made of what is stored, without secrets, so a replay finds
its answers though another key, or none, is in the environment.

The messages of a request mostly begin with those of an earlier request of the same asker and its answer. Stored whole,
a conversation of n turns would be there n times, and a change of its first message would change every line. So a
request names the turn that it continues, how many messages of that turn's conversation it begins with, and then only
its own. The conversation of a turn is its messages, and the message of its reply. What else is equal (model, seed,
sampling, tools) is left out too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest, Usage
from pytest_osmosis.text.redaction import may_hold_key, without_keys

ROLLOUT = "rollout"
"""The asker of a rollout's own requests. Those of judges have the name of the function that asks."""
PRIMARY = "primary"

DIGEST_BYTES = 12
API = "api"
"""The member of requests to OpenAI's Responses that names it. Others lack it."""
SETTINGS = ("model", API, "seed", "sampling", "tools")
"""The members of a request besides its messages."""

Body = dict[str, Any]
"""A request as it is stored: "model", "seed" unless None, "sampling", "tools" unless empty, "messages"."""
Redact = Callable[[Mapping[str, Any]], str]
"""Returns a value as JSON text without secrets."""


class Run(NamedTuple):
    """A run, as exchanges name it: the row, the number of the run, and the tag of its model."""

    row: int
    run: int
    model_tag: str = PRIMARY

    def __str__(self) -> str:
        return f"row{self.row}-run{self.run}{'' if self.model_tag == PRIMARY else f'-{self.model_tag}'}"


class Asker(NamedTuple):
    """The sender of requests in a run: its `ROLLOUT`, or the function of that name, which asks a judge."""

    run: Run
    name: str

    @property
    def order(self) -> tuple[object, ...]:
        """The sort key of the askers in a cassette: the rollout of a run comes before its functions."""
        row, run, tag = self.run
        return row, run, tag != PRIMARY, tag, self.name != ROLLOUT, self.name


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer: `reply`, or `error` if the model refused. `turn` counts the asker's requests from 1.

    `reply` and `error` are as `reply_to_json` and `error_to_json` return them.
    """

    asker: Asker
    turn: int
    digest: str
    request: Body
    reply: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None


# -- requests ---------------------------------------------------------------------------------------------


def stored_request(request: ChatRequest, model: str, redact: Redact, api: str | None = None) -> Body:
    """Return a request to `model` as it is stored: plain JSON, without secrets and without what looks like a key.

    `api` names the API that is asked, None for those that are told by the model's address.
    """
    body: Body = {"model": model} if api is None else {"model": model, "api": api}
    if request.seed is not None:
        body["seed"] = request.seed
    body["sampling"] = dict(request.sampling)
    if request.tools:
        body["tools"] = list(request.tools)
    body["messages"] = list(request.messages)
    return cleaned(body, redact)


def cleaned(value: Mapping[str, Any], redact: Redact) -> dict[str, Any]:
    """Return a mapping as plain JSON, without secrets and without what looks like a key."""
    text = redact({"value": value})
    plain: dict[str, Any] = json.loads(text)["value"]
    return without_keys(plain) if may_hold_key(text) else plain


def digest_of(*values: Any) -> str:
    """Return the digest of JSON values, which does not depend on the order of keys."""
    return blake2b(_canonical(values).encode(), digest_size=DIGEST_BYTES).hexdigest()


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
NO_API = (API, digest_of(None))


class Fingerprint(NamedTuple):
    """The digests of a request and of its parts. `prefixes[n]` is that of the first n messages."""

    digest: str
    prefixes: Sequence[str]
    settings: Mapping[str, str]

    @classmethod
    def of(cls, body: Body, scope: str = "") -> Fingerprint:
        """Return the digests of a stored request. Requests of different `scope` are never equal."""
        prefixes = [""]
        for message in body["messages"]:
            prefixes.append(digest_of(prefixes[-1], message))
        settings = {name: digest_of(body.get(name)) for name in SETTINGS}
        return cls(cls.digest_from(settings, prefixes[-1], scope), prefixes, settings)

    @staticmethod
    def digest_from(settings: Mapping[str, str], messages: str, scope: str = "") -> str:
        """Return the digest of a request from those of its settings and of all its messages."""
        return digest_of(scope, {name: known for name, known in settings.items() if (name, known) != NO_API}, messages)


# -- answers ----------------------------------------------------------------------------------------------


def reply_to_json(reply: ChatReply) -> dict[str, Any]:
    fields: dict[str, Any] = {"message": reply.message}
    if reply.finish_reason is not None:
        fields["finish_reason"] = reply.finish_reason
    if reply.usage is not None:
        fields["usage"] = reply.usage.to_json()
    if reply.model is not None:
        fields["model"] = reply.model
    return fields


def reply_from_json(fields: Mapping[str, Any]) -> ChatReply:
    """Return the reply that `reply_to_json` made JSON of."""
    usage = fields.get("usage")
    return ChatReply(
        fields["message"],
        fields.get("finish_reason"),
        None if usage is None else Usage(**usage),
        fields.get("model"),
    )


RefusedRequest = ModelError | TypeError | ValueError
"""An error that the same request would meet again: a refusal, or messages that the model's API cannot represent."""
BUILTIN_ERRORS: Mapping[str, type[TypeError] | type[ValueError]] = {"TypeError": TypeError, "ValueError": ValueError}


def error_to_json(error: BaseException) -> dict[str, Any] | None:
    """Return an error of the request itself; None for outages, which say nothing about it."""
    if isinstance(error, ModelError):
        if error.boundary != "model":
            return None
        fields: dict[str, Any] = {"message": str(error).removesuffix(f" ({error.retries + 1} tries)")}
        if error.status is not None:
            fields["status"] = error.status
        return fields if error.systemic == "no" else {**fields, "systemic": error.systemic}
    name = next((name for name, kind in BUILTIN_ERRORS.items() if type(error) is kind), None)
    return None if name is None else {"type": name, "message": str(error)}


def error_from_json(fields: Mapping[str, Any]) -> RefusedRequest:
    """Return the error that `error_to_json` made JSON of."""
    builtin = BUILTIN_ERRORS.get(fields.get("type", ""))
    if builtin is not None:
        return builtin(fields["message"])
    return ModelError(
        fields["message"],
        boundary="model",
        status=fields.get("status"),
        systemic=fields.get("systemic", "no"),
    )


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
