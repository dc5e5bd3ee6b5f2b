"""Fixtures: a workspace, and the shared Ray cluster, for tests marked `ray` and for no others."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.cluster.clusters import PERMIT, cluster, shared_cluster
from tests.plugin.conftest import shell, workspace

__all__ = ["cluster", "shared_cluster", "shell", "workspace"]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    PERMIT.is_given = item.get_closest_marker("ray") is not None
    try:
        return (yield)
    finally:
        PERMIT.is_given = False
