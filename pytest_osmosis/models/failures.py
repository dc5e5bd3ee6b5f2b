"""Failed requests as `ModelError`s: by status, by exception, or by a body that is not a reply.

This module alone decides whose failure it is (`boundary`), and whether a later request can succeed (`retryable`,
`systemic`). Messages are one short line. The key is removed from a server's text, because servers like to quote it.

Of the statuses from 400 to 499, only those of a request that is wrong count as the model's failure: its conversation
may be too long, or malformed. All others are those of a provider, and say nothing about the model. Sources: RFC 9110,
IANA's registry, and the references of the APIs and gateways that are named.

Servers agree on no shape of an error: {"error": {...} | "..."}, {"detail": ...}, {"message": ...}, {"object": "error",
...}, a list around one of these, or plain text. Some send one with status 200, with a code or a type for the status.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError
from msgspec import Struct

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.json_bodies import read
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.text.safe import one_line, shortened


class Proxy(Struct, frozen=True):
    """A proxy, and the variable that sets it, as it is spelt; "" if the system's settings do."""

    url: str
    variable: str = ""

    def __str__(self) -> str:
        """Return the proxy for people, without its password.

        >>> print(Proxy("http://me:secret@proxy:3128", "HTTPS_PROXY"))
        the proxy http://proxy:3128 (HTTPS_PROXY)
        """
        scheme, _, rest = self.url.partition("://")
        return f"the proxy {scheme}://{rest.rpartition('@')[2]} ({self.variable or 'of the system'})"


def proxy_of(url: str) -> Proxy | None:
    """Return the proxy for this address, or None."""
    parts = urlsplit(url)
    proxies = getproxies()
    name = parts.scheme if proxies.get(parts.scheme) else "all"
    proxy = proxies.get(name)
    if not proxy or proxy_bypass(parts.netloc):
        return None
    variable = next((each for each in os.environ if each.lower() == f"{name}_proxy" and os.environ[each] == proxy), "")
    return Proxy(proxy if "://" in proxy else f"http://{proxy}", variable)


Treatment = Literal["denied", "unavailable", "retried", "wrong"]
"""The meaning of a status for the eval: no further request can succeed ("denied"), or none can unless one has succeeded
("unavailable"); the same request may succeed later ("retried"), or never ("wrong")."""

CLIENT_ERRORS: Mapping[int, Treatment] = {
    400: "wrong",  # the request is malformed, or its conversation too long
    401: "denied",  # the key is missing or wrong
    402: "denied",  # no credit is left
    403: "unavailable",  # the key may not use this model, or not from this country
    404: "unavailable",  # there is no such model or address
    405: "wrong",  # the address takes no POST request
    406: "wrong",  # the server has no answer of the type that was asked for
    407: "unavailable",  # a proxy asks for a password
    408: "retried",  # the server waited too long, often for the model (Bedrock, LiteLLM)
    409: "retried",  # the request conflicts with another, which will end
    410: "unavailable",  # the model was withdrawn
    411: "wrong",  # the request does not say how long it is
    412: "unavailable",  # the account is suspended (Fireworks), or its budget is used up (Portkey)
    413: "wrong",  # the request is too large
    414: "wrong",  # the address is too long
    415: "wrong",  # the server does not read requests of this type
    416: "wrong",  # the request asks for a part that does not exist
    417: "wrong",  # the request expects what the server cannot do
    421: "retried",  # this server is not meant to answer; another connection may reach another
    422: "wrong",  # the request is well-formed, but not valid
    423: "retried",  # something that is needed is locked
    424: "retried",  # something behind the server failed (Bedrock, SageMaker, TGI, Groq)
    425: "retried",  # the server wants the request again, later
    426: "wrong",  # the request needs another protocol
    428: "wrong",  # the request lacks a condition
    429: "retried",  # too many requests
    431: "wrong",  # the headers are too large
    446: "wrong",  # a guardrail in front of the model refused the request (Portkey)
    451: "unavailable",  # the law, or a rule of the provider, forbids access from here
    460: "retried",  # a load balancer gave up the connection (AWS)
    498: "retried",  # no capacity is left (Groq)
    499: "retried",  # the request was cancelled behind the server (Gemini, Cohere, nginx)
}


def treatment_of(status: int) -> Treatment:
    """Return how a status from 400 on is treated.

    No standard has any other below 500 than these: a gateway, a load balancer or a firewall answered.
    """
    return CLIENT_ERRORS.get(status, "retried")


