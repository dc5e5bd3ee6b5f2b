"""An eval from its TOML to its run directory, without pytest: real hosts, the embedded model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis import evals
from pytest_osmosis.config import Override
from pytest_osmosis.config.eval_kinds import EVERY_RUN_AT_ONCE
from pytest_osmosis.errors import ProblemsError
from pytest_osmosis.evals import EvalRun, InFlightLimit, Prepared, error_text, finish, sampling_text
from pytest_osmosis.evals.output_files import output_problems, outputs_of
from pytest_osmosis.record import find_run
from pytest_osmosis.record.journal import replay
from pytest_osmosis.record.run_id import ModelTag, RunId
from tests.journals import fold
from tests.preparing import prepare, prepare_again
from tests.raised import problems_of
from tests.unit.evals.conftest import Workspace, begun, ran

SECRET = "hunter2-and-more"


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_problems_have_one_order_and_those_of_a_rescore_are_among_them(workspace: Workspace) -> None:
    run = find_run.stored(ran(workspace.prepare()).run.directory)
    replica = '[[endpoint]]\nendpoint_id = "qwen"\nmodel = "q"\nurl = "http://127.0.0.1:9/v1"\nkey = "KEY_{}"\n'
    workspace.write("configs/endpoints.toml", replica.format(8) + replica.format(9))
    workspace.rows([{}, {"user_prompt": None}])
    rubric = '\nrubric = "Right?"\n[judge]\nmodel_path = "qwen"\n[baseline]\nresults = "gone.json"'
    workspace.configure(
        ('dataset = "x"', 'dataset = "x"\nbranch = "nowhere"'),
        ('model_path = "demo/arithmetic"', 'model_path = "nobody/model"'),
        ('["rewards:score"]', f'["rewards:score"]{rubric}'),
        ("required = []", 'required = ["MISSING_TOKEN"]'),
    )
    words = ["branch: ", "x.jsonl:2", "model_path", "MISSING_TOKEN", "KEY_8", "KEY_9", "gone.json"]

    def found(prepares: Callable[[], Prepared]) -> list[str]:
        return [next((word for word in words if word in each), each) for each in problems_of(ProblemsError, prepares)]

    assert found(workspace.prepare) == words
    assert found(lambda: prepare_again(run)) == [word for word in words if word not in ("model_path", "MISSING_TOKEN")]


def test_a_problem_with_a_typed_model_names_the_option(workspace: Workspace) -> None:
    typed = Override("experiment", "model_path", "nobody/model", "--osmosis-model")
    (problem,) = problems_of(ProblemsError, prepare, workspace.config, [typed])
    assert problem.startswith("--osmosis-model: [experiment] model_path: ")


def test_the_judge_of_recorded_conversations_may_be_an_endpoint(workspace: Workspace) -> None:
    entry = 'endpoint_id = "qwen"\nmodel = "Qwen/Qwen3-8B"\nurl = "http://127.0.0.1:9/v1"\n'
    workspace.write("configs/endpoints.toml", f"[[endpoint]]\n{entry}")
    workspace.rows([{"solution_str": "42"}])
    judge = 'rubric = "Right?"\n[judge]\nmodel_path = "qwen"\n[agent]\nagent = "recorded"'
    workspace.configure(('eval_fns = ["rewards:score"]', judge), ('model_path = "demo/arithmetic"\n', ""))

    found = workspace.prepare().models.judge

    assert found is not None
    assert found.target.endpoint == "qwen"


def test_listing_needs_no_secrets_and_looks_up_no_price(workspace: Workspace) -> None:
    workspace.configure(
        ("required = []", 'required = ["TOKEN"]'),
        ("[secrets]", '[baseline]\nmodel_path = "demo/arithmetic"\n[secrets]'),
    )
    listed = workspace.prepare(listing=True)

    assert (listed.models.secrets, listed.prices) == ({}, {ModelTag.PRIMARY: None, ModelTag.BASELINE: None})
    assert None not in workspace.prepare(environ={"TOKEN": SECRET}).prices.values()


def test_a_named_row_is_collected_with_the_selection_and_every_run_with_a_test_is_in_flight(
    workspace: Workspace,
) -> None:
    workspace.configure(('rows = "all"', 'rows = "0"'))

    plan = workspace.prepare(named_rows=[2, 99]).plan

    assert [row for row, _ in plan.rows()] == [0, 2]
    assert list(plan.runs()) == [RunId(0, 0)]
    workspace.configure(("batch_size = 8", f"batch_size = {EVERY_RUN_AT_ONCE}"))
    limit = InFlightLimit(1, "--osmosis-max-in-flight")

    assert [workspace.prepare(smoke=n).config.in_flight for n in (None, 2)] == [3, 2]
    limited = workspace.prepare(smoke=2, most_in_flight=limit)

    assert (limited.config.in_flight, limited.config.overridden) == (1, ("batch_size = 1 (--osmosis-max-in-flight)",))
    assert limited.plan_digest == workspace.prepare().plan_digest


@pytest.mark.parametrize(
    ("model", "table", "text"),
    [
        ("demo/arithmetic", "", "the model's defaults"),
        ("demo/arithmetic", "[sampling]\ntemperature = 0.5\nseed = 0\n", "temperature 0.5, seed 0"),
        ("openai/gpt-5-mini", "[sampling]\nseed = 7\n", "seed 7"),
        ("anthropic/claude-sonnet-4-5", "[sampling]\nseed = 7\n", "seed 7 (not sent: this provider takes none)"),
    ],
)
def test_sampling_is_worded_for_the_header_which_says_if_a_seed_is_not_sent(
    workspace: Workspace, model: str, table: str, text: str
) -> None:
    workspace.configure(("[secrets]", f"{table}[secrets]"), ("demo/arithmetic", model))
    prepared = workspace.prepare(listing=True)

    assert sampling_text(prepared.config, prepared.models.target) == text


def test_a_run_directory_holds_manifest_journal_and_results(workspace: Workspace) -> None:
    workspace.rows([{}, {"score": 0.5}, {"raises": True}])

    run = ran(workspace.prepare()).run

    assert workspace.run_dirs() == [run.directory.path]
    assert run.directory.name.startswith("x-2")
    assert (workspace.root / ".osmosis/.gitignore").read_text(encoding="utf-8") == "*\n"
    assert {path.name for path in run.directory.path.iterdir()} == {"manifest.json", "journal.jsonl", "results.json"}
    manifest: Any = find_run.stored(run.directory).manifest
    assert manifest.versions.keys() == {"python", "pytest-osmosis", "openai", "anthropic", "aiohttp", "litellm"}
    assert manifest.timeouts == {"agent_workflow_timeout_s": 450, "grader_timeout_s": 150, "timeout_s": 120}
    assert (manifest.code["rollouts"], {*manifest.code["rewards"]}) == (None, {"rewards:score"})
    assert manifest.dataset_sha256 == run.prepared.dataset.digest()
    assert fold(replay(run.directory.journal)) == run.engine.ledger
    published = read(run.directory.results)
    scores = [row["runs"][0]["scores"] for row in published["rows"]]
    assert scores == [{"rewards:score": 1.0}, {"rewards:score": 0.5}, {}]
    assert published["provenance"]["dataset_sha256"] == run.prepared.dataset.digest()


def test_no_secret_is_in_any_file(workspace: Workspace) -> None:
    workspace.configure(("required = []", 'required = ["TOKEN"]'))
    leaky = "import os, subprocess, sys\nsubprocess.run(['echo', os.environ['TOKEN']], stdout=sys.__stderr__)\n"
    leaky += "def score(solution_str):\n    print(os.environ['TOKEN'])\n    raise ValueError(os.environ['TOKEN'])\n"
    workspace.write("rewards.py", leaky)

    directory = ran(workspace.prepare(environ={"TOKEN": SECRET})).run.directory

    files = {path.name: path.read_text(encoding="utf-8") for path in directory.path.iterdir()}
    assert [name for name, text in files.items() if SECRET in text] == []
    assert files["host.log"].strip()


def test_runs_of_an_eval_that_never_began_are_pending(workspace: Workspace) -> None:
    run, _ = begun(workspace.prepare())

    [(finished,), (again,)] = finish([run]), finish([run])

    assert finished.results.count("pending") == 3
    assert again.results.records == finished.results.records


def test_partial_results_never_replace_whole_ones(workspace: Workspace) -> None:
    workspace.configure(("[secrets]", '[output]\nresults = "out/results.json"\n[gate]\npass_rate = ">= 0"\n[secrets]'))
    whole = ran(workspace.prepare())
    before = read(workspace.root / "out/results.json")

    part = ran(workspace.prepare(), [RunId(1, 0)])

    assert (whole.results.partial, part.results.partial) == (False, True)
    assert read(workspace.root / "out/results.json") == before
    assert [gate["state"] for gate in before["gates"]] == ["holds"]
    partial = read(workspace.root / "out/results.partial.json")
    assert (partial["partial"], partial["summary"]["total_runs"]) == (True, 1)
    assert [(gate["state"], gate["finding"]) for gate in partial["gates"]] == [("partial", "only 1 of 3 runs selected")]


@pytest.mark.parametrize(("bound", "stopped"), [('"29%"', False), ('"28%"', True), ("29", False), ("28", True)])
def test_max_errors_is_exact(workspace: Workspace, bound: str, stopped: bool) -> None:
    workspace.configure(("[secrets]", f"[limits]\nmax_errors = {bound}\n[secrets]"))
    workspace.rows([{"raises": True} if index >= 71 else {} for index in range(100)])

    stop = ran(workspace.prepare()).run.engine.stopped

    assert (stop is not None and stop.reason == "max_errors") == stopped


@pytest.mark.parametrize(
    ("limit", "low_latency"), [("max_errors = 1", False), ("max_tokens = 900", True), ("max_cost_usd = 1.0", True)]
)
def test_messages_are_not_gathered_for_long_if_spending_may_stop_the_eval(
    workspace: Workspace, limit: str, low_latency: bool
) -> None:
    workspace.configure(("[scoring]", f"[limits]\n{limit}\n[scoring]"))
    run, _ = begun(workspace.prepare())
    run.discard()
    assert run.engine.job.low_latency is low_latency
    assert workspace.run_dirs() == []


def test_an_output_path_that_cannot_be_written_is_reported_and_results_stay_in_the_run_directory(
    workspace: Workspace,
) -> None:
    workspace.configure(("[secrets]", '[output]\nresults = "rewards.py/results.json"\n[secrets]'))

    [output] = outputs_of(workspace.prepare(), updating=False)
    [problem] = output_problems([output], [], overwrite=False)

    assert str(problem).endswith(f"cannot be written: {workspace.root}/rewards.py is not a folder")
    workspace.configure()
    assert list(outputs_of(workspace.prepare(), updating=False)) == []
    workspace.configure(("[secrets]", '[output]\nresults = "out/results.json"\n[secrets]'))
    prepared = workspace.prepare()
    workspace.write("out", "in the way")

    finished = ran(prepared)

    assert finished.written == [finished.run.directory.results]
    assert finished.unwritten == ["out/results.json could not be written: File exists"]


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["_end_of", "_conclusion", "_results"])
def test_an_eval_whose_end_raises_costs_another_none_of_its_results(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    (one, _), (other, _) = begun(workspace.prepare()), begun(workspace.prepare())
    step = getattr(evals.finished, broken)

    def raising(run: EvalRun, *given: object) -> object:
        return 10**400 / 2 if run is one else step(run, *given)

    monkeypatch.setattr(evals.finished, broken, raising)
    failures: dict[EvalRun, Exception] = {}

    (finished,) = finish([one, other], failures=failures)
    finished.write()

    assert (finished.run, list(failures)) == (other, [one])
    assert error_text(failures[one]).startswith(
        "OverflowError: integer division result too large for a float (test_run"
    )
    assert (finished.unwritten, other.directory.results.exists()) == ([], True)


@pytest.mark.slow
def test_results_that_cannot_be_made_are_named_among_those_that_are_not_written(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = begun(workspace.prepare())
    (finished,) = finish([run])
    monkeypatch.setattr(finished, "results", None)

    finished.write()

    (said,) = finished.unwritten
    assert said.startswith("the results could not be written: AttributeError: ")
