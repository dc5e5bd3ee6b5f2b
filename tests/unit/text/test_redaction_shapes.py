"""A secret is found in the shapes that encoders make of it, and only there."""

from __future__ import annotations

import base64
import html
import json
import re
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.text.redaction import Redaction

KEY = "sk-Ab3/x+9.Zq_7&'tail'ä<\\\"> \n=="
REDACTION = Redaction({"KEY": KEY})


def _as_go(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _lower(url: str) -> str:
    return re.sub("%..", lambda escape: escape[0].lower(), url)


SHAPES = {
    "as it is": KEY,
    "on one line": " ".join(KEY.split()),
    "in JSON": json.dumps(KEY)[1:-1],
    "in JSON within JSON": json.dumps(json.dumps(f"<{KEY}>")),
    "in JSON with its letters": json.dumps(KEY, ensure_ascii=False),
    "in JSON with its letters within JSON": json.dumps(json.dumps(KEY, ensure_ascii=False)),
    "in JSON by PHP": json.dumps(KEY).replace("/", "\\/"),
    "in JSON by Go": _as_go(KEY),
    "in JSON by Go within JSON": json.dumps(_as_go(KEY)),
    "in Python": repr(KEY),
    "in JSON by PHP within Python": repr(f"'{json.dumps(KEY)}'").replace("/", "\\\\/"),
    "in HTML": html.escape(KEY),
    "in HTML in JSON": json.dumps(html.escape(KEY)),
    "in a URL": quote(KEY, safe=""),
    "in a path of a URL": quote(KEY),
    "in a query of a URL": quote_plus(KEY),
    "in a URL, lower case": _lower(quote(KEY, safe="")),
    "in a query of a URL, lower case": _lower(quote_plus(KEY)),
    "twice in a URL": quote(quote(KEY, safe="")),
    "userinfo of a URL": f"https://user:{quote(KEY, safe='')}@host/v1",
    **{
        f"base64 after {n} bytes": base64.b64encode(b"u:::"[:n] + KEY.encode() + b"!?"[: n % 3]).decode()
        for n in range(4)
    },
    **{f"base64url after {n} bytes": base64.urlsafe_b64encode(b"u:::"[:n] + KEY.encode()).decode() for n in range(4)},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_secret_in_another_shape_is_redacted_and_the_text_around_it_stays(shape: str) -> None:
    redacted = REDACTION.text(f"before {SHAPES[shape]} after")
    assert redacted.count("[KEY]") == 1
    assert redacted.startswith("before ")
    assert redacted.endswith(" after")
    assert "Zq_7" not in redacted


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_redacted_in_events_and_in_their_keys(shape: str) -> None:
    event = {"ev": "rollout", "row": 0, "messages": [{"role": "tool", "content": SHAPES[shape], SHAPES[shape]: [1]}]}
    (message,) = json.loads(REDACTION.event(event))["messages"]
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


@pytest.mark.parametrize("length", range(8, 14))
@pytest.mark.parametrize("before", range(4))
def test_base64_is_found_as_far_as_the_value_alone_decides_it(length: int, before: int) -> None:
    value = "aZ09~!$x+/=?%&"[:length]
    redaction = Redaction({"KEY": value})
    found = {redaction.text(base64.b64encode(bytes(before) + value.encode() + after).decode()) for after in (b"", b"z")}
    assert all("[KEY]" in text for text in found)
    assert max(len(text.replace("[KEY]", "")) for text in found) <= 4 + 4 + 4


@pytest.mark.parametrize(
    "text",
    [
        *("a production line", "sk-Ab3/x+9", "sk-Ab3/x... is the form", "%%%&&&\\\\", "é日本"),
        *(" ".join(KEY), f"{KEY[:5]}\n{KEY[5:]}", KEY[:-1], KEY[1:], KEY.encode().hex()),
    ],
)
def test_other_text_stays(text: str) -> None:
    assert REDACTION.text(text) == text
    assert not REDACTION.may_be_in(json.dumps({"content": text}).encode())


def test_nothing_is_suspected_without_secrets() -> None:
    assert not Redaction().may_be_in(b"12345678")
    assert not Redaction({"KEY": "1234567"}).may_be_in(b"1234567")


def test_white_space_does_not_make_a_value_long_enough() -> None:
    assert Redaction({"KEY": " 1234567\n"}).text("1234567 and  1234567\n") == "1234567 and  1234567\n"


def test_a_shape_of_fewer_than_8_characters_is_not_redacted() -> None:
    redaction = Redaction({"KEY": "ab \n\t  cd"})
    assert redaction.text("ab cd or ab \n\t  cd") == "ab cd or [KEY]"


@pytest.mark.parametrize("blanks", [" {} ", "\n{}\n", "\u00a0{}", "x{}x", '"{}"', "({})", "{}"])
def test_a_value_of_exactly_8_characters_is_redacted_whatever_surrounds_it(blanks: str) -> None:
    for value in ("abcd1234", " abcd1234\t"):
        assert "abcd1234" not in Redaction({"KEY": value}).text(blanks.format("abcd1234"))


def test_of_values_that_overlap_the_longest_gives_its_name() -> None:
    redaction = Redaction({"SHORT": "abcdefgh", "LONG": "abcdefghijkl", "LATER": "ijklmnop"})
    assert redaction.text("(abcdefghijkl)") == "([LONG])"
    assert redaction.text("(abcdefghijklmnop)") == "([LONG]mnop)"
    assert Redaction({"ONE": "abcdefgh", "TWO": "12345678"}).text("(abcdefgh12345678)") == "([ONE][TWO])"
