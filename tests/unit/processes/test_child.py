"""A child process: nobody waits for it to read, and nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator

import pytest

from pytest_osmosis.processes.child import Child

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
