"""Settings for all tests.

Hypothesis has no deadline for an example, nor for drawing it: a slow machine is not a failure. It draws the same ones
each time, so that a change is judged by what it changes; `make nightly PART=stress` draws new ones. Sessions that tests
start are not xdist workers, even if the tests run in one.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests import tiers
from tests.golden import golden as golden
from tests.running import RUNNING

try:
    from hypothesis import HealthCheck, settings
except ModuleNotFoundError:  # whoever runs this repository's evals, and not its tests, may lack it
    pass
else:
    settings.register_profile("new", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("same", settings.get_profile("new"), derandomize=True)
    settings.load_profile("same")

for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
    del os.environ[name]
asyncio.set_event_loop(None)  # or pytest-asyncio 1.3 lets Python make one, which nobody closes
os.environ.pop("PYTHONUNBUFFERED", None)  # users' output is buffered
for of_ci in ("CI", "BUILD_NUMBER", "GITHUB_ACTIONS"):
    os.environ.pop(of_ci, None)  # pytest cuts no summaries in CI
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each session of a test would compile some 300 modules again


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Collect no test that needs an add-on in a copy that has none (`make test-core`)."""
    return True if not tiers.HAS_ADDONS and tiers.is_of_add_on(collection_path) else None


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder, and begin with the longest."""
    tiers.sort_into_tiers(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tell which test runs: only those that are marked may start a pytest."""
    RUNNING.item = item
