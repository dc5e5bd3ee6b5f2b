"""`Reward`: what a reward function returned. A plain number is the norm; a reason and metrics may come with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pytest_osmosis.text.names import suggestion
from pytest_osmosis.text.safe import shortened
from pytest_osmosis.text.user_code import UserValueFault, described, metrics_of, number_of, type_name

KEYS = ("score", "reason", "metrics")
"""The keys of a returned mapping, and the attributes of a returned object."""
SHAPE = '{"score": 0.5, "reason": "...", "metrics": {...}}'
MOST_REASON_CHARS = 4_000
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Reward:
    """A score with the reason for it and further numbers, finite like the score.

    A Grader may add `fields`, and may remove the run: then `score` is None.
    """

    score: float | None
    reason: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


def reward_of(value: object) -> Reward:
    """Return the result of a function: a number, a mapping with a score, or an object with a score.

    Of an object only the attributes in `KEYS` are read. Raises `UserValueFault` for anything else, NaN and infinities.
    """
    if isinstance(value, Mapping):
        return _reward(_checked(value))
    score = _ABSENT if isinstance(value, type) else getattr(value, "score", _ABSENT)
    if score is _ABSENT:
        return Reward(number_of(value))
    return _reward({"score": score, **{name: getattr(value, name, None) for name in KEYS[1:]}})


def _checked(value: Mapping[Any, Any]) -> Mapping[str, object]:
    """Return the members of a mapping, which has a score and no other keys."""
    names = list(islice(iter(value), len(KEYS) + 1))
    for name in names:
        if name not in KEYS:
            hint = suggestion(str.__str__(name), KEYS) if isinstance(name, str) else ""
            fix = hint or "; put further numbers into its metrics"
            raise UserValueFault(
                f"returned a mapping with the unknown key {described(name)}{fix} (valid: {', '.join(KEYS)})"
            )
    if "score" not in names:
        raise UserValueFault(f"returned a mapping without a score; return a number, or {SHAPE}")
    return {name: value[name] for name in names}


def _reward(members: Mapping[str, object]) -> Reward:
    score = number_of(members["score"], "the returned score must be a")
    return Reward(score, _reason(members.get("reason")), metrics_of(members.get("metrics")))


def _reason(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UserValueFault(f"the returned reason must be a text, got {type_name(value)}: {described(value)}")
    return shortened(str.__str__(value).strip(), MOST_REASON_CHARS)
