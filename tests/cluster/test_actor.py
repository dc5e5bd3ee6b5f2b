"""The far end without Ray, in this process or in a child, with real host programs; and the artifacts that it sends.

A host sends those that are new or changed, and whatever it sends, files are whole and in the folder of their run.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import pickle
import queue
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from pytest_osmosis.addons.ray import actor as actor_module
from pytest_osmosis.addons.ray import artifact_sender, artifacts
from pytest_osmosis.addons.ray.actor import MOST_WAITING, READ_BYTES, HostActor, Said
from pytest_osmosis.addons.ray.artifact_sender import TICK_NS, ArtifactSender
from pytest_osmosis.addons.ray.artifacts import Artifacts
from pytest_osmosis.addons.ray.frames import Kind
from pytest_osmosis.addons.ray.placement import pieces
from pytest_osmosis.engine.inline_host import InlineConnection
from pytest_osmosis.engine.notices import Notices
from pytest_osmosis.engine.run_table import Host, Share
from pytest_osmosis.host.protocol import ArtifactEvent, HostCode, HostEvent, Key, LeftOutEvent, Setup, encode
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.record.run_id import RunId
from tests.cluster.clusters import is_running, until
from tests.engine import evaluating

DEADLINE_S = 60.0


class Workspace(evaluating.Workspace):
    """A folder with an agent, a reward function and the setup of their hosts."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.agent('return [*ctx.prompt, {"role": "assistant", "content": "42"}]')

    def agent(self, code: str) -> None:
        imports = "import asyncio, itertools, os, signal, subprocess, sys, time\n"
        self.write("agent.py", f"{imports}\nasync def rollout(ctx):\n" + indent(dedent(code), "    "))

    def setup(self, **fields: Any) -> Setup:
        root = str(self.root)
        target = ModelTarget("demo", "arithmetic", client="embedded").to_json()
        options: dict[str, Any] = {"agent": "agent:rollout", "eval_fns": ("rewards:exact",), "limit": 8, **fields}
        return Setup(HostCode("roll", root, (root,), target), artifacts=str(self.root / "artifacts"), **options)


class Ear:
    """An actor, and all that was heard of its processes, in order."""

    def __init__(self, actor: HostActor) -> None:
        self.actor = actor
        self.frames: dict[int, list[tuple[Kind, bytes, bytes]]] = {}
        self._events: dict[int, list[dict[str, Any]]] = {}
        self._rest: dict[int, bytes] = {}

    def open(
        self, number: int, setup: Setup, *, environ: Mapping[str, str] | None = None, upload: Path | None = None
    ) -> None:
        fields = json.dumps({"environ": environ or {}, "upload": str(upload or "")}).encode()
        first = pieces(encode([setup.to_json()]))
        self.actor.open(number, len(first), *first, *pieces(fields))

    def send(self, number: int, *messages: Mapping[str, Any]) -> None:
        self.actor.send(number, *pieces(encode(messages)))

    def run(self, number: int, *rows: int) -> None:
        self.send(number, *(run_request(row) for row in rows))

    def rolled_out(self, setup: Setup, **options: Any) -> dict[str, Any]:
        """Open host 1, and return its rollout of row 0."""
        self.open(1, setup, **options)
        self.run(1, 0)
        [rollout] = self.until_event(1, "rollout")
        return rollout

    def kill(self, number: int) -> None:
        self.actor.kill(number)

    def pid(self, number: int) -> int:
        return self.actor._pipes[number].pid

    def listen(self, gather_s: float = 0.0) -> None:
        for kind, number, first, second in self.actor.listen(gather_s):
            self.frames.setdefault(number, []).append((Kind(kind), first, second))
            if kind == Kind.SAID:
                *lines, self._rest[number] = (self._rest.get(number, b"") + first).split(b"\n")
                self._events.setdefault(number, []).extend(map(json.loads, lines))

    def hushed(self) -> bool:
        """Return True if nothing is said any more, and drop what is."""
        with contextlib.suppress(queue.Empty):
            self.actor._said.get(timeout=0.05)
            return False
        return True

    def until(self, condition: Callable[[], Any], what: str = "") -> Any:
        """Listen until a condition holds, and return its value. Fails after a deadline."""
        end = time.monotonic() + DEADLINE_S
        while not (value := condition()):
            assert time.monotonic() < end, f"waited in vain {what}: {self.heard()}"
            self.listen()
        return value

    def heard(self) -> str:
        return str(
            [(number, kind, body[-500:]) for number in self.frames for kind, body, _ in self.frames[number][-5:]]
        )

    def bodies(self, number: int, kind: Kind) -> list[bytes]:
        return [first for each, first, _ in self.frames.get(number, []) if each is kind]

    def log(self, number: int) -> bytes:
        """The output of a host that belongs to no run."""
        return b"".join(second for _, _, second in self.frames.get(number, []))

    def events(self, number: int, kind: str) -> list[dict[str, Any]]:
        """The events of a host, as far as their lines are whole."""
        return [event for event in self._events.get(number, []) if event["ev"] == kind]

    def until_event(self, number: int, kind: str, n: int = 1) -> list[dict[str, Any]]:
        self.until(lambda: len(self.events(number, kind)) >= n or self.bodies(number, Kind.DIED), f"for {n} x {kind}")
        found = self.events(number, kind)
        assert len(found) >= n, self.heard()
        return found

    def until_death(self, number: int) -> dict[str, Any]:
        [body] = self.until(lambda: self.bodies(number, Kind.DIED), "for a death")
        death: dict[str, Any] = json.loads(body)
        return death


