"""Configs: a TOML, pyproject.toml and the command line become a frozen `EvalConfig`, or a list of all problems.

`load_eval_config` and `typed_eval_config` make one, and `load_entries` all of a file with `[[eval]]` or `[[ablation]]`.
`tables` declares every key, in a class for each table, and `named_keys` lists those that have an option.
`load_training_config` makes one of a training config.
"""

from pytest_osmosis.config.document import Override, workspace_of
from pytest_osmosis.config.entries import read_entries
from pytest_osmosis.config.eval_config import (
    RejectedConfig,
    is_training_config,
    load_entries,
    load_eval_config,
    load_training_config,
    typed_eval_config,
)
from pytest_osmosis.config.secrets import SecretsSource
from pytest_osmosis.config.tables import EvalConfig

__all__ = [
    "EvalConfig",
    "Override",
    "RejectedConfig",
    "SecretsSource",
    "is_training_config",
    "load_entries",
    "load_eval_config",
    "load_training_config",
    "read_entries",
    "typed_eval_config",
    "workspace_of",
]
