"""Fixtures: a workspace, and the shared Ray cluster, for tests marked `ray`."""

from __future__ import annotations

from tests.cluster.clusters import cluster, shared_cluster
from tests.plugin.conftest import shell, workspace

__all__ = ["cluster", "shared_cluster", "shell", "workspace"]
