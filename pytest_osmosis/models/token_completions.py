"""vLLM's chat completions by token ids, which continue a conversation from exactly the tokens of its last answer.

The first request of a conversation is an ordinary one that asks for token ids. Each further one sends the ids of the
last turn of its run, and those of the messages since then, to /chat/completions/tokens. The server's /tokenize makes
the latter: from a made-up answer followed by the messages, without the part of that answer. Where this cannot be done,
as after an answer that was cut off, or with images, the request is an ordinary one.

Source: the behaviour of verifiers 0.1.14's client of this name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest, Message
from pytest_osmosis.models.completions import read_reply, request_body
from pytest_osmosis.models.connections import LightModel
from pytest_osmosis.models.json_bodies import encoded, first_choice, json_object
from pytest_osmosis.models.targets import ModelTarget

TOKENS_PATH, TOKENIZE_PATH = "/tokens", "/tokenize"
ASKED: Mapping[str, Any] = {"logprobs": True, "return_token_ids": True}
RUNS_A_CONNECTION = 2
"""The runs that are remembered, for each that may be in flight."""
PICTURES = ("image_url", "input_audio")


class Turn(NamedTuple):
    """The messages up to an answer, which is the last of them, and the ids of all of their tokens."""

    messages: Sequence[Mapping[str, Any]]
    ids: Sequence[int]


class TokenModel(LightModel):
    def __init__(self, target: ModelTarget, api_key: str | None, *, max_in_flight: int) -> None:
        super().__init__(target, api_key, max_in_flight=max_in_flight)
        self._tokenize_url = f"{self._root.removesuffix('/v1')}{TOKENIZE_PATH}"
        self._turns: OrderedDict[str, Turn] = OrderedDict()
        self._most_runs = RUNS_A_CONNECTION * max_in_flight

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Send one request. Raises `TypeError` or `ValueError` for messages that are not JSON."""
        body = {**request_body(request, self.target), **ASKED}
        ids = await self._prompt_ids(request, body)
        if ids is None:
            status, text = await self._send(encoded(body), self._headers_of(request))
        else:
            whole = encoded({**body, "tokens": ids})
            status, text = await self._send(whole, self._headers_of(request), f"{self._url}{TOKENS_PATH}")
        reply = read_reply(status, text, self.target, self._failures)
        self._remember(request, reply, json_object(status, text, self._failures))
        return reply

    async def _prompt_ids(self, request: ChatRequest, body: Mapping[str, Any]) -> list[int] | None:
        """Return the ids of a whole prompt, None if it does not follow the last turn of its run."""
        messages = _comparable(body["messages"])
        turn = self._turns.get(request.run)
        if turn is None or messages[: len(turn.messages)] != turn.messages or any(map(_has_pictures, request.messages)):
            return None
        added = list(body["messages"][len(turn.messages) :])
        if not _answers_a_turn(added):
            return None
        with suppress(ModelError, ValueError, KeyError, TypeError):
            return [*turn.ids, *await self._ids_of(added, turn.ids[-1], body, request)]
        return None

    async def _ids_of(
        self, added: Sequence[Message], last: int, body: Mapping[str, Any], request: ChatRequest
    ) -> list[int]:
        """Return the ids of messages that follow an answer, whose last token is `last`. Raises `ValueError`."""
        answer = _made_up_answer(added)
        fields = {"model": body["model"], "tools": body.get("tools")}
        whole = await self._tokenized({**fields, "messages": [answer, *added]}, request)
        alone = await self._tokenized({**fields, "messages": [answer], "add_generation_prompt": False}, request)
        if whole[: len(alone)] != alone:
            raise ValueError("the template writes an answer differently if messages follow it")
        end = max((at for at, token in enumerate(alone) if token == last), default=len(alone) - 1)
        ids = whole[end + 1 :]  # with what the template adds after the end of an answer
        return ids[1:] if ids[:1] == [last] else ids

    async def _tokenized(self, body: Mapping[str, Any], request: ChatRequest) -> list[int]:
        status, text = await self._send(encoded(body), self._headers_of(request), self._tokenize_url)
        tokens = json_object(status, text, self._failures)["tokens"]
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise ValueError("tokens must be a list of integers")
        return tokens

    def _remember(self, request: ChatRequest, reply: ChatReply, answer: Mapping[str, Any]) -> None:
        """Remember a turn whose token ids the server sent, unless the answer was cut off: it then has no end."""
        choice = first_choice(answer["choices"])
        prompt, own = answer.get("prompt_token_ids") or choice.get("prompt_token_ids"), choice.get("token_ids")
        if not request.run or not prompt or not own or reply.finish_reason == "length":
            return
        messages = _comparable([*request.messages, reply.message])
        self._turns[request.run] = Turn(messages, [*prompt, *own])
        self._turns.move_to_end(request.run)
        while len(self._turns) > self._most_runs:
            self._turns.popitem(last=False)


def _comparable(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return messages as they are compared: agents drop fields of an answer, and write missing content as ""."""
    return [
        {
            **{name: message.get(name) or None for name in ("role", "tool_call_id", "content")},
            "tool_calls": [_comparable_call(call) for call in message.get("tool_calls") or ()],
        }
        for message in messages
    ]


def _comparable_call(call: Mapping[str, Any]) -> object:
    function = call.get("function") or {}
    return call.get("id"), function.get("name"), function.get("arguments")


def _has_pictures(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return any(isinstance(part, Mapping) and part.get("type") in PICTURES for part in parts)


def _answers_a_turn(added: Sequence[Mapping[str, Any]]) -> bool:
    """Return True for results of tools, and at most one message of the user after them."""
    roles = [message.get("role") for message in added]
    return bool(roles) and all(role == "tool" for role in roles[:-1]) and roles[-1] in ("tool", "user")


def _made_up_answer(added: Sequence[Mapping[str, Any]]) -> Message:
    """Return an answer that the messages can follow: with the calls whose results they are."""
    ids = [message["tool_call_id"] for message in added if message.get("tool_call_id")]
    if not ids:
        return {"role": "assistant", "content": "x"}
    function = {"name": "f", "arguments": "{}"}
    return {"role": "assistant", "tool_calls": [{"id": each, "type": "function", "function": function} for each in ids]}
