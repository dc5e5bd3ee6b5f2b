"""A secret is found in every shape in which a server, a model or user code may give it back."""

from __future__ import annotations

import base64
import html
import json
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.text.normal_form import NormalForm, normal_form
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.text.safe import shortened

KEY = "sk-Ab3/x+9.Zq_7&tail"
REDACTION = Redaction({"KEY": KEY})


def _percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


SHAPES = {
    "as it is": KEY,
    "over lines": KEY[:5] + "\n   " + KEY[5:],
    "letter by letter": " ".join(KEY),
    "with zero-width spaces": "\u200b".join(KEY),
    "in JSON": json.dumps(KEY).replace("/", "\\/")[1:-1],
    "in JSON within JSON": json.dumps(json.dumps(f"<{KEY}>")),
    "over lines in JSON": json.dumps({"a": KEY[:5] + "\r\n\t" + KEY[5:]}),
    "every letter in JSON": "".join(f"\\u{ord(char):04x}" for char in KEY),
    "some letters in JSON": KEY.replace("A", "\\u0041"),
    "in Python": "".join(f"\\x{ord(char):02x}" for char in KEY),
    "in HTML": html.escape(KEY),
    "every letter in HTML": "".join(f"&#{ord(char)};" for char in KEY),
    "every letter in HTML, hexadecimal": "".join(f"&#X{ord(char):X};" for char in KEY),
    "in a URL": quote(KEY, safe=""),
    "in a URL, lower case": quote(KEY, safe="").replace("%2F", "%2f").replace("%2B", "%2b"),
    "every letter in a URL": _percent(KEY),
    "twice in a URL": quote(quote(KEY, safe="")),
    "every letter twice in a URL": quote(_percent(KEY)),
    "twice in HTML": html.escape(html.escape(KEY)),
    "every letter twice in HTML": html.escape("".join(f"&#{ord(char)};" for char in KEY)),
    "userinfo of a URL": f"https://user:{quote(KEY, safe='')}@host/v1",
    "hexadecimal": KEY.encode().hex(),
    "hexadecimal, upper case": KEY.encode().hex().upper(),
    **{
        f"base64 after {n} bytes": base64.b64encode(b"u:::"[:n] + KEY.encode() + b"!?"[: n % 3]).decode()
        for n in range(4)
    },
    **{f"base64url after {n} bytes": base64.urlsafe_b64encode(b"u:::"[:n] + KEY.encode()).decode() for n in range(4)},
    "base64 over lines": base64.encodebytes(b"x" * 50 + KEY.encode()).decode(),
    "base64 in a URL": quote(base64.b64encode(KEY.encode()).decode(), safe=""),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_secret_in_another_shape_is_redacted_and_the_text_around_it_stays(shape: str) -> None:
    redacted = REDACTION.text(f"before {SHAPES[shape]} after")
    assert "[KEY]" in redacted
    assert redacted.startswith("before ")
    assert redacted.endswith(" after")
    assert not any(piece in normal_form(redacted) for piece in (KEY, normal_form(KEY)[4:12], KEY.encode().hex()[4:20]))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_redacted_in_events_and_in_their_keys(shape: str) -> None:
    event = {"ev": "rollout", "row": 0, "messages": [{"role": "tool", "content": SHAPES[shape], SHAPES[shape]: [1]}]}
    (message,) = json.loads(REDACTION.event(event))["messages"]
    assert "[KEY]" in message["content"]
    assert "[KEY]" in list(message)[2]


ENCODABLE = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), min_size=8)


@given(ENCODABLE.filter(lambda value: len(normal_form(value)) >= 8), st.integers(0, 7))
def test_any_secret_is_found_in_its_normal_form(value: str, cut: int) -> None:
    value = value.strip()
    redaction = Redaction({"KEY": value})
    content = value.encode()
    for shape in (
        f"{value[:cut]}\n {value[cut:]}",
        "".join(f"&#{ord(char)};" for char in value),
        "".join(f"%{byte:02x}" for byte in content),
        base64.b64encode(content).decode(),
        content.hex(),
    ):
        assert "[KEY]" in redaction.text(f"<{shape}>")


