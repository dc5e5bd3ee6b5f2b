"""The guard ends processes with the process that started them, and only then; a child leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

from pytest_osmosis.processes.child import GUARDING, Child
from pytest_osmosis.processes.guarding import parent_of
from tests.plugin.workspaces import wait_until

PRELUDE = """
import os, signal, subprocess, sys, threading, time
from pytest_osmosis.processes import child as children
from pytest_osmosis.processes.child import GUARD

children.END_S = 60.0  # a busy machine may need longer than users would wait

def child():
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True).pid
"""


def starter(code: str) -> subprocess.Popen[str]:
    """Start a process that guards children, and prints their ids."""
    words = [sys.executable, "-c", PRELUDE + dedent(code)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def ids_printed_by(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    return [int(pid) for pid in process.stdout.readline().split()]


def is_alive(pid: int) -> bool:
    """Return True if a process runs. One that has ended but was not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ended(*pids: int) -> bool:
    wait_until(lambda: not any(map(is_alive, pids)), "the end of the processes")
    return True


class GuardPair(NamedTuple):
    """The child of a process, and its guard, which is a child of that child."""

    child: int
    guard: int


def guard_of(pid: int) -> GuardPair:
    wait_until(lambda: len(guards_of(pid)) == 2, "the guard")
    found = guards_of(pid)
    [guard] = [each for each in found if int(parent_of(each) or 0) in found]
    [child] = {*found} - {guard}
    return GuardPair(child, guard)


def guards_of(pid: int) -> list[int]:
    words = f"\0{GUARDING}\0{pid}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and words in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_a_group_ends_though_all_children_of_its_process_are_killed_first() -> None:
    code = """
    leader = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True)
    GUARD.watch(leader.pid)
    print(leader.pid, int(leader.stdout.readline()), flush=True); time.sleep(600)
    """
    with starter(code) as process:
        leader, member = ids_printed_by(process)
        guard = guard_of(process.pid)
        for child in (guard.child, leader):
            os.kill(child, signal.SIGKILL)
        process.kill()
    assert ended(leader, member, *guard)


def test_a_host_that_was_started_early_is_guarded_once_it_is_in_use() -> None:
    code = """
    host = children.PrestartedHost().take(os.environ)
    os.kill(host.pid, signal.SIGSTOP)  # so it does not notice the end of its pipe
    print(host.pid, flush=True); time.sleep(600)
    """
    with starter(code) as process:
        (host,) = ids_printed_by(process)
        guard = guard_of(process.pid)
        process.kill()
    assert ended(host, *guard)


def test_a_guard_whose_parent_was_killed_goes_on() -> None:
    code = """
    pid = child(); GUARD.watch(pid)
    print(pid, flush=True); sys.stdin.readline(); os._exit(0)
    """
    with starter(code) as process:
        (pid,) = ids_printed_by(process)
        guard = guard_of(process.pid)
        os.kill(guard.child, signal.SIGKILL)
        time.sleep(1.2)  # the guard looks twice
        assert is_alive(pid)
        assert is_alive(guard.guard)
        assert process.stdin is not None
        process.stdin.close()
        assert ended(pid, *guard)


def test_a_group_does_not_end_with_the_thread_that_started_it() -> None:
    code = """
    def begin():
        global pid
        pid = child(); GUARD.watch(pid)
    thread = threading.Thread(target=begin); thread.start(); thread.join()
    print(pid, flush=True)
    sys.stdin.readline()
    """
    with starter(code) as process:
        (pid,) = ids_printed_by(process)
        time.sleep(1.2)  # the guard looks twice
        assert is_alive(pid)
        process.kill()
    assert ended(pid)


def test_a_forgotten_group_is_left_alone() -> None:
    code = """
    kept, other = child(), child()
    GUARD.watch(kept); GUARD.watch(other); GUARD.forget(kept); GUARD.forget(kept)
    print(kept, other, flush=True); os.kill(os.getpid(), signal.SIGKILL)
    """
    with starter(code) as process:
        kept, other = ids_printed_by(process)
    try:
        assert ended(other)
        assert is_alive(kept)
    finally:
        os.kill(kept, signal.SIGKILL)


