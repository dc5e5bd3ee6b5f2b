"""Warnings about valid rows."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from pytest_osmosis.datasets import Row
from pytest_osmosis.datasets import rows as row_warnings

TOLD = "rows with their ground truth in their prompt: {}; a model can copy the answer, so remove it there"
REPEATED = "the prompt of an earlier row is repeated {}, so such rows weigh more; remove them, or raise n"


def row(row_index: int, prompt: str, ground_truth: object = None, **more: Any) -> Row:
    return Row(row_index, [{"role": "user", "content": prompt, **more}], ground_truth, {}, row_index + 1)


def notes_of(rows: Iterable[Row]) -> tuple[str, ...]:
    return row_warnings.notes_of((row, row.content) for row in rows)


@pytest.mark.parametrize(
    ("prompts", "note"),
    [
        (["2+2?", "3+3?", "2+2?"], REPEATED.format("1 time (rows 0 and 2 first)")),
        (["a", "b", "a", "c", "b"], REPEATED.format("2 times (rows 0 and 2 first)")),
        (["a"] * 1002, REPEATED.format("1,001 times (rows 0 and 1 first)")),
    ],
)
def test_repeated_prompts_are_one_warning_with_a_count(prompts: list[str], note: str) -> None:
    assert notes_of(row(number, prompt) for number, prompt in enumerate(prompts)) == (note,)


def test_prompts_that_differ_in_another_message_are_not_the_same() -> None:
    system = {"role": "system", "content": "Be brief."}
    one = row(0, "2+2?")
    other = Row(1, [system, *one.messages], None, {}, 2)
    assert notes_of([one, other]) == ()


def test_ground_truths_in_their_own_prompts_are_one_warning_with_a_count() -> None:
    rows = [row(0, "17 * 23?", "391"), row(7, "17 * 24 is 408. What is 17 * 24?", "408")]
    assert notes_of(rows) == (TOLD.format("7"),)
    rows = [row(number, f"Say {number}.", number) for number in range(100, 112)]
    assert notes_of(rows) == (TOLD.format("100, 101, 102 and 9 more"),)


@pytest.mark.parametrize(
    ("prompt", "ground_truth", "is_found"),
    [
        ("The answer is New\n York.", "new york", True),
        ("It is 391.", "391", True),
        ("It is (391).", 391, True),
        ("It is 39.5, isn't it?", 39.5, True),
        ("What is 1391 - 1000?", "391", False),
        ("What is 391.5 - 0.5?", "391", False),
        ("What is 1,391 - 1,000?", "391", False),
        ("What is 5 - 0?", "5", False),
        ("Is it true?", True, False),
        ("Parisian", "Paris", False),
        ("Which of ['Paris']?", ["Paris"], False),
    ],
)
def test_whole_words_are_found_in_any_case_and_with_any_blanks(
    prompt: str, ground_truth: object, is_found: bool
) -> None:
    assert notes_of([row(0, prompt, ground_truth)]) == ((TOLD.format("0"),) if is_found else ())


def test_ground_truth_is_found_in_parts_and_in_any_message() -> None:
    parts = [{"type": "image_url", "image_url": {}}, {"type": "text", "text": "Say Paris"}]
    messages: list[dict[str, Any]] = [{"role": "system", "content": parts}, {"role": "user", "content": "Now."}]
    assert len(notes_of([Row(0, messages, "Paris", {}, 1)])) == 1


def test_labels_may_be_listed_in_the_prompt_but_one_answer_for_all_rows_is_no_label() -> None:
    rows = [row(n, f"Is review {n} positive or negative?", ["positive", "negative"][n % 2]) for n in range(6)]
    assert notes_of(rows) == ()
    assert len(notes_of([row(n, f"Review {n}: say positive.", "positive") for n in range(6)])) == 1


def test_rows_are_not_kept() -> None:
    def rows() -> Iterator[Row]:
        for number in range(2_000):
            yield row(number, f"{number}" + "x" * 10_000, f"{number}" + "y" * 10_000)

    tracemalloc.start()
    try:
        notes_of(rows())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2_000_000  # of 40 MB
