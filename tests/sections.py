"""Tables of cases in text files: sections of a title, `== TITLE`, and lines, with an empty line between sections."""

from __future__ import annotations

from pathlib import Path
from string import Template


def sections_in(path: Path, **words: str) -> dict[str, list[str]]:
    """Return the lines of each section by its title. `$WORD` is one of the `words`, or of a first section `names`."""
    text = path.read_text(encoding="utf-8")
    if text.startswith("== names"):
        names, text = text.split("\n\n", 1)
        words |= dict(line.split(": ", 1) for line in names.splitlines()[1:])
    parts = [part.split("\n") for part in Template(text).safe_substitute(words).strip().split("\n\n")]
    return {title.removeprefix("== "): lines for title, *lines in parts}
