"""What failed runs and rows show: reason, scores, answer, traceback, conversation, rerun; and their properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    REASON_IN_A_LINE,
    ScoredAnswer,
    note_lines,
    outcome_of,
    outcome_of_row,
    properties_of,
    reason_in_a_line,
)
from pytest_osmosis.text.safe import LINE_CHARS, shortened
from pytest_osmosis.verdicts.pass_rule import Kind, Outcome, PassRule
from tests.golden import Golden
from tests.unit.made import BROKE, A, B, failed, finished, pending, removed

ONE = PassRule((A,))
PROMPT = {"role": "user", "content": "2 * 3?"}
FIVE = {"role": "assistant", "content": "5"}


def outcome(record: RunRecord, pass_rule: PassRule = ONE, **shown: Any) -> Outcome:
    def rerun(run: RunId) -> str:
        return f"pytest 'configs/eval/x.toml::x[{run}]'"

    return outcome_of(record, pass_rule, where="data/x.jsonl:7", rerun=rerun, **shown)


def conversation(*messages: Any) -> list[str]:
    """The lines between "conversation:" and the dataset's line."""
    lines = outcome(finished({A: 0.0}), messages=messages).text.splitlines()
    return lines[1:-2]


def test_a_failed_run_has_a_reason_and_a_duration() -> None:
    found = outcome(finished({A: 0.2}), messages=[PROMPT, FIVE], n_prompt=1, ground_truth="6")

    assert (found.kind, found.duration_s) == ("failed", 0.45275)
    assert found.reason == 'score 0.2 < 1: answered "5", expected "6"'


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


What = Literal["passed", "failed", "error", "removed", "pending"]
REASONS: Mapping[What, str] = {
    "passed": "",
    "failed": "score 0.2 < 0.5",
    "error": "provider: 503",
    "removed": "taken out by its grader (remove_sample)",
    "pending": "decided: the gate holds",
}


def run_outcome(what: What, run: int = 0) -> Outcome:
    """A run's own outcome."""
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
        (["passed", "passed"], "passed"),
        (["passed", "failed"], "failed"),
        (["passed", "error"], "error"),
        (["error", "failed"], "failed"),
        (["passed", "pending"], "skipped"),
        (["failed", "pending"], "failed"),
        (["error", "pending"], "error"),
        (["passed", "removed"], "passed"),
        (["removed", "removed"], "skipped"),
        (["removed", "pending"], "skipped"),
        (["removed", "failed"], "failed"),
        (["passed", "passed", "error", "removed", "pending", "failed"], "failed"),
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
    """Return outcomes by what is to be seen in them."""
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
        "a function that broke": outcome(
            finished({}, errors={A: BROKE}),
            details=TRACEBACK,
            messages=[PROMPT, FIVE, {"role": "tool", "content": "ok"}],
            **ASKED,
        ),
        "a row of five": row_of("passed", "error", "failed", "failed", "pending"),
        "a row of two": row_of("passed", "failed"),
        "a row of a hundred": row_of(*HUNDRED),
    }


def test_what_did_not_pass_has_a_reason_and_a_block(golden: Golden) -> None:
    golden({name: [f"{found.kind}: {found.reason}", "", found.text] for name, found in shown().items()})


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        (["pending", "pending"], REASONS["pending"]),
        (["passed", "pending", "passed"], f"1 of 3 runs never ran: {REASONS['pending']}"),
        (["removed", "removed"], REASONS["removed"]),
        (["removed", "pending"], f"1 of 2 runs never ran: {REASONS['pending']}"),
    ],
)
def test_a_skipped_row_says_why(runs: list[What], reason: str) -> None:
    assert row_of(*runs).reason == reason


def test_output_is_labelled_with_its_run() -> None:
    passed = Outcome("passed", sections=(("stdout", "hello"),))

    row = outcome_of_row({RunId(0, 1): passed, RunId(0, 0): passed})

    assert row.sections == (("stdout (run0)", "hello"), ("stdout (run1)", "hello"))


