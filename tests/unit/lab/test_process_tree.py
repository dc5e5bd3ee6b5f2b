"""The processes that a process started, while they start and end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from pytest_osmosis.lab.process_tree import descendants, usage

LOOKS = 2_000


@pytest.mark.slow
def test_processes_that_end_while_they_are_listed_are_left_out() -> None:
    over = threading.Event()

    def start_and_end() -> None:
        while not over.is_set():
            subprocess.run(["true"], check=True)

    starters = [threading.Thread(target=start_and_end) for _ in range(3)]
    for starter in starters:
        starter.start()
    try:
        seen = {pid for _ in range(LOOKS) for pid in descendants(os.getpid())}
    finally:
        over.set()
        for starter in starters:
            starter.join()

    assert seen or not sys.platform.startswith("linux")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_process_that_waits_for_the_processor_alone_could_run() -> None:
    """A busy machine keeps it from running, and that is not waiting for something else."""
    stopped = subprocess.Popen(["sleep", "1000"])
    try:
        os.kill(stopped.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
        here, there = usage(os.getpid()), usage(stopped.pid)
    finally:
        stopped.kill()
        stopped.wait()

    assert here is not None
    assert there is not None
    assert (here.runs, there.runs) == (True, False)
