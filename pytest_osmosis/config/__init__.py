"""Configs: a TOML and what is given outside of it become a frozen `EvalConfig`, or every problem with its place.

`load_eval_config` and `typed_eval_config` are the ways in, `tables` holds what comes out, `eval_tables` declares every
key, `options` those that have a name of their own.
"""

from __future__ import annotations

from pytest_osmosis.config.draft import Override
from pytest_osmosis.config.eval_config import load_eval_config, typed_eval_config
from pytest_osmosis.config.secrets import resolve_secrets
from pytest_osmosis.config.tables import EvalConfig
from pytest_osmosis.config.workspace import workspace_of

__all__ = ["EvalConfig", "Override", "load_eval_config", "resolve_secrets", "typed_eval_config", "workspace_of"]
