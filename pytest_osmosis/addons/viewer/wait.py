"""`pytest-osmosis runs wait`: waits until an eval run has ended, and exits as its pytest did."""

from __future__ import annotations

import argparse
import math
import time
from datetime import datetime
from pathlib import Path

from pytest_osmosis.addons.viewer.list import gates_text
from pytest_osmosis.addons.viewer.run_entry import RolloutCounter, run_entry
from pytest_osmosis.cli.output import CommandOutput, add_output_options
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import find_run
from pytest_osmosis.record.lifecycle import Lifecycle, lifecycle_of
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.report.style import bold, joined
from pytest_osmosis.results.merge import NOT_MEASURED, stored_status
from pytest_osmosis.text.arguments import filled
from pytest_osmosis.text.numbers import count

DESCRIPTION = """\
Wait until an eval run has ended and its results are written. The exit status is
that of the pytest which ran it. One that is over is reported at once.
"""
EXAMPLES = """\
examples:
  pytest-osmosis submit configs/eval/sums.toml --yes --name=nightly
  pytest-osmosis runs wait nightly --timeout=3600

exit status:
  0    the gates hold; without a gate: every run passed
  1    a gate fails; without a gate: a run failed
  2    it was interrupted by Ctrl-C
  4    there is no such eval run, or its results cannot be read
  9    not measured, or it was killed and left no results
  124  it has not ended when the time of --timeout is over
"""
SCHEMA_VERSION = 1
USAGE_ERROR, TIMED_OUT = 4, 124
POLL_S = 0.2
RESULTS_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", type=filled, metavar="NAME", help="the eval run, named as for show")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="wait no longer (default: until it ends)")
    add_output_options(parser)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    try:
        directory = find_run(folder, options.name)
        end = _ended(directory, options.timeout, output, says=not options.json)
        status = _status(directory, end)
    except OsmosisError as error:
        output.fail(error, as_json=options.json)
        return USAGE_ERROR
    entry = run_entry(directory.path)
    if options.json:
        facts = {"path": entry.path, "status": end.status, "reason": end.reason, "exit_status": status}
        output.json({"schema_version": SCHEMA_VERSION, "name": directory.name, **facts})
        return status
    reason = f": {end.reason}" if end.reason else ""
    became = "is still " if status == TIMED_OUT else "" if end.status == "failed" else "is "
    passed = "" if entry.passed is None else f", {count(entry.passed)} of {count(entry.counted or 0)} runs passed"
    gates = f", gate {gates_text(entry)}" if entry.gates else ""
    output.lines(
        [joined(bold(f"{directory.name} {became}{end.status}"), f"{reason}{passed}{gates} (exit status {status})")]
    )
    return status


def _ended(directory: RunDirectory, timeout_s: float | None, output: CommandOutput, *, says: bool) -> Lifecycle:
    """Return the lifecycle of an eval run once it has ended and its results are written, or time is up."""
    deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
    counter = RolloutCounter()
    while not (now := lifecycle_of(directory)).has_ended and time.monotonic() < deadline:
        if says:
            entry = run_entry(directory.path, counter.count)
            rollouts = f"{count(entry.ended or 0)} of {count(entry.selected or 0)} rollouts"
            output.in_place(f"{directory.name} is {now.status}: {rollouts} (Ctrl-C ends only this command)")
        time.sleep(POLL_S)
    if says:
        output.in_place("")
    if now.ended_at is not None:  # results follow the end
        ended_at, deadline = datetime.fromisoformat(now.ended_at).timestamp(), time.monotonic() + RESULTS_S
        while not _written_since(directory.results, ended_at) and time.monotonic() < deadline:
            time.sleep(POLL_S)
    return now


def _written_since(path: Path, moment: float) -> bool:
    try:
        return path.stat().st_mtime >= moment - 1  # another clock may have written it
    except OSError:
        return False


def _status(directory: RunDirectory, end: Lifecycle) -> int:
    if not end.has_ended:
        return TIMED_OUT
    ended_at = math.inf if end.ended_at is None else datetime.fromisoformat(end.ended_at).timestamp()
    has_results = end.results_are_current and directory.results.exists()
    if not has_results or (end.status == "failed" and not _written_since(directory.results, ended_at)):
        return NOT_MEASURED  # or the results are those of an earlier session
    return stored_status(directory.results)
