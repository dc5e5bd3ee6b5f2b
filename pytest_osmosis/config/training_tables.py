"""Every table and key of a training config: its description, its kind of value and its default.

`[experiment]` to `[secrets]` come from the training config of Osmosis. The other tables are those of an eval config
that apply to the rollouts of a preflight too. The descriptions become docs/reference/training-config.md.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_osmosis.config import eval_tables
from pytest_osmosis.config.eval_kinds import ABOVE_0, AT_LEAST_0, SECONDS, TOP_P
from pytest_osmosis.config.fields import Field, Table, Tables
from pytest_osmosis.config.kinds import integer


def _only(table: Table, *names: str) -> Table:
    return replace(table, fields=tuple(field for field in table.fields if field.name in names))


def _without(table: Table, *names: str) -> Table:
    return replace(table, fields=tuple(field for field in table.fields if field.name not in names))


_REQUIRED = {
    "rollout": "Folder of the code, under rollouts/.",
    "entrypoint": "Python file in that folder that defines the workflow and the Grader.",
    "model_path": 'The base model that is trained, like "Qwen/Qwen3.6-35B-A3B". The name chooses no provider.',
    "dataset": "Name of the dataset on the platform, and of the file under datasets/ or data/.",
}

EXPERIMENT = Table(
    "experiment",
    "The base model, the rows and the code of a training run.",
    tuple(
        replace(field, required=True, help=_REQUIRED[field.name]) if field.name in _REQUIRED else field
        for field in eval_tables.EXPERIMENT.fields
    ),
)

TRAINING = Table(
    "training",
    "The parameters of a training run. Where a key is left out, the platform has its own default.",
    (
        Field("lr", ABOVE_0, "Learning rate."),
        Field("total_epochs", integer(1), "Number of training epochs."),
        Field("n_samples_per_prompt", integer(1), "Rollouts of each prompt."),
        Field("rollout_batch_size", integer(1), "Prompts in one batch of rollouts."),
        Field("max_prompt_length", integer(1), "Most tokens of a prompt."),
        Field("max_response_length", integer(1), "Most tokens of a response."),
        *_only(eval_tables.EVALUATION, "agent_workflow_timeout_s").fields,
        Field(
            "grader_timeout_s",
            SECONDS,
            "Time limit for grading one run, in seconds, without the time spent in a queue.",
            default=150.0,
        ),
    ),
)

SAMPLING = Table(
    "sampling",
    "The sampling of rollouts.",
    (
        Field("rollout_temperature", AT_LEAST_0, "Sampling temperature."),
        Field("rollout_top_p", TOP_P, "Nucleus sampling."),
    ),
)

CHECKPOINTS = Table(
    "checkpoints",
    "How often a training run is evaluated and saved.",
    (
        Field("eval_interval", integer(1), "Rollout steps between two evaluations."),
        Field("checkpoint_save_freq", integer(1), "Rollout steps between two saved checkpoints."),
    ),
)

ADVANCED = replace(
    eval_tables.ADVANCED, help="Settings of a backend, which the platform checks. This plugin ignores them."
)

SECRETS = replace(eval_tables.SECRETS, required=False, optional=True)

PLATFORM_TABLES = (EXPERIMENT, TRAINING, SAMPLING, CHECKPOINTS, ADVANCED, eval_tables.ENV, SECRETS)
"""The tables that the platform accepts in a training config. All others belong in pyproject.toml."""

TRAINING_TABLES: Tables = {
    table.name: table
    for table in (
        *PLATFORM_TABLES,
        eval_tables.MODEL,
        replace(_only(eval_tables.AGENT, "max_turns"), help="What the agent of a preflight is told."),
        _only(eval_tables.DATA, "path", "columns"),
        replace(_without(eval_tables.EXECUTION, "granularity"), help="How a preflight is executed."),
        replace(eval_tables.LIMITS, help="Bounds that stop a preflight or make it not measured."),
        _only(eval_tables.OUTPUT, "dir", "results"),
        eval_tables.PRICES,
    )
}

ONLY_TRAINING = frozenset({TRAINING.name, CHECKPOINTS.name})
"""Tables that no eval has."""
ONLY_EVALS = eval_tables.EVAL_TABLES.keys() - TRAINING_TABLES.keys() | {"eval", "ablation"}
"""Tables that no training config has."""
