"""Evals together with Python tests and other plugins, which only these tests see, and in VS Code and PyCharm."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.workspaces import CONFIG, DEADLINE_S, PLAIN_AND_XDIST, Workspace, read_json
from tests.servers import ChatServer, reply, slow

COMPANIONS = Path(sys.prefix) / "companions"

PYTHON = """
import asyncio, random, time

async def test_async():
    await asyncio.sleep(0)

def test_python():
    assert random.random() < 2
"""

GROUPED = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.xdist_group("together"))
"""

OVER_ROLLOUTS = """
import pytest

@pytest.mark.osmosis_eval("configs/eval/x.toml")
def test_rollout(rollout):
    assert rollout.row_index != 1
"""


@pytest.fixture
def companions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give commands pytest-timeout, -rerunfailures, -retry, -repeat, -picked, -randomly and -cov."""
    if not COMPANIONS.is_dir():
        pytest.skip(f"{COMPANIONS} is missing: make setup")
    monkeypatch.setenv("PYTHONPATH", str(COMPANIONS))


TIMED = """
import faulthandler, pytest

timers = set()
faulthandler.dump_traceback_later = lambda *args, **options: timers.add("faulthandler")
faulthandler.cancel_dump_traceback_later = lambda: timers.discard("faulthandler")

def pytest_timeout_set_timer(item):
    timers.add("pytest-timeout")

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    with open("timed", "a") as file:
        file.writelines(f"{item.name}: {timer}\\n" for timer in timers)
    timers.clear()
"""


@PLAIN_AND_XDIST
@pytest.mark.usefixtures("companions")
def test_no_timer_of_others_runs_during_the_wait_for_a_rollout(workspace: Workspace) -> None:
    workspace.write("conftest.py", TIMED)
    workspace.write("test_python.py", "def test_python():\n    pass\n")
    workspace.eval(rows=2)

    done = workspace.run_process("test_python.py", CONFIG, "--timeout=600", "-o", "faulthandler_timeout=600")

    done.assert_outcomes(passed=3)
    timed = (workspace.root / "timed").read_text().splitlines()
    assert sorted(timed) == ["test_python: faulthandler", "test_python: pytest-timeout"]


@pytest.mark.usefixtures("companions")
@pytest.mark.parametrize(
    ("option", "workspace"),
    [
        ("--reruns=2", []),
        ("--reruns=2", ["-n2"]),
        ("--force-reruns=2", []),
        ("--retries=2", []),
        ("--retries=2", ["-n2"]),
    ],
    indirect=["workspace"],
)
def test_rerun_plugins_do_not_repeat_a_rollout(workspace: Workspace, option: str) -> None:
    workspace.write("test_flaky.py", "def test_flaky():\n    assert False\n")
    with ChatServer(reply("42")) as server:
        rows: list[dict[str, Any]] = [{"score": 0.0}, {"reward": "raises"}, {}]
        workspace.eval(rows=rows, model={"base_url": server.base_url}, limits={"max_errors": 9})

        done = workspace.run_process("test_flaky.py", CONFIG, "--osmosis-no-probe", option)

        assert len(server.requests) == 3
    outcomes = done.parseoutcomes()
    assert outcomes.keys() & {"rerun", "retried"}, "the Python test is repeated"
    assert {name: outcomes[name] for name in ("failed", "errors", "passed")} == {"failed": 2, "errors": 1, "passed": 1}


@PLAIN_AND_XDIST
@pytest.mark.usefixtures("companions")
def test_pytest_repeat_does_not_repeat_a_rollout(workspace: Workspace) -> None:
    workspace.write("test_python.py", "def test_python():\n    pass\n")
    with ChatServer(reply("42")) as server:
        workspace.eval(rows=2, model={"base_url": server.base_url})

        done = workspace.run_process("test_python.py", CONFIG, "--osmosis-no-probe", "--count=3")

        assert len(server.requests) == 2
    done.assert_outcomes(passed=3 + 2)


@PLAIN_AND_XDIST
@pytest.mark.usefixtures("companions")
def test_plugins_that_order_and_pick_tests_change_no_score_and_leave_out_no_named_eval(workspace: Workspace) -> None:
    rows = [{"score": index / 8} for index in range(8)]
    workspace.eval(rows=rows, sampling={"seed": 3, "extra_body": {"accuracy": 0.5}})
    workspace.write("test_old.py", "def test_old():\n    pass\n")
    for words in (["init"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@localhost", "commit", "-m", "x"]):
        assert workspace.pytester.run("git", *words).ret == 0
    workspace.write("test_new.py", "def test_new():\n    pass\n")
    workspace.run_process(CONFIG, "--picked").assert_outcomes(failed=8, passed=1)
    scores = []
    for seed in (1, 2):
        workspace.run_process(CONFIG, f"--randomly-seed={seed}").assert_outcomes(failed=8)
        scores.append([run["scores"] for row in workspace.results()["rows"] for run in row["runs"]])
    assert scores[0] == scores[1] == [{"rewards:score": index / 8} for index in range(8)]


@PLAIN_AND_XDIST
@pytest.mark.usefixtures("companions")
def test_coverage_and_asyncio_work_alongside_an_eval(workspace: Workspace) -> None:
    workspace.ini("asyncio_mode = auto", "asyncio_default_fixture_loop_scope = function")
    workspace.write("test_python.py", PYTHON)
    workspace.eval(rows=2)
    words = [sys.executable, "-mpytest", *workspace.arguments, CONFIG, "test_python.py", "--cov=."]

    done = workspace.pytester.run(*words, *([] if workspace.distributed else ["--osmosis-inline"]), timeout=DEADLINE_S)

    done.assert_outcomes(passed=4)
    done.stdout.fnmatch_lines(["TOTAL *"])


TERMINAL = """
import pytest

