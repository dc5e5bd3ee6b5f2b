"""The search through everything that a command printed or wrote.

It shares no code with the product: a search that uses the product's redaction would miss what the product misses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
"""Characters that no line of ours contains: C0 but tab and newline, DEL, C1 in UTF-8."""
COMMANDS = re.compile(rb"^[ \t]*::[^\n]*::|##\[|##vso\[|##teamcity\[|section_(?:start|end):", re.MULTILINE)
"""Beginnings of what GitHub Actions, Azure Pipelines, TeamCity and GitLab execute."""


def secrets(content: bytes, values: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each secret that `content` holds; `values` by the names of their variables."""
    for name, value in values.items():
        if value.encode() in content:
            yield f"holds the value of {name}: {_around(content, content.index(value.encode()))}"


def control_sequences(content: bytes) -> Iterator[str]:
    """Yield a line for each character or command in `content` that a terminal or a CI runner would execute."""
    for pattern, what in ((CONTROL, "control character"), (COMMANDS, "workflow command")):
        if found := pattern.search(content):
            yield f"{what}: {_around(content, found.start())}"


def _around(content: bytes, place: int) -> str:
    return repr(content[max(0, place - 60) : place + 60])
