"""Inputs of fuzz targets: valid content with parts replaced, and any bytes."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

TOKENS = (
    *(b"", b"\n", b" ", b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\t", b"\x1b[31m", b"\xe2\x80\xae", b"\xed\xa0\x80"),
    *(b'"', b"'", b"[", b"]", b"{", b"}", b"=", b":", b",", b".", b"#", b"\\", b"\\ud800", b"\\u0000", b'"""', b"[["),
    *(b"0", b"-1", b"1e999", b"NaN", b"Infinity", b"nan", b"inf", b"9" * 400, b"9" * 5000, b"true", b"null", b"0x1"),
    *(
        b'"x"',
        b"[]",
        b"{}",
        b"[[]]",
        b'{"a":{}}',
        b"[" * 2000,
        b"1979-05-27T07:32:00Z",
        b"\xc2\x9b",
        b"\xf0\x9f\x98\x80",
    ),
)
ODD: Sequence[Any] = (
    *(None, True, False, 0, -1, 1, 2**63, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", "x", "0", "\x1b[31m", "\ud800", "\u202e", "a" * 5000, "../../x", "/dev/stdin", "\0"),
    *([], {}, [[]], [None], ["x"], {"": ""}, {"a": {"b": 1}}, [1, "x", None], {"ev": "start"}),
)
"""Values of JSON, and NaN and infinities, which Python writes as if they were."""


@st.composite
def mutated_bytes(draw: DrawFn, seeds: Sequence[bytes]) -> bytes:
    """A seed with up to four slices replaced by tokens, other slices, or any bytes."""
    content = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.integers(0, 40)))
        new = draw(
            st.sampled_from(TOKENS) | st.binary(max_size=20) | st.sampled_from(seeds).map(lambda seed: seed[:200])
        )
        content = content[:start] + new + content[end:]
    return content


@st.composite
def mutated_json(draw: DrawFn, value: Any) -> Any:
    """A value of JSON with up to three parts replaced, removed or added."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(0, 3))):
        holder, key = _place(draw, value)
        if holder is None:
            continue
        if isinstance(holder, dict) and draw(st.integers(0, 3)) == 0:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
    return value


def _place(draw: DrawFn, value: Any) -> tuple[Any, Any]:
    """Return a container inside a value and a key in it, (None, None) if the value has none."""
    holder, key = None, None
    while isinstance(value, (dict, list)) and value:
        keys = sorted(value) if isinstance(value, dict) else list(range(len(value)))
        holder, key = value, draw(st.sampled_from(keys))
        value = value[key]
        if draw(st.integers(0, 3)) == 0:
            break
    return holder, key


def json_document(value: Any) -> SearchStrategy[bytes]:
    """A document of mutated JSON, one whose bytes are mutated, and any bytes."""
    text = json.dumps(value, indent=2).encode()
    written = mutated_json(value).map(lambda mutated: json.dumps(mutated, indent=2).encode())
    return written | mutated_bytes([text]) | st.binary(max_size=200)


def json_lines(values: Sequence[Any]) -> SearchStrategy[bytes]:
    """Lines of mutated JSON in any order, lines whose bytes are mutated, and any bytes."""
    line = st.sampled_from(values).flatmap(mutated_json).map(lambda value: json.dumps(value).encode() + b"\n")
    text = b"".join(json.dumps(value).encode() + b"\n" for value in values)
    return st.lists(line, max_size=8).map(b"".join) | mutated_bytes([text]) | st.binary(max_size=200)
