"""The summary in Markdown: in the file of `--osmosis-markdown`, and on the page of a GitHub Actions job."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_osmosis.evals import error_text
from pytest_osmosis.report.markdown import page, sections
from pytest_osmosis.results import files
from pytest_osmosis.results.results import Results
from pytest_osmosis.text.outlet import Outlet
from pytest_osmosis.text.paths import shown


def write(results: Sequence[Results], path: Path | None, outlet: Outlet) -> str | None:
    """Write a section for each eval to `path`. Return why that failed, None if it did not."""
    return None if path is None else _tried(path, lambda: files.write(path, [outlet.text(page(results))]))


def append_to_job_page(results: Sequence[Results], outlet: Outlet) -> str | None:
    """Append the same to the page of the job, if there is one. Return why that failed, None if it did not."""
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    job = Path(name) if name else None
    return None if job is None else _tried(job, lambda: files.append(job, outlet.text(sections(results))))


def _tried(path: Path, write: Callable[[], object]) -> str | None:
    try:
        write()
    except Exception as error:  # also a defect of ours: it costs the page alone
        why = error.strerror if isinstance(error, OSError) else error_text(error)
        return f"{shown(path)} could not be written: {why}"
    return None
