"""Pages on a terminal: through the user's pager, in colours, and silent if the reader leaves."""

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
UNSET = ("PAGER", "LESS", "NO_COLOR", "FORCE_COLOR", "PY_COLORS")
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


def test_a_page_goes_through_the_users_pager_with_the_users_options_of_less(folder: Path) -> None:
    said = on_terminal(folder, "show", variables={"PAGER": "sed 's/^/paged: /'; echo \"LESS is $LESS\""})
    assert f"paged: {BOLD}x-1" in said
    assert said.endswith("LESS is FRX\n")
    assert on_terminal(folder, "runs", variables={"PAGER": 'echo "$LESS"; cat', "LESS": "S"}).startswith("S\n")


@pytest.mark.slow
@pytest.mark.parametrize("pager", ["", "cat", "no-such-pager --raw", "'unfinished"])
def test_without_a_pager_the_page_is_printed(folder: Path, pager: str) -> None:
    assert on_terminal(folder, "show", variables={"PAGER": pager}).startswith(f"{BOLD}x-1")


def test_an_option_prints_the_page_at_once_and_what_failed_is_red(folder: Path) -> None:
    variables = {"PAGER": "sed 's/^/paged: /'"}
    assert "paged" not in on_terminal(folder, "show", "--json", variables=variables)
    said = on_terminal(folder, "show", "--no-pager", variables=variables)
    assert "paged" not in said
    assert f"  {RED}row3-run0\x1b[0m  score 0.25 < 0.5" in said


def test_a_pager_that_the_user_leaves_early_is_no_error(folder: Path) -> None:
    said = on_terminal(folder, "show", "row3-run1", "--full", variables={"PAGER": "head -n 1"})
    assert said.count("\n") == 1
    assert "x-1 row3-run1" in said


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


@pytest.mark.parametrize(("columns", "lines"), [("50", 2), ("200", 1)])
def test_an_answer_that_does_not_fit_gets_a_line_of_its_own(folder: Path, columns: str, lines: int) -> None:
    said = on_terminal(folder, "show", "--no-pager", variables={"COLUMNS": columns, "NO_COLOR": "1"})
    answer = 'answered "two \\x1b[31mred"'
    separator = ": " if lines == 1 else "\n             "
    assert f"  row3-run1  score 0.25 < 0.5{separator}{answer}\n" in said
