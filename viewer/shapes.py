"""Write src/shapes.ts, the types of the JSON that Python gives the front end: `python viewer/shapes.py`."""

from __future__ import annotations

import inspect
import re
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from msgspec import Struct

VIEWER = Path(__file__).resolve().parent
if str(VIEWER.parent) not in sys.path:  # when run as a file
    sys.path.insert(0, str(VIEWER.parent))

from pytest_osmosis.addons.viewer import shapes  # noqa: E402

TYPES = VIEWER / "src" / "shapes.ts"
_PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null", Any: "any"}


def typescript() -> str:
    """Return the text of shapes.ts."""
    parts = ["// Made by `python viewer/shapes.py` from addons/viewer/shapes.py, where every key is explained.\n"]
    parts += [
        f"export type {name} = {_type(value)};\n"
        for name, value in vars(shapes).items()
        if get_origin(value) is Literal
    ]
    for name, shape in vars(shapes).items():
        if inspect.isclass(shape) and (typing.is_typeddict(shape) or issubclass(shape, Struct)):
            keys = typing.get_type_hints(shape)
            parts.append(_interface(name, keys))
    return "\n".join(parts)


def _interface(name: str, keys: Mapping[str, Any]) -> str:
    lines = "".join(f"  {key}: {_type(kind)};\n" for key, kind in keys.items())
    return f"export interface {name} {{\n{lines}}}\n"


def _type(kind: Any) -> str:
    """Return a type as TypeScript writes it."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " | ".join(f'"{each}"' for each in arguments)
    if origin in (types.UnionType, typing.Union):
        return " | ".join(map(_type, arguments))
    if origin is Sequence:
        inner = _type(arguments[0])
        return f"{inner}[]" if re.fullmatch(r"[\w\[\]]+", inner) else f"({inner})[]"
    if origin is Mapping:
        return f"Record<{_type(arguments[0])}, {_type(arguments[1])}>"
    return str(kind.__name__)


if __name__ == "__main__":
    TYPES.write_text(typescript(), encoding="utf-8")