def type_of_error(status: int, types: Mapping[int, str], of_server: str) -> str:
    """Return an API's name for an error with this status: that in `types`, or a name for all others of either side."""
    return types.get(status, of_server if treatment_of(status) == "retried" else "invalid_request_error")


MAX_MESSAGE = 300
MAX_BODY = 200
SEARCHED_CHARS = 10_000
"""The length of a text that is searched for the key, and for what it says. More of it is never shown."""

SECONDS = re.compile(r"\d+(\.\d*)?", re.ASCII)
MAX_WAIT_S = 1e7
UNREACHABLE = (
    aiohttp.ClientConnectorError,  # refused, no such host, TLS, proxy
    aiohttp.ClientHttpProxyError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.NonHttpUrlClientError,
    aiohttp.InvalidUrlClientError,
)
VERSION = re.compile(r"/v\d+[a-z]*\d*(/|$)")
"""The part of an address that names a version of the API, as nearly every server's has: /v1, /v1beta."""
TLS_ONLY = ("plain http request was sent to https port", "http request to an https server", "plain http to an ssl")
"""The answers of nginx, Go and Apache to a request without TLS where they expect it, all with status 400."""
OF_REQUESTS = {
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "reasoning.effort": "reasoning_effort",
    "text.verbosity": "verbosity",
}
"""Our keys for those of the requests of OpenAI's APIs."""
HTTP_UNREACHABLE = ("ConnectError", "ConnectTimeout", "ProxyError", "UnsupportedProtocol", "InvalidURL")
"""The same in httpx, which may be missing."""