def run_request(row: int) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "prompt": [{"role": "user", "content": f"row {row}"}],
        "ground_truth": "42",
        "record": {},
        "seed": None,
    }
    return {"op": "run", "row": row, "run": 0, "attempt": 1, **fields}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspace")


@pytest.fixture
def ear() -> Iterator[Ear]:
    with listened() as ear:
        yield ear


@contextmanager
def listened() -> Iterator[Ear]:
    """An actor in this process, which leaves no thread and no child."""
    before = set(threading.enumerate())
    ear = Ear(HostActor(str(Path.cwd()), lambda status: None))
    try:
        yield ear
    finally:
        ear.actor._heard_at = -inf
        until(lambda: ear.hushed() and set(threading.enumerate()) <= before, "for the end of its threads")


def test_death_comes_after_everything_that_a_host_wrote(ear: Ear, workspace: Workspace) -> None:
    workspace.agent("""
        await ctx.chat(ctx.prompt)
        if ctx.row_index == 1:
            os.abort()
        return [*ctx.prompt, {"role": "assistant", "content": "4" * 1_000_000}]
    """)
    ear.open(1, workspace.setup(limit=1))
    ear.run(1, 0, 1)
    assert ear.until_death(1) == {"how": "SIGABRT", "by": "host"}
    assert [event["row"] for event in ear.events(1, "rollout")] == [0]
    assert [event["row"] for event in ear.events(1, "start")] == [0, 1]
    assert b"Fatal Python error: Aborted" in ear.log(1)
    assert ear.frames[1][-1][0] is Kind.DIED


def test_a_process_that_leaves_the_group_and_holds_the_log_delays_no_death(ear: Ear, workspace: Workspace) -> None:
    workspace.agent("""
        child = subprocess.Popen(["sh", "-c", "while sleep 0.01; do echo on >&2; done"], start_new_session=True)
        print(child.pid)
        return [*ctx.prompt, {"role": "assistant", "content": "42"}]
    """)
    rollout = ear.rolled_out(workspace.setup())
    try:
        ear.kill(1)
        assert ear.until_death(1)["how"] == "SIGKILL"
    finally:
        os.kill(int(rollout["output"]["stdout"]), signal.SIGKILL)


def test_large_conversations_come_whole_in_replies_that_ray_keeps_out_of_its_store(
    ear: Ear, workspace: Workspace
) -> None:
    """A host waits for its reader once four megabytes wait."""
    workspace.agent("""
        return [*ctx.prompt, {"role": "assistant", "content": str(ctx.row_index) * 1_000_000}]
    """)
    for number in (1, 2):
        ear.open(number, workspace.setup())
        ear.until_event(number, "ready")
    ear.run(1, *range(10))
    until(ear.actor._said.full, "for four megabytes")
    assert MOST_WAITING * READ_BYTES == 4 << 20
    ear.run(2, *range(10))
    sizes = []
    listen = ear.actor.listen

    def measured(gather_s: float) -> list[Said]:
        reply = listen(gather_s)
        sizes.append(len(pickle.dumps(reply)))
        return reply

    ear.actor.listen = measured  # type: ignore[method-assign]
    for number in (1, 2):
        rollouts = ear.until_event(number, "rollout", 10)
        answers = {event["row"]: event["messages"][-1]["content"] for event in rollouts}
        assert answers == {row: str(row) * 1_000_000 for row in range(10)}
    assert max(sizes) < 100_000


