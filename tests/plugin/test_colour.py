"""Colours in the terminal: those of pytest's `--color`, made by styles alone."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import Workspace
from tests.servers import ChatServer, status

GREEN, RED, YELLOW, DIM, END = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"


def half_passing(workspace: Workspace, minimum: float) -> None:
    workspace.eval(rows=[{"score": float(row % 2)} for row in range(4)], gate={"pass_rate": f">= {minimum}"})


@pytest.mark.slow
def test_a_gate_that_holds_is_green_and_one_that_fails_red(workspace: Workspace) -> None:
    half_passing(workspace, 0.4)
    held = workspace.run("--color=yes", "--osmosis-config=configs/eval/x.toml")
    half_passing(workspace, 0.9)
    failed = workspace.run("--color=yes", "--osmosis-config=configs/eval/x.toml")

    held.stdout.fnmatch_lines([f"gate pass_rate >= 0.4: {GREEN}HOLDS{END}*".replace("[", "[[]")])
    failed.stdout.fnmatch_lines([f"gate pass_rate >= 0.9: {RED}FAILS{END}*".replace("[", "[[]")])
    assert any(line.startswith(DIM) and "tokens" in line and line.endswith(END) for line in failed.outlines)


def test_a_gate_that_was_not_measured_is_yellow(workspace: Workspace) -> None:
    workspace.eval(rows=[{"reward": "raises"}] * 4, gate={"pass_rate": ">= 0.5"}, limits={"max_errors": 20})

    result = workspace.run("--color=yes", "--osmosis-config=configs/eval/x.toml")

    assert any(f"gate pass_rate >= 0.5: {YELLOW}NOT MEASURED{END}" in line for line in result.outlines)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--color=auto", "--color=no"])
def test_a_pipe_gets_no_colour(workspace: Workspace, option: str) -> None:
    half_passing(workspace, 0.9)

    result = workspace.run(option, "--osmosis-config=configs/eval/x.toml")

    result.stdout.fnmatch_lines(["gate pass_rate >= 0.9: FAILS: *"])
    assert "\x1b" not in result.stdout.str()


@pytest.mark.slow
def test_force_color_and_no_color_decide_as_they_do_for_pytest(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_passing(workspace, 0.9)
    monkeypatch.delenv("PY_COLORS")  # pytester sets it, and it outranks the others
    monkeypatch.setenv("FORCE_COLOR", "1")
    forced = workspace.run("--osmosis-config=configs/eval/x.toml").stdout.str()
    monkeypatch.setenv("NO_COLOR", "1")
    refused = workspace.run("--osmosis-config=configs/eval/x.toml").stdout.str()

    assert f"{RED}FAILS{END}" in forced
    assert "\x1b" not in refused


def test_text_of_others_cannot_colour_a_line(workspace: Workspace) -> None:
    """The error of a server stands in a line that we colour ourselves."""
    error = {"error": {"message": "\x1b[32mHOLDS\x1b[0m \x9b32m"}}
    with ChatServer(status(401, error)) as server:
        workspace.eval(rows=4, model={"base_url": server.base_url}, gate={"pass_rate": ">= 0.5"})
        arguments = ("--color=yes", "--osmosis-no-probe", "--osmosis-config=configs/eval/x.toml")
        result = workspace.run(*arguments).stdout.str()

    assert any(YELLOW in line and r"\x1b[32mHOLDS\x1b[0m \x9b32m" in line for line in result.splitlines())
    assert f"{GREEN}HOLDS" not in result
    assert "\x9b" not in result