class Failures(Struct, frozen=True):
    """Makes the errors of requests to `url` of the server at `base_url`. No message contains the key, `secret`."""

    base_url: str
    url: str
    secret: str | None = None
    address_key: str = "[model] base_url"
    """The key that sets the address."""

    def of_status(self, status: int, headers: Mapping[str, str], body: str, *, now: datetime) -> ModelError:
        """Return the error for a status other than 2xx. `headers` find their names in any case."""
        answered = f"the server answered {_status_text(status)}"
        if status < 300:  # LiteLLM's errors have the status of an answer that it could not read
            text = f"{answered}, but not with a reply{self._detail(read_error(body))}"
            return ModelError(text, status=status, retryable=True)
        if 300 <= status < 400:
            return self._redirect(status, answered, headers.get("location", ""))
        if status == 400 and self.base_url.startswith("http:") and any(text in body.lower() for text in TLS_ONLY):
            secure = self.base_url.replace("http:", "https:", 1)
            text = f'{self.base_url} answers with TLS: set {self.address_key} to "{secure}"'
            return ModelError(text, status=status, systemic="until_success")
        return self._error(answered, status, read_error(body), retry_after_s(headers, now))

    def of_exception(self, error: BaseException) -> ModelError:
        """Return the error for an exception of the client: an unreachable server, a broken connection, or another."""
        causes = causes_of(error)
        for each in causes:
            if isinstance(each, ModelError):
                return each
        cause = causes[-1]
        text = _text_of(cause)
        reason = self._shown(text or type(cause).__name__, MAX_MESSAGE)
        # Transports wrap aiohttp's errors differently, so aiohttp's own decide if there are any.
        judged = [each for each in causes if isinstance(each, aiohttp.ClientError)] or causes
        if any(isinstance(each, (*UNREACHABLE, *_http(*HTTP_UNREACHABLE))) for each in judged):
            why = _why_unreachable(cause, text, "proxy" if self._through_proxy else "server") or reason
            text = f"cannot reach {self.base_url}{self._through_proxy}: {why}"
            return ModelError(text, retryable=True, systemic="until_success")
        if any(isinstance(each, (ContentEncodingError, *_http("DecodingError"))) for each in causes):
            return ModelError(f"the server answered with a body that cannot be unpacked: {reason}", retryable=True)
        if any(isinstance(each, (aiohttp.ClientError, OSError, *_http("RequestError"))) for each in judged):
            return ModelError(f"the connection to {self.base_url}{self._through_proxy} broke: {reason}", retryable=True)
        return ModelError(f"the request to {self.base_url} failed: {type(cause).__name__}: {reason}")

    def unreadable(self, status: int, body: str, fault: str) -> ModelError:
        """Return the error for a 2xx status with an unreadable body. `fault` completes "... with a body that"."""
        quoted = f": '{self._shown(body, MAX_BODY)}'" if body.strip() else ""
        text = f"the server answered {status} with a body that {fault}{quoted} (POST {self._shown_url()})"
        return ModelError(text, status=status, retryable=True)

    def no_answer(self, status: int, content: str, *objects: Mapping[str, Any]) -> ModelError:
        """Return the error for a 2xx body with `content` in place of an answer of the model.

        An error in one of its `objects` decides whose failure it is: the one that its code names, or else the server's.
        Without one it is the model's.
        """
        error = error_in(*objects)
        if error is None:
            return ModelError(f"the server answered {status} with {content}", status=status, boundary="model")
        if error.status is None and not error.quota_exhausted:
            text = f"the server answered {status} with {content}{self._detail(error)}"
            return ModelError(text, status=status, retryable=True)
        code = error.status or status
        return self._error(f"the server answered {status} with error {_status_text(code)}", code, error, None)

    def misshapen(self, status: int, content: str, *objects: Mapping[str, Any]) -> ModelError:
        """Return the error for a 2xx body with `content` where the API has another type: never the model's failure.

        As in `no_answer`, an error in one of its `objects` counts more.
        """
        if error_in(*objects) is not None:
            return self.no_answer(status, content, *objects)
        return ModelError(f"the server answered {status} with {content}", status=status, retryable=True)

    def unsent(self, reason: str) -> ModelError:
        """Return the error for a request that a library did not send."""
        text = f"no request was sent: {self._shown(reason, MAX_MESSAGE)}"
        return ModelError(text, systemic="until_success")

    def too_large(self, status: int, content: str) -> ModelError:
        """Return the error for a 2xx body with `content`, which would be as large in the next answer."""
        text = f"the server answered {status} with {content}; raise [model] max_response_mb if that is right"
        return ModelError(text, status=status)

    def _error(self, answered: str, status: int, error: ErrorBody, wait_s: float | None) -> ModelError:
        treatment = treatment_of(status)
        detail = self._detail(error)
        if treatment == "denied" or error.quota_exhausted or (status == 400 and error.key_refused):
            return ModelError(f"{answered} at {self._shown_url()}{detail}", status=status, systemic="always")
        if error.input_flagged:
            return ModelError(answered + detail, status=status, boundary="model")
        match treatment:
            case "unavailable":
                by_status = {404: self._address_hint(), 407: self._through_proxy}
                hint = self._responses_hint(error) or by_status.get(status, "")
                text = f"{answered} at {self._shown_url()}{_advised(detail, hint)}"
                return ModelError(text, status=status, systemic="until_success")
            case "retried":
                return ModelError(answered + detail, status=status, retryable=True, retry_after_s=wait_s)
            case "wrong" if status == 400 and (hint := self._responses_hint(error)):
                return ModelError(answered + _advised(detail, hint), status=status, systemic="until_success")
            case "wrong" if status == 400 and error.refused_key is not None:
                key = OF_REQUESTS.get(error.refused_key, error.refused_key)
                hint = f"; leave out {key}: in [sampling], in [judge] or in the agent's own request, whichever sets it"
                return ModelError(answered + _advised(detail, hint), status=status, systemic="until_success")
            case "wrong":
                at = f" at {self._shown_url()}" if status == 405 else ""
                return ModelError(answered + at + detail, status=status, boundary="model")

    def _redirect(self, status: int, answered: str, location: str) -> ModelError:
        target = f' to "{self._shown(location, MAX_BODY)}"' if location else ""
        reason = f"{answered} at {self._shown_url()}, a redirect{target}, which is not followed"
        text = f"{reason}: set {self.address_key} to the model's own address"
        return ModelError(text, status=status, systemic="until_success")

    @property
    def _through_proxy(self) -> str:
        """The proxy to the address, and the variable that sets it, which is not the server's doing; "" without one."""
        proxy = proxy_of(self.base_url)
        return "" if proxy is None else f" through {self._shown(str(proxy), MAX_BODY)}"

    def _responses_hint(self, error: ErrorBody) -> str:
        """Return a hint for a model that refuses chat completions, or tools there, and has OpenAI's Responses."""
        is_meant = "v1/responses" in error.message and self.url.endswith("/chat/completions")
        return '; set [model] api_client_type = "openai_responses", without client' if is_meant else ""

    def _address_hint(self) -> str:
        """Return a hint for a 404 where the address lacks the version that nearly all servers have in theirs."""
        if VERSION.search(self.url):
            return ""
        return f'; most servers have /v1 in their address: {self.address_key} = "{self.base_url.rstrip("/")}/v1"'

    def _detail(self, error: ErrorBody) -> str:
        return f": {self._shown(error.message, MAX_MESSAGE)}" if error.message else ""

    def _shown_url(self) -> str:
        return self._shown(self.url, MAX_BODY)

    def _shown(self, text: str, limit: int) -> str:
        text = shortened(text, SEARCHED_CHARS)
        return one_line(Redaction({"redacted": self.secret or ""}).text(text), limit)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the wait that the server asks for: retry-after-ms, or else Retry-After in seconds or as an HTTP date.

    None without a valid header or for a wait of months, 0.0 for a date in the past. Source: RFC 9110, section 10.2.3.

    >>> retry_after_s({"retry-after": "1.5"}, datetime.now(UTC))
    1.5
    """
    value = ""
    for name, in_a_second in (("retry-after-ms", 1000), ("retry-after", 1)):
        value = headers.get(name, "").strip()
        if SECONDS.fullmatch(value) and float(value) / in_a_second <= MAX_WAIT_S:
            return float(value) / in_a_second
    try:
        then = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    seconds = (then.replace(tzinfo=then.tzinfo or UTC) - now).total_seconds()
    return max(0.0, seconds) if seconds <= MAX_WAIT_S else None


def _advised(detail: str, hint: str) -> str:
    """Return the detail of an error with a hint, if there is one, in place of its full stop."""
    return detail.removesuffix(".") + hint if hint else detail


def _status_text(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _http(*names: str) -> tuple[type[BaseException], ...]:
    """Return the exceptions with these names in httpx2 and httpx, if those are imported."""
    modules = [sys.modules[name] for name in ("httpx2", "httpx") if name in sys.modules]
    return tuple(getattr(module, name) for module in modules for name in names)


def _text_of(cause: BaseException) -> str:
    if isinstance(cause, HttpProcessingError):
        return cause.message  # str() would add a status 400
    if isinstance(cause, aiohttp.ServerDisconnectedError):
        return "Server disconnected"  # str() can be the repr of half a response
    return str(cause)


def _why_unreachable(cause: BaseException, text: str, who_listens: str) -> str | None:
    """Return why no connection was made, for the reasons that most people meet."""
    if isinstance(cause, aiohttp.ClientHttpProxyError):
        return f"it answered {_status_text(cause.status)}"
    if type(cause).__name__ == "ProxyError":  # httpcore's
        return f"it answered {text}"
    if isinstance(cause, socket.gaierror):
        return "this host name is not known"
    if not isinstance(cause, ConnectionRefusedError) and f"[Errno {errno.ECONNREFUSED}]" not in text:
        return None
    address = _ADDRESS.search(text)  # a proxy's, if there is one
    who = f"{address[1]}:{address[2]} refused the connection" if address else "the connection was refused"
    return f"{who}; is the {who_listens} running?"


_ADDRESS = re.compile(r"Connect call failed \('([0-9.]+)', (\d+)\)")


def causes_of(error: BaseException, *, implicit: bool = False) -> list[BaseException]:
    """Return the error and its causes, each once, outermost first. The innermost says what happened.

    With `implicit`, an error without a cause was caused by the one that was being handled.
    """
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and all(link is not each for each in chain):
        chain.append(link)
        if isinstance(link, ExceptionGroup):  # of httpx, with an error for each address of the host
            link = link.exceptions[-1]
            continue
        is_hidden = type(link).__name__ == "ConnectError"  # httpcore raises it from what happened, and then from None
        link = link.__cause__ or (link.__context__ if implicit or is_hidden else None)
    return chain


OUT_OF_QUOTA = ("insufficient_quota", "budget_exceeded")
EXHAUSTED = ("exceeded your current quota", "credit balance is too low")  # with various status codes
NO_KEY = ("api key not valid", "api_key_invalid", "no connected db")  # Google's and LiteLLM's 400 for a wrong key

PARAMETER_CODES = ("unsupported_parameter", "unsupported_value", "unknown_parameter")
"""OpenAI's codes of errors whose `param` is the refused key."""
REFUSED_KEY = re.compile(
    r"^(?:(?:unsupported|unknown) parameter: '([\w.]+)|unsupported value: '([\w.]+)\S* does not support"
    r"|unrecognized request argument supplied: (\w+)"
    r"|`?(\w+)`? (?:is deprecated for this model|and `?\w+`? cannot both be specified))",
    re.IGNORECASE,
)
"""The same in words: of OpenAI, of proxies that pass its message on, and of Anthropic."""
NOT_SAMPLED = frozenset(("messages", "model", "tools", "stream", "n", "input", "include", "store", "tool_choice"))
"""Keys that requests have whatever the config says."""

