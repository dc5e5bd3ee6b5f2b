"""The parts of a row that Osmosis 0.3 hands to workflows and Graders: its metadata, and its label as text.

Source: osmosis_ai.eval.local.dataset, SDK 0.3.7.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

METADATA = "metadata"
"""The column with an object that may stand in place of a prompt."""


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