@given(st.text(alphabet="ab \\un0%4&#;\n\u200b\ud83d\u00e9x"), st.data())
def test_places_of_a_normal_form_lead_back(text: str, data: st.DataObject) -> None:
    normal = NormalForm(text)
    if normal.text:
        start = data.draw(st.integers(0, len(normal.text) - 1))
        end = data.draw(st.integers(start + 1, len(normal.text)))
        first, last = normal.span(start, end)
        assert 0 <= first < last <= len(text)
        assert normal.text[start:end] in NormalForm(text[first:last]).text


@pytest.mark.parametrize("text", ["a production line", "sk-Ab3/x+9", "sk-Ab3/x... is the form", "%%%&&&\\\\", "é日本"])
def test_ordinary_text_stays(text: str) -> None:
    assert REDACTION.text(text) == text


def test_white_space_does_not_make_a_value_long_enough() -> None:
    assert Redaction({"KEY": " 1234567\n"}).text("1234567 and  1234567\n") == "1234567 and  1234567\n"


@pytest.mark.parametrize("blanks", [" {} ", "\n{}\n", "\u00a0{}", "x{}x", '"{}"', "({})"])
def test_a_value_of_exactly_8_characters_is_redacted_whatever_surrounds_it(blanks: str) -> None:
    for value in ("abcd1234", " abcd1234\t"):
        assert "abcd1234" not in Redaction({"KEY": value}).text(blanks.format("abcd1234"))


def test_a_secret_that_a_shortened_text_cuts_is_redacted() -> None:
    long = "tok-" + "0123456789abcdefghij" * 20
    redaction = Redaction({"LONG": long})
    assert redaction.text(f'must be an integer, got "{long[:90]}...') == 'must be an integer, got "[LONG]...'
    cut = redaction.text(shortened(f"it is {long}", 200))
    assert cut.startswith("it is [LONG] [... ")
    assert cut.endswith("left out ...] [LONG]")


CUT = 'ä"bcdefghij0123456789-ABCDEFGHIJ\\end'


@pytest.mark.parametrize(
    "form",
    [
        CUT,
        json.dumps(CUT)[1:-1],
        json.dumps(json.dumps(CUT)[1:-1])[1:-1],
        json.dumps(CUT, ensure_ascii=False)[1:-1],
    ],
    ids=["as it is", "in JSON", "in JSON within JSON", "in JSON with its letters"],
)
def test_half_of_a_value_or_12_characters_of_it_are_found_where_a_text_was_cut(form: str) -> None:
    redaction = Redaction({"KEY": CUT})
    around = "nothing of it, " * 3
    for n in (12, 13, 20, len(form) - 1):
        assert redaction.text(f"{around}<{form[:n]}... {around}") == f"{around}<[KEY]... {around}"
        assert redaction.text(f"{around}...{form[-n:]}> {around}") == f"{around}...[KEY]> {around}"
        assert redaction.text(f"...{form[-n:]}") == "...[KEY]"
    for whole in (f"<{form[:20]}> {around}", f"{around}<{form[-20:]}>", form[-20:]):
        assert redaction.text(whole) == whole
    for text in (f"<{form[:11]}... {around}", f"{around}...{form[-11:]}>"):
        assert redaction.text(text) == text


def test_half_of_a_short_value_is_found_where_a_text_was_cut() -> None:
    redaction = Redaction({"KEY": "abcd1234"})
    assert [redaction.text(text) for text in ("abcd...", "abc...", "...1234", "...234")] == [
        *("[KEY]...", "abc...", "...[KEY]", "...234")
    ]


def test_a_text_that_begins_with_the_end_of_a_value_was_not_cut_there() -> None:
    text = "abcdefghijkl...."
    assert Redaction({"KEY": f"first-part.{text[:12]}"}).text(text) == text


