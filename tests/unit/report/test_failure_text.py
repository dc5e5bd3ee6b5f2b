"""The block that a failed run shows: reason, scores, traceback, the end of the conversation, how to rerun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RewardError, RunRecord
from pytest_osmosis.report.failure_text import DETAILS_CHARS, MESSAGE_CHARS, outcome_of
from pytest_osmosis.text.safe import LINE_CHARS
from pytest_osmosis.verdicts.pass_rule import Outcome, PassRule, Transcript
from tests.unit.made import BROKE, A, B, failed, finished, pending, removed

ONE = PassRule((A,))
PROMPT = {"role": "user", "content": "2 * 3?"}


def outcome(record: RunRecord, pass_rule: PassRule = ONE, **shown: Any) -> Outcome:
    def rerun(run: RunId) -> str:
        return f"pytest 'configs/eval/x.toml::x[{run}]'"

    return outcome_of(record, pass_rule, Transcript(**shown), "data/x.jsonl:7", rerun)


def conversation(*messages: Any) -> list[str]:
    """The lines between "conversation:" and the dataset's line."""
    lines = outcome(finished({A: 0.0}), messages=messages).text.splitlines()
    return lines[1:-2]


def test_a_failed_run_says_why_and_how_to_repeat_it() -> None:
    messages = [PROMPT, {"role": "assistant", "content": "5"}]
    found = outcome(finished({A: 0.2}), messages=messages, n_prompt=1, ground_truth="6")

    said = 'score 0.2 < 1: answered "5", expected "6"'
    assert (found.kind, found.reason, found.duration_s) == ("failed", said, 0.45275)
    assert found.text == dedent("""\
        score 0.2 < 1: answered "5", expected "6"
        conversation:
          user: 2 * 3?
          assistant: 5
        dataset row: data/x.jsonl:7
        run it again: pytest 'configs/eval/x.toml::x[row0-run0]'""")


def test_with_several_functions_every_score_has_a_line() -> None:
    record = finished({A: 0.25, B: 0.5}, errors={"rewards:c": RewardError("ValueError: no\nreally")})
    pass_rule = PassRule((A, B, "rewards:c"), 1.0, {B: 0.5}, A)

    assert outcome(record, pass_rule).text.splitlines()[:4] == [
        "score 0.25 < 1",
        "  rewards:a 0.25 < 1",
        "  rewards:b 0.5 >= 0.5 (does not decide)",
        "  rewards:c: ValueError: no really (does not decide)",
    ]


@pytest.mark.parametrize("record", [finished({A: 1.0}), removed(), pending(reason="stopped")])
def test_a_run_that_passed_or_never_counted_has_no_block(record: RunRecord) -> None:
    assert outcome(record, messages=[PROMPT]).text == ""


def test_a_traceback_of_several_lines_is_shown_unchanged_but_for_the_middle_of_a_very_long_one() -> None:
    details = 'Traceback (most recent call last):\n  File "rewards.py", line 2, in score\nValueError: no\n'

    found = outcome(finished({}, errors={A: BROKE}), details=details, messages=[PROMPT])

    assert (found.kind, found.reason) == ("error", "reward error: rewards:a: ValueError: no")
    assert found.text.splitlines()[:6] == [
        "reward error: rewards:a: ValueError: no",
        "Traceback (most recent call last):",
        '  File "rewards.py", line 2, in score',
        "ValueError: no",
        "conversation:",
        "  user: 2 * 3?",
    ]

    long = "Traceback\n" + "  frame\n" * 100_000 + "ValueError: no"

    text = outcome(finished({}, errors={A: BROKE}), details=long).text

    assert len(text) < DETAILS_CHARS + 1000
    assert "Traceback\n  frame" in text
    assert "  frame\nValueError: no\n" in text


def test_the_reason_is_one_line_of_bounded_length() -> None:
    record = finished({}, errors={A: RewardError("ValueError: first\n  second\x1b[2J " + "long " * 500)})

    reason = outcome(record).reason

    assert reason.startswith(r"reward error: rewards:a: ValueError: first second\x1b[2J long")
    assert "\n" not in reason
    assert len(reason) <= LINE_CHARS + len(r"\x1b")


def test_the_end_of_a_long_conversation_and_both_of_a_long_message_are_shown() -> None:
    messages = [{"role": "user", "content": str(number)} for number in range(9)]

    assert conversation(*messages) == [
        "conversation, last 4 of 9 messages:",
        *(f"  user: {number}" for number in (5, 6, 7, 8)),
    ]

    [_, line] = conversation({"role": "user", "content": "begin " + "x" * 10_000 + " end"})

    assert len(line) <= len("  user: ") + MESSAGE_CHARS
    assert line.startswith("  user: begin xxx")
    assert "characters left out" in line
    assert line.endswith("xxx end")


