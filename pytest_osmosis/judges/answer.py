"""The answer of a judge: JSON with a score and an explanation, which models like to wrap in other text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

EXPLANATIONS = ("explanation", "reason", "reasoning", "rationale", "justification")
"""Keys under which models explain a score, the best one first."""
MOST_OBJECTS = 100
_THOUGHTS = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_OPEN_THOUGHT = re.compile(r"^.*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_ENDLESS_THOUGHT = re.compile(r"\s*<think(?:ing)?>", re.IGNORECASE)
_ONLY_JSON = re.compile(r"\s*(?:```\w*\s*)?(\{.*\})\s*(?:```\s*)?", re.DOTALL)
_KEY_BEGINS = re.compile(r"\{\s*[\"']")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?")


class UnreadableAnswer(Exception):
    """A judge's answer holds no score. The text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """The score of one answer, within its range."""

    score: float
    explanation: str


def read_opinion(text: str, low: float, high: float) -> Opinion:
    """Return the opinion in a judge's answer. Raises `UnreadableAnswer`.

    A score out of its range is none: a judge that says 2 may mean 2 of 10.

    >>> read_opinion('Sure! ```json {"score": 7, "explanation": "right"} ```', 0.0, 10.0)
    Opinion(score=7.0, explanation='right')
    """
    answer = _without_thoughts(text).strip()
    if not answer:
        raise UnreadableAnswer("it has no text")
    found = [each for each in _objects(answer) if "score" in each]
    if not found:
        raise UnreadableAnswer('it has no JSON object with a "score"')
    scores = {_score(each["score"]) for each in found}
    if len(scores) > 1:
        raise UnreadableAnswer(f"it has {len(scores)} different scores")
    (score,) = scores
    if not low <= score <= high:
        raise UnreadableAnswer(f'its "score" is {str(score).removesuffix(".0")}, not from {low:g} to {high:g}')
    return Opinion(score, _explanation(found))


def _without_thoughts(text: str) -> str:
    """Return an answer without the thoughts before it. Tags in an answer that is nothing but JSON are only quoted."""
    json_only = _ONLY_JSON.fullmatch(text)
    if json_only is not None:
        try:
            _DECODER.decode(json_only[1])
        except (ValueError, RecursionError):
            pass
        else:
            return text
    answer = _OPEN_THOUGHT.sub("", _THOUGHTS.sub("", text))
    if _ENDLESS_THOUGHT.match(answer):
        raise UnreadableAnswer("its thoughts do not end")
    return answer


def _one_score(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, unless it has two scores, of which the first would get lost."""
    scores = [value for key, value in pairs if key == "score"]
    if any(score != scores[0] for score in scores[1:]):
        raise UnreadableAnswer("it has an object with different scores")
    return dict(pairs)


_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_one_score)  # models write line breaks in strings


def _objects(answer: str) -> Iterator[dict[str, Any]]:
    """Yield the outermost JSON objects of a text, in order.

    One that cannot be read makes the answer unreadable: it may be the verdict, and what it quotes is none.
    """
    position = 0
    for _ in range(MOST_OBJECTS):
        position = answer.find("{", position)
        if position < 0:
            return
        try:
            value, position = _DECODER.raw_decode(answer, position)
        except (ValueError, RecursionError):
            if _KEY_BEGINS.match(answer, position):
                raise UnreadableAnswer("it has JSON that cannot be read") from None
            position += 1
            continue
        yield value


def _score(value: object) -> float:
    """Return a score: a finite number, or a text that is nothing else."""
    number = value
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        number = float(value)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise UnreadableAnswer(f'its "score" is no number: {json.dumps(value)[:80]}')
    try:
        score = float(number)
    except OverflowError:
        score = math.inf
    if not math.isfinite(score):
        raise UnreadableAnswer('its "score" is not finite')
    return score


def _explanation(found: list[dict[str, Any]]) -> str:
    """Return the explanation, "" if there is none: the score is what was asked for."""
    texts = (_explanation_in(each) for each in reversed(found))
    return next(filter(None, texts), "")


def _explanation_in(opinion: Mapping[str, Any]) -> str:
    texts = (opinion.get(key) for key in EXPLANATIONS)
    return next((text.strip() for text in texts if isinstance(text, str) and text.strip()), "")