SUM = {"role": "user", "content": "7 + 8?"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add"}}]}


def brief(text: str) -> str:
    return shortened(text, 600)


def briefly(text: str) -> str:
    return shortened(text, 200)


def said(content: object) -> dict[str, object]:
    return {"role": "assistant", "content": content}


def answer(*messages: Any, truth: object = "15") -> ScoredAnswer:
    return ScoredAnswer.of([SUM, *messages], 1, truth)


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
    assert ScoredAnswer.of([SUM, shot, SUM], 3, "15").line == 'expected "15"'
    assert ScoredAnswer.of([SUM, shot, SUM, said("14")], 3, "15").text == "14"


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


def test_a_run_has_its_outcome_score_duration_tokens_and_cost_or_its_boundary_or_status() -> None:
    found = properties_of([finished({A: 0.25})], PassRule((A,)), [0.5])

    assert found == [
        ("osmosis.outcome", "failed"),
        ("osmosis.pass", "false"),
        ("osmosis.score", 0.25),
        ("osmosis.duration_ms", 450.5),
        ("osmosis.tokens", 18),
        ("osmosis.cost_usd", 0.5),
    ]

    broke, never, out = (
        dict(properties_of([each], PassRule((A,)), [None])) for each in (failed("provider"), pending(), removed())
    )

    assert broke == {"osmosis.outcome": "provider", "osmosis.pass": "false", "osmosis.duration_ms": 450.5}
    assert never == {"osmosis.outcome": "pending", "osmosis.pass": "false"}
    assert out["osmosis.outcome"] == "skipped"


def test_each_of_several_functions_has_its_score_or_its_mean() -> None:
    record = finished({A: 1.0, B: 0.5})
    found = dict(properties_of([record], PassRule((A, B), decide=A), [None]))

    assert (found["osmosis.score"], found[f"osmosis.score.{A}"], found[f"osmosis.score.{B}"]) == (1.0, 1.0, 0.5)
    assert "osmosis.score" not in dict(properties_of([record], PassRule((A, B)), [None]))

    records = [finished({A: 1.0, B: 0.5}), finished({A: 1.0, B: 1.0}, run=1)]

    means = dict(properties_of(records, PassRule((A, B), decide=A), [None, None]))

    assert (means["osmosis.score"], means[f"osmosis.score.{A}"], means[f"osmosis.score.{B}"]) == (1.0, 1.0, 0.75)


def test_a_row_has_means_and_sums_of_its_runs() -> None:
    records = [finished({A: 1.0}), finished({A: 0.25}, run=1), failed("agent", run=2), removed(run=3)]

    found = properties_of(records, PassRule((A,)), [0.5, 0.25, None, None])

    assert found == [
        ("osmosis.outcome", "failed"),
        ("osmosis.pass", "false"),
        ("osmosis.runs", 4),
        ("osmosis.runs_passed", 1),
        ("osmosis.score", 1.25 / 3),
        ("osmosis.duration_ms", 4 * 450.5),
        ("osmosis.tokens", 3 * 18),
        ("osmosis.cost_usd", 0.75),
    ]


@pytest.mark.parametrize(
    ("records", "outcome"),
    [
        ([finished({A: 1.0}), removed(run=1)], "passed"),
        ([removed(), removed(run=1)], "skipped"),
        ([finished({A: 1.0}), pending(run=1)], "pending"),
        ([finished({A: 1.0}), failed("provider", run=1), pending(run=2)], "provider"),
        ([failed("provider"), finished({A: 0.0}, run=1)], "failed"),
    ],
)
def test_a_row_has_the_status_of_its_test(records: list[RunRecord], outcome: str) -> None:
    found = dict(properties_of(records, PassRule((A,)), [None] * len(records)))

    assert (found["osmosis.outcome"], found["osmosis.pass"]) == (outcome, str(outcome == "passed").lower())
