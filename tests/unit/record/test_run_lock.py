"""The lock of a run directory, between real processes."""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_osmosis.errors import JournalError
from pytest_osmosis.record.run_directory import Holder, RunDirectory, RunLock, holder_of
from pytest_osmosis.text.names import shown

TAKE = """
import sys
from pathlib import Path
from typing import Any
from pytest_osmosis.errors import JournalError
from pytest_osmosis.record.run_directory import RunDirectory, RunLock
directory = RunDirectory(Path(sys.argv[1]))
try:
    lock = RunLock.take(directory)
except JournalError as error:
    print("refused:", error, flush=True)
    sys.exit(1)
print("taken", flush=True)
"""
HOLD = f"{TAKE}\nsys.stdin.read()\nlock.close()"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a Python program on the run directory; all are ended after the test."""
    processes = []

    def start(code: str, folder: Path = tmp_path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", textwrap.dedent(code), str(folder)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def holder_pid(folder: Path) -> int | None:
    holder = holder_of(RunDirectory(folder))
    return None if holder is None else holder.pid


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def test_one_process_at_a_time_holds_the_lock(tmp_path: Path, start: Start) -> None:
    assert holder_pid(tmp_path) is None
    first = start(HOLD)
    assert line_of(first) == "taken"
    assert holder_pid(tmp_path) == first.pid
    assert re.fullmatch(
        rf"refused: run {re.escape(tmp_path.name)}: process {first.pid} on {re.escape(socket.gethostname())} has been "
        r"writing it since 20..-..-.. ..:.. UTC, and one process at a time may; "
        rf'wait until it ends, or stop it with "pytest-osmosis runs stop {re.escape(tmp_path.name)}"',
        line_of(start(HOLD)),
    )
    first.communicate("")
    assert holder_pid(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    assert line_of(start(HOLD)) == "taken"


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path, start: Start) -> None:
    first = start(HOLD)
    line_of(first)
    first.kill()
    first.communicate()
    assert holder_pid(tmp_path) is None
    assert line_of(start(HOLD)) == "taken"


@pytest.mark.slow
def test_of_many_that_take_over_at_once_one_succeeds(tmp_path: Path, start: Start) -> None:
    for _ in range(3):
        dead = start(HOLD)
        line_of(dead)
        dead.kill()
        dead.communicate()
        rivals = [start(f"import sys\nsys.stdin.readline()\n{HOLD}") for _ in range(6)]
        for rival in rivals:
            print("go", file=rival.stdin, flush=True)
        said = Counter(line_of(rival).partition(":")[0] for rival in rivals)
        assert said == {"taken": 1, "refused": len(rivals) - 1}
        for rival in rivals:
            rival.communicate("")
        assert list(tmp_path.iterdir()) == []


def test_the_children_that_a_holder_forks_do_not_hold_the_lock(tmp_path: Path, start: Start) -> None:
    forking = f"""{TAKE}
import os, time
closed, close = os.pipe()
child = os.fork()
if not child:
    lock.close()
    os.setsid()
    os.write(close, b".")
    time.sleep(600)
os.read(closed, 1)
print(child, flush=True)
sys.stdin.read()
"""
    parent = start(forking)
    line_of(parent)
    child = int(line_of(parent))
    try:
        assert holder_pid(tmp_path) == parent.pid
        parent.kill()
        parent.wait()
        assert holder_pid(tmp_path) is None
        assert line_of(start(HOLD)) == "taken"
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("content", [b"", b"\n", b"{", b"\xff\n", b'{"pid": "x"}\n', b"[1]\n", b"x" * 10_000])
def test_a_lock_that_names_nobody_is_taken(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    assert holder_pid(tmp_path) is None
    lock = RunLock.take(RunDirectory(tmp_path))
    assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    lock.close()
    lock.close()
    assert not (tmp_path / "lock").exists()


def test_a_lock_is_readable_by_its_owner_only_and_looking_does_not_hold_it(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    for _ in range(50):
        held = RunLock.take(directory)
        assert directory.lock.stat().st_mode & 0o777 == 0o600
        assert holder_pid(tmp_path) == os.getpid()
        held.close()
        assert holder_pid(tmp_path) is None


def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(file: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    directory = RunDirectory(tmp_path / "mine")
    directory.path.mkdir()
    with pytest.raises(JournalError) as refused:
        RunLock.take(directory)
    assert str(refused.value) == (
        f"run mine: {shown(directory.path)} is on a file system without locks (No locks available), which keep two "
        "processes from writing an eval run at once; keep runs in another folder, with "
        "--osmosis-set output.dir=FOLDER or [output] dir"
    )
    assert holder_of(directory) is None


def test_a_lock_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(JournalError, match="lock: cannot be written: Is a directory"):
        RunLock.take(RunDirectory(tmp_path))
    with pytest.raises(JournalError, match="lock: cannot be written: No such file"):
        RunLock.take(RunDirectory(tmp_path / "missing"))


INHERIT = """
import sys
from pathlib import Path
from typing import Any
from pytest_osmosis.record.run_directory import RunDirectory, RunLock
sys.stdin.readline()
RunLock.inherit(int(sys.argv[2]))
print(RunLock.take(RunDirectory(Path(sys.argv[1]))).holder.pid, flush=True)
sys.stdin.read()
"""


def test_a_lock_that_is_handed_down_is_held_until_its_heir_ends(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    lock = RunLock.take(directory)
    command = [sys.executable, "-c", INHERIT, str(tmp_path), str(lock.file)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    heir = subprocess.Popen(command, pass_fds=(lock.file,), **pipes)
    lock.forget()
    assert holder_pid(tmp_path) == os.getpid(), "the heir holds it before it knows"
    directory.stop_request.touch()

    print("go", file=heir.stdin, flush=True)

    assert line_of(heir) == str(heir.pid)
    assert holder_pid(tmp_path) == heir.pid
    assert directory.stop_request.exists(), "the request is for the heir"
    heir.kill()
    heir.communicate()
    assert holder_pid(tmp_path) is None


def test_the_lock_tells_how_long_the_journal_was_and_a_request_to_stop_is_not_for_later_holders(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.journal.write_bytes(b"x" * 40)
    lock = RunLock.take(directory)
    found = [holder_of(directory)]
    lock.note_journal(30)
    found.append(holder_of(directory))
    lock.close()
    assert [holder and holder.journal_bytes for holder in found] == [40, 30]
    assert lock.holder.journal_bytes == 30

    again = RunDirectory(tmp_path)
    again.stop_request.touch()

    RunLock.take(again).close()

    assert not again.stop_request.exists()


def test_a_process_is_alive_until_another_has_its_id_whatever_its_size() -> None:
    own = Holder.process(os.getpid())
    others = (replace(own, started="0"), replace(own, machine="another"), replace(own, pid=None))
    with mmap.mmap(-1, 64 << 20):
        assert [holder.is_alive for holder in (own, *others)] == [True, False, False, False]
