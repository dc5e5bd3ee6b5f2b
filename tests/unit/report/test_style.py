"""Styled text is plain text to whatever reads it, and only its own styles become colours."""

from __future__ import annotations

import pytest

from pytest_osmosis.report.style import Style, ansi, bad, dim, good, joined, painted
from pytest_osmosis.text.redaction import Sanitizer

SECRET = "sk-a-secret-of-the-session"


def tagged(text: str, style: Style) -> str:
    """Paint for a reader: "<good>text</>"."""
    return f"<{style}>{text}</>"


def test_styled_text_equals_its_plain_text_and_joined_keeps_every_style() -> None:
    line = joined("gate x: ", good("HOLDS"), ": 9 of 10")

    assert line == "gate x: HOLDS: 9 of 10"
    assert line in {"gate x: HOLDS: 9 of 10"}
    assert line.split() == ["gate", "x:", "HOLDS:", "9", "of", "10"]

    styles = joined(joined("a ", bad("b")), " ", "", dim("c"))

    assert painted(styles, str, tagged) == "a <bad>b</> <dim>c</>"
    assert painted(joined("a ", bad("b"), " c"), str, ansi) == "a \x1b[31mb\x1b[0m c"
    assert painted("plain", str, tagged) == "plain"
    assert painted(joined("plain", good("")), str, tagged) == "plain"


@pytest.mark.parametrize("hostile", ["\x1b[32mHOLDS\x1b[0m", "\x9b32mHOLDS", "\r\x1b]0;title\x07"])
def test_control_characters_in_a_text_stay_escapes(hostile: str) -> None:
    shown = painted(joined(hostile, bad(hostile)), Sanitizer().shown, tagged)

    clean = Sanitizer().shown(hostile)
    assert shown == f"{clean}<bad>{clean}</>"
    assert shown.isprintable()


def test_a_secret_or_a_command_across_pieces_is_found() -> None:
    sanitizer = Sanitizer({"KEY": SECRET})

    across = painted(joined(SECRET[:9], bad(SECRET[9:])), sanitizer.shown, ansi)
    command = painted(joined("#", bad("#[group]x")), sanitizer.shown, ansi)
    within = painted(joined("key ", bad(SECRET)), sanitizer.shown, tagged)

    assert across == sanitizer.shown(SECRET)
    assert SECRET[9:] not in across
    assert command == sanitizer.shown("##[group]x")
    assert within == f"key <bad>{sanitizer.shown(SECRET)}</>", "it leaves the styles"
