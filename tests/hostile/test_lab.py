"""The lab under a reward function that attacks it: `unit/lab/hostile.py` has those that attack a process of the lab."""

from __future__ import annotations

from tests.hostile.workspaces import HostileWorkspace


def test_a_function_that_forks_in_pytests_process_is_tested_once(hostile: HostileWorkspace) -> None:
    forking = "import os\n\ndef f(solution_str, ground_truth, extra_info=None):\n    os.fork()\n    return 1.0\n"
    hostile.write("forking.py", forking)
    hostile.write("forking.cases.toml", '[[f]]\nsolution_str = "42"\nexpect = 1\n')

    result = hostile.run_process("forking.py")

    result.assert_outcomes(passed=2)
    assert result.stdout.str().count("2 passed") == 1
