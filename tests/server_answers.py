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


FAILING: Mapping[str, Mapping[str, Failing]] = {
    "vLLM": {
        "unknown model": Failing(
            servers.data(
                {
                    "object": "error",
                    "message": "The model `x` does not exist.",
                    "type": "NotFoundError",
                    "param": None,
                    "code": 404,
                },
                status=404,
            ),
            MISSING,
            "The model `x` does not exist.",
        ),
        "long prompt": Failing(
            error(
                400,
                "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
                type="BadRequestError",
                param=None,
                code=400,
            ),
            MODEL_400,
            "maximum context length is 4096 tokens",
        ),
        "wrong key": Failing(servers.data({"error": "Unauthorized"}, status=401), DENIED, "Unauthorized"),
        "dead engine": Failing(
            error(
                500, "EngineCore encountered an issue. See stack trace for the root cause.", type="InternalServerError"
            ),
            ("provider", True, "no", 500),
            "EngineCore encountered an issue",
        ),
    },
    "llama.cpp": {
        "loading": Failing(error(503, "Loading model", type="unavailable_error", code=503), LOADING, "Loading model"),
        "wrong key": Failing(
            error(401, "Invalid API Key", type="authentication_error", code=401), DENIED, "Invalid API Key"
        ),
        "long prompt": Failing(
            error(
                400,
                "the request exceeds the available context size, try increasing it",
                type="exceed_context_size_error",
                code=400,
                n_prompt_tokens=5000,
                n_ctx=4096,
            ),
            MODEL_400,
            "exceeds the available context size",
        ),
        "Python server, null content": Failing(
            error(500, "[{'type': 'missing', 'loc': ('body', 'messages')}]", type="internal_server_error"),
            ("provider", True, "no", 500),
            "'missing'",
        ),
    },
    "Ollama": {
        "unknown model": Failing(
            error(404, 'model "qwen9" not found, try pulling it first', type="api_error", param=None, code=None),
            MISSING,
            "try pulling it first",
        ),
        "no such path": Failing(
            servers.body("404 page not found", status=404, content_type="text/plain"), MISSING, "404 page not found"
        ),
        "queue full": Failing(
            error(503, "server busy, please try again. maximum pending requests exceeded", type="api_error"),
            LOADING,
            "maximum pending requests exceeded",
        ),
        "no tools": Failing(
            error(400, "registry.ollama.ai/library/m does not support tools", type="api_error"),
            MODEL_400,
            "does not support tools",
        ),
        "runner died": Failing(
            error(500, "llama runner process has terminated: signal: killed", type="api_error"),
            ("provider", True, "no", 500),
            "llama runner process has terminated",
        ),
    },
    "LiteLLM proxy": {
        "wrong key without a database": Failing(
            error(400, "No connected db.", type="no_db_connection", param=None, code="400"),
            ("provider", False, "always", 400),
            "No connected db.",
        ),
        "no key": Failing(
            servers.body("Internal Server Error", status=500, content_type="text/plain"),
            ("provider", True, "no", 500),
            "Internal Server Error",
        ),
        "wrong key with a database": Failing(
            error(
                401,
                "Authentication Error, Invalid proxy server token passed.",
                type="token_not_found_in_db",
                code="401",
            ),
            DENIED,
            "Invalid proxy server token",
        ),
        "unknown model": Failing(
            error(
                400,
                "/chat/completions: Invalid model name passed in model=x.",
                type="invalid_request_error",
                code="400",
            ),
            MODEL_400,
            "Invalid model name",
        ),
        "budget": Failing(
            error(
                400,
                "Budget has been exceeded! Current cost: 10.2, Max budget: 10.0",
                type="budget_exceeded",
                code="400",
            ),
            ("provider", False, "always", 400),
            "Budget has been exceeded",
        ),
        "upstream busy": Failing(
            error(
                429,
                "litellm.RateLimitError: RateLimitError: OpenAIException - slow down",
                type="throttling_error",
                code="429",
            ),
            BUSY,
            "slow down",
        ),
        "upstream timeout": Failing(
            error(408, "litellm.Timeout: Connection timed out. Timeout passed=1.0", type=None, code="408"),
            ("provider", True, "no", 408),
            "Connection timed out",
        ),
    },
    "OpenRouter": {
        "wrong key": Failing(error(401, "User not found.", code=401), DENIED, "User not found."),
        "no credit": Failing(
            error(402, "Insufficient credits", code=402), ("provider", False, "always", 402), "Insufficient credits"
        ),
        "upstream fails, in a 200": Failing(
            servers.data(
                {"error": {"message": "Provider returned error", "code": 502, "metadata": {"provider_name": "X"}}}
            ),
            UPSTREAM_502,
            "Provider returned error",
        ),
        "upstream fails in the middle": Failing(
            chat(
                {"content": "The ans"},
                tokens(5, 3),
                {"finish_reason": "error", "error": {"code": 502, "message": "Upstream error from X: reset"}},
            ),
            UPSTREAM_502,
            "Upstream error from X",
        ),
        "upstream busy": Failing(
            error(429, "Provider returned error", code=429, metadata={"raw": "rate-limited upstream"}),
            BUSY,
            "Provider returned error",
        ),
        "waits, then fails": Failing(
            servers.body('\n         \n\n   {"error":{"code":504,"message":"timed out"}}'),
            ("provider", True, "no", 504),
            "timed out",
        ),
        "unknown model": Failing(
            error(400, "x/y is not a valid model ID", code=400), MODEL_400, "is not a valid model ID"
        ),
        "moderation": Failing(
            error(403, "Input was flagged", code=403, metadata={"reasons": ["violence"], "flagged_input": "how to"}),
            ("model", False, "no", 403),
            "Input was flagged",
        ),
    },
    "Azure": {
        "wrong key": Failing(
            error(401, "Access denied due to invalid subscription key or wrong API endpoint.", code="401"),
            DENIED,
            "invalid subscription key",
        ),
        "unknown deployment": Failing(
            error(404, "The API deployment for this resource does not exist.", code="DeploymentNotFound"),
            MISSING,
            "does not exist",
        ),
        "wrong path": Failing(error(404, "Resource not found", code="404"), MISSING, "Resource not found"),
        "busy": Failing(
            servers.data(
                {"error": {"code": "429", "message": "exceeded token rate limit"}}, status=429, retry_after="7"
            ),
            BUSY,
            "exceeded token rate limit",
        ),
        "filtered prompt": Failing(
            error(
                400,
                "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
                code="content_filter",
                status=400,
                innererror={"code": "ResponsibleAIPolicyViolation"},
            ),
            MODEL_400,
            "content management policy",
        ),
    },
    "Gemini": {
        "wrong key": Failing(
            servers.data(
                [
                    {
                        "error": {
                            "code": 400,
                            "message": "API key not valid. Please pass a valid API key.",
                            "status": "INVALID_ARGUMENT",
                        }
                    }
                ],
                status=400,
            ),
            ("provider", False, "always", 400),
            "API key not valid",
        ),
        "busy": Failing(
            servers.data(
                [{"error": {"code": 429, "message": "Resource has been exhausted", "status": "RESOURCE_EXHAUSTED"}}],
                status=429,
            ),
            BUSY,
            "Resource has been exhausted",
        ),
        "overloaded": Failing(
            servers.data(
                [{"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}], status=503
            ),
            LOADING,
            "overloaded",
        ),
    },
}

REPLYING: Mapping[str, Mapping[str, Replying]] = {
    "vLLM": {
        "reasoning": Replying(
            chat(
                {
                    "content": "42",
                    "reasoning_content": "6 * 7",
                    "refusal": None,
                    "tool_calls": [],
                    "function_call": None,
                },
                tokens(9, 12, prompt_tokens_details=None),
                {"logprobs": None, "stop_reason": None},
                kv_transfer_params=None,
            ),
            "42",
            12,
        ),
    },
    "llama.cpp": {
        "timings": Replying(
            chat({"content": "42"}, tokens(9, 2), timings={"prompt_ms": 1.5}, system_fingerprint="b1-abc"), "42", 2
        ),
    },
    "Ollama": {
        "plain": Replying(chat({"content": "42"}, tokens(9, 2), system_fingerprint="fp_ollama"), "42", 2),
    },
    "LiteLLM proxy": {
        "extra fields": Replying(
            chat({"content": "42", "provider_specific_fields": {"refusal": None}, "annotations": []}, tokens(10, 20)),
            "42",
            20,
        ),
    },
    "OpenRouter": {
        "waits first": Replying(
            servers.body(
                '\n         \n{"choices":[{"message":{"role":"assistant","content":"42"},"finish_reason":"stop",'
                '"native_finish_reason":"STOP","error":null}]}'
            ),
            "42",
        ),
        "cost": Replying(chat({"content": "42", "reasoning": None}, tokens(9, 2, cost=0.01), provider="X"), "42", 2),
    },
    "Azure": {
        "filter results": Replying(
            chat(
                {"content": "42", "refusal": None},
                tokens(9, 2),
                {"content_filter_results": {"hate": {"filtered": False, "severity": "safe"}}},
                prompt_filter_results=[{"prompt_index": 0, "content_filter_results": {}}],
            ),
            "42",
            2,
        ),
        "filtered answer": Replying(
            chat({}, tokens(9, 2), {"finish_reason": "content_filter"}), "", 2, "content_filter"
        ),
    },
    "xAI": {
        "reasoning outside completion_tokens": Replying(
            chat({"content": "42"}, tokens(10, 5, 40, completion_tokens_details={"reasoning_tokens": 25})), "42", 30
        ),
    },
}
