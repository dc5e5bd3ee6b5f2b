"""Evals of environments: their rows are known before anything runs, and what goes wrong then is exit status 4."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.workspaces import PLAIN_AND_XDIST, Workspace, read_json, wait_until
from tests.servers import ChatServer, reply

SOURCE = """
import os, sys
from pathlib import Path

assert "pytest" not in sys.modules, "imported in pytest's own process"
with open("loads.txt", "a") as file:
    print(os.getpid(), file=file)


class Rubric:
    async def score_rollout(self, state):
        said = state["completion"][-1]["content"]
        state["reward"] = 0.6 if said.endswith(state["answer"]) else 0.0
        state["metrics"] = {"exact": state["reward"]}


class Environment:
    pass_threshold = 0.5
    sampling_args = {"n": 1, "temperature": 0.25, "extra_body": {"accuracy": 1.0}}

    def __init__(self, rows):
        self.rubric, self.rows = Rubric(), rows

    def get_eval_dataset(self, n=-1, seed=None):
        asks = lambda index: [{"role": "user", "content": f"What is {index} * 2?"}]
        return [{"prompt": asks(index), "answer": str(index * 2)} for index in range(self.rows)]

    async def rollout(self, input, client, model, sampling_args=None):
        state = dict(input, trajectory=[])
        response = await client.get_response(input["prompt"], model, sampling_args or {}, None, state=state)
        state["completion"] = [{"role": "assistant", "content": response.message.content}]
        return state


def load_environment(rows=8):
    return Environment(rows)
"""
COMMAND = ("--osmosis-env=me/double-it", "--osmosis-model=demo/arithmetic", "--osmosis-n=2")
ID = "environments/double_it/double_it.py::double-it"


def write(workspace: Workspace, source: str = SOURCE, evals: str = "num_examples = 3\n") -> None:
    workspace.write("environments/double_it/double_it.py", source)
    project = f'[project]\nname = "double-it"\nversion = "0.1.3"\n[tool.verifiers.eval]\n{evals}'
    workspace.write("environments/double_it/pyproject.toml", project)


def write_config(workspace: Workspace, more: str = "", *, name: str = "x", secret: str = "") -> None:
    """Write the config of an eval, which requires a secret or none; `more` are further keys and tables."""
    required = json.dumps([secret] if secret else [])
    workspace.write(
        f"configs/eval/{name}.toml",
        f'[experiment]\nmodel_path = "demo/arithmetic"\n[environment]\nenv_id = "double-it"\n'
        f"{more}[secrets]\nrequired = {required}\n",
    )


def n_loads(workspace: Workspace) -> int:
    return len((workspace.root / "loads.txt").read_text().split())


def test_an_eval_of_an_environment_is_listed_with_its_rows(workspace: Workspace) -> None:
    write(workspace)

    listed = """\
