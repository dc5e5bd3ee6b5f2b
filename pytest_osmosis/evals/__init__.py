"""One eval from its TOML to its results, without pytest: `prepare` checks everything, `EvalRun` runs it.

`prepare` raises every problem of config, dataset, model and secrets at once, and asks nothing of a model. An `EvalRun`
owns a run directory: `manifest.json` (what was asked for), `journal.jsonl` (what happened), `host.log` (what user code
put out beside a run), `results.json` and `artifacts/`.
"""

from pytest_osmosis.engine.host_connection import Spawn
from pytest_osmosis.engine.job import StopReason
from pytest_osmosis.evals.engine_job import host_setup
from pytest_osmosis.evals.finished import FinishedEval, finish
from pytest_osmosis.evals.prepare import SecretsFile, output_problems, prepare, stored_baseline, update_problems
from pytest_osmosis.evals.prepared import Prepared, Source, baseline_path, differs, identity, limits_said, sampling_text
from pytest_osmosis.evals.run import EvalRun
from pytest_osmosis.evals.run_settings import RunSettings
from pytest_osmosis.evals.selected_runs import SelectedRuns

__all__ = [
    "EvalRun",
    "FinishedEval",
    "Prepared",
    "RunSettings",
    "SecretsFile",
    "SelectedRuns",
    "Source",
    "Spawn",
    "StopReason",
    "baseline_path",
    "differs",
    "finish",
    "host_setup",
    "identity",
    "limits_said",
    "output_problems",
    "prepare",
    "sampling_text",
    "stored_baseline",
    "update_problems",
]
