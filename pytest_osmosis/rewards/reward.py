"""`Reward`: what a reward function returned. A plain number is the norm; a reason and metrics may come with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pytest_osmosis.text.safe import shortened
from pytest_osmosis.text.suggest import suggestion
from pytest_osmosis.text.user_objects import described, type_name
from pytest_osmosis.text.user_values import UserValueFault, metrics_of, number_of

KEYS = ("score", "reason", "metrics")
"""The keys of a returned mapping, and the attributes of a returned object."""
SHAPE = '{"score": 0.5, "reason": "...", "metrics": {...}}'
MOST_REASON_CHARS = 4_000
_ABSENT = object()


class NotAScore(UserValueFault):
    """A function returned something other than a finite number, alone or with a reason and metrics."""


@dataclass(frozen=True, slots=True)
class Reward:
    """A score with the reason for it and further numbers, finite like the score.

    A Grader may add `fields`, and may remove the run: then `score` is None.
    """

    score: float | None
    reason: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


def score_of(value: object) -> float:
    """Return a number as a score. Raises `NotAScore` for anything else, NaN and infinities."""
    try:
        return number_of(value)
    except UserValueFault as fault:
        raise NotAScore(str(fault)) from None


def reward_of(value: object) -> Reward:
    """Return the result of a function: a number, a mapping with a score, or an object with a score.

    Of an object only the attributes in `KEYS` are read. Raises `NotAScore` for anything else.
    """
    try:
        if isinstance(value, Mapping):
            return _reward(_checked(value))
        score = _ABSENT if isinstance(value, type) else _attribute(value, "score")
        if score is _ABSENT:
            return Reward(number_of(value))
        return _reward({"score": score, **{name: _attribute(value, name) for name in KEYS[1:]}})
    except NotAScore:
        raise
    except UserValueFault as fault:
        raise NotAScore(str(fault)) from None


def _attribute(value: object, name: str) -> object:
    return getattr(value, name, _ABSENT)


def _checked(value: Mapping[Any, Any]) -> Mapping[str, object]:
    """Return the members of a mapping, which has a score and no other keys."""
    names = list(islice(iter(value), len(KEYS) + 1))
    for name in names:
        if name not in KEYS:
            hint = suggestion(str.__str__(name), KEYS) if isinstance(name, str) else ""
            fix = hint or "; put further numbers into its metrics"
            raise NotAScore(
                f"returned a mapping with the unknown key {described(name)}{fix} (valid: {', '.join(KEYS)})"
            )
    if "score" not in names:
        raise NotAScore(f"returned a mapping without a score; return a number, or {SHAPE}")
    return {name: value[name] for name in names}


def _reward(members: Mapping[str, object]) -> Reward:
    score = number_of(members["score"], "the returned score must be a")
    metrics = members.get("metrics")
    return Reward(
        score,
        _reason(members.get("reason")),
        metrics_of(None if metrics is _ABSENT else metrics),
    )


def _reason(value: object) -> str:
    if value is None or value is _ABSENT:
        return ""
    if not isinstance(value, str):
        raise NotAScore(f"the returned reason must be a text, got {type_name(value)}: {described(value)}")
    return shortened(str.__str__(value).strip(), MOST_REASON_CHARS)
