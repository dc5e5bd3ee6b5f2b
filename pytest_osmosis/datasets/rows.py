"""Rows: cells named by their columns, with a prompt, as text or as chat messages, and perhaps a ground truth.

Names of columns are ours, in any case and with surrounding blanks, or the dataset's own, as mapped. Text is strict JSON
(no NaN, no infinity, no number that is too large for a float, no key twice in one object), or a CSV record. Faults are
raised as `BadRow`. The column with scores by humans, to which those of reward functions are compared, is taken out of
every row, so that neither agents nor what scores can copy it.

Warnings tell of valid rows whose scores mean little: repeated prompts, and prompts that contain the answer. Only
digests and positions of rows are kept for them, so that memory grows by a few bytes per row.
"""

from __future__ import annotations

import csv
import functools
import itertools
import json
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, NamedTuple, Self

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis.config.tables import ROW_COLUMNS
from pytest_osmosis.files.reading import WITHOUT_REPEATS, JsonFault
from pytest_osmosis.text.chat_messages import (
    METADATA_COLUMN,
    SOLUTION,
    metadata_of,
    prompt_of,
    recorded_conversation,
    text_of,
)
from pytest_osmosis.text.names import listed
from pytest_osmosis.text.numbers import count, plural


class BadRow(Exception):
    """A row or a header with faults, one text each. `line` is set if it differs from the row's first line."""

    def __init__(self, *faults: str, line: int | None = None) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults
        self.line = line


