"""The reason, score, answer, traceback and conversation that a failed run or row shows, its rerun and properties."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RewardError, RunNotes, RunRecord
from pytest_osmosis.report.failure_text import (
    ANSWER_IN_A_LINE,
    DETAILS_CHARS,
    MESSAGE_CHARS,
    ScoredAnswer,
    note_lines,
    outcome_of,
    outcome_of_row,
    reason_in_a_line,
)
from pytest_osmosis.report.junit import properties_of
from pytest_osmosis.text.safe import LINE_CHARS, shortened
from pytest_osmosis.verdicts.pass_rule import Kind, Outcome, PassRule, Transcript
from tests.golden import Golden
from tests.unit.made import BROKE, A, B, failed, finished, pending, removed

ONE = PassRule((A,))
PROMPT = {"role": "user", "content": "2 * 3?"}
FIVE = {"role": "assistant", "content": "5"}


def outcome(record: RunRecord, pass_rule: PassRule = ONE, **shown: Any) -> Outcome:
    def rerun(run: RunId) -> str:
        return f"pytest 'configs/eval/x.toml::x[{run}]'"

    return outcome_of(record, pass_rule, Transcript(**shown), "data/x.jsonl:7", rerun)


def conversation(*messages: Any) -> list[str]:
    """The lines between "conversation:" and the dataset's line."""
    lines = outcome(finished({A: 0.0}), messages=messages).text.splitlines()
    return lines[1:-2]


@pytest.mark.parametrize("record", [finished({A: 1.0}), removed(), pending(reason="stopped")])
def test_a_run_that_passed_or_never_counted_has_no_block(record: RunRecord) -> None:
    assert outcome(record, messages=[PROMPT]).text == ""


def test_a_very_long_traceback_loses_its_middle() -> None:
    long = "Traceback\n" + "  frame\n" * 100_000 + "ValueError: no"

    text = outcome(finished({}, errors={A: BROKE}), details=long).text

    assert len(text) < DETAILS_CHARS + 1000
    assert "Traceback\n  frame" in text
    assert "  frame\nValueError: no\n" in text


def test_the_reason_is_one_line_of_bounded_length() -> None:
    record = finished({}, errors={A: RewardError("ValueError: first\n  second\x1b[2J " + "long " * 500)})

    reason = outcome(record).reason

    assert reason.startswith(r"error in rewards:a: ValueError: first second\x1b[2J long")
    assert "\n" not in reason
    assert len(reason) <= LINE_CHARS + len(r"\x1b")


def test_the_end_of_a_long_conversation_and_both_of_a_long_message_are_shown() -> None:
    shown = conversation(*({"role": "user", "content": str(number)} for number in range(9)))
    [_, line] = conversation({"role": "user", "content": "begin " + "x" * 10_000 + " end"})

    assert shown == ["conversation, last 4 of 9 messages:", *(f"  user: {number}" for number in (5, 6, 7, 8))]
    assert len(line) <= len("  user: ") + MESSAGE_CHARS
    assert re.fullmatch(r"  user: begin xxx.*characters left out.*xxx end", line)


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


def test_the_duration_and_output_of_user_code_are_kept_by_kind_and_escaped() -> None:
    said = [("stdout", "42\n\x1b[2J"), ("log", "WARNING x"), ("warnings", "Deprecation: \ud800")]

    found = outcome(finished({A: 1.0}), output=said)

    assert (found.kind, found.duration_s) == ("passed", 0.45275)
    assert found.sections == (("stdout", "42\n\\x1b[2J"), ("log", "WARNING x"), ("warnings", "Deprecation: \\ud800"))


@pytest.mark.parametrize("boundary", ["model", "agent", "timeout", "provider", "host"])
def test_a_boundary_leads_the_block_and_nothing_was_scored(boundary: Any) -> None:
    found = outcome(failed(boundary), messages=[PROMPT], **ASKED)

    assert (found.kind, found.text.splitlines()[0]) == ("error", f"{boundary}: what happened")
    assert "expected" not in found.text


What = Literal["passed", "failed", "error", "removed", "pending"]
REASONS: Mapping[What, str] = {
    "passed": "",
    "failed": "score 0.2 < 0.5",
    "error": "provider: 503",
    "removed": "taken out by its grader (remove_sample)",
    "pending": "decided: the gate holds",
}


def run_outcome(what: What, run: int = 0) -> Outcome:
    kind: Kind = "skipped" if what in ("removed", "pending") else what  # type: ignore[assignment]
    text = f"{REASONS[what]}\nconversation of {run}" if kind in ("failed", "error") else ""
    return Outcome(kind, REASONS[what], text, duration_s=0.5)


