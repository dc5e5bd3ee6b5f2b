"""The browser of the tests: the system's chromium or Chrome, found on PATH. `make browser` installs Debian's.

Playwright's own browsers are not used: a system's package gets its security updates, and needs no second download.
"""

from __future__ import annotations

import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = f"""\
tests/browser: no browser: none of {", ".join(NAMES)} is on PATH.
These tests need one and never skip. On Debian, install it as root: apt-get install chromium, or: make browser.
On Ubuntu, whose chromium is a snap, install Google Chrome. `make test` does without these tests."""


def executable() -> str:
    for name in NAMES:
        if path := shutil.which(name):
            return path
    raise FileNotFoundError(MISSING)
