"""The errors that a served API answers, whatever its shape."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.statuses import client_error


class ApiError(Exception):
    """A request that gets an error instead of a reply. `code` is OpenAI's short name for it."""

    def __init__(
        self, status: int, message: str, code: str | None = None, headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.headers = headers

    @property
    def is_of_server(self) -> bool:
        """True if the request may be right, and the server behind failed."""
        return self.status >= 500 or client_error(self.status) == "retried"


def api_error(error: ApiError | ModelError) -> ApiError:
    """Return a model's error as the error of a request to it, with the status and the text of the server behind.

    An error of a request stays what it is.
    Without a status of an error, the request is at fault (400) if the model refused it, and else the server (502).
    """
    if isinstance(error, ApiError):
        return error
    status = error.status
    if status is None or not 400 <= status < 600:
        status = 400 if error.boundary == "model" else 502
    return ApiError(status, str(error))