def row_of(*runs: What) -> Outcome:
    """The outcome of the row with these runs, which were done in the other order."""
    done = {RunId(3, index): run_outcome(what, index) for index, what in reversed(list(enumerate(runs)))}
    return outcome_of_row(done, [RunId(3, index) for index, what in enumerate(runs) if what == "pending"])


@pytest.mark.parametrize(
    ("runs", "kind"),
    [
        (["error", "failed"], "failed"),
        (["failed", "pending"], "failed"),
        (["error", "pending"], "error"),
        (["passed", "removed"], "passed"),
    ],
)
def test_the_outcome_of_a_row_follows_from_its_runs(runs: list[What], kind: Kind) -> None:
    row = row_of(*runs)
    assert row.kind == kind
    if kind == "passed":
        assert row == Outcome("passed", duration_s=0.5 * len(runs))


@pytest.mark.parametrize("what", list(REASONS))
def test_a_row_with_one_run_has_its_outcome(what: What) -> None:
    assert row_of(what) == run_outcome(what)


CALLS = {
    "role": "assistant",
    "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "multiply", "arguments": '{"a": 2, "b": 3}'}},
        {"id": "2", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}},
    ],
}
TRACEBACK = 'Traceback (most recent call last):\n  File "rewards.py", line 2, in score\nValueError: no\n'
HUNDRED: list[What] = ["failed"] * 100
ASKED: dict[str, Any] = {"n_prompt": 1, "ground_truth": "6"}


def shown() -> dict[str, Outcome]:
    return {
        "a wrong answer": outcome(finished({A: 0.2}), messages=[PROMPT, FIVE], **ASKED),
        "an answer without text": outcome(
            finished({A: 0.0}, answer_fault="no text"), messages=[PROMPT, {**FIVE, "content": ""}], **ASKED
        ),
        "tool calls": outcome(
            finished({A: 0.0}), messages=[CALLS, {"role": "tool", "tool_call_id": "1", "content": "6"}]
        ),
        "every score of several functions": outcome(
            finished({A: 0.25, B: 0.5}, errors={"rewards:c": RewardError("ValueError: no\nreally")}),
            PassRule((A, B, "rewards:c"), 1.0, {B: 0.5}, A),
        ),
        "scores that do not stand in the headline": outcome(
            finished({A: 0.25, B: 0.5, "rewards:c": 1.0}), PassRule((A, B, "rewards:c"))
        ),
        "a function that broke": outcome(
            finished({}, errors={A: BROKE}),
            details=TRACEBACK,
            messages=[PROMPT, FIVE, {"role": "tool", "content": "ok"}],
            **ASKED,
        ),
        "a row of five": row_of("passed", "error", "failed", "failed", "pending"),
        "a row of two": row_of("passed", "failed"),
        "a row that never ran": row_of("pending", "pending"),
        "a row of which one run never ran": row_of("passed", "pending", "passed"),
        "a row that was taken out by its grader": row_of("removed", "removed"),
        "a row that was taken out or never ran": row_of("removed", "pending"),
        "a row of a hundred": row_of(*HUNDRED),
    }


def test_output_is_labelled_with_its_run() -> None:
    passed = Outcome("passed", sections=(("stdout", "hello"),))

    row = outcome_of_row({RunId(0, 1): passed, RunId(0, 0): passed})

    assert row.sections == (("stdout (run0)", "hello"), ("stdout (run1)", "hello"))


