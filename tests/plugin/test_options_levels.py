"""Options of the session, from variables and ini keys; and errors in a command, a config, its dataset or its code.

They lead to exit 4 before any request to a model.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import pytest

from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.plugin import options, session_options
from tests.plugin.workspaces import CONFIG, Shell, Workspace
from tests.servers import ChatServer, reply


def test_every_named_key_has_an_option_and_every_option_a_group_and_a_sentence() -> None:
    named = [option.dest.removeprefix("osmosis_") for option in (*options.AGENTS, *options.OF_CONFIG)]
    assert sorted(named) == sorted(OPTIONS)
    helps = {option.flag: session_options.help_of(option) for option in options.ALL}
    assert [flag for flag, help in helps.items() if not help[:1].isupper() or not help.endswith(".")] == []
    shown = [option.name for group in options.GROUPS.values() for option in group]
    assert sorted(shown) == sorted(option.name for option in options.ALL)


def test_the_header_names_the_origin_of_overrides(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.eval(rows=4, evaluation={"n": 7}, data={"rows": None})
    workspace.ini("osmosis_set = evaluation.pass_threshold=0.5", "    agent.max_turns=4")
    workspace.write("pyproject.toml", "[tool.pytest-osmosis]\nmax_turns = 5\n[tool.pytest-osmosis.eval.x]\nlimit = 1\n")
    monkeypatch.setenv("PYTEST_OSMOSIS_LIMIT", "2")
    monkeypatch.setenv("PYTEST_OSMOSIS_SET", "sampling.max_tokens=64")

    workspace.run(CONFIG, "--osmosis-n=2", "--osmosis-set=evaluation.batch_size=2", "--co").stdout.fnmatch_lines(
        [
            "  2 rows x 2 runs = 4 rollouts, 2 in flight",
            "  limit: at most 5 turns a rollout",
            "  overridden: max_tokens = 64 (PYTEST_OSMOSIS_SET), "
            "limit = 2 (PYTEST_OSMOSIS_LIMIT), "
            "batch_size = 2 (--osmosis-set), n = 2 (--osmosis-n)",
            "  preset: pass_threshold = 0.5 (ini osmosis_set), max_turns = 5 (pyproject.toml:2)",
        ],
        consecutive=True,
    )


@pytest.mark.slow
def test_neither_addopts_nor_variables_start_an_eval(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.eval()
    workspace.write("test_python.py", "def test_python(): pass\n")
    ignored = "osmosis: *: ignored, because only addopts names it; an eval starts only if the command names it"
    for addopts in (CONFIG, "configs/eval/x.toml", "--osmosis-agent=chat --osmosis-n=2"):
        workspace.ini(f"addopts = {addopts}")
        result = workspace.run()
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines([ignored])

    workspace.ini()
    for name, value in (("AGENT", "chat"), ("CONFIG", "configs/eval/x.toml"), ("MCP", "mcp")):
        monkeypatch.setenv(f"PYTEST_OSMOSIS_{name}", value)
    result = workspace.run()
    result.assert_outcomes(passed=1)
    assert "osmosis:" not in result.stdout.str()
    assert not (workspace.root / ".osmosis").exists()


@pytest.mark.slow
def test_options_of_addopts_and_variables_that_say_no_apply_to_an_eval_that_the_command_names(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.eval()
    workspace.ini("addopts = --osmosis-n=2")
    for value in ("0", "false", ""):
        for name in ("FRESH", "UPDATE_BASELINE", "SAVE_TO_HF_HUB"):
            monkeypatch.setenv(f"PYTEST_OSMOSIS_{name}", value)
        workspace.run(CONFIG, "--co", exits=0)

    workspace.run(CONFIG).assert_outcomes(passed=6)


def test_a_dry_run_checks_and_shows_but_runs_nothing(workspace: Workspace) -> None:
    workspace.eval(scoring={"eval_fns": ["nowhere:score"]})
    workspace.write("tests/test_python.py", "def test_python(): open('ran', 'w')\n")

    workspace.run(CONFIG, "tests", "--osmosis-dry-run", "--osmosis-n=2", exits=0).stdout.fnmatch_lines("""
          3 rows x 2 runs = 6 rollouts*
        osmosis: dry run: no code was loaded, no model asked, no test run, nothing written
        *= 7 not run (dry run) in *
    """)
    assert not (workspace.root / ".osmosis").exists()
    assert not (workspace.root / "ran").exists()
    some = workspace.run(CONFIG, "--osmosis-dry-run", "-k", "row1-", exits=0)
    some.stdout.fnmatch_lines(["*= 2 deselected, 1 not run (dry run) in *"])


@pytest.mark.addon
@pytest.mark.parametrize("workers", [(), pytest.param(("-n1",), marks=pytest.mark.slow)])
def test_setup_plan_and_setup_only_ask_no_model_and_pass_no_test(
    workspace: Workspace, workers: tuple[str, ...]
) -> None:
    workspace.write(
        "tests/test_python.py",
        f"""
