"""A tree of processes, as the lab sees and ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from pytest_osmosis.addons.lab.process import end_tree, usage_of
from tests.plugin.workspaces import wait_until

MEMORY_MB = 30
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "x = bytearray({MEMORY_MB << 20}); print(flush=True); input()"])
subprocess.Popen(["true"]).wait()
child.wait()
"""


@pytest.mark.skipif(not hasattr(os, "WSTOPPED"), reason="needs waitid")
def test_a_process_that_waits_for_the_processor_alone_could_run() -> None:
    """A busy machine keeps it from running, and that is not waiting for something else."""
    stopped = subprocess.Popen(["sleep", "1000"])
    try:
        os.kill(stopped.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
        here, there = usage_of(os.getpid()), usage_of(stopped.pid)
    finally:
        stopped.kill()
        stopped.wait()

    assert (here.runs, there.runs) == (True, False)


def test_what_descendants_use_counts_until_they_are_ended() -> None:
    leader = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert leader.stdout is not None
    leader.stdout.readline()
    (child,) = [each for each in psutil.Process(leader.pid).children() if each.name() != "true"]
    before = usage_of(leader.pid)
    end_tree(leader.pid)
    os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT)
    after = usage_of(leader.pid)
    leader.communicate()

    assert before.memory_mb > MEMORY_MB
    assert before.cpu_s > 0
    assert before.processes >= 2
    assert after == (0.0, 0.0, 0, False)
    wait_until(lambda: has_ended(child), "the end of the child")


def has_ended(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
