"""Numbers in messages, and untrusted text made safe to show."""

from __future__ import annotations

import unicodedata
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.text.numbers import count, distinguishable, plural, score, seconds
from pytest_osmosis.text.safe import escaped, shortened

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00 s"),
        (0.89, "0.89 s"),
        (0.994, "0.99 s"),
        (0.996, "1.0 s"),
        (3.21, "3.2 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (119.6, "2 min 0 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 0 min"),
        (7300.0, "2 h 1 min"),
    ],
)
def test_durations(value: float, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.0, "0.000"), (0.7204, "0.720"), (-2.5, "-2.500"), (1234.5, "1,234.5")]
)
def test_scores(value: float | None, text: str) -> None:
    assert score(value) == text


def test_counts() -> None:
    assert [plural(n, "run") for n in (0, 1, 2, 1000)] == ["0 runs", "1 run", "2 runs", "1,000 runs"]
    assert count(1234567) == "1,234,567"


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(FINITE, FINITE | st.sampled_from([0.7, 1.0]))
def test_a_value_and_its_bound_look_different_if_they_are(value: float, bound: float) -> None:
    shown_value, shown_bound = map(float, distinguishable(value, bound))

    assert (shown_value >= shown_bound) == (value >= bound)


@given(ANY_TEXT)
def test_shown_text_is_safe_for_terminals_and_xml(text: str) -> None:
    safe = escaped(text)

    assert not [c for c in safe if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in "\t\n"]
    assert not [c for c in safe if unicodedata.bidirectional(c) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI")]
    element = ElementTree.Element("text")
    element.text = safe
    assert ElementTree.fromstring(ElementTree.tostring(element)).text == (safe or None)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("\x1b[31mred\x1b]0;title\x07", r"\x1b[31mred\x1b]0;title\x07"),
        ("a\r\nb", "a\nb"),
        ("over\rwritten", r"over\rwritten"),
        ("half \ud83d", r"half \ud83d"),
        ("abc\u202egpj.exe", r"abc\u202egpj.exe"),
        ("one\u2028line", r"one\u2028line"),
        ("\x9b2J", r"\x9b2J"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("grüße, 你好, 🙂", "grüße, 你好, 🙂"),
    ],
)
def test_control_characters_are_shown_as_escapes(text: str, safe: str) -> None:
    assert escaped(text) == safe


@given(ANY_TEXT, st.integers(100, 400))
def test_shortened_text_keeps_both_ends_and_its_limit(text: str, limit: int) -> None:
    text = text * 30

    short = shortened(text, limit)

    assert len(short) <= limit
    assert short[:20] == text[:20]
    assert short[-20:] == text[-20:]


def test_the_number_of_omitted_characters_is_shown() -> None:
    assert shortened("a" * 500 + "b" * 500, 100) == f"{'a' * 30} [... 940 characters left out ...] {'b' * 30}"
    assert shortened("a" * 100, 100) == "a" * 100
