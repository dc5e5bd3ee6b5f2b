"""OpenAI's older API, /completions, for base models: the conversation is sent as one text, and the answer is text.

The prompt is the text of the messages, joined by blank lines, without their roles. Tools and images cannot be sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_osmosis.models.base import ChatReply, ChatRequest, Message
from pytest_osmosis.models.completions import usage_of
from pytest_osmosis.models.error_bodies import error_in
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.json_bodies import check_size, encoded, first_choice, json_object, label, shape
from pytest_osmosis.models.light import LightModel
from pytest_osmosis.models.targets import ModelTarget

PATH = "/completions"
API = 'the API "openai_completions"'


class TextModel(LightModel):
    """A `Model` over HTTP, for one event loop. With `api_key` None no key is sent."""

    def __init__(self, target: ModelTarget, api_key: str | None, *, max_in_flight: int) -> None:
        super().__init__(target, api_key, max_in_flight=max_in_flight, path=PATH)

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Send one request. Raises `TypeError` or `ValueError` for messages or tools that the API cannot represent."""
        status, text = await self.post(self.url, write_request(request, self.target), request.headers)
        return read_reply(status, text, self.target, self.failures)


def write_request(request: ChatRequest, target: ModelTarget) -> bytes:
    """Return the body of a request. Raises `TypeError` or `ValueError` for what the API cannot represent."""
    if request.tools:
        raise ValueError(f"{API} takes no tools; ask a server with chat completions, or offer no tools")
    body: dict[str, Any] = {"model": target.model, "prompt": prompt_of(request.messages)}
    if request.seed is not None and target.seed_key is not None:
        body[target.seed_key] = request.seed
    return encoded({**body, **request.sampling})


def prompt_of(messages: Sequence[Message]) -> str:
    r"""Return messages as one text.

    >>> prompt_of([{"role": "system", "content": "Add."}, {"role": "user", "content": "2 + 2 ="}])
    'Add.\n\n2 + 2 ='
    """
    return "\n\n".join(_text(message.get("content")) for message in messages)


def _text(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise TypeError(f"the content of a message must be text or a list of parts, got {shape(content)}")
    return " ".join(_part(part) for part in content).strip()


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise ValueError(f"{API} takes text only, and a message holds another part, such as an image")


def read_reply(status: int, text: str, target: ModelTarget, failures: Failures) -> ChatReply:
    """Return the reply in the body of a 2xx answer. Raises `ModelError`, as `completions.read_reply` does."""
    body = json_object(status, text, failures)
    choices = body.get("choices")
    if choices is None or choices == []:
        raise failures.no_answer(status, "no choices", body)
    choice = first_choice(choices) if isinstance(choices, list) else None
    if not isinstance(choice, dict):
        raise failures.misshapen(status, f"choices = {shape(choices)}", body)
    answer = choice.get("text")
    if answer is None:
        raise failures.no_answer(status, "a choice without text", choice, body)
    if not isinstance(answer, str):
        raise failures.misshapen(status, f"text = {shape(answer)}", choice, body)
    check_size(status, answer, target, failures)
    if error_in(choice) is not None or (error_in(body) is not None and not answer):
        raise failures.no_answer(status, "an answer that the server broke off", choice, body)
    if choice.get("finish_reason") == "error":
        raise failures.broken_off(status)
    return ChatReply(
        message={"role": "assistant", "content": answer},
        finish_reason=label(choice.get("finish_reason")),
        usage=usage_of(body.get("usage")),
        model=label(body.get("model")),
    )
