"""The rows of a training config: a preflight checks all of them, and rolls a few out if there is a model to ask."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_osmosis.datasets import Checked, Dataset, Row, check_rows
from pytest_osmosis.text.chat_messages import text_of
from pytest_osmosis.text.numbers import count, plural
from pytest_osmosis.text.recorded import label_of, metadata_of

WITHOUT_MODEL = (
    "no model to ask: nothing was rolled out or graded; name a server that has one with [model] base_url or "
    "--osmosis-base-url=URL, or another model with --osmosis-model=MODEL"
)
NOT_GRADED = "has neither a ground_truth nor metadata, so no Grader would be called for it"
CHARS_PER_TOKEN = 4
"""A rule of thumb for English. Only the model's tokenizer knows, so no row fails because of it."""


def check_training_rows(dataset: Dataset, rows: Iterable[int], max_prompt_length: int | None) -> Checked:
    """Check rows, which must have something to grade. A note says which prompts may be too long.

    Raises `DatasetError`.
    """
    longest: dict[int, int] = {}

    def fault_of(row: Row) -> str | None:
        chars = sum(len(text_of(message.get("content"))) for message in row.messages)
        if max_prompt_length is not None and (tokens := -(-chars // CHARS_PER_TOKEN)) > max_prompt_length:
            longest[row.row_index] = tokens
        return NOT_GRADED if label_of(row.record) is None and metadata_of(row.record) is None else None

    checked = check_rows(dataset, rows, fault_of=fault_of)
    if not longest:
        return checked
    row = max(longest, key=longest.__getitem__)
    note = (
        f"{plural(len(longest), 'prompt')} may be longer than [training] max_prompt_length = {max_prompt_length}: the "
        f"longest, row {row}, has about {count(longest[row])} tokens, estimated as {CHARS_PER_TOKEN} characters each"
    )
    return checked._replace(notes=(*checked.notes, note))
