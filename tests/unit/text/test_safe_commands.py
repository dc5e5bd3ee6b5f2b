"""Escaped text holds nothing that a terminal or a runner of CI would obey, by recognisers of their own."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.text.redaction import Sanitizer
from pytest_osmosis.text.safe import escaped, one_line
from tests.hostile.sweep import control_sequences

PARTS = st.sampled_from(
    [
        *("::", ":", "error", " file=a,line=1", "##[", "##vso[", "##VSO[", "##teamcity[", "#", "]", "task.complete"),
        *("section_start:1:a", "section_end:12:b[x=y]", "\r", "\n", "\t", " ", "\u3000", "\x85", "\u2028", "\x1b[0K"),
        *("\x00", "\x7f", "\x9b31m", "\u202e", "\u200b", "\u200d", "\ufeff", "\ud800", "\uffff", "\u0301", "\u0e47"),
        *("\U000e0041", "\ufe0f", "\\", "a", "e", "é", "日", "👨"),
    ]
)
TEXTS = st.lists(PARTS, max_size=40).map("".join) | st.text()


@given(TEXTS)
def test_escaped_text_is_obeyed_by_nobody_and_stays_as_it_is(text: str) -> None:
    shown = escaped(text)
    assert not list(control_sequences(shown.encode()))
    assert escaped(shown) == shown


@given(TEXTS)
def test_one_line_is_one_line(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1


@pytest.mark.parametrize(
    "text",
    [
        "x.toml::x[row1-run0] PASSED",
        "std::vector",
        "# title ## part",
        "👨\u200d👩\u200d👧 ✔\ufe0f",
        "می\u200cرم",
        "naïve e\u0301",
        "a\tb\n",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert escaped(text) == text


@pytest.mark.parametrize(
    "text", ["e" + "\u0301" * 300_000, " " * 300_000 + "::", "#" * 300_000, "\n" * 300_000, "::" * 150_000]
)
def test_no_text_is_slow_to_escape(text: str) -> None:
    began = time.process_time()
    escaped(text)
    assert time.process_time() - began < 60.0, "quadratic time would be minutes"


def test_a_sanitizer_learns_secrets_of_several_sources_and_of_one_name() -> None:
    sanitizer = Sanitizer({"KEY": "first-value"})
    sanitizer.hide({"KEY": "second-value"}, {"OTHER": "third-value"})
    assert sanitizer.text("first-value second-value third-value") == "[KEY] [KEY] [OTHER]"
    assert sanitizer.shown("::error::\x1b first-value") == "\\::error::\\x1b [KEY]"
