"""Failed requests as `ModelError`s: by status, by exception, or by a body that is not a reply.

This module alone decides whose failure it is (`boundary`), and whether a later request can succeed (`retryable`,
`systemic`). Messages are one short line. The key is removed from a server's text, because servers like to quote it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, NamedTuple

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError

from pytest_osmosis.errors import ModelError
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.text.safe import one_line

MAX_MESSAGE = 300
MAX_BODY = 200

EXHAUSTED = ("exceeded your current quota", "credit balance is too low")  # with various status codes
RETRIED = frozenset({408, 409, 429})
UNREACHABLE = (
    aiohttp.ClientConnectorError,  # refused, no such host, TLS, proxy
    aiohttp.ClientHttpProxyError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.NonHttpUrlClientError,
    aiohttp.InvalidUrlClientError,
)
HTTP_UNREACHABLE = ("ConnectError", "ProxyError", "UnsupportedProtocol")  # the same in httpx, which may be missing


@dataclass(frozen=True, slots=True)
class Failures:
    """Makes the errors of requests to the server at `base_url`. No message contains the key, `secret`."""

    base_url: str
    secret: str | None = None

    def of_status(self, status: int, headers: Mapping[str, str], body: str, *, now: datetime) -> ModelError:
        """Return the error for a status other than 2xx. The names in `headers` are in lower case."""
        error = _parsed(body)
        message = f"the server answered {_status_text(status)}"
        detail = f": {self._shown(error.message, MAX_MESSAGE)}" if error.message else ""
        if 300 <= status < 400:
            return self._redirect(status, message, headers.get("location", ""))
        if status in (401, 402) or (status in (400, 403, 429) and error.quota_exhausted):
            return ModelError(message + detail, status=status, systemic="always")
        if status in (403, 404):
            return ModelError(f"{message} at {self.base_url}{detail}", status=status, systemic="until_success")
        if status in RETRIED or status >= 500:
            wait_s = retry_after_s(headers, now)
            return ModelError(message + detail, status=status, retryable=True, retry_after_s=wait_s)
        return ModelError(message + detail, status=status, boundary="model")

    def of_exception(self, error: BaseException) -> ModelError:
        """Return the error for an exception of the client: an unreachable server, a broken connection, or another."""
        causes = _causes(error)
        cause = causes[-1]
        text = cause.message if isinstance(cause, HttpProcessingError) else str(cause)  # str() would add a status 400
        reason = self._shown(text or type(cause).__name__, MAX_MESSAGE)
        # Transports wrap aiohttp's errors differently, so aiohttp's own decide if there are any.
        judged = [each for each in causes if isinstance(each, aiohttp.ClientError)] or causes
        if any(isinstance(each, (*UNREACHABLE, *_http(*HTTP_UNREACHABLE))) for each in judged):
            return ModelError(f"cannot reach {self.base_url}: {reason}", retryable=True, systemic="until_success")
        if any(isinstance(each, (ContentEncodingError, *_http("DecodingError"))) for each in causes):
            return ModelError(f"the server answered with a body that cannot be unpacked: {reason}", retryable=True)
        if any(isinstance(each, (aiohttp.ClientError, OSError, *_http("RequestError"))) for each in judged):
            return ModelError(f"the connection to {self.base_url} broke: {reason}", retryable=True)
        return ModelError(f"the request to {self.base_url} failed: {type(cause).__name__}: {reason}")

    def unreadable(self, status: int, body: str, fault: str) -> ModelError:
        """Return the error for a 2xx status with an unreadable body. `fault` completes "... with a body that"."""
        quoted = f": '{self._shown(body, MAX_BODY)}'" if body.strip() else ""
        text = f"the server answered {status} with a body that {fault}{quoted}"
        return ModelError(text, status=status, retryable=True)

    def no_answer(self, status: int, content: str, body: Mapping[str, Any]) -> ModelError:
        """Return the error for a body with `content` instead of an answer of the model, and the body's `error`."""
        error = body.get("error")
        detail = f": {self._shown(_text_of_error(error), MAX_MESSAGE)}" if error else ""
        return ModelError(f"the server answered {status} with {content}{detail}", status=status, boundary="model")

    def _redirect(self, status: int, message: str, location: str) -> ModelError:
        target = f' to "{self._shown(location, MAX_BODY)}"' if location else ""
        reason = f"{message} at {self.base_url}, a redirect{target}, which is not followed"
        text = f"{reason}: set [model] base_url to the model's own address"
        return ModelError(text, status=status, systemic="until_success")

    def _shown(self, text: str, limit: int) -> str:
        return one_line(Redaction({"redacted": self.secret or ""}).text(text), limit)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the wait that the server asks for: retry-after-ms, or else Retry-After in seconds or as an HTTP date.

    None without a valid header, 0.0 for a date in the past. Source: RFC 9110, section 10.2.3.

    >>> retry_after_s({"retry-after": "1.5"}, datetime.now(UTC))
    1.5
    """
    milliseconds = _not_negative(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "").strip()
    seconds = _not_negative(value)
    return _until(value, now) if seconds is None else seconds


def _not_negative(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _until(date: str, now: datetime) -> float | None:
    try:
        then = parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError):
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return max(0.0, (then - now).total_seconds())


class _ErrorBody(NamedTuple):
    message: str
    quota_exhausted: bool


def _parsed(body: str) -> _ErrorBody:
    """Read an error body in any usual shape: {"error": {...} | str}, {"detail"}, {"message"}, text."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        data = body
    if isinstance(data, list) and data:  # one well-known server wraps its error object in a list
        data = data[0]
    error = data.get("error") or data.get("detail") or data if isinstance(data, dict) else data
    message = _text_of_error(error)
    codes = (error.get("code"), error.get("type")) if isinstance(error, dict) else ()
    exhausted = "insufficient_quota" in codes or any(text in message.lower() for text in EXHAUSTED)
    return _ErrorBody(message, exhausted)


def _text_of_error(error: object) -> str:
    if isinstance(error, str):
        return error
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) and message else json.dumps(error, ensure_ascii=False)


def _status_text(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _http(*names: str) -> tuple[type[BaseException], ...]:
    """Return the exceptions with these names in httpx2 and httpx, if those are imported."""
    modules = [sys.modules[name] for name in ("httpx2", "httpx") if name in sys.modules]
    return tuple(getattr(module, name) for module in modules for name in names)


def _causes(error: BaseException) -> list[BaseException]:
    """Return the error and its causes, outermost first. The innermost says what happened."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    return chain
