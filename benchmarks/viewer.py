"""Measure the report and the dashboard at 20,000 rollouts, with pytest-html in the same session as an anchor.

    python -m benchmarks.viewer [--rows 4000] [--n 5] [--reps 5] [--no-anchor] [--folder FOLDER] [--json FILE]

The rollouts are those of `viewer_runs`, 6 kB each. pytest-html is found in .venv/pytest-html, where `make bench`
installs it. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page

from benchmarks import viewer_anchor
from benchmarks.viewer_pages import Times, acted, fresh, heap_mb, launched, searched, shown_after
from benchmarks.viewer_runs import RunInProgress, SyntheticRun, write_run
from pytest_osmosis.addons.viewer.report import report as make_report
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.text.redaction import Redaction
from tests.browser import canary as canaries
from tests.browser.canary import Canary
from tests.browser.viewed import write_report
from tests.cli.dashboards import dashboard as dashboard_of

ASSETS = Path(__file__).resolve().parents[1] / "pytest_osmosis" / "addons" / "viewer" / "assets"
CELL = "[role=grid] [role=gridcell]"
CONVERSATION = "article.conversation .messages"
NAME = "support-1"
NEEDLE = "ticket-"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement and its budget."""

    name: str
    value: float
    most: float
    unit: str
    remark: str = ""

    def line(self) -> str:
        """Return the figure and its verdict in a line."""
        state = "holds" if self.value <= self.most else "DOES NOT HOLD"
        return f"{state:<14}{self.name:<40}{self.value:>9.4g} {self.unit:<12}(<= {self.most:g})  {self.remark}".rstrip()


class Measurements:
    """Takes the figures of one workspace, one part after another."""

    def __init__(self, folder: Path, run: SyntheticRun, reps: int) -> None:
        self.folder = folder
        self.run = run
        self.reps = reps
        self.n = run.rows * run.n
        self._chance = random.Random(0)

    def writing(self, report: Path) -> Iterator[Figure]:
        """Measure what the report adds to a session, and the command that writes it, from its start to its end."""
        yield Figure("write, at the end of a session", self._added_to_session(report), 0.3, "ms CPU each")
        cpu, wall = Times(), Times()
        for _ in range(min(3, self.reps)):
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            write_report(self.folder, report, [NAME])
            wall.ms.append((time.monotonic() - began) * 1000)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            cpu.ms.append(spent * 1000)
        yield Figure("write, the whole command", cpu.median / self.n, 0.3, "ms CPU each", f"{wall.median / 1000:.1f} s")
        size = report.stat().st_size
        yield Figure("size", size / self.n / 1000, 3.0, "kB each", f"{size / 1e6:.1f} MB")
        bundle = sum(path.stat().st_size for path in ASSETS.iterdir())
        yield Figure("front end", bundle / 1e6, 0.2, "MB")

    def _added_to_session(self, report: Path) -> float:
        """Return the CPU of a report in a process that runs already, in ms a rollout."""
        directory = RunDirectory(self.folder / ".osmosis" / "runs" / NAME)
        redaction, cpu = Redaction({"OPENAI_API_KEY": "sk-" + "7f3k" * 8}), Times()
        for _ in range(min(3, self.reps)):
            began = time.process_time()
            make_report(report, {directory: "all"}, redaction)
            cpu.ms.append((time.process_time() - began) * 1000)
        return cpu.median / self.n

    def report(self, browser: Browser, canary: Canary, report: Path) -> Iterator[Figure]:
        """Measure the report, opened from its file."""
        first, opened, heaps = Times(), Times(), Times()
        address = f"{report.as_uri()}#/run/{NAME}"
        for rep in range(self.reps):
            with fresh(browser, canary, address, CELL) as (page, first_ms):
                first.ms.append(first_ms)
                heaps.ms.append(heap_mb(page))
                if rep < self.reps - 1:
                    continue
                opened.ms += self._conversations(page, 30)
                after_reading = heap_mb(page)
                page.evaluate("location.hash = " + json.dumps(f"#/run/{NAME}"))
                hit_ms, over_ms = searched(page, NEEDLE)
                after_search = heap_mb(page)
        yield Figure("first row", first.median / 1000, 1.0, "s", f"most {first.most / 1000:.2f} s")
        yield Figure("a conversation, median", opened.median / 1000, 0.1, "s", f"of {len(opened.ms)}")
        yield Figure("a conversation, most", opened.most / 1000, 0.1, "s")
        yield Figure("heap at the first row", heaps.median, 40, "MB")
        yield Figure("heap after 30 conversations", after_reading, 40, "MB")
        yield Figure("search in everything", over_ms / 1000, 4.0, "s")
        yield Figure("first hit of the search", hit_ms / 1000, 0.3, "s")
        yield Figure("heap after the search", after_search, 40, "MB")

    def dashboard(self, browser: Browser, canary: Canary) -> Iterator[Figure]:
        """Measure the dashboard over the large eval run."""
        with dashboard_of(self.folder) as dashboard:
            first = Times()
            for _ in range(self.reps):
                with fresh(browser, canary, dashboard.address(f"run/{NAME}"), CELL, server=dashboard.server) as opened:
                    page, first_ms = opened
                    first.ms.append(first_ms)
            with fresh(browser, canary, dashboard.address(f"run/{NAME}"), CELL, server=dashboard.server) as (page, _):
                conversations = Times(self._conversations(page, 30))
                page.evaluate("location.hash = " + json.dumps(f"#/run/{NAME}"))
                _, over_ms = searched(page, NEEDLE)
                heap = heap_mb(page)
            yield Figure("dashboard: first row, first time", first.ms[0] / 1000, 1.0, "s", "the journal is read")
            yield Figure("dashboard: first row, again", min(first.ms) / 1000, 1.0, "s")
            yield Figure("dashboard: a conversation, median", conversations.median / 1000, 0.1, "s")
            yield Figure("dashboard: a conversation, most", conversations.most / 1000, 0.1, "s")
            yield Figure("dashboard: search in everything", over_ms / 1000, 4.0, "s")
            yield Figure("dashboard: heap after all that", heap, 40, "MB")

    def live(self, browser: Browser, canary: Canary) -> Iterator[Figure]:
        """Measure how soon a dashboard shows the events of an eval run that goes on."""
        with tempfile.TemporaryDirectory() as name:
            growing = RunInProgress(Path(name), SyntheticRun("support-growing", rows=40, n=5))
            with dashboard_of(Path(name)) as dashboard:
                address = dashboard.address(f"run/{growing.run.name}")
                with fresh(browser, canary, address, CELL, server=dashboard.server) as (page, _):
                    shown = Times([shown_after(page, lambda: growing.append(24)) for _ in range(10)])
            growing.journal.close()
        yield Figure("dashboard: appended to shown, median", shown.median / 1000, 1.5, "s")
        yield Figure("dashboard: appended to shown, most", shown.most / 1000, 1.5, "s", f"of {len(shown.ms)}")

    def _conversations(self, page: Page, number: int) -> list[float]:
        """Return the milliseconds that opening so many conversations, anywhere in the eval run, takes."""
        times = []
        for _ in range(number):
            run = f"row{self._chance.randrange(self.run.rows)}-run{self._chance.randrange(self.run.n)}"
            times.append(acted(page, f"#/run/{NAME}/{run}", CONVERSATION, own=run))
        return times


