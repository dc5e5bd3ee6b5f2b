"""The reports of a session: in HTML, in Markdown, and on the page of a GitHub Actions job; and the paths of its files.

HTML reports are made of run directories once all results are written: one on all evals for `--osmosis-html`, and one
for each `[output] html`. Whatever goes wrong, results and verdicts stay, and the summary says what did.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from pytest_osmosis import seams
from pytest_osmosis.config import EvalConfig
from pytest_osmosis.errors import OsmosisError, Problem, ProblemsError
from pytest_osmosis.evals import FinishedEval, Prepared, comparison_path, error_text
from pytest_osmosis.evals.output_files import (
    InputFile,
    OutputFile,
    html_path,
    inputs_of,
    output_problems,
    outputs_of,
    problems_of_saving,
    shard_path,
)
from pytest_osmosis.plugin.session_options import SessionOptions
from pytest_osmosis.record.find_run import is_run
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.report.markdown import is_page, page, sections
from pytest_osmosis.report.style import StyledText, warning
from pytest_osmosis.results import publish
from pytest_osmosis.results.entry_table import is_comparison
from pytest_osmosis.results.publish import partial_path, typed_path
from pytest_osmosis.results.results import Results
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.redaction import Sanitizer

PAGE = "GITHUB_STEP_SUMMARY"
"""The variable with the path of the page of a job of GitHub Actions."""


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
        except (OSError, OsmosisError) as error:
            why = getattr(error, "strerror", None) or str(error)
        except Exception:
            why = f"this is a defect of pytest-osmosis, please report it\n{traceback.format_exc()}"
        again = "pytest-osmosis html RUN makes it later"
        reports.problems.append(warning(f"the HTML report {shown(place)} could not be written: {why}; {again}"))
    return reports


def write_markdown(results: Sequence[Results], path: Path | None, sanitizer: Sanitizer) -> str | None:
    """Write a section for each eval to `path`. Return why that failed, None if it did not."""
    return _tried(path, lambda to: publish.write(to, [sanitizer.text(page(results))]))


def append_to_job_page(results: Sequence[Results], sanitizer: Sanitizer) -> str | None:
    """Append the same sections to the page of the job, if there is one. Return why that failed, None if it did not."""
    return _tried(os.environ.get(PAGE), lambda to: publish.append(to, sanitizer.text(sections(results))))


def _tried(path: Path | str | None, write: Callable[[Path], object]) -> str | None:
    if not path:
        return None
    try:
        write(Path(path))
    except Exception as error:  # also a defect of ours: it costs the page alone
        why = error.strerror if isinstance(error, OSError) else error_text(error)
        return f"{shown(Path(path))} could not be written: {why}"
    return None


class OutputPaths:
    """The files that a session writes outside run directories."""

    def __init__(self, config: pytest.Config, options: SessionOptions) -> None:
        self._config = config
        self._folder = config.invocation_params.dir
        self._options = options

    def with_output(self, prepared: Prepared, n_evals: int) -> Prepared:
        """Return one of `n_evals` evals with the path of `--osmosis-output`. Raises `ProblemsError`."""
        output = self._options.output
        if output is None:
            return prepared
        path = typed_path(self._folder, output, prepared.config.name, n_evals)
        if path is None:
            fix = "pass a folder, or a path with {name}"
            raise ProblemsError.at(f"--osmosis-output={output}", f"{n_evals} evals run; {fix}")
        config = replace(prepared.config, output=replace(prepared.config.output, results=str(path)))
        return replace(prepared, config=config)

    def problems(self, evals: Sequence[Prepared]) -> list[Problem]:
        """Return why the files of these evals and of the session cannot be written."""
        updating = self._options.update_baseline
        outputs = [output for prepared in evals for output in outputs_of(prepared, updating=updating)]
        outputs += _shared_outputs(evals)
        if self._options.markdown is not None:
            outputs.append(OutputFile(self._options.markdown, "Markdown page", "--osmosis-markdown", is_page))
        if self._options.html is not None:
            outputs.append(OutputFile(self._options.html, HTML, "--osmosis-html", seams.is_report))
        inputs = [each for prepared in evals for each in inputs_of(prepared)]
        if isinstance(self._options.secrets.file, Path):
            inputs.append(InputFile(self._options.secrets.file, "the secrets file"))
        if self._config.inipath is not None:
            inputs.append(InputFile(self._config.inipath, "pytest's configuration"))
        return [
            *output_problems(outputs, inputs, overwrite=self._options.overwrite),
            *dict.fromkeys(problem for prepared in evals for problem in problems_of_saving(prepared)),
        ]


HTML = "HTML report"


def _shared_outputs(evals: Sequence[Prepared]) -> Iterator[OutputFile]:
    """Yield the files that the evals of one config write together: the comparison of its entries, and its report."""
    groups: dict[Path, list[EvalConfig]] = {}
    for prepared in evals:
        if prepared.config.entry is not None:
            groups.setdefault(prepared.config.path, []).append(prepared.config)
    for path, entries in groups.items():
        table = comparison_path(entries, alone=len(groups) == 1)
        if table is not None and len(entries) > 1:
            yield OutputFile(table, "comparison", f"the comparison of the evals of {shown(path)}", is_comparison)
    for report, members in configured(evals).items():
        instead = report.place(members, partial=True)
        yield OutputFile(report.path, HTML, f"the report of {shown(report.config)}", seams.is_report, (instead,))