osmosis: double-it (without a TOML)
  model: demo/arithmetic (embedded); sampling: temperature 0.25 (the environment's), accuracy 1.0 *
  environment: me/double-it (0.1.3), rows: first 3 of 8
  scored by: its reward
  3 rows x 2 runs = 6 rollouts, 32 in flight
  preset: limit = 3 (environments/double_it/pyproject.toml:5)
collected 6 items"""
    workspace.run(*COMMAND, "--co", exits=0).stdout.fnmatch_lines(listed.splitlines())
    assert n_loads(workspace) == 1
    workspace.run(*COMMAND, "--osmosis-dry-run", exits=0)
    assert not (workspace.root / ".osmosis").exists()


def test_the_scripted_model_says_the_answers_of_an_environment(workspace: Workspace) -> None:
    write(workspace)
    words = ("--osmosis-env=me/double-it", "--osmosis-model=demo/script")
    workspace.run(*words).assert_outcomes(passed=9)
    refused = workspace.run(*words, '--osmosis-sampling-args={"column": "x"}', exits=4)
    refused.stderr.fnmatch_lines(['ERROR: --osmosis-sampling-args: demo/script answers from the column "x", which *'])


@PLAIN_AND_XDIST
def test_an_eval_of_an_environment_runs_whole_and_by_node_id(workspace: Workspace) -> None:
    write(workspace)

    workspace.run(*COMMAND).assert_outcomes(passed=6)
    results = workspace.results("double-it")
    assert results["config"]["pass_threshold"] == 0.5
    assert results["config"]["sampling"] == {"seed": None, "temperature": 0.25, "accuracy": 1.0}
    assert [row["row_index"] for row in results["rows"]] == [0, 1, 2]
    manifest = read_json(workspace.run_dirs("double-it")[0] / "manifest.json")
    environment = manifest["environment"]
    assert (environment["env_id"], environment["version"], environment["n_rows"]) == ("me/double-it", "0.1.3", 8)
    assert manifest["inputs"]["environment"]["env_id"] == "double-it"
    workspace.run(f"{ID}[row7-run1]", *COMMAND).assert_outcomes(passed=1)
    workspace.run(f"{ID}[row7-run1]", *COMMAND, "--osmosis-pass-threshold=0.7").assert_outcomes(failed=1)
    missing = workspace.run(f"{ID}[row8-run1]", *COMMAND, exits=4)
    missing.stderr.fnmatch_lines([f"ERROR: {ID}[[]row8-run1]: not found; this eval has tests like *"])


def test_a_stored_run_is_scored_again_with_the_rows_that_it_kept(workspace: Workspace) -> None:
    write(workspace)
    workspace.run(*COMMAND, "--osmosis-run=one").assert_outcomes(passed=6)
    directory = workspace.root / ".osmosis/runs/one"
    rows = [json.loads(line) for line in (directory / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == 8
    assert {path.stat().st_mode & 0o077 for path in directory.iterdir()} == {0}

    other = SOURCE.replace("0.6 if", "0.4 if").replace("range(self.rows)", "range(1 // 0)")
    write(workspace, other)
    again = workspace.run("--osmosis-from=one")

    again.assert_outcomes(failed=6)
    again.stdout.fnmatch_lines(["score 0.4 < 0.5: *", "dataset row: row 0 of environment double-it"])


def test_modules_that_an_environment_imports_belong_to_its_code(workspace: Workspace) -> None:
    write(
        workspace, SOURCE.replace("import os, sys", "from grading import RIGHT\nimport os, sys").replace("0.6", "RIGHT")
    )
    helper = "environments/double_it/grading.py"
    workspace.write(helper, "RIGHT = 0.6\n")
    workspace.run(*COMMAND, "--osmosis-run=one").assert_outcomes(passed=6)

    workspace.write(helper, "RIGHT = 0.4\n")
    workspace.run("--osmosis-from=one").assert_outcomes(failed=6)
    others = workspace.run(*COMMAND, "--osmosis-run=one", "--osmosis-limit=4", exits=4)
    others.stderr.fnmatch_lines(["  grading.py: changed"])


def test_a_run_goes_on_only_with_the_same_environment(workspace: Workspace) -> None:
    write(workspace)
    workspace.run(*COMMAND, "--osmosis-run=one", "--osmosis-limit=2").assert_outcomes(passed=4)
    workspace.run(*COMMAND, "--osmosis-run=one").assert_outcomes(passed=6)
    kept = (workspace.root / ".osmosis/runs/one/rows.jsonl").read_bytes()

    others = workspace.run(*COMMAND, "--osmosis-run=one", '--osmosis-env-args={"rows": 5}', exits=4)
    others.stderr.fnmatch_lines(['  [[]environment] env_args: {} -> {"rows": 5}'])
    for source, change in (
        (f"{SOURCE}\n# changed\n", "  [[]environment] code: * -> *"),
        (SOURCE.replace(" * 2?", " * 2 =?"), "  the prompt or metadata of rows 0, 1, 2: changed"),
    ):
        write(workspace, source)
        workspace.run(*COMMAND, "--osmosis-run=one", exits=4).stderr.fnmatch_lines([change])
    assert (workspace.root / ".osmosis/runs/one/rows.jsonl").read_bytes() == kept


def test_an_eval_of_a_toml_may_score_by_functions_too_and_gives_secrets_and_variables(workspace: Workspace) -> None:
    needs = 'assert os.environ["MY_KEY"] == "abcdefgh" and os.environ["LEVEL"] == "3"'
    write(workspace, f"{SOURCE}\n{needs}\n")
    workspace.write("keys.env", "MY_KEY=abcdefgh\n")
    workspace.write("rewards.py", "def half(solution_str, ground_truth, extra_info=None):\n    return 0.5\n")
    scoring = '[scoring]\neval_fns = ["rewards:half"]\nthresholds = {"rewards:half" = 0.9}\ndecide = "reward"\n'
    write_config(workspace, f'{scoring}[env]\nLEVEL = "3"\n', secret="MY_KEY")
    marker = '@pytest.mark.osmosis_eval("../configs/eval/x.toml", limit=2)'
    workspace.write("tests/test_x.py", f"import pytest\n\n{marker}\ndef test_it(rollout):\n    pass\n")
    keys = "--osmosis-secrets-file=keys.env"

    result = workspace.run("configs/eval/x.toml", keys)

    result.assert_outcomes(passed=9)
    result.stdout.fnmatch_lines(["  scored by: its reward, rewards:half"])
    assert set(workspace.results()["summary"]["eval_fns"]) == {"reward", "rewards:half"}
    assert n_loads(workspace) == 1  # and not where functions that block score
    assert workspace.run("tests", "--osmosis-source=model", keys, "--osmosis-dry-run").ret == 0


def test_a_package_is_not_imported_by_pytest(workspace: Workspace) -> None:
    workspace.write("environments/double-it/double_it/__init__.py", SOURCE)

    workspace.run(*COMMAND, "--osmosis-limit=1").assert_outcomes(passed=2)


def test_functions_that_need_all_runs_of_a_row_refuse_to_score_alone(workspace: Workspace) -> None:
    write(workspace, SOURCE.replace("class Rubric:", "class Rubric:\n    has_group_rewards = True\n"))

    refused = workspace.run(*COMMAND, "--osmosis-independent-scoring", exits=4)

    text = "environment me/double-it has a reward function that needs all runs of a row; leave out independent_scoring"
    refused.stderr.fnmatch_lines([f"ERROR: --osmosis-env: {text}"])
    workspace.run(*COMMAND, "--co").stdout.fnmatch_lines(["  scored by: its reward, all runs of a row together"])


def test_a_stored_run_of_another_environment_is_not_scored(workspace: Workspace) -> None:
    write(workspace)
    workspace.run(*COMMAND, "--osmosis-limit=1", "--osmosis-run=one").assert_outcomes(passed=2)
    path = workspace.root / ".osmosis/runs/one/manifest.json"
    manifest = read_json(path)

    stored = manifest.pop("environment")
    for told, said in (
        ({"environment": {**stored, "env_id": "other"}}, "run one: was made by environment other, and *"),
        ({"environment": {**stored, "functions": 5}}, "*.osmosis/runs/one/manifest.json: environment.functions*"),
        ({}, "run one: was made without an environment, and environment double-it is named now; *"),
    ):
        path.write_text(json.dumps({**manifest, **told}))
        workspace.run("--osmosis-from=one", exits=4).stderr.fnmatch_lines([f"ERROR: {said}"])


TEARS_DOWN = """async def _teardown(self):
        with open("torn.txt", "a") as file:
            print(os.getpid(), file=file)

    async def rollout("""


@PLAIN_AND_XDIST
def test_each_host_loads_the_environment_once(workspace: Workspace) -> None:
    write(workspace, "print('loading')\n" + SOURCE.replace("async def rollout(", TEARS_DOWN))

    for n in (1, 2):
        workspace.run(*COMMAND, "--osmosis-run=one", f"--osmosis-n={n}").assert_outcomes(passed=3 * n)
        assert n_loads(workspace) == n * (2 if workspace.distributed else 1)
    torn, loaded = (sorted((workspace.root / name).read_text().split()) for name in ("torn.txt", "loads.txt"))
    assert torn == loaded
    assert (workspace.root / ".osmosis/runs/one/host.log").read_text().split() == ["loading"] * n_loads(workspace)


def test_a_refused_command_leaves_no_process_that_has_loaded_an_environment(workspace: Workspace) -> None:
    raises = TEARS_DOWN.replace("\n\n", '\n        raise OSError("too late to matter")\n\n')
    write(workspace, SOURCE.replace("async def rollout(", raises))

    workspace.run(f"{ID}[row8-run1]", *COMMAND, exits=4)

    assert (workspace.root / "torn.txt").read_text() == (workspace.root / "loads.txt").read_text()


def test_what_an_environment_sets_as_it_loads_holds_for_its_rollouts_and_not_for_our_client(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = 'os.environ["MINE"], os.environ["OPENAI_API_KEY"] = "yes", "another"\nos.chdir("environments")\n'
    seen = 'assert os.environ["MINE"] == "yes" and os.path.basename(os.getcwd()) == "environments"'
    write(workspace, SOURCE.replace("state = dict", f"{seen}\n        state = dict") + sets)
    monkeypatch.setenv("OPENAI_API_KEY", "the-first-one")
    with ChatServer(reply("0")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)

        workspace.run(*COMMAND, "--osmosis-model=openai/some", "--osmosis-limit=1").assert_outcomes(passed=2)

    assert n_loads(workspace) == 1
    assert not (workspace.run_dirs("double-it")[0] / "host.log").exists()
    assert {seen.headers["authorization"] for seen in server.requests} == {"Bearer the-first-one"}


def test_the_shared_endpoint_is_there_before_an_environment_loads(workspace: Workspace) -> None:
    notes = 'print(os.environ.get("OPENAI_BASE_URL", "none").rpartition(":")[0], file=open("urls.txt", "a"))'
    write(workspace, f"{SOURCE}\n{notes}\n")
    write_config(workspace, '[agent]\nendpoint = "env"\n')

    workspace.run("configs/eval/x.toml", "--osmosis-limit=1").assert_outcomes(passed=3)

    assert (workspace.root / "urls.txt").read_text().split("\n") == ["http://127.0.0.1", "", ""]  # and where it scores


def test_evals_with_the_same_environment_load_it_once(workspace: Workspace) -> None:
    write(workspace)
    for name, more in (("a", ""), ("b", ""), ("c", "env_args = {rows = 4}\n")):
        write_config(workspace, more, name=name)

    assert workspace.run("--osmosis-config=configs/eval", "--co").ret == 0
    assert n_loads(workspace) == 2


def write_two(workspace: Workspace, one: str, two: str) -> None:
    for name, source in (("one", one), ("two", two)):
        workspace.write(f"environments/{name}/{name}.py", source)
    evals = '[[eval]]\nenv_id = "one"\n[[eval]]\nenv_id = "two"\n'
    workspace.write("configs/eval/x.toml", f'model = "demo/arithmetic"\nnum_examples = 2\n{evals}')


@PLAIN_AND_XDIST
def test_an_environment_that_does_not_load_leaves_the_others_running(workspace: Workspace) -> None:
    write_two(workspace, SOURCE.replace("return Environment(rows)", "return 1 // 0"), SOURCE)

    result = workspace.run("configs/eval/x.toml", exits=9)

    result.assert_outcomes(passed=6, errors=1)
    said = "environment one does not load: load_environment() failed: ZeroDivisionError: *"
    name, place = "one[[]environment]", '  File "*/environments/one/one.py", line *, in load_environment'
    lines = [f"osmosis: not measured: configs/eval/x.toml: {said}", f"*ERROR at setup of {name} *"]
    lines += [f"not measured: {said}", place, f"ERROR configs/eval/x.toml::{name} - *"]
    result.stdout.fnmatch_lines(lines)
    assert len(workspace.results("two")["rows"]) == 2


SETS = """
import os

def pytest_unconfigure():
    os.environ.pop("SET_MEANWHILE", None)

def pytest_collection_modifyitems():
    os.environ["SET_MEANWHILE"] = "1"
"""
"""A conftest after which hosts start with other variables than what told the rows."""


TOLD = "print('key: s3cret-of-mine')\n    return rows[0]"
IN_IT = '  File "*/environments/double_it/double_it.py", line *, in load_environment'
TRACEBACK = ("Traceback (most recent call last):", IN_IT, "it printed:", "key: [[]OPENAI_API_KEY]")
ENDED = " does not load: its process ended (exit status 3)"


@pytest.mark.parametrize(
    ("code", "other", "lines"),
    [
        ("return Environment(rows)", TOLD, (" does not load: load_environment() failed: TypeError: *", *TRACEBACK)),
        ("range(self.rows)", "[]", [": get_eval_dataset() has no rows"]),
        ("range(self.rows)", "range(1 // 0)", [" does not load: get_eval_dataset() failed: ZeroDivisionError: *"]),
        ("return Environment(rows)", "print('so long')\n    os._exit(3)", (ENDED, "it printed:", "so long")),
    ],
)
def test_an_environment_that_does_not_load_is_a_usage_error(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, code: str, other: str, lines: Sequence[str]
) -> None:
    write(workspace, SOURCE.replace(code, other))
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret-of-mine")

    result = workspace.run(*COMMAND, exits=4)

    result.stderr.fnmatch_lines([f"ERROR: --osmosis-env: environment me/double-it{lines[0]}", *lines[1:]])
    assert not (workspace.root / ".osmosis").exists()


@pytest.mark.slow  # the line is printed after some seconds
def test_an_environment_that_loads_for_ever_is_named_holds_up_no_other_and_ends_with_pytest(
    workspace: Workspace,
) -> None:
    write_two(workspace, f"{SOURCE}\nimport time\ntime.sleep(1000)\n", SOURCE.replace("async def rollout(", TEARS_DOWN))
    session = workspace.start("configs/eval/x.toml")
    session.wait_for("osmosis: loading environment one; it takes long")
    wait_until(lambda: n_loads(workspace) == 2, "the environments' processes to begin")

    session.interrupt()

    assert session.wait() == 2
    children = [Path(f"/proc/{pid}") for pid in (workspace.root / "loads.txt").read_text().split()]
    wait_until(lambda: not any(child.exists() for child in children), "the end of the processes")
    assert (workspace.root / "torn.txt").read_text().strip() in {child.name for child in children}


CHANGED = "*double_it.py has changed since environment me/double-it told its rows; start the eval again*"


def test_rows_and_rollouts_are_of_the_same_code(workspace: Workspace) -> None:
    write(workspace)
    file = workspace.root / "environments/double_it/double_it.py"
    saves = f"    open({str(file)!r}, 'a').write('# saved')\n"
    workspace.write("conftest.py", f"def pytest_collection_modifyitems():\n{saves}")
    workspace.run(*COMMAND).assert_outcomes(passed=6)
    assert n_loads(workspace) == 1

    workspace.write("conftest.py", SETS + saves)
    workspace.run(*COMMAND, "--osmosis-run=new", exits=4).stderr.fnmatch_lines([CHANGED])
    assert not (workspace.root / ".osmosis/runs/new").exists()

    (workspace.root / "conftest.py").unlink()
    write(workspace, SOURCE + "\nopen(__file__, 'a').write('# saved')\n")
    workspace.run(*COMMAND, exits=4).stderr.fnmatch_lines([CHANGED])


# -- rows whose runs are scored together ----------------------------------------------------------------------


GROUP_RUBRIC = """class Rubric:
    has_group_rewards = True

    async def score_group(self, states):
        with open("groups.txt", "a") as file:
            print([os.getpid(), [state["live"] for state in states]], file=file)
        if Path("crash").exists():
            os._exit(3)
        for state in states:
            state["reward"], state["metrics"] = len(states) / 5, {}


"""
NOTED = """with open("rollouts.txt", "a") as file:
            print(input["prompt"][0]["content"].split()[2], file=file)
        if Path("fails").exists() and not Path("failed").exists():
            Path("failed").touch()
            raise ValueError("no luck")
        state = dict(input, live=os.getpid())"""
GROUPED = re.sub(r"(?s)class Rubric:.*(?=class Environment)", lambda _: GROUP_RUBRIC, SOURCE).replace(
    "state = dict(input, trajectory=[])", NOTED
)
THREE_RUNS = (*COMMAND[:2], "--osmosis-n=3")


def rolled_out(workspace: Workspace) -> Counter[int]:
    return Counter(map(int, (workspace.root / "rollouts.txt").read_text().split()))


def groups(workspace: Workspace) -> list[Any]:
    return [json.loads(line) for line in (workspace.root / "groups.txt").read_text().splitlines()]


def test_a_row_is_scored_whole_in_the_host_that_rolled_it_out(workspace: Workspace) -> None:
    write(workspace, GROUPED)

    workspace.run(*THREE_RUNS, "--osmosis-max-in-flight=4", "-n2").assert_outcomes(passed=9)

    assert rolled_out(workspace) == dict.fromkeys(range(3), 3)
    for pid, live in groups(workspace):
        assert live == [pid] * 3
    rows = workspace.results("double-it")["rows"]
    assert {run["scores"]["reward"] for row in rows for run in row["runs"]} == {0.6}


def test_one_selected_run_brings_the_others_of_its_row(workspace: Workspace) -> None:
    write(workspace, GROUPED)

    result = workspace.run(f"{ID}[row2-run1]", *THREE_RUNS)

    result.assert_outcomes(passed=1)
    assert rolled_out(workspace) == {2: 3}
    result.stdout.fnmatch_lines(["*2 runs besides the selected ones are made and counted*"])


def test_a_run_that_failed_is_left_out_of_its_group_until_it_is_made_again(workspace: Workspace) -> None:
    write(workspace, GROUPED)
    workspace.write("fails", "")
    command = (*THREE_RUNS, "--osmosis-limit=1", "--osmosis-run=one")

    workspace.run(*command).stdout.fnmatch_lines(["*the runs of 1 row were scored together without 1 run that failed*"])
    assert [event["scores"] for event in workspace.events("score", "one")] == [{"reward": 0.4}] * 2
    workspace.run(*command, "--osmosis-retry-failed").assert_outcomes(passed=3)
    assert [event["scores"] for event in workspace.events("score", "one")][2:] == [{"reward": 0.6}] * 3
    assert rolled_out(workspace) == {0: 4}, "what is stored is not rolled out again"


def test_a_function_that_ends_two_processes_fails_for_its_whole_row(workspace: Workspace) -> None:
    write(workspace, GROUPED)
    workspace.write("crash", "")
    command = (*THREE_RUNS, "--osmosis-limit=1", "--osmosis-run=one")

    workspace.run(*command).assert_outcomes(errors=4)

    assert rolled_out(workspace) == {0: 3}
    (workspace.root / "crash").unlink()
    workspace.run(*command, "--osmosis-retry-failed").assert_outcomes(passed=3)
    assert rolled_out(workspace) == {0: 3}
    workspace.run("--osmosis-from=one").assert_outcomes(passed=3)
    assert len(groups(workspace)) == 3, "unchanged scores of whole rows are reused"