import pytest

@pytest.fixture
def a():
    open("made", "w").close()

def test_python(a):
    assert False

@pytest.mark.osmosis_eval("{workspace.root}/configs/eval/x.toml", rows="0")
def test_over_a_rollout(rollout):
    assert False
""",
    )
    made = workspace.root / "made"
    with ChatServer(reply("42")) as server:
        priced(workspace, server)
        plan = workspace.run(CONFIG, "tests/test_python.py::test_python", "--setup-plan", *workers, exits=0)
        assert not made.exists()
        only = workspace.run(CONFIG, "tests", "--setup-only", "--osmosis-source=model", "-rs", *workers, exits=0)

        assert (made.exists(), server.requests) == (True, [])
    plan.stdout.fnmatch_lines(["*SETUP*a", "*test_python (fixtures used: a)*", "osmosis: dry run: *"])
    only.assert_outcomes(skipped=1)
    only.stdout.fnmatch_lines(["osmosis: dry run: *", "SKIPPED *--setup-only: no model is asked"])
    assert not (workspace.root / ".osmosis").exists()


def priced(workspace: Workspace, server: ChatServer) -> None:
    """Write an eval of 4 runs on a model with a known price."""
    rates = {"m": {"input": 1000.0, "output": 1000.0}}
    model = {"base_url": server.base_url}
    workspace.eval(rows=4, experiment={"model_path": "m"}, model=model, prices=rates)


@pytest.mark.slow
def test_without_a_terminal_high_or_unknown_costs_are_refused(workspace: Workspace) -> None:
    with ChatServer(reply("42")) as server:
        priced(workspace, server)
        unknown = workspace.run(CONFIG, "--osmosis-confirm-above=1000")
        workspace.run(CONFIG, "--osmosis-no-probe").assert_outcomes(passed=4)
        n_requests = len(server.requests)

        cost = workspace.results()["summary"]["cost_usd"]
        below = workspace.run(CONFIG, f"--osmosis-confirm-above={cost * 0.9}", "-k", "row1-")
        refused = workspace.run(CONFIG, f"--osmosis-confirm-above={cost * 0.9}")

    assert n_requests == 4
    assert (unknown.ret, refused.ret, below.ret) == (4, 4, 0)
    message = "ERROR: --osmosis-confirm-above=*: {}; there is no terminal to ask on*"
    unknown.stderr.fnmatch_lines([message.format("the cost of x is unknown, because no earlier eval run recorded one")])
    refused.stderr.fnmatch_lines([message.format("about $*, above $*")])
    assert len(workspace.run_dirs()) == 2
    workspace.eval("free")
    workspace.run("configs/eval/free.toml", "--osmosis-confirm-above=0").assert_outcomes(passed=3)


@pytest.mark.journey
@pytest.mark.parametrize(("answer", "status", "runs"), [("y", 0, 1), ("n", 2, 0)])
def test_on_a_terminal_the_user_is_asked(workspace: Workspace, answer: str, status: int, runs: int) -> None:
    with ChatServer(reply("42")) as server:
        priced(workspace, server)
        words = (CONFIG, "--osmosis-confirm-above=0", "--osmosis-no-probe")
        written, ended = workspace.on_terminal(*words, columns=133, typed=f"{answer}\n")

    assert (ended, len(workspace.run_dirs())) == (status, runs)
    sections = [line for line in written.splitlines() if line.endswith("-") and "osmosis: x" in line]
    assert {len(line) for line in sections} == {133} if runs else not sections, "capturing must be suspended again"


@pytest.mark.slow
def test_collect_run_starts_evals_of_collected_folders(workspace: Workspace) -> None:
    workspace.eval("x", rows=1)
    workspace.eval("y", rows=2)
    workspace.write("tests/test_python.py", "def test_python(): pass\n")
    workspace.write("configs/eval/endpoints.toml", "")
    workspace.write("configs/other.toml", "")
    workspace.ini("osmosis_collect = run")

    workspace.run().assert_outcomes(passed=4)
    workspace.run("tests").assert_outcomes(passed=1)
    workspace.run("--osmosis-config=configs/eval/y.toml").assert_outcomes(passed=2)


X = "configs/eval/x.toml"
TAKES = "unrecognized argument; an eval takes --osmosis"
SCORED = "--osmosis-eval-fn=rewards:score --osmosis-model=demo/arithmetic"
TYPED = f"--osmosis-dataset=data/x.jsonl {SCORED}"
RESPONSES = "--osmosis-base-url=http://localhost:1/v1 --osmosis-api-client-type=openai_responses"
NO_RESPONSE = "OpenAI's Responses API has none: leave it out, or set [model] api_client_type = *"
UNPRICED = f"{X} --osmosis-model=vendor/m --osmosis-base-url=http://127.0.0.1:9/v1 --osmosis-set=limits"
REFUSED: Mapping[str, str | tuple[str, ...]] = {
    # options of `osmosis eval` and `prime eval`, and misspelt ones of ours: the error names what to write instead
    f"{X} --model demo/arithmetic": f"--model: {TAKES}-model",
    f"{X} --api-key=sk-12345678": f"--api-key: {TAKES}-api-key-env",
    f"{X} --num_examples=3": f"--num_examples: {TAKES}-num-examples",
    f"{X} -A -t100": (f"-A: {TAKES}-abbreviated-summary", f"-t: {TAKES}-max-tokens"),
    f"{X} --rows=3,7": f"--rows: {TAKES}-set=data.rows=3,7,10-20",
    f"{X} --osmosis-lmit=3": "--osmosis-lmit: unrecognized argument, did you mean --osmosis-limit?",
    f"{X} --osmosis_batch_size=3": "--osmosis_batch_size: unrecognized argument, did you mean --osmosis-batch-size?",
    f"{X} --osmosis-xyzzy": "--osmosis-xyzzy: unrecognized argument; pytest-osmosis help lists all options",
    f"{X} --hosted --other=1": (
        "--hosted: unrecognized argument; not offered: evals run on your machine, and requests go only to the model",
        "--other: unrecognized argument",
    ),
    # values
    f"{X} --osmosis-shard=9/8": 'must be K/N, the K-th of N shards, like 1/8 to 8/8 (N at most 10000), got "9/8"',
    f"{X} --osmosis-set=sampling.extra_body.column=3 --osmosis-model=demo/script": "must be the name of a column*",
    f"{X} --osmosis-set=sampling.extra_body.column=promt --osmosis-model=demo/script": "which no selected row has*",
    f"{X} --osmosis-shard=1/20000": 'must be K/N, *, got "1/20000"',
    f"{X} --osmosis-show-failures=-1": 'must be an integer of at least 0, or "all", got "-1"',
    f"{X} -oosmosis_not_measured_exit=256": "must be an exit status from 1 to 255, got '256'",
    f"{X} -oosmosis_collect=always": 'osmosis_collect: must be "never", "list" or "run", got "always"',
    "--osmosis-record=x configs/eval/x.toml": '--osmosis-record: must be one of "off", "all", "new", got "x"',
    f"{X} --osmosis-sampling-args=[1] --osmosis-env-args=[a '--osmosis-header=Authorization Bearer abc'": (
        '--osmosis-sampling-args: must be a JSON object, got "[1]"',
        '--osmosis-env-args: must be JSON: Expecting value: line 1 column 2 (char 1), got "[a"',
        '--osmosis-header: must be lines like "Name: Value"',
    ),
    f"{X} --osmosis-html=configs": "--osmosis-html=configs: cannot be written: it is a folder",
    "graded.py --osmosis-lab --osmosis-lab-budget=nan": "--osmosis-lab-budget: must be a number of seconds above 0*",
    "graded.py --osmosis-lab -oosmosis_lab_budget=0": "ini osmosis_lab_budget: must be a number of seconds above 0*",
    f"{X} --osmosis-run=a/b": "is no name of a run: letters, digits, - _ . + = , and ~ make a name*",
    f"{X} --osmosis-run=latest": "--osmosis-run: means the newest eval run; choose another name",
    "configs/eval/outside.toml": "output_dir: must be inside the workspace*",
    f"{X} configs/eval/taken.toml": "graded.py: no run can be kept there: *; * name another folder in [output] dir",
    "configs/eval/faulty.toml": (  # neither a dataset nor rows are looked for by a wrong name, nor a provider
        "[experiment] model_path: must be a string*",
        "[experiment] dataset: must be a string*",
        "[data] rows: must be row numbers *",
    ),
    "configs/eval/many.toml --osmosis-set=cassette.path=all.jsonl --osmosis-record": (
        "all.jsonl: would be written for the cassette of *, plain and for the cassette of *, other; give each a path *"
    ),
    # options that do not go together, or lack another one
    "graded.py --osmosis-lab-budget=60": "--osmosis-lab-budget: needs --osmosis-lab: *",
    "--osmosis-source=reference --osmosis-record --osmosis-replay": (
        "--osmosis-record, --osmosis-replay: --osmosis-source=reference requests no model, so no eval can run"
    ),
    f"{X} --osmosis-record=new --osmosis-replay --osmosis-n=0": (
        "--osmosis-replay: contradicts --osmosis-record: an answer is recorded, or comes from the cassette; *"
    ),
    "configs/training/t.toml --osmosis-replay": "--osmosis-replay: does not apply to a training config, *",
    "tests --osmosis-source=modle": '--osmosis-source: must be "reference" or "model", got "modle"',
    "tests --osmosis-source=model --osmosis-gate=mean>=0.5 --osmosis-smoke": (
        "--osmosis-gate, --osmosis-smoke: does not apply with *"
    ),
    "tests --osmosis-source=model --osmosis-from=latest": "--osmosis-from and --osmosis-source=model exclude each *",
    "tests --osmosis-source=reference --osmosis-inline": "--osmosis-inline: --osmosis-source=reference requests no *",
    "tests --osmosis-limit=2 --osmosis-n=3": (
        "--osmosis-n, --osmosis-limit: no eval is named; name its TOML, "
        "--osmosis-agent=MODULE:ATTR (or chat) or --osmosis-env=ID; for tests marked osmosis_eval add *=model"
    ),
    f"{X} {RESPONSES} --osmosis-set=model.client=anthropic": "api-client-type: cannot be used with client; keep one *",
    f"{X} {RESPONSES} --osmosis-set=sampling.stop=. --osmosis-set=sampling.extra_body.logit_bias.a=1": (
        f"stop: {NO_RESPONSE}",
        f"logit_bias: {NO_RESPONSE}",
    ),
    f"{UNPRICED}.max_cost_usd=2.5": 'max_cost_usd: the price of "vendor/m" is not known*',
    f"{UNPRICED}.rollout.cost_usd=1": 'rollout.cost_usd: the price of "vendor/m" is not known*limit rollout.tokens*',
    f"{X} --osmosis-set=model.headers_from_state.X-Row=row_indx": 'unknown key of the state "row_indx", did you mean *',
    f"{X} --osmosis-stop-when-decided": "--osmosis-stop-when-decided: the eval x has no gate, *--osmosis-gate=*",
    f"{X} --osmosis-update-baseline": "--osmosis-update-baseline: no eval names a file for its baseline; *",
    f"{X} --osmosis-set=baseline.results=b.json --osmosis-update-baseline --osmosis-output=b.json": (
        "is the baseline of x *, which only --osmosis-update-baseline writes",
        "baseline b.json: would be written for the results of x * and for the baseline of x *",
    ),
    # names of evals, runs and tests
    f"--osmosis-config=configs/eval/w.toml --osmosis-config={X}": "no such file, did you mean configs/eval/x.toml?",
    "configs/eval/missing.toml": "configs/eval/missing.toml*",
    "--osmosis-config=configs/evals --osmosis-config=nowhere --osmosis-config=empty": (
        "--osmosis-config=configs/evals: no such file, did you mean configs/eval?",
        "--osmosis-config=nowhere: no such file",
        "--osmosis-config=empty: the folder holds no *.toml",
    ),
    f"{X} --osmosis-resume": "configs/eval/x.toml: no eval run of x is stored in .osmosis/runs, so there is nothing *",
    f"{X} --osmosis-resume --osmosis-run=a": "run a: not found in .osmosis/runs*leave out --osmosis-resume to begin*",
    "configs/eval/many.toml::plan[row0-run0]": (
        'no eval of this file is called "plan", did you mean "plain"? (they are: plain, other); type * for all of them'
    ),
    f"{X}::x[row1-run2] --osmosis-granularity=row": "tests like 'configs/eval/x.toml::x[row0]', which --co lists*",
    f"{X}::x[row1]": "configs/eval/x.toml -k 'row1-' selects all runs of a row",
    f"{X}::x[row1-run0] --osmosis-shard=1/2": "not found; this eval has tests like *x[row0-run0]'*",
    # evals without a TOML
    f"{TYPED} --osmosis-agent=agents.rollout": 'must be "chat"*, got "agents.rollout"; did you mean "agents:rollout"?',
    f"{TYPED} --osmosis-agent=chat --osmosis-dataset=y.jsonl": 'must be an existing file, got "y.jsonl" (*',
    "data/x.jsonl::x[row3-run0]": "data/x.jsonl::x[row3-run0]: no eval is named; add --osmosis-agent=*",
    f"data/x.jsonl::x[row3-run0] --osmosis-agent=chat {SCORED}": (  # the argument names the dataset too
        "not found; this eval has tests like 'data/x.jsonl::x[row0-run0]', which --co lists; data/x.jsonl -k *"
    ),
    f"{TYPED} --osmosis-agent=chat --osmosis-dataset=tests": (
        '"*tests" is a folder, not a file; a folder of trajectories needs *"recorded"'
    ),
    f"{TYPED} --osmosis-agent=agents:rollot": 'module "agents" has no "rollot", did you mean "rollout"?',
    f"{TYPED} --osmosis-agent=agnts:rollout": 'no module "agnts" is installed, *; write or install it, or *',
}


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace in which no command leaves anything."""
    workspace = Workspace(Shell(tmp_path_factory.mktemp("refusals")), [])
    workspace.eval()
    workspace.eval("outside", output={"save_results": True, "output_dir": "../elsewhere"})
    workspace.eval("faulty", experiment={"model_path": 5, "dataset": 5}, data={"rows": "x"})
    workspace.eval("taken", output={"dir": "graded.py"})
    workspace.write("agents.py", "async def rollout(ctx): ...\n")
    workspace.write("graded.py", "def score(solution_str, ground_truth): ...\n")
    workspace.write("configs/training/t.toml", "[experiment]\n")
    of_all = 'model = "demo/arithmetic"\ndataset = "x"\neval_fn = ["rewards:score"]\n'
    workspace.write("configs/eval/many.toml", f'{of_all}[[eval]]\nname = "plain"\n[[eval]]\nname = "other"\n')
    for folder in ("tests", "empty"):
        (workspace.root / folder).mkdir()
    return workspace


