"""One request to the endpoint and its answer: the path, the key, the body, the error."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from time import time

from aiohttp.web import BaseRequest, Response

from pytest_osmosis.endpoint.rollouts import HEADER, PREFIX, EndpointRollout, OpenRollouts, OverError, is_key
from pytest_osmosis.errors import BoundError, ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.models.json_bodies import encoded
from pytest_osmosis.models.served import completions, messages, responses
from pytest_osmosis.models.served.errors import ApiError, api_error
from pytest_osmosis.models.served.shapes import JSON, AnswerLabel, ApiShape, read_body, write_answer

SHAPES: Mapping[str, ApiShape] = {"chat/completions": completions, "messages": messages, "responses": responses}
SERVED = "POST chat/completions, POST messages, POST responses, GET models"
MAX_SHOWN = 80
NOT_SERVED: Mapping[str, str] = {
    "completions": "completions of a prompt are not served; let the agent use chat completions",
    "messages/count_tokens": "tokens cannot be counted in advance here",
    "messages/batches": "batches are not served; send single requests",
    "embeddings": "the endpoint serves the eval's chat model, and no embeddings; give the agent's client for "
    "embeddings a base_url of its own",
}
UNATTRIBUTED = (
    "{} rollouts are in flight, and nothing says which of them sends this request: its thread or its HTTP client "
    "has lost the rollout's context. Start threads by asyncio.to_thread or contextvars.copy_context().run, or create "
    "the client in the rollout with base_url=ctx.base_url and api_key=ctx.api_key, or set [evaluation] batch_size = 1"
)
NO_RETRY = {"x-should-retry": "false"}
"""The official clients obey it. The host has repeated the request already, as often as the config says."""


def admitted(rollouts: OpenRollouts, request: BaseRequest) -> EndpointRollout:
    """Return the rollout that sends a request. Raises `ApiError`."""
    name = request.path.removeprefix(PREFIX).partition("/")[0] if request.path.startswith(PREFIX) else ""
    if not name:
        return _attributed(rollouts, request)
    rollout = rollouts.named(name)
    if rollout is None:
        raise _over()
    if not is_key(_key(request), rollout.key):
        raise ApiError(401, "the key is missing or wrong: pass ctx.api_key to the client", "invalid_api_key")
    return rollout


def _attributed(rollouts: OpenRollouts, request: BaseRequest) -> EndpointRollout:
    """Return the rollout that sends a request to the shared address. Raises `ApiError`."""
    if rollouts.shared_key is None:
        raise ApiError(404, f"there is nothing at this address; use ctx.base_url, and below it {SERVED}")
    if not is_key(_key(request), rollouts.shared_key):
        text = "the key is missing or wrong: create the client without a key, so that it reads that of the environment"
        raise ApiError(401, text, "invalid_api_key")
    name = request.headers.get(HEADER)
    rollout = rollouts.only() if name is None else rollouts.named(name)
    if rollout is not None:
        return rollout
    if name is not None:
        raise _over()
    if not len(rollouts):
        raise ApiError(400, "no rollout is in flight, and only rollouts can ask the eval's model here")
    raise ApiError(400, UNATTRIBUTED.format(len(rollouts)))


async def answered(rollout: EndpointRollout, request: BaseRequest, body: bytes, *, in_standby: bool) -> Response:
    """Return the answer to an admitted request. Raises `ApiError`, and `ModelError` if the model does not answer."""
    shape = SHAPES.get(_below(request))
    if shape is not None and request.method == "POST":
        served = shape.read_request(read_body(body))
        reply = await _reply(rollout, served.chat, in_standby)
        label = AnswerLabel(secrets.token_hex(12), int(time()), rollout.model)
        answer = write_answer(shape, served, reply, label)
        return Response(body=answer.body, headers={"Content-Type": answer.content_type})
    if request.method in ("GET", "HEAD") and _below(request).partition("/")[0] == "models":
        return _models(rollout, request)
    raise _not_served(request)


def failed(error: ApiError | ModelError, request: BaseRequest) -> Response:
    """Return the answer for an error, in the shape of the API that was asked."""
    shape = SHAPES.get(_below(request), messages if _is_anthropic(request) else completions)
    problem = api_error(error)
    headers = {"Content-Type": JSON, **NO_RETRY, **problem.headers}
    return Response(body=encoded(shape.write_error(problem)), status=problem.status, headers=headers)


async def _reply(rollout: EndpointRollout, request: ChatRequest, in_standby: bool) -> ChatReply:
    try:
        return await rollout.send(request, in_standby=in_standby)
    except OverError:
        raise _over() from None
    except BoundError as error:
        raise ApiError(400, str(error)) from None
    except (TypeError, ValueError) as error:  # the model's API cannot represent the messages
        raise ApiError(400, str(error)) from None


def _below(request: BaseRequest) -> str:
    """Return the path below the URL of the rollout, without a version.

    Clients of Anthropic add /v1 to their base_url, and those of OpenAI do not.
    """
    path = request.path
    rest = path.removeprefix(PREFIX).partition("/")[2] if path.startswith(PREFIX) else path[1:]
    while rest.startswith("v1/"):
        rest = rest.removeprefix("v1/")
    return rest.rstrip("/")


def _key(request: BaseRequest) -> str:
    authorization = request.headers.get("Authorization") or ""
    return request.headers.get("X-Api-Key") or authorization.removeprefix("Bearer ").strip()


def _over() -> ApiError:
    return ApiError(410, "the rollout of this URL is over: the request was not sent")


def _not_served(request: BaseRequest) -> ApiError:
    below = _below(request)
    why = NOT_SERVED.get(below) or NOT_SERVED.get(below.partition("/")[0])
    if below in SHAPES:
        return ApiError(405, f"{below} takes POST, got {request.method[:MAX_SHOWN]}")
    shown = f"{request.method[:MAX_SHOWN]} {below[:MAX_SHOWN]}"
    return ApiError(404, f"{shown}: {why or 'not served'} (served: {SERVED})")


def _models(rollout: EndpointRollout, request: BaseRequest) -> Response:
    """Return the list of models, or the one of any name: each name is answered by the eval's model."""
    named = _below(request).partition("/")[2]
    listed = [_model(named or rollout.model, request)]
    value = listed[0] if named else {"object": "list", "data": listed, "has_more": False}
    return Response(body=encoded(value), headers={"Content-Type": JSON})


def _model(name: str, request: BaseRequest) -> dict[str, object]:
    if _is_anthropic(request):
        return {"id": name, "type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
    return {"id": name, "object": "model", "created": 0, "owned_by": "pytest-osmosis"}


def _is_anthropic(request: BaseRequest) -> bool:
    return "anthropic-version" in request.headers or _below(request).startswith("messages")
