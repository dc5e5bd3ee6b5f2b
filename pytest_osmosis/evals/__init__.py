"""One eval from its TOML to its results, without pytest.

`begin` takes an `EvalRequest`, checks everything, and reports every problem of config, dataset, model and secrets at
once, and returns the function that plans the eval. `EvalRun.start` opens a run directory (see `record.run_directory`)
and performs the selected runs; `finish` makes and writes results.
"""

from pytest_osmosis.engine.host_connection import Spawn
from pytest_osmosis.evals.cassettes import cassette_line
from pytest_osmosis.evals.engine_job import RunSettings, host_setup, n_hosts, worktree_of
from pytest_osmosis.evals.eval_models import model_text, rate_limit_texts, rollout_bounds_text, sampling_text
from pytest_osmosis.evals.finished import FinishedEval, error_text, finish, write_comparison
from pytest_osmosis.evals.output_files import baseline_path, comparison_path
from pytest_osmosis.evals.prepare import NotLoaded, begin
from pytest_osmosis.evals.prepared import EvalRequest, InFlightLimit, Prepared, SelectedRuns, Surroundings
from pytest_osmosis.evals.rollout_source import RescoreSource, ResumeSource
from pytest_osmosis.evals.run import EvalRun
from pytest_osmosis.git import GitQueries, Worktrees

__all__ = [
    "EvalRequest",
    "EvalRun",
    "FinishedEval",
    "GitQueries",
    "InFlightLimit",
    "NotLoaded",
    "Prepared",
    "RescoreSource",
    "ResumeSource",
    "RunSettings",
    "SelectedRuns",
    "Spawn",
    "Surroundings",
    "Worktrees",
    "baseline_path",
    "begin",
    "cassette_line",
    "comparison_path",
    "error_text",
    "finish",
    "host_setup",
    "model_text",
    "n_hosts",
    "rate_limit_texts",
    "rollout_bounds_text",
    "sampling_text",
    "worktree_of",
    "write_comparison",
]
