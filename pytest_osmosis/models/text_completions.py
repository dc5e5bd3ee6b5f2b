"""OpenAI's older API, /completions, for base models: the conversation is sent as one text, and the answer is text.

The prompt is the text of the messages, joined by blank lines, without their roles. Tools and images cannot be sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_osmosis.models.base import ChatReply, ChatRequest, Message
from pytest_osmosis.models.completions import reply_in
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.json_bodies import encoded, shape
from pytest_osmosis.models.targets import ModelTarget

PATH = "/completions"
API = 'the API "openai_completions"'


def write_request(request: ChatRequest, target: ModelTarget) -> bytes:
    """Return the body of a request. Raises `TypeError` or `ValueError` for what the API cannot represent."""
    if request.tools:
        raise ValueError(f"{API} takes no tools; ask a server with chat completions, or offer no tools")
    body = {"model": target.model, "prompt": prompt_of(request.messages)}
    return encoded({**body, **target.seed_field(request.seed), **request.sampling})


def prompt_of(messages: Sequence[Message]) -> str:
    r"""Return messages as one text.

    >>> prompt_of([{"role": "system", "content": "Add."}, {"role": "user", "content": "2 + 2 ="}])
    'Add.\n\n2 + 2 ='
    """
    return "\n\n".join(_text(message.get("content")) for message in messages)


def _text(content: object) -> str:
    if isinstance(content, str | None):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{API} takes text only, and a message holds another part, such as an image")
    return " ".join(map(str, texts)).strip()


def read_reply(status: int, text: str, target: ModelTarget, failures: Failures) -> ChatReply:
    """Return the reply in the body of a 2xx answer. Raises `ModelError`, as `completions.read_reply` does."""
    return reply_in(status, text, target, failures, "text", _fault, _message)


def _fault(answer: object) -> str | None:
    return None if isinstance(answer, str) else f"text = {shape(answer)}"


def _message(answer: str) -> Message:
    return {"role": "assistant", "content": answer}
