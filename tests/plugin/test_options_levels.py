"""Options from variables and ini keys, and the options of the session."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
import termios

import pytest

from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.plugin import options, session_options
from tests.plugin.workspaces import CONFIG, Workspace
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


def test_unknown_and_invalid_variables_are_reported(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.eval()
    for name, value in {
        "MODLE": "x",
        "CONFIG": "x.toml",
        "NO_PROBE": "maybe",
        "MAX_IN_FLIGHT": "0",
        "SET": "evaluation.n=2\nfoo",
        "FRESH": "1",
        "UPDATE_BASELINE": "1",
    }.items():
        monkeypatch.setenv(f"PYTEST_OSMOSIS_{name}", value)

    result = workspace.run(CONFIG, exits=4)

    assert sorted(line for line in result.errlines if line) == [
        "ERROR: PYTEST_OSMOSIS_CONFIG: cannot name an eval (evals cost money); "
        "pass --osmosis-config=PATH on the command line",
        "ERROR: PYTEST_OSMOSIS_FRESH: cannot begin a run anew; pass --osmosis-fresh on the command line",
        'ERROR: PYTEST_OSMOSIS_MAX_IN_FLIGHT: must be an integer of at least 1, got "0"',
        "ERROR: PYTEST_OSMOSIS_MODLE: unknown variable, did you mean PYTEST_OSMOSIS_MODEL?",
        'ERROR: PYTEST_OSMOSIS_NO_PROBE: must be 1 or 0, got "maybe"',
        'ERROR: PYTEST_OSMOSIS_SET: must be table.key=value, got "foo"',
        "ERROR: PYTEST_OSMOSIS_UPDATE_BASELINE: cannot update a baseline; "
        "pass --osmosis-update-baseline on the command line",
    ]


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


# -- --osmosis-confirm-above -------------------------------------------------------------------------------


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
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 133, 0, 0))
        words = workspace.words(CONFIG, "--osmosis-confirm-above=0", "--osmosis-no-probe")
        environ = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        with subprocess.Popen(
            words, cwd=workspace.root, stdin=theirs, stdout=theirs, stderr=theirs, env=environ
        ) as process:
            os.close(theirs)
            os.write(ours, f"{answer}\n".encode())
            lines = until_it_ends(ours).splitlines()

    assert (process.returncode, len(workspace.run_dirs())) == (status, runs)
    sections = [line for line in lines if line.endswith("-") and "osmosis: x" in line]
    assert {len(line) for line in sections} == {133} if runs else not sections, "capturing must be suspended again"


def until_it_ends(terminal: int) -> str:
    """Read everything from a terminal until its other end is closed."""
    pieces = []
    with contextlib.suppress(OSError), os.fdopen(terminal, "rb", buffering=0) as screen:
        while piece := screen.read(4096):
            pieces.append(piece)
    return b"".join(pieces).decode()


# -- osmosis_collect ---------------------------------------------------------------------------------------


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
