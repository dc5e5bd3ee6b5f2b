"""--osmosis-output, -secrets-file, -mcp, names of `prime eval`, values that are empty, bounds, rates; and --help."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime

import pytest

from pytest_osmosis.config.named_keys import PRIME_KEYS
from pytest_osmosis.plugin import options
from tests.plugin.workspaces import CONFIG, Workspace, read_json
from tests.servers import ChatServer, reply

Pipe = Callable[[bytes], str]

BOTH = (CONFIG, "--osmosis-config=configs/eval/y.toml")


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """Give a function that returns the path of a pipe with a content, as a shell does for `<(...)`."""
    with ExitStack() as stack:

        def made(content: bytes) -> str:
            reader, writer = os.pipe()
            stack.callback(os.close, reader)
            os.write(writer, content)
            os.close(writer)
            return f"/dev/fd/{reader}"

        yield made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output", "written"),
    [("made/out.json", "made/out.json"), ("made/", "made/x.json"), ("data", "data/x.json")],
)
def test_output_is_a_file_or_a_folder(workspace: Workspace, output: str, written: str) -> None:
    workspace.eval(rows=1)

    workspace.run(CONFIG, f"--osmosis-output={output}", exits=0).stdout.fnmatch_lines([f"results: {written}"])
    assert read_json(workspace.root / written) == workspace.results()


@pytest.mark.slow
def test_outputs_of_several_evals_are_named_after_them(workspace: Workspace) -> None:
    workspace.eval("x", rows=1)
    workspace.eval("y", rows=2)

    workspace.run(*BOTH, "--osmosis-output=out.json", exits=4).stderr.fnmatch_lines(
        ["ERROR: --osmosis-output=out.json: 2 evals run; pass a folder, or a path with {name}"]
    )
    assert not (workspace.root / ".osmosis").exists()

    for output, written in (("out/{name}-1.json", "out/{}-1.json"), ("out/", "out/{}.json")):
        workspace.run(*BOTH, f"--osmosis-output={output}", exits=0)
        for name in ("x", "y"):
            assert read_json(workspace.root / written.format(name))["config"]["name"] == name


SECRET = """
import os

def score(solution_str, ground_truth, **kwargs):
    return float(os.environ["FIRST_SECRET"] == "one two" and os.environ["SECOND_SECRET"] == "three")
