"""The identities of runs, and of what a test of an eval reports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pytest_osmosis.formats import ModelTag as ModelTag
from pytest_osmosis.formats.events import RunFields


class RunId(NamedTuple):
    """Identity of a run: the absolute row index and the run's index, both from 0, and the model that is asked.

    >>> str(RunId(12, 3)), str(RunId(12, 3, ModelTag.BASELINE))
    ('row12-run3', 'row12-run3-baseline')
    """

    row: int
    """The position of the row in the dataset, from 0."""
    index: int  # type: ignore[assignment]  # hides tuple.index, which an identity has no use for
    """The number of the run among the `n` runs of the row, from 0."""
    model: ModelTag = ModelTag.PRIMARY
    """Which of the eval's models was asked: "primary" or "baseline"."""

    def __str__(self) -> str:
        return f"row{self.row}-run{self.index}{_suffix(self.model)}"

    @property
    def is_baseline(self) -> bool:
        return self.model is ModelTag.BASELINE

    @classmethod
    def named(cls, name: str) -> RunId | None:
        """Return the run that `str` writes as `name`, None if `name` is not a run's name.

        >>> str(RunId.named("row12-run3-baseline"))
        'row12-run3-baseline'
        """
        match = _RUN_NAME.fullmatch(name)
        return cls(int(match[1]), int(match[2]), _tag(match[3])) if match else None

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> RunId:
        tag = event.get("model_tag")
        return cls(event["row"], event["run"]) if tag is None else cls(event["row"], event["run"], ModelTag(tag))

    def to_json(self) -> RunFields:
        """Return the keys that identify this run in an event.

        >>> RunId(12, 3).to_json(), RunId(12, 3, ModelTag.BASELINE).to_json()
        ({'row': 12, 'run': 3}, {'row': 12, 'run': 3, 'model_tag': 'baseline'})
        """
        fields: RunFields = {"row": self.row, "run": self.index}
        return {**fields, "model_tag": "baseline"} if self.is_baseline else fields


class RowId(NamedTuple):
    """Identity of all runs that one model makes of a row.

    >>> str(RowId(12)), str(RowId(12, ModelTag.BASELINE))
    ('row12', 'row12-baseline')
    """

    row: int
    model: ModelTag = ModelTag.PRIMARY

    def __str__(self) -> str:
        return f"row{self.row}{_suffix(self.model)}"

    @property
    def is_baseline(self) -> bool:
        return self.model is ModelTag.BASELINE

    @classmethod
    def named(cls, name: str) -> RowId | None:
        """Return the row that `str` writes as `name`, None if `name` is not a row's name.

        >>> str(RowId.named("row12"))
        'row12'
        """
        match = _ROW_NAME.fullmatch(name)
        return cls(int(match[1]), _tag(match[2])) if match else None


Unit = RunId | RowId
"""The runs that one test of an eval reports: a single run, or with granularity "row" all runs of a row."""

_RUN_NAME = re.compile(r"row([0-9]{1,18})-run([0-9]{1,18})(-baseline)?")
_ROW_NAME = re.compile(r"row([0-9]{1,18})(-baseline)?")


def plan_order(run: RunId) -> tuple[int, int, bool]:
    """Return the sort key of plan order: by row and index, the baseline's run after the eval's own.

    >>> runs = [RunId(1, 0), RunId(0, 1), RunId(0, 0, ModelTag.BASELINE), RunId(0, 0)]
    >>> [str(run) for run in sorted(runs, key=plan_order)]
    ['row0-run0', 'row0-run0-baseline', 'row0-run1', 'row1-run0']
    """
    return run.row, run.index, run.is_baseline


def _suffix(model: ModelTag) -> str:
    return "-baseline" if model is ModelTag.BASELINE else ""


def _tag(suffix: str | None) -> ModelTag:
    return ModelTag.PRIMARY if suffix is None else ModelTag.BASELINE
