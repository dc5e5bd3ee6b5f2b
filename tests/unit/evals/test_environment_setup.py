"""The settings of an environment that reach the processes which roll out and score."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_osmosis.config.tables import EnvironmentTable
from pytest_osmosis.environments.facts import EnvironmentFacts
from pytest_osmosis.evals import host_setup
from tests.unit.evals.conftest import Workspace


def test_every_setting_of_an_environment_reaches_its_process(workspace: Workspace) -> None:
    prepared = workspace.prepare()
    table = EnvironmentTable(
        env_id="my-env",
        env_args={"difficulty": "hard"},
        extra_env_kwargs={"max_turns": 20},
        independent_scoring=True,
        rollout_retries=2,
        state_columns=("parsed_answer",),
    )
    evaluation = replace(prepared.config.evaluation, n=3, batch_size=32)
    execution = replace(prepared.config.execution, max_concurrent_scoring=40)
    target = replace(prepared.target, headers_from_state={"X-Session-ID": "example_id"})
    prepared = replace(
        prepared,
        config=replace(prepared.config, environment=table, evaluation=evaluation, execution=execution),
        environment=EnvironmentFacts("my-env", "my_env", None, None, None, Path("rows.jsonl"), 2, 0.5, False),
        target=target,
    )

    assert host_setup(prepared, Path("artifacts"), ()).environment == {
        "env_id": "my-env",
        "module": "my_env",
        "folder": None,
        "args": {"difficulty": "hard"},
        "kwargs": {"max_turns": 20},
        "concurrency": 40,
        "runs": 3,
        "independent_scoring": True,
        "rollout_retries": 2,
        "state_columns": ["parsed_answer"],
        "headers_from_state": {"X-Session-ID": "example_id"},
    }
