"""Warnings about valid rows."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.datasets import Row, check_rows, open_dataset
from pytest_osmosis.datasets import rows as row_warnings

TOLD = "a model can copy the answer; remove it from the prompt"


def row(row_index: int, prompt: str, ground_truth: object = None, **more: Any) -> Row:
    return Row(row_index, [{"role": "user", "content": prompt, **more}], ground_truth, {}, row_index + 1)


def notes_of(rows: Iterable[Row]) -> tuple[str, ...]:
    return row_warnings.notes_of((row, row.content) for row in rows)


@pytest.mark.parametrize(
    ("prompts", "note"),
    [
        (["2+2?", "3+3?", "2+2?"], "row 2 repeats the prompt of row 0, which weighs double; remove it, or raise n"),
        (
            ["a", "b", "a", "c", "b"],
            "2 rows repeat an earlier prompt (0 and 2 first) and weigh double; remove them, or raise n",
        ),
        (
            ["a"] * 1002,
            "1,001 rows repeat an earlier prompt (0 and 1 first) and weigh more; remove them, or raise n",
        ),
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
    assert notes_of(rows) == (f"row 7 contains its ground truth in its prompt: {TOLD}",)
    rows = [row(number, f"Say {number}.", number) for number in range(100, 112)]
    assert notes_of(rows) == (f"rows 100, 101, 102 and 9 more contain their ground truth in their prompt: {TOLD}",)


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
    note = f"row 0 contains its ground truth in its prompt: {TOLD}"
    assert notes_of([row(0, prompt, ground_truth)]) == ((note,) if is_found else ())


def test_ground_truth_is_found_in_parts_and_in_any_message() -> None:
    parts = [{"type": "image_url", "image_url": {}}, {"type": "text", "text": "Say Paris"}]
    messages: list[dict[str, Any]] = [{"role": "system", "content": parts}, {"role": "user", "content": "Now."}]
    assert len(notes_of([Row(0, messages, "Paris", {}, 1)])) == 1


def test_labels_may_be_listed_in_the_prompt_but_one_answer_for_all_rows_is_no_label() -> None:
    rows = [row(n, f"Is review {n} positive or negative?", ["positive", "negative"][n % 2]) for n in range(6)]
    assert notes_of(rows) == ()
    assert len(notes_of([row(n, f"Review {n}: say positive.", "positive") for n in range(6)])) == 1


def test_check_rows_warns_about_the_selected_rows(tmp_path: Path) -> None:
    prompts = ["a", "b", "a", "b"]
    lines = [json.dumps({"user_prompt": prompt}) + "\n" for prompt in prompts]
    (tmp_path / "x.jsonl").write_text("".join(lines))
    dataset = open_dataset(tmp_path / "x.jsonl")
    assert check_rows(dataset, [0, 1, 3]).notes == (
        "row 3 repeats the prompt of row 1, which weighs double; remove it, or raise n",
    )


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
