"""Commands that start an eval, which name it; those that select some of its tests; and those that collect nothing."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from pytest_osmosis.plugin.options import seems_to_ask, seems_to_run
from tests.plugin.workspaces import CONFIG, PLAIN_AND_XDIST, Workspace, read_json


@pytest.mark.slow
def test_osmosis_config_is_repeatable_and_takes_a_folder(workspace: Workspace) -> None:
    for name in ("x", "y", "z"):
        workspace.eval(name, rows=1)
    workspace.write("configs/eval/deeper/not_taken.toml", "")
    workspace.write("configs/eval/endpoints.toml", "")
    workspace.eval("other", rows=1, folder="second")

    result = workspace.run("--osmosis-config=configs/eval", "--osmosis-config=second/configs/eval/other.toml")

    result.assert_outcomes(passed=4)
    assert [len(workspace.run_dirs(name)) for name in ("x", "y", "z")] == [1, 1, 1]
    assert len(workspace.run_dirs("other", folder="second")) == 1


@pytest.mark.slow
def test_paths_are_relative_to_the_current_folder_and_configs_may_be_outside_the_rootdir(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.eval("x", folder="one")
    workspace.eval("y", folder="two", rows=2)
    (workspace.root / "pytest.ini").unlink()
    workspace.write("home/pytest.ini", "[pytest]\n")
    monkeypatch.chdir(workspace.root / "home")
    configs = [f"--osmosis-config=../{path}.toml" for path in ("one/configs/eval/x", "two/configs/eval/y")]
    result = workspace.run("-v", *configs, "--osmosis-output=out/")
    result.assert_outcomes(passed=5)
    ids = ["*../one/configs/eval/x.toml::x?row2-run0?*", "*../two/configs/eval/y.toml::y?row1-run0?*"]
    result.stdout.fnmatch_lines([f"rootdir: {workspace.root / 'home'}", *ids])
    assert (workspace.root / "home/out/x.json").exists()
    assert len(workspace.run_dirs("x", "one")) == len(workspace.run_dirs("y", "two")) == 1


@pytest.mark.slow
def test_a_folder_or_testpaths_never_start_an_eval(workspace: Workspace) -> None:
    workspace.eval()

    for words in (".", "configs", "configs/eval/x.toml", "tests configs", "tests ."):
        testpaths, *folders = words.split()
        workspace.ini(f"testpaths = {testpaths}")
        result = workspace.run(*folders)
        assert result.ret in (4, 5)
        assert not (workspace.root / ".osmosis").exists()
        assert not [word for word in ("osmosis: x", "row0") if word in result.stdout.str()]
    workspace.eval("y")
    workspace.run(CONFIG, "configs", exits=0).assert_outcomes(passed=3)
    assert [len(workspace.run_dirs(name)) for name in ("x", "y")] == [1, 0], "also beside an eval that is named"


@pytest.mark.journey
def test_a_folder_never_starts_an_eval_under_xdist(workspace: Workspace) -> None:
    workspace.eval()

    result = workspace.run("-n2", "configs", exits=5)

    assert not (workspace.root / ".osmosis").exists()
    assert "osmosis: x" not in result.stdout.str()


DRY, LIMIT = "--osmosis-dry-run", "--osmosis-limit=all"
SAMPLED = "sample 6 of 60 rows (10% by default"


@pytest.mark.slow
def test_the_header_says_why_a_sample_is_evaluated(workspace: Workspace) -> None:
    workspace.eval(rows=60, data={"rows": None})
    workspace.eval("y")
    workspace.eval("z", data={"rows": None})

    for typed, shown in {
        DRY: f"{SAMPLED}; --osmosis-limit=all for all)",
        "--osmosis-set=data.seed=3": f"{SAMPLED}, seed 3; --osmosis-limit=all for all)",
        "--osmosis-shard=1/2": f"{SAMPLED}; --osmosis-limit=all for all)",
        "--osmosis-smoke": f"{SAMPLED})",
        LIMIT: "all 60",
        "--osmosis-limit=6": "first 6 of 60",
    }.items():
        assert f"  dataset: data/x.jsonl, {shown}" in workspace.run(CONFIG, DRY, typed).outlines
    note = "  note: x, z: 10% of the rows by default; --osmosis-limit=all for all"
    assert note in workspace.run("--osmosis-config=configs/eval", DRY).outlines
    assert "10%" not in workspace.run("--osmosis-config=configs/eval", DRY, LIMIT).stdout.str()


EARLY = {
    "--osmosis-config=demo.toml": (True, False),
    "--osmosis-config demo.toml": (True, False),
    "demo.toml::x[row0-run0] tests": (True, False),
    "--osmosis-config=demo.toml --osmosis-config=served.toml": (True, True),
    "--osmosis-config=served.toml --osmosis-model=demo/arithmetic": (True, False),
    "--osmosis-config=missing.toml --osmosis-config=folder.toml": (True, True),
    "--osmosis-agent=chat --osmosis-model=openai/x": (True, True),
    "--osmosis-source=model tests": (True, True),
    "tests -k x": (False, True),
    **{f"demo.toml {word}": (False, False) for word in ("--co", DRY, "--osmosis-inline", "--trace", "--help")},
}
"""The commands for which a host starts early, and those for which it imports a client."""


def test_a_host_starts_early_for_what_seems_an_eval_and_imports_a_client_unless_the_demo_model_is_named(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("demo.toml").write_text('[experiment]\nmodel_path = "demo/arithmetic"')
    Path("served.toml").write_text('[experiment]\nmodel_path = "openai/x"')
    Path("folder.toml").mkdir()
    configs = {typed: pytester.parseconfig(*typed.split()) for typed in EARLY}
    assert {typed: (seems_to_run(config), seems_to_ask(config)) for typed, config in configs.items()} == EARLY
    monkeypatch.setenv("PYTEST_ADDOPTS", CONFIG)
    assert not seems_to_run(pytester.parseconfig("tests"))


# -- an eval without a TOML: an agent on a dataset, in the current folder ----------------------------------


AGENT = """
async def agent_loop(ctx):
    reply = await ctx.chat(ctx.prompt)
    return [*ctx.prompt, reply.message]
