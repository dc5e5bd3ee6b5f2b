"""The request log of the demo server: a line of JSON for each chat request. It holds no content and no key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO


class RequestLog:
    """Writes a line when a request is answered, or when its client has left."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, entry: Mapping[str, Any]) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._file.write(json.dumps({"at": at, **entry}) + "\n")
        self._file.flush()
