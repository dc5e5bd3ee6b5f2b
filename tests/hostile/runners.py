"""Recognisers of what runners of CI execute when they find it in the output of a job.

Facts, from the parsers themselves (actions/runner ActionCommand.cs, azure-pipelines-agent Command.cs), from GitLab's
documentation of job logs and JetBrains' of service messages:

- GitHub splits output at CR and LF. A line that begins with "::" after white space, and has another "::", is a
  command; its name ends at a space. A line with "##[", anywhere, and "]" after it is one too.
- Azure Pipelines takes "##vso[area.event ...]" anywhere in a line, and formats lines that begin with "##[".
- TeamCity takes "##teamcity[name ...]" anywhere in a line.
- GitLab takes "section_start:<digits>:<name>[options]" and "section_end:...", followed by CR and ESC[0K.

A name is not compared with the commands that exist: there may be new ones tomorrow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LINES = re.compile(r"\r\n|\r|\n")
_NAME = re.compile(r"[^\s:]+")
_SECTION = re.compile(r"section_(?:start|end):[0-9]+:[A-Za-z0-9_.-]+(?:\[[^\]]*\])?\r")


def commands(text: str) -> Iterator[str]:
    """Yield what a runner would execute, with the runner's name."""
    for match in _SECTION.finditer(text):
        yield f"GitLab: {match[0]!r}"
    for line in LINES.split(text):
        for runner, recognise in RUNNERS.items():
            if recognise(line):
                yield f"{runner}: {line[:200]!r}"


def _github(line: str) -> bool:
    begun = line.lstrip()
    if begun.startswith("::"):
        name, separator, _ = begun[2:].partition("::")
        if separator and _NAME.match(name):
            return True
    return _bracketed(line, "##[")


def _azure(line: str) -> bool:
    return _bracketed(line, "##vso[") or line.lstrip().startswith("##[")


def _teamcity(line: str) -> bool:
    return _bracketed(line, "##teamcity[")


def _bracketed(line: str, prefix: str) -> bool:
    place = line.lower().find(prefix)
    return place >= 0 and "]" in line[place:]


RUNNERS = {"GitHub": _github, "Azure Pipelines": _azure, "TeamCity": _teamcity}
