"""The last step of every text on its way out of a session, whoever wrote it.

Files get `redaction`. Terminals and reports get `shown`: also without control characters and workflow commands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.text.safe import escaped

_COMMANDS = re.compile("#(?=#)|s(?=ection_)")
"""The first characters of what a runner of CI obeys, as far as JSON can hold it; see `safe`."""


def _as_escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def ascii_json(value: Any, indent: int | None = None) -> str:
    """Return JSON as ASCII text that no terminal and no runner of CI obeys. Secrets stay."""
    return _COMMANDS.sub(_as_escape, json.dumps(value, indent=indent))


class Outlet:
    """Knows the secrets of a session: of all its evals, as soon as their configs are looked at."""

    def __init__(self, *secrets: Mapping[str, str]) -> None:
        self._secrets = list(secrets)
        self.redaction = Redaction(*secrets)

    def hide(self, *secrets: Mapping[str, str]) -> None:
        """Redact these values too from now on."""
        new = [source for source in secrets if source not in self._secrets]
        if new:
            self._secrets += new
            self.redaction = Redaction(*self._secrets)

    def text(self, text: str) -> str:
        """Return `text` for a file."""
        return self.redaction.text(text)

    def json(self, value: Any) -> str:
        r"""Return a JSON value as ASCII text for a terminal or another program, without secrets.

        >>> print(Outlet().json({"a": "##[error] \x1b"}))
        {
          "a": "\u0023#[error] \u001b"
        }
        """
        return ascii_json(self.redaction.value(value), indent=2)

    def shown(self, text: str) -> str:
        """Return `text` for a terminal, a log of CI, or a report that others print."""
        return escaped(self.redaction.text(text))