def test_of_values_that_overlap_the_first_and_longest_gives_its_name() -> None:
    redaction = Redaction({"SHORT": "abcdefgh", "LONG": "abcdefghijkl", "LATER": "ijklmnop"})
    assert redaction.text("(a b c d e f g h i j k l)") == "([LONG])"
    assert redaction.text("(a b c d e f g h i j k l m n o p)") == "([LONG])"
    assert Redaction({"ONE": "abcdefgh", "TWO": "12345678"}).text("(a b c d e f g h1 2 3 4 5 6 7 8)") == "([ONE][TWO])"


def test_a_value_with_blanks_is_found_in_a_query() -> None:
    assert Redaction({"KEY": "two words or more"}).text("?q=two+words+or+more&n=1") == "?q=[KEY]&n=1"


def test_a_value_with_a_short_normal_form_is_found_as_it_is_alone() -> None:
    redaction = Redaction({"OTHER": "0123456789", "KEY": "a b c d e"})
    assert redaction.text("(a b c d e) (abcde)") == "([KEY]) (abcde)"
    assert json.loads(redaction.event({"ev": "log", "text": "(a b c d e)"}))["text"] == "([KEY])"


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ('"!#~', '"!#~'),
        ("a \x7fb\x00c\u200bd", "abcd"),
        (r"\ud83d\ude00!", "\U0001f600!"),
        (r"\\ud83d\\ude00!", "\U0001f600!"),
        (r"\udbff\udfff", "\U0010ffff"),
        (r"\ud800\udc00", "\U00010000"),
        (r"a\u0020b\x20c%20d&#32;e", "abcde"),
        (r"\u00e4\xe4%C3%A4&#228;&auml;", "äääää"),
        ("%2541&amp;#65;", "AA"),
        (r"\new\\day\q", "ewdayq"),
    ],
)
def test_both_ways_to_the_normal_form_agree(text: str, normal: str) -> None:
    assert normal_form(text) == normal
    assert NormalForm(text).text == normal


@pytest.mark.parametrize(
    "hidden",
    [
        *(KEY, KEY[:12], KEY[-12:], json.dumps(KEY[:5] + " \n\r\t" + KEY[5:]), " ".join(KEY).replace(" ", r"\n")),
        *(base64.b64encode(KEY.encode()).decode(), KEY.encode().hex()),
    ],
)
def test_a_value_that_may_be_in_lines_is_suspected(hidden: str) -> None:
    assert REDACTION.may_be_in(f'{{"content": "before {hidden} after"}}\n'.encode())


def test_nothing_is_suspected_without_reason() -> None:
    lines = b'{"content": "sk-Ab3/x+ and KEY"}\n'
    assert not REDACTION.may_be_in(lines)
    assert not Redaction().may_be_in(lines)
    assert not Redaction({"KEY": "12345"}).may_be_in(b"12345")


def test_pieces_of_six_characters_are_suspected_and_shorter_ones_are_not() -> None:
    redaction = Redaction({"LONG": "abcdefghijkl", "SHORT": "0123456789"})
    assert [redaction.may_be_in(piece) for piece in (b"abcdef", b"ghijkl", b"01234", b"56789")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("place", [0, 199_980, 200_001, 300_000])
def test_a_disguised_secret_is_found_wherever_it_stands_in_a_long_text(place: int) -> None:
    """A long text is looked at in windows: the normal form of 5 MB can take 500 MB."""
    text = "a " * 150_000
    redacted = REDACTION.text(text[:place] + " ".join(KEY) + text[place:])
    assert redacted.count("[KEY]") == 1
    assert len(redacted) == len(text) + len("[KEY]")


@pytest.mark.parametrize(
    "hostile", ["\\" * 400_000, "\\u00" * 100_000, "%4" * 200_000, "&#" * 200_000, "s k - " * 70_000]
)
def test_no_text_makes_the_search_slow(hostile: str) -> None:
    began = time.process_time()
    REDACTION.text(hostile + KEY.encode().hex().replace("7", "7 "))
    assert time.process_time() - began < 60.0, "quadratic time would be minutes"
