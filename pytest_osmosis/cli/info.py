"""`pytest-osmosis runs info`: an eval run in a few lines, again and again while it runs if that is asked for."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from pytest_osmosis.cli.output import CommandOutput, terminal_columns
from pytest_osmosis.record.find_run import find_run, stored
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.report.run_info_page import info_json, info_lines
from pytest_osmosis.results.run_info import RunInfo, run_info
from pytest_osmosis.results.stored_results import read_stored

LOOK_S = 1.0
SHARE = 10
"""Reading a large journal takes at most this part of the time."""


def show_info(name: str, folder: Path, output: CommandOutput, *, as_json: bool, watch: bool) -> None:
    """Print what is known about an eval run; on a terminal with `watch`, renew it in place until the eval run ends.

    Raises `OsmosisError` if no eval run has that name, or its files are not valid.
    """
    directory = find_run(folder, name)
    if as_json:
        output.json(info_json(_info(directory)))
    elif not watch or terminal_columns() is None:
        output.lines(info_lines(_info(directory)))
    else:
        _watch(directory, output)


def _watch(directory: RunDirectory, output: CommandOutput) -> None:
    while True:
        began = time.monotonic()
        info = _info(directory)
        output.renew(info_lines(info))
        if info.stored.lifecycle.has_ended:
            return
        time.sleep(max(LOOK_S, SHARE * (time.monotonic() - began)))


def _info(directory: RunDirectory) -> RunInfo:
    return run_info(read_stored(stored(directory)), datetime.now(UTC))
