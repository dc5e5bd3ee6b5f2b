"""An exchange: one request to a model, and its answer, as plain JSON. The digest of a request tells equal ones.

The digest covers all that shapes an answer: the messages, the tools, the sampling, the seed, the name of the model. It
covers neither the address nor the key nor the time. It is made of what is stored, without secrets, so a replay finds
its answers though another key, or none, is in the environment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest, Usage
from pytest_osmosis.text.key_shapes import may_hold_key, without_keys

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
