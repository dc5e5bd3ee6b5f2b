"""The summary in Markdown: in the file of `--osmosis-markdown`, and on the page of a GitHub Actions job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pytest_osmosis.report.markdown import markdown
from pytest_osmosis.results.results import Results
from pytest_osmosis.text.paths import shown


def write(results: Sequence[Results], path: Path | None) -> list[str]:
    """Write a section for each eval to `path` and append the same to the job's page; return what went wrong."""
    page = os.environ.get("GITHUB_STEP_SUMMARY")
    places = [(place, mode) for place, mode in ((path, "w"), (Path(page) if page else None, "a")) if place]
    text = "\n".join(map(markdown, results)) if places else ""
    return [failure for place, mode in places if text and (failure := _write(place, mode, text))]


def _write(path: Path, mode: str, text: str) -> str | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        return f"{shown(path)} could not be written: {error.strerror}"
    return None
