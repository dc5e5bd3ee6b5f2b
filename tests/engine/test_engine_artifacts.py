"""Artifacts of hosts on other machines: all files come to the run directory, as if they had been written there.

The hosts of these evals write into folders of their own, so a file in the run directory has come by the protocol.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import dedent, indent
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from pytest_osmosis.addons.ray.artifact_sender import PIECE_BYTES
from pytest_osmosis.config.tables import RayOptions
from pytest_osmosis.engine.host_connection import HostConnection, HostEnviron, Post
from pytest_osmosis.evals.prepared import Prepared
from pytest_osmosis.host.protocol import Setup
from tests.engine import evaluating
from tests.engine.evaluating import Live, Workspace, evaluated
from tests.preparing import prepare
from tests.servers import ChatServer

pytestmark = pytest.mark.slow

GRADES = """
from pytest_osmosis import Grader
class Grades(Grader):
    async def grade(self, ctx):
        folder = ctx.artifacts_dir
        (folder / "verdict.txt").write_text("good")
        if (folder / "draft.txt").exists():
            (folder / "draft.txt").write_text((folder / "draft.txt").read_text().swapcase())
        ctx.set_reward(1.0)
"""
GRADED = {"eval_fns": [], "grader": "graders:Grades"}


class Elsewhere:
    """Starts hosts that write artifacts into `folder`, each role on a machine of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.setups: list[Setup] = []

    def spawn(self, name: str, setup: Setup, *, environ: HostEnviron, log: Path, post: Post) -> HostConnection:
        self.setups.append(setup)
        moved = replace(setup, artifacts=str(self.folder / name))
        return HostConnection(name, moved, environ=environ, log=log, post=post)


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Elsewhere:
    return Elsewhere(tmp_path_factory.mktemp("elsewhere"))


@pytest.fixture
def evaluated_elsewhere(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Live]:
    """Returns an eval of a config, done by hosts whose workspace was uploaded."""

    def evaluated_there(config: Path, *, environ: Mapping[str, str] | None = None) -> Live:
        with monkeypatch.context() as patch:
            patch.setattr(evaluating, "prepare", _with_ray(workspace="upload"))
            return evaluated(config, environ=environ, spawn=elsewhere.spawn)

    return evaluated_there


def agent(workspace: Workspace, code: str) -> None:
    """Write an agent that runs `code`, mostly with the `folder` of its artifacts, and answers 42.

    Its module replaces a function with which artifacts are found.
    """
    body = indent(dedent(code), "    ")
    answer = 'return [*ctx.prompt, {"role": "assistant", "content": "42"}]'
    workspace.agent(
        f"os.scandir = None\nasync def rollout(ctx):\n    folder = ctx.artifacts_dir\n{body}\n    {answer}\n"
    )


def _with_ray(workspace: Literal["shared", "upload"]) -> Callable[..., Prepared]:
    def prepare_with_ray(*args: Any, **options: Any) -> Prepared:
        known = prepare(*args, **options)
        ray = RayOptions(workspace=workspace)
        execution = replace(known.config.execution, engine="ray", ray=ray)
        return replace(known, config=replace(known.config, execution=execution))

    return prepare_with_ray


def _artifacts(live: Live) -> Path:
    return live.run.directory.path / "artifacts"


