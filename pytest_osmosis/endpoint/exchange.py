"""One request to the endpoint and its answer, without the HTTP around them: the path, the key, the body, the error."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_osmosis.endpoint.rollouts import PREFIX, EndpointRollout, OpenRollouts, OverError, is_key
from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest, Usage
from pytest_osmosis.models.json_text import read

CHAT, MODELS = "chat/completions", "models"
SERVED = "POST chat/completions, GET models"
NO_RETRY = {"x-should-retry": "false"}
"""The official clients obey it. The host has repeated the request already, as often as the config says."""


@dataclass(frozen=True, slots=True)
class EndpointAnswer:
    """An answer in full."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Refused(Exception):
    """A request that is not sent to the model, with the status and the text of its answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def admitted(rollouts: OpenRollouts, path: str, headers: Mapping[str, str]) -> tuple[EndpointRollout, str]:
    """Return the rollout that sends a request, and the rest of the path. Raises `Refused`.

    The rest has no version: clients of Anthropic add /v1 to their base_url, those of OpenAI do not.
    """
    name, _, rest = path.removeprefix(PREFIX).partition("/")
    if not path.startswith(PREFIX) or not rest:
        raise Refused(404, f"there is nothing at this address; use ctx.base_url, and below it {SERVED}")
    rollout = rollouts.named(name)
    if rollout is None:
        raise Refused(410, "its rollout is over: the request was not sent")
    if not is_key(_sent_key(headers), rollout.key):
        raise Refused(401, "the key of this rollout is missing or wrong: pass ctx.api_key to the client")
    while rest.startswith("v1/"):
        rest = rest.removeprefix("v1/")
    return rollout, rest


async def answered(rollout: EndpointRollout, method: str, rest: str, body: bytes) -> EndpointAnswer:
    """Return the answer to an admitted request. Raises `Refused`, and `ModelError` if the model does not answer."""
    match method, rest:
        case "POST", "chat/completions":
            return _json(_completion(await _sent(rollout, _chat_request(_object(body))), rollout))
        case "GET", "models":
            return _json({"object": "list", "data": [_model(rollout)]})
    raise Refused(404, f"{method} {rest[:80]} is not served here; served: {SERVED}")


def failed(error: Refused | ModelError) -> EndpointAnswer:
    """Return the answer for an error. The status of the model's server is kept, if a client can make sense of it."""
    status = error.status or 502
    kept = status if 400 <= status < 600 else 502
    kind = "server_error" if kept >= 500 else "invalid_request_error"
    return _json({"error": {"message": str(error), "type": kind, "param": None, "code": None}}, kept, NO_RETRY)


async def _sent(rollout: EndpointRollout, request: ChatRequest) -> ChatReply:
    try:
        reply = await rollout.send(request)
    except ModelError as error:
        rollout.on_failure(error)
        raise
    except OverError as error:
        raise Refused(410, f"{error}: the request was not sent") from None
    except (TypeError, ValueError) as error:
        raise Refused(400, str(error)) from None
    rollout.on_failure(None)
    return reply


def _sent_key(headers: Mapping[str, str]) -> str:
    return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ").strip()


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = read(body.decode("utf-8-sig"))
    except ValueError as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refused(400, f"the body must be a JSON object, got {type(value).__name__}")
    return value


def _chat_request(body: dict[str, Any]) -> ChatRequest:
    """Return the request in a body. Every key but messages, model, tools and seed is sampling."""
    given = {name: value for name, value in body.items() if value is not None and name != "model"}
    messages, tools, seed = given.pop("messages", None), given.pop("tools", []), given.pop("seed", None)
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise Refused(400, "messages must be a list of objects, each with a role")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise Refused(400, "tools must be a list of objects")
    if isinstance(seed, bool) or not isinstance(seed, int | None):
        raise Refused(400, "seed must be an integer")
    if given.pop("n", 1) != 1:
        raise Refused(400, "n must be 1: send another request for another answer")
    if given.pop("stream", False):
        raise Refused(400, "streaming is not supported yet")
    return ChatRequest(messages, tools, given, seed)


def _completion(reply: ChatReply, rollout: EndpointRollout) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{time.time_ns():x}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": reply.model or rollout.model,
        "choices": [{"index": 0, "message": reply.message, "logprobs": None, "finish_reason": reply.finish_reason}],
        **({"usage": _usage(reply.usage)} if reply.usage is not None else {}),
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }


def _model(rollout: EndpointRollout) -> dict[str, Any]:
    return {"id": rollout.model, "object": "model", "created": 0, "owned_by": "pytest-osmosis"}


def _json(value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> EndpointAnswer:
    body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    return EndpointAnswer(body, status, {"Content-Type": "application/json", **(headers or {})})
