"""The version of the code that an eval run evaluated, in words."""

from __future__ import annotations

SHORT = 12
"""The digits of a commit that are shown. They tell the commits of any repository apart."""


def code_version(commit: str | None, dirty: bool | None) -> str:
    """Return the git commit of the code, and the state of its files.

    >>> code_version("1f3a" * 10, False)
    'git commit 1f3a1f3a1f3a'
    >>> code_version("1f3a" * 10, True)
    'git commit 1f3a1f3a1f3a, with uncommitted changes'
    >>> code_version("1f3a" * 10, None), code_version(None, None)
    ('git commit 1f3a1f3a1f3a, uncommitted changes unknown', 'git commit unknown')
    """
    if commit is None:
        return "git commit unknown"
    state = {None: ", uncommitted changes unknown", True: ", with uncommitted changes", False: ""}[dirty]
    return f"git commit {commit[:SHORT]}{state}"
