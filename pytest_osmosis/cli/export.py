"""`pytest-osmosis runs export`: where the table of an eval run goes."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import find_run, stored
from pytest_osmosis.results import files
from pytest_osmosis.results.export_table import ExportTable, read_table
from pytest_osmosis.results.files import why_not_writable
from pytest_osmosis.results.publish import redacted, text_of
from pytest_osmosis.results.stored_results import read_stored
from pytest_osmosis.results.table_files import TableFormat, require_pyarrow, table_text, write_table
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.paths import shown

_CI = ("CI", "TF_BUILD", "TEAMCITY_VERSION")
"""Variables of which a runner of CI sets one."""


def export_table(folder: Path, name: str, format: TableFormat, to: str | None, output: CommandOutput) -> None:
    """Write the table of an eval run to a file, or to standard output.

    Raises `OsmosisError` if the eval run cannot be found or read, or the table cannot be written.
    """
    if format == "parquet":
        require_pyarrow()
    if to is None:
        _print(folder, name, format, output)
        return
    path = folder / to
    why_not = why_not_writable(path)
    if why_not is not None:
        raise OsmosisError(f"{to}: cannot be written: {why_not}")
    table = _table(folder, name)
    try:
        write_table(table, format, output.outlet.redaction, path)
    except OSError as error:
        raise OsmosisError(f"{to}: cannot be written: {error.strerror}") from None
    output.lines([f"{shown(path)}: {plural(len(table), 'run')} of {table.run.directory.name}"])


def export_results(folder: Path, name: str, to: str | None, output: CommandOutput) -> None:
    """Write the results of an eval run to a file, or to standard output: of one that died, as far as it got.

    Raises `OsmosisError` if the eval run cannot be found or read, or the file cannot be written.
    """
    run = stored(find_run(folder, name))
    made = read_stored(run)
    if made.results is None:
        fix = "the thresholds are not known, because an earlier version began it; --format=jsonl exports its runs"
        raise OsmosisError(f"run {run.directory.name}: it wrote no results, and none can be made: {fix}")
    if to is None:
        output.json(made.document)
        return
    path = folder / to
    why_not = why_not_writable(path)
    if why_not is not None:
        raise OsmosisError(f"{to}: cannot be written: {why_not}")
    try:
        files.write(path, text_of(redacted(dict(made.document), output.outlet.redaction)))
    except OSError as error:
        raise OsmosisError(f"{to}: cannot be written: {error.strerror}") from None
    output.lines([f"{shown(path)}: the results of {run.directory.name}"])


def _print(folder: Path, name: str, format: TableFormat, output: CommandOutput) -> None:
    if format == "parquet":
        raise OsmosisError("--format=parquet: is not text; name a file with -o FILE")
    if format == "csv" and any(map(os.environ.get, _CI)):
        raise OsmosisError(
            "--format=csv: a runner of CI obeys commands in the texts of models, and CSV has no way to escape them; "
            "name a file with -o FILE"
        )
    output.data(table_text(_table(folder, name), format, output.outlet.redaction))


def _table(folder: Path, name: str) -> ExportTable:
    return read_table(stored(find_run(folder, name)))