_NAMES_OF_STATUS: Mapping[int, tuple[str, ...]] = {
    400: (
        *("invalid_request_error", "invalid_argument", "bad_request", "badrequesterror", "context_length_exceeded"),
        *("content_filter", "content_policy_violation", "invalid_prompt"),
    ),
    401: ("authentication_error", "invalid_api_key", "unauthenticated", "unauthorized"),
    402: ("billing_error", "insufficient_quota"),
    403: ("permission_error", "permission_denied"),
    404: ("not_found_error", "notfounderror", "not_found", "model_not_found", "deploymentnotfound"),
    408: ("timeout", "timeout_error"),
    409: ("aborted",),
    413: ("request_too_large",),
    429: ("rate_limit_error", "rate_limit_exceeded", "resource_exhausted", "too_many_requests"),
    498: ("capacity_exceeded",),
    499: ("cancelled",),
    500: ("api_error", "internal", "internal_server_error", "server_error"),
    503: ("unavailable", "unavailable_error", "service_unavailable"),
    504: ("deadline_exceeded",),
    529: ("overloaded_error",),
}
STATUS_OF_NAME = {name: status for status, names in _NAMES_OF_STATUS.items() for name in names}
"""The status for the names of errors, in lower case: of OpenAI, Anthropic, Google, Groq, vLLM and llama.cpp."""


