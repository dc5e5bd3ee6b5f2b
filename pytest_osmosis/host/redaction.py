"""Keeps secret values out of everything that leaves the host: each is replaced by its name, longest first."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

MIN_CHARS = 8
"""Shorter values stand in too many ordinary texts to be replaced; the header says once that they are not."""

SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)


def secret_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The values of headers that carry credentials, by header name; of `Bearer x` it is `x`."""
    return {
        name: value.split(" ", 1)[1] if value.lower().startswith(("bearer ", "basic ")) else value
        for name, value in headers.items()
        if SECRET_HEADER.search(name)
    }


class Redaction:
    """Replaces values of `secrets` (by name) in text and in encoded JSON."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        known = {value: name for name, value in secrets.items() if len(value) >= MIN_CHARS}
        self._plain = sorted(known.items(), key=lambda item: -len(item[0]))
        self._encoded = [(json.dumps(value)[1:-1], name) for value, name in self._plain]

    def text(self, text: str) -> str:
        """`text` without secret values."""
        for value, name in self._plain:
            text = text.replace(value, f"[{name}]")
        return text

    def line(self, line: str) -> str:
        """One line of ASCII JSON without secret values."""
        for value, name in self._encoded:
            if value in line:
                line = line.replace(value, f"[{name}]")
        return line
