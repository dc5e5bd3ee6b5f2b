"""`pytest-osmosis merge`: where merged results go, and what is printed of them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_osmosis.cli.output import CommandOutput, add_output_options, terminal_columns
from pytest_osmosis.errors import OsmosisError, writing
from pytest_osmosis.record.find_run import runs_above
from pytest_osmosis.report.markdown import is_page, page, sections
from pytest_osmosis.report.overview import distinct_names, overview_lines
from pytest_osmosis.report.style import bold, dim, joined, warning
from pytest_osmosis.report.summary import summary_lines, verdict_lines
from pytest_osmosis.results import publish
from pytest_osmosis.results.merge import MergedEval, merge, missing_text
from pytest_osmosis.results.publish import partial_path, published, published_text, typed_path
from pytest_osmosis.results.read import is_results
from pytest_osmosis.text.arguments import filled
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import plural

DESCRIPTION = """\
Make the results of a whole eval from those of its shards (--osmosis-shard), and
decide its gates: with the same statistics, verdicts and exit status as one run
of all rows. Files of several evals are merged eval by eval.
"""
EXAMPLES = """\
examples:
  pytest-osmosis merge shard-*/results.json -o results.json
  pytest-osmosis merge shard-*/results.json --markdown=summary.md
  pytest-osmosis merge shards/*.json -o "merged/{name}.json"   several evals

exit status, as of pytest:
  0  the gates hold; without a gate: every run passed
  1  a gate fails; without a gate: a run failed
  4  the files do not belong together, or cannot be read
  9  not measured: a gate could not be decided, an eval was stopped, or a shard is missing
"""
USAGE_ERROR = 4
"""The exit status of pytest for a command that cannot be carried out."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=filled, metavar="FILE", help="the results of a shard")
    parser.add_argument(
        "-o",
        "--output",
        type=filled,
        metavar="FILE",
        help="write results.json here; a folder, or a path with {name}, for several evals (default: only print)",
    )
    parser.add_argument("--markdown", type=filled, metavar="FILE", help="write a summary in Markdown here")
    parser.add_argument(
        "--baseline",
        type=filled,
        metavar="FILE",
        help="the file of [baseline] results (default: where the shards had it, from this folder)",
    )
    add_output_options(parser)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    sources = [folder / file for file in options.files]
    markdown = None if options.markdown is None else folder / options.markdown
    baseline = None if options.baseline is None else folder / options.baseline
    try:
        evals = merge(sources, baseline=baseline, runs=runs_above(folder)[0])
        places = [_place(folder, options.output, each, len(evals)) for each in evals]
        _check(sources, markdown, places)
        for each, place in zip(evals, places, strict=True):
            if place is not None:
                _write(place, _text(each, output))
        if markdown is not None:
            _write(markdown, [output.sanitizer.text(page([each.results for each in evals]))])
    except OsmosisError as error:
        output.fail(error, as_json=options.json)
        return USAGE_ERROR
    if options.json:
        documents = [published(each.results) for each in evals]
        output.json(documents[0] if len(documents) == 1 else {"evals": documents})
    else:
        output.lines(_lines(evals, places))
    if page_of_job := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            publish.append(Path(page_of_job), output.sanitizer.text(sections([each.results for each in evals])))
        except OSError as error:
            output.complain(f"{page_of_job}: cannot be written: {error.strerror}")
    return max(each.status for each in evals)


def _place(folder: Path, to: str | None, merged: MergedEval, n_evals: int) -> Path | None:
    """Return where the results of an eval go. Those of a part never replace whole ones."""
    if to is None:
        return None
    path = typed_path(folder, to, merged.results.description.name, n_evals)
    if path is None:
        raise OsmosisError(f"-o {to}: {n_evals} evals are merged; name a folder, or a path with {{name}}")
    return partial_path(path) if merged.results.partial else path


def _check(sources: Sequence[Path], markdown: Path | None, places: Sequence[Path | None]) -> None:
    """Raise `OsmosisError` if a file cannot be written, or is one that we did not write."""
    read = {path.resolve() for path in sources}
    outputs = [(path, is_results) for path in places if path is not None]
    outputs += [] if markdown is None else [(markdown, is_page)]
    for path, is_ours in outputs:
        reason = publish.why_not_writable(path)
        if path.resolve() in read:
            reason = "it is one of the files to merge"
        elif reason is None and path.exists() and path.stat().st_size and not is_ours(path):
            reason = "it exists, and pytest-osmosis did not write it"
        if reason is not None:
            raise OsmosisError(f"{shown(path)}: cannot be written: {reason}; name another file")


def _text(merged: MergedEval, output: CommandOutput) -> Iterator[str]:
    if merged.is_copy:
        with merged.sources[0].open(encoding="utf-8") as pieces:
            yield from pieces
        return
    yield from published_text(merged.results, output.sanitizer.redaction)


def _write(path: Path, text: Iterator[str] | Sequence[str]) -> None:
    with writing(shown(path)):
        publish.write(path, text)


def _lines(evals: Sequence[MergedEval], places: Sequence[Path | None]) -> Iterator[str]:
    """Yield what a session prints at its end: a section on each eval, and of several a table."""
    columns = terminal_columns()
    named = [(each.results.description.name, str(each.results.description.extra.get("path", ""))) for each in evals]
    for name, merged, place in zip(distinct_names(named), evals, places, strict=True):
        shards = f"merged of {plural(len(merged.sources), 'shard')}"
        yield joined(bold(name), ": ", shards if merged.results.is_merged else "one results file of the whole eval")
        yield from summary_lines(merged.results, columns=columns)
        yield from merged.notes
        if place is not None:
            yield dim(f"results: {shown(place)}")
        yield ""
        if merged.missing:
            of = merged.results.provenance["shards"][0]["of"]
            yield warning(f"not measured: {missing_text(merged.missing, of)}")
        yield from verdict_lines(merged.results)
        yield from [""] if len(evals) > 1 else []
    if len(evals) > 1:
        yield from overview_lines([each.results for each in evals], columns)