def test_an_actor_that_nobody_listens_to_ends_with_its_processes(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    ear = Ear(HostActor("/", ended.append))
    ear.open(1, workspace.setup())
    ear.until_event(1, "ready")
    pid = ear.pid(1)
    assert not ended
    monkeypatch.setattr(actor_module, "LEASE_S", 0.0)
    until(lambda: ended, "for its end")
    until(lambda: not is_running(pid), "for the end of its host")
    ear.until_death(1)
    assert ended == [1]


def test_code_runs_in_the_folder_that_was_uploaded_and_paths_are_moved(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.agent("""
        (ctx.artifacts_dir / "made.txt").write_text("made")
        print(os.getcwd(), __file__, ctx.artifacts_dir, os.environ.get("PYTHONPATH"), sep="\\n")
        return [*ctx.prompt, {"role": "assistant", "content": "42"}]
    """)
    uploaded = tmp_path / "ray" / "working_dir_files" / "_ray_pkg_1"
    uploaded.parent.mkdir(parents=True)
    workspace.root.rename(uploaded)
    monkeypatch.chdir(uploaded)
    monkeypatch.setenv("PYTHONPATH", f"{uploaded}{os.pathsep}{tmp_path}")
    with listened() as ear:
        rollout = ear.rolled_out(workspace.setup(), upload=workspace.root)
        folder, file, artifacts, pythonpath = rollout["output"]["stdout"].splitlines()
    assert (folder, file, pythonpath) == (str(uploaded), f"{uploaded}/agent.py", str(tmp_path))
    assert Path(artifacts).is_relative_to(uploaded / "artifacts")
    assert not workspace.root.exists()


def test_a_node_without_the_workspace_says_what_to_do(ear: Ear, workspace: Workspace) -> None:
    setup = workspace.setup()
    shutil.rmtree(workspace.root)
    ear.open(1, setup)
    death = ear.until_death(1)
    assert death["by"] == "host"
    assert death["how"].startswith(
        f"node {os.uname().nodename} has no folder {workspace.root}, the workspace: give all"
    )
    ear.kill(1)
    ear.send(1, {"op": "close"})


@pytest.mark.parametrize("value", ["hun\0ter2", "hun\ud800ter2", "hunter2" * 200_000])
def test_no_text_has_a_secret_that_cannot_be_passed_on(
    ear: Ear, workspace: Workspace, value: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ear.open(1, workspace.setup(), environ={"TOKEN": value})
    how = ear.until_death(1)["how"]
    assert how.startswith(f"no process for your code can be started on node {os.uname().nodename}: ")
    assert "ter2" not in how
    assert "ter2" not in "".join(capfd.readouterr())


def test_hosts_have_the_environment_of_the_node_without_rays(
    ear: Ear, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_JOB_ID", "01000000")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("PYTHONBREAKPOINT", "ray.util.rpdb.set_trace")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("HOME", "/its/home")
    workspace.agent("""
        names = "RAY_JOB_ID", "OMP_NUM_THREADS", "PYTHONBREAKPOINT", "CUDA_VISIBLE_DEVICES", "HOME", "GIVEN", "PWD"
        print(*(os.environ.get(name) for name in names))
        return [*ctx.prompt, {"role": "assistant", "content": "42"}]
    """)
    rollout = ear.rolled_out(workspace.setup(), environ={"GIVEN": "config"})
    assert rollout["output"]["stdout"] == f"None 2 None 3 /its/home config {workspace.root}\n"
    ear.send(1, {"op": "close"})
    assert ear.until_death(1) == {"how": "exit status 0", "by": "host"}


class Stored:
    """The artifacts of an eval in `folder`, which two hosts send."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notices = Notices()
        self.artifacts = Artifacts(folder, self.notices)
        connection = object.__new__(InlineConnection)
        self.one, self.two = (Host("host", connection, Share.of(1), time.monotonic()) for _ in range(2))

    def send(self, path: str, data: bytes = b"x", host: Host | None = None, **fields: Any) -> None:
        whole = {"path": path, "data": base64.b64encode(data).decode(), "offset": 0, "last": True, **fields}
        event: ArtifactEvent = {"ev": "artifact", "row": 0, "run": 0, "attempt": 1, **whole}  # type: ignore[typeddict-item]
        self.artifacts.take(host or self.one, event)

    @property
    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.folder)): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()
        }

    @property
    def told(self) -> list[str]:
        self.artifacts.close()
        return self.notices.texts


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path / "run" / "artifacts")


@pytest.mark.parametrize(
    "path",
    [
        *("", ".", "..", "/", "/etc/passwd", "../x", "a/../x", "a/..", "a//x", "./x", "a/./x", "a/", "x\0y"),
        *("\ud800", "d/" * 64 + "x", "../row1-run0/x", "../.arriving-1"),
    ],
)
def test_paths_that_may_lead_elsewhere_are_refused(stored: Stored, path: str) -> None:
    stored.send(path)
    stored.send("next")
    assert stored.files == {"row0-run0/next": b"x"}
    assert stored.told == [f"artifacts of 1 run could not be stored in {stored.folder}: a host sent no valid file"]
    assert sorted(each.name for each in stored.folder.parent.parent.iterdir()) == ["run"]


def test_names_that_no_disk_takes_cost_that_file_alone(stored: Stored) -> None:
    stored.send("n" * 300)
    stored.send("n" * 200)
    assert stored.files == {f"row0-run0/{'n' * 200}": b"x"}
    assert "File name too long" in stored.told[0]


def test_no_link_is_followed_in_the_run_directory(stored: Stored, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("old")
    stored.send("a")
    run = stored.folder / "row0-run0"
    (run / "folder").symlink_to(outside)
    (run / "link").symlink_to(outside / "file")
    (stored.folder / "row1-run0").symlink_to(outside)
    (stored.folder / ".arriving-4").symlink_to(outside / "file")
    stored.send("folder/file", b"new")
    stored.send("link", b"new")
    stored.send("b", b"new")
    stored.send("file", b"new", row=1)
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"file": "old"}
    assert (run / "link").read_bytes() == b"new"
    assert not (run / "link").is_symlink()
    assert (run / "b").read_bytes() == b"new"


def test_a_file_is_whole_or_not_there(stored: Stored) -> None:
    stored.send("a", b"old")
    stored.send("a", b"one ", last=False)
    stored.send("a", b"two ", host=stored.two, last=False)
    stored.send("a", b"more", host=stored.two, offset=4)
    assert stored.files["row0-run0/a"] == b"two more"
    stored.send("a", b"more", offset=4)
    assert stored.files == {"row0-run0/a": b"one more"}
    assert stored.told == []


@pytest.mark.parametrize(
    "wrong", [{"offset": 3}, {"offset": 5}, {"offset": -1}, {"path": "b", "offset": 4}, {"attempt": 2, "offset": 4}]
)
def test_pieces_that_do_not_follow_each_other_make_no_file(stored: Stored, wrong: dict[str, Any]) -> None:
    stored.send("a", b"one ", last=False)
    stored.send(**{"path": "a", "data": b"two", **wrong})
    stored.send("a", b"two", offset=4)
    assert stored.files == {}


@pytest.mark.parametrize("data", ["A", "not base64!", "é", "AAAA AAAA"])
def test_what_is_no_base64_makes_no_file(stored: Stored, data: str) -> None:
    stored.artifacts.take(
        stored.one,
        {"ev": "artifact", "row": 0, "run": 0, "attempt": 1, "path": "a", "data": data, "offset": 0, "last": True},
    )
    assert stored.files == {}
    assert stored.told[0].endswith("a host sent no valid file")


def test_files_of_a_host_that_died_are_dropped(stored: Stored) -> None:
    stored.send("a", last=False)
    assert len(stored.files) == 1
    stored.artifacts.died(stored.one)
    assert stored.files == {}
    stored.send("b", last=False)
    assert stored.told == []
    assert stored.files == {}


def test_an_attempt_has_so_many_bytes_and_files(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MOST_BYTES", 10)
    monkeypatch.setattr(artifacts, "MOST_FILES", 3)
    stored.send("a", b"12345", last=False)
    stored.send("a", b"123456", offset=5)
    stored.send("b", b"12345")
    stored.send("c", b"")
    stored.send("d", b"")
    stored.send("a", b"1234567890", attempt=2)
    stored.send("a", b"12345678901", row=1)
    assert stored.files == {"row0-run0/a": b"1234567890", "row0-run0/b": b"12345", "row0-run0/c": b""}
    assert stored.told == ["artifacts of 2 runs went beyond 64 MB or 10,000 files, and the rest stayed where they ran"]


SPECIAL = "artifacts of 1 run hold links, pipes or devices, which are not copied from other machines"


@pytest.mark.parametrize(("why", "told"), [("special", [SPECIAL]), ("a reason that no host has", [])])
def test_why_a_file_was_left_out_is_told(stored: Stored, why: Any, told: list[str]) -> None:
    event: LeftOutEvent = {"ev": "left_out", "row": 0, "run": 0, "attempt": 1, "why": why}
    stored.artifacts.take(stored.one, event)
    assert stored.told == told


def test_descriptors_are_not_leaked(stored: Stored) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(50):
        stored.send(f"a/b/{number}")
        stored.send(f"a/b/{number}/below a file")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


KEY = Key(RunId(0, 0), 1)


class Sent:
    """Keeps what a host sends: files by path, and the reasons for what is left out."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.left_out: list[str] = []

    def send_artifact(self, event: ArtifactEvent) -> None:
        before = self.files.get(event["path"], b"") if event["offset"] else b""
        assert len(before) == event["offset"]
        self.files[event["path"]] = before + base64.b64decode(event["data"])

    def emit(self, event: HostEvent) -> None:
        assert event["ev"] == "left_out"
        self.left_out.append(event["why"])

    def unexpected(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError

    emit_from_thread = flush = redacted = hide = unexpected


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / str(KEY.run)
    run.mkdir()
    return run


async def test_only_what_changed_meanwhile_is_sent_again(tmp_path: Path, run: Path, sent: Sent) -> None:
    for name in ("same", "changed"):
        (run / name).write_text("old")
    until(
        lambda: time.time_ns() - (run / "changed").stat().st_ctime_ns > 2 * TICK_NS, "for changes to have other times"
    )
    artifacts = ArtifactSender(str(tmp_path), sent)
    since_ns = time.time_ns()
    for name in ("changed", "added"):
        (run / name).write_text("new")
    await artifacts.send_changed(KEY, since_ns)
    assert (sent.files, sent.left_out) == ({"changed": b"new", "added": b"new"}, [])


async def test_a_change_within_the_same_tick_of_the_clock_is_sent(tmp_path: Path, run: Path, sent: Sent) -> None:
    artifacts = ArtifactSender(str(tmp_path), sent)
    for number in range(30):
        (run / "file").write_text(f"{number:05}")
        since_ns = time.time_ns()
        (run / "file").write_text(f"{-number:05}")
        await artifacts.send_changed(KEY, since_ns)
        assert sent.files == {"file": b"%05d" % -number}


async def test_the_event_loop_runs_while_files_are_sent(tmp_path: Path, run: Path) -> None:
    (run / "file").write_bytes(bytes(1_000_000))
    turned = threading.Event()

    class Waiting(Sent):
        def send_artifact(self, event: ArtifactEvent) -> None:
            assert turned.wait(60)
            super().send_artifact(event)

    waiting = Waiting()
    sending = asyncio.ensure_future(ArtifactSender(str(tmp_path), waiting).send_changed(KEY))
    await asyncio.sleep(0)
    turned.set()
    await sending
    assert waiting.files == {"file": bytes(1_000_000)}


def _replaced(run: Path) -> None:
    shutil.rmtree(run)
    run.symlink_to("/etc")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda run: (run / "link").symlink_to("/etc/hostname"), "special"),
        (lambda run: (run / "link to a folder").symlink_to("/etc"), "special"),
        (_replaced, "special"),
        (lambda run: os.mkfifo(run / "pipe"), "special"),
        (lambda run: (run / "large").write_bytes(bytes(101)), "large"),
        (lambda run: (run / "/".join("d" * 40)).mkdir(parents=True), "large"),
        (lambda run: [(run / f"b{number}").mkdir() for number in range(11)], "large"),
    ],
    ids=["link", "link to a folder", "the folder", "pipe", "large", "deep", "many"],
)
async def test_links_and_what_is_too_large_or_too_deep_are_left_out(
    tmp_path: Path, run: Path, sent: Sent, make: Callable[[Path], object], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_sender, "MOST_BYTES", 100)
    monkeypatch.setattr(artifact_sender, "MOST_FILES", 10)
    (run / "a file").touch()
    make(run)
    await ArtifactSender(str(tmp_path), sent).send_changed(KEY)
    assert sent.left_out == [why]
    assert sent.files.keys() <= {"a file"}