class Terminal:
    stats = {}
    def write_line(self, line, **markup):
        print(line)
    write = line = write_line
    def section(self, title, sep="=", **markup):
        print(title)
    def ensure_newline(self):
        pass

@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(Terminal(), "terminalreporter")
"""


def test_a_terminal_of_another_plugin_gets_no_live_line_and_internal_errors(workspace: Workspace) -> None:
    workspace.write("conftest.py", TERMINAL)
    workspace.eval(rows=2)

    done = workspace.run(CONFIG, exits=0)

    assert "INTERNALERROR" not in done.stdout.str()
    assert workspace.results()["summary"]["total_runs"] == 2

    workspace.write("conftest.py", TERMINAL + "\ndef pytest_runtest_logreport():\n    raise OSError('disk')\n")
    done = workspace.run(CONFIG, exits=pytest.ExitCode.INTERNAL_ERROR)
    assert done.stderr.str().count("Error: disk") == 1
    assert "AttributeError" not in done.stderr.str()


@pytest.mark.parametrize("dist", ["each", "loadgroup", "worksteal", "loadscope", "loadfile"])
def test_every_dist_mode_rolls_out_each_run_once(workspace: Workspace, dist: str) -> None:
    workspace.eval(rows=6, evaluation={"batch_size": 3})

    workspace.run(CONFIG, "-n2", f"--dist={dist}").assert_outcomes(passed=12 if dist == "each" else 6)
    assert sorted(event["row"] for event in workspace.events("start")) == list(range(6))


@pytest.mark.addon
def test_groups_of_xdist_are_not_part_of_a_tests_name(workspace: Workspace) -> None:
    """Before 9.2, pytest lets xdist append groups to node ids."""
    workspace.eval(rows=[{}, {"score": 0.0}])
    workspace.write("conftest.py", GROUPED)
    workspace.write("test_rollouts.py", OVER_ROLLOUTS)

    done = workspace.run(CONFIG, "test_rollouts.py", "--osmosis-source=model", "-n2", "--dist=loadgroup")

    done.assert_outcomes(passed=2, failed=2)
    hints = [line for line in done.outlines if line.startswith("run it again: ")]
    assert [hint.partition("[")[2].partition("]")[2][:1] for hint in hints] == ["'", "'"]


def test_stepwise_keeps_the_order_of_collection(workspace: Workspace) -> None:
    with ChatServer(slow(0.5, reply("slow")), reply("42")) as server:
        rows = [{}, {}, {"score": 0.0}, {}]
        workspace.eval(rows=rows, evaluation={"batch_size": 4}, model={"base_url": server.base_url})

        first = workspace.run(CONFIG, "--sw", "--osmosis-no-probe", "-v")
        again = workspace.run(CONFIG, "--sw", "--osmosis-no-probe")

    assert (first.ret, again.ret) == (2, 2)
    first.assert_outcomes(passed=2, failed=1)
    first.stdout.fnmatch_lines(["*x[[]row0-run0[]] PASSED*", "*x[[]row1-run0[]] PASSED*", "*x[[]row2-run0[]] FAILED*"])
    again.assert_outcomes(failed=1, deselected=2)


FIXTURES = """
import pytest

@pytest.fixture(scope="session", autouse=True)
def shared():
    print("<session up>")
    yield 1
    print("<session down>")

@pytest.fixture(scope="module")
def module():
    yield 2

