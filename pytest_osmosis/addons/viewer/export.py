"""`pytest-osmosis runs export`: where the results, the runs or the files of an eval run go."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from pytest_osmosis import seams
from pytest_osmosis.addons.viewer.stored_results import differences, read_run_lines, rebuild
from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.errors import OsmosisError, ResultsError, writing
from pytest_osmosis.record.find_run import StoredEvalRun, find_run, stored
from pytest_osmosis.record.lifecycle import lifecycle_of
from pytest_osmosis.results import publish
from pytest_osmosis.results.publish import redacted, text_of, why_not_writable
from pytest_osmosis.results.read import read_document
from pytest_osmosis.text.arguments import filled
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import plural

FORMATS = ("json", "jsonl", "prime", "osmosis")
DESCRIPTION = """\
Write the results of an eval run, also of one that died, as far as it got. Or
write a line for each run, for pandas and other programs: its scores, metrics,
tokens, cost, prompt, answer and ground truth, and the whole conversation.
"""
EXAMPLES = """\
examples:
  pytest-osmosis runs export sums -o results.json
  pytest-osmosis runs export sums --format=jsonl | head -1
  pytest-osmosis runs export sums --format=prime -o outputs/sums
  pytest-osmosis runs export sums --format=osmosis -o .osmosis/evals
"""
_MOST_PLACES = 5
"""Places at which results differ are listed up to this number."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=filled, metavar="RUN", help="the eval run, named as for show")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="json",
        metavar="|".join(FORMATS),
        help="json (default): results.json, made again from the manifest and the journal; jsonl: a line for each run, "
        "with its whole conversation; prime: the files of prime eval; osmosis: a "
        "folder that osmosis eval upload takes",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=filled,
        metavar="FILE",
        help="write this file (default: standard output); with --format=prime, the folder for both files; with "
        "--format=osmosis, the folder in which that of the eval run is made",
    )


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    to: str | None = options.output
    if options.format in ("prime", "osmosis"):
        _export_files(folder, options.run, to, output, options.format)
        return 0
    path = None if to is None else folder / to
    if path is not None and (why_not := why_not_writable(path)) is not None:
        raise OsmosisError(f"{to}: cannot be written: {why_not}")
    export = _export_results if options.format == "json" else _export_runs
    export(stored(find_run(folder, options.run)), path, to, output)
    return 0


def _export_runs(run: StoredEvalRun, path: Path | None, to: str | None, output: CommandOutput) -> None:
    """Write a line on each run of an eval run to a file, or to standard output."""
    lines = read_run_lines(run)
    text = lines.text(output.sanitizer.redaction)
    if path is None:
        output.data(text)
        return
    with writing(to):
        publish.write(path, text)
    output.lines([f"{shown(path)}: {plural(len(lines), 'run')} of {lines.run.directory.name}"])


def _export_results(run: StoredEvalRun, path: Path | None, to: str | None, output: CommandOutput) -> None:
    """Write the results of an eval run, made of its journal, to a file or to standard output.

    Standard error says what could not be made again, and if the stored file says anything else.
    """
    made = rebuild(run)
    document = redacted(dict(made.document), output.sanitizer.redaction)
    for note in (*made.notes, *_differences(run, document)):
        output.complain(f"{run.directory.name}: {note}")
    if path is None:
        output.json(document)
        return
    with writing(to):
        publish.write(path, text_of(document))
    output.lines([f"{shown(path)}: the results of {run.directory.name}"])


def _export_files(folder: Path, name: str, to: str | None, output: CommandOutput, format: str) -> None:
    """Write the files of an eval run for `prime eval` or Osmosis to the folder `to`, which is made if it is missing.

    Files of another eval run, or of another program, are not replaced.
    """
    if to is None:
        raise OsmosisError(f"--format={format}: writes several files; name a folder with -o DIR")
    run = stored(find_run(folder, name))
    export = seams.export_prime_files if format == "prime" else seams.export_osmosis_files
    output.lines([export(run, folder / to, to, output.sanitizer.redaction)])


def _differences(run: StoredEvalRun, document: Mapping[str, Any]) -> list[str]:
    """Return in a line how the stored results differ from those that were made, in more than times; none if equal."""
    if run.results is None or not lifecycle_of(run.directory).results_are_current:
        return []
    try:
        places = list(islice(differences(read_document(run.results), document), _MOST_PLACES + 1))
    except ResultsError as error:
        return [f"its stored results are left aside: {error}"]
    if not places:
        return []
    more = ", ..." if len(places) > _MOST_PLACES else ""
    shown_places = ", ".join(places[:_MOST_PLACES])
    return [f"the stored {run.results.name} says something else than the journal about {shown_places}{more}"]
