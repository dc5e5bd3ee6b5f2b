"""Reasons, metrics and further fields as lines of text."""

from __future__ import annotations

import pytest

from pytest_osmosis.record.run_record import RunNotes
from pytest_osmosis.report.failure_text import REASON_IN_A_LINE, note_lines, reason_in_a_line
from pytest_osmosis.text.safe import shortened
from pytest_osmosis.verdicts.pass_rule import PassRule
from tests.unit.made import A, B, finished


def brief(text: str) -> str:
    return shortened(text, 200)


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

    assert note_lines(RunNotes(reasons={A: "short"}), [A], brief, said="short") == []
    assert note_lines(RunNotes(reasons={A: "two\nlines"}), [A], brief, said="two lines") == ["reason: two", "    lines"]
    [line] = note_lines(RunNotes(reasons={A: "x" * 1000}), [A], brief, said="x" * 77 + "...")
    assert "characters left out" in line


def test_the_rollouts_notes_follow_those_of_functions() -> None:
    notes = RunNotes(
        {"rollout": {"turns": 3.0}, A: {"f1": 0.25, "n\x1b\n": 1e6}},
        {},
        {"rollout": '{"plan":["größer"]}', "reward": '{"judge":"strict"}'},
    )

    assert note_lines(notes, [A], brief) == [
        "metrics: f1 0.25, n\\x1b 1e+06",
        "metrics of the rollout: turns 3",
        'extra fields: {"judge": "strict"}',
        'info of the rollout: {"plan": ["größer"]}',
    ]
    assert note_lines(notes, [A, B], brief)[0] == f"metrics of {A}: f1 0.25, n\\x1b 1e+06"
