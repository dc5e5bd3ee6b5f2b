"""The artifacts of a run that a host on another machine sends: those that are new or changed."""

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

from pytest_osmosis.addons.ray import artifact_sender
from pytest_osmosis.addons.ray.artifact_sender import TICK_NS, ArtifactSender
from pytest_osmosis.host.protocol import ArtifactEvent, HostEvent, Key
from pytest_osmosis.record.run_id import RunId

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


def _deep(run: Path) -> None:
    (run / "/".join("d" * 40)).mkdir(parents=True)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda run: (run / "link").symlink_to("/etc/hostname"), "special"),
        (lambda run: (run / "link to a folder").symlink_to("/etc"), "special"),
        (_replaced, "special"),
        (lambda run: os.mkfifo(run / "pipe"), "special"),
        (lambda run: (run / "large").write_bytes(bytes(101)), "large"),
        (_deep, "large"),
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
