"""Environments: files of `prime eval` with which an eval goes on, and what reaches the processes of an environment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_osmosis.addons.verifiers.prime_import import ImportedRollouts, resumed_from
from pytest_osmosis.addons.verifiers.processes import Environments
from pytest_osmosis.errors import ProblemsError
from pytest_osmosis.evals import Prepared, RunSettings, SelectedRuns, host_setup
from pytest_osmosis.evals.engine_job import engine_job
from pytest_osmosis.host.protocol import HostCode, Setup, encode
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.rollouts.environment import EnvironmentFacts, EnvironmentSource
from pytest_osmosis.verdicts.pass_rule import Outcome
from tests.raised import raised
from tests.unit.evals.conftest import Workspace

METADATA = {"env_id": "x", "model": "demo/arithmetic", "rollouts_per_example": 2}
Line = dict[str, Any]


def line(example: int, reward: object = 0.5, **more: Any) -> Line:
    prompt = [{"role": "user", "content": f"{example} * 2?"}]
    answer = [{"role": "assistant", "content": "a"}]
    return {"example_id": example, "prompt": prompt, "completion": answer, "reward": reward, "error": None, **more}


def written(lines: Sequence[Line | str], **metadata: Any) -> Path:
    folder = Path("vf")
    folder.mkdir()
    (folder / "metadata.json").write_text(json.dumps({**METADATA, **metadata}))
    texts = [each if isinstance(each, str) else json.dumps(each) for each in lines]
    (folder / "results.jsonl").write_text("".join(f"{text}\n" for text in texts))
    return folder


@pytest.fixture
def prepared(workspace: Workspace) -> Prepared:
    """An eval of two rows with two runs each."""
    workspace.configure(("[evaluation]\n", "[evaluation]\nn = 2\n"))
    workspace.rows([{}, {}])
    return workspace.prepare()


def of_environment(prepared: Prepared, *, grouped: bool) -> Prepared:
    facts = EnvironmentFacts("x", "x", None, None, None, prepared.dataset.path, 2, 0.5, grouped)
    return replace(prepared, environment=facts)


def imported(prepared: Prepared, folder: Path) -> ImportedRollouts:
    source = resumed_from(prepared, folder, None).source
    assert isinstance(source, ImportedRollouts)
    return source


def taken(prepared: Prepared, folder: Path) -> dict[RunId, dict[str, float]]:
    """Return the scores of the runs that are taken over."""
    records = imported(prepared, folder).resumption.progress.records
    return {run: dict(record.scores) for run, record in records.items()}


def refused(prepared: Prepared, folder: Path) -> str:
    return str(raised(ProblemsError, resumed_from, prepared, folder, None))


def test_rewards_are_taken_over_for_an_environment_alone(prepared: Prepared) -> None:
    folder = written([line(0, run_index=1), line(1, 1)])
    rewards = {RunId(0, 1): {"reward": 0.5}, RunId(1, 0): {"reward": 1}}
    assert taken(prepared, folder) == {run: {} for run in rewards}
    assert taken(of_environment(prepared, grouped=False), folder) == rewards


def test_a_reward_of_all_runs_needs_all_of_them(prepared: Prepared) -> None:
    folder = written([line(0), line(0), line(1)])
    grouped = resumed_from(of_environment(prepared, grouped=True), folder, None)
    assert {*taken(of_environment(prepared, grouped=True), folder)} == {RunId(0, 0), RunId(0, 1)}
    assert any("1 rollout in the files: made again: a reward function" in note for note in grouped.notes)


def test_of_the_tool_calls_of_a_message_those_that_can_be_read_are_kept(prepared: Prepared) -> None:
    calls = ['{"id": "c1", "name": "add", "arguments": "{}"}', "{", 3]
    folder = written([line(0, completion=[{"role": "assistant", "content": "", "tool_calls": calls}])])

    message = imported(prepared, folder).resumption.progress.events(RunId(0, 0))[0]["messages"][-1]

    function = {"name": "add", "arguments": "{}"}
    assert message["tool_calls"] == [{"id": "c1", "type": "function", "function": function}]


def test_numbers_that_are_none_are_not_taken_over(prepared: Prepared) -> None:
    odd = line(0, 0.25, metrics={"m": float("nan"), "n": 1e999, "o": 2}, token_usage={"input_tokens": 1e300})
    folder = written([line(1, float("nan")), line(1, 1e999), odd, {**line(1), "timing": {"generation_ms": -1e300}}])
    source = imported(of_environment(prepared, grouped=False), folder)
    records = source.resumption.progress.records
    assert {run: record.usage for run, record in records.items()} == {RunId(0, 0): None, RunId(1, 0): None}
    assert records[RunId(0, 0)].metrics == {"reward": {"o": 2.0}}
    assert source.facts["redone"] == 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"reward": 1}', line(0)], "vf/results.jsonl:1: lacks example_id"),
        (["[]", line(0)], "vf/results.jsonl:1: must be an object"),
        ([line(0, "good"), line(0)], "vf/results.jsonl:1: reward: must be a number or null, got 'good'"),
    ],
)
def test_a_line_that_is_none_is_named(prepared: Prepared, lines: Sequence[Line | str], message: str) -> None:
    assert message in refused(prepared, written(lines))


def test_a_name_in_files_leads_to_no_other_folder(prepared: Prepared, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/manifest.json").write_text("{}")
    folder = written([line(0)], osmosis={"run": "../../../elsewhere"})
    assert {*taken(prepared, folder)} == {RunId(0, 0)}


def test_missing_files_are_named(prepared: Prepared) -> None:
    assert "vf: there is no such folder" in refused(prepared, Path("vf"))
    folder = written([line(0)])
    (folder / "metadata.json").unlink()
    assert "vf/metadata.json" in refused(prepared, folder)


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
        prompt = [{"role": "user", "content": "hi"}]
        self._rows.write_text((json.dumps({"messages": prompt, "prompt": prompt, "example_id": 0}) + "\n") * 2)

    def announce(self, code: HostCode, *_: object, **__: object) -> str:
        self.codes.append(code)
        return ""

    def loaded(self, key: str) -> EnvironmentFacts:
        return EnvironmentFacts("my-env", "my_env", None, None, None, self._rows, 2, 0.5, False)


def prepared_with(workspace: Workspace, config: str) -> tuple[Prepared, HostCode]:
    """Return the eval of an environment, and the code by which it is loaded for its rows."""
    workspace.write("environments/my_env/my_env.py", "")
    workspace.config.write_text(config, encoding="utf-8")
    announced = Announced(workspace.root)
    return workspace.prepare({"A_KEY": "abcdefgh"}, environments=announced), announced.codes[0]


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
