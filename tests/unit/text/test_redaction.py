"""Secrets are redacted in the shapes that encoders make of them, but for the fields that make an event one."""

from __future__ import annotations

import base64
import html
import json
import math
import re
import string
from collections import UserDict
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.models.providers import secret_headers
from pytest_osmosis.text.redaction import REPLACEMENT, Redaction, key_in, may_hold_key, without_keys


@given(st.text(min_size=8).filter(lambda value: len(value.strip()) >= 8), st.integers(0, 2))
def test_a_value_is_redacted_at_any_depth_of_an_event(value: str, depth: int) -> None:
    content = value
    for _ in range(depth):
        content = json.dumps({"nested": content})
    event = {"ev": "rollout", "row": 1, "messages": [{"role": "user", "content": f"<{content}>", value: [value]}]}
    redacted = json.loads(Redaction({"KEY": value}).event(event))
    assert (redacted["ev"], redacted["row"]) == ("rollout", 1)
    (message,) = redacted["messages"]
    assert value.strip() not in message["content"] or value.strip() in "[KEY]<>"
    before, after = value[: len(value) - len(value.lstrip())], value[len(value.rstrip()) :]
    assert [key for key in message if key not in ("role", "content")] == [f"{before}[KEY]{after}"]


@pytest.mark.parametrize("value", ["messages", "provider", "12345678", "rewards:exact", 'ev": "rollout'])
def test_a_value_that_equals_a_field_name_does_not_break_events(value: str) -> None:
    def event(said: str) -> dict[str, object]:
        begin = {"ev": "score", "row": 12345678, "run": 0, "attempt": 1}
        return begin | {
            "scores": {"rewards:exact": 1.0},
            "errors": {"rewards:exact": {"message": f"said {said}", "details": ""}},
            "boundary": "provider",
            "output": {"stdout": said},
            "metrics": {"rewards:exact": {f"of {said}": 1.0}},
            "reasons": {"rewards:exact": f"saw {said}"},
            "fields": {"rollout": {"plan": [said]}},
            "ground_truth": said,
        }

    assert json.loads(Redaction({"KEY": value}).event(event(value))) == event("[KEY]")


def test_a_value_that_is_added_later_is_redacted_from_then_on() -> None:
    redaction = Redaction({"FIRST": "abcdefgh"})
    event = {"ev": "log", "text": "abcdefgh 12345678"}
    assert json.loads(redaction.event(event))["text"] == "[FIRST] 12345678"
    redaction.add({"SECOND": "12345678"})
    assert json.loads(redaction.event(event))["text"] == "[FIRST] [SECOND]"
    assert redaction.may_be_in(b"12345678")


def test_the_first_name_of_a_value_counts_and_what_is_under_some_keys_may_stay() -> None:
    assert Redaction({"ONE": "abcdefgh", "TWO": "abcdefgh"}, {"THREE": "abcdefgh"}).text("abcdefgh") == "[ONE]"

    value = {"id": "abcdefgh", "abcdefgh": ("abcdefgh", {"id": ["abcdefgh"], "n": 1, "no": None})}
    redacted = Redaction({"KEY": "abcdefgh"}).value(value, unchanged={"id"})
    assert redacted == {"id": "abcdefgh", "[KEY]": ["[KEY]", {"id": ["abcdefgh"], "n": 1, "no": None}]}


class Fields(UserDict[str, object]):
    """A mapping that does not show what it holds."""

    __repr__ = object.__repr__


class Said:
    def __str__(self) -> str:
        return "it was abcdefgh"


HOLDERS: dict[str, tuple[object, object]] = {
    "tuple": (("abcdefgh",), ["[KEY]"]),
    "key": ({"abcdefgh": 1}, {"[KEY]": 1}),
    "value of a number": ({12: "abcdefgh"}, {"12": "[KEY]"}),
    "number as key": ({12345678.5: 0}, {"12345678.5": 0}),
    "object": (Said(), "it was [KEY]"),
    "mapping beside a number without JSON": ([math.nan, Fields(key="abcdefgh")], ["nan", {"key": "[KEY]"}]),
    "list": ([1, 2.5, True, None, "abcdefgh"], [1, 2.5, True, None, "[KEY]"]),
}


