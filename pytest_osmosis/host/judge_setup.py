"""The judge of a config as hosts get it, and the digest of what its scores depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypedDict

from pytest_osmosis.text.safe import dumps

RUBRIC = "rubric"
"""The name of the judge's score."""


class JudgeSetup(TypedDict):
    """The judge of a config, as a host gets it. `model` is its name as typed, `base_url` unless the name implies it."""

    model: str
    base_url: str | None
    target: Mapping[str, Any]
    rubric: str
    score_range: Sequence[float]
    votes: int
    sees: str
    metadata: Sequence[str]
    system_prompt: str
    sampling: Mapping[str, Any]


def judge_digest(setup: Mapping[str, Any]) -> str:
    """Return the digest of all that a judge's scores depend on: its model, its rubric, and what it sees.

    An endpoint may move, or lose one of its replicas, and stay the same.
    """
    target = setup["target"]
    address = None if target.get("endpoint") else target["base_url"]
    model = [setup["model"], address, target["provider"], target["model"]]
    rest = {name: value for name, value in setup.items() if name not in ("target", "model", "base_url")}
    return blake2b(dumps({"model": model, **rest}).encode(), digest_size=8).hexdigest()