def test_another_guard_takes_over_from_one_that_ended() -> None:
    code = """
    first = child(); GUARD.watch(first)
    print(first, flush=True); sys.stdin.readline()
    second = child(); GUARD.watch(second)
    print(second, flush=True); time.sleep(600)
    """
    with starter(code) as process:
        (first,) = ids_printed_by(process)
        guard = guard_of(process.pid)
        os.kill(guard.guard, signal.SIGKILL)
        assert ended(*guard)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        (second,) = ids_printed_by(process)
        process.kill()
    assert ended(first, second)


def test_a_process_that_ends_by_itself_waits_for_its_guard() -> None:
    with starter("GUARD.watch(999_999_999); print(os.getpid(), flush=True)") as process:
        (pid,) = ids_printed_by(process)
    assert process.returncode == 0
    assert guards_of(pid) == []


def test_a_process_ends_with_its_parent_if_it_wants_to() -> None:
    code = """
    if os.fork() == 0:
        GUARD.end_with_parent()
        pid = child(); GUARD.watch(pid)
        print(os.getpid(), pid, flush=True)
        sum(iter(int, 1))  # holds the lock of the interpreter for ever
    time.sleep(600)
    """
    with starter(code) as process:
        pids = ids_printed_by(process)
        process.kill()
    assert ended(*pids)


LARGE = 1 << 20
READS = f"print(sys.stdin.buffer.read({LARGE + 6})[-6:].decode(), flush=True)"
FORKS = """
import os, time
if os.fork() == 0:
    os.close(1)
    print("forked", file=sys.stderr, flush=True)
    time.sleep(1000)
os._exit(3)
"""


def test_a_child_that_does_not_read_keeps_nobody_waiting() -> None:
    child = Child(READS, subprocess.DEVNULL)
    os.kill(child.pid, signal.SIGSTOP)
    child.put(b"x" * LARGE)
    child.put(b"in or")
    child.put(b"der")
    os.kill(child.pid, signal.SIGCONT)
    with child.stdout:
        assert child.stdout.read() == b"in ord\n"
        assert child.reaped() == 0
    assert not child.is_alive


def test_a_child_that_was_sent_nothing_has_no_thread() -> None:
    before = {*threading.enumerate()}
    child = Child(READS, subprocess.DEVNULL)
    assert {*threading.enumerate()} <= before, "user code that is collected meanwhile may fork"
    with child.stdout:
        assert child.reaped(0.0) == -signal.SIGKILL
    assert {*threading.enumerate()} <= before
    child.put(b"to nobody")


def test_all_processes_of_its_group_end_with_a_child() -> None:
    child = Child(FORKS, subprocess.PIPE)
    assert child.process.stderr is not None
    with child.stdout, child.process.stderr as stderr:
        assert stderr.readline() == b"forked\n"
        assert child.stdout.read() == b""
        assert child.reaped() == 3
        assert stderr.read() == b"", "nobody holds it any more"


def test_a_child_that_has_closed_its_pipe_and_lives_is_ended() -> None:
    child = Child("import os, time; os.close(1); time.sleep(1000)", subprocess.DEVNULL)
    with child.stdout:
        assert child.stdout.read() == b""
        assert child.is_alive
        assert child.reaped(0.0) == -signal.SIGKILL
    child.kill()
    child.put(b"to nobody")


@pytest.fixture
def ignored_ends() -> Iterator[None]:
    """This process ignores the ends of its children, as `trap "" CHLD` in a script has it: the system reaps them."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("ignored_ends")
def test_a_child_that_the_system_has_reaped_has_ended() -> None:
    child = Child("import os; os._exit(0)", subprocess.DEVNULL)
    with child.stdout:
        assert child.stdout.read() == b""
        assert child.reaped() == 0
    other = Child("import time; time.sleep(1000)", subprocess.DEVNULL)
    with other.stdout:
        assert other.is_alive
        assert other.reaped(0.0) == 0, "nobody knows"
