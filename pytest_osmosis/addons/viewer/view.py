"""`pytest-osmosis view`: the folder and the eval run that the arguments mean, the port, and the browser."""

from __future__ import annotations

import argparse
import errno
import os
import secrets
import socket
import sys
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from pytest_osmosis.addons.viewer.server import Access, Dashboard, DashboardServer
from pytest_osmosis.cli.output import CommandOutput, add_color_option
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import find_run, is_run
from pytest_osmosis.report.style import bold, dim, joined, warning
from pytest_osmosis.text.arguments import filled
from pytest_osmosis.text.names import absolute, shown

MOST_PORT = 65535
_RUN_HELP = (
    "the eval run to open, named as for show, or a folder with eval runs (default: the list of those in .osmosis/runs)"
)
DESCRIPTION = """\
Show the eval runs of this workspace in a browser, live while they run: the list,
each run with its conversations, comparisons and histories. The dashboard listens
on this machine only, and the address that it prints has a token, without which
it gives no data. Ctrl-C ends it; eval runs go on.
"""
EXAMPLES = """\
examples:
  pytest-osmosis view                       the list of eval runs
  pytest-osmosis view sums                  the newest eval run of "sums"
  pytest-osmosis view downloads/runs        eval runs in another folder
  pytest-osmosis view --no-open --port=9000 on a remote machine, to be reached through a tunnel
"""
PORT = 8642
LOOPBACK = ("127.0.0.1", "::1", "localhost")
BACKLOG = 128


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", type=filled, metavar="RUN", help=_RUN_HELP)
    parser.add_argument(
        "--port",
        type=_port,
        metavar="PORT",
        help="the port; 0 means any free one (default: 8642, or any free one if that is in use)",
    )
    parser.add_argument("--no-open", action="store_true", help="print the address, and open no browser")
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        type=filled,
        metavar="NAME",
        help="answer to another name of this machine too, as behind a proxy; may be repeated",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        type=filled,
        metavar="ADDRESS",
        help="the address to listen at (default: 127.0.0.1); others, like 0.0.0.0 in a container, admit other machines",
    )
    add_color_option(parser)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    dashboard, run = _dashboard(folder, options.run)
    access = Access(token=secrets.token_hex(16), hosts=tuple(options.allow_host))
    with _listening(options.host, options.port) as listening:
        server = DashboardServer(dashboard, access, output.sanitizer)
        page = _Page(options.host, listening.getsockname()[1], run, options.port)
        output.live(_lines(dashboard.home, page, access.token, os.environ))
        server.serve(listening, lambda: None if options.no_open else _open(page, access))
    return 0


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= MOST_PORT):
        raise argparse.ArgumentTypeError(f'must be from 0 to {MOST_PORT}, got "{text}"')
    return int(text)


class _Page(Struct, frozen=True):
    """The page that is opened, the list or the one on an eval run; `wanted` is the port that was typed."""

    host: str
    port: int
    run: str | None
    wanted: int | None

    def address(self, key: str) -> str:
        """Return its address; `key` is all that follows `#` and is not part of the view."""
        host = self.host if self.host in LOOPBACK else "127.0.0.1"
        view = "" if self.run is None else f"&/run/{quote(self.run, safe='')}"
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/#{key}{view}"


def _dashboard(folder: Path, name: str | None) -> tuple[Dashboard, str | None]:
    """Return the dashboard on the folder that holds what `name` means, and the eval run that is shown first."""
    if name is None:
        return Dashboard(folder), None
    path = folder / name
    if path.is_dir() and not is_run(path) and any(map(is_run, path.glob("*"))):
        return Dashboard(folder, path), None
    found = find_run(folder, name).path
    return Dashboard(folder, absolute(found).parent), found.resolve().name if found.name == ".." else found.name


def _listening(host: str, wanted: int | None) -> socket.socket:
    """Listen at a port, by default the usual one or any free one. Raises `OsmosisError` if that is not possible."""
    port = PORT if wanted is None else wanted
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = partial(socket.create_server, family=family, backlog=BACKLOG)
    try:
        return listening((host, port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE or wanted is not None:
            raise OsmosisError(_problem(host, port, error)) from None
    return listening((host, 0))


def _problem(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"--port={port}: the port is in use, perhaps by another dashboard; name another port, or leave the option "
            "out, which takes a free one"
        )
    return f"--host={host}: cannot listen at port {port} there: {error.strerror or error}"


def _lines(home: Path, page: _Page, token: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines that are printed before the first request."""
    if not home.is_dir():
        yield f"no eval runs in {shown(home)} yet; the dashboard shows the first one when it begins"
    yield joined("dashboard: ", bold(page.address(f"token={token}")))
    if page.wanted is None and page.port != PORT:
        yield dim(f"port {PORT} is in use, so it has a free one; --port=PORT names another")
    if "SSH_CONNECTION" in environ and page.host in LOOPBACK:
        forward = f"ssh -N -L {page.port}:127.0.0.1:{page.port} HOST"
        yield joined("first type on your own machine, with the name of this one: ", bold(forward))
    if page.host not in LOOPBACK:
        yield warning(
            f"it listens at {page.host}: whoever reaches this machine and has the token can read all eval runs, and "
            "the network can read along"
        )
    yield dim("Ctrl-C ends it; whoever has the address can read the eval runs")


def _open(page: _Page, access: Access) -> None:
    """Open the page in the user's browser, if there is one with windows.

    Other users see the arguments of the browser, so it gets a key that is good for one request.
    """
    if can_open(os.environ, sys.platform):
        with suppress(webbrowser.Error, OSError):
            webbrowser.open(page.address(f"once={access.new_key()}"))


def can_open(environ: Mapping[str, str], platform: str) -> bool:
    """Return True if a browser can show windows to the user: one in the terminal would take it away.

    >>> can_open({"SSH_CONNECTION": "a 1 b 22", "DISPLAY": ":10"}, "linux"), can_open({"BROWSER": "code"}, "linux")
    (False, True)
    """
    if environ.get("BROWSER"):
        return True
    if "SSH_CONNECTION" in environ:
        return False
    return platform in ("darwin", "win32") or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))
