"""The test that runs now, and the tiers whose tests may start processes."""

from __future__ import annotations

import pytest

MAY_START_PROCESSES = ("slow", "journey", "nightly", "ray")
"""Marks of tests that `make test` leaves out, and of the few journeys that it runs."""


class RunningTest:
    """The test that runs now, None before the first one."""

    def __init__(self) -> None:
        self.item: pytest.Item | None = None

    @property
    def wants_processes(self) -> bool:
        """True for a journey, and for every test if the command says `--runpytest=subprocess`."""
        item = self.item
        return item is not None and (
            self.has_mark("journey") or item.config.getoption("--runpytest", "inprocess") == "subprocess"
        )

    def has_mark(self, *names: str) -> bool:
        item = self.item
        return item is not None and any(item.get_closest_marker(name) is not None for name in names)

    def check_process(self) -> None:
        """Fail a test that starts pytest in a process without a mark that says so."""
        if self.item is not None and not (self.wants_processes or self.has_mark(*MAY_START_PROCESSES)):
            pytest.fail(
                f"{self.item.nodeid} starts a process, which `make test` has no time for.\n"
                "Let `Workspace.run` run the session in this process, or mark the test slow.",
                pytrace=False,
            )


RUNNING = RunningTest()
