"""The code and the settings of an environment that reach the processes which tell its rows, roll out and score."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.verifiers.processes import Environments
from pytest_osmosis.config.tables import EnvironmentModule
from pytest_osmosis.evals import Prepared, RunSettings, SelectedRuns, host_setup
from pytest_osmosis.evals.engine_job import engine_job
from pytest_osmosis.host.protocol import HostCode, Setup, encode
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.rollouts.environment import EnvironmentFacts, EnvironmentSource
from pytest_osmosis.verdicts.pass_rule import Outcome
from tests.unit.evals.conftest import Workspace

CONFIG = """
[experiment]
model_path = "demo/arithmetic"
[environment]
env_id = "my-env"
[secrets]
required = []
"""
SETTINGS = """env_args = {difficulty = "hard"}
extra_env_kwargs = {max_turns = 20}
independent_scoring = true
rollout_retries = 2
state_columns = ["parsed_answer"]
[evaluation]
n = 3
batch_size = 32
[execution]
max_concurrent_scoring = 40
[model]
base_url = "http://127.0.0.1:9/v1"
headers_from_state = {X-Session-ID = "example_id"}
"""


class Announced(Environments):
    """Environments with two rows that no process tells. `codes` are those with which they would be loaded."""

    def __init__(self, root: Path) -> None:
        super().__init__(["further"], sdk_shim=False)
        self.codes: list[HostCode] = []
        self._rows = root / "rows.jsonl"
        rows = [{"prompt": [{"role": "user", "content": "hi"}], "example_id": row} for row in range(2)]
        self._rows.write_text("".join(json.dumps({"messages": row["prompt"], **row}) + "\n" for row in rows))

    def announce(
        self, code: HostCode, module: EnvironmentModule, environ: Mapping[str, str], *, rolls_out: bool
    ) -> str:
        self.codes.append(code)
        return ""

    def loaded(self, key: str) -> EnvironmentFacts:
        return EnvironmentFacts("my-env", "my_env", None, None, None, self._rows, 2, 0.5, False)


def prepared_with(workspace: Workspace, config: str) -> tuple[Prepared, HostCode]:
    """Return the eval of an environment, and the code by which it is loaded for its rows."""
    workspace.write("environments/my_env/my_env.py", "")
    workspace.config.write_text(config, encoding="utf-8")
    announced = Announced(workspace.root)
    prepared = workspace.prepare({"A_KEY": "abcdefgh"}, environments=announced)
    return prepared, announced.codes[0]


def test_every_setting_of_an_environment_reaches_its_process(workspace: Workspace) -> None:
    prepared, _ = prepared_with(workspace, CONFIG.replace("[secrets]", f"{SETTINGS}[secrets]"))

    setup = host_setup(prepared, RunSettings({}, ["further"]), Path("artifacts"))

    folder = str(workspace.root / "environments/my_env")
    args: dict[str, Any] = {"difficulty": "hard"}
    assert setup.code.environment == EnvironmentSource("my-env", "my_env", folder, args, {"max_turns": 20})
    assert (setup.concurrency, setup.rollout_retries) == (40, 2)
    assert (setup.independent_scoring, setup.state_columns) == (True, ("parsed_answer",))
    assert setup.code.target["headers_from_state"] == {"X-Session-ID": "example_id"}
    assert Setup.from_json(json.loads(encode([setup.to_json()]))) == setup, "it arrives as it was sent"


@pytest.mark.parametrize(
    "tables",
    [
        "",
        '[agent]\nendpoint = "env"\n',
        '[baseline]\nmodel_path = "demo/arithmetic"\n',
        '[scoring]\neval_fns = ["rewards:score"]\nrubric = "Right?"\n[judge]\nmodel_path = "demo/judge"\n',
        '[env]\nA = "b"\n[execution]\nhosts = 2\n[limits]\nmax_duration_s = 60\n',
    ],
)
def test_hosts_load_an_environment_as_the_process_did_that_told_its_rows(workspace: Workspace, tables: str) -> None:
    config = CONFIG.replace("[secrets]\nrequired = []", f'{tables}[secrets]\nrequired = ["A_KEY"]')
    prepared, told = prepared_with(workspace, config)
    own = [run for run in prepared.plan.runs() if not run.is_baseline]  # also with none of a baseline selected

    job = engine_job(
        prepared,
        SelectedRuns.of(prepared, own),
        RunSettings({}, ["further"], hosts=2, sdk_shim=False),
        RunDirectory(workspace.root / "run"),
        lambda record, rule, transcript: Outcome("passed"),
        lambda record, rule: False,
    )

    assert job.setup.code == told
