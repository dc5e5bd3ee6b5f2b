"""Untrusted text made safe to show, and JSON that user code cannot change."""

from __future__ import annotations

import json
import unicodedata
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.text.safe import dumps, escaped, loads, shortened

ANY_TEXT = st.text(st.characters(exclude_categories=()))


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


def test_user_code_cannot_replace_the_encoder_and_the_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in ((json, "dumps"), (json, "loads"), (json.JSONEncoder, "encode"), (json.JSONDecoder, "decode")):
        monkeypatch.setattr(owner, name, lambda *_: None)

    assert loads(dumps({"ev": "start"})) == {"ev": "start"}
