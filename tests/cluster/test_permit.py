"""Tests that are not marked `ray`, like these, start no Ray cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.clusters import head_by_command, ray_cluster


def test_a_cluster_starts_for_no_test_that_is_not_marked(tmp_path: Path) -> None:
    for start in (ray_cluster(1), head_by_command(tmp_path)):
        with pytest.raises(RuntimeError, match=r"test_permit\.py::.* starts a Ray cluster, and is not marked ray"):
            with start:
                pass
