"""Warnings about valid rows whose scores mean little: repeated prompts, and prompts that contain the answer.

Only digests and positions of rows are kept, so that memory grows by a few bytes per row.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from pytest_osmosis.datasets.rows import Content, Row, as_text
from pytest_osmosis.text.lists import listed

SHORTEST_ANSWER = 3  # shorter ground truths appear in prompts by chance: "5" in "What is 5 - 0?"
ROWS_PER_LABEL = 3  # with this many rows per ground truth on average, these are labels that prompts may list
_MOST_LISTED = 3


def notes_of(rows: Iterable[tuple[Row, Content]]) -> tuple[str, ...]:
    """Return the warnings, one line each: prompts of several rows, and ground truths that appear in their prompt."""
    first_with: dict[str, int] = {}
    repeats: defaultdict[int, list[int]] = defaultdict(list)
    truths: set[bytes] = set()
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
            truths.add(_digest(row.ground_truth))
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
    return len(answer) >= SHORTEST_ANSWER and _contains(_plain("\n".join(_texts(row.messages))), answer)


def _contains(text: str, answer: str) -> bool:
    """Return True if `text` contains `answer` as whole words, not as part of a longer word or number."""
    at = text.find(answer)
    while at >= 0:
        before, after = text[max(at - 2, 0) : at], text[at + len(answer) : at + len(answer) + 2]
        if not _CONTINUES_BEFORE.search(before) and not _CONTINUES_AFTER.match(after):
            return True
        at = text.find(answer, at + 1)
    return False


_CONTINUES_BEFORE = re.compile(r"\w$|\d[.,]$")
_CONTINUES_AFTER = re.compile(r"\w|[.,]\d")


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _texts(messages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            yield content
        elif isinstance(content, list):
            texts = (part.get("text") for part in content if isinstance(part, dict))
            yield from (text for text in texts if isinstance(text, str))


def _digest(value: object) -> bytes:
    return blake2b(as_text(value).encode(), digest_size=16).digest()
