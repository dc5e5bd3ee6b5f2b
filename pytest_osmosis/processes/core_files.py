"""Core files: images of a crashed process's memory, which holds keys."""

from __future__ import annotations

import contextlib


def leave_no_core_file() -> None:
    """Let the system write no core file if this process crashes, nor its children. Code may raise the limit again."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # there is no `resource` on Windows
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
