"""The exchanges of a host: requests are looked up in the store of the eval, and those that it shall keep are reported.

Every request to a model passes an `AskerExchanges`, whoever sends it. It is digested, and answered from the store if an
equal request of the same run and asker is there (`cassettes.reader`). What is sent is reported once it was answered or
refused; an outage is not. In a replay nothing is sent: a request that is not in the store is an error of the provider,
which says what was recorded in its place, and what has changed.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from pathlib import Path
from socket import gethostname
from threading import Lock
from typing import Any

from msgspec import Struct

from pytest_osmosis.cassettes.exchange import (
    ROLLOUT,
    Asker,
    Body,
    Continuations,
    Fingerprint,
    Redact,
    cleaned,
    error_from_json,
    error_to_json,
    reply_from_json,
    reply_to_json,
    stored_request,
)
from pytest_osmosis.cassettes.reader import AskerAnswers, CassetteReader, Stored, answer_of
from pytest_osmosis.errors import CassetteError, CodeError, ModelError
from pytest_osmosis.formats.events import StoredFields
from pytest_osmosis.host.protocol import CassetteFields, Emit, EventSink, ExchangeEvent, HostEvent, Key, Setup
from pytest_osmosis.models.base import ChatReply, ChatRequest, Usage
from pytest_osmosis.models.providers import Api
from pytest_osmosis.models.targets import asks_responses
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.names import listed, shown
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.safe import one_line, shortened


def report_at_once(events: EventSink) -> Emit:
    """Return a function that sends an event from the host's loop, before user code may end the process."""

    def emit(event: HostEvent) -> None:
        events.emit(event)
        events.flush()

    return emit


def total_usage(total: Usage | None, usage: Usage | None, n_before: int) -> Usage | None:
    """Return the usage of `n_before` answers and one more. It is None for good once an answer came without."""
    if not n_before:
        return usage
    return None if total is None or usage is None else total + usage


class StoreTotals(Struct):
    """The answers that came from the store, and their usage: None if one came without."""

    requests: int = 0
    usage: Usage | None = None

    def add(self, usage: Usage | None) -> None:
        self.usage = total_usage(self.usage, usage, self.requests)
        self.requests += 1

    def to_json(self) -> StoredFields:
        return {"requests": self.requests, "usage": None if self.usage is None else self.usage.to_json()}


def opened_store(setup: Setup) -> HostExchanges | None:
    """Return the store that a setup names, None if it names none. Raises `CodeError` if it cannot be read."""
    if setup.cassette is None:
        return None
    for path in setup.cassette["needed"]:
        if not os.path.lexists(path):
            text = f"the cassette {shown(Path(path))} is not on {gethostname()}, where this code would run"
            fix = "if the workspace is uploaded, neither .gitignore nor [execution.ray] exclude may name it"
            raise CodeError(f"{text}; {fix}")
    try:
        reader = CassetteReader.open(map(Path, setup.cassette["paths"]))
    except CassetteError as error:
        raise CodeError(str(error)) from None
    return HostExchanges(setup.cassette, reader)


class HostExchanges:
    """The store of one host."""

    def __init__(self, fields: CassetteFields, reader: CassetteReader) -> None:
        self.reader = reader
        self.mode = fields["mode"]

    @property
    def is_replay(self) -> bool:
        return self.mode == "replay"

    @cached_property
    def runs(self) -> set[RunId]:
        return self.reader.runs()


class AskerExchanges:
    """The exchanges of one rollout, or of one call of the function `name`. May be used from any thread."""

    def __init__(self, store: HostExchanges, key: Key, name: str, redact: Redact) -> None:
        self.store = store
        self.key = key
        self.asker = Asker(key.run, name)
        self.redact = redact
        self.call = secrets.token_hex(4)
        self.answers: AskerAnswers = store.reader.at(self.asker)
        self.continuations = Continuations()
        self._asked = 0
        self._ended = 0
        self._equal = Counter[str]()
        self._counting = Lock()  # protects all of these: code that holds the host's loop is served in another thread

    def asks(self, request: ChatRequest, model: str, api: Api = "chat_completions") -> AskedRequest:
        """Take a request that is about to be sent to a model by an API."""
        named = "responses" if asks_responses(api, request.keys) else None
        body = stored_request(request, model, self.redact, named)
        fingerprint = Fingerprint.of(body)
        with self._counting:
            self._asked += 1
            self._equal[fingerprint.digest] += 1
            turn, after, nth = self._asked, self._ended, self._equal[fingerprint.digest]
            shortened = body if self.store.is_replay else self.continuations.shortened(body, fingerprint)
        stored = self.answers.take(turn, fingerprint.digest)
        return AskedRequest(self, body, shortened, fingerprint, turn, after, nth, stored)

    def ended(self, asked: AskedRequest, message: Any) -> None:
        """Count a request as over; `message` is that of its answer, None without one."""
        with self._counting:
            self._ended += 1
            if message is not None and not self.store.is_replay:
                self.continuations.add(asked.turn, asked.fingerprint, message)


