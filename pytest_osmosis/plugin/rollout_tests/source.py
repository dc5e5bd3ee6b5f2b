"""The source of rollouts for tests: reference solutions in any pytest run, or models with `--osmosis-source=model`."""

from __future__ import annotations

from typing import Protocol

import pytest

from pytest_osmosis.plugin.rollout_tests.request import MarkerRequest, RolloutRequest
from pytest_osmosis.plugin.rollout_tests.rollout import RolloutResult
from pytest_osmosis.record.plan import Plan


class RolloutSource(Protocol):
    def plan(self, request: MarkerRequest) -> Plan:
        """Return the rows and runs to make tests of. Raise `ProblemsError` or `pytest.UsageError`."""
        ...

    def rollout(self, request: RolloutRequest) -> RolloutResult:
        """Return what a test gets; wait for it if necessary."""
        ...


SOURCE = pytest.StashKey[RolloutSource]()


def source_of(config: pytest.Config) -> RolloutSource:
    """Return the session's source: reference solutions, unless the controller or a worker has set another one."""
    if SOURCE not in config.stash:
        from pytest_osmosis.plugin.rollout_tests.references import ReferenceSource

        source = ReferenceSource(config)
        config.add_cleanup(source.close)
        config.stash[SOURCE] = source
    return config.stash[SOURCE]
