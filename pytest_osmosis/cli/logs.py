"""`pytest-osmosis runs logs`: the output of a submitted session, and that of user code which belongs to no run."""

from __future__ import annotations

import argparse
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from pytest_osmosis.cli.output import CommandOutput, add_output_options
from pytest_osmosis.config import SecretsSource
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.evals.known_secrets import known_secrets
from pytest_osmosis.files.reading import FileFault, open_file, something_at
from pytest_osmosis.record.find_run import find_run, stored
from pytest_osmosis.record.lifecycle import lifecycle_of
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.submission import secrets_file_of, submitted_process
from pytest_osmosis.report.style import dim, joined
from pytest_osmosis.text.arguments import filled
from pytest_osmosis.text.redaction import Sanitizer

DESCRIPTION = """\
Print what pytest printed in a submitted eval run, and what user code printed
outside of runs. What belongs to a run is on its page, which pytest-osmosis show
prints.
"""
EXAMPLES = """\
examples:
  pytest-osmosis runs logs latest --tail 20
  pytest-osmosis runs logs sums --follow    until the newest eval run of "sums" ends
"""
SCHEMA_VERSION = 1
POLL_S = 0.25
_SECRETS_VARIABLE = "PYTEST_OSMOSIS_SECRETS_FILE"
_HOST = "user code | "
CHUNK_BYTES = 1 << 20
SHORTENED = "[this log was rewritten, so lines may be missing here]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", type=filled, metavar="NAME", help="the eval run, named as for show")
    parser.add_argument("--follow", "-f", action="store_true", help="go on printing until the eval run ends")
    parser.add_argument("--tail", type=_count, metavar="N", help="begin with the last N lines of each log")
    add_output_options(parser)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    if options.follow and options.json:
        raise OsmosisError("--json and --follow exclude each other; leave one out")
    directory = find_run(folder, options.name)
    name, is_submitted = directory.name, something_at(directory.submission)
    of_run, file = stored(directory), secrets_file_of(directory) or os.environ.get(_SECRETS_VARIABLE)
    secrets = SecretsSource(None if file in (None, "", "-") else Path(file))
    known = known_secrets(of_run.config, (), folder=of_run.workspace, environ=os.environ, secrets=secrets)
    output.sanitizer.hide(*known)  # processes of user code write to the second log directly
    logs = (LogTail(directory.session_log), LogTail(directory.host_log))
    session, host = _read(logs, lambda log: log.last(options.tail), output.sanitizer)
    if options.json:
        facts = {"name": name, "status": lifecycle_of(directory).status, "submitted": is_submitted}
        output.json({"schema_version": SCHEMA_VERSION, **facts, "session": session, "host": host})
    elif options.follow:
        if not is_submitted:
            output.live([dim(f"{name} was not submitted: this is only what user code prints outside of runs")])
        output.live(_merged(session, host))
        _follow(directory, logs, output)
    else:
        output.lines(_lines(name if not is_submitted else None, session, host))
    return 0


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f'must be a number of lines, got "{text}"')
    return int(text)


def _read(
    logs: Iterable[LogTail], read: Callable[[LogTail], Iterable[str]], sanitizer: Sanitizer
) -> Iterator[Sequence[str]]:
    """Yield lines of the session's log, then of the hosts'. They are redacted together, as a secret has several."""
    for log in logs:
        text = "\n".join(read(log))
        yield sanitizer.text(text).split("\n") if text else []


def _lines(unsubmitted: str | None, session: Sequence[str], host: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a page. An eval run that was not submitted has no log of its session."""
    if unsubmitted is None:
        yield from session or [dim("pytest has printed nothing yet")]
    else:
        yield dim(f"{unsubmitted} was not submitted: the terminal that ran it has the output of pytest")
    if host:
        yield dim("output of user code that belongs to no run (host.log):")
        yield from host
    elif unsubmitted is not None:
        yield dim("user code printed nothing outside of runs")


def _follow(directory: RunDirectory, logs: Sequence[LogTail], output: CommandOutput) -> None:
    """Print new lines as they come, until the eval run has ended, and the pytest that was submitted for it too."""
    while not lifecycle_of(directory).has_ended or (
        (process := submitted_process(directory)) is not None and process.is_alive
    ):
        time.sleep(POLL_S)
        output.live(_merged(*_read(logs, LogTail.new, output.sanitizer)))
    output.live(_merged(*_read(logs, LogTail.rest, output.sanitizer)))
    end = lifecycle_of(directory)
    output.live([dim(f"{directory.name}: {end.status}{f': {end.reason}' if end.reason else ''}")])


def _merged(session: Iterable[str], host: Iterable[str]) -> Iterator[str]:
    yield from session
    yield from (joined(dim(_HOST), line) for line in host)


class LogTail:
    """Reads a file that others append to. A file that does not exist is empty; it may begin to exist later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = self._n_lines = 0
        self._line = b""

    def last(self, n: int | None) -> list[str]:
        """Return the whole lines that there are now, at most the last `n` of them."""
        return list(deque(self.new(), maxlen=n))

    def new(self) -> Iterator[str]:
        """Yield the whole lines that were added since they were read last."""
        for chunk in self._chunks():
            *lines, self._line = (self._line + chunk).split(b"\n")
            self._n_lines += len(lines)
            yield from map(_text, lines)

    def rest(self) -> Iterator[str]:
        """Yield what is still to be read, a last line without its end too."""
        yield from self.new()
        if self._line:
            yield _text(self._line)
            self._line = b""

    def _chunks(self) -> Iterator[bytes]:
        try:
            with open_file(self._path) as file:
                size = file.seek(0, os.SEEK_END)
                if size < self._position:
                    file.seek(0)
                    yield from self._reread(file.read())
                file.seek(self._position)
                while chunk := file.read(CHUNK_BYTES):
                    self._position += len(chunk)
                    yield chunk
        except (FileFault, OSError):
            return

    def _reread(self, content: bytes) -> Iterator[bytes]:
        """Find the place again in a file that was rewritten: behind as many lines, if secrets were taken out of it."""
        lines = content.split(b"\n")
        known, self._position, self._line = self._n_lines, len(content), b""
        if known < len(lines):
            yield b"\n".join(lines[known:])
        else:
            self._n_lines = len(lines) - 2  # the note is no line of the file
            yield f"{SHORTENED}\n".encode()


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="replace").removesuffix("\r")
