"""One request to a model: `create` makes its client, `probe` tries it. Importing this loads no client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from pytest_osmosis.errors import ConfigError, ModelError
from pytest_osmosis.models.base import ChatRequest, Model
from pytest_osmosis.models.targets import ModelTarget, missing_extra, missing_key

SECOND_TRY_AFTER_S = 0.5


def create(target: ModelTarget, environ: Mapping[str, str], max_in_flight: int) -> Model:
    """Return a client for `target` with `max_in_flight` connections. Its key is in `environ`.

    Raises `ConfigError` if the key's variable is unset or empty, or if LiteLLM is needed but not installed.
    """
    if target.replicas:
        from pytest_osmosis.models.replicas import ReplicatedModel

        clients = [create(each, environ, max_in_flight) for each in target.replicas]
        return ReplicatedModel(target, clients)
    problems = [missing_key(target, environ, where="environment"), missing_extra(target, where="environment")]
    if any(problems):
        raise ConfigError(filter(None, problems))
    api_key = None if target.api_key_env is None else environ[target.api_key_env].strip()
    match target.client:
        case "embedded":
            from pytest_osmosis.models.embedded import EmbeddedModel

            return EmbeddedModel(scripted=target.model == "script")
        case "openai":
            from pytest_osmosis.models.official import OpenAIModel

            return _by_api(target, partial(OpenAIModel, target, api_key, max_in_flight=max_in_flight))
        case "anthropic":
            from pytest_osmosis.models.official import AnthropicModel

            return AnthropicModel(target, api_key, max_in_flight=max_in_flight)
        case "light":
            from pytest_osmosis.models.connections import LightModel

            return _by_api(target, partial(LightModel, target, api_key, max_in_flight=max_in_flight))
        case "litellm":
            from pytest_osmosis.models.litellm import LiteLLMModel

            return LiteLLMModel(target, api_key)
        case "completions":
            from pytest_osmosis.models.completions import TextCompletions
            from pytest_osmosis.models.connections import LightModel

            return LightModel(target, api_key, max_in_flight=max_in_flight, api=TextCompletions())
        case "tokens":
            from pytest_osmosis.models.token_completions import TokenModel

            return TokenModel(target, api_key, max_in_flight=max_in_flight)


def _by_api(target: ModelTarget, client: Callable[..., Model]) -> Model:
    """Return the client for the API of a target: `client` itself speaks chat completions, or the `api` that it gets."""
    if target.api == "chat_completions":
        return client()
    from pytest_osmosis.models import responses

    chat = client() if target.api == "auto" else None
    return responses.ResponsesModel(target.api, client(api=responses), chat)


async def probe(model: Model, *, timeout_s: float = 30.0) -> ModelError | None:
    """Send one tiny request. Return its error, or None if it succeeded or may succeed later.

    Failures that may pass (rate limits, a slow answer) count as success, unless the server cannot be reached. That gets
    a second try, because the server may be starting. An error that is not `systemic` may be one of this request alone.
    Each replica of a model gets a request.
    """
    import asyncio

    from pytest_osmosis.models.replicas import ReplicatedModel

    if isinstance(model, ReplicatedModel):
        return await model.probe(lambda replica: probe(replica, timeout_s=timeout_s))
    error = await _error(model, timeout_s)
    if error is not None and error.retryable and error.systemic != "no":
        await asyncio.sleep(SECOND_TRY_AFTER_S)
        error = await _error(model, timeout_s)
    if error is not None and error.status == 400 and "max_completion_tokens" in str(error):
        error = await _error(model, timeout_s, bound="max_completion_tokens")  # a server of its own before OpenAI
    return None if error is None or (error.retryable and error.systemic == "no") else error


async def _error(model: Model, timeout_s: float, *, bound: str = "max_tokens") -> ModelError | None:
    from pytest_osmosis.models.retry import send

    request = ChatRequest(messages=[{"role": "user", "content": "hi"}], sampling={bound: 16}, run="probe")
    try:
        await send(model, request, timeout_s)
    except ModelError as error:
        return error
    return None
