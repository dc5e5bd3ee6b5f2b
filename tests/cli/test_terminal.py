"""Pages on a terminal: in colours, and as wide as it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.stored_runs import ROLLOUT, SCORE, Cli, Stored

PROGRAM = (sys.executable, "-m", "pytest_osmosis")
UNSET = ("NO_COLOR", "FORCE_COLOR", "PY_COLORS")
TIMEOUT_S = 60
BOLD, RED = "\x1b[1m", "\x1b[31m"


def on_terminal(folder: Path, *arguments: str, variables: Mapping[str, str]) -> str:
    """Run a command whose standard output is a terminal; return all that it prints there."""
    env = {name: value for name, value in os.environ.items() if name not in UNSET}
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, *arguments], cwd=folder, env={**env, "TERM": "xterm", **variables}, stdin=theirs, stdout=theirs
    ) as process:
        os.close(theirs)
        printed = b""
        while True:
            try:
                read = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not read:
                break
            printed += read
        os.close(ours)
        assert process.wait(TIMEOUT_S) == 0
    return printed.decode().replace("\r\n", "\n")


@pytest.fixture
def folder(stored: Stored) -> Path:
    """A workspace with an eval run."""
    return stored("x-1", ROLLOUT, SCORE).parents[2]


def test_what_failed_is_red(folder: Path) -> None:
    said = on_terminal(folder, "show", variables={})
    assert said.startswith(f"{BOLD}x-1")
    assert f"  {RED}row3-run0\x1b[0m  score 0.25 < 0.5" in said


@pytest.mark.parametrize(
    ("option", "variables", "coloured"),
    [
        ((), {}, False),
        ((), {"FORCE_COLOR": "1"}, True),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ((), {"NO_COLOR": "1", "PY_COLORS": "1"}, True),
        (("--color=yes",), {"NO_COLOR": "1"}, True),
        (("--color=no",), {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colours_of_a_pipe_follow_pytests_rules(
    typed: Cli,
    stored: Stored,
    monkeypatch: pytest.MonkeyPatch,
    option: tuple[str, ...],
    variables: Mapping[str, str],
    coloured: bool,
) -> None:
    stored("x-1", ROLLOUT, SCORE)
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for command in ("show", "runs"):
        assert ("\x1b[" in typed(command, *option)) is coloured
    assert "    \\x1b[31mred\n" in typed("show", "row3-run1", *option), "text of others has no colour of its own"


@pytest.mark.parametrize(
    ("columns", "answer"), [("50", 'answered "two \\x1b[...'), ("200", 'answered "two \\x1b[31mred"')]
)
def test_an_answer_that_does_not_fit_is_cut(folder: Path, columns: str, answer: str) -> None:
    said = on_terminal(folder, "show", variables={"COLUMNS": columns, "NO_COLOR": "1"})
    assert f"  row3-run1  score 0.25 < 0.5: {answer}\n" in said
