"""Branch coverage by tier: a plugin that notes which tier's tests reach a line, and the report of `make coverage`.

A context is a tier for what its tests reach themselves, and `<tier> in a process` for what is reached by the processes
that they start. Lines without a context were run while modules were imported. A context for each test would make the
measurement take hours.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CONFIG_OF_CHILDREN = "COVERAGE_PROCESS_CONFIG"
"""Private to coverage, which starts in child processes by it. If its form changes, `_children` raises."""
TEST, TEST_ALL = "test", "test-all"
TIERS = {TEST: f"^$|^{TEST}( |$)", TEST_ALL: ""}
"""A regular expression for the contexts of a tier."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure a test in the context of its tier."""
    import coverage

    measuring = coverage.Coverage.current()
    assert measuring is not None, "this plugin needs `coverage run`"
    marks = {mark.name for mark in item.iter_markers()}
    tier = TEST_ALL if marks & {"slow", "ray", "nightly"} else TEST
    measuring.switch_context(tier)
    before, tracer = os.environ[CONFIG_OF_CHILDREN], sys.gettrace()
    os.environ[CONFIG_OF_CHILDREN] = _children(before, f"{tier} in a process")
    try:
        return (yield)
    finally:
        os.environ[CONFIG_OF_CHILDREN] = before
        sys.settrace(tracer)  # a debugger that ends in this process would end the measurement of all tests after it
        measuring.switch_context("")


def _children(config: str, context: str) -> str:
    settings = json.loads(base64.b64decode(config))
    assert "context" in settings
    return base64.b64encode(json.dumps({**settings, "context": context}).encode()).decode()


def _branches(contexts: str) -> dict[str, tuple[int, int]]:
    """Return the branches of each file that these contexts cover, and all of them."""
    report = Path("dist/coverage/report.json")
    command = [sys.executable, "-m", "coverage", "json", "--quiet", f"--contexts={contexts}", "-o", str(report)]
    subprocess.run(command, check=True)
    files = json.loads(report.read_text(encoding="utf-8"))["files"]
    return {
        name: (file["summary"]["covered_branches"], file["summary"]["num_branches"]) for name, file in files.items()
    }


def main() -> None:
    """Print each tier's branch coverage, and the modules of which only processes reach some branches."""
    found = {tier: _branches(contexts) for tier, contexts in TIERS.items()}
    everything = found[TEST_ALL]
    for tier, files in found.items():
        covered, total = (sum(file[at] for file in files.values()) for at in (0, 1))
        print(f"make {tier}: {covered / total:.2%} of {total:,} branches")

    alone = _branches("^$|^(?!.* in a process$)")
    print("branches that only processes reach:")
    for name, (n_branches, _) in sorted(everything.items()):
        if missing := n_branches - alone.get(name, (0, 0))[0]:
            print(f"  {name}: {missing}")


if __name__ == "__main__":
    main()
