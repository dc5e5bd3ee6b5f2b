"""The results files outside the run directory, and the reasons why they cannot be written."""

from __future__ import annotations

from pathlib import Path

from pytest_osmosis.config import EvalConfig
from pytest_osmosis.errors import Problem
from pytest_osmosis.results.files import why_not_writable


def baseline_path(config: EvalConfig) -> Path | None:
    """Return the path of the baseline's results, None if the config names none."""
    return None if config.baseline.results is None else config.workspace / config.baseline.results


def results_path(config: EvalConfig) -> Path | None:
    """Return the path that the results are also written to, None if the config names none."""
    return None if config.output.results is None else config.workspace / config.output.results


def output_problems(config: EvalConfig) -> list[Problem]:
    """Return why the results cannot be written to `results_path`, before anything is paid for."""
    path = results_path(config)
    if path is None:
        return []
    if path == baseline_path(config):
        return [Problem(f"results file {path}", "is the baseline's, which only --osmosis-update-baseline writes")]
    return _write_problems(path, "results file")


def baseline_problems(config: EvalConfig) -> list[Problem]:
    path = baseline_path(config)
    return [] if path is None else _write_problems(path, "baseline")


def _write_problems(path: Path, name: str) -> list[Problem]:
    reason = why_not_writable(path)
    return [] if reason is None else [Problem(f"{name} {path}", f"cannot be written: {reason}")]
