"""Causes as lines of the summary."""

from __future__ import annotations

import pytest

from pytest_osmosis.models.base import ChatReply, refusal_error
from pytest_osmosis.record.run_record import Boundary
from pytest_osmosis.report.summary import cause_lines
from pytest_osmosis.results.results import causes_of
from pytest_osmosis.verdicts.pass_rule import PassRule
from tests.unit.made import A, failed

RULE = PassRule((A,))
REJECTED = "the server answered 400 Bad Request: temperature is not supported"
HINT = "it looks like a configuration problem, not like a bad model"


def lines(n: int, n_runs: int, error: str = REJECTED, boundary: Boundary = "model") -> list[str]:
    """Return the lines on one error that `n` of the runs met."""
    return cause_lines(causes_of([failed(boundary, row, error=error) for row in range(n)], RULE), n_runs)


@pytest.mark.parametrize(
    ("boundary", "error", "said"),
    [
        (
            "provider",
            "the server answered 502 Bad Gateway (5 tries)",
            "36 runs not measured: 502 Bad Gateway (first: row0-run0)",
        ),
        ("agent", "KeyError: 'x'", "36 runs counted as failed: KeyError: 'x' (boundary agent), first: row0-run0"),
        ("timeout", "KeyError: 'x'", "36 runs counted as failed: KeyError: 'x' (boundary timeout), first: row0-run0"),
    ],
)
def test_runs_are_counted_by_their_cause_as_not_measured_or_failed(boundary: Boundary, error: str, said: str) -> None:
    assert lines(36, 40, error, boundary) == [said]


@pytest.mark.parametrize(("n", "n_runs"), [(36, 120), (6, 119), (1, 1)])
def test_a_request_that_is_rejected_in_more_than_5_percent_of_the_runs_looks_like_a_configuration_problem(
    n: int, n_runs: int
) -> None:
    first, hint = lines(n, n_runs)

    runs = "1 run" if n == 1 else f"{n} runs"
    assert first == (
        f"{runs} counted as failed: 400 Bad Request: temperature is not supported (boundary model), first: row0-run0"
    )
    assert hint == f"  {n} of {n_runs} run{'s' * (n_runs > 1)} met this error: {HINT}"


REFUSALS = [
    ChatReply({"role": "assistant", "content": None, "refusal": "I will not add"}),
    ChatReply({"role": "assistant", "content": ""}, finish_reason="content_filter"),
]


@pytest.mark.parametrize(
    ("n", "n_runs", "error"),
    [(6, 120, REJECTED), (1, 16, REJECTED), *((36, 40, str(refusal_error(reply))) for reply in REFUSALS)],
)
def test_a_request_that_is_rejected_in_few_runs_and_refusals_are_no_configuration_problem(
    n: int, n_runs: int, error: str
) -> None:
    assert len(lines(n, n_runs, error)) == 1


def test_the_most_frequent_causes_are_listed_and_the_others_counted() -> None:
    errors = [f"KeyError: '{letter}'" for letter in "abcdefg" for _ in range(ord("h") - ord(letter))]
    causes = causes_of([failed("provider", row, error=error) for row, error in enumerate(errors)], RULE)

    said = cause_lines(causes, len(errors), of=" of the baseline")

    assert said[0] == "7 runs of the baseline not measured: KeyError: 'a' (first: row0-run0)"
    assert len(said) == 6
    assert said[-1] == "and 2 more causes (3 runs of the baseline)"
