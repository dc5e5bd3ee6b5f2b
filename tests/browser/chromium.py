"""The browser of these tests: Debian's chromium, or Chrome. `python -m tests.browser.chromium` installs it.

Playwright's own browsers are not used: a system's package gets its security updates, and needs no second download.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = f"""\
tests/browser: no browser: none of {", ".join(NAMES)} is on PATH.
These tests need one and never skip. On Debian, install it as root: apt-get install chromium, or: make browser.
On Ubuntu, whose chromium is a snap, install Google Chrome. `make test` does without these tests."""


class BrowserMissing(Exception):
    """No browser is installed; the text says what to do."""


def executable() -> str:
    for name in NAMES:
        if path := shutil.which(name):
            return path
    raise BrowserMissing(MISSING)


def install() -> str:
    """Return the path of the browser. If there is none, root installs it with apt-get; others are told what to do."""
    try:
        return executable()
    except BrowserMissing:
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            raise
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=environment, check=False)
    subprocess.run(
        ["apt-get", "install", "-qq", "-y", "--no-install-recommends", NAMES[0]], env=environment, check=False
    )
    return executable()


if __name__ == "__main__":
    try:
        print(install())
    except BrowserMissing as error:
        sys.exit(str(error))
