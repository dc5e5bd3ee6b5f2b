"""`evaluate_rubric` and `@osmosis_rubric`: reward functions let a model judge an answer, as with both Osmosis SDKs.

- up to 0.2.17: `evaluate_rubric(rubric, solution_str, model_info, ...)` returns the score, or a dict with details
- since 0.2.18: `await evaluate_rubric(solution_str=..., rubric=..., model="openai/...", ...)` returns a `RubricResult`

In an eval the requests are retried, limited and counted like those of `[scoring] rubric`. Elsewhere they are just sent.
Functions with `@osmosis_rubric` are no tests of their own: each call costs money.
Source: osmosis_ai/rubric_eval.py of 0.2.17, osmosis_ai/eval/rubric/ of 0.3.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict, TypeVar, overload

from msgspec.structs import replace

from pytest_osmosis.addons.lab.decorator import RUBRIC_MARK, check_annotation, check_name, or_none, signature_of
from pytest_osmosis.errors import ConfigError, JudgeError, ModelError
from pytest_osmosis.judges.judge import Judge, Judgement, JudgeModel, Rubric, Submission, current_requests
from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.models.json_bodies import given
from pytest_osmosis.models.own_loop import OWN_LOOP
from pytest_osmosis.models.providers import LITELLM_PREFIXES, SERVICES
from pytest_osmosis.models.targets import resolve


class MissingAPIKeyError(RuntimeError):
    """The key of the judge's provider is neither passed nor set in the environment."""


class ProviderRequestError(RuntimeError):
    """The judge gave no score: its provider did not answer, or the answer holds none. `detail` says why."""

    def __init__(self, provider: str, model: str, detail: str) -> None:
        self.provider = provider
        self.model = model
        self.detail = detail.strip() or "It gave no reason."
        super().__init__(f"Provider '{provider}' request for model '{model}' failed. {self.detail}")


class ModelNotFoundError(ProviderRequestError):
    """The provider knows no model of that name."""


TIMEOUT_S = 60.0
WITHOUT_TEMPERATURE = (
    *("gpt-5", "gpt-6", "o1", "o3", "o4"),
    *("claude-opus-4-7", "claude-opus-4-8", "claude-opus-5", "claude-sonnet-5", "claude-haiku-5", "claude-fable"),
    "claude-mythos",
)
"""Beginnings of the names of models that refuse a temperature, after the provider's at a gateway (anthropic/...)."""
FAMILIES: Mapping[str, str] = {
    "gpt-": "openai", "o1-": "openai", "o3-": "openai", "o4-": "openai", "claude": "anthropic", "gemini": "gemini",
    "grok": "xai",
}  # fmt: skip
"""The providers of models that are named without one."""
ALIASES: Mapping[str, str] = {"google": "gemini"}


class ModelInfo(TypedDict, total=False):
    """The judge's model, as `evaluate_rubric` of SDK 0.2 takes it. `base_url` is ours: the address of a server."""

    provider: str
    model: str
    api_key: str | None
    api_key_env: str
    base_url: str
    score_min: float
    score_max: float
    system_prompt: str | None
    original_input: str | None
    timeout: float
    reasoning_effort: str | None


class RewardRubricRunResult(TypedDict):
    """The details that `evaluate_rubric` of SDK 0.2 returns. `raw` holds the judge's last answer."""

    score: float
    explanation: str
    raw: Any


@dataclass
class RubricResult:
    """The score of a judge, and its reason."""

    score: float
    explanation: str


@overload
def evaluate_rubric(
    rubric: str,
    solution_str: str,
    model_info: ModelInfo,
    *,
    ground_truth: str | None = None,
    original_input: str | None = None,
    metadata: dict[str, Any] | None = None,
    score_min: float | None = None,
    score_max: float | None = None,
    timeout: float | None = None,
    return_details: bool = False,
) -> float | RewardRubricRunResult: ...


