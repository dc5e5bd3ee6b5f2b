"""The reports of a session: in HTML, in Markdown, and on the page of a GitHub Actions job.

HTML reports are made of run directories once all results are written: one on all evals for `--osmosis-html`, and one
for each `[output] html`. Whatever goes wrong, results and verdicts stay, and the summary says what did.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis import seams
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.evals import FinishedEval, Prepared, error_text
from pytest_osmosis.evals.output_files import html_path, partial_path, shard_path
from pytest_osmosis.record.find_run import is_run
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.report.markdown import page, sections
from pytest_osmosis.report.style import StyledText, warning
from pytest_osmosis.results import publish
from pytest_osmosis.results.results import Results
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.redaction import Sanitizer


class ConfiguredReport(NamedTuple):
    """A report that the evals of one config share, because they name the same file."""

    config: Path
    path: Path

    def place(self, evals: Sequence[Prepared], *, partial: bool) -> Path:
        """Return the path for a report on some of its evals: that of a part never replaces the whole."""
        shard = next((each.shard for each in evals if each.shard is not None), None)
        if shard is not None:
            return shard_path(self.path, shard)
        return partial_path(self.path) if partial else self.path


def configured(evals: Iterable[Prepared]) -> dict[ConfiguredReport, list[Prepared]]:
    """Return the reports that configs name, with the evals of each."""
    reports: dict[ConfiguredReport, list[Prepared]] = {}
    for each in evals:
        path = html_path(each.config)
        if path is not None:
            reports.setdefault(ConfiguredReport(each.config.path, path), []).append(each)
    return reports


class HtmlReports(NamedTuple):
    """The HTML reports of a session: `lines` say where they are, and `problems` why one is missing."""

    lines: list[str | StyledText]
    problems: list[StyledText]


def write_html(
    path: Path | None, finished: Sequence[FinishedEval], evals: Sequence[Prepared], sanitizer: Sanitizer
) -> HtmlReports:
    """Write the reports on finished evals: on all to `path`, and those of configs. `evals` are all of the session.

    An error of any kind, also a defect of ours, only costs the report.
    """
    began = [each for each in finished if each.run.began and is_run(each.run.directory.path)]
    places = [] if path is None or not began else [(path, began)]
    for report, members in configured(evals).items():
        own = [each for each in began if any(each.run.prepared is member for member in members)]
        if own:
            partial = len(own) < len(members) or any(each.results.partial for each in own)
            places.append((report.place(members, partial=partial), own))
    reports = HtmlReports([], [])
    for place, own in places:
        runs = {}
        for each in own:  # with the results of this session, which may be those of a part
            directory = RunDirectory(each.run.directory.path)
            directory.results = each.run.prepared.source.results_path(each.run)
            runs[directory] = each.run.prepared.config.output.html_conversations
        try:
            reports.lines.extend(seams.write_report(place, runs, sanitizer.redaction, "[output] html_conversations"))
            continue
        except OSError as error:
            why = error.strerror or str(error)
        except OsmosisError as error:
            why = str(error)
        except Exception:
            why = f"this is a defect of pytest-osmosis, please report it\n{traceback.format_exc()}"
        again = "pytest-osmosis html RUN makes it later"
        reports.problems.append(warning(f"the HTML report {shown(place)} could not be written: {why}; {again}"))
    return reports


def write_markdown(results: Sequence[Results], path: Path | None, sanitizer: Sanitizer) -> str | None:
    """Write a section for each eval to `path`. Return why that failed, None if it did not."""
    return None if path is None else _tried(path, lambda: publish.write(path, [sanitizer.text(page(results))]))


def append_to_job_page(results: Sequence[Results], sanitizer: Sanitizer) -> str | None:
    """Append the same sections to the page of the job, if there is one. Return why that failed, None if it did not."""
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    job = Path(name) if name else None
    return None if job is None else _tried(job, lambda: publish.append(job, sanitizer.text(sections(results))))


def _tried(path: Path, write: Callable[[], object]) -> str | None:
    try:
        write()
    except Exception as error:  # also a defect of ours: it costs the page alone
        why = error.strerror if isinstance(error, OSError) else error_text(error)
        return f"{shown(path)} could not be written: {why}"
    return None
