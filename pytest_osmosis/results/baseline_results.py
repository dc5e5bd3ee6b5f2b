"""Stored results as a baseline: whether they can be one, and the settings that differ from theirs.

Only the results of a whole plan can be a baseline.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_osmosis.results.publish import redacted
from pytest_osmosis.results.read import PublishedResults
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.redaction import Redaction

COMPARED = {
    "name": "the eval",
    "model": "the model",
    "n_runs": "runs per row",
    "eval_fns": "the functions that score",
    "thresholds": "the thresholds",
    "decide": "what decides",
    "score_ranges": "the ranges of scores",
    "sampling": "the sampling",
    "system_prompt": "the system prompt",
    "judge": "the judge",
}
"""Keys of the published `config` that must be equal for a fair comparison, with their names in notes."""


def why_unfit(stored: PublishedResults) -> str | None:
    """Return why results cannot be a baseline, None if they can."""
    if stored.replayed:
        return "was replayed from a cassette, not measured"
    if stored.partial:
        return "holds only a part of its eval"
    if stored.status != "finished":
        return f"its eval {'failed' if stored.status == 'failed' else 'was stopped'} ({stored.stop_reason})"
    if stored.pending:
        return f"{plural(stored.pending, 'run')} of its eval never ran"
    return None if stored.measured else "no run of its eval was measured"


def differing_settings(stored: PublishedResults, config: Mapping[str, Any], redaction: Redaction) -> tuple[str, ...]:
    """Return the settings that differ in `config`, in words: "the model: openai/gpt-5.4, here openai/gpt-5.4-mini".

    Stored settings are redacted, so those of `config` are redacted first.
    """
    here = json.loads(json.dumps(redacted({key: config.get(key) for key in COMPARED}, redaction)))
    pairs = ((name, stored.config.get(key), here[key]) for key, name in COMPARED.items())
    return tuple(f"{name}: {_written(old)}, here {_written(new)}" for name, old, new in pairs if old != new)


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