@pytest.mark.parametrize(("given", "redacted"), HOLDERS.values(), ids=HOLDERS)
def test_a_value_is_redacted_in_whatever_an_event_holds(given: object, redacted: object) -> None:
    assert json.loads(Redaction({"KEY": "abcdefgh"}).event({"ev": "log", "text": given}))["text"] == redacted


def test_headers_that_carry_credentials_are_secret() -> None:
    headers = {"Authorization": "Bearer abc", "X-Api-Key": "def", "Proxy-Authorization": "Basic ghi", "X-Trace": "jkl"}
    assert secret_headers(headers) == {"Authorization": "abc", "X-Api-Key": "def", "Proxy-Authorization": "ghi"}


KEY = "sk-Ab3/x+9.Zq_7&'tail'ä<\\\"> \n=="


@pytest.fixture
def redaction() -> Redaction:
    return Redaction({"KEY": KEY})


def _lower(url: str) -> str:
    return re.sub("%..", lambda escape: escape[0].lower(), url)


def _in_json(text: str, *, ascii: bool = True) -> str:
    return json.dumps(text, ensure_ascii=ascii)[1:-1]


GO = _in_json(KEY, ascii=False).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


SHAPES = {
    "as it is": KEY,
    "on one line": " ".join(KEY.split()),
    "in JSON": _in_json(KEY),
    "in JSON within JSON": _in_json(_in_json(KEY)),
    "in JSON with its letters": _in_json(KEY, ascii=False),
    "in JSON with its letters within JSON": _in_json(_in_json(KEY, ascii=False)),
    "in JSON by PHP": _in_json(KEY).replace("/", "\\/"),
    "in JSON by PHP with its letters": _in_json(KEY, ascii=False).replace("/", "\\/"),
    "in JSON by Go": GO,
    "in JSON by Go within JSON": _in_json(GO),
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


ALNUM = (string.ascii_letters + string.digits) * 2
KEYS = [
    "sk-" + ALNUM[40:88],
    "sk-ant-api03-" + ALNUM[30:90] + "_-AA",
    "sk-or-v1-" + "0a" * 32,
    "AKIAIOSFODNN7EXAMPLE",
    "AIza" + ALNUM[40:75],
    "ghp_" + ALNUM[30:66],
    "github_pat_" + ALNUM[30:90],
    "glpat-" + ALNUM[50:70],
    "xoxb-123456789012-abcdefABCDEF",
    "hf_" + ALNUM[20:54],
    "gsk_" + ALNUM[20:72],
    "xai-" + ALNUM[20:90],
    "pypi-AgEIcHlwaS5vcmc" + ALNUM[:40],
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9",
    "-----BEGIN OPENSSH PRIVATE KEY-----",
]
TEXTS = [
    "sk-learn and sk-image, a task-oriented risk-free desk-top",
    "scikit-learn-contrib, mask-rcnn-resnet-50-fpn-coco-2017",
    "call_abcDEF0123456789abcdef0123456789, toolu_01A09q90qw90lq917835lq9, chatcmpl-8a7f00e1",
    "hf_hub_download, gsk_, xoxb, AKIA is the beginning of keys of AWS",
    "eyJ is how a JSON Web Token begins; -----BEGIN CERTIFICATE-----",
    "0123456789abcdef" * 8,
]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_found_in_any_text(key: str) -> None:
    for text in (key, f'use "{key}", please', f"\n{key}\n", f"KEY={key}"):
        found = key_in({"messages": [{"content": text}]})
        assert found is not None
        assert key.startswith(found[:10])
        assert may_hold_key(json.dumps(text))
        assert without_keys([{text: text}]) == [{text.replace(found, REPLACEMENT): text.replace(found, REPLACEMENT)}]


@pytest.mark.parametrize("value", [*TEXTS, [1, 2.5, True, None, {"a": 0}]])
def test_other_text_and_what_is_no_text_are_left_alone(value: object) -> None:
    assert key_in(value) is None
    assert without_keys(value) == value
    assert not may_hold_key('{"content": "nothing of the kind"}')
