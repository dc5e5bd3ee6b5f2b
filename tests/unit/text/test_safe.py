"""Untrusted text holds nothing that anyone would obey; objects, errors and chats of any framework, in words."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pytest_osmosis
from pytest_osmosis.text import user_code
from pytest_osmosis.text.chat_messages import answer_fault, answer_of, as_chat_messages, prompt_length, refusal_of
from pytest_osmosis.text.numbers import distinguishable, seconds
from pytest_osmosis.text.redaction import Sanitizer
from pytest_osmosis.text.safe import dumps, escaped, loads, one_line, shortened
from tests.hostile.hostile_objects import ERRORS, VALUES
from tests.hostile.sweep import control_sequences

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT)
def test_shown_text_is_safe_for_terminals_and_xml(text: str) -> None:
    safe = escaped(text)

    assert not [c for c in safe if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in "\t\n"]
    assert not [c for c in safe if unicodedata.bidirectional(c) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI")]
    element = ElementTree.Element("text")
    element.text = safe
    assert ElementTree.fromstring(ElementTree.tostring(element)).text == (safe or None)


def test_control_characters_are_shown_as_escapes_and_ordinary_text_stays() -> None:
    escapes = {
        "\x1b[31mred\x1b]0;title\x07": r"\x1b[31mred\x1b]0;title\x07",
        "a\r\nb": "a\nb", "over\rwritten": r"over\rwritten", "half \ud83d": r"half \ud83d", "\x9b2J": r"\x9b2J",
        "abc\u202egpj.exe": r"abc\u202egpj.exe", "one\u2028line": r"one\u2028line",
    }  # fmt: skip
    ordinary = (
        *("tab\tand\nline", "grüße, 你好, 🙂", "x.toml::x[row1-run0] PASSED", "std::vector", "# title ## part"),
        *("👨\u200d👩\u200d👧 ✔\ufe0f", "می\u200cرم", "naïve e\u0301", "a\tb\n"),
    )
    assert {text: escaped(text) for text in escapes} == escapes
    assert [escaped(text) for text in ordinary] == [*ordinary]


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


@pytest.mark.parametrize("text", ["\u0301" * 300_000, " " * 300_000 + "::", "#" * 300_000, "\n" * 300_000])
def test_no_text_is_slow_to_escape(text: str) -> None:
    """Quadratic time would be minutes."""
    assert escaped(text)


def test_a_sanitizer_learns_secrets_of_several_sources_and_of_one_name() -> None:
    sanitizer = Sanitizer({"KEY": "first-value"})
    sanitizer.hide({"KEY": "second-value"}, {"OTHER": "third-value"})
    assert sanitizer.text("first-value second-value third-value") == "[KEY] [KEY] [OTHER]"
    assert sanitizer.shown("::error::\x1b first-value") == "\\::error::\\x1b [KEY]"


def test_durations() -> None:
    durations = {
        0.994: "0.99 s", 0.996: "1.0 s", 59.94: "59.9 s", 59.96: "1 min 0 s", 119.6: "2 min 0 s", 3599.4: "59 min 59 s",
        3599.6: "1 h 0 min",
    }  # fmt: skip
    assert {value: seconds(value) for value in durations} == durations


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(FINITE, FINITE | st.sampled_from([0.7, 1.0]))
def test_a_value_and_its_bound_look_different_if_they_are(value: float, bound: float) -> None:
    shown_value, shown_bound = map(float, distinguishable(value, bound))

    assert (shown_value >= shown_bound) == (value >= bound)


PACKAGE = Path(pytest_osmosis.__file__).parent


def test_only_files_that_the_user_wrote_are_the_users_own() -> None:
    own = ["/evals/rewards.py", f"{PACKAGE}-of-mine/agent.py"]
    others = [
        *(str(PACKAGE / "host/core.py"), os.__file__, "<frozen importlib._bootstrap>", "<string>"),
        "/evals/.venv/lib/python3.12/site-packages/openai/client.py",
        "/usr/lib/python3/dist-packages/numpy/core.py",
    ]
    assert [file for file in own + others if user_code.is_users_own(file)] == own


def test_our_files_are_recognised_in_tracebacks_and_without_a_frame_nothing_is_user_code() -> None:
    core = PACKAGE / "host/core.py"
    files = {core: True, core.resolve(): True, Path(f"{PACKAGE}-of-mine/agent.py"): False}
    assert user_code.is_ours(str(core))
    assert {file: user_code.names_our_file(f'  File "{file}", line 3 in perform') for file in files} == files
    assert (user_code.runs_user_code(None), user_code.user_stack(None)) == (False, "")


def test_the_standard_library_called_by_user_code_counts_as_user_code() -> None:
    stacks = []

    def default(_: object) -> str:
        frame = sys._getframe(1)  # in json, which was called from here
        assert user_code.is_python(frame.f_code.co_filename)
        assert user_code.runs_user_code(frame)
        stacks.append(user_code.user_stack(frame))
        return ""

    json.JSONEncoder(default=default, indent=1).encode(object())
    assert "test_the_standard_library_called_by_user_code" in stacks[0]


def test_a_cause_within_this_package_has_its_text_and_no_frames() -> None:
    try:
        try:
            user_code.number_of("a")
        except Exception as cause:
            raise ValueError("no score") from cause.with_traceback(
                None if cause.__traceback__ is None else cause.__traceback__.tb_next
            )
    except ValueError as error:
        shown = user_code.user_traceback(error)

    assert shown.startswith("pytest_osmosis.text.user_code.UserValueFault: must return a number, got str")
    assert shown.count("Traceback (most recent call last)") == 1
    assert "user_code.py" not in shown
    assert f'File "{__file__}"' in shown


MOST_CHARS = 3 * user_code.MAX_ERROR_CHARS
HANGING = {"hangingrepr", "strhangs"}
RAISING = {"hostileclass", "hostilefloat", "hostileint", "zero", "zero2", "shaperaises", "getattr"}
"""Objects whose own code raises when they are asked whether they are numbers."""


@pytest.mark.parametrize("name", sorted(VALUES.keys() - HANGING - {"exitrepr", "zero2"}))
def test_every_object_can_be_described(name: str) -> None:
    assert isinstance(user_code.type_name(VALUES[name]), str)
    assert len(user_code.described(VALUES[name])) <= 80


@pytest.mark.parametrize("name", sorted(VALUES.keys() - HANGING - RAISING - {"exitrepr"}))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_object_is_a_number_or_none(name: str) -> None:
    try:
        assert type(user_code.number_of(VALUES[name])) is float
    except user_code.UserValueFault as error:
        assert len(str(error)) < 200  # noqa: PT017


@pytest.mark.parametrize("name", sorted(ERRORS.keys() - HANGING - {"strexits", "causes", "grp"}))
def test_every_error_can_be_described(name: str) -> None:
    raises: Any = ERRORS[name]
    with pytest.raises(BaseException) as caught:
        raise raises()
    assert 0 < len(user_code.error_in_words(caught.value)) <= user_code.MAX_ERROR_CHARS + 100
    assert 0 < len(user_code.user_traceback(caught.value)) <= (MOST_CHARS if name == "strgiga" else user_code.MAX_CHARS)


CALLS = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


def said(content: object, **fields: object) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def asked(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("messages", "answer", "fault"),
    [
        ([], None, "no message"),
        ([said("42")], "42", None),
        ([said("41"), said([{"type": "text", "text": "4"}, "2"])], "42", None),
        ([said("42"), said(None)], "", "no text"),
        ([said("42"), {"role": "assistant"}], "", "no text"),
        ([said("42"), said([{"type": "image_url"}])], "", "no text"),
        ([said(" \n")], " \n", "no text"),
        ([said("42"), said(None, tool_calls=CALLS)], "42", None),
        ([said("42"), said(None, function_call={"name": "f"})], "42", None),
        ([said("42"), said(None, tool_calls=[])], "", "no text"),
        ([said("42"), said("41", tool_calls=CALLS)], "41", None),
        ([said(None, tool_calls=CALLS), {"role": "tool", "content": "42"}], None, "only calls"),
    ],
)
def test_the_answer_is_the_last_message_that_is_more_than_tool_calls(messages: Any, answer: Any, fault: Any) -> None:
    assert (answer_of(messages), answer_fault(messages)) == (answer, fault)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (said(None, refusal="no"), "no"),
        (said("42", refusal=None), None),
        (said("42", refusal=False), None),
    ],
)
def test_a_refusal_has_a_text(message: Mapping[str, Any], text: str | None) -> None:
    assert refusal_of(message) == text


Q, A, Q2, A2 = asked("q"), said("a"), asked("q2"), said("a2")
BEGINS: dict[str, tuple[list[Any], list[Any], int]] = {
    "appended": ([Q], [Q, A], 1),
    "unchanged": ([Q, A, Q2], [Q, A, Q2], 3),
    "cut": ([Q, A, Q2], [Q, A], 2),
    "same answer": ([Q, A, Q2], [Q, A, Q2, A], 3),
    "same question": ([Q, A, Q], [Q, A, Q, A2], 3),
    "notes between": ([Q, A, Q2], [asked("system"), Q, A, asked("note"), Q2, A2], 5),
    "history left out": ([Q, A, Q2], [Q2, A], 1),
    "questions changed": ([Q, A, Q2], [asked("Q"), A, asked("Q2")], 2),
    "all left out": ([Q, A, Q2], [A2], 0),
    "question repeated": ([Q], [Q, A, Q, A2], 1),
    "prefilled": ([Q, A], [Q, A, A2], 2),
    "prefill completed": ([Q, A], [Q, said("a and more")], 1),
    "empty": ([Q], [], 0),
    "no prompt": ([], [A], 0),
    "other form": ([Q, A, Q2], [{**Q, "name": "me"}, said([{"type": "text", "text": "a"}]), Q2, A2], 3),
}
"""A prompt, a conversation, and how many of its messages are of the prompt."""


@pytest.mark.parametrize(("prompt", "conversation", "length"), BEGINS.values(), ids=BEGINS)
def test_the_rollout_begins_after_the_last_message_of_the_prompt(prompt: Any, conversation: Any, length: int) -> None:
    assert prompt_length(prompt, conversation) == length


def test_long_conversations_are_compared_in_linear_time() -> None:
    """Quadratic time would be minutes."""
    prompt, others = ([asked(f"{name} {index}") for index in range(20_000)] for name in ("q", "other"))
    assert prompt_length(prompt, others) == 0


QUESTION = {"role": "user", "content": "What is 6 * 7?"}


def test_a_message_with_text_calls_and_results_becomes_several() -> None:
    use = {"toolUseId": "c2", "name": "add", "input": {"a": 6}}
    blocks = [{"toolResult": {"toolUseId": "c1", "content": []}}, {"text": "and"}, {"toolUse": use}]
    calls = [{"id": "c2", "function": {"name": "add", "arguments": {"a": 6}}}]
    assert as_chat_messages([{"role": "assistant", "content": blocks}]) == [
        {"role": "tool", "tool_call_id": "c1", "content": []},
        {"role": "assistant", "content": [{"text": "and"}], "tool_calls": calls},
    ]


@pytest.mark.parametrize(
    "message", [None, 3, {}, QUESTION, {"content": [None, 3, {"toolUse": 3}]}, {"content": {"toolUse": {}}}]
)
def test_other_messages_stay_as_they_are(message: object) -> None:
    assert as_chat_messages([message]) == [message]
