"""JSON that is read back as structs: what is taken, and the place and the words of each fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Struct

from pytest_osmosis.formats import ModelTag
from pytest_osmosis.formats.codec import Count, Moment, Ms, ShapeFault, decode
from tests.raised import raised


class Part(Struct, frozen=True, kw_only=True):
    calls: Count
    word: Literal["a", "b"] | None = None


class Whole(Struct, frozen=True, kw_only=True):
    n: Count = 0
    ms: Ms = 0.0
    tag: ModelTag = ModelTag.PRIMARY
    flag: bool = False
    text: str | None = None
    parts: Sequence[Part] = ()
    by_name: Mapping[str, Mapping[str, float]] = {}
    by_row: Mapping[Count, tuple[str, str]] = {}
    open: Any = None

    def __post_init__(self) -> None:
        if self.flag and self.text is None:
            raise ValueError("lacks text, which goes with flag")


class Time(Struct):
    at: Moment


def test_members_become_those_of_a_struct() -> None:
    found = decode(
        {"n": 3, "ms": 1, "tag": "baseline", "parts": [{"calls": 1}], "by_row": {"3": ["x", "y"]}, "later": [1]}, Whole
    )

    assert found == Whole(n=3, ms=1.0, tag=ModelTag.BASELINE, parts=[Part(calls=1)], by_row={3: ("x", "y")})
    assert found.tag is ModelTag.BASELINE


def test_values_that_may_be_anything_are_the_same_objects() -> None:
    deep: dict[str, Any] = {}
    for _ in range(10_000):
        deep = {"deeper": deep}

    assert decode({"open": deep}, Whole).open is deep


def test_lone_surrogates_survive_in_texts_and_in_keys_of_mappings() -> None:
    found = decode({"text": "\ud800", "by_name": {"\ud800": {"\udfff": 1.0}}, "open": {"\ud800": 1}}, Whole)

    assert (found.text, found.by_name, found.open) == ("\ud800", {"\ud800": {"\udfff": 1.0}}, {"\ud800": 1})


FAULTS: list[tuple[Any, str]] = [
    (3, "must be an object, got 3"),
    ({"n": True}, "n: must be an integer, got True"),
    ({"n": -1}, "n: must be an integer of at least 0, got -1"),
    ({"n": 10**400}, "n: must be an integer of at most 1000000000000000, got 1000"),
    ({"ms": "1"}, "ms: must be a number, got '1'"),
    ({"ms": 10**400}, "ms: must be a smaller number, got 1000"),
    ({"tag": "third"}, "tag: cannot be 'third'"),
    ({"text": 3}, "text: must be text or null, got 3"),
    ({"flag": 1}, "flag: must be true or false, got 1"),
    ({"flag": True}, "lacks text, which goes with flag"),
    ({"parts": {}}, "parts: must be a list, got {}"),
    ({"parts": [{"calls": 1}, {"calls": "x"}]}, "parts[1].calls: must be an integer, got 'x'"),
    ({"parts": [{"calls": 1}, {}]}, "parts[1]: lacks calls"),
    ({"by_name": {"a": {}, "b": {"x": 1, "c.d]": None}}}, "by_name.b.c.d]: must be a number, got None"),
    ({"by_name": {"\x1b[31m": 3}}, r"by_name.\x1b[31m: must be an object, got 3"),
    ({"by_row": {"0": ["a", "b"], "1": ["a"]}}, "by_row.1: must be a list of length 2, got ['a']"),
    ({"by_row": {"0": ["a", "b"], "x": ["a", "b"]}}, "by_row.x: must be an integer, got 'x'"),
    ({"by_row": {"-1": ["a", "b"]}}, "by_row.-1: must be an integer of at least 0, got '-1'"),
    ({"tag": "x` - at `$.parts[7]"}, "tag: cannot be 'x` - at `$.parts[7]'"),
    ({"parts": [{"calls": 1, "word": "x - at `key` in `$.n`"}]}, "parts[0].word: cannot be 'x - at `key` in `$.n`'"),
    ({"tag": "\ud800"}, "tag: cannot be '?'"),
    ({"by_row": {"\ud800": ["a", "b"]}}, "by_row.?: must be an integer, got '?'"),
    ({"by_name": {"\ud800": {"x": ""}}}, r"by_name.\ud800.x: must be a number, got ''"),
    ({"\ud800": 3}, "the name of a member holds a lone surrogate"),
]


@pytest.mark.parametrize(("value", "fault"), FAULTS, ids=[fault for _, fault in FAULTS])
def test_a_fault_names_its_place(value: Any, fault: str) -> None:
    found = str(raised(ShapeFault, decode, value, Whole))

    assert found.startswith(fault)
    assert found.isprintable()


@given(st.integers(0, 999), st.integers(1, 3000))
def test_the_first_faulty_key_of_many_is_named(faulty: int, n: int) -> None:
    counts = {f"k{number}": {"x": "" if number >= faulty else 1.0} for number in range(faulty + n)}

    with pytest.raises(ShapeFault, match=rf"^by_name\.k{faulty}\.x: must be a number, got ''$"):
        decode({"by_name": counts}, Whole)


ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(
    st.from_regex(r"\A(0000|1900|2000|2024|2026)-[01][0-9]-[0-3][0-9]T[0-2]3:[0-6]0:[0-6]0(\.[0-9]+)?[+-][0-2]3:00\Z")
    | st.datetimes(timezones=ZONES).map(lambda at: at.isoformat())
)
@example("2026-02-28T00:00:00.123Z")
@example("2026-02-29T00:00:00Z")
@example("2026-01-01T00:00:00")
@example("2026-01-01T00:00:00Z\n")
@example("\ud800")
@example("٢٠٢٦-01-01T00:00:00Z")
def test_a_time_is_taken_if_python_reads_it(text: str) -> None:
    try:
        fits = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        fits = False
    if fits:
        assert decode({"at": text}, Time).at == text
    else:
        with pytest.raises(ShapeFault, match=r"^at: must be a time in ISO 8601 with its zone, got '"):
            decode({"at": text}, Time)
