"""Warnings about valid rows whose scores mean little: repeated prompts, and prompts that contain the answer.

Only digests and positions of rows are kept, so that memory grows by a few bytes per row.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_osmosis.datasets.rows import Content, Row, digest_of
from pytest_osmosis.text.chat_messages import text_of
from pytest_osmosis.text.lists import listed

SHORTEST_ANSWER = 3  # shorter ground truths appear in prompts by chance: "5" in "What is 5 - 0?"
ROWS_PER_LABEL = 3  # with this many rows per ground truth on average, these are labels that prompts may list
_MOST_LISTED = 3


def notes_of(rows: Iterable[tuple[Row, Content]]) -> tuple[str, ...]:
    """Return the warnings, one line each: prompts of several rows, and ground truths that appear in their prompt."""
    first_with: dict[str, int] = {}
    repeats: defaultdict[int, list[int]] = defaultdict(list)
    truths: set[str] = set()
    n_truths = 0
    revealed = []
    recorded = False
    for row, content in rows:
        recorded = recorded or row.conversation is not None
        first = first_with.setdefault(content.prompt, row.row_index)
        if first != row.row_index:
            repeats[first].append(row.row_index)
        if row.ground_truth is not None:
            n_truths += 1
            truths.add(digest_of(row.ground_truth))
            if row.conversation is None and _reveals_answer(row):
                revealed.append(row.row_index)
    labels = len(truths) > 1 and len(truths) * ROWS_PER_LABEL <= n_truths
    return (*_repeated(repeats, recorded), *([] if labels else _revealed(revealed)))


def _repeated(repeats: Mapping[int, list[int]], recorded: bool) -> Iterator[str]:
    what, otherwise = ("conversation", "") if recorded else ("prompt", ", or raise n")
    if not repeats:
        return
    first, others = next(iter(repeats.items()))
    total = sum(map(len, repeats.values()))
    if total == 1:
        yield f"row {others[0]} repeats the {what} of row {first}, which weighs double; remove it{otherwise}"
    else:
        weigh = "double" if all(len(rows) == 1 for rows in repeats.values()) else "more"
        pair = f"{first} and {others[0]} first"
        yield f"{total:,} rows repeat an earlier {what} ({pair}) and weigh {weigh}; remove them{otherwise}"


def _revealed(rows: Sequence[int]) -> Iterator[str]:
    if len(rows) == 1:
        yield f"row {rows[0]} contains its ground truth in its prompt: {_REVEALED_FIX}"
    elif rows:
        yield f"rows {_listed(rows)} contain their ground truth in their prompt: {_REVEALED_FIX}"


_REVEALED_FIX = "a model can copy the answer; remove it from the prompt"


def _listed(rows: Sequence[int]) -> str:
    if len(rows) > _MOST_LISTED:
        return listed(rows, _MOST_LISTED)
    return f"{', '.join(map(str, rows[:-1]))} and {rows[-1]}"


def _reveals_answer(row: Row) -> bool:
    truth = row.ground_truth
    if isinstance(truth, bool) or not isinstance(truth, str | int | float):
        return False
    answer = _plain(str(truth))
    contents = (message.get("content") for message in row.messages)
    parts = (part for content in contents for part in (content if isinstance(content, list) else [content]))
    prompt = _plain("\n".join(text_of([part]) for part in parts))
    whole = rf"(?<!\w)(?<!\d[.,]){re.escape(answer)}(?!\w|[.,]\d)"  # no part of a longer word or number
    return len(answer) >= SHORTEST_ANSWER and answer in prompt and re.search(whole, prompt) is not None


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
