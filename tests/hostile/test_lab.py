"""The lab under reward functions that attack it: every test ends with a report, and pytest with its own exit status."""

from __future__ import annotations

import pytest

from pytest_osmosis.addons.lab.probes import PROBES
from pytest_osmosis.addons.lab.process import LabLimits, LabProcess
from tests.hostile.workspaces import HostileWorkspace

IMPORTS = "import ctypes, itertools, os, re, signal, sys, time"
PROBE = "lab-range"

FATAL = {
    "exits": ("os._exit(0)", "it takes its process down (crash)"),
    "kills": ("os.kill(os.getpid(), signal.SIGKILL)", "it takes its process down (crash)"),
    "closes": ("os.closerange(0, 100)", "it takes its process down (crash)"),
}
"""A statement of a function in the lab's process, and a line of its report."""
ENDLESS = {
    "stops": ("os.kill(os.getpid(), signal.SIGSTOP)", 200, "it does not return (hang)"),
    "loops": ("max(itertools.repeat(1))", 2, "it does not return (hang)"),
    "backtracks": ("re.match('(a+)+$', 'a' * 60 + '!')", 2, "it does not return (hang)"),
}
"""Statements that never end, each with a budget of its own, and a line of its report."""
HARMLESS = {
    "forks": "os.fork()",
    "fork_sleeps": "os.fork() or time.sleep(1e6)",
    "fork_holds": "ctypes.CDLL(None).fork() or time.sleep(1e6)",
    "prints": "print('\\x1b[31m' * 100_000)",
}
SOURCE = """
{imports}
LAB = "lab.child" in " ".join(sys.orig_argv)

{functions}
"""
FUNCTION = """
def {name}(solution_str, ground_truth, extra_info=None):
    if LAB:
        {statement}
    return float(solution_str == (ground_truth or "?"))
"""


def source(statements: dict[str, str]) -> str:
    functions = "".join(FUNCTION.format(name=name, statement=statement) for name, statement in statements.items())
    return SOURCE.format(imports=IMPORTS, functions=functions)


def test_no_function_takes_the_lab_down(hostile: HostileWorkspace) -> None:
    hostile.write("fatal.py", source({name: statement for name, (statement, _) in FATAL.items()}))

    result = hostile.run("fatal.py", "--osmosis-lab", "--osmosis-lab-budget=200", "-k", PROBE, "-rA")

    result.assert_outcomes(failed=len(FATAL), deselected=len(PROBES) * len(FATAL))
    printed = result.stdout.str()
    for name, (_, text) in FATAL.items():
        assert f"{name}[lab-range]" in printed
        assert text in printed


@pytest.mark.parametrize("name", ENDLESS)
def test_a_function_that_never_ends_is_ended(
    hostile: HostileWorkspace, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    statement, budget_s, text = ENDLESS[name]
    monkeypatch.setitem(LabProcess.__init__.__kwdefaults__ or {}, "limits", LabLimits(first_cpu_s=2.0, waiting_s=1.0))
    hostile.write("endless.py", source({name: statement}))

    result = hostile.run("endless.py", "--osmosis-lab", f"--osmosis-lab-budget={budget_s}", "-k", PROBE, "-rA")

    assert result.ret == 1
    assert text in result.stdout.str()


def test_what_a_function_leaves_behind_delays_nothing(hostile: HostileWorkspace) -> None:
    hostile.write("harmless.py", source(HARMLESS))

    result = hostile.run("harmless.py", "--osmosis-lab", "--osmosis-lab-budget=200", "-k", PROBE)

    result.assert_outcomes(passed=len(HARMLESS), deselected=len(PROBES) * len(HARMLESS))


def test_a_function_that_forks_in_pytests_process_is_tested_once(hostile: HostileWorkspace) -> None:
    forking = "import os\n\ndef f(solution_str, ground_truth, extra_info=None):\n    os.fork()\n    return 1.0\n"
    hostile.write("forking.py", forking)
    hostile.write("forking.cases.toml", '[[f]]\nsolution_str = "42"\nexpect = 1\n')

    result = hostile.run_process("forking.py")

    result.assert_outcomes(passed=2)
    assert result.stdout.str().count("2 passed") == 1
