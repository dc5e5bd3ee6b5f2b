"""Workflow commands of GitHub Actions: lines of output that become annotations on lines of files.

Source: docs.github.com, "Workflow commands for GitHub Actions". A step shows its first ten errors.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis.text.safe import one_line

SHOWN = 10


class Finding(NamedTuple):
    """An error in a file: a message of one line; `line` counts from 1."""

    title: str
    message: str
    path: Path
    line: int


def commands(findings: Sequence[Finding], root: Path | None) -> list[str]:
    """Return a command for each of the first ten findings, and a notice with the number of others.

    `root` is the checkout; GitHub needs paths relative to it.
    """
    lines = [_command("error", finding.message, **_place(finding, root)) for finding in findings[:SHOWN]]
    if len(findings) > SHOWN:
        lines.append(_command("notice", f"{len(findings) - SHOWN:,} more errors are in the log", title="osmosis"))
    return lines


def _place(finding: Finding, root: Path | None) -> dict[str, str]:
    path = Path(os.path.abspath(finding.path))  # noqa: PTH100 (keeps symlinks)
    if root is not None and path.is_relative_to(root):
        path = path.relative_to(root)
    return {"file": path.as_posix(), "line": str(finding.line), "title": finding.title}


def _command(name: str, message: str, **properties: str) -> str:
    """Return a workflow command on one line.

    >>> _command("error", "50% of: a, b", file="data/x,1.jsonl", line="3")
    '::error file=data/x%2C1.jsonl,line=3::50%25 of: a, b'
    """
    listed = ",".join(f"{key}={_escaped(value, ',:')}" for key, value in properties.items())
    return f"::{name} {listed}::{_escaped(message)}"


def _escaped(text: str, also: str = "") -> str:
    text = one_line(text).replace("%", "%25")
    for char in also:
        text = text.replace(char, f"%{ord(char):02X}")
    return text