class Unscannable(Exception):
    """Rows cannot be separated from `line` on, or at all. `text` is the reason and the fix."""

    def __init__(self, line: int | None, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text


class Damaged(Exception):
    """A part of the file with many rows cannot be read, for a reason that no single row has."""


class Template(Struct, frozen=True):
    """A Jinja2 template of the prompt over the columns of a row. `render` raises what Jinja2 or an expression raises.

    Templates come from configs, and values from datasets: a value is never a template, and attributes of Python's
    objects are out of reach.
    """

    render: Callable[[Mapping[str, Any]], str]

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the template with a text. Raises BadRow for bad syntax, or if Jinja2 is not installed."""
        try:
            from jinja2 import StrictUndefined, TemplateSyntaxError
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError as error:
            raise BadRow('a template needs Jinja2: pip install "pytest-osmosis[templates]"') from error
        try:
            made = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True).from_string(
                text
            )
        except TemplateSyntaxError as error:
            raise BadRow(f"not a valid template: {error.message}") from error
        return cls(made.render)

    def prompt(self, record: Mapping[str, Any], raw: Mapping[str, Any]) -> str:
        """Return the prompt of a row, whose columns have our names in `record`. `row["a name"]` is any column."""
        values = {**record, **raw}
        try:
            text = self.render({"row": values, **values})
        except Exception as error:  # an expression may raise anything
            names = ", ".join(map(shown_json, raw))
            raise BadRow(f"[data] user_prompt: {error or type(error).__name__}; the columns are {names}") from error
        if not text.strip():
            raise BadRow("[data] user_prompt: the template makes a blank prompt of this row; remove the row")
        return text


class Columns(Struct, frozen=True, eq=False):
    """The mapping of `[data] columns` from our names to the dataset's, and `[data] user_prompt`."""

    mapped: Mapping[str, str]
    template: Template | None = None

    def titled(self, ours: str) -> str:
        """Return one of our columns as problems name it: with the dataset's name first, if they differ."""
        theirs = self.mapped.get(ours)
        return f'column "{ours}"' if theirs is None else f'column "{theirs}" ({ours})'

    def with_nested(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a row with the values that are mapped from inside of objects, as in `messages = "input.chat"`."""
        found = {}
        for path in self.mapped.values():
            if path not in raw and "." in path:
                *parts, last = path.split(".")
                at: Any = raw
                for part in parts:
                    at = at.get(part) if isinstance(at, Mapping) else None
                if isinstance(at, Mapping) and last in at:
                    found[path] = at[last]
        return {**raw, **found} if found else raw

    def ours(self, names: Iterable[str]) -> list[str]:
        """Return our name for each column, or its own. Raises BadRow if two names mean the same column."""
        names = list(names)
        folded = {fold(name) for name in names}
        by_folded = {fold(theirs): ours for ours, theirs in self.mapped.items()}
        taken: dict[str, str] = {}
        faults = []
        is_label = "ground_truth" not in folded and "ground_truth" not in self.mapped
        for name in names:
            own = "ground_truth" if is_label and fold(name) == "label" else fold(name)
            ours = by_folded.get(fold(name)) or (own if own in ROW_COLUMNS else name)
            if ours in self.mapped and fold(name) not in by_folded:
                takes = f'[data] columns takes {ours} from "{self.mapped[ours]}"'
                faults.append(f'column "{name}": {takes}; rename this column or remove the mapping')
            elif ours in taken:
                faults.append(same_column(taken[ours], name))
            taken.setdefault(ours, name)
        if faults:
            raise BadRow(*faults)
        return list(taken)


@functools.lru_cache(maxsize=64)  # most rows of a dataset have the same columns
def ours_of(columns: Columns, names: tuple[str, ...]) -> list[str]:
    """Return the same as `columns.ours`."""
    return columns.ours(names)


def same_column(first: str, second: str) -> str:
    """Return the fault of two names that mean the same column."""
    if first == second:
        return f'column "{first}" appears more than once; remove or rename one'
    return f'columns "{first}" and "{second}" are the same column; remove or rename one'


def fold(name: str) -> str:
    """Return a column's name in the form that is compared: in lower case, without surrounding blanks."""
    return name.strip().casefold()


def parse_json(text: str) -> Any:
    try:
        return WITHOUT_REPEATS.decode(text)
    except JsonFault as fault:
        raise BadRow(f"{fault}; {fault.fix}") from fault
    except json.JSONDecodeError as error:
        text = f"not valid JSON at character {error.pos + 1}: {error.msg}; expected one complete JSON value"
        raise BadRow(text) from error
    except RecursionError as error:
        raise BadRow("nested too deeply to be read; flatten it") from error
    except ValueError as error:  # an integer with more digits than Python converts
        raise BadRow(f"not a usable number: {error}") from error


def parse_object(text: str) -> dict[str, Any]:
    record = parse_json(text)
    if not isinstance(record, dict):
        raise BadRow(f'must be an object like {{"user_prompt": "..."}}, got {shown_json(record)}')
    return record


def parse_cells(header: Sequence[str], text: str) -> dict[str, Any]:
    """Return the record of a CSV row. All values are strings."""
    cells = parse_csv(text)
    if len(cells) != len(header):
        text = f"must have {plural(len(header), 'cell')} like the header, got {plural(len(cells), 'cell')}"
        raise BadRow(f"{text}; quote cells that contain a comma or a line break")
    return dict(zip(header, cells, strict=True))


def parse_csv(text: str) -> list[str]:
    with cells_of_any_size():
        return next(csv.reader([text], strict=True))


_FIELD_LIMIT = threading.Lock()  # protects csv.field_size_limit, a setting of the whole process


@contextmanager
def cells_of_any_size() -> Iterator[None]:
    """Let `csv` read cells of more than 128 KiB, and restore its limit afterwards."""
    with _FIELD_LIMIT:
        before = csv.field_size_limit(2**31 - 1)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def otherwise_separated(names: Sequence[str]) -> str | None:
    """Return the fault of a CSV header that seems to use another separator than a comma, or None."""
    separator = next((mark for mark in ";\t|" if len(names) == 1 and mark in names[0]), None)
    if separator is None:
        return None
    return f"cells are separated by {json.dumps(separator)}; save the file with commas, or as .jsonl"


def shown_json(value: object) -> str:
    """Return a value for messages: as JSON, on one line, cut to 60 characters."""
    text = json.dumps(value, ensure_ascii=False)
    if not text.isprintable():
        text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


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


class Row(Struct, frozen=True):
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
        """Return the row with a system prompt in place of its own. Of its `digests` the first stays."""
        own = self.messages
        others = list(itertools.dropwhile(lambda message: message.get("role") in INSTRUCTING, own))
        return replace(self, messages=[{"role": "system", "content": text}, *others], own_messages=own)

    @property
    def has_prompt(self) -> bool:
        """True unless the row has only metadata."""
        return bool(self.messages if self.own_messages is None else self.own_messages)

    @property
    def digests(self) -> tuple[str, Content]:
        """The digest of prompt, metadata and ground truth, in 16 hexadecimal digits, and those of the content.

        The first does not depend on the row's position, nor, if it has a prompt or an id, on a recorded answer.
        """
        asked = [as_text(part) for part in self.asked]
        parts = [*asked, as_text(self.ground_truth)]
        if self.own_messages is not None:
            parts[0] = as_text(self.own_messages)
        if self.conversation is not None and not self.messages:
            parts.insert(
                0, as_text(next((self.record[name] for name in IDS if self.record.get(name)), self.conversation))
            )
        said = as_text(self.conversation) if self.conversation else asked[0] if len(asked) == 1 else _listed(asked)
        return _digest(_listed(parts)), Content(_digest(said), _digest(as_text(self.record)))

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


def _listed(texts: Iterable[str]) -> str:
    """Return `as_text` of a list, whose items have these texts."""
    return f"[{', '.join(texts)}]"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


IDS = ("id", "conversation_id")
"""Columns that identify a conversation."""


def make_row(
    row_index: int, line: int, raw: Mapping[str, Any], columns: Columns, *, text_cells: bool, recorded: bool = False
) -> Row:
    """Return the row of a parsed record. With `text_cells`, messages are JSON text. Raises BadRow with all faults.

    With `recorded`, the row holds a conversation that is only scored.
    """
    if columns.mapped:
        raw = columns.with_nested(raw)
    record = dict(zip(ours_of(columns, tuple(raw)), raw.values(), strict=True))
    if columns.mapped and not recorded:
        _exchange(record, columns)
    if text_cells and not _is_blank(record.get("messages")):
        try:
            record["messages"] = parse_json(record["messages"])
        except BadRow as error:
            raise BadRow(*(f"{columns.titled('messages')}: {fault}" for fault in error.faults)) from error
    if recorded:
        return _recorded_row(row_index, line, record, columns)
    if columns.template is not None:
        prompt = {"role": "user", "content": columns.template.prompt(record, raw)}
        messages = [*_system_messages(record, columns), prompt]
    elif METADATA_COLUMN in record and _is_blank(record.get("messages")) and _is_blank(record.get("user_prompt")):
        if (metadata := metadata_of(record)) is None:
            must = "must be a JSON object that is not empty in a row without a prompt"
            got = f"got {shown_json(record[METADATA_COLUMN])}; write one, or a user_prompt"
            raise BadRow(f"{columns.titled(METADATA_COLUMN)}: {must}, {got}")
        record[METADATA_COLUMN] = metadata
        messages = _system_messages(record, columns)
    elif _is_blank(record.get("messages")):
        messages = _prompt_messages(record, columns)
    else:
        messages = _checked_messages(record, columns)
    return Row(row_index, messages, record.get("ground_truth"), record, line)


def _exchange(record: dict[str, Any], columns: Columns) -> None:
    """Let a mapped column hold a text in one row and a chat in another."""
    if (
        "user_prompt" in columns.mapped
        and _is_blank(record.get("messages"))
        and isinstance(chat := record.get("user_prompt"), list)
        and any(isinstance(message, dict) for message in chat)
    ):
        record["messages"] = record.pop("user_prompt")
    elif (
        "messages" in columns.mapped
        and _is_blank(record.get("user_prompt"))
        and isinstance(text := record.get("messages"), str)
        and not text.lstrip().startswith("[")
    ):
        record["user_prompt"] = record.pop("messages")


def _recorded_row(row_index: int, line: int, record: dict[str, Any], columns: Columns) -> Row:
    if _is_blank(record.get("messages")) or record["messages"] == []:
        record.pop("messages", None)
        solution = record.get(SOLUTION)
        if solution is None:
            raise BadRow(missing(columns, record, recorded=True))
        if not isinstance(solution, str):
            text = f"must be a string, got {shown_json(solution)}; write the answer there or remove the row"
            raise BadRow(f"{columns.titled(SOLUTION)}: {text}")
        given = (record.get(name) for name in ("user_prompt", "original_input"))
        asked = next((text for text in given if not _is_blank(text)), None)
        user = [{"role": "user", "content": asked}] if isinstance(asked, str) else []
        prompt = [*_system_messages(record, columns), *user]
    else:
        record["messages"] = _checked_chat(columns.titled("messages"), record["messages"], _recorded_fault)
        prompt = [dict(message) for message in prompt_of(record["messages"])]
        if len(prompt) == len(record["messages"]):
            text = "has no message of the assistant, so there is no answer to score; add one or remove the row"
            raise BadRow(f"{columns.titled('messages')}: {text}")
    conversation = recorded_conversation(prompt, record)
    return Row(row_index, prompt, record.get("ground_truth"), record, line, conversation)


def missing(columns: Columns, names: Iterable[str], *, recorded: bool) -> str:
    """Return the fault of a row, or of a header, with nothing to ask a model; if `recorded`, with nothing to score."""
    present = ", ".join(shown_json(name) for name in names) or "none"
    one, other, add, what, example = "user_prompt", "messages", "it", "prompt", "user_prompt"
    if recorded:
        one, other, add, what, example = "messages", SOLUTION, "one of them", "answer", SOLUTION
    fix = (
        f'add {add}, or name the column with the {what} in [data] columns = {{{example} = "..."}}, or with '
        f"--osmosis-set=data.columns.{example}=..."
    )
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
    needed = {"messages", SOLUTION} if recorded else {"user_prompt", "messages", METADATA_COLUMN}
    nested = {name for name, path in columns.mapped.items() if path.partition(".")[0] in names}
    if columns.template is None and needed.isdisjoint({*ours, *nested}):
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
    truths: set[int] = set()  # their hashes: only their number counts
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
            truths.add(hash(as_text(row.ground_truth)))
            if row.conversation is None and _reveals_answer(row):
                revealed.append(row.row_index)
    notes = []
    for first, others in list(repeats.items())[:1]:
        n = count(sum(map(len, repeats.values())))
        what, otherwise = ("conversation", "") if recorded else ("prompt", "; for more runs of all rows, raise n")
        repeated = f"rows with the {what} of an earlier row: {n} (first: row {others[0]} has that of row {first})"
        notes.append(f"{repeated}; what is repeated weighs more, so remove them{otherwise}")
    labels = len(truths) > 1 and len(truths) * ROWS_PER_LABEL <= n_truths
    if revealed and not labels:
        fix = "a model can copy the answer, so remove it there"
        notes.append(f"rows with their ground truth in their prompt: {listed(revealed, _MOST_LISTED)}; {fix}")
    return tuple(notes)


def _reveals_answer(row: Row) -> bool:
    truth = row.ground_truth
    if isinstance(truth, bool) or not isinstance(truth, str | int | float):
        return False
    answer = _plain(str(truth))
    contents = (message.get("content") for message in row.messages)
    parts = (part for content in contents for part in (content if isinstance(content, list) else [content]))
    prompt = "\n".join(text_of([part]) for part in parts)
    if len(answer) < SHORTEST_ANSWER or answer.partition(" ")[0] not in prompt.casefold():  # most rows end here
        return False
    whole = rf"(?<!\w)(?<!\d[.,]){re.escape(answer)}(?!\w|[.,]\d)"  # no part of a longer word or number
    return re.search(whole, _plain(prompt)) is not None


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
