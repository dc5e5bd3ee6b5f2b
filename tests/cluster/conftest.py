"""Fixtures: a Ray cluster."""

from __future__ import annotations

from tests.cluster.clusters import cluster

__all__ = ["cluster"]
