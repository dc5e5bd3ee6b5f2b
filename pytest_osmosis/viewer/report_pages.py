"""The pages of a report, as Python objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_osmosis.viewer.shapes import ComparisonPage, HistoryPage, RunPage, RunsPage


@dataclass(frozen=True, slots=True)
class ReportPages:
    """The pages of a report: of eval runs by name, of comparisons by both names, and of histories by their eval."""

    list: RunsPage
    runs: Mapping[str, RunPage]
    comparisons: Mapping[tuple[str, str], ComparisonPage] = field(default_factory=dict)
    histories: Mapping[str, HistoryPage] = field(default_factory=dict)
