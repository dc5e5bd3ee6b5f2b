"""Limits of this process: no core files, as its memory holds keys, and many open files."""

from __future__ import annotations

import contextlib

WANTED = (65_536, 10_240)
"""A system may allow less than it says: macOS names no bound, but takes 10240."""


def leave_no_core_file() -> None:
    """Let the system write no core file if this process crashes, nor its children. Code may raise the limit again."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # there is no `resource` on Windows
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


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