@overload
def evaluate_rubric(
    *,
    solution_str: str,
    rubric: str,
    model: str,
    ground_truth: str | None = None,
    original_input: str | None = None,
    metadata: dict[str, Any] | None = None,
    score_min: float | None = None,
    score_max: float | None = None,
    api_key: str | None = None,
    base_url: str | None = None,
    timeout: float | None = None,
    system_prompt: str | None = None,
) -> Awaitable[RubricResult]: ...


def evaluate_rubric(
    rubric: Any = None,
    solution_str: Any = None,
    model_info: Any = None,
    *,
    model: Any = None,
    return_details: bool = False,
    api_key: str | None = None,
    base_url: str | None = None,
    system_prompt: str | None = None,
    **case: Any,
) -> Any:
    """Let a model judge `solution_str` by `rubric`. With `model_info` this blocks; with `model` it is awaited.

    The score is from `score_min` to `score_max` (0 and 1). `ground_truth`, `original_input` and `metadata` are
    shown to the judge. `timeout` bounds one request, in seconds. Raises `MissingAPIKeyError`, `ModelNotFoundError` for
    a model that the provider does not know, and `ProviderRequestError` if no score can be had.
    """
    unknown = case.keys() - {"ground_truth", "original_input", "metadata", "score_min", "score_max", "timeout"}
    if unknown:
        raise TypeError(f"evaluate_rubric: unexpected argument {', '.join(map(repr, sorted(unknown)))}")
    if model_info is not None and model is not None:
        raise TypeError("evaluate_rubric: pass model_info (and no await) or model (with await), not both")
    if model_info is None:
        own = {"api_key": api_key, "base_url": base_url, "system_prompt": system_prompt}
        return _result(rubric, solution_str, model, {**own, **case})
    provider, name = _text_in(model_info, "provider").lower(), _text_in(model_info, "model")
    own = {name: model_info.get(name) for name in ("api_key", "api_key_env", "base_url", "system_prompt")}
    judgement, raw = OWN_LOOP.run(_judged(rubric, solution_str, provider, name, {**model_info, **own, **given(case)}))
    if not return_details:
        return judgement.score
    return RewardRubricRunResult(score=judgement.score, explanation=judgement.reason, raw=raw)


async def _result(rubric: Any, solution_str: Any, model: Any, options: Mapping[str, Any]) -> RubricResult:
    """Return the result of the SDK since 0.2.18, whose mistakes are raised once it is awaited."""
    if not isinstance(model, str) or not model.strip():
        raise TypeError("'model' must be a non-empty string")
    provider, slash, name = model.strip().partition("/")
    if not slash:
        provider, name = next((each for start, each in FAMILIES.items() if model.lower().startswith(start)), ""), model
    if slash and options.get("base_url"):  # the name is sent as written
        provider, name = "", model
    judgement, _ = await _judged(rubric, solution_str, provider.lower(), name, given(options))
    return RubricResult(judgement.score, judgement.reason)


def _judged(
    rubric: Any, solution_str: Any, provider: str, name: str, options: Mapping[str, Any]
) -> Coroutine[Any, Any, tuple[Judgement, Mapping[str, Any]]]:
    """Check one call of `evaluate_rubric`, and return what asks for its judgement and the judge's last message."""
    provider = ALIASES.get(provider, provider)
    api_key = _api_key(provider, options)
    for argument, value in (("rubric", rubric), ("solution_str", solution_str)):
        if not isinstance(value, str) or not value.strip():
            raise TypeError(f"'{argument}' must be a non-empty string")
    low, high = float(options.get("score_min", 0.0)), float(options.get("score_max", 1.0))
    if high <= low:
        raise ValueError("'score_max' must be greater than 'score_min'")
    refuses = name.lower().rpartition("/")[2].startswith(WITHOUT_TEMPERATURE)
    sampling = {**({} if refuses else {"temperature": 0}), **given(options, ("reasoning_effort",))}
    truth, asked = options.get("ground_truth"), options.get("original_input")
    judge = Judge(Rubric(rubric, low, high, options.get("system_prompt") or ""), sampling=sampling)
    submission = Submission(
        solution_str,
        ground_truth=truth if isinstance(truth, str) else "",
        original_input=asked if isinstance(asked, str) else "",
        metadata=options.get("metadata") or {},
    )
    model = _judge_model(provider, name, api_key, options)

    async def answered() -> tuple[Judgement, Mapping[str, Any]]:
        last: dict[str, Any] = {}

        async def ask(request: ChatRequest) -> ChatReply:
            reply = await current_requests().send(model, request)
            last.update(reply.message)
            return reply

        try:
            return await judge.judge(submission, ask, run="evaluate_rubric"), last
        except (ModelError, JudgeError, ConfigError) as error:
            is_unknown = isinstance(error, ModelError) and error.status == 404
            # A ConfigError says that a library is missing.
            text = error.problems[0].text if isinstance(error, ConfigError) else str(error)
            raise (ModelNotFoundError if is_unknown else ProviderRequestError)(provider, name, text) from error

    return answered()