"""


@pytest.mark.slow
def test_secrets_come_from_a_file_or_stdin_and_then_the_environment(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, pipe: Pipe
) -> None:
    monkeypatch.setenv("SECOND_SECRET", "three")
    monkeypatch.setenv("FIRST_SECRET", "not this")
    workspace.write("rewards.py", SECRET)
    workspace.write(".env", 'export FIRST_SECRET="one two"\n')
    for name in ("x", "y"):
        workspace.eval(name, rows=1, secrets={"required": ["FIRST_SECRET", "SECOND_SECRET"]})
    workspace.run(*BOTH, "--osmosis-secrets-file=.env").assert_outcomes(passed=2)
    workspace.run(*BOTH, "--osmosis-secrets-file=-", stdin=b"FIRST_SECRET='one two'\n").assert_outcomes(passed=2)
    path = pipe(b'FIRST_SECRET="one two"\n')  # it is read once for all evals
    workspace.run(*BOTH, f"--osmosis-secrets-file={path}").assert_outcomes(passed=2)


def test_a_pipe_of_secrets_is_named_and_its_values_are_never_shown(workspace: Workspace, pipe: Pipe) -> None:
    workspace.eval("x", secrets={"required": ["FIRST_SECRET", "SECOND_SECRET"]}, evaluation={"n": "s3cr3t-0123456789"})
    workspace.eval("y", secrets={"required": ["THIRD_SECRET"]})
    path = pipe(b"FIRST_SECRET=s3cr3t-0123456789\n")

    result = workspace.run(*BOTH, f"--osmosis-secrets-file={path}", exits=4)

    missing = [line for line in result.errlines if line.startswith("ERROR: secret ")]
    assert [line.split()[2] for line in missing] == ["SECOND_SECRET:", "THIRD_SECRET:"]
    assert all(f"missing or empty in {path} and in the environment" in line for line in missing)
    assert "s3cr3t" not in result.stdout.str() + result.stderr.str()


BLANK = "has an empty value; give it one, or leave it out (is it a variable that is not set?)"


@pytest.mark.slow
def test_an_empty_value_is_exit_4_and_never_starts_an_eval(workspace: Workspace) -> None:
    workspace.eval()
    workspace.write("eval.toml", (workspace.root / "configs/eval/x.toml").read_text(encoding="utf-8"))
    valued = [option for option in options.ALL if option.metavar is not None]
    for value in ("", "  "):
        result = workspace.run(CONFIG, *(f"{option.flag}={value}" for option in valued), exits=4)
        said = [line for line in result.stderr.lines if line]
        assert said == [f"ERROR: {option.flag}: {BLANK}" for option in valued]
    for name in ("config", "agent", "from", "env", "source", "output"):
        result = workspace.run(f"--osmosis-{name}=", exits=4)
        result.stderr.fnmatch_lines([f"ERROR: --osmosis-{name}: has an empty value; *"])
    assert not workspace.run_dirs()


def test_empty_ini_keys_and_variables_are_exit_4(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.eval()
    workspace.ini("osmosis_secrets_file =")
    result = workspace.run(CONFIG, "-oosmosis_max_in_flight=", exits=4)
    said = [line for line in result.stderr.lines if line]
    assert sorted(said) == [f"ERROR: ini osmosis_{name}: {BLANK}" for name in ("max_in_flight", "secrets_file")]

    workspace.ini()
    monkeypatch.setenv("PYTEST_OSMOSIS_OUTPUT", "")  # CI sets variables to nothing
    monkeypatch.setenv("PYTEST_OSMOSIS_MODEL", " ")
    workspace.run(CONFIG, exits=4).stderr.fnmatch_lines([f"ERROR: PYTEST_OSMOSIS_MODEL: {BLANK}"])


def test_help_shows_everyday_options_and_leads_to_others(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    lines = workspace.run("--help").outlines

    without_ours = len(workspace.run("--help", "-p", "no:osmosis").outlines)
    assert len(lines) - without_ours <= 40
    flags = [line.split()[0].partition("=")[0] for line in lines if line.startswith("  --osmosis-")]
    everyday = [option.flag for option in options.every_option() if "everyday" in option.marks]
    assert flags == everyday
    assert len(flags) <= 15
    assert "osmosis: the everyday options; pytest-osmosis help [WORD] finds all others:" in lines
    assert {"  --osmosis-n=N         Runs per row", f"{'':24}Dataset file inside the workspace"} <= {*lines}


def test_options_of_other_plugins_keep_their_meaning(workspace: Workspace) -> None:
    add = "    parser.addoption('--model')\n    parser.addoption('--hosted', '-A', action='store_true')\n"
    workspace.write("conftest.py", f"def pytest_addoption(parser):\n{add}")
    test = "def test_x(pytestconfig):\n    get = pytestconfig.getoption\n"
    workspace.write("test_x.py", f"{test}    assert (get('--model'), get('--hosted')) == ('a/b', True)\n")

    workspace.run("test_x.py", "--model", "a/b", "-A").assert_outcomes(passed=1)
    assert workspace.run("--help", "--model=a/b").ret == 0
    assert "an eval takes" not in workspace.run("--version", "--model=a/b").stderr.str()  # pytest's to ignore or refuse


@pytest.mark.addon
@pytest.mark.skipif(importlib.util.find_spec("fastmcp") is not None, reason="fastmcp is installed")
def test_without_fastmcp_the_extra_is_named(workspace: Workspace) -> None:
    workspace.eval()
    workspace.write("mcp/main.py", "from fastmcp import FastMCP\n")

    result = workspace.run(CONFIG, "--osmosis-mcp=mcp", exits=4)

    assert "[agent] mcp: fastmcp is not installed; pip install 'pytest-osmosis[mcp]'" in result.stderr.str()
    assert workspace.run_dirs("x") == []


def test_every_setting_has_an_option() -> None:
    named = {option.name for option in options.OF_KEYS}
    without_flag_there_too = {"endpoint_id", "headers", "headers_from_state"}
    assert {key.name for key in PRIME_KEYS.values() if key.option not in named} == without_flag_there_too
    assert [
        option.name for option in options.OF_PRIME if option.name not in {key.option for key in PRIME_KEYS.values()}
    ] == ["sampling-args"]


def test_names_of_prime_eval_set_our_keys(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_OSMOSIS_HEADER", "X-A: from a variable\nX-C: c: d")
    monkeypatch.setenv("PYTEST_OSMOSIS_NO_INTERLEAVE_SCORING", "1")
    with ChatServer(reply("42")) as server:
        workspace.eval(rows=4, data={"rows": "0"}, model={"headers": {"X-B": "of the file"}})

        result = workspace.run(
            CONFIG,
            "--osmosis-num-examples=2",
            "--osmosis-rollouts-per-example=2",
            "--osmosis-max-concurrent-generation=-1",
            "--osmosis-max-concurrent-scoring=3",
            "--osmosis-num-workers=auto",
            f"--osmosis-api-base-url={server.base_url}",
            '--osmosis-sampling-args={"temperature": 0.5, "n": 1, "seed": null, "min_p": 0.1}',
            "--osmosis-header=X-A: typed",
        )

        result.assert_outcomes(passed=4)
        body, headers = server.requests[-1].body, server.requests[-1].headers
    assert (body["temperature"], body["min_p"], "n" in body, "seed" in body) == (0.5, 0.1, False, False)
    assert (headers["x-a"], headers["x-b"], headers["x-c"]) == ("typed", "of the file", "c: d")
    result.stdout.fnmatch_lines(
        [
            "  2 rows x 2 runs = 4 rollouts, 4 in flight",
            "  overridden: *limit = 2 (--osmosis-num-examples)*n = 2 (--osmosis-rollouts-per-example)*",
        ]
    )


def test_bounds_of_each_rollout_are_shown_kept_and_told_apart(workspace: Workspace) -> None:
    workspace.write(
        "agent.py", "async def rollout(ctx):\n    while True:\n        await ctx.chat(ctx.prompt, tools=[])\n"
    )
    rates = {"requests_per_minute": 1_000_000, "tokens_per_minute": 1_000_000}
    bounds = {"rollout": {"tokens": 5000}}
    workspace.eval(rows=2, agent={"agent": "agent:rollout"}, limits=bounds, execution=rates)
    result = workspace.run(CONFIG, "--osmosis-max-turns=3", "--osmosis-set=limits.rollout.cost_usd=1", exits=1)
    result.stdout.fnmatch_lines("""
          limit: at most 3 turns, 5,000 tokens, $1.00 a rollout
          limit: 1,000,000 requests a minute
          limit: 1,000,000 tokens a minute
        2 runs counted as failed: the rollout asked the model 4 times: ?agent? max_turns = 3 (boundary agent), *
    """)


def test_provider_limits_hold_inline_too(workspace: Workspace) -> None:
    """The second request waits for about 0.8 s, less the time of the first rollout, which is long on a busy machine."""
    workspace.eval(rows=2, execution={"requests_per_minute": 60})

    workspace.run(CONFIG, "--osmosis-inline", exits=0)

    times = [datetime.fromisoformat(event["at"]) for kind in ("start", "rollout") for event in workspace.events(kind)]
    assert (max(times) - min(times)).total_seconds() > 0.7
