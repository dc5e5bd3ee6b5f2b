"""The summary in Markdown: in the file of `--osmosis-markdown`, and on the page of a GitHub Actions job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pytest_osmosis.report.markdown import markdown
from pytest_osmosis.results.results import Results
from pytest_osmosis.text.paths import shown


def write(results: Sequence[Results], path: Path | None) -> str | None:
    """Write a section for each eval to `path`. Return why that failed, None if it did not."""
    return None if path is None else _write(path, "w", results)


def append_to_job_page(results: Sequence[Results]) -> str | None:
    """Append the same to the page of the job, if there is one. Return why that failed, None if it did not."""
    page = os.environ.get("GITHUB_STEP_SUMMARY")
    return _write(Path(page), "a", results) if page else None


def _write(path: Path, mode: str, results: Sequence[Results]) -> str | None:
    text = "\n".join(map(markdown, results))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        return f"{shown(path)} could not be written: {error.strerror}"
    return None
