"""The answer that was scored with the ground truth, and reasons, metrics and further fields as lines of text."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_osmosis.record.run_record import RunNotes
from pytest_osmosis.report.failure_text import (
    ANSWER_IN_A_LINE,
    REASON_IN_A_LINE,
    ScoredAnswer,
    note_lines,
    reason_in_a_line,
)
from pytest_osmosis.text.safe import shortened
from pytest_osmosis.verdicts.pass_rule import PassRule, Transcript
from tests.unit.made import A, B, finished

PROMPT = {"role": "user", "content": "7 + 8?"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add"}}]}


def brief(text: str) -> str:
    return shortened(text, 600)


def briefly(text: str) -> str:
    return shortened(text, 200)


def said(content: object) -> dict[str, object]:
    return {"role": "assistant", "content": content}


def answer(*messages: Any, truth: object = "15") -> ScoredAnswer:
    return ScoredAnswer.of(Transcript([PROMPT, *messages], 1, ground_truth=truth))


@pytest.mark.parametrize(
    ("truth", "line"),
    [
        ("15", 'answered "14", expected "15"'),
        ("a\n  b", 'answered "14", expected "a b"'),
        (15, 'answered "14", expected 15'),
        (0, 'answered "14", expected 0'),
        (["a", 1], 'answered "14", expected ["a", 1]'),
        ({"größe": None}, 'answered "14", expected {"größe": null}'),
        ("\x1b[2J::error::", 'answered "14", expected "\\x1b[2J::error::"'),
        (None, 'answered "14"'),
        ("", 'answered "14"'),
        (" \n", 'answered "14"'),
    ],
)
def test_the_line_holds_answer_and_ground_truth(truth: object, line: str) -> None:
    assert answer(said("14"), truth=truth).line == line


def test_a_rollout_without_an_answer_of_its_own_shows_only_the_ground_truth() -> None:
    shot = said("an example of an answer")

    assert answer(said("")).line == answer().line == 'expected "15"'
    assert answer(said(""), truth=None).line == ""
    assert ScoredAnswer.of(Transcript([PROMPT, shot, PROMPT], 3, ground_truth="15")).line == 'expected "15"'
    assert ScoredAnswer.of(Transcript([PROMPT, shot, PROMPT, said("14")], 3, ground_truth="15")).text == "14"


def test_the_line_has_the_end_of_what_is_long_and_its_length() -> None:
    line = answer(said("x" * 10_000 + "\n#### 14"), truth="y" * 100_000).line

    assert line.startswith('answered "...xxx')
    assert 'x #### 14" (10,008 characters), expected "...yyy' in line
    assert line.endswith('yyy" (100,000 characters)')
    assert len(line) < 2 * ANSWER_IN_A_LINE + 80


def test_lines_add_what_the_line_left_out_and_do_not_repeat_an_answer_that_ends_the_conversation() -> None:
    long = "because " * 20 + "14"

    found = answer(said(long), CALL, truth="1\n2").lines(brief, after_line=True)
    assert found == [f"answered: {long}", "expected: 1", "    2"]
    assert answer(said("14"), CALL).lines(brief, after_line=True) == []
    assert answer(said("14")).lines(brief) == ["expected: 15"]
    assert answer(said("14"), CALL).lines(brief) == ["answered: 14", "expected: 15"]


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("off by one", "off by one"),
        ("It is long.\n  It is rude.", "It is long. It is rude."),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("word " * 100, "word " * 15 + "wo..."),
    ],
)
def test_a_line_has_the_beginning_of_a_reason(reason: str, line: str) -> None:
    record = finished({A: 0.0}, notes=RunNotes(reasons={A: reason}))

    assert reason_in_a_line(record, PassRule((A,))) == line
    assert len(line) <= REASON_IN_A_LINE


def test_a_reason_is_left_out_that_explains_nothing_or_is_there_already() -> None:
    record = finished({A: 1.0, B: 0.5}, notes=RunNotes(reasons={A: "exact", B: "too long"}))

    assert reason_in_a_line(record, PassRule((A, B))) == "too long"
    assert reason_in_a_line(record, PassRule((A, B), decide=A)) == ""

    assert note_lines(RunNotes(reasons={A: "short"}), [A], briefly, said="short") == []
    assert note_lines(RunNotes(reasons={A: "two\nlines"}), [A], briefly, said="two lines") == [
        "reason: two",
        "    lines",
    ]
    [line] = note_lines(RunNotes(reasons={A: "x" * 1000}), [A], briefly, said="x" * 77 + "...")
    assert "characters left out" in line


def test_the_rollouts_notes_follow_those_of_functions() -> None:
    notes = RunNotes(
        {"rollout": {"turns": 3.0}, A: {"f1": 0.25, "n\x1b\n": 1e6}},
        {},
        {"rollout": '{"plan":["größer"]}', "reward": '{"judge":"strict"}'},
    )

    assert note_lines(notes, [A], briefly) == [
        "metrics: f1 0.25, n\\x1b 1e+06",
        "metrics of the rollout: turns 3",
        'extra fields: {"judge": "strict"}',
        'info of the rollout: {"plan": ["größer"]}',
    ]
    assert note_lines(notes, [A, B], briefly)[0] == f"metrics of {A}: f1 0.25, n\\x1b 1e+06"
