"""Prints, logs and warnings of a rollout and its scoring appear in its own test, and nowhere else."""

from __future__ import annotations

import re

from tests.plugin.workspaces import CONFIG, Workspace, junit_cases
from tests.servers import ChatServer, reply, together

AGENT = """
import logging
import sys
import warnings

async def rollout(ctx):
    row = ctx.row_index
    print(f"<before {row}>")
    await ctx.chat(ctx.prompt)
    print(f"<after {row}>", file=sys.stderr)
    logging.getLogger("agent").warning(f"<logged {row}>")
    warnings.warn(f"<warned {row}>", DeprecationWarning)
"""
REWARDS = """
import warnings

def score(solution_str, ground_truth, extra_info=None, **kwargs):
    print(f"<scored {extra_info['id']}>")
    warnings.warn(f"<warned {extra_info['id']}>", UserWarning)
    return 0.0
"""


def test_output_appears_in_its_own_test_only(workspace: Workspace) -> None:
    with ChatServer(reply("42"), together(2, reply("42"))) as server:  # after the probe
        workspace.write("agents.py", AGENT)
        workspace.write("rewards.py", REWARDS)
        workspace.eval(
            rows=[{"id": index} for index in range(20)],
            agent={"agent": "agents:rollout"},
            evaluation={"batch_size": 8},
            model={"base_url": server.base_url},
        )

        result = workspace.run(
            CONFIG, "--osmosis-show-failures=all", "-Werror", "--junitxml=junit.xml", "-ojunit_logging=all"
        )

        assert 1 < server.max_in_flight <= 8
    result.assert_outcomes(failed=20)
    assert "warnings summary" not in result.stdout.str()
    blocks = re.split(r"^_+ (x\[row\d+-run0\]) _+$", result.stdout.str().split("-- osmosis: x --")[0], flags=re.M)
    assert len(blocks) == 1 + 2 * 20
    for name, block in zip(blocks[1::2], blocks[2::2], strict=True):
        row = name.removeprefix("x[row").removesuffix("-run0]")
        marks = re.findall(r"<(\w+) (\d+)>", block)
        assert sorted(mark for mark, _ in set(marks)) == ["after", "before", "logged", "scored", "warned"]
        assert {said for _, said in marks} == {row}
    for name, case in junit_cases(workspace.root / "junit.xml").items():
        said = set(re.findall(r"<\w+ (\d+)>", "".join(case.itertext())))
        assert said == {name.removeprefix("x[row").removesuffix("-run0]")}
