"""A secret is found in the shapes that encoders make of it, and only there."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.text.redaction import Redaction

KEY = "sk-Ab3/x+9.Zq_7&'tail'ä<\\\"> \n=="


@pytest.fixture
def redaction() -> Redaction:
    return Redaction({"KEY": KEY})


def _as_go(text: str) -> str:
    return _in_json(text, ascii=False).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _lower(url: str) -> str:
    return re.sub("%..", lambda escape: escape[0].lower(), url)


def _in_json(text: str, *, ascii: bool = True) -> str:
    return json.dumps(text, ensure_ascii=ascii)[1:-1]


SHAPES = {
    "as it is": KEY,
    "on one line": " ".join(KEY.split()),
    "in JSON": _in_json(KEY),
    "in JSON within JSON": _in_json(_in_json(KEY)),
    "in JSON with its letters": _in_json(KEY, ascii=False),
    "in JSON with its letters within JSON": _in_json(_in_json(KEY, ascii=False)),
    "in JSON by PHP": _in_json(KEY).replace("/", "\\/"),
    "in JSON by PHP with its letters": _in_json(KEY, ascii=False).replace("/", "\\/"),
    "in JSON by Go": _as_go(KEY),
    "in JSON by Go within JSON": _in_json(_as_go(KEY)),
    "in Python": repr(KEY)[1:-1],
    "in JSON by PHP within Python": repr(f"'{_in_json(KEY)}").replace("/", "\\\\/")[3:-1],
    "in HTML": html.escape(KEY),
    "in HTML within JSON": _in_json(html.escape(KEY)),
    "in a URL": quote(KEY, safe=""),
    "in a path of a URL": quote(KEY),
    "in a query of a URL": quote_plus(KEY),
    "in a URL, lower case": _lower(quote(KEY, safe="")),
    "in a query of a URL, lower case": _lower(quote_plus(KEY)),
    "twice in a URL": quote(quote(KEY, safe="")),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_secret_in_another_shape_is_redacted_and_the_text_around_it_stays(redaction: Redaction, shape: str) -> None:
    assert redaction.text(f"before {SHAPES[shape]} after") == "before [KEY] after"
    event = {"ev": "rollout", "row": 0, "messages": [{"role": "tool", "content": SHAPES[shape], SHAPES[shape]: [1]}]}
    (message,) = json.loads(redaction.event(event))["messages"]
    assert message["content"].count("[KEY]") == 1
    assert list(message)[2].count("[KEY]") == 1


@given(st.text(min_size=8).filter(lambda value: len(value.strip()) >= 8))
def test_any_secret_is_found_in_what_encoders_make_of_it(value: str) -> None:
    value = value.strip()
    redaction = Redaction({"KEY": value})
    content = value.encode("utf-8", "surrogatepass")
    for shape in (
        *(value, json.dumps(value)[1:-1], json.dumps(json.dumps(value)[1:-1])[1:-1]),
        *(html.escape(value), quote(content, safe=""), quote_plus(content)),
        base64.b64encode(content).decode(),
    ):
        assert "[KEY]" in redaction.text(f"<{shape}>")
        assert redaction.may_be_in(json.dumps({"content": f"<{shape}>"}).encode())


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("after", [b"", b"\xff", b"\xffz"])
@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("length", [9, 10, 11])
def test_of_base64_those_digits_are_redacted_that_the_value_alone_decides(
    length: int, before: int, after: bytes, encode: Callable[[bytes], bytes]
) -> None:
    value = "~?~>~\u00ff~?~>"[: length - 1]  # of which one character has two bytes
    digits = encode(b"\xff" * before + value.encode() + after).decode()
    first, end = -(-8 * before // 6), 8 * (before + length) // 6
    assert Redaction({"KEY": value}).text(digits) == f"{digits[:first]}[KEY]{digits[end:]}"


@pytest.mark.parametrize(
    "text",
    [
        *("a production line", "sk-Ab3/x+9", "sk-Ab3/x... is the form", "%%%&&&\\\\", "é日本"),
        *(" ".join(KEY), f"{KEY[:5]}\n{KEY[5:]}", KEY[:-1], KEY[1:], KEY.encode().hex()),
    ],
)
def test_other_text_stays(redaction: Redaction, text: str) -> None:
    assert redaction.text(text) == text
    assert not redaction.may_be_in(json.dumps({"content": text}).encode())


def test_values_and_shapes_of_fewer_than_8_characters_stay_and_the_longest_of_several_gives_its_name() -> None:
    assert not Redaction().may_be_in(b"12345678")
    assert not Redaction({"KEY": "1234567"}).may_be_in(b"1234567")
    assert Redaction({"KEY": " 1234567\n"}).text("1234567 and  1234567\n") == "1234567 and  1234567\n"
    assert Redaction({"KEY": "ab \n\t  cd"}).text("ab cd or ab \n\t  cd") == "ab cd or [KEY]"

    redaction = Redaction({"SHORT": "abcdefgh", "LONG": "abcdefghijkl", "LATER": "ijklmnop"})
    assert redaction.text("(abcdefghijkl)") == "([LONG])"
    assert redaction.text("(abcdefghijklmnop)") == "([LONG]mnop)"
    assert Redaction({"ONE": "abcdefgh", "TWO": "12345678"}).text("(abcdefgh12345678)") == "([ONE][TWO])"


@pytest.mark.parametrize("blanks", [" {} ", "\n{}\n", "\u00a0{}", "x{}x", '"{}"', "({})", "{}"])
def test_a_value_of_exactly_8_characters_is_redacted_whatever_surrounds_it(blanks: str) -> None:
    for value in ("abcd1234", " abcd1234\t"):
        assert "abcd1234" not in Redaction({"KEY": value}).text(blanks.format("abcd1234"))
