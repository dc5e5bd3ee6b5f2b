"""A workspace whose eval the real program submits; its agent waits in each rollout until the test lets it go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.submission import submitted_process
from tests.plugin.workspaces import DEADLINE_S, Shell, Workspace
from tests.running import RUNNING

AGENT = """
import asyncio
import pathlib

async def rollout(ctx):
    print("rolling", ctx.row_index)
    pathlib.Path(f"begun-{ctx.row_index}").touch()
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.02)
    return [*ctx.prompt, {"role": "assistant", "content": "42"}]
"""
PATIENT = f"""
import sys
from pytest_osmosis.cli import main, submit

submit.STARTS_S = {DEADLINE_S}
sys.exit(main())
"""
PROGRAM = (sys.executable, "-c", PATIENT)
"""Our program. Its `submit` waits longer for the code to load than users would, as a busy machine takes long."""


class Background:
    """Commands in an empty folder with the eval `x`. `close` ends what the test has left running."""

    def __init__(self, root: Path, rows: int = 4, **tables: Any) -> None:
        RUNNING.check_process()
        self.root = root
        self.workspace = Workspace(Shell(root), [])
        self.workspace.write("agent.py", AGENT)
        batch = {"batch_size": 2}
        self.workspace.eval("x", rows=rows, agent={"agent": "agent:rollout"}, evaluation=batch, **tables)

    def start(self, *words: str, **settings: Any) -> subprocess.Popen[str]:
        """Start a command, without a terminal."""
        return subprocess.Popen(
            [*PROGRAM, *words],
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **settings,
        )

    def call(self, *words: str, exits: int = 0, stdin: str = "") -> str:
        """Run a command to its end, check its exit status, and return what it prints."""
        done = subprocess.run(
            [*PROGRAM, *words],
            cwd=self.root,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=3 * DEADLINE_S,  # `submit` runs two pytests
            check=False,
        )
        assert done.returncode == exits, done.stdout
        return done.stdout

    def submit(self, *words: str, exits: int = 0) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(
            self.call("submit", "configs/eval/x.toml", "--yes", "--json", *words, exits=exits)
        )
        return document

    def begun(self) -> int:
        return len(list(self.root.glob("begun-*")))

    def go(self) -> None:
        (self.root / "go").touch()

    def log(self, run: str) -> str:
        return (self.root / ".osmosis/runs" / run / "session.log").read_text(encoding="utf-8")

    def close(self) -> None:
        self.go()
        for path in self.root.glob(".osmosis/runs/*/submitted.json"):
            process = submitted_process(RunDirectory(path.parent))
            if process is not None and process.pid is not None and process.is_alive:  # else another may have its id
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGTERM)