def test_one(module): ...
def test_two(module): ...
"""


@PLAIN_AND_XDIST
def test_fixtures_are_set_up_and_torn_down_once(workspace: Workspace) -> None:
    workspace.eval("x", rows=4)
    workspace.eval("y", rows=4)
    workspace.write("tests/test_a.py", FIXTURES)
    workspace.write("tests/test_b.py", FIXTURES)

    result = workspace.run(
        "tests/test_a.py", "configs/eval/x.toml", "tests/test_b.py", "configs/eval/y.toml", "-v", "-s", "-Werror"
    )

    result.assert_outcomes(passed=12)
    assert "previous item was not torn down" not in result.stdout.str()
    if not workspace.distributed:
        said = result.outlines
        downs = [index for index, line in enumerate(said) if "<session down>" in line]
        assert sum("<session up>" in line for line in said) == 2  # each module has its own
        assert len(downs) == 2
        assert min(downs) >= max(index for index, line in enumerate(said) if ".toml::" in line)


LISTED = "osmosis_collect = list"
TOML = "configs/eval/x.toml"
PASSING = "def test_python():\n    pass\n"
SEEING = """
import json, pathlib

def pytest_collection_finish(session):
    seen = []
    for item in session.items:
        assert item.parent.path.is_file() and (".py" in item.nodeid or not hasattr(item, "callspec"))
        id = "::".join([str(item.path), *item.nodeid.split("::")[1:]])
        seen.append([id, str(item.path), item.location[1] + 1])
    pathlib.Path("seen.json").write_text(json.dumps(seen))
