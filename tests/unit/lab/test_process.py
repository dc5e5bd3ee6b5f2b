"""The lab's child process survives, or its parent ends, whatever a function does; nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from pytest_osmosis.addons.lab.calls import CallInput
from pytest_osmosis.addons.lab.process import MOST_PROCESSES, LabLimits, LabProcess, TimeBudget, end_tree, usage_of
from pytest_osmosis.addons.lab.target import targets_in
from pytest_osmosis.errors import CodeError
from tests.raised import raised
from tests.unit.lab import hostile
from tests.unit.processes.test_processes import ended

TARGETS = {target.name: target for target in targets_in(hostile, Path(hostile.__file__), plain=True)}
ENOUGH_S = 300.0
"""A budget for any machine; limits of processor time end calls long before."""
LIMITS = LabLimits(first_cpu_s=0.5, waiting_s=60, memory_mb=200)
"""A busy machine may not run a process for seconds, which looks as if it waited."""
WAITING = replace(LIMITS, waiting_s=2)
INPUT = CallInput(answer="42", ground_truth="42", extra={})


@pytest.fixture(autouse=True)
def patient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer than users would for the end of a process without a pipe, unless it never comes."""
    if "closes_the_pipe_and_waits" not in request.node.name:
        monkeypatch.setattr("pytest_osmosis.addons.lab.process.DRAIN_S", 60.0)


@pytest.fixture
def process(request: pytest.FixtureRequest) -> Iterator[LabProcess]:
    waits = "waited" in hostile.CASES[request.param][2]
    process = LabProcess(TARGETS[request.param], TimeBudget(ENOUGH_S), limits=WAITING if waits else LIMITS)
    yield process
    process.close()


@pytest.mark.slow
@pytest.mark.parametrize(("process", "name"), [(name, name) for name in hostile.CASES], indirect=["process"])
def test_a_hostile_function_has_an_outcome_and_leaves_nothing(process: LabProcess, name: str) -> None:
    _, kind, text = hostile.CASES[name]
    before = children()
    cpu_s = 30.0 if "memory" in text else 0.5  # a slow machine takes long to fill its memory

    first = process.call(INPUT, cpu_s=cpu_s)
    again = process.call(INPUT, cpu_s=cpu_s)
    process.close()

    assert (again.kind, again.text[: len(text)]) == (kind, text), first
    assert again.text.isprintable()
    assert len(again.text) < 300
    assert children() <= before


def test_a_call_that_runs_when_the_time_of_a_test_is_over_has_own_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = TimeBudget(ENOUGH_S)
    spend = budget.spend
    monkeypatch.setattr(budget, "spend", lambda _: spend(ENOUGH_S))  # the import took all of it
    process = LabProcess(TARGETS["waits"], budget, limits=LabLimits(waiting_s=0.5))

    first, second = process.call(INPUT), process.call(INPUT)
    process.close()

    assert (first.kind, first.text) == ("slow", "waited for more than 0.5 s")
    assert (second.kind, second.text) == ("not_called", "was not called, because no time was left")
    assert (budget.left_s, budget.left_out) == (0.0, 1)


def test_a_function_that_always_leaves_a_process_behind_does_not_fill_the_machine() -> None:
    process = LabProcess(TARGETS["leaves_a_fork"], TimeBudget(ENOUGH_S), limits=LabLimits(waiting_s=60))
    before = children()

    most = 0
    for _ in range(100):
        assert process.call(INPUT).kind == "score"
        most = max(most, len(children() - before))
    process.close()

    assert most <= 2 * MOST_PROCESSES
    assert children() <= before


IMPORTS: Mapping[str, tuple[str, str]] = {
    "waits": ("import time\ntime.sleep(1e6)", "it waited for more than 2 s"),
    "exits": ("import sys\nsys.exit(3)", "SystemExit: 3"),
    "ends its process": ("import os\nos._exit(0)", "it ended its process (exit status 0)"),
    "raises": ("raise ValueError('\x1b[31m' * 100_000)", "ValueError: \\x1b[31m"),
    "defines nothing": ("", "f is missing when rewards.py is imported in a new process"),
    "closes the pipe": ("import os\nos.closerange(0, 100)", "it ended its process (exit status 1)"),
}
"""Source and failure of modules that were imported once and cannot be imported again."""


@pytest.mark.slow
@pytest.mark.parametrize("name", IMPORTS)
def test_a_module_that_cannot_be_imported_again_is_an_error(name: str, tmp_path: Path) -> None:
    source, failure = IMPORTS[name]
    path = tmp_path / "rewards.py"
    path.write_text(source, encoding="utf-8")
    limits = WAITING if name == "waits" else LIMITS
    process = LabProcess(replace(TARGETS["waits"], name="f", path=path), TimeBudget(ENOUGH_S), limits=limits)

    error = str(raised(CodeError, process.call, INPUT))
    process.close()

    assert failure in error
    assert len(error) < 400


def children() -> set[psutil.Process]:
    """Return the processes that this one started, and those that they started, without the guard."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            if not any("guarding" in word for word in process.cmdline()):
                found.add(process)
    return found


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
    assert ended(child.pid)
