"""The codec of what is stored and published: values of JSON are checked by their types, and become structs.

Bytes are read by `files.reading`, because msgspec's own parser refuses lone surrogates, which models and user code
produce, and takes the last of repeated keys. Structs take what a later version adds: members that they do not declare
are passed over. Values of type `Any` are neither checked nor copied.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from msgspec import Meta, ValidationError, convert, to_builtins

from pytest_osmosis.text.safe import one_line

LARGEST = 10**15
"""The largest count, time or price that is believed: none of ours comes near it."""
DAY = (
    "(?!0000)[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|0[48]|[13579][26])00)-02-29"
)
TIME_OF_DAY = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
MOMENT = rf"^(?:{DAY})T{TIME_OF_DAY}:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-]{TIME_OF_DAY})$(?!\n)"
ROW_KEY = r"^[0-9]{1,15}$(?!\n)"
MODEL = r"^(?:primary|baseline|judge)$(?!\n)"
HEXADECIMAL = r"^(?:[0-9a-f]{2})*$(?!\n)"
PATTERNS = {
    repr(MOMENT): "a time in ISO 8601 with its zone",
    repr(HEXADECIMAL): "hexadecimal digits",
    repr(ROW_KEY): "the index of a row",
    repr(MODEL): "primary, baseline or judge",
}
"""The texts that fit each pattern, in words."""

Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Positive = Annotated[int, Meta(ge=1, le=LARGEST)]
Amount = Annotated[float, Meta(ge=0, le=LARGEST)]
Ms = Amount
Share = Annotated[float, Meta(ge=0, le=1)]
Moment = Annotated[str, Meta(pattern=MOMENT)]
"""A time, as text that `datetime.fromisoformat` reads. It has a zone."""
RowKey = Annotated[str, Meta(pattern=ROW_KEY)]
"""The index of a row as the name of a member."""
AnyModel = Annotated[str, Meta(pattern=MODEL)]
"""The tag of one of the models of an eval, or of its judge."""


T = TypeVar("T")
QUOTED_CHARS = 100


class ShapeFault(ValueError):
    """A value that does not fit; the text begins with its place, like "errors.f.message: must be text, got 3"."""

    def __init__(self, text: str, place: str = "") -> None:
        super().__init__(f"{place.removeprefix('.')}: {text}" if place else text)
        self._text = text
        self._place = place

    def within(self, step: str | int) -> ShapeFault:
        """Return this fault with the place of the value that holds the other."""
        key = f"[{step}]" if isinstance(step, int) else f".{one_line(step, QUOTED_CHARS)}"
        return ShapeFault(self._text, key + self._place)


def decode(value: object, kind: type[T]) -> T:
    """Return a value of JSON as a struct. Raises `ShapeFault` with the place of the first part that does not fit."""
    try:
        return convert(value, kind, str_keys=True)
    except ValidationError as error:
        raise _placed(str(error), value, kind) from None
    except UnicodeEncodeError:  # a lone surrogate where only a word of ours can be
        decode(json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")), kind)
        raise ShapeFault("the name of a member holds a lone surrogate") from None


def builtin(value: object) -> Any:
    """Return a struct, or what holds structs and dataclasses, as values for JSON. What it lacks becomes text."""
    return to_builtins(value, str_keys=True, enc_hook=_foreign)


def encode(value: object) -> Any:
    """Return the same as JSON gives it back, with lists for tuples. That takes ten times as long."""
    return json.loads(json.dumps(builtin(value)))


def _foreign(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


def check_version(data: Mapping[str, Any], known: int) -> None:
    """Raise `ShapeFault` if an object is of another version of its format."""
    version = data.get("schema_version", known)
    if version != known or isinstance(version, bool):
        raise ShapeFault(f"has schema_version {quoted(version)}, and this version of pytest-osmosis reads {known}")


def quoted(value: Any) -> str:
    """Return a value of JSON, shortened.

    >>> quoted(True), quoted([1, 2]), quoted("x")
    ('True', '[1, 2]', "'x'")
    """
    return one_line(repr(value) if isinstance(value, str) else reprlib.repr(value), QUOTED_CHARS)


def _placed(error: str, whole: object, kind: type) -> ShapeFault:
    """Return an error of msgspec as a fault. It names no key of a mapping, so these are looked for."""
    told = _ERROR.fullmatch(error)
    assert told is not None  # it matches any text
    text, is_key, place = told.groups()
    steps: list[str | int] = []
    value: Any = whole
    for step in _STEP.finditer((place or "") + ("[...]" if is_key else "")):
        if step[0] == "[...]":
            steps.append(_faulty_key(value, lambda some: _error(_with(whole, steps, some), kind) == error))
        else:
            steps.append(step[1] or int(step[2]))
        value = value[steps[-1]]
    fault = ShapeFault(_worded(text, steps[-1] if is_key else value))
    for key in reversed(steps):
        fault = fault.within(key)
    return fault


_ERROR = re.compile(r"(.*?)(?: - at (`key` in )?`\$([^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\.([^.[]+)|\[([0-9]+)\]|\[\.\.\.\]")


def _faulty_key(mapping: Mapping[str, Any], fails: Callable[[Mapping[str, Any]], bool]) -> str:
    """Return the first key of a mapping that makes it fail; each step halves the keys that it can be."""
    keys = list(mapping)
    while len(keys) > 1:
        half = keys[: len(keys) // 2]
        keys = half if fails({key: mapping[key] for key in half}) else keys[len(half) :]
    return keys[0]


def _error(value: object, kind: type) -> str | None:
    try:
        convert(value, kind, str_keys=True)
    except (ValidationError, UnicodeEncodeError) as error:
        return str(error)
    return None


def _with(value: Any, steps: Sequence[str | int], new: object) -> object:
    """Return a value of JSON with another one in the place to which the steps lead."""
    if not steps:
        return new
    copy = value.copy()
    copy[steps[0]] = _with(value[steps[0]], steps[1:], new)
    return copy


def _worded(error: str, value: object) -> str:
    """Return an error of msgspec about a value in our words."""
    if (missing := re.fullmatch("Object missing required field `(.*)`", error)) is not None:
        return f"lacks {missing[1]}"
    if (expected := re.fullmatch("Expected `(.*?)`(.*?)(?:, got .*)?", error)) is not None:
        kinds = " or ".join(_KINDS.get(kind, kind) for kind in expected[1].split(" | "))
        bound = expected[2].replace(" of length >=", " of length at least")
        bound = bound.replace(">=", "of at least").replace("<=", "of at most").removesuffix(".0")
        if bound.startswith(" matching regex"):
            kinds, bound = PATTERNS[bound.removeprefix(" matching regex ")], ""
        return f"must be {kinds}{bound}, got {quoted(value)}"
    if error == "Number out of range":
        return f"must be a smaller number, got {quoted(value)}"
    return f"cannot be {quoted(value)}" if error.startswith("Invalid ") else error


_KINDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "an integer",
    "object": "an object",
    "str": "text",
}