@pytest.mark.parametrize(
    "typed", [pytest.param(typed, marks=[pytest.mark.addon] * typed.startswith("graded.py")) for typed in REFUSED]
)
def test_a_command_that_makes_no_sense_is_refused(refusing: Workspace, typed: str) -> None:
    errors = REFUSED[typed]

    result = refusing.run(*shlex.split(typed), exits=4)

    lines = [line for line in result.errlines if line]
    patterns = [errors] if isinstance(errors, str) else errors
    result.stderr.fnmatch_lines_random([f"*{pattern.replace('[', '[[]')}" for pattern in patterns])
    assert len([line for line in lines if line.startswith("ERROR: ")]) == len(lines) == len(patterns)
    assert not list(refusing.root.glob(".osmosis/runs/*"))


@pytest.mark.journey
def test_all_problems_of_all_configs_are_listed_with_their_lines_whatever_their_kind(workspace: Workspace) -> None:
    workspace.eval(
        experiment={"dataset": "missing", "rollout": "missing", "entrypoint": "main.py"},
        evaluation={"n": 0, "batch_sizee": 3},
        model={"api_key_env": "NO_KEY", "base_url": "http://127.0.0.1:9/v1"},
        secrets={"required": ["NO_TOKEN", "no token"]},
        baseline={"results": "missing.json"},
    )
    workspace.eval("y", experiment={"model_path": "nobody/model"}, rows=[{}, {"user_prompt": None}])

    result = workspace.run(CONFIG, "configs/eval/y.toml", exits=4)

    x = (workspace.root / "configs/eval/x.toml").read_text().splitlines()
    result.stderr.fnmatch_lines_random(f"""
        ERROR: configs/eval/x.toml:{x.index("n = 0") + 1}: ?evaluation? n: must be *
        ERROR: configs/eval/x.toml:{x.index("batch_sizee = 3") + 1}: ?evaluation? batch_sizee: *batch_size*
        ERROR: configs/eval/x.toml:*: ?experiment? rollout: must be a folder in rollouts*
        ERROR: dataset "missing": not found; *
        ERROR: configs/eval/x.toml:*: ?secrets? required: each must be a name that matches*
        ERROR: secret NO_TOKEN: missing or empty in the environment; *
        ERROR: secret NO_KEY: missing or empty in the environment; *
        ERROR: configs/eval/x.toml: ?baseline? results: missing.json does not exist; *
        ERROR: *nobody*
        ERROR: data/y.jsonl:2: *user_prompt*
    """)
    assert sum(line.startswith("ERROR: ") for line in result.errlines) == 10
    assert workspace.run(CONFIG, "configs/eval/y.toml", "--osmosis-dry-run", exits=4).errlines == result.errlines
    assert "INTERNALERROR" not in result.stdout.str()
    assert not (workspace.root / ".osmosis").exists()


