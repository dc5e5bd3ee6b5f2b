"""Exchange logs as hosts write them, made of conversations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from pytest_osmosis.cassettes.exchange import (
    CASSETTE,
    ROLLOUT,
    Continuations,
    Fingerprint,
    header,
    reply_to_json,
    stored_request,
)
from pytest_osmosis.cassettes.writer import ExchangeLog
from pytest_osmosis.models.base import ChatReply, ChatRequest, Message, Usage
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.safe import dumps

_CALLS = count()


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def reply(text: str) -> ChatReply:
    return ChatReply(assistant(text), "stop", Usage(7, 3), "served")


class Call:
    """The requests of one asker, whose events are `lines`."""

    def __init__(self, run: RunId, *, asker: str = ROLLOUT, attempt: int = 1, model: str = "m") -> None:
        self.lines: list[bytes] = []
        self._run = run
        self._asker = asker
        self._attempt = attempt
        self._model = model
        self._call = f"c{next(_CALLS)}"
        self._asked = 0
        self._ended = 0
        self._equal = Counter[str]()
        self._continuations = Continuations()

    def asks(self, *messages: Message, **fields: Any) -> Asked:
        """Send a request, which is in flight until it is `answered`."""
        self._asked += 1
        body = stored_request(ChatRequest(messages, **fields), self._model, dumps)
        fingerprint = Fingerprint.of(body)
        return Asked(self, body, self._continuations.shortened(body, fingerprint), self._asked, self._ended)

    def exchange(self, *messages: Message, text: str = "42", **fields: Any) -> Message:
        """Send a request and have it answered; return the answer's message."""
        return self.asks(*messages, **fields).answered(reply(text))

    def write(self, asked: Asked, answer: Mapping[str, Any]) -> None:
        fingerprint = Fingerprint.of(asked.body)
        self._ended += 1
        self._equal[fingerprint.digest] += 1
        at = {**self._run.to_json(), "attempt": self._attempt, "asker": self._asker}
        order = {"call": self._call, "turn": asked.turn, "after": asked.after, "nth": self._equal[fingerprint.digest]}
        sent = {"digest": fingerprint.digest, "request": asked.shortened}
        event = {"ev": "exchange", **at, **order, **sent, **answer}
        self.lines.append(dumps(event).encode() + b"\n")
        self._continuations.add(asked.turn, fingerprint, answer["reply"]["message"] if "reply" in answer else None)


class Asked:
    """A request in flight."""

    def __init__(self, call: Call, body: dict[str, Any], shortened: dict[str, Any], turn: int, after: int) -> None:
        self.body = body
        self.shortened = shortened
        self.turn = turn
        self.after = after
        self._call = call

    def answered(self, answer: ChatReply) -> Message:
        self._call.write(self, {"reply": reply_to_json(answer)})
        return answer.message

    def refused(self, message: str) -> None:
        self._call.write(self, {"error": {"message": message, "status": 400}})


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
