"""The lines of cassettes and exchange logs: JSON objects, the header first.

The header is `{"schema_version": 1, "kind": "cassette"}`, or "exchanges" for a log. A line of a cassette has these
members, in this order:

- `row`, `run`, and `model_tag` unless it is "primary"; `asker`; `turn`, from 1; `digest` of the request
- `request`: "model", "seed", "sampling", "tools" and "messages", or the part that `continuations` leaves
- `reply` with "message", "finish_reason", "usage" and "model", or `error` of a request that was refused

The lines are sorted by run, asker and turn; (run, asker, turn) is unique. Cassettes are UTF-8, to be read in a diff,
and hold neither times nor addresses.

A log has the events of hosts as its lines. Besides those members they have `ev`, `attempt`, `call` (all requests of
one rollout, or of one call of a function, have the same), `after` (how many requests had ended when this one was sent),
`nth` (1 for the first of equal requests of a call), and `stored` if the answer came from a store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pytest_osmosis.cassettes.exchange import PRIMARY, Asker, Exchange, Run
from pytest_osmosis.files.shapes import (
    Check,
    ShapeFault,
    anything,
    check_version,
    flag,
    listing,
    members,
    nullable,
    one_of,
    quoted,
    table,
    text,
    whole,
)
from pytest_osmosis.files.strict_json import parsed

SCHEMA_VERSION = 1
CASSETTE, LOG = "cassette", "exchanges"
MOST_LINE_BYTES = 1 << 28

_HEAD = re.compile(
    rb'\{(?:"ev":"exchange",)?"row":(?P<row>\d{1,15}),"run":(?P<run>\d{1,15}),(?:"model_tag":"(?P<tag>\w+)",)?'
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


def encoded(exchange: Exchange, request: Mapping[str, Any]) -> bytes:
    """Return the line of an exchange in a cassette. `request` is what is stored of its request."""
    run = exchange.asker.run
    tag = {} if run.model_tag == PRIMARY else {"model_tag": run.model_tag}
    answer = {"reply": exchange.reply} if exchange.reply is not None else {"error": exchange.error}
    head = {"asker": exchange.asker.name, "turn": exchange.turn, "digest": exchange.digest}
    return _line({"row": run.row, "run": run.run, **tag, **head, "request": request, **answer})


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
    run = Run(int(match["row"]), int(match["run"]), PRIMARY if tag is None else tag.decode())
    asker = Asker(run, json.loads(match["asker"]))
    attempt, after, nth = (int(match[name] or 0) for name in ("attempt", "after", "nth"))
    call = (match["call"] or b"").decode()
    return Head(asker, int(match["turn"]), match["digest"].decode(), attempt, call, after, nth)


def head_in(value: Mapping[str, Any]) -> Head:
    """Return the identity of the exchange in an object. Raises `ShapeFault`."""
    _IDENTITY(value)
    asker = Asker(Run(value["row"], value["run"], value.get("model_tag", PRIMARY)), value["asker"])
    attempt, after, nth = (value.get(name, 0) for name in ("attempt", "after", "nth"))
    return Head(asker, value["turn"], value["digest"], attempt, value.get("call", ""), after, nth)


def check_exchange(value: Mapping[str, Any]) -> None:
    """Raise `ShapeFault` if an object is no exchange."""
    _EXCHANGE(value)
    if ("reply" in value) == ("error" in value):
        raise ShapeFault("must have either a reply or an error")


_IDENTITY: Check = members(
    {"row": whole(), "run": whole(), "asker": text, "turn": whole(1), "digest": text},
    {"model_tag": text, "attempt": whole(), "call": text, "after": whole(), "nth": whole(1), "stored": flag},
)
_ANSWER: Check = members({"role": one_of("assistant")})
_REQUEST: Check = members(
    {"messages": listing(anything)},
    {
        "model": text,
        "api": nullable(one_of("responses")),
        "seed": nullable(anything),
        "sampling": table(anything),
        "tools": listing(anything),
        "continues": members({"turn": whole(1), "messages": whole(1)}),
    },
)
_COUNTS = ("cached_input_tokens", "reasoning_tokens", "cache_write_tokens")
_REPLY: Check = members(
    {"message": _ANSWER},
    {
        "finish_reason": text,
        "usage": members(dict.fromkeys(("input_tokens", "output_tokens"), whole()), dict.fromkeys(_COUNTS, whole())),
        "model": text,
    },
)
_ERROR: Check = members(
    {"message": text},
    {"status": whole(), "systemic": one_of("never", "no", "until_success", "always"), "type": text},
)
_BODIES: Check = members({"request": _REQUEST}, {"reply": _REPLY, "error": _ERROR})


def _EXCHANGE(value: Mapping[str, Any]) -> None:
    _IDENTITY(value)
    _BODIES(value)