SUM = {"role": "user", "content": "7 + 8?"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add"}}]}
brief, briefly = partial(shortened, limit=600), partial(shortened, limit=200)


def said(content: object) -> dict[str, object]:
    return {"role": "assistant", "content": content}


def answer(*messages: Any, truth: object = "15") -> ScoredAnswer:
    return ScoredAnswer.of(Transcript([SUM, *messages], 1, ground_truth=truth))


def test_the_line_lacks_the_middle_of_what_is_long_and_says_how_long_it_is() -> None:
    line = answer(said("As an AI" + "x" * 10_000 + "\n#### 14"), truth="y" * 100_000).line
    short = "As an AI language model, I cannot help with that."

    assert answer(said(short), truth=None).line == f'answered "{short}"'
    assert line.startswith('answered "As an AIxxx')
    assert 'x #### 14" (10,016 characters), expected "yyy' in line
    assert line.endswith('yyy" (100,000 characters)')
    assert len(line) < 2 * ANSWER_IN_A_LINE + 80


LONG_REASON, LONG_ANSWER = "word " * 100, "because " * 20 + "14"
TRUTHS: Sequence[object] = (
    *("15", "a\n  b", 15, 0, ["a", 1], {"größe": None}, "\x1b[2J::error::"),
    *(None, "", " \n"),  # no ground truth
)


def lines_of_answers() -> dict[str, Iterable[str]]:
    shot, one = said("an example"), finished({A: 1.0, B: 0.5}, notes=RunNotes({}, {A: "exact", B: "too long"}))
    notes = RunNotes(
        {"rollout": {"turns": 3.0}, A: {"f1": 0.25, "n\x1b\n": 1e6}},
        {},
        {"rollout": '{"plan":["größer"]}', "reward": '{"judge":"strict"}'},
    )
    reasons = ("off by one", "It is long.\n  It is rude.", "\x1b[2Jgone", LONG_REASON)
    return {
        "answers and ground truths": [answer(said("14"), truth=truth).line for truth in TRUTHS],
        "no answer": [answer(said("")).line, answer().line, answer(said(""), truth=None).line],
        "an answer in the prompt": [ScoredAnswer.of(Transcript([SUM, shot, SUM], 3, ground_truth="15")).line],
        "an answer after one in the prompt": [
            ScoredAnswer.of(Transcript([SUM, shot, SUM, said("14")], 3, ground_truth="15")).line
        ],
        "what the line left out": answer(said(LONG_ANSWER), CALL, truth="1\n2").lines(brief, after_line=True),
        "nothing that the line left out": answer(said("14"), CALL).lines(brief, after_line=True),
        "an answer that ends the conversation": answer(said("14")).lines(brief),
        "an answer before a call": answer(said("14"), CALL).lines(brief),
        "beginnings of reasons": [
            reason_in_a_line(finished({A: 0.0}, notes=RunNotes({}, {A: reason})), PassRule((A,))) for reason in reasons
        ],
        "a reason of what passed": [
            reason_in_a_line(one, PassRule((A, B))),
            reason_in_a_line(one, PassRule((A, B), decide=A)),
        ],
        "a reason that was said": note_lines(RunNotes({}, {A: "short"}), [A], briefly, said="short"),
        "two lines of a reason": note_lines(RunNotes({}, {A: "two\nlines"}), [A], briefly, said="two lines"),
        "a long reason": note_lines(RunNotes({}, {A: "x" * 1000}), [A], briefly, said="x" * 77 + "..."),
        "notes of a function and of the rollout": note_lines(notes, [A], briefly),
        "notes of two functions": note_lines(notes, [A, B], briefly),
    }


def properties(records: Sequence[RunRecord], rule: PassRule = ONE, *costs: float) -> list[str]:
    found = properties_of(records, rule, [*costs, *[None] * (len(records) - len(costs))])
    return [f"{name} = {value!r}" for name, value in found]


def lines_of_properties() -> dict[str, Iterable[str]]:
    both = [finished({A: 1.0, B: 0.5}), finished({A: 1.0, B: 1.0}, run=1)]
    row = [finished({A: 1.0}), finished({A: 0.25}, run=1), failed("agent", run=2), removed(run=3)]
    return {
        "a run": properties([finished({A: 0.25})], ONE, 0.5),
        "a run that broke": properties([failed("provider")]),
        "a run that never ran": properties([pending()]),
        "a run that one of two functions decides": properties(both[:1], PassRule((A, B), decide=A)),
        "a run that two functions decide": properties(both[:1], PassRule((A, B))),
        "a row that one of two functions decides": properties(both, PassRule((A, B), decide=A)),
        "a row with costs": properties(row, ONE, 0.5, 0.25),
        "a row that passed with a run taken out": properties([finished({A: 1.0}), removed(run=1)]),
        "a row that was taken out": properties([removed(), removed(run=1)]),
        "a row with a run that never ran": properties([finished({A: 1.0}), pending(run=1)]),
        "a row that broke": properties([finished({A: 1.0}), failed("provider", run=1), pending(run=2)]),
    }


def image(**fields: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": fields}


def lines_of_messages() -> dict[str, Iterable[str]]:
    messages: dict[str, Mapping[str, Any]] = {
        "lines": {"role": "user", "content": "one\ntwo"},
        "control characters": {"role": "user", "content": "\x1b[2Jgone\r"},
        "half a character": {"role": "assistant", "content": "half \ud83d"},
        "an odd role": {"role": "\x1b[0m", "content": "x"},
        "parts": {"role": "user", "content": [{"type": "text", "text": text} for text in "42"]},
        "an image": {"role": "user", "content": [image()]},
        "an image with data": {"role": "user", "content": [image(url="data:image/png;base64,iVBOR")]},
        "no text": {"role": "assistant", "content": None},
        "a refusal": {"role": "assistant", "content": None, "refusal": "I won't"},
        "a part that refuses": {"role": "assistant", "content": [{"type": "refusal", "refusal": "I won't"}]},
    }
    return {f"message: {name}": conversation(message) for name, message in messages.items()}


def test_what_did_not_pass_has_a_reason_and_a_block_and_further_lines(golden: Golden) -> None:
    blocks = {name: [f"{found.kind}: {found.reason}", "", found.text] for name, found in shown().items()}

    golden({**blocks, **lines_of_messages(), **lines_of_answers(), **lines_of_properties()})
