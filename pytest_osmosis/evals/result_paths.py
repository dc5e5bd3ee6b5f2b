"""The paths of results files outside the run directory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pytest_osmosis.config import EvalConfig
from pytest_osmosis.record.plan import Shard


def baseline_path(config: EvalConfig) -> Path | None:
    """Return the path of the baseline's results, None if the config names none."""
    return None if config.baseline.results is None else config.workspace / config.baseline.results


def results_path(config: EvalConfig) -> Path | None:
    """Return the path that the results are also written to, None if the config names none."""
    return None if config.output.results is None else config.workspace / config.output.results


def html_path(config: EvalConfig) -> Path | None:
    """Return the path of the HTML report on the evals of the config, None if it names none."""
    html = config.output.html
    return None if html is None else config.workspace / html.replace("{name}", config.name)


def partial_path(path: Path) -> Path:
    """Return the path of partial results, which never replace whole ones: x.partial.json for x.json."""
    return path.with_name(f"{path.stem}.partial{path.suffix}")


def shard_path(path: Path, shard: Shard) -> Path:
    """Return the path of a shard's results next to those of others: x.shard-2-of-8.json for x.json."""
    return path.with_name(f"{path.stem}.shard-{shard.index}-of-{shard.of}{path.suffix}")


def comparison_path(entries: Sequence[EvalConfig], *, alone: bool) -> Path | None:
    """Return the path of the table that compares the entries of a config, None if no results are written elsewhere.

    It lies in the folder of all their results; `alone` is False if other configs have such a table too.
    """
    folders = [str(path.parent) for config in entries if (path := results_path(config)) is not None]
    name = "comparison.json" if alone else f"{entries[0].path.stem}.comparison.json"
    if folders:
        return Path(os.path.commonpath(folders)) / name
    saving = next((config for config in entries if config.output.save_results), None)
    return None if saving is None else saving.workspace / saving.output.output_dir / "evals" / name
