"""JSON objects on one ASCII line each, whatever they contain.

The encoder and the decoder are made at import, so that user code cannot replace them in the module `json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_osmosis.text.safe import shortened


def dumps(message: Mapping[str, Any] | Sequence[Any]) -> str:
    try:
        return _encode(message)
    except (ValueError, TypeError):
        return _encode(_finite(message))


def _text(value: object) -> str:
    return shortened(str(value), MAX_CHARS)


MAX_CHARS = 100_000
"""The text of an object without a JSON form has no more characters."""
loads: Callable[[str], Any] = json.JSONDecoder().decode
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_text).encode


def _finite(value: Any) -> Any:
    """Return `value` with NaN, infinities and keys as text. A conversation can contain any of them."""
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
