"""An exchange: one request to a model, and its answer, as plain JSON. Equal requests have the same digest.

The digest is made of what is stored, without secrets, so a replay finds its answers though another key, or none, is in
the environment. docs/reference/cassettes.md describes cassettes and exchange logs, whose lines are declared here.

A log has the events of hosts as its lines. It may hold an exchange several times, because a rollout was begun again:
the last one counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

from pytest_osmosis.errors import ModelError
from pytest_osmosis.files.reading import parsed
from pytest_osmosis.formats.codec import Count, Positive, ShapeFault, check_version, decode, quoted
from pytest_osmosis.formats.events import RunFields
from pytest_osmosis.models.base import ChatReply, ChatRequest, Usage
from pytest_osmosis.record.run_id import ModelTag, RunId, plan_order
from pytest_osmosis.text.redaction import may_hold_key, without_keys

ROLLOUT = "rollout"
"""The asker of a rollout's own requests. Those of judges have the name of the function that asks."""

DIGEST_BYTES = 12
API = "api"
"""The member of requests to OpenAI's Responses that names it. Others lack it."""
SETTINGS = ("model", API, "seed", "sampling", "tools")
"""The members of a request besides its messages."""

Body = dict[str, Any]
"""A request as it is stored: "model", "seed" unless None, "sampling", "tools" unless empty, "messages"."""
Redact = Callable[[Mapping[str, Any]], str]
"""Returns a value as JSON text without secrets."""


class Asker(NamedTuple):
    """The sender of requests in a run: its `ROLLOUT`, or the function of that name, which asks a judge."""

    run: RunId
    name: str

    @property
    def order(self) -> tuple[object, ...]:
        """The sort key of the askers in a cassette: the rollout of a run comes before its functions."""
        return *plan_order(self.run), self.name != ROLLOUT, self.name


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
    def of(cls, body: Body) -> Fingerprint:
        """Return the digests of a stored request."""
        prefixes = list(accumulate(body["messages"], digest_of, initial=""))
        settings = {name: digest_of(body.get(name)) for name in SETTINGS}
        known = {name: digest for name, digest in settings.items() if (name, digest) != NO_API}
        return cls(digest_of("", known, prefixes[-1]), prefixes, settings)


# -- answers ----------------------------------------------------------------------------------------------


def reply_to_json(reply: ChatReply) -> dict[str, Any]:
    usage = None if reply.usage is None else reply.usage.to_json()
    fields = {"message": reply.message, "finish_reason": reply.finish_reason, "usage": usage, "model": reply.model}
    return {name: value for name, value in fields.items() if value is not None}


def reply_from_json(fields: Mapping[str, Any]) -> ChatReply:
    """Return the reply that `reply_to_json` made JSON of."""
    usage = Usage(**fields["usage"]) if "usage" in fields else None
    return ChatReply(fields["message"], fields.get("finish_reason"), usage, fields.get("model"))


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
    status, systemic = fields.get("status"), fields.get("systemic", "no")
    return ModelError(fields["message"], boundary="model", status=status, systemic=systemic)


class Continuations:
    """The requests of one asker so far, by digests alone. A request continues the one with the longest equal prefix."""

    def __init__(self) -> None:
        self._prefixes: dict[str, tuple[int, int]] = {}  # the turn that begins with each, and how many messages it is
        self._settings: dict[int, Mapping[str, str]] = {}

    def shortened(self, body: Body, fingerprint: Fingerprint) -> dict[str, Any]:
        """Return a request without what it shares with the one that it continues; whole if it continues none."""
        longest = next((each for each in reversed(fingerprint.prefixes) if each in self._prefixes), None)
        if longest is None:
            return body
        turn, length = self._prefixes[longest]
        known = self._settings[turn]
        own = {name: body.get(name, EMPTY[name]) for name in SETTINGS if fingerprint.settings[name] != known[name]}
        return {"continues": {"turn": turn, "messages": length}, **own, "messages": body["messages"][length:]}

    def add(self, turn: int, fingerprint: Fingerprint, message: Mapping[str, Any] | None) -> None:
        """Let later requests continue this one; `message` is that of its reply, if there was one."""
        prefixes = list(fingerprint.prefixes)
        if message is not None:
            prefixes.append(digest_of(prefixes[-1], message))
        self._settings[turn] = fingerprint.settings
        for length, prefix in enumerate(prefixes[1:], 1):
            self._prefixes[prefix] = turn, length


EMPTY: Mapping[str, Any] = {"model": "", API: None, "seed": None, "sampling": {}, "tools": []}
"""The values of settings that a request lacks, while the one that it continues has them."""


def whole(request: Mapping[str, Any], earlier: Body, reply: Mapping[str, Any] | None) -> Body:
    """Return a whole request from its shortened form, and from the whole one that it continues with its `reply`."""
    conversation = [*earlier["messages"], *([reply["message"]] if reply is not None else [])]
    settings = {name: request[name] if name in request else earlier.get(name) for name in SETTINGS}
    given = {name: value for name, value in settings.items() if value not in (None, []) or name == "model"}
    return {**given, "messages": [*conversation[: request["continues"]["messages"]], *request["messages"]]}


# -- the lines of cassettes and exchange logs -----------------------------------------------------------

SCHEMA_VERSION = 1
CASSETTE, LOG = "cassette", "exchanges"
MOST_LINE_BYTES = 1 << 28

