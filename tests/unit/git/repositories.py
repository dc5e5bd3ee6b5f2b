"""Repositories, made by the real git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")


def git(folder: Path, *arguments: str) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", *IDENTITY, "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *arguments]
    return subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, files: dict[str, str], message: str = "a change") -> str:
    """Write files, commit all that has changed, and return the commit's SHA."""
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")
