"""Answers of servers that many people use, in the shapes that they have as far as we know.

Each answer has the outcome that it must have: the kind of `ModelError` (boundary, retryable, systemic, status) and a
part of its message, or the reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tests import servers
from tests.servers import Behaviour

Kind = tuple[str, bool, str, int]

MODEL_400: Kind = ("model", False, "no", 400)
DENIED: Kind = ("provider", False, "always", 401)
MISSING: Kind = ("provider", False, "until_success", 404)
REFUSED_400: Kind = ("provider", False, "always", 400)
BROKEN: Kind = ("provider", True, "no", 500)
UPSTREAM_502: Kind = ("provider", True, "no", 502)
BUSY: Kind = ("provider", True, "no", 429)
LOADING: Kind = ("provider", True, "no", 503)


class Failing(NamedTuple):
    """An answer that is an error, its kind, and a part of the message."""

    answer: Behaviour
    kind: Kind
    said: str


class Replying(NamedTuple):
    """An answer that is a reply: its content, output tokens and reason to finish."""

    answer: Behaviour
    content: str
    output_tokens: int | None = None
    finish_reason: str | None = "stop"


def error(status: int, message: str, /, **fields: Any) -> Behaviour:
    return servers.data({"error": {"message": message, **fields}}, status=status)


def chat(
    message: Mapping[str, Any], usage: object, choice: Mapping[str, Any] | None = None, **fields: Any
) -> Behaviour:
    whole = servers.completion({"role": "assistant", **message}, usage=usage, **fields)
    whole["choices"][0].update(choice or {})
    return servers.data(whole)


def tokens(prompt: int, completion: int, total: int | None = None, **details: Any) -> dict[str, Any]:
    total = prompt + completion if total is None else total
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total, **details}


def failing(kind: Kind, message: str, said: str = "", /, **fields: Any) -> Failing:
    """An error in the shape of OpenAI, with the status of its kind; by default all of its message is shown."""
    return Failing(error(kind[3], message, **fields), kind, said or message.rstrip("."))


def replying(n: int, message: Mapping[str, Any], choice: Mapping[str, Any] | None = None, **fields: Any) -> Replying:
    """A reply of "42" in `n` output tokens, in the shape of OpenAI with further fields."""
    return Replying(chat({"content": "42", **message}, tokens(9, n), choice, **fields), "42", n)


def listed(kind: Kind, message: str, name: str) -> Failing:
    """An error in the shape of Gemini."""
    value = [{"error": {"code": kind[3], "message": message, "status": name}}]
    return Failing(servers.data(value, status=kind[3]), kind, message.rstrip("."))


def text(kind: Kind, said: str) -> Failing:
    """An error as plain text."""
    return Failing(servers.body(said, status=kind[3], content_type="text/plain"), kind, said)


NO_MODEL = {"object": "error", "message": "The model `x` does not exist.", "type": "NotFoundError", "code": 404}
LATE = '\n         \n\n   {"error":{"code":504,"message":"timed out"}}'
FAILED = {"code": 502, "message": "Upstream error from X: reset"}
FAILED_UPSTREAM = {"error": {"message": "Provider returned error", "code": 502, "metadata": {"provider_name": "X"}}}
TOO_MANY = {"error": {"code": "429", "message": "exceeded token rate limit"}}
FLAGGED = {"reasons": ["violence"], "flagged_input": "how to"}
FILTERED = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
FILTER = {"code": "content_filter", "status": 400, "innererror": {"code": "ResponsibleAIPolicyViolation"}}
NO_SUBSCRIPTION = "Access denied due to invalid subscription key or wrong API endpoint."
NO_NAME = "/chat/completions: Invalid model name passed in model=x."
BUDGET = "Budget has been exceeded! Current cost: 10.2, Max budget: 10.0"
LITELLM_BUSY = "litellm.RateLimitError: RateLimitError: OpenAIException - slow down"
LITELLM_LATE = "litellm.Timeout: Connection timed out. Timeout passed=1.0"
VLLM_LONG = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."
LLAMA_LONG = "the request exceeds the available context size, try increasing it"
WAITED = (
    '\n         \n{"choices":[{"message":{"role":"assistant","content":"42"},"finish_reason":"stop",'
    '"native_finish_reason":"STOP","error":null}]}'
)
UNSAID: Mapping[str, Any] = {"refusal": None, "tool_calls": [], "function_call": None}

FAILING: Mapping[str, Mapping[str, Failing]] = {
    "vLLM": {
        "unknown model": Failing(servers.data(NO_MODEL, status=404), MISSING, "The model `x` does not exist."),
        "long prompt": failing(MODEL_400, VLLM_LONG, type="BadRequestError", param=None, code=400),
        "wrong key": Failing(servers.data({"error": "Unauthorized"}, status=401), DENIED, "Unauthorized"),
        "dead engine": failing(
            BROKEN, "EngineCore encountered an issue. See stack trace for the root cause.", type="InternalServerError"
        ),
    },
    "llama.cpp": {
        "loading": failing(LOADING, "Loading model", type="unavailable_error", code=503),
        "wrong key": failing(DENIED, "Invalid API Key", type="authentication_error", code=401),
        "long prompt": failing(
            MODEL_400, LLAMA_LONG, type="exceed_context_size_error", code=400, n_prompt_tokens=5000, n_ctx=4096
        ),
        "Python server, null content": failing(
            BROKEN, "[{'type': 'missing', 'loc': ('body', 'messages')}]", "'missing'", type="internal_server_error"
        ),
    },
    "Ollama": {
        "unknown model": failing(
            MISSING, 'model "qwen9" not found, try pulling it first', type="api_error", param=None, code=None
        ),
        "no such path": text(MISSING, "404 page not found"),
        "queue full": failing(
            LOADING, "server busy, please try again. maximum pending requests exceeded", type="api_error"
        ),
        "no tools": failing(MODEL_400, "registry.ollama.ai/library/m does not support tools", type="api_error"),
        "runner died": failing(BROKEN, "llama runner process has terminated: signal: killed", type="api_error"),
    },
    "LiteLLM proxy": {
        "wrong key without a database": failing(
            REFUSED_400, "No connected db.", type="no_db_connection", param=None, code="400"
        ),
        "no key": text(BROKEN, "Internal Server Error"),
        "wrong key with a database": failing(
            DENIED, "Authentication Error, Invalid proxy server token passed.", type="token_not_found_in_db", code="401"
        ),
        "unknown model": failing(MODEL_400, NO_NAME, type="invalid_request_error", code="400"),
        "budget": failing(REFUSED_400, BUDGET, type="budget_exceeded", code="400"),
        "upstream busy": failing(BUSY, LITELLM_BUSY, "slow down", type="throttling_error", code="429"),
        "upstream timeout": failing(
            ("provider", True, "no", 408), LITELLM_LATE, "Connection timed out", type=None, code="408"
        ),
    },
    "OpenRouter": {
        "wrong key": failing(DENIED, "User not found.", code=401),
        "no credit": failing(("provider", False, "always", 402), "Insufficient credits", code=402),
        "upstream fails, in a 200": Failing(servers.data(FAILED_UPSTREAM), UPSTREAM_502, "Provider returned error"),
        "upstream fails in the middle": Failing(
            chat({"content": "The ans"}, tokens(5, 3), {"finish_reason": "error", "error": FAILED}),
            UPSTREAM_502,
            "Upstream error from X",
        ),
        "upstream busy": failing(BUSY, "Provider returned error", code=429, metadata={"raw": "rate-limited upstream"}),
        "waits, then fails": Failing(servers.body(LATE), ("provider", True, "no", 504), "timed out"),
        "unknown model": failing(MODEL_400, "x/y is not a valid model ID", code=400),
        "moderation": failing(("model", False, "no", 403), "Input was flagged", code=403, metadata=FLAGGED),
    },
    "Azure": {
        "wrong key": failing(DENIED, NO_SUBSCRIPTION, "invalid subscription", code="401"),
        "unknown deployment": failing(
            MISSING, "The API deployment for this resource does not exist.", code="DeploymentNotFound"
        ),
        "wrong path": failing(MISSING, "Resource not found", code="404"),
        "busy": Failing(servers.data(TOO_MANY, status=429, retry_after="7"), BUSY, "exceeded token rate limit"),
        "filtered prompt": failing(MODEL_400, FILTERED, **FILTER),
    },
    "Gemini": {
        "wrong key": listed(REFUSED_400, "API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT"),
        "busy": listed(BUSY, "Resource has been exhausted", "RESOURCE_EXHAUSTED"),
        "overloaded": listed(LOADING, "The model is overloaded.", "UNAVAILABLE"),
    },
}

REPLYING: Mapping[str, Mapping[str, Replying]] = {
    "vLLM": {
        "reasoning": Replying(
            chat(
                {"content": "42", "reasoning_content": "6 * 7", **UNSAID},
                tokens(9, 12, prompt_tokens_details=None),
                {"logprobs": None, "stop_reason": None},
                kv_transfer_params=None,
            ),
            "42",
            12,
        )
    },
    "llama.cpp": {"timings": replying(2, {}, timings={"prompt_ms": 1.5}, system_fingerprint="b1-abc")},
    "Ollama": {"plain": replying(2, {}, system_fingerprint="fp_ollama")},
    "LiteLLM proxy": {"extra fields": replying(20, {"provider_specific_fields": {"refusal": None}, "annotations": []})},
    "OpenRouter": {
        "waits first": Replying(servers.body(WAITED), "42"),
        "cost": Replying(chat({"content": "42", "reasoning": None}, tokens(9, 2, cost=0.01), provider="X"), "42", 2),
    },
    "Azure": {
        "filter results": replying(
            2,
            {"refusal": None},
            {"content_filter_results": {"hate": {"filtered": False, "severity": "safe"}}},
            prompt_filter_results=[{"prompt_index": 0, "content_filter_results": {}}],
        ),
        "filtered answer": Replying(
            chat({}, tokens(9, 2), {"finish_reason": "content_filter"}), "", 2, "content_filter"
        ),
    },
    "xAI": {
        "reasoning outside completion_tokens": Replying(
            chat({"content": "42"}, tokens(10, 5, 40, completion_tokens_details={"reasoning_tokens": 25})), "42", 30
        )
    },
}