class ErrorBody(NamedTuple):
    """An error. `status` is None if neither a code nor a name says which it is.

    `input_flagged` says that a moderator in front of the model refused this input (OpenRouter's 403).
    `refused_key` is a key of the request, like "temperature" or "reasoning.effort", that the model does not take.
    """

    message: str
    status: int | None = None
    quota_exhausted: bool = False
    key_refused: bool = False
    input_flagged: bool = False
    refused_key: str | None = None


def read_error(body: str) -> ErrorBody:
    """Return the error in the body of an answer that is known to be one."""
    try:
        data = read(body)
    except ValueError:
        data = body
    if isinstance(data, list) and data:  # one well-known server wraps its error object in a list
        data = data[0]
    return _error(data.get("error") or data.get("detail") or data if isinstance(data, dict) else data)


def error_in(*objects: Mapping[str, Any]) -> ErrorBody | None:
    """Return the first error in the objects of a body that should be a reply, or None."""
    for data in objects:
        if data.get("error"):
            return _error(data["error"])
        if data.get("object") == "error":
            return _error(data)
    return None


def _error(error: object) -> ErrorBody:
    message = text_of_error(error)
    names = [error.get(key) for key in ("code", "status", "type")] if isinstance(error, dict) else []
    low = message[:SEARCHED_CHARS].lower()
    return ErrorBody(
        message,
        next(filter(None, map(_status, names)), None),
        any(name in OUT_OF_QUOTA for name in names) or any(text in low for text in EXHAUSTED),
        "invalid_api_key" in names or any(text in low for text in NO_KEY),
        isinstance(error, dict) and isinstance(error.get("metadata"), dict) and "flagged_input" in error["metadata"],
        _refused_key(error, message),
    )


def _refused_key(error: object, message: str) -> str | None:
    key = error.get("param") if isinstance(error, dict) and error.get("code") in PARAMETER_CODES else None
    if not isinstance(key, str):
        found = REFUSED_KEY.match(message)
        key = found and found[found.lastindex or 0]
    return key if key and re.fullmatch(r"\w+(\.\w+)?", key) and key.partition(".")[0] not in NOT_SAMPLED else None


def _status(name: object) -> int | None:
    """Return the status for a code or a name of an error, None for any other value."""
    if isinstance(name, str):
        name = int(name) if len(name) == 3 and name.isdecimal() else STATUS_OF_NAME.get(name.lower())
    return name if isinstance(name, int) and 400 <= name < 600 else None


def text_of_error(error: object) -> str:
    if isinstance(error, str):
        return error
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) and message else json.dumps(error, ensure_ascii=False)
