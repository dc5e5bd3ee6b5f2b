"""The paths that options of the session name, and the check of every file that a session writes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_osmosis import seams
from pytest_osmosis.config import EvalConfig
from pytest_osmosis.errors import Problem, ProblemsError
from pytest_osmosis.evals import Prepared, comparison_path
from pytest_osmosis.evals.output_files import (
    InputFile,
    OutputFile,
    inputs_of,
    output_problems,
    outputs_of,
    problems_of_saving,
)
from pytest_osmosis.plugin.command.session_options import SessionOptions
from pytest_osmosis.plugin.output.reports import configured
from pytest_osmosis.report.markdown import is_page
from pytest_osmosis.results.entry_table import is_comparison
from pytest_osmosis.text.names import shown

_REPORTS = {
    "xmlpath": "--junitxml",
    "json_report_file": "--json-report-file",
    "report_log": "--report-log",
    "htmlpath": "--html",
    "log_file": "--log-file",
}
"""Options of pytest and of other plugins that name a file to write."""
_PAGE = "GITHUB_STEP_SUMMARY"


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
        path = self._folder / output.replace("{name}", prepared.config.name)
        if path.is_dir() or output.endswith(("/", os.sep)):
            path = path / f"{prepared.config.name}.json"
        elif n_evals > 1 and "{name}" not in output:
            fix = "pass a folder, or a path with {name}"
            raise ProblemsError.at(f"--osmosis-output={output}", f"{n_evals} evals run; {fix}")
        config = replace(prepared.config, output=replace(prepared.config.output, results=str(path)))
        return replace(prepared, config=config)

    def problems(self, evals: Sequence[Prepared]) -> list[Problem]:
        """Return why the files of these evals and of the session cannot be written."""
        updating = self._options.update_baseline
        outputs = [output for prepared in evals for output in outputs_of(prepared, updating=updating)]
        inputs = [each for prepared in evals for each in inputs_of(prepared)]
        return [
            *self._of_one_report(),
            *output_problems(
                [*outputs, *_comparisons(evals), *_html_reports(evals), *self._of_session()],
                [*inputs, *self._read_by_session()],
                overwrite=self._options.overwrite,
            ),
            *dict.fromkeys(problem for prepared in evals for problem in problems_of_saving(prepared)),
        ]

    def _of_one_report(self) -> Iterator[Problem]:
        """Yield a problem if the report on all evals is to be named like one of them."""
        html = self._options.html
        if html is not None and "{name}" in str(html):
            path = shown(html)
            text = f"this report holds all evals; for one of each eval, pass --osmosis-set='output.html={path}'"
            yield Problem(f"--osmosis-html={path}", text)

    def _of_session(self) -> Iterator[OutputFile]:
        if self._options.markdown is not None:
            yield OutputFile(self._options.markdown, "Markdown page", "--osmosis-markdown", is_page)
        if self._options.html is not None:
            yield OutputFile(self._options.html, HTML, "--osmosis-html", seams.is_report)
        for dest, flag in _REPORTS.items():
            value = self._config.getoption(dest, None)
            if value and (dest != "json_report_file" or self._config.getoption("json_report", False)):
                yield OutputFile(self._folder / value, flag.lstrip("-"), flag, None)
        if page := os.environ.get(_PAGE):
            yield OutputFile(Path(page), "job page", _PAGE, None)

    def _read_by_session(self) -> Iterator[InputFile]:
        if isinstance(self._options.secrets.file, Path):
            yield InputFile(self._options.secrets.file, "the secrets file")
        if self._config.inipath is not None:
            yield InputFile(self._config.inipath, "pytest's configuration")


HTML = "HTML report"


def _html_reports(evals: Sequence[Prepared]) -> Iterator[OutputFile]:
    """Yield the reports that configs name, with the paths of those on a part of their evals."""
    for report, members in configured(evals).items():
        instead = report.place(members, partial=True)
        yield OutputFile(report.path, HTML, f"the report of {shown(report.config)}", seams.is_report, (instead,))


def _comparisons(evals: Sequence[Prepared]) -> Iterator[OutputFile]:
    """Yield the tables that compare the entries of each config."""
    groups: dict[Path, list[EvalConfig]] = {}
    for prepared in evals:
        if prepared.config.entry is not None:
            groups.setdefault(prepared.config.path, []).append(prepared.config)
    for path, entries in groups.items():
        table = comparison_path(entries, alone=len(groups) == 1)
        if table is not None and len(entries) > 1:
            yield OutputFile(table, "comparison", f"the comparison of the evals of {shown(path)}", is_comparison)
