"""Demo servers in child processes, for commands that a test starts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

DEADLINE_S = 120


class DemoServer(NamedTuple):
    """A running `python -m pytest_osmosis.demo`: `base_url` ends in /v1."""

    base_url: str

    def stats(self) -> Mapping[str, int]:
        """Return the server's counts so far."""
        with urllib.request.urlopen(f"{self.base_url.removesuffix('/v1')}/stats", timeout=DEADLINE_S) as answer:
            counts: Mapping[str, int] = json.load(answer)
        return counts


@contextmanager
def demo_server(*arguments: str, program: str = "pytest_osmosis.demo") -> Iterator[DemoServer]:
    """Start a demo server in a child process, on a free port."""
    words = [sys.executable, "-m", program, "--port=0", *arguments]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"http://\S+/v1", line)
        assert address, f"the demo server printed {line!r}"
        yield DemoServer(address[0])
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE_S)
