"""Colours in the terminal: those of pytest's `--color`, made by styles alone."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, Workspace
from tests.servers import ChatServer, status

GREEN, RED, YELLOW, DIM, END = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"


def half_passing(workspace: Workspace, minimum: float) -> None:
    workspace.eval(rows=[{"score": float(row % 2)} for row in range(4)], gate={"pass_rate": f">= {minimum}"})


@pytest.mark.slow
def test_options_and_variables_decide_as_they_do_for_pytest(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_passing(workspace, 0.4)
    held = workspace.run("--color=yes", CONFIG)
    assert any(line.startswith(f"gate pass_rate >= 0.4: {GREEN}HOLDS{END}") for line in held.outlines)
    assert any(line.startswith(DIM) and "tokens" in line and line.endswith(END) for line in held.outlines)
    half_passing(workspace, 0.9)
    plain = [workspace.run(option, CONFIG).stdout.str() for option in ("--color=auto", "--color=no")]
    monkeypatch.delenv("PY_COLORS")  # pytester sets it, and it outranks the others
    monkeypatch.setenv("FORCE_COLOR", "1")
    forced = workspace.run(CONFIG).stdout.str()
    monkeypatch.setenv("NO_COLOR", "1")
    plain.append(workspace.run(CONFIG).stdout.str())

    assert f"gate pass_rate >= 0.9: {RED}FAILS{END}" in forced
    assert all("gate pass_rate >= 0.9: FAILS: " in shown and "\x1b" not in shown for shown in plain)


def test_text_of_others_cannot_colour_a_line(workspace: Workspace) -> None:
    """The error of a server stands in a line that we colour ourselves."""
    error = {"error": {"message": "\x1b[32mHOLDS\x1b[0m \x9b32m"}}
    with ChatServer(status(401, error)) as server:
        workspace.eval(rows=4, model={"base_url": server.base_url}, gate={"pass_rate": ">= 0.5"})
        result = workspace.run("--color=yes", "--osmosis-no-probe", CONFIG).stdout.str()

    assert any(YELLOW in line and r"\x1b[32mHOLDS\x1b[0m \x9b32m" in line for line in result.splitlines())
    assert f"gate pass_rate >= 0.5: {YELLOW}NOT MEASURED{END}" in result
    assert f"{GREEN}HOLDS" not in result
    assert "\x9b" not in result
