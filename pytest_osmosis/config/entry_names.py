"""Names of the entries of a config with several evals.

A name is a part of node ids, of file names and of the names of runs. It is typed in shells, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

MOST_CHARACTERS = 100
_MOST_OF_A_VALUE = 40
_VALID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=-]*")
_PASSWORD = re.compile(r"(?<=://)[^/?#\s]*@")
VALID = "letters, digits and - _ . + =; it begins with a letter or a digit, and has at most 100 characters"


def is_valid(name: object) -> bool:
    return isinstance(name, str) and bool(_VALID.fullmatch(name)) and len(name) <= MOST_CHARACTERS


def entry_name(base: str, swept: Mapping[str, Any]) -> str:
    """Return the name of an entry, with the values of a sweep.

    >>> entry_name("owner/gsm8k@1.0", {"temperature": 0.5, "model": "openai/gpt-5.4-mini"})
    'gsm8k~temperature=0.5~model=openai-gpt-5.4-mini'
    """
    values = (f"~{_safe(key)}={_safe(_text(value), _MOST_OF_A_VALUE)}" for key, value in swept.items())
    name = "".join((_base(base), *values))
    if len(name) <= MOST_CHARACTERS:
        return name
    return f"{name[: MOST_CHARACTERS - 7]}-{blake2b(name.encode(), digest_size=3).hexdigest()}"


def _base(text: str) -> str:
    last = text.rpartition("/")[2].partition("@")[0]
    return _safe(last, MOST_CHARACTERS).lstrip("-._+=~") or "eval"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "-".join(f"{key}-{_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "-".join(map(_text, value))
    return _PASSWORD.sub("", str(value))


def _safe(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return a text with - in place of all characters that a name does not have."""
    return re.sub(r"[^A-Za-z0-9._+]+", "-", text)[:most].lstrip("-").rstrip("-.") or "-"


def with_number(name: str, number: int) -> str:
    """Return a name that is taken with a number: "gsm8k-2"."""
    end = f"-{number}"
    return f"{name[: MOST_CHARACTERS - len(end)]}{end}"
