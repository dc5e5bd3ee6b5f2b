"""However a session on a cluster ends, nothing of it is left on the nodes but what Ray itself started.

That is what one machine gives: each host ends with its process group, so with all programs of user code that did not
leave that group.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_osmosis.lab.process_tree import descendants
from tests.cluster.clusters import HOST, RayCluster, is_running, until
from tests.plugin.workspaces import Session, Workspace

CONFIG = "--osmosis-config=configs/eval/x.toml"
CODE = """
import asyncio, json, os, subprocess, sys, time

def begin(role):
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    name = os.path.join({notes!r}, f"{{role}}-{{program.pid}}")
    with open(name + ".part", "w") as file:
        json.dump([role, os.getpid(), program.pid, os.getppid(), os.getcwd()], file)
    os.rename(name + ".part", name)

async def rollout(ctx):
    if ctx.row_index % 2:
        begin("agent")
        await asyncio.sleep(1000)
    await ctx.chat(ctx.prompt)

def score(solution_str, ground_truth, extra_info=None, **kwargs):
    begin("reward")
    time.sleep(1000)
"""
ROLES = {"agent", "reward"}


class Note(NamedTuple):
    """The pids that user code wrote down: its host, the program that it started and the relay; and its folder."""

    role: str
    host: int
    program: int
    relay: int
    folder: str


@pytest.fixture
def workspace(pytester: pytest.Pytester, cluster: RayCluster) -> Workspace:
    """An eval whose agents and reward functions start programs, and never end."""
    workspace = Workspace(pytester, [])
    workspace.hurry()
    notes = workspace.root / ".osmosis" / "notes"
    notes.mkdir(parents=True)
    workspace.write("user_code.py", CODE.format(notes=str(notes)))
    workspace.eval(
        "x",
        8,
        agent={"agent": "user_code:rollout"},
        scoring={"eval_fns": ["user_code:score"]},
        evaluation={"batch_size": 8},
        execution={"engine": "ray", "hosts": 2, "ray": {"address": cluster.address, "workspace": "upload"}},
    )
    return workspace


@pytest.fixture
def session(workspace: Workspace) -> Iterator[Session]:
    """The session, which is killed at the end if it still runs."""
    session = workspace.start(CONFIG)
    try:
        yield session
    finally:
        session.kill_only()


def notes_of(workspace: Workspace, but: Collection[int] = ()) -> list[Note]:
    """Wait until agents and reward functions have begun in relays other than those in `but`, and return their notes."""

    def found() -> list[Note]:
        files = (workspace.root / ".osmosis" / "notes").glob("*-*[0-9]")
        notes = [note for file in files if (note := Note(*json.loads(file.read_text()))).relay not in but]
        return notes if {note.role for note in notes} == ROLES else []

    notes: list[Note] = until(found, "for agents and reward functions")
    assert all(map(is_running, {pid for note in notes for pid in note[1:4]}))
    assert all(guards_of(note.relay) for note in notes)
    assert not any(note.folder.startswith(str(workspace.root)) for note in notes)
    return notes


def until_nothing_is_left(notes: list[Note]) -> None:
    """Wait until hosts, their programs, guards and copies of the workspace are gone."""

    def left() -> list[str]:
        pids = {pid for note in notes for pid in (note.host, note.program) if is_running(pid)}
        guards = {guard for note in notes for guard in guards_of(note.relay)}
        folders = {note.folder for note in notes if os.path.lexists(note.folder)}
        return [f"{name}: {each}" for name, each in (("pids", pids), ("guards", guards), ("copies", folders)) if each]

    try:
        until(lambda: not left(), "for the end of all", seconds=60.0)
    except AssertionError:
        pytest.fail(f"still there: {left()}")


def guards_of(pid: int) -> set[int]:
    """Return the processes of the guard of a process."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f"guarding.py\0{pid}\0".encode() in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
    return found


def bridge_of(session: Session) -> int:
    """Return the bridge of a session."""
    children = descendants(session._process.pid)
    [bridge] = [
        pid for pid in children if b"pytest_osmosis.cluster.bridge" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return bridge


def test_nothing_is_left_of_a_killed_relay_nor_of_the_session_once_pytest_is_killed(
    workspace: Workspace, session: Session, cluster: RayCluster
) -> None:
    first = notes_of(workspace)
    for relay in {note.relay for note in first}:
        os.kill(relay, signal.SIGKILL)
    until_nothing_is_left(first)
    later = notes_of(workspace, but={note.relay for note in first})
    session.kill_only()
    until_nothing_is_left(later)
    until(lambda: not cluster.pids(HOST), "for the end of all hosts")


def test_nothing_is_left_once_the_bridge_is_killed(workspace: Workspace, session: Session, cluster: RayCluster) -> None:
    notes = notes_of(workspace)
    os.kill(bridge_of(session), signal.SIGKILL)
    until_nothing_is_left(notes)
    assert session.wait() not in (0, 5), session.output
    assert "the connection to the Ray cluster ended" in session.output
    until(lambda: not cluster.pids(HOST), "for the end of all hosts")
