"""Rows: records with a prompt, as text or as chat messages, and perhaps a ground truth.

Warnings tell of valid rows whose scores mean little: repeated prompts, and prompts that contain the answer. Only
digests and positions of rows are kept for them, so that memory grows by a few bytes per row.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, NamedTuple

from pytest_osmosis.datasets.columns import (
    BadRow,
    Columns,
    fold,
    otherwise_separated,
    ours_of,
    parse_json,
    same_column,
    shown_json,
)
from pytest_osmosis.text.chat_messages import text_of
from pytest_osmosis.text.names import listed
from pytest_osmosis.text.recorded import METADATA, SOLUTION, metadata_of, prompt_of, recorded_conversation

INSTRUCTING = ("system", "developer")
"""The roles of a system prompt: OpenAI's newer models call it the developer's."""
ROLES = (*INSTRUCTING, "user", "assistant", "tool")
RECORDED_ROLES = (*ROLES, "function")
"""The roles of messages that are not sent anywhere."""


class Content(NamedTuple):
    """Digests of what a row asks, prompt and metadata, and of its whole record. A change of the former invalidates
    rollouts, any change scores."""

    prompt: str
    whole: str


@dataclass(frozen=True, slots=True)
class Row:
    """One row. `row_index` is its absolute position, and `line` the 1-based line on which it starts.

    `messages` is the prompt, in the format of OpenAI's chat completions; empty in a row that has only metadata.
    `ground_truth` is None if absent or null.
    `record` is the whole row: columns with a meaning under our names, and all others under their own. `conversation` is
    that of a recorded row, whose `messages` are those before the first answer; None for a row that is rolled out.
    `own_messages` is the prompt of the row itself, if the eval replaced its system prompt.
    """

    row_index: int
    messages: list[dict[str, Any]]
    ground_truth: object | None
    record: dict[str, Any]
    line: int
    conversation: list[dict[str, Any]] | None = None
    own_messages: list[dict[str, Any]] | None = None

    def with_system_prompt(self, text: str) -> Row:
        """Return the row with a system prompt in place of its own. Its `digest` stays, its `content` does not."""
        own = self.messages
        others = list(itertools.dropwhile(lambda message: message.get("role") in INSTRUCTING, own))
        return replace(self, messages=[{"role": "system", "content": text}, *others], own_messages=own)

    @property
    def has_prompt(self) -> bool:
        """True unless the row has only metadata."""
        return bool(self.messages if self.own_messages is None else self.own_messages)

    @property
    def digest(self) -> str:
        """The digest of prompt, metadata and ground truth, in 16 hexadecimal digits. It does not depend on the row's
        position, nor, if it has a prompt or an id, on a recorded answer."""
        parts = [*self.asked, self.ground_truth]
        if self.own_messages is not None:
            parts[0] = self.own_messages
        if self.conversation is not None and not self.messages:
            parts.insert(0, next((self.record[name] for name in IDS if self.record.get(name)), self.conversation))
        return digest_of(parts)

    @property
    def content(self) -> Content:
        prompt = self.conversation or (self.asked if len(self.asked) > 1 else self.messages)
        return Content(digest_of(prompt), digest_of(self.record))

    @property
    def asked(self) -> list[object]:
        """The prompt, and the metadata if there is any."""
        metadata = metadata_of(self.record)
        return [self.messages] if metadata is None else [self.messages, metadata]

    @property
    def solution(self) -> str | None:
        solution = self.record.get(SOLUTION)
        return solution if isinstance(solution, str) and solution.strip() else None


as_text = json.JSONEncoder(sort_keys=True, default=str).encode
"""Returns the text that digests are made of: the same text for the same content."""


def digest_of(value: object) -> str:
    return blake2b(as_text(value).encode(), digest_size=8).hexdigest()


IDS = ("id", "conversation_id")
"""Columns that identify a conversation."""


def make_row(
    row_index: int, line: int, raw: Mapping[str, Any], columns: Columns, *, text_cells: bool, recorded: bool = False
) -> Row:
    """Return the row of a parsed record. With `text_cells`, messages are JSON text. Raises BadRow with all faults.

    With `recorded`, the row holds a conversation that is only scored.
    """
    record = dict(zip(ours_of(columns, tuple(raw)), raw.values(), strict=True))
    if text_cells and not _is_blank(record.get("messages")):
        try:
            record["messages"] = parse_json(record["messages"])
        except BadRow as error:
            raise BadRow(*(f"{columns.titled('messages')}: {fault}" for fault in error.faults)) from error
    if recorded:
        return _recorded_row(row_index, line, record, columns)
    if METADATA in record and _is_blank(record.get("messages")) and _is_blank(record.get("user_prompt")):
        if (metadata := metadata_of(record)) is None:
            must = "must be a JSON object that is not empty in a row without a prompt"
            got = f"got {shown_json(record[METADATA])}; write one, or a user_prompt"
            raise BadRow(f"{columns.titled(METADATA)}: {must}, {got}")
        record[METADATA] = metadata
        messages = _system_messages(record, columns)
    elif _is_blank(record.get("messages")):
        messages = _prompt_messages(record, columns)
    else:
        messages = _checked_messages(record, columns)
    return Row(row_index, messages, record.get("ground_truth"), record, line)


def _recorded_row(row_index: int, line: int, record: dict[str, Any], columns: Columns) -> Row:
    if _is_blank(record.get("messages")) or record["messages"] == []:
        record.pop("messages", None)
        solution = record.get(SOLUTION)
        if solution is None:
            raise BadRow(missing(columns, record, recorded=True))
        if not isinstance(solution, str):
            text = f"must be a string, got {shown_json(solution)}; write the answer there or remove the row"
            raise BadRow(f"{columns.titled(SOLUTION)}: {text}")
        prompt = _prompt_of_answer(record, columns)
    else:
        record["messages"] = _checked_chat(columns.titled("messages"), record["messages"], _recorded_fault)
        prompt = [dict(message) for message in prompt_of(record["messages"])]
        if len(prompt) == len(record["messages"]):
            text = "has no message of the assistant, so there is no answer to score; add one or remove the row"
            raise BadRow(f"{columns.titled('messages')}: {text}")
    conversation = recorded_conversation(prompt, record)
    return Row(row_index, prompt, record.get("ground_truth"), record, line, conversation)


def _prompt_of_answer(record: Mapping[str, Any], columns: Columns) -> list[dict[str, Any]]:
    """Return the prompt of a row with only an answer: its `user_prompt` or `original_input`, or none."""
    asked = next((text for name in ("user_prompt", "original_input") if not _is_blank(text := record.get(name))), None)
    user = [{"role": "user", "content": asked}] if isinstance(asked, str) else []
    return [*_system_messages(record, columns), *user]


def missing(columns: Columns, names: Iterable[str], *, recorded: bool) -> str:
    """Return the fault of a row, or of a header, with nothing to ask a model; if `recorded`, with nothing to score."""
    present = ", ".join(shown_json(name) for name in names) or "none"
    one, other, add, what, example = "user_prompt", "messages", "it", "prompt", "user_prompt"
    if recorded:
        one, other, add, what, example = "messages", SOLUTION, "one of them", "answer", SOLUTION
    fix = f'add {add}, or name the column with the {what} in [data] columns = {{{example} = "..."}}'
    return f'{columns.titled(one)}: missing, and no "{other}" either; the columns are {present}; {fix}'


def check_header(names: Iterable[str], columns: Columns, *, recorded: bool = False) -> None:
    """Raise BadRow if a header has no prompt, or no conversation if they are `recorded`, or has a column twice."""
    names = list(names)
    first: dict[str, str] = {}
    duplicates = []
    for name in names:
        if fold(name) in first:
            duplicates.append(same_column(first[fold(name)], name))
        first.setdefault(fold(name), name)
    if duplicates:
        raise BadRow(*duplicates)
    ours = columns.ours(names)
    needed = {"messages", SOLUTION} if recorded else {"user_prompt", "messages", METADATA}
    if needed.isdisjoint(ours):
        raise BadRow(otherwise_separated(names) or missing(columns, names, recorded=recorded))


def _prompt_messages(record: Mapping[str, Any], columns: Columns) -> list[dict[str, Any]]:
    faults = []
    user_prompt = record.get("user_prompt")
    if "user_prompt" not in record:
        faults.append(missing(columns, record, recorded=False))
    elif not isinstance(user_prompt, str) or _is_blank(user_prompt):
        text = f"must be a non-blank string, got {shown_json(user_prompt)}"
        faults.append(f"{columns.titled('user_prompt')}: {text}; write the prompt there or remove the row")
    try:
        system = _system_messages(record, columns)
    except BadRow as error:
        raise BadRow(*faults, *error.faults) from None
    if faults:
        raise BadRow(*faults)
    return [*system, {"role": "user", "content": user_prompt}]


def _system_messages(record: Mapping[str, Any], columns: Columns) -> list[dict[str, Any]]:
    system_prompt = record.get("system_prompt")
    if not isinstance(system_prompt, str | None):
        text = f"must be a string or null, got {shown_json(system_prompt)}"
        raise BadRow(f"{columns.titled('system_prompt')}: {text}; put it in quotes or remove it")
    return [] if _is_blank(system_prompt) else [{"role": "system", "content": system_prompt}]


def _checked_messages(record: Mapping[str, Any], columns: Columns) -> list[dict[str, Any]]:
    title = columns.titled("messages")
    faults = [
        f'{title}: cannot be combined with "{other}"; keep one of them in this row'
        for other in ("user_prompt", "system_prompt")
        if not _is_blank(record.get(other))
    ]
    try:
        chat = _checked_chat(title, record["messages"], _message_fault)
    except BadRow as error:
        raise BadRow(*faults, *error.faults) from None
    if faults:
        raise BadRow(*faults)
    return chat


def _checked_chat(title: str, messages: object, fault_of: Callable[[object], str | None]) -> list[dict[str, Any]]:
    if not isinstance(messages, list) or not messages:
        valid = 'a non-empty list of {"role": ..., "content": ...}'
        raise BadRow(f"{title}: must be {valid}, got {shown_json(messages)}; write the chat there or use user_prompt")
    said = enumerate(map(fault_of, messages))
    faults = [f"{title}: message {number}: {fault}" for number, fault in said if fault is not None]
    if faults:
        raise BadRow(*faults)
    return [dict(message) for message in messages]


def _recorded_fault(message: object) -> str | None:
    """Return the fault of a message that was recorded. A model may have answered with nothing."""
    if isinstance(message, dict) and message.get("role") == "assistant" and message.get("content") is None:
        return None
    return _message_fault(message, RECORDED_ROLES)


def _message_fault(message: object, roles: Sequence[str] = ROLES) -> str | None:
    if not isinstance(message, dict):
        return f'must be an object with "role" and "content", got {shown_json(message)}'
    role, content = message.get("role"), message.get("content")
    if role not in roles:
        return f'"role" must be one of {", ".join(roles)}, got {shown_json(role)}'
    if isinstance(content, str | list) or (content is None and role == "assistant" and message.get("tool_calls")):
        return None
    return f'"content" must be a string or a list of parts, got {shown_json(content)}'


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


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
