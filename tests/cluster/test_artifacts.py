"""Artifacts: a host sends those that are new or changed, and whatever it sends, files are whole and in their folder."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.ray import artifact_sender, artifacts
from pytest_osmosis.addons.ray.artifact_sender import TICK_NS, ArtifactSender
from pytest_osmosis.addons.ray.artifacts import Artifacts
from pytest_osmosis.engine.inline_host import InlineConnection
from pytest_osmosis.engine.notices import Notices
from pytest_osmosis.engine.run_table import Host, Share
from pytest_osmosis.host.protocol import ArtifactEvent, HostEvent, Key, LeftOutEvent
from pytest_osmosis.record.run_id import RunId


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


def test_a_disk_that_takes_nothing_is_told_once(stored: Stored) -> None:
    stored.folder.parent.mkdir()
    stored.folder.write_text("a file in its place")
    for row in range(3):
        stored.send("a", row=row)
    [text] = stored.told
    assert text.startswith(f"artifacts of 3 runs could not be stored in {stored.folder}: ")


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


def _settle(path: Path) -> None:
    """Wait until a later change of a file changes its time."""
    while time.time_ns() - path.stat().st_ctime_ns <= 2 * TICK_NS:
        time.sleep(0.005)


async def test_only_what_changed_meanwhile_is_sent_again(tmp_path: Path, run: Path, sent: Sent) -> None:
    for name in ("same", "changed"):
        (run / name).write_text("old")
    _settle(run / "changed")
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


async def test_a_run_without_artifacts_starts_no_thread(tmp_path: Path, sent: Sent) -> None:
    before = set(threading.enumerate())
    await ArtifactSender(str(tmp_path), sent).send_changed(KEY)
    assert set(threading.enumerate()) <= before  # one of an earlier test may end meanwhile


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


async def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path, sent: Sent) -> None:
    (tmp_path / str(KEY.run)).write_text("a file in its place")
    await ArtifactSender(str(tmp_path), sent).send_changed(KEY)
    assert (sent.files, sent.left_out) == ({}, ["special"])


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