class AskedRequest(Struct, frozen=True):
    """One request, from its look-up to its end. With an answer `from_store`, or in a replay, nothing is sent."""

    exchanges: AskerExchanges
    body: Body
    shortened: Body
    fingerprint: Fingerprint
    turn: int
    after: int
    nth: int
    stored: Stored | None

    @property
    def from_store(self) -> bool:
        return self.stored is not None

    @property
    def is_sent(self) -> bool:
        """True if the request must be sent to its model."""
        return self.stored is None and not self.exchanges.store.is_replay

    async def answer(self) -> ChatReply:
        """Return the stored answer, after a turn of the loop. Raises the stored error, or says what has changed."""
        await asyncio.sleep(0)  # let other rollouts run
        if self.stored is None:
            why, details = _why_unrecorded(self)
            raise ModelError(f"the cassette has no answer: {why}; {RECORD_NEW}", details=details)
        try:
            value = answer_of(self.stored)
        except CassetteError as error:
            raise ModelError(f"the recorded answer cannot be read: {error}") from None
        if "error" in value:
            raise error_from_json(value["error"])
        return reply_from_json(value["reply"])

    async def exchanged(self, send: Callable[[], Awaitable[ChatReply]], emit: Emit) -> ChatReply:
        """Return the reply that `send` returns, and report it, or the refusal that it raises."""
        message = None
        try:
            reply = await send()
            fields = cleaned(reply_to_json(reply), self.exchanges.redact)
            message = fields["message"]
            self._report({"reply": fields}, emit)
        except BaseException as error:
            refusal = error_to_json(error)
            if refusal is not None:
                self._report({"error": cleaned(refusal, self.exchanges.redact)}, emit)
            raise
        finally:
            self.exchanges.ended(self, message)
        return reply

    def _report(self, answer: Mapping[str, Any], emit: Emit) -> None:
        exchanges = self.exchanges
        if exchanges.store.is_replay:
            return
        event: ExchangeEvent = {
            "ev": "exchange",
            **exchanges.key.to_json(),
            "asker": exchanges.asker.name,
            "call": exchanges.call,
            "turn": self.turn,
            "after": self.after,
            "nth": self.nth,
            "digest": self.fingerprint.digest,
            "request": self.shortened,
            **answer,  # type: ignore[typeddict-item]  # "stored" is not in it
        }
        if self.from_store:
            event["stored"] = True
        emit(event)


RECORD_NEW = "--osmosis-record=new records what is missing"
LINE_CHARS = 100
"""Longer lines of text are wrapped, so that a changed word does not show the whole paragraph twice."""
MOST_TEXT_CHARS = 20_000
"""A longer line of text is compared without its middle."""
MOST_LINES = 60
MOST_RUNS = 5


def _why_unrecorded(asked: AskedRequest) -> tuple[str, str]:
    """Return why a request has no answer, and as details the difference to the recorded one."""
    answers, asker = asked.exchanges.answers, asked.exchanges.asker
    whose = "the rollout" if asker.name == ROLLOUT else asker.name
    if not answers.n:
        runs = asked.exchanges.store.runs
        if asker.run in runs:
            return f"it holds this run, but nothing that {whose} asked", ""
        return f"it does not hold this run, but {listed(sorted(runs), MOST_RUNS) or 'none'}", ""
    left = answers.left
    if not left:
        recorded = plural(answers.n, "request")
        return f"{recorded} of {whose} were recorded and are answered, and this is request {asked.turn}", ""
    nearest = next((each for each in left if each.head.turn == asked.turn), next(iter(left)))
    turn = nearest.head.turn
    try:
        lines = difference(answers.request(nearest), asked.body)
    except CassetteError as error:
        return f"request {asked.turn} of {whose} was recorded differently ({one_line(str(error))})", ""
    if turn == asked.turn:
        return f"request {turn} of {whose} has changed since it was recorded", "\n".join(lines)
    unused = f"of the recorded ones request {turn} is left"
    return f"request {asked.turn} of {whose} was not recorded; {unused}", "\n".join(lines)


def difference(recorded: Body, request: Body) -> list[str]:
    """Return the lines of a unified diff of two requests as JSON; [] for equal ones.

    It is cut after `MOST_LINES` lines, and says how many are left out.
    """
    from difflib import unified_diff  # most hosts never need it

    lines = list(unified_diff(_lines(recorded), _lines(request), "recorded", "asked now", lineterm=""))
    if len(lines) <= MOST_LINES:
        return lines
    return [*lines[:MOST_LINES], f"[... {len(lines) - MOST_LINES:,} further lines left out ...]"]


def _lines(request: Body) -> list[str]:
    """Return a request as JSON, with the line breaks of its texts."""
    from textwrap import wrap

    text = json.dumps(request, indent=1, ensure_ascii=False, sort_keys=True).replace("\\n", "\n")
    lines = (shortened(line, MOST_TEXT_CHARS) for line in text.split("\n"))
    return [part for line in lines for part in wrap(line, LINE_CHARS, drop_whitespace=False) or [""]]
