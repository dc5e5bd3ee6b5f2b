"""Redaction of secrets in everything that leaves the host: each value is replaced by its name, the longest first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_osmosis.text.json_line import dumps

MIN_CHARS = 8  # shorter values are not redacted, because they appear in ordinary texts; the header says so
OWN_FIELDS = frozenset({"ev", "at", "name", "scorers", "sync", "digests", "scores", "boundary", "systemic"})
"""Fields of an event that never contain text of user code or of a model."""


class Redaction:
    """Replaces the values of `secrets` by their names, in text and in events."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        values = {value.strip(): name for name, value in secrets.items() if len(value.strip()) >= MIN_CHARS}
        forms = {form: name for value, name in values.items() for form in (value, _in_json(value))}
        self._forms = sorted(forms.items(), key=lambda item: -len(item[0]))
        self._encoded = [_in_json(form) for form, _ in self._forms]

    def text(self, text: str) -> str:
        """Return `text` without secret values, in plain form and as escaped in JSON."""
        for form, name in self._forms:
            text = text.replace(form, f"[{name}]")
        return text

    def event(self, event: Mapping[str, Any]) -> str:
        """Return `event` as ASCII JSON without secret values. Fields that identify the event are never changed."""
        line = dumps(event)
        if not any(form in line for form in self._encoded):
            return line
        parsed: dict[str, Any] = json.loads(line)
        return dumps({name: self._field(name, value) for name, value in parsed.items()})

    def _field(self, name: str, value: Any) -> Any:
        if name in OWN_FIELDS:
            return value
        if name == "errors":
            return {function: self._clean(error) for function, error in value.items()}
        return self._clean(value)

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self._clean(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._clean(item) for item in value]
        return value


def _in_json(text: str) -> str:
    return json.dumps(text)[1:-1]
