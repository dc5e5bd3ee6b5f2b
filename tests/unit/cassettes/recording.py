"""Exchange logs as hosts write them, made of conversations."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytest_osmosis.cassettes.exchange import CASSETTE, ROLLOUT, header
from pytest_osmosis.cassettes.reader import CassetteReader
from pytest_osmosis.cassettes.writer import ExchangeLog
from pytest_osmosis.errors import ModelError
from pytest_osmosis.host.exchanges import AskedRequest, AskerExchanges, HostExchanges
from pytest_osmosis.host.protocol import Key
from pytest_osmosis.models.base import ChatReply, ChatRequest, Message, Usage
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.safe import dumps


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def reply(text: str) -> ChatReply:
    return ChatReply(assistant(text), "stop", Usage(7, 3), "served")


class Call:
    """The requests of one asker, as a host keeps them: their events are `lines`."""

    def __init__(self, run: RunId, *, asker: str = ROLLOUT, attempt: int = 1) -> None:
        self.lines: list[bytes] = []
        store = HostExchanges({"mode": "new", "paths": [], "needed": []}, CassetteReader.open([]))
        self._exchanges = AskerExchanges(store, Key(run, attempt), asker, dumps)

    def asks(self, *messages: Message, **fields: Any) -> Asked:
        """Send a request, which is in flight until it is `answered`."""
        return Asked(self, self._exchanges.asks(ChatRequest(messages, **fields), "m"))

    def exchange(self, *messages: Message, text: str = "42", **fields: Any) -> Message:
        """Send a request and have it answered; return the answer's message."""
        return self.asks(*messages, **fields).answered(reply(text))


class Asked:
    def __init__(self, call: Call, request: AskedRequest) -> None:
        self.body = request.body
        self._call = call
        self._request = request

    def answered(self, answer: ChatReply) -> Message:
        async def send() -> ChatReply:
            return answer

        self._ends(send)
        return answer.message

    def refused(self, message: str) -> None:
        async def send() -> ChatReply:
            raise ModelError(message, boundary="model", status=400)

        with suppress(ModelError):
            self._ends(send)

    def _ends(self, send: Callable[[], Awaitable[ChatReply]]) -> None:
        """Let the request end, for which nothing has to be waited."""
        with suppress(StopIteration):
            self._request.exchanged(send, lambda event: self._call.lines.append(dumps(event).encode() + b"\n")).send(
                None
            )


def conversation(run: RunId, *answers: str, **fields: Any) -> Call:
    """A call with a turn for each answer, each of which continues the one before."""
    call = Call(run, **fields)
    messages = [user(f"question of row {run.row}")]
    for answer in answers:
        messages = [*messages, call.exchange(*messages, text=answer), user("go on")]
    return call


def write_log(path: Path, *calls: Call) -> Path:
    log = ExchangeLog(path)
    for call in calls:
        for line in call.lines:
            log.add(line, sent=True)
    log.write()
    log.close()
    return path


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The exchanges of a cassette, without its header."""
    first, *rest = path.read_text(encoding="utf-8").splitlines()
    assert f"{first}\n".encode() == header(CASSETTE)
    return [json.loads(line) for line in rest]
