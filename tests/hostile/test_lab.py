"""The lab under reward functions that attack it: every test ends with a report, and pytest with its own exit status."""

from __future__ import annotations

from pytest_osmosis.addons.lab.probes import PROBES
from tests.hostile.workspaces import HostileWorkspace

PROBE = "lab-range"

FATAL = {
    "exits": ("os._exit(0)", "it takes its process down (crash)"),
    "kills": ("os.kill(os.getpid(), signal.SIGKILL)", "it takes its process down (crash)"),
    "closes": ("os.closerange(0, 100)", "it takes its process down (crash)"),
}
"""A statement of a function in the lab's process, and a line of its report."""
FUNCTION = """
import os, signal, sys

def {name}(solution_str, ground_truth, extra_info=None):
    if "lab.child" in " ".join(sys.orig_argv):
        {statement}
    return float(solution_str == (ground_truth or "?"))
"""


def test_no_function_takes_the_lab_down(hostile: HostileWorkspace) -> None:
    functions = [FUNCTION.format(name=name, statement=statement) for name, (statement, _) in FATAL.items()]
    hostile.write("fatal.py", "".join(functions))

    result = hostile.run("fatal.py", "--osmosis-lab", "--osmosis-lab-budget=200", "-k", PROBE, "-rA")

    result.assert_outcomes(failed=len(FATAL), deselected=len(PROBES) * len(FATAL))
    printed = result.stdout.str()
    for name, (_, text) in FATAL.items():
        assert f"{name}[lab-range]" in printed
        assert text in printed


def test_a_function_that_forks_in_pytests_process_is_tested_once(hostile: HostileWorkspace) -> None:
    forking = "import os\n\ndef f(solution_str, ground_truth, extra_info=None):\n    os.fork()\n    return 1.0\n"
    hostile.write("forking.py", forking)
    hostile.write("forking.cases.toml", '[[f]]\nsolution_str = "42"\nexpect = 1\n')

    result = hostile.run_process("forking.py")

    result.assert_outcomes(passed=2)
    assert result.stdout.str().count("2 passed") == 1
