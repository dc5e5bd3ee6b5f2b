"""Text leaves the package at few places, all of which the sanitizer covers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest_osmosis

PACKAGE = Path(pytest_osmosis.__file__).parent
WAYS_OUT = re.compile(r"\bprint\(|\bwarnings?\.warn\(|\.(?:write_line|write_sep|section)\(|\btw\.(?:write|line)\(")
KNOWN = {
    "cli/main.py": 2,  # errors: ours through a sanitizer; one of the system, which holds no text of others
    "cli/output.py": 4,  # JSON through a sanitizer, and lines painted after they passed it
    "demo.py": 3,  # a program of its own, which knows no secret
    "plugin/controller.py": 1,  # a constant
    "plugin/progress_line.py": 3,  # an empty line, and the line in place, whose name is escaped
    "plugin/terminal.py": 3,  # `write_line`, an escaped title, and one of ours
}


def test_no_module_prints_past_the_sanitizer() -> None:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        code = re.sub(r'r?"""[\s\S]*?"""|#.*', "", path.read_text(encoding="utf-8"))
        if times := len(WAYS_OUT.findall(code)):
            found[path.relative_to(PACKAGE).as_posix()] = times
    assert found == KNOWN