@pytest.mark.journey
def test_code_that_does_not_load_shows_the_users_traceback_once_and_leaves_no_run(workspace: Workspace) -> None:
    with ChatServer() as server:
        workspace.eval(
            agent={"agent": "agents:rollot"},
            scoring={"eval_fns": ["rewards:score", "rewards:other", "others:score", "others:scor"]},
            model={"base_url": server.base_url},
        )
        workspace.write("rewards.py", "open('tries.txt', 'a').write('x')\nimport helper\n")
        workspace.write("helper.py", "def load():\n    raise KeyError('no such thing')\n\nload()\n")
        workspace.write("others.py", "def score(solution_str, ground_truth):\n    return 1.0\n")
        workspace.write("agents.py", "async def rollout(ctx):\n    return None\n")

        result = workspace.run(CONFIG, exits=4)

        assert not server.requests
    result.stderr.fnmatch_lines("""
        ERROR: x: rewards:score: does not load: KeyError: 'no such thing'
        Traceback (most recent call last):
          File "*/rewards.py", line 2, in <module>
          File "*/helper.py", line 2, in load
        KeyError: 'no such thing'
        others:scor: module "others" has no "scor", did you mean "score"?
        agents:rollot: module "agents" has no "rollot", did you mean "rollout"?
    """)
    result.stderr.no_fnmatch_line("*rewards:other*")
    assert (workspace.root / "tries.txt").read_text() == "x", "each module once"
    assert "pytest_osmosis/" not in result.stderr.str()
    assert "INTERNALERROR" not in result.stdout.str()
    assert not workspace.run_dirs()


@pytest.mark.slow
def test_a_session_that_ends_before_the_first_run_leaves_no_run(workspace: Workspace) -> None:
    workspace.eval()
    workspace.write("test_broken.py", "raise RuntimeError\n")
    workspace.run(CONFIG, "test_broken.py", exits=2).assert_outcomes(errors=1)
    assert not (workspace.root / ".osmosis").exists()
    workspace.write(
        "conftest.py",
        "import pytest\n\n\n@pytest.hookimpl(trylast=True)\n"
        "def pytest_collection_finish():\n    raise pytest.UsageError('another plugin refuses')\n",
    )
    result = workspace.run(CONFIG)
    assert "another plugin refuses" in result.stdout.str() + result.stderr.str()
    assert "pass rate" not in result.stdout.str()
    assert workspace.run_dirs() == []
