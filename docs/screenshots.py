"""Take the pictures of README and how-tos: `make docs-screenshots`. It needs a browser, as tests/browser does.

They show the report and the dashboard on the eval runs of the example (`example_report`), in both themes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

DOCS = Path(__file__).resolve().parent
if str(DOCS.parent) not in sys.path:  # when run as a file
    sys.path.insert(0, str(DOCS.parent))

from playwright.sync_api import Browser, expect, sync_playwright  # noqa: E402

from docs.example_report import make_runs, write_report  # noqa: E402
from tests.browser import chromium  # noqa: E402
from tests.cli.dashboards import dashboard as dashboard_of  # noqa: E402

PICTURES = DOCS / "pictures"
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDTH = 1280


def take(browser: Browser, pictures: Mapping[str, str], height: int) -> None:
    """Take a picture of each address, by name, in both themes."""
    for theme in THEMES:
        context = browser.new_context(viewport={"width": WIDTH, "height": height}, color_scheme=theme)
        page = context.new_page()
        for name, address in pictures.items():
            page.goto("about:blank")
            page.goto(address)
            page.locator("main").wait_for()
            expect(page.locator(".loading")).to_have_count(0)
            page.screenshot(path=PICTURES / f"{name}-{theme}.png", animations="disabled")
        context.close()


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        folder = Path(scratch) / "multiply"
        names = make_runs(folder)
        *_, then, now = names
        report = folder / "report.html"
        write_report(folder, names, report)
        browser = playwright.chromium.launch(executable_path=chromium.executable(), args=["--no-sandbox"])
        file = report.as_uri()
        take(
            browser,
            {
                "report": f"{file}#/run/{now}",
                "conversation": f"{file}#/run/{now}/{failed_run(folder, now)}",
                "comparison": f"{file}#/compare/{then}/{now}",
            },
            height=720,
        )
        with dashboard_of(folder) as dashboard:
            take(browser, {"dashboard": dashboard.address()}, height=400)
        browser.close()


def failed_run(folder: Path, name: str) -> str:
    """Return the first run that failed."""
    results = json.loads((folder / ".osmosis" / "runs" / name / "results.json").read_text(encoding="utf-8"))
    return next(
        f"row{row['row_index']}-run{run['run_index']}"
        for row in results["rows"]
        for run in row["runs"]
        if run["passed"] is False
    )


if __name__ == "__main__":
    main()
