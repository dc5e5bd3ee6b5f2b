"""Dashboards of a process of their own, as `pytest-osmosis view` starts them."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

DEADLINE_S = 60.0
_WITH_USUAL_PORT = """
import sys
from pytest_osmosis.addons.viewer import view
from pytest_osmosis.cli import main
view.PORT = {}
sys.exit(main())
"""
_ADDRESS = re.compile(r"dashboard: (http://(?P<host>[^/]+):(?P<port>[0-9]+)/#token=(?P<token>[0-9a-f]+)(?P<view>\S*))")


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        assert self.status == 200, self.text
        return json.loads(self.body)


@dataclass(frozen=True)
class RunningDashboard:
    """A dashboard that answers. `view` is the end of its address, `said` all that it printed before."""

    process: subprocess.Popen[str]
    port: int
    token: str
    view: str
    said: str

    @property
    def server(self) -> str:
        """The server, as "127.0.0.1:8000"."""
        return f"127.0.0.1:{self.port}"

    def address(self, view: str = "") -> str:
        """Return the address of a view, "run/NAME", with the token, as a user who was given it would open it."""
        return f"http://{self.server}/#token={self.token}" + (f"&/{view}" if view else "")

    def api(self, path: str, **headers: str) -> Answer:
        own = {"Authorization": f"Bearer {self.token}", "Sec-Fetch-Site": "same-origin"}
        return self.get(f"/api/{path}", **{**own, **_dashed(headers)})

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request(method, path, headers=_dashed(headers))
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        packed = answer.headers.get("Content-Encoding") == "gzip"
        return Answer(answer.status, dict(answer.headers), gzip.decompress(body) if packed else body)

    def interrupt(self) -> tuple[int, str]:
        """Type Ctrl-C, and return the exit status and what is printed then."""
        self.process.send_signal(signal.SIGINT)
        said, _ = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, said


def _dashed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


@contextmanager
def dashboard(
    folder: Path, *arguments: str, port: int = 0, usual_port: int | None = None, **environ: str
) -> Iterator[RunningDashboard]:
    """Start a dashboard in a folder, and end it afterwards. With a `usual_port` it has no option for its port."""
    program, ports = ["-m", "pytest_osmosis"], [f"--port={port}"]
    if usual_port is not None:
        program, ports = ["-c", _WITH_USUAL_PORT.format(usual_port)], []
    command = [sys.executable, *program, "view", *arguments, *ports]
    variables = {key: value for key, value in os.environ.items() if key not in ("SSH_CONNECTION", "DISPLAY", "BROWSER")}
    with subprocess.Popen(
        command, cwd=folder, env={**variables, **environ}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            yield _started(process)
        finally:
            process.kill()


def _started(process: subprocess.Popen[str]) -> RunningDashboard:
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if line.startswith("Ctrl-C"):
            break
    found = _ADDRESS.search(said)
    assert found is not None, said
    return RunningDashboard(process, int(found["port"]), found["token"], found["view"], said)


class NotingBrowser:
    """A program in the place of the user's browser, which notes the address that it is to open."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "browser"
        self._noted = folder / "address"
        note = f"import sys\nopen({str(self._noted)!r}, 'a').write(sys.argv[1] + '\\n')\n"
        self.path.write_text(f"#!{sys.executable}\n{note}")
        self.path.chmod(stat.S_IRWXU)

    def address(self) -> str:
        """Wait until an address is opened, and return it."""
        deadline = time.monotonic() + DEADLINE_S
        while not (self._noted.exists() and self._noted.read_text().endswith("\n")):
            assert time.monotonic() < deadline, "no address was opened"
            time.sleep(0.02)
        return self._noted.read_text().strip()
