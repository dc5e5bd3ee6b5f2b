"""The outcome of a row, by the outcomes of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent
from typing import Literal

import pytest

from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.report.failure_text import outcome_of_row
from pytest_osmosis.verdicts.pass_rule import Kind, Outcome

What = Literal["passed", "failed", "error", "removed", "pending"]
REASONS: Mapping[What, str] = {
    "passed": "",
    "failed": "score 0.2 < 0.5",
    "error": "provider: 503",
    "removed": "taken out by its grader (remove_sample)",
    "pending": "decided: the gate holds",
}


def outcome(what: What, run: int = 0) -> Outcome:
    """A run's own outcome."""
    kind: Kind = "skipped" if what in ("removed", "pending") else what  # type: ignore[assignment]
    text = f"{REASONS[what]}\nconversation of {run}" if kind in ("failed", "error") else ""
    return Outcome(kind, REASONS[what], text, duration_s=0.5)


def row_of(*runs: What) -> Outcome:
    """The outcome of the row with these runs, which were done in the other order."""
    done = {RunId(3, index): outcome(what, index) for index, what in reversed(list(enumerate(runs)))}
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
    assert row_of(what) == outcome(what)


def test_a_row_lists_some_runs_that_did_not_pass_and_shows_the_first_deciding_one() -> None:
    row = row_of("passed", "error", "failed", "failed", "pending")

    assert row.reason == (
        "3 of 5 runs did not pass, 1 never ran: run1: provider: 503; run2: score 0.2 < 0.5; run3: score 0.2 < 0.5"
    )
    assert row.text == dedent("""\
        3 of 5 runs did not pass, 1 never ran
          run1: provider: 503
          run2: score 0.2 < 0.5
          run3: score 0.2 < 0.5
        run2:
        conversation of 2""")

    assert row_of("passed", "failed").text == "1 of 2 runs did not pass\n  run1: score 0.2 < 0.5\nconversation of 1"

    runs: list[What] = ["failed"] * 100
    many = row_of(*runs)

    assert many.reason.endswith("run2: score 0.2 < 0.5; and 97 more")
    assert [line for line in many.text.splitlines() if line.startswith("  ")][-2:] == [
        "  run19: score 0.2 < 0.5",
        "  and 80 more",
    ]


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
