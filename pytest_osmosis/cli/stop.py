"""`pytest-osmosis runs stop`: asks the process of an eval run to begin nothing more, and waits until it has ended."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import time
from pathlib import Path

from pytest_osmosis.cli.output import CommandOutput, add_output_options
from pytest_osmosis.errors import OsmosisError, writing
from pytest_osmosis.record.find_run import find_run, runs_above
from pytest_osmosis.record.lifecycle import REQUESTED, InFlight, lifecycle_of
from pytest_osmosis.record.run_directory import Holder, RunDirectory, holder_of
from pytest_osmosis.report.style import bold, dim, joined
from pytest_osmosis.text.arguments import filled
from pytest_osmosis.text.names import listed, shown
from pytest_osmosis.text.numbers import plural

DESCRIPTION = """\
Stop an eval run that is pending or running, wherever it was started. No further
run begins, rollouts in flight finish, and results are written; this command
waits for that. pytest --osmosis-run=NAME makes the runs that are missing.
"""
SCHEMA_VERSION = 1
INTERRUPTED = 130
POLL_S = 0.2
MOST_LISTED = 3
RESULTS_S = 10.0
SAYS_AFTER_S = 10.0
"""After this long without a change, a log gets another line on what is in flight."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", type=filled, metavar="NAME", help="the eval run, named as for show")
    parser.add_argument("--yes", "-y", action="store_true", help="stop without a question")
    parser.add_argument(
        "--now",
        action="store_true",
        help="interrupt its process, as Ctrl-C does: what is in flight gets two seconds; on the same machine only",
    )
    add_output_options(parser)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    directory, as_json = find_run(folder, options.name), options.json
    before = lifecycle_of(directory)
    if before.has_ended:
        reason = f": {before.reason}" if before.reason else ""
        raise OsmosisError(
            f"{directory.name}: is not running, so there is nothing to stop; its status is {before.status}{reason}"
        )
    process, asked_at = before.holder, time.time()
    holder = _process_here(directory) if options.now else None
    in_flight = InFlight(directory.journal)
    if not options.yes:
        question = _question(directory, in_flight, holder)
        refused = output.refusal(question, "not stopped", asks=not as_json)
        if refused is not None:
            return refused
    with writing(shown(directory.stop_request)):
        directory.stop_request.touch(mode=0o600)
    if holder is not None and holder.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(holder.pid, signal.SIGINT)
    try:
        _wait(directory, process, in_flight, output, says=not as_json)
        deadline = time.monotonic() + RESULTS_S  # results follow the end, as long as the process can write them
        while process is not None and process.is_alive and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if directory.results.stat().st_mtime >= asked_at:
                    break
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        if not as_json:
            output.lines(["", f"{directory.name} stops without this command; show says when it has"])
        return INTERRUPTED
    after = lifecycle_of(directory)
    if as_json:
        facts = {"path": shown(directory.path), "status": after.status, "reason": after.reason}
        output.json({"schema_version": SCHEMA_VERSION, "name": directory.name, **facts})
    elif after.status == "finished":
        output.lines([f"{directory.name} finished: its last run had begun already"])
    else:
        reason = f": {after.reason}" if after.reason not in (None, REQUESTED) else ""
        output.lines([joined(bold(f"{directory.name} is {after.status}"), reason)])
    return 1 if after.status == "failed" else 0


def _process_here(directory: RunDirectory) -> Holder:
    """Return the process of an eval run. Raises `OsmosisError` unless it is on this machine."""
    holder = holder_of(directory)
    if holder is not None and holder.is_here:
        return holder
    where = "cannot be found" if holder is None else f"runs on another machine ({holder.machine})"
    raise OsmosisError(
        f"{directory.name}: its process {where}, so --now cannot interrupt it; "
        "leave --now out, and what is in flight finishes"
    )


def _question(directory: RunDirectory, in_flight: InFlight, holder: Holder | None) -> str:
    if holder is None:
        n = in_flight.count()
        end = f"{plural(n, 'rollout')} in flight will finish" if n else "nothing is in flight"
        return f"Stop {directory.name}? No further run begins, {end}."
    others = _others_of(directory, holder)
    most = in_flight.most()
    end = f" Up to {plural(most, 'rollout')} in flight may be lost." if most else ""
    also = f" The same process runs {listed(others, MOST_LISTED)}, which stops too." if others else ""
    return f"Stop {directory.name} now?{end}{also}"


def _others_of(directory: RunDirectory, process: Holder) -> list[str]:
    """Return the names of the other eval runs that a process runs."""
    own = (process.pid, process.machine, process.place)
    holders = {run.name: holder_of(RunDirectory(run)) for run in runs_above(directory.path)[1]}
    others = {name: each for name, each in holders.items() if name != directory.name}
    return [name for name, each in others.items() if each and (each.pid, each.machine, each.place) == own]


def _wait(
    directory: RunDirectory, process: Holder | None, in_flight: InFlight, output: CommandOutput, *, says: bool
) -> None:
    """Wait until the eval run has ended, and say what it still waits for."""
    said, said_at = "", 0.0
    while not lifecycle_of(directory).has_ended:
        n, now = in_flight.count(), time.monotonic()
        if n:
            text = f"{plural(n, 'rollout')} in flight"
        elif others := [] if process is None else _others_of(directory, process):
            text = f"nothing in flight; it ends with {listed(others, MOST_LISTED)}, of the same command"
        else:
            is_pending = lifecycle_of(directory).status == "pending"
            left = "its code is still being loaded" if is_pending else "results are being written"
            text = f"nothing in flight; {left}"
        if says and (text != said or now - said_at > SAYS_AFTER_S):
            output.live([dim(f"stopping: {text} (Ctrl-C ends only this command)")])
            said, said_at = text, now
        time.sleep(POLL_S)
