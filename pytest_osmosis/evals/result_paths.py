"""The paths of results files outside the run directory."""

from __future__ import annotations

from pathlib import Path

from pytest_osmosis.config import EvalConfig
from pytest_osmosis.record.plan import Shard


def baseline_path(config: EvalConfig) -> Path | None:
    """Return the path of the baseline's results, None if the config names none."""
    return None if config.baseline.results is None else config.workspace / config.baseline.results


def results_path(config: EvalConfig) -> Path | None:
    """Return the path that the results are also written to, None if the config names none."""
    return None if config.output.results is None else config.workspace / config.output.results


def partial_path(path: Path) -> Path:
    """Return the path of partial results, which never replace whole ones: x.partial.json for x.json."""
    return path.with_name(f"{path.stem}.partial{path.suffix}")


def shard_path(path: Path, shard: Shard) -> Path:
    """Return the path of a shard's results next to those of others: x.shard-2-of-8.json for x.json."""
    return path.with_name(f"{path.stem}.shard-{shard.number}-of-{shard.of}{path.suffix}")