def anchor(browser: Browser, canary: Canary, folder: Path, journal: Path, n: int) -> Iterator[str]:
    """Measure the same of pytest-html, and return lines about it."""
    report = viewer_anchor.write_report(folder, journal)
    size = report.stat().st_size
    with fresh(browser, canary, report.as_uri(), viewer_anchor.ROW) as (page, first_ms):
        heap = heap_mb(page)
        opened = acted(page, viewer_anchor.LAST_RUN, viewer_anchor.LAST_LOG)
    yield f"pytest-html: {size / 1e6:.1f} MB, {size / n / 1000:.1f} kB each; first row {first_ms / 1000:.1f} s, "
    yield f"  a conversation {opened / 1000:.2f} s, heap {heap:.0f} MB"


def main() -> int:
    """Return 1 if a budget does not hold, else 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.viewer", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--n", type=int, default=5)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--no-anchor", action="store_true", help="leave out pytest-html")
    parser.add_argument("--folder", type=Path, help="a folder for the files, which are kept")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    run = SyntheticRun(NAME, rows=options.rows, n=options.n)
    journal = folder / ".osmosis" / "runs" / NAME / "journal.jsonl"
    if not journal.exists():
        folder.mkdir(exist_ok=True)
        write_run(folder, run)
    measurements = Measurements(folder, run, options.reps)
    figures: list[Figure] = []

    def note(made: Iterator[Figure]) -> None:
        for figure in made:
            figures.append(figure)
            print(figure.line(), flush=True)

    size = journal.stat().st_size
    print(f"{measurements.n:,} rollouts, journal {size / 1e6:.1f} MB; load {os.getloadavg()[0]:.1f}", flush=True)
    report = folder / "report.html"
    note(measurements.writing(report))
    with launched() as browser, canaries.serving() as canary:
        note(measurements.report(browser, canary, report))
        note(measurements.dashboard(browser, canary))
        note(measurements.live(browser, canary))
        note(iter([Figure("requests to other hosts", len(canary.taken()), 0, "")]))
        if not options.no_anchor:
            for line in anchor(browser, canary, folder / f"anchor-{os.getpid()}", journal, measurements.n):
                print(line, flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=2))
    if not options.folder:
        shutil.rmtree(folder)
    return int(any(figure.value > figure.most for figure in figures))


if __name__ == "__main__":
    raise SystemExit(main())