def image(**fields: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": fields}


MESSAGES: dict[str, tuple[Mapping[str, Any], list[str]]] = {
    "lines": ({"role": "user", "content": "one\ntwo"}, ["user: one", "  two"]),
    "control": ({"role": "user", "content": "\x1b[2Jgone\r"}, [r"user: \x1b[2Jgone\r"]),
    "surrogate": ({"role": "assistant", "content": "half \ud83d"}, [r"assistant: half \ud83d"]),
    "role": ({"role": "\x1b[0m", "content": "x"}, [r"\x1b[0m: x"]),
    "parts": ({"role": "user", "content": [{"type": "text", "text": text} for text in "42"]}, ["user: 42"]),
    "image": ({"role": "user", "content": [image()]}, ["user: [image_url]"]),
    "image with data": (
        {"role": "user", "content": [image(url="data:image/png;base64,iVBOR")]},
        ["user: [image_url]"],
    ),
    "null": ({"role": "assistant", "content": None}, ["assistant: (no text)"]),
    "refusal": ({"role": "assistant", "content": None, "refusal": "I won't"}, ["assistant: (refused: I won't)"]),
    "part": (
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "I won't"}]},
        ["assistant: (refused: I won't)"],
    ),
}


@pytest.mark.parametrize(("message", "lines"), MESSAGES.values(), ids=MESSAGES)
def test_a_message_is_shown_on_its_lines(message: Mapping[str, Any], lines: Sequence[str]) -> None:
    assert conversation(message) == ["conversation:", *(f"  {line}" for line in lines)]


def test_tool_calls_are_shown_as_calls() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "multiply", "arguments": '{"a": 2, "b": 3}'}}
    parsed = {"id": "2", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}

    assert conversation(
        {"role": "assistant", "content": None, "tool_calls": [call, parsed]},
        {"role": "tool", "tool_call_id": "1", "content": "6"},
    ) == [
        "conversation:",
        '  assistant: -> multiply({"a": 2, "b": 3}) -> add({"a": 1})',
        "  tool: 6",
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=()), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "function", "name"]), inner),
    max_leaves=6,
)
MESSAGE = JSON | st.fixed_dictionaries(
    {"role": JSON}, optional={"content": JSON, "tool_calls": JSON | st.lists(JSON), "refusal": JSON}
)


@given(st.lists(MESSAGE, max_size=3))
def test_any_message_of_an_agent_can_be_shown(messages: list[Any]) -> None:
    text = outcome(finished({A: 0.0}), messages=messages).text

    text.encode("utf-8")
    assert text.startswith("score 0 < 1")
    assert text.endswith("x[row0-run0]'")


def test_output_of_user_code_is_kept_by_kind_and_escaped() -> None:
    said = [("stdout", "42\n\x1b[2J"), ("log", "WARNING x"), ("warnings", "Deprecation: \ud800")]

    found = outcome(finished({A: 1.0}), output=said)

    assert found.sections == (("stdout", "42\n\\x1b[2J"), ("log", "WARNING x"), ("warnings", "Deprecation: \\ud800"))


@pytest.mark.parametrize("boundary", ["model", "agent", "timeout", "provider", "host"])
def test_a_boundary_leads_the_block_and_nothing_was_scored(boundary: Any) -> None:
    found = outcome(failed(boundary), messages=[PROMPT], n_prompt=1, ground_truth="6")

    assert found.kind == "error"
    assert found.text.splitlines()[0] == f"{boundary}: what happened"
    assert "expected" not in found.text


def test_a_function_that_broke_is_shown_with_its_answer_and_an_answer_without_text_as_its_fault() -> None:
    messages = [PROMPT, {"role": "assistant", "content": "5"}, {"role": "tool", "content": "ok"}]
    found = outcome(finished({}, errors={A: BROKE}), messages=messages, n_prompt=1, ground_truth="6")

    assert found.text.splitlines()[:3] == ["reward error: rewards:a: ValueError: no", "answered: 5", "expected: 6"]

    record = finished({A: 0.0}, answer_fault="no text")
    empty = outcome(record, messages=[PROMPT, {"role": "assistant", "content": ""}], n_prompt=1, ground_truth="6")

    assert empty.reason == 'score 0 < 1 (the answer is empty): expected "6"'
