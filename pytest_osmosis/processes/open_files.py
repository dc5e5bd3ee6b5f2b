"""The number of files and connections that a process may have open at once."""

from __future__ import annotations

import contextlib

WANTED = (65_536, 10_240)
"""A system may allow less than it says: macOS names no bound, but takes 10240."""


def allow_many_files() -> None:
    """Raise the soft limit of this process: shells set it to 256 or 1024, and each rollout has up to three connections.

    It is never lowered, and the hard limit stays.
    """
    with contextlib.suppress(ImportError):  # there is no `resource` on Windows
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        for wanted in WANTED:
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            if soft == resource.RLIM_INFINITY or soft >= most:
                return
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
                return
