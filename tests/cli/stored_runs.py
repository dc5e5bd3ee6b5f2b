"""Eval runs made by hand, for tests of the commands that look at them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.made import BROKE, finished, published

Cli = Callable[..., Any]
"""Runs a command in an empty folder, checks its exit status (0, or `fails`) and returns what it prints."""
Stored = Callable[..., Path]
"""Writes the folder of an eval run that ended earlier."""

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
MESSAGES = [
    {"role": "user", "content": [{"type": "text", "text": "1 + 1?"}, {"type": "image_url", "image_url": {}}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "2"},
    {"role": "assistant", "content": "two\n\x1b[31mred"},
]
LOADED = {"ev": "loaded", "scorers": ["rewards:exact", "rewards:style"], "digests": {}}
ROWS = {
    "ev": "rows",
    "rows": {str(row): ["p", "w"] for row in range(9)},
    "digests": {str(row): f"{row:016x}" for row in range(9)},
}
ROLLOUT = {
    "ev": "rollout",
    "row": 3,
    "run": 1,
    "attempt": 1,
    "ms": 1500.0,
    "messages": MESSAGES,
    "n_prompt": 1,
    "finish_reason": "stop",
    "usage": {"input_tokens": 1200, "output_tokens": 7},
    "model": "m",
    "retries": 2,
    "output": {"stdout": "printed\n"},
}
SCORE = {
    "ev": "score",
    "output": {},
    "row": 3,
    "run": 1,
    "attempt": 1,
    "ms": 20.0,
    "scores": {"rewards:exact": 0.25},
    "errors": {"rewards:style": {"message": "ValueError: no style", "details": "Traceback\n  line"}},
}
A, B = "rewards:exact", "rewards:style"
RECORDS = [finished({A: 0.25}, 3, 0), finished({A: 0.25}, 3, 1, errors={B: BROKE})]
RESULTS = published(RECORDS, scorers=(A, B), decide=A, thresholds={A: 0.5}, n=2)
RESULTS["summary"] |= {"total_rows": 1000, "total_runs": 4000, "selected": 2000, "pass_rate": 0.5}
RESULTS["summary"] |= {"total_tokens": 12345, "cost_usd": 1.25, "cost_unknown": 0}
RESULTS["provenance"]["started_at"] = "2026-01-02T03:04:05.678+00:00"
RATES = {"input": 10.0, "output": 300 / 7, "cached_input": 10.0, "cache_write": 10.0}
RESULTS["config"]["price"] = {"source": "[prices]", **RATES}
"""The run of `ROLLOUT` cost $0.0123."""