def _judge_model(provider: str, name: str, api_key: str | None, options: Mapping[str, Any]) -> JudgeModel:
    from pytest_osmosis.config.tables import ModelTable

    base_url = options.get("base_url") or None
    typed = f"{provider}/{name}" if provider else name
    sent = name if base_url is not None else typed
    try:
        target = resolve(sent, ModelTable(base_url=base_url), os.environ, where="evaluate_rubric")
    except ConfigError as error:
        raise ProviderRequestError(provider, name, error.problems[0].text) from None
    timeout = options.get("timeout") or TIMEOUT_S
    own = SERVICES[provider].base_url if provider in SERVICES and base_url is None else None
    moved = target.base_url if target.base_url != own else None
    key_variable = target.api_key_env if api_key is None else None
    return JudgeModel(typed, moved, replace(target, timeout_s=float(timeout), api_key_env=key_variable), api_key)


def _api_key(provider: str, options: Mapping[str, Any]) -> str | None:
    """Return the key that is passed, or that the environment holds. None if none is needed."""
    passed = options.get("api_key")
    if isinstance(passed, str) and passed.strip():
        return passed.strip()
    named, service = options.get("api_key_env"), SERVICES.get(provider)
    name = named.strip() if isinstance(named, str) else ""
    if not name:
        reads_its_own = service is None and provider in LITELLM_PREFIXES  # LiteLLM has variables for these
        if options.get("base_url") or provider in ("", "demo") or reads_its_own:
            return None
        name = f"{provider.upper()}_API_KEY" if service is None else service.api_key_env or ""
    value = os.environ.get(name, "").strip()
    if name and not value and current_requests().needs_keys:
        raise MissingAPIKeyError(
            f"Environment variable '{name}' is not set. Export it with your {provider} API key before calling "
            f'evaluate_rubric: export {name}="..."'
        )
    return value or None


def _text_in(model_info: Any, key: str) -> str:
    value = model_info.get(key) if isinstance(model_info, Mapping) else None
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f"'model_info' must include a '{key}' string")
    return value.strip()


RubricFunction = TypeVar("RubricFunction", bound=Callable[..., Any])


def osmosis_rubric(function: RubricFunction) -> RubricFunction:
    """Check the signature of a rubric function, sync or async, and return the function itself.

    A function whose first parameter is `solution_str` must have the signature
    `(solution_str: str, ground_truth: str | None, extra_info: dict)`, without defaults for the first two; more
    parameters may follow. Raises `TypeError` if it does not. Other signatures are not checked.
    """
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"osmosis_rubric: must decorate a function, got {type(function).__name__}")
    with contextlib.suppress(AttributeError, TypeError):  # objects without attributes of their own
        setattr(function, RUBRIC_MARK, True)
    parameters = signature_of(function)
    if parameters is None:
        return function
    solution, truth, extra = parameters
    check_annotation(function, solution, "First", _is_text, "str")
    if solution.default is not solution.empty:
        raise TypeError("First parameter 'solution_str' cannot have a default value")
    check_name(truth, "Second", "ground_truth")
    check_annotation(function, truth, "Second", partial(or_none, _is_text), "str or Optional[str]")
    if truth.default is not truth.empty:
        raise TypeError("Second parameter 'ground_truth' cannot have a default value")
    check_name(extra, "Third", "extra_info")
    return function


def _is_text(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, str)