"""
REWARDS = """
def compute_reward(solution_str, ground_truth, **kwargs):
    return 1.0 if ground_truth in solution_str else 0.0

def at_once(messages, **kwargs):
    return 1.0 if len(messages) == 2 else 0.0
"""
COMMAND = (
    "--osmosis-agent=server:agent_loop",
    "--osmosis-dataset=test_data.jsonl",
    "--osmosis-eval-fn=rewards:compute_reward",
    "--osmosis-model=demo/arithmetic",
)


def fill(workspace: Workspace, folder: str = ".", wrong: int | None = None) -> None:
    """Return a workspace with server.py, rewards.py and test_data.jsonl (12 rows, one with a wrong answer)."""
    rows = [
        {"user_prompt": f"What is {row} * 2?", "ground_truth": "no" if row == wrong else str(row * 2)}
        for row in range(12)
    ]
    workspace.write(f"{folder}/server.py", AGENT)
    workspace.write(f"{folder}/rewards.py", REWARDS)
    workspace.write(f"{folder}/test_data.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.journey
def test_the_command_of_eval_mode_runs_all_rows(workspace: Workspace) -> None:
    fill(workspace)
    more = ("--osmosis-eval-fn=rewards:at_once", "--osmosis-n=2", "--osmosis-batch-size=8")
    result = workspace.run(*COMMAND, *more, "--osmosis-output=results.json", exits=0)
    result.assert_outcomes(passed=24)
    result.stdout.fnmatch_lines("""
        osmosis: test_data (without a TOML)
          dataset: test_data.jsonl, all 12
          agent: server:agent_loop, scored by rewards:compute_reward, rewards:at_once
    """)
    published = read_json(workspace.root / "results.json")
    assert published["config"]["model"] == "demo/arithmetic"
    assert published["config"]["eval_fns"] == ["rewards:compute_reward", "rewards:at_once"]
    assert published["summary"]["total_runs"] == 24
    assert published["partial"] is False


@pytest.mark.slow
def test_the_suggested_rerun_command_works(workspace: Workspace) -> None:
    fill(workspace, wrong=11)

    result = workspace.run(*COMMAND, "--osmosis-limit=12", "--osmosis-set=sampling.seed=3")

    result.assert_outcomes(passed=11, failed=1)
    hint = next(line for line in result.outlines if line.startswith("run it again: pytest "))
    words = shlex.split(hint.partition("pytest ")[2])
    assert words[0] == "test_data.jsonl::test_data[row11-run0]"
    workspace.run(*words).assert_outcomes(failed=1)
    assert workspace.last_failed() == {words[0]}
    workspace.run(*COMMAND, "--lf").assert_outcomes(failed=1)
    workspace.run(*COMMAND, "-k", "row11-").assert_outcomes(failed=1, deselected=11)


def test_the_current_folder_is_the_workspace_wherever_the_dataset_is(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(workspace, "deep/er")
    (workspace.root / "deep/er/test_data.jsonl").rename(workspace.root / "rows.jsonl")
    monkeypatch.chdir(workspace.root / "deep/er")

    result = workspace.run(*COMMAND, "--osmosis-dataset=../../rows.jsonl", "--osmosis-limit=2", "-v")

    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*rows.jsonl::rows?row1-run0? *"])
    assert (workspace.root / "deep/er/.osmosis/runs").is_dir()


def hints(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("osmosis: ")]


@pytest.mark.slow
def test_evals_of_a_folder_are_named_with_their_command_unless_something_was_collected(workspace: Workspace) -> None:
    workspace.eval("x")
    workspace.eval("y")
    (workspace.root / "rewards.py").unlink()

    for named in (("configs/eval",), ("configs",), (".",), ()):
        assert hints(workspace.run(*named, exits=5)) == [
            "osmosis: configs/eval holds 2 evals that run only if the command names them: "
            "pytest --osmosis-config=configs/eval"
        ]
    workspace.write("test_python.py", "def test_python(): pass\n")
    assert hints(workspace.run()) == []
    assert hints(workspace.run("-k", "nothing")) == []


MISSING = {
    "from osmosis_ai import evaluate_rubric": (
        "evaluate_rubric in osmosis_ai",
        "ImportError: cannot import name 'evaluate_rubric' from 'osmosis_ai' *",
        "*; pytest_osmosis has evaluate_rubric and osmosis_rubric, and pip install osmosis-ai *",
    ),
    "import verifiers": (
        "module verifiers",
        "ModuleNotFoundError: No module named 'verifiers'",
        "install one that has environments *: see docs/how-to/from-verifiers.md",
    ),
}


@pytest.mark.slow
@PLAIN_AND_XDIST
def test_a_missing_library_leads_to_the_page_about_its_code(workspace: Workspace) -> None:
    modules = dict(zip("ab", MISSING, strict=True))
    workspace.eval(scoring={"eval_fns": [f"{module}:right" for module in modules]})
    for module, statement in modules.items():
        workspace.write(f"{module}.py", f"{statement}\ndef right(solution_str, ground_truth):\n    return 1.0\n")

    tested = workspace.run(*(f"{module}.py" for module in modules))
    evaluated = workspace.run("--osmosis-config=configs/eval/x.toml")

    assert (tested.ret, evaluated.ret) == (2 if not workspace.distributed else 1, 4)
    for module, statement in modules.items():
        missing, error, said = MISSING[statement]
        tested.stdout.fnmatch_lines([f"osmosis: no {missing}: {said}"])
        evaluated.stderr.fnmatch_lines([f"*{module}:right: does not load: {error}; {said}"])


@pytest.mark.slow
def test_k_selects_runs_by_their_name_and_if_nothing_is_selected_nothing_runs(workspace: Workspace) -> None:
    workspace.eval(rows=13, gate={"pass_rate": ">= 0.5"})

    workspace.run(CONFIG, "-k", "row99", exits=5)
    assert not (workspace.root / ".osmosis").exists()

    workspace.run(CONFIG, "-k", "row1-").assert_outcomes(passed=1, skipped=1)
    assert [row["row_index"] for row in workspace.results()["rows"]] == [1]
    assert workspace.results()["gates"][0]["state"] == "partial"


@pytest.mark.slow
def test_options_that_change_only_the_order_leave_the_gate_its_decision(workspace: Workspace) -> None:
    workspace.eval(rows=[{}, {"score": 0.0}, {}], gate={"pass_rate": ">= 0.9"})

    for words in (["--nf"], ["--ff"], ["--sw"], ["--sw"], ["-m", "osmosis"]):
        workspace.run(CONFIG, *words, exits=1).assert_outcomes(passed=2, xfailed=1, failed=1)

    workspace.run(CONFIG, "--lf", exits=1).assert_outcomes(failed=1, skipped=1, deselected=2)


@pytest.mark.slow
def test_a_named_eval_without_a_selected_test_is_mentioned(workspace: Workspace) -> None:
    workspace.eval(rows=3, gate={"pass_rate": ">= 0.9"})
    workspace.write("test_python.py", "def test_python(): pass\n")
    text = "osmosis: x: none of its 3 tests was selected, so nothing was measured"

    deselected = workspace.run(CONFIG, "test_python.py", "-m", "not osmosis")
    removing = "def pytest_collection_modifyitems(items):\n    items[:] = [i for i in items if '.py' in i.nodeid]\n"
    workspace.write("conftest.py", removing)
    removed = workspace.run(CONFIG, "test_python.py")

    for result in (deselected, removed):
        assert result.ret == 0
        result.stdout.fnmatch_lines([text])
    assert not any(text in line for line in workspace.run(CONFIG, "--co").outlines)


X = "configs/eval/x.toml::x"
ABSENT = [
    *(f"{X}[{title}]" for title in ("row3-run0", "row3", "row1-run2", "row1-run0-baseline", "row01-run0", "nonsense")),
    f"{X}[gate pass_rate >= 0.5]",
    f"{X}x[row1-run1]",
    f"{X}x",
    f"./{X}y[row9-run0]",
]


@pytest.mark.journey
def test_collect_only_starts_nothing_and_what_is_missing_hides_no_wrong_id(workspace: Workspace) -> None:
    model = {"base_url": "http://127.0.0.1:1/v1", "api_key_env": "A_KEY_THAT_IS_NOT_SET"}
    workspace.eval(model=model, secrets={"required": ["A_SECRET_THAT_IS_NOT_SET"]}, gate={"pass_rate": ">= 0.5"})
    workspace.write("rewards.py", "raise SystemExit('a host was started')\n")
    listed = [line for line in workspace.run(CONFIG, "--co", "-q", exits=0).outlines if "::" in line]

    assert listed == [f"configs/eval/x.toml::x[row{row}-run0]" for row in range(3)]
    refused = workspace.run("configs/eval/x.toml::x[row9-run0]", exits=4)
    refused.stderr.fnmatch_lines(["ERROR: *A_SECRET_THAT_IS_NOT_SET: missing*", "ERROR: *row9-run0?: not found; *"])
    assert not (workspace.root / ".osmosis").exists()


def test_ids_of_missing_tests_are_usage_errors_with_one_that_exists(workspace: Workspace) -> None:
    """Under xdist too, where pytest would collect nothing and exit with 5."""
    workspace.eval(evaluation={"n": 2}, data={"rows": "0"}, gate={"pass_rate": ">= 0.5"})

    result = workspace.run(f"{X}[row0-run0]", *ABSENT, exits=4)

    errors = [line for line in result.errlines if line]
    for line, arg in zip(errors, ABSENT, strict=True):
        file = arg.partition("::")[0]
        tests = f"this eval has tests like '{file}::x[row0-run0]', which --co lists"
        assert line == f"ERROR: {arg}: not found; {tests}; {file} -k 'row0-' selects all runs of a row"
    assert not (workspace.root / ".osmosis").exists()


@PLAIN_AND_XDIST
def test_the_cache_keeps_node_ids_of_python_tests_only(workspace: Workspace) -> None:
    workspace.eval(rows=[{}, {"score": 0.0}, {"reward": "raises"}, {}], limits={"max_errors": 0})
    workspace.write("test_python.py", "def test_python(): raise AssertionError\n")

    workspace.run(CONFIG, "test_python.py", "--osmosis-batch-size=4")

    assert workspace.last_failed() >= {"configs/eval/x.toml::x[row2-run0]", "test_python.py::test_python"}
    assert not [nodeid for nodeid in workspace.last_failed() if "[limit" in nodeid]
    node_ids = read_json(workspace.root / ".pytest_cache" / "v" / "cache" / "nodeids")
    assert node_ids == ([] if workspace.distributed else ["test_python.py::test_python"])
