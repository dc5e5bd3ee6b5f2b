"""The column with scores by humans, to which those of reward functions are compared.

It is taken out of every row, so that neither agents nor what scores can copy it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from pytest_osmosis.datasets.columns import BadRow, fold
from pytest_osmosis.datasets.parsing import shown_json


class HumanScore(NamedTuple):
    """The cell of one row: None if it is empty, or if the row lacks the column."""

    score: float | None = None
    has_column: bool = False


NO_HUMAN_SCORE = HumanScore()


def without_human_score(record: Mapping[str, Any], column: str) -> tuple[dict[str, Any], HumanScore]:
    """Return a row without the column, and its score. Raises BadRow if that is no number.

    >>> without_human_score({"user_prompt": "2+2?", "Human": "0.5"}, "human")
    ({'user_prompt': '2+2?'}, HumanScore(score=0.5, has_column=True))
    """
    name = column if column in record else next((name for name in record if fold(name) == fold(column)), None)
    if name is None:
        return dict(record), NO_HUMAN_SCORE
    rest = {key: value for key, value in record.items() if key != name}
    return rest, HumanScore(_number(name, record[name]), has_column=True)


def _number(column: str, value: object) -> float | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        if not isinstance(value, int | float | str) or (isinstance(value, str) and "_" in value):
            raise ValueError
        number = float(value)
        if not math.isfinite(number):
            raise ValueError
    except (ValueError, OverflowError):
        text = f"must be a number, or empty for a row that no human scored, got {shown_json(value)}"
        raise BadRow(f'column "{column}": {text} ([scoring] calibrate)') from None
    return number
