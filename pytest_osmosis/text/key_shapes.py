"""Text that looks like a key of a service, by the shapes that services give to theirs.

Only shapes that ordinary text does not have are searched for: a known beginning, then many characters. Keys of other
shapes are known by their value alone (`redaction`). Sources: the documentation of each service, and the rules of
secret scanners such as gitleaks.
"""

from __future__ import annotations

import re
from typing import Any

REPLACEMENT = "[looks like a key]"

_SHAPES = (
    r"sk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic, OpenRouter, DeepSeek, Moonshot
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",  # AWS
    r"AIza[A-Za-z0-9_-]{35}",  # Google
    r"gh[pousr]_[A-Za-z0-9]{36,}",  # GitHub
    r"github_pat_[A-Za-z0-9_]{36,}",
    r"glpat-[A-Za-z0-9_-]{20,}",  # GitLab
    r"xox[abeoprs]-(?=[A-Za-z-]*\d)[A-Za-z0-9-]{16,}",  # Slack
    r"hf_[A-Za-z0-9]{30,}",  # Hugging Face
    r"(?:gsk_|xai-|fw_|tvly-|r8_)(?=[A-Za-z]*\d)[A-Za-z0-9]{32,}",  # Groq, xAI, Fireworks, Tavily, Replicate
    r"pypi-[A-Za-z0-9_-]{50,}",
    r"eyJ[A-Za-z0-9_-]{16,}\.eyJ[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",  # a JSON Web Token
    r"-----BEGIN (?:[A-Z]+ ){0,2}PRIVATE KEY-----",
)
_KEY = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_SHAPES)})")
_BEGINNINGS = (
    *("sk-", "AKIA", "ASIA", "AIza", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "hf_"),
    *("gsk_", "xai-", "fw_", "tvly-", "r8_", "pypi-", "eyJ", "-----BEGIN "),
)


def key_in(value: Any) -> str | None:
    """Return a text that looks like a key in a value of JSON, its keys included; None if there is none.

    >>> key_in({"note": ["use sk-proj-8NvQ2xTz41LmPq7RkYw0"]}), key_in("the tasks sk-learn and sk-image solve")
    ('sk-proj-8NvQ2xTz41LmPq7RkYw0', None)
    """
    if isinstance(value, str):
        match = _KEY.search(value)
        return match and match[0]
    if isinstance(value, dict):
        return next((found for pair in value.items() if (found := key_in(list(pair))) is not None), None)
    if isinstance(value, list):
        return next((found for item in value if (found := key_in(item)) is not None), None)
    return None


def without_keys(value: Any) -> Any:
    """Return a value of JSON with `REPLACEMENT` for each text that looks like a key."""
    if isinstance(value, str):
        return _KEY.sub(REPLACEMENT, value)
    if isinstance(value, dict):
        return {_KEY.sub(REPLACEMENT, key): without_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_keys(item) for item in value]
    return value


def may_hold_key(text: str) -> bool:
    """Return False if JSON text holds nothing that looks like a key. This is quicker than to parse it."""
    return any(beginning in text for beginning in _BEGINNINGS)