"""
"""A plugin that notes what VS Code's Python extension reads of items: for each test the id with which it is run, and
the place that opens at a click. Its discovery breaks where an assertion fails here (microsoft/vscode-python, commit
757def8, python_files/vscode_pytest/__init__.py).
"""


@pytest.fixture
def listing(workspace: Workspace) -> Workspace:
    """A workspace that lists evals, and whose plugin `seeing` notes what VS Code sees."""
    workspace.ini(LISTED)
    workspace.write("seeing.py", SEEING)
    return workspace


def seen(workspace: Workspace, name: str, *words: str) -> list[list[object]]:
    """Return what VS Code shows of the tests whose names begin so."""
    root = f"--rootdir={workspace.root}"
    assert workspace.run("-pseeing", root, "--collect-only", *words).ret in (0, 5)
    return [each for each in read_json(workspace.root / "seen.json") if each[0].split("::")[1].startswith(name)]


def click(workspace: Workspace, tests: list[list[object]], *words: str) -> pytest.RunResult:
    return workspace.run(f"--rootdir={workspace.root}", *words, *(str(id) for id, _, _ in tests))


@pytest.mark.journey
def test_vscode_runs_the_rows_of_one_eval_that_it_shows(listing: Workspace) -> None:
    listing.eval(rows=[{}, {"score": 0.0}, {}])
    listing.eval("y", rows=1)
    toml = listing.root / TOML
    line = next(n for n, text in enumerate(toml.read_text(encoding="utf-8").splitlines(), 1) if "dataset" in text)
    tests = seen(listing, "x")
    assert tests == [[f"{toml}::x[row{row}-run0]", str(toml), line] for row in range(3)]

    click(listing, tests[1:]).assert_outcomes(failed=1, passed=1)
    click(listing, tests).assert_outcomes(failed=1, passed=2)

    assert [len(listing.run_dirs(name)) for name in "xy"] == [2, 0]


def test_vscode_runs_an_eval_that_its_arguments_name(listing: Workspace) -> None:
    """`python.testing.pytestArgs` may name an eval anywhere; to run tests, VS Code drops positional ones."""
    listing.ini()
    listing.eval(rows=2, folder="of_others")
    toml = listing.write("evals/x.toml", (listing.root / "of_others" / TOML).read_text(encoding="utf-8"))
    listing.write("data/x.jsonl", '{"user_prompt": "1 + 2", "ground_truth": "3"}\n')
    listing.write("evals/rewards.py", (listing.root / "of_others/rewards.py").read_text(encoding="utf-8"))
    named = (f"--osmosis-dataset={listing.root}/data/x.jsonl", f"--osmosis-config={toml}")

    tests = seen(listing, "x", *named)

    assert [place for _, *place in tests] == [[str(toml), 1]]
    click(listing, tests, *named).assert_outcomes(passed=1)


def test_vscode_starts_no_eval_when_it_runs_everything(listing: Workspace) -> None:
    listing.eval(rows=[{"score": 0.0}, {}])
    listing.eval("y", rows=1)
    listing.write("test_python.py", PASSING)
    of_x, everything = seen(listing, "x"), seen(listing, "")
    of_evals = [each for each in everything if ".toml" in str(each[0])]
    click(listing, of_x)
    listing.eval("y", rows=1, secrets={"required": ["NOT_SET"]})  # nothing needs it

    result = click(listing, everything)
    evals = click(listing, of_evals)

    result.assert_outcomes(passed=1)
    assert (result.ret, evals.ret) == (0, 4)
    reason = 'with osmosis_collect = "list", node ids start an eval only if they all belong to it; select one eval'
    said = f"not started: configs/eval/x.toml, configs/eval/y.toml: {reason}"
    result.stdout.fnmatch_lines([f"*osmosis: {said}"])
    evals.stderr.fnmatch_lines([f"ERROR: {said}"])
    assert [len(listing.run_dirs(name)) for name in "xy"] == [1, 0]
    assert listing.last_failed() == {f"{TOML}::x[row0-run0]"}
    assert "row" not in (listing.root / ".pytest_cache/v/cache/nodeids").read_text(encoding="utf-8")
    listing.eval("y", rows=1)
    listing.run("configs/eval/y.toml", f"{TOML}::x[row1-run0]").assert_outcomes(passed=1)  # a whole eval is started
    assert [len(listing.run_dirs(name)) for name in "xy"] == [1, 1]


def test_python_tests_run_beside_an_eval_with_problems(listing: Workspace) -> None:
    listing.eval(rows=2)
    listing.write("test_python.py", PASSING)
    everything, rows = seen(listing, ""), seen(listing, "x")
    listing.eval(rows=2, experiment={"model_path": "nowhere/model"})

    click(listing, everything).assert_outcomes(passed=1)
    alone = click(listing, rows)
    assert alone.ret == 4
    alone.stderr.fnmatch_lines(['*configs/eval/x.toml*"nowhere"*'])
    click(listing, [], "--collect-only").stdout.fnmatch_lines(['osmosis: not listed: *"nowhere"*'])


def test_pycharm_runs_the_toml_of_a_run_configuration_and_no_eval_of_a_folder(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs pytest with teamcity-messages (JetBrains/intellij-community, `_jb_pytest_runner.py`)."""
    if not (COMPANIONS / "teamcity").is_dir():
        pytest.skip(f"{COMPANIONS} lacks teamcity-messages: make setup")
    monkeypatch.setenv("PYTHONPATH", str(COMPANIONS))
    monkeypatch.setenv("TEAMCITY_VERSION", "LOCAL")
    workspace.ini(LISTED)
    workspace.eval(rows=[{}, {"score": 0.0}])
    workspace.write("test_python.py", PASSING)

    def shown(path: Path) -> list[tuple[str, str]]:
        result = workspace.run_process(str(path), "--no-header", "--no-summary", "-q")
        return sorted(re.findall(r"##teamcity\[test(\w+) .*?name='([^']*)'\]", result.stdout.str()))

    assert shown(workspace.root) == [(what, "test_python.test_python") for what in ("Finished", "Started")]
    assert not (workspace.root / ".osmosis").exists()
    passed, failed = (f"configs.eval.x_toml.x(row{row}-run0)" for row in (0, 1))
    of_toml = shown(workspace.root / TOML)
    assert [each for each in of_toml if each[0] == "Started"] == [("Started", passed), ("Started", failed)]
    assert ("Finished", failed) in of_toml
    assert [row["runs"][0]["passed"] for row in workspace.results()["rows"]] == [True, False]


def test_the_launch_json_of_the_docs_runs_one_row_in_the_process_of_the_debugger(workspace: Workspace) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/gate-in-ci.md").read_text(encoding="utf-8")
    (launch,) = re.findall(r"^```json file=.vscode/launch.json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (debugging,) = json.loads(launch)["configurations"]
    assert (debugging["module"], debugging["subProcess"]) == ("pytest", False)
    agent = (
        "import os\nasync def rollout(ctx):\n    await ctx.chat(ctx.prompt)\n    print('rolled out in', os.getpid())\n"
    )
    workspace.write("agent.py", agent)
    workspace.eval("sums", agent={"agent": "agent:rollout"})
    result = workspace.run(*(word.replace("${input:row}", "2") for word in debugging["args"]), "-rP", exits=0)
    result.stdout.fnmatch_lines(["*sums[[]row2-run0[]]*"])
    assert [event["row"] for event in workspace.events("rollout", "sums")] == [2]
    assert f"rolled out in {os.getpid()}" in result.stdout.str()