_HEAD = re.compile(
    rb'\{(?:"ev":"exchange",)?"row":(?P<row>\d{1,15}),"run":(?P<run>\d{1,15}),(?:"model_tag":"(?P<tag>primary|baseline)",)?'
    rb'(?:"attempt":(?P<attempt>\d{1,15}),)?"asker":(?P<asker>"(?:[^"\\]|\\.)*"),(?:"call":"(?P<call>\w+)",)?'
    rb'"turn":(?P<turn>\d{1,15}),(?:"after":(?P<after>\d{1,15}),"nth":(?P<nth>\d{1,15}),)?"digest":"(?P<digest>\w+)"'
)
"""The beginning of a line as it is written. Lines that others have laid out anew are parsed as a whole."""


class Head(NamedTuple):
    """The members of a line that identify its exchange. A cassette has no `attempt`, `call`, `after` and `nth`."""

    asker: Asker
    turn: int
    digest: str
    attempt: int = 0
    call: str = ""
    after: int = 0
    nth: int = 0


def header(kind: str) -> bytes:
    return _line({"schema_version": SCHEMA_VERSION, "kind": kind})


def read_header(line: bytes) -> str:
    """Return the kind of a file from its first line. Raises `ShapeFault`."""
    value = read_line(line)
    kind = value.get("kind")
    if "schema_version" not in value or kind not in (CASSETTE, LOG):
        raise ShapeFault(f"is not a cassette: the first line of one is {header(CASSETTE).decode().strip()}")
    check_version(value, SCHEMA_VERSION)
    return str(kind)


def encoded(
    asker: Asker, turn: int, digest: str, request: Mapping[str, Any], answer: Mapping[str, Mapping[str, Any]]
) -> bytes:
    """Return the line of an exchange in a cassette.

    `request` is what is stored of its request. `answer` has the `reply` or the `error`, as `reply_to_json` and
    `error_to_json` return them.
    """
    head = {**asker.run.to_json(), "asker": asker.name, "turn": turn, "digest": digest}
    return _line({**head, "request": request, **answer})


def _line(value: Mapping[str, Any]) -> bytes:
    text = _encode(value) + "\n"
    return text.encode("utf-8") if not _SURROGATE.search(text) else _SURROGATE.sub(_escape, text).encode("utf-8")


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def read_line(line: bytes) -> dict[str, Any]:
    """Return the object on a line. Raises `ShapeFault`."""
    try:
        value = parsed(line.decode("utf-8"))
    except ValueError as error:
        raise ShapeFault(f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ShapeFault(f"must be an object, got {quoted(value)}")
    return value


def head_of(line: bytes) -> Head:
    """Return the identity of the exchange on a line, mostly without parsing all of it. Raises `ShapeFault`."""
    match = _HEAD.match(line)
    if match is None:
        return head_in(read_line(line))
    tag = match["tag"]
    run = RunId(int(match["row"]), int(match["run"]), ModelTag.PRIMARY if tag is None else ModelTag(tag.decode()))
    asker = Asker(run, json.loads(match["asker"]))
    attempt, after, nth = (int(match[name] or 0) for name in ("attempt", "after", "nth"))
    call = (match["call"] or b"").decode()
    return Head(asker, int(match["turn"]), match["digest"].decode(), attempt, call, after, nth)


class AskedFields(RunFields):
    """One request of an attempt."""

    asker: str
    call: NotRequired[str]
    turn: Positive
    after: NotRequired[Count]
    nth: NotRequired[Positive]
    digest: str
    stored: NotRequired[bool]


class IdentityFields(AskedFields):
    attempt: NotRequired[Count]


class ContinuesFields(TypedDict):
    turn: Positive
    messages: Positive


class RequestFields(TypedDict):
    """A request, or the part that `Continuations` leaves."""

    messages: Sequence[Any]
    model: NotRequired[str]
    api: NotRequired[Literal["responses"] | None]
    seed: NotRequired[Any]
    sampling: NotRequired[Mapping[str, Any]]
    tools: NotRequired[Sequence[Any]]
    continues: NotRequired[ContinuesFields]


class MessageFields(TypedDict):
    role: Literal["assistant"]


class ReplyFields(TypedDict):
    message: MessageFields
    finish_reason: NotRequired[str]
    usage: NotRequired[Usage]
    model: NotRequired[str]


class ErrorFields(TypedDict):
    message: str
    status: NotRequired[Count]
    systemic: NotRequired[Literal["never", "no", "until_success", "always"]]
    type: NotRequired[str]


class ExchangeFields(IdentityFields):
    request: RequestFields
    reply: NotRequired[ReplyFields]
    error: NotRequired[ErrorFields]


def head_in(value: Mapping[str, Any]) -> Head:
    """Return the identity of the exchange in an object. Raises `ShapeFault`."""
    decode(value, IdentityFields)
    asker = Asker(RunId.of(value), value["asker"])
    attempt, after, nth = (value.get(name, 0) for name in ("attempt", "after", "nth"))
    return Head(asker, value["turn"], value["digest"], attempt, value.get("call", ""), after, nth)


def check_exchange(value: Mapping[str, Any]) -> None:
    """Raise `ShapeFault` if an object is no exchange."""
    decode(value, ExchangeFields)
    if ("reply" in value) == ("error" in value):
        raise ShapeFault("must have either a reply or an error")
