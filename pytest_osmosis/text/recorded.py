"""Parts of a row besides its prompt: a recorded conversation, and the metadata and label of Osmosis 0.3.

Source of the latter: osmosis_ai.eval.local.dataset, SDK 0.3.7.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

RECORDED = "recorded"
"""The built-in agent that returns the conversation of its row."""
SOLUTION = "solution_str"
"""The column with an answer: the one to score, or the reference solution of a row that is rolled out."""
METADATA = "metadata"
"""The column with an object that may stand in place of a prompt."""


def recorded_conversation(prompt: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> list[Any]:
    """Return the conversation in a row: its `messages`, or else its prompt and the answer in `solution_str`.

    >>> recorded_conversation([{"role": "user", "content": "6 * 7"}], {"solution_str": "42"})
    [{'role': 'user', 'content': '6 * 7'}, {'role': 'assistant', 'content': '42'}]
    """
    return list(record.get("messages") or [*prompt, {"role": "assistant", "content": record[SOLUTION]}])


def prompt_of(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the messages before the first one of the assistant.

    >>> prompt_of([{"role": "user"}, {"role": "assistant"}, {"role": "user"}, {"role": "assistant"}])
    [{'role': 'user'}]
    """
    first = next((index for index, message in enumerate(messages) if message.get("role") == "assistant"), len(messages))
    return list(messages[:first])


def metadata_of(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the object in a row's column `metadata`, which may be JSON text; None if there is none, or an empty one.

    >>> metadata_of({"metadata": {"level": 1}}), metadata_of({"metadata": '{"level": 1}'})
    ({'level': 1}, {'level': 1})
    >>> metadata_of({"metadata": {}}), metadata_of({"metadata": "easy"}), metadata_of({})
    (None, None, None)
    """
    value = record.get(METADATA)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return dict(value) or None if isinstance(value, Mapping) else None


def label_of(record: Mapping[str, Any]) -> str | None:
    """Return the ground truth of a row as text, None if it has none, or an empty one.

    >>> label_of({"ground_truth": 42}), label_of({"ground_truth": "", "label": "b"}), label_of({"ground_truth": None})
    ('42', 'b', None)
    """
    for column in ("ground_truth", "label"):
        value = record.get(column)
        text = None if value is None else value if isinstance(value, str) else str(value)
        if text:
            return text
    return None
