"""A report on one eval run, and the same run as Python has it: numbers on screen are compared with these."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from benchmarks.viewer_runs import SyntheticRun, write_run
from pytest_osmosis.addons.viewer.open_run import OpenRun
from pytest_osmosis.addons.viewer.report import Kept, report
from pytest_osmosis.addons.viewer.shapes import RunPage
from pytest_osmosis.text.redaction import Redaction


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the eval run: its name and what its page says of it."""

    id: str
    outcome: str
    boundary: str | None
    error: str
    prompt: str
    row: int
    index: int
    model: int
    scores: dict[str, float | None]
    metrics: dict[str, float | None]
    ms: float | None
    tokens: float | None
    cost: float | None
    turns: float | None
    conversation: Any


@dataclass(frozen=True, slots=True)
class RunReport:
    """The file, and the page on its eval run."""

    path: Path
    name: str
    page: RunPage
    runs: tuple[Run, ...]

    def address(self, id: str = "", query: str = "sort=index") -> str:
        return f"{self.path.as_uri()}#/run/{self.name}{'/' * bool(id)}{id}{'?' * bool(query)}{query}"

    def where(self, holds: Callable[[Run], bool]) -> list[Run]:
        return [run for run in self.runs if holds(run)]


def write_run_report(folder: Path, run: SyntheticRun, kept: Kept = "all") -> RunReport:
    directory = write_run(folder, run)
    path = folder / "report.html"
    report(path, {directory: kept}, Redaction({}))
    opened = OpenRun(directory)
    opened.read()
    page = opened.page()
    return RunReport(path, directory.name, page, tuple(_runs(opened, page)))


def _runs(opened: OpenRun, page: RunPage) -> Iterator[Run]:
    head, rows, runs = page["head"], page["rows"], page["runs"]
    for at, id in enumerate(opened.runs):
        boundary, error, raw = runs["boundary"][at], runs["error"][at], opened.conversation(at)
        yield Run(
            id=str(id),
            outcome=head["outcomes"][runs["outcome"][at]],
            boundary=head["boundaries"][boundary] if boundary >= 0 else None,
            error=head["errors"][error] if error >= 0 else "",
            prompt=rows["prompt"][runs["row"][at]],
            row=id.row,
            index=id.index,
            model=runs["model"][at],
            scores={name: values[at] for name, values in runs["scores"].items()},
            metrics={name: values[at] for name, values in runs["metrics"].items()},
            ms=runs["duration_ms"][at],
            tokens=runs["tokens"][at],
            cost=runs["cost_usd"][at],
            turns=runs["turns"][at],
            conversation=None if raw is None else json.loads(raw),
        )


def seen_texts(value: Any) -> Iterator[str]:
    """Yield the texts of messages, reasons, errors and expected answers of a conversation."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from seen_texts(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key not in ("id", "tool_call_id", "type", "role", "ev"):
                yield from seen_texts(each)


def field(page: Page) -> Locator:
    return page.get_by_role("searchbox", name="Query on runs")


def counts(page: Page) -> Locator:
    return page.locator(".toolbar-counts")


def ask(page: Page, query: str) -> None:
    """Type a query, and wait until it and the searches that it begins are done."""
    field(page).fill(query)
    field(page).press("Enter")
    page.wait_for_timeout(0)
    expect(page.locator(".query-search progress")).to_have_count(0)
