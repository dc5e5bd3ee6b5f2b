"""The search through everything that a command printed or wrote.

It shares no code with the product: a search that uses the product's redaction would miss what the product misses. The
product looks for encoded values in a text. This search decodes the text, twice over, and looks for the values.

Commands are what runners of CI execute when they find it in the output of a job. Facts, from the parsers themselves
(actions/runner ActionCommand.cs, azure-pipelines-agent Command.cs), from GitLab's documentation of job logs and
JetBrains' of service messages:

- GitHub splits output at CR and LF. A line that begins with "::" after white space, and has another "::", is a
  command; its name ends at a space. A line with "##[", anywhere, and "]" after it is one too.
- Azure Pipelines takes "##vso[area.event ...]" anywhere in a line, and formats lines that begin with "##[".
- TeamCity takes "##teamcity[name ...]" anywhere in a line.
- GitLab takes "section_start:<digits>:<name>[options]" and "section_end:...", followed by CR and ESC[0K.

A name is not compared with the commands that exist: there may be new ones tomorrow.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import unquote

CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # C0 but tab and newline, DEL, C1
    r"|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # directions
    r"|[\u00ad\u034f\u180e\u200b\u2028\u2029\u2060-\u2064\ufeff\ufff9-\uffff\U000e0000-\U000e0fff]"  # nobody sees them
    r"|[\ud800-\udfff]"
    r"|[\u0300-\u036f]{9}"
)
"""Characters that no line of ours contains. Bytes that are not UTF-8 count as lone surrogates."""
DEEP_BYTES = 1_000_000
"""Larger contents are decoded once."""


def secrets(content: bytes, values: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each secret that `content` holds, also encoded; `values` by the names of their variables."""
    text = content.decode("utf-8", "surrogateescape")
    for how, view in views(text, depth=2 if len(content) < DEEP_BYTES else 1).items():
        for name, value in values.items():
            at = view.find(value.strip())
            if at >= 0:
                yield f"holds the value of {name}{how}: {_around(view, at)}"


def views(text: str, depth: int) -> dict[str, str]:
    """Return the text as it is, and decoded in every way, by the way."""
    found = {"": text}
    known = {text}
    newest = dict(found)
    for _ in range(depth):
        decoded = {
            f"{how}, {name}": decode(view)
            for how, view in newest.items()
            for name, decode in DECODERS.items()
            if view  # an empty text has no other form
        }
        newest = {how: view for how, view in decoded.items() if view not in known}
        known |= set(newest.values())
        found |= newest
    return found


def _from_json(text: str) -> str:
    text = re.sub(r"\\+u([0-9a-fA-F]{4})|\\+x([0-9a-fA-F]{2})", lambda found: chr(int(found[1] or found[2], 16)), text)
    return re.sub(r"\\+([\"'/\\])", r"\1", text)


def _from_base64(text: str) -> str:
    """Return each run of digits decoded from each of the places at which a group of four may begin."""
    runs = re.findall(r"[A-Za-z0-9+/_-]{8,}", text)
    return "\n".join(_base64_text(run[offset:]) for run in runs for offset in range(4))


def _base64_text(run: str) -> str:
    plain = run.replace("-", "+").replace("_", "/")
    plain = plain[: -1 if len(plain) % 4 == 1 else None]  # a digit alone holds no byte
    return base64.b64decode(plain + "=" * (-len(plain) % 4)).decode("utf-8", "replace")


DECODERS: Mapping[str, Callable[[str], str]] = {
    "from JSON": _from_json,
    "from HTML": html.unescape,
    "from a URL": unquote,
    "from base64": _from_base64,
}


def control_characters(content: bytes) -> Iterator[str]:
    """Yield a line for the first character in `content` that a terminal would obey, or that nobody can see."""
    text = content.decode("utf-8", "surrogateescape")
    if found := CONTROL.search(text):
        yield f"control character: {_around(text, found.start())}"


def control_sequences(content: bytes) -> Iterator[str]:
    """Yield a line for each character or command in `content` that a terminal or a runner of CI would obey."""
    yield from control_characters(content)
    for command in commands(content.decode("utf-8", "surrogateescape")):
        yield f"workflow command of {command}"


def _around(text: str, place: int) -> str:
    return ascii(text[max(0, place - 60) : place + 60])


# -- runners of CI ------------------------------------------------------------------------------------------

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