def _files(folder: Path) -> dict[bytes, bytes]:
    return {os.fsencode(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _notices(live: Live) -> Sequence[str]:
    return [text for text in live.loop.notices.texts if "artifacts" in text]


def test_files_of_agents_and_graders_are_those_of_local_hosts_though_code_replaces_functions(
    workspace: Workspace, evaluated_elsewhere: Callable[..., Live], elsewhere: Elsewhere
) -> None:
    agent(
        workspace,
        """
        import random
        if ctx.row_index == 3:
            return [*ctx.prompt, {"role": "assistant", "content": "nothing written"}]
        for size in SIZES:
            (folder / f"{size} bytes").write_bytes(random.Random(size).randbytes(size))
        (folder / "draft.txt").write_text(f"Draft {ctx.row_index}")
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "er" / "log").write_bytes(bytes(range(256)))
        (folder / "empty").touch()
        (folder / "key").write_text(os.environ["CANARY_KEY"])
        (folder / "odd \\n name").touch()
        open(os.fsencode(folder) + b"/not \\xff text", "wb").close()
        assert ctx.row_index != 2, "a failed rollout has artifacts too"
        """.replace("SIZES", str((0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 5_000_000))),
    )
    workspace.write("graders.py", GRADES)
    environ = {"CANARY_KEY": "canary-0123456789"}
    config = workspace.config(None, scoring=GRADED, secrets={"required": ["CANARY_KEY"]})
    local, live = evaluated(config, environ=environ), evaluated_elsewhere(config, environ=environ)
    assert live.kinds() == local.kinds() == ["passed", "passed", "error", "passed"]
    assert _files(_artifacts(live)) == _files(_artifacts(local))
    assert _files(_artifacts(live))[b"row1-run0/draft.txt"] == b"dRAFT 1"
    assert _files(_artifacts(live))[b"row1-run0/key"] == b"canary-0123456789"
    assert _notices(live) == []
    kinds = {stat.S_IMODE(path.lstat().st_mode) for path in _artifacts(live).rglob("*")}
    assert kinds == {0o600, 0o700}
    assert {setup.artifacts for setup in elsewhere.setups} == {str(_artifacts(live))}
    assert not live.events("artifact")


def test_files_of_a_grader_in_a_process_of_its_own_join_those_of_the_agent(
    workspace: Workspace, evaluated_elsewhere: Callable[..., Live], elsewhere: Elsewhere, server: ChatServer
) -> None:
    agent(workspace, '(folder / "of the agent").write_text("a")')
    workspace.write("graders.py", GRADES)
    live = evaluated_elsewhere(workspace.config(server, scoring=GRADED, agent={"endpoint": "env"}))
    assert live.kinds() == ["passed"] * 4
    for row in range(4):
        assert _files(_artifacts(live) / f"row{row}-run0") == {b"of the agent": b"a", b"verdict.txt": b"good"}
    assert {path.name for path in elsewhere.folder.iterdir()} == {"host", "scorer"}


def test_no_rollout_is_lost_if_another_cancels_it_while_its_files_are_sent(
    workspace: Workspace, evaluated_elsewhere: Callable[..., Live]
) -> None:
    workspace.agent(
        """
        cancels = asyncio.Event()

        async def rollout(ctx):
            if ctx.row_index == 0:
                await cancels.wait()
                (ctx.artifacts_dir / "large").write_bytes(bytes(50_000_000))
            if ctx.row_index == 1:
                cancels.set()
                while not (sending := [task for task in asyncio.all_tasks() if "send_changed" in awaited(task)]):
                    await asyncio.sleep(0)
                sending[0].cancel()
            return [*ctx.prompt, {"role": "assistant", "content": "42"}]

        def awaited(task):
            names, waits = [], task.get_coro()
            while waits is not None:
                names.append(getattr(waits, "__name__", ""))
                waits = getattr(waits, "cr_await", None)
            return names
        """
    )
    live = evaluated_elsewhere(workspace.config(None))
    assert live.kinds() == ["passed"] * 4
    assert all(record.attempt == 1 for record in live.results.records)
    assert _files(_artifacts(live)) == {}
    text = "artifacts of 1 run could not be read in full where they ran, and are incomplete"
    assert _notices(live) == [text]


def test_hosts_that_write_into_the_run_directory_send_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, elsewhere: Elsewhere
) -> None:
    agent(workspace, '(folder / "file").touch()')
    monkeypatch.setattr(evaluating, "prepare", _with_ray(workspace="shared"))
    live = evaluated(workspace.config(None), spawn=elsewhere.spawn)
    assert live.kinds() == ["passed"] * 4
    assert not _artifacts(live).exists()
    assert not any(setup.sends_artifacts for setup in elsewhere.setups)
