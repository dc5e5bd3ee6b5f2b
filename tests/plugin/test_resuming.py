"""Runs that are stopped or fail, and go on: what is stored is not paid for again, and what does not fit is refused.

-x, --maxfail, Ctrl-C, SIGTERM and kills leave no process behind. The server and the agent count what they were asked.
"""

from __future__ import annotations

import json
import shlex
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.plugin.test_stress import MARK
from tests.plugin.workspaces import (
    CONFIG,
    HURRY,
    PLAIN_AND_XDIST,
    UNDER_XDIST,
    Workspace,
    constants,
    hosts_under,
    junit_cases,
    processes_with,
    read_json,
    wait_until,
)
from tests.servers import ChatServer, by_row, held, reply, status

EVAL_X = "configs/eval/x.toml"
RESUME = "--osmosis-resume"
AGENT = """
import asyncio, os

async def rollout(ctx):
    with open("calls.log", "a") as log:
        log.write(f"{ctx.row_index}\\n")
    if os.path.exists(f"broken-{ctx.row_index}"):
        raise ValueError("the agent broke")
    while os.path.exists(f"slow-{ctx.row_index}"):
        await asyncio.sleep(0.02)
    await ctx.chat(ctx.prompt)
"""


def with_agent(workspace: Workspace, rows: int = 4, **tables: Mapping[str, Any]) -> None:
    """Write an eval whose agent counts its calls, and does what files in the workspace say."""
    workspace.write("agent.py", AGENT)
    given: dict[str, Mapping[str, Any]] = {"agent": {"agent": "agent:rollout"}, **tables}
    workspace.eval("x", rows, ".", **given)


def calls(workspace: Workspace) -> Counter[int]:
    log = workspace.root / "calls.log"
    return Counter(map(int, log.read_text().split())) if log.exists() else Counter()


def paste(workspace: Workspace, output: str) -> pytest.RunResult:
    """Run the last line of what pytest printed, as a shell would, without the options that `Workspace` adds."""
    program, *words = shlex.split(output.rstrip().splitlines()[-1])
    assert program == "pytest"
    added = (*workspace.plugins, *workspace.arguments)
    return workspace.run(*(word for word in words if word not in added and not word.startswith("-pno:")))


@pytest.mark.journey
def test_after_ctrl_c_the_last_line_is_the_command_that_goes_on(workspace: Workspace) -> None:
    workspace.hurry()
    with ChatServer(reply("42"), held(reply("42"))) as server:
        workspace.eval("x", rows=5, evaluation={"batch_size": 2}, model={"base_url": server.base_url})
        session = workspace.start(EVAL_X, "--osmosis-no-probe", "-k", "row0 or row1 or row2 or row3 or row4")
        wait_until(lambda: len(server.requests) == 3, "three requests")
        wait_until(lambda: workspace.events("score") and len(workspace.events("start")) == 3, "the first score")
        session.interrupt()
        assert session.wait() == 2, session.output  # which fails long before the deadlines of rollouts
        results = workspace.results()
        assert (results["status"], results["stop_reason"]) == ("stopped", "interrupted")
        assert [run["reason"] for run in results["pending"]] == ["interrupted"] * 4
        assert "\ninterrupted: 2 of 5 runs never started, 2 did not finish\n" in session.output
        assert "INTERNALERROR" not in session.output
        assert not hosts_under(workspace.root)
        server.release()

        resumed = paste(workspace, session.output)

        assert resumed.ret == 0
        asked = Counter(body["messages"][-1]["content"] for body in server.bodies)
    assert sorted(asked.values()) == [1, 1, 1, 2, 2]
    resumed.stdout.fnmatch_lines("""
        *: 1 of 5 rollouts stored, 4 left
          spent before: * tokens, *
          note: up to 2 rollouts were lost in flight, possibly billed
    """)
    resumed.stdout.fnmatch_lines("""
        1 of 5 runs is from earlier sessions
        up to 2 rollouts were lost in flight, possibly billed, and not counted here
    """)
    found = workspace.results()
    assert (found["status"], found["summary"]["total_runs"], found["summary"]["rolled_out_again"]) == ("finished", 5, 0)
    assert (found["provenance"]["sessions"], found["provenance"]["lost_in_flight"]) == (2, 2)
    ended = workspace.events("ended")
    assert [(event["status"], event["reason"]) for event in ended] == [("stopped", "interrupted"), ("finished", None)]
    assert [event["resumed"] for event in workspace.events("began")] == [False, True]


def test_a_finished_run_is_reported_from_its_journal_with_the_same_status(workspace: Workspace) -> None:
    with_agent(workspace, gate={"pass_rate": ">= 0.9"})
    workspace.eval("x", rows=[{}, {"score": 0.0}], agent={"agent": "agent:rollout"}, gate={"pass_rate": ">= 0.9"})
    first = workspace.run(EVAL_X, "--osmosis-run=one", "-rA")
    journal = (workspace.run_dirs("one")[-1] / "journal.jsonl").read_bytes()

    again = workspace.run(EVAL_X, "--osmosis-run=one", "-rA")
    nothing = workspace.run(EVAL_X, RESUME)

    assert (first.ret, again.ret, nothing.ret) == (1, 1, 4)
    assert calls(workspace).total() == 2
    assert (workspace.run_dirs("one")[-1] / "journal.jsonl").read_bytes() == journal
    told = [
        [line for line in each.outlines if "row1-run0" in line or "conversation" in line] for each in (first, again)
    ]
    assert told[0] == told[1] != []
    nothing.stderr.fnmatch_lines(["*: no eval run has anything left to do: one; leave out --osmosis-resume to begin *"])
    assert "Continue" not in again.stdout.str()
    assert not again.outlines[-1].startswith("pytest")

    (workspace.run_dirs("one")[-1] / "journal.jsonl").write_text("")
    emptied = workspace.run(EVAL_X, "--osmosis-run=one", exits=4)
    assert calls(workspace).total() == 2, "what was paid for is not made again unasked"
    emptied.stderr.fnmatch_lines(["*run one: its journal * is empty, though results were written*"])


def test_failures_of_the_infrastructure_are_repeated_and_others_on_request(workspace: Workspace) -> None:
    with ChatServer(reply("42"), status(400, {"error": {"message": "no"}}), status(503), reply("42")) as server:
        model = {"base_url": server.base_url, "max_retries": 0}
        with_agent(workspace, rows=5, model=model, limits={"max_errors": 5})
        (workspace.root / "broken-4").touch()
        first = workspace.run(EVAL_X, "--osmosis-run=one", "--osmosis-no-probe")
        failed = workspace.results("one")["summary"]["boundaries"]
        plain = workspace.run(EVAL_X, RESUME, "--osmosis-no-probe")
        after_plain = workspace.results("one")["summary"]["boundaries"]
        calls_before = calls(workspace)
        (workspace.root / "broken-4").unlink()
        retried = workspace.run(EVAL_X, RESUME, "--osmosis-retry-failed", "--osmosis-no-probe")

    assert (first.ret, plain.ret, retried.ret) == (1, 1, 0)
    assert (failed, after_plain) == ({"agent": 1, "model": 1, "provider": 1}, {"agent": 1, "model": 1})
    assert calls_before == Counter({0: 1, 1: 1, 2: 2, 3: 1, 4: 1})
    assert calls(workspace) - calls_before == Counter({1: 1, 4: 1})
    found = workspace.results("one")
    assert (found["summary"]["boundaries"], found["summary"]["rolled_out_again"]) == ({}, 0)
    assert "second time" not in retried.stdout.str()
    attempts = [run["attempt"] for row in found["rows"] for run in row["runs"]]
    assert attempts == [1, 2, 2, 1, 2]


def test_a_run_grows_by_n_by_rows_and_by_parts(workspace: Workspace) -> None:
    with_agent(workspace, rows=4)
    part = workspace.run(EVAL_X, "--osmosis-run=one", "--osmosis-limit=3", "-k", "row1")
    assert (part.ret, calls(workspace)) == (0, Counter({1: 1}))

    whole = workspace.run(EVAL_X, "--osmosis-run=one", "--osmosis-limit=3", "--osmosis-inline")
    assert (whole.ret, calls(workspace)) == (0, Counter({0: 1, 1: 1, 2: 1}))

    grown = workspace.run(EVAL_X, "--osmosis-run=one", "--osmosis-n=2", "--osmosis-granularity=row")
    assert (grown.ret, calls(workspace)) == (0, Counter({0: 2, 1: 2, 2: 2, 3: 2}))
    found = workspace.results("one")
    assert (found["summary"]["total_runs"], found["partial"]) == (8, False)

    workspace.run(EVAL_X, "--osmosis-run=one", "--osmosis-limit=3", exits=4).stderr.fnmatch_lines(
        ["*cannot be resumed*these changed:", "*n: 2 -> 1, and it may only grow", "*selected rows*"]
    )

    seen = workspace.run(EVAL_X, "--osmosis-run=one", "--osmosis-n=2", "-k", "row0")
    assert (seen.ret, calls(workspace).total()) == (0, 8)
    assert workspace.results("one")["summary"]["total_runs"] == 8, "a part does not replace the results of the whole"


def test_changed_code_refuses_before_any_request_and_fresh_keeps_the_old_run(workspace: Workspace) -> None:
    with_agent(workspace, rows=2)
    workspace.run(EVAL_X, "--osmosis-run=one")
    workspace.write("agent.py", AGENT.replace("the agent broke", "it broke"))

    refused = workspace.run(EVAL_X, "--osmosis-run=one")
    fresh = workspace.run(EVAL_X, "--osmosis-run=one", "--osmosis-fresh")

    assert (refused.ret, fresh.ret) == (4, 0)
    refused.stderr.fnmatch_lines(["*run one: cannot be resumed*", "*agent.py: changed"])
    assert calls(workspace) == Counter({0: 2, 1: 2})
    [archived] = (workspace.root / ".osmosis" / "runs").glob("one.archived-*")
    assert read_json(archived / "results.json")["summary"]["total_runs"] == 2
    assert workspace.results("one")["provenance"]["sessions"] == 1

    workspace.write("agent.py", "import nowhere_at_all\n")
    workspace.run(EVAL_X, "--osmosis-run=one", "--osmosis-fresh", exits=4)
    assert {path.name for path in archived.parent.iterdir()} == {"one", archived.name}, "nothing is taken away"
    assert (workspace.run_dirs("one")[-1] / "results.json").exists()


def test_after_maxfail_the_command_lifts_it(workspace: Workspace) -> None:
    workspace.hurry()
    workspace.write("agent.py", AGENT)
    workspace.eval("x", rows=[{"score": 0.0}, *({} for _ in range(5))], agent={"agent": "agent:rollout"})
    (workspace.root / "slow-2").touch()
    stopped = workspace.run(EVAL_X, "-x")
    (workspace.root / "slow-2").unlink()
    lost = calls(workspace) - Counter(event["row"] for event in workspace.events("rollout"))
    assert stopped.outlines[-1].endswith(f"{EVAL_X} -x --maxfail=0 {RESUME}")

    resumed = paste(workspace, "\n".join(stopped.outlines))

    assert resumed.ret == 1
    assert calls(workspace) == Counter(range(6)) + lost


def test_without_a_name_the_newest_run_that_fits_goes_on(workspace: Workspace) -> None:
    with_agent(workspace, rows=3)
    now, part = (EVAL_X, "--osmosis-limit=2"), ("-k", "row0")
    workspace.run(*now, "--osmosis-run=fits", *part)
    workspace.run(*now, "--osmosis-run=done")
    workspace.run(*now, "--osmosis-run=hot", "--osmosis-temperature=0.9", *part)
    workspace.run(*now, "--osmosis-run=twice", "--osmosis-n=2", *part)
    workspace.run(EVAL_X, "--osmosis-run=more", "--osmosis-limit=3", *part)
    workspace.run(*now, "--osmosis-run=other", "--osmosis-model=demo/judge", *part)
    workspace.run(*now, "--osmosis-run=other-done", "--osmosis-model=demo/judge")
    before = calls(workspace).total()

    resumed = workspace.run(*now, RESUME)

    assert (resumed.ret, calls(workspace).total() - before) == (0, 1)
    assert workspace.results("fits")["summary"]["total_runs"] == 2

    shutil.rmtree(workspace.run_dirs("other-done")[-1])
    refused = workspace.run(*now, RESUME)

    assert (refused.ret, calls(workspace).total() - before) == (4, 1)
    refused.stderr.fnmatch_lines("""
        ERROR: configs/eval/x.toml: no stored eval run of x can be resumed:
          fits: has nothing left to do
          other: [[]experiment] model_path: "demo/judge" -> "demo/arithmetic"; [[]model] model: *
          more: the selected rows: *, without row 2
          twice: [[]evaluation] n: 2 -> 1*
          hot: [[]sampling] temperature: 0.9 -> not set
          and 1 more
        undo what differs, or leave out --osmosis-resume to begin a new eval run, which costs money
    """)


def test_without_a_name_no_run_grows_by_n_and_rows_may_be_added(workspace: Workspace) -> None:
    with_agent(workspace, rows=3)
    workspace.run(EVAL_X, "--osmosis-limit=2", "--osmosis-run=one")

    refused = workspace.run(EVAL_X, "--osmosis-n=2", RESUME)
    grown = workspace.run(EVAL_X, RESUME)

    assert (refused.ret, grown.ret, calls(workspace)) == (4, 0, Counter(range(3)))
    refused.stderr.fnmatch_lines(["  one: [[]evaluation] n: 1 -> 2; --osmosis-run=one adds them"])


def test_of_several_evals_none_is_reported_from_a_run_that_does_not_fit(workspace: Workspace) -> None:
    with_agent(workspace, rows=2)
    workspace.eval("y", rows=2)
    both = (EVAL_X, "configs/eval/y.toml", "--osmosis-model=demo/arithmetic")
    workspace.run(EVAL_X, "--osmosis-run=x1", "--osmosis-model=demo/judge")
    workspace.run("configs/eval/y.toml", "--osmosis-run=y1", "-k", "row0")

    result = workspace.run(*both, RESUME)

    assert result.ret == 4, "nothing was spent yet"
    assert "ERROR: no stored eval run of x can be resumed:\n  x1: [experiment] model_path: " in result.stderr.str()


@pytest.mark.addon
def test_tests_over_rollouts_go_on_too(workspace: Workspace) -> None:
    with_agent(workspace, rows=3)
    workspace.write(
        "test_answers.py",
        "import pytest\n\n@pytest.mark.osmosis_eval('configs/eval/x.toml')\n"
        "def test_answer(rollout):\n    assert rollout.messages[-1]['role'] == 'assistant'\n",
    )
    first = workspace.run("test_answers.py", "--osmosis-source=model", "--osmosis-run=one", "-k", "row0")
    again = workspace.run("test_answers.py", "--osmosis-source=model", "--osmosis-run=one")

    assert (first.ret, again.ret) == (0, 0)
    assert calls(workspace) == Counter(range(3))


def test_a_judge_that_could_not_be_asked_is_asked_again(workspace: Workspace) -> None:
    verdict = reply(json.dumps({"score": 1.0, "explanation": "right"}))
    with ChatServer(verdict, status(503), verdict) as judge:
        judged = {"model_path": "served", "base_url": judge.base_url, "max_retries": 0}
        scoring = {"eval_fns": ["rewards:score"], "rubric": "Is the number right?"}
        with_agent(workspace, rows=3, scoring=scoring, judge=judged, limits={"max_errors": 3})
        first = workspace.run(EVAL_X, "--osmosis-run=one", "--osmosis-no-probe")
        asked = len(judge.requests)
        again = workspace.run(EVAL_X, "--osmosis-run=one", "--osmosis-no-probe")
    assert (first.ret, again.ret) == (1, 0)
    assert (calls(workspace), asked, len(judge.requests)) == (Counter(range(3)), 3, 4)
    found = workspace.results("one")
    assert [run["scores"]["rubric"] for row in found["rows"] for run in row["runs"]] == [1.0] * 3


@pytest.mark.parametrize(
    ("words", "n_rollouts"),
    [
        (["--osmosis-granularity=row", "--osmosis-n=2"], 6),
        (["--osmosis-smoke", "--osmosis-smoke-rows=3"], 3),
        (["--osmosis-baseline-model=demo/arithmetic"], 6),
        (["--osmosis-stop-when-decided", "--osmosis-gate=pass_rate >= 0.9"], 3),
    ],
    ids=["row", "smoke", "baseline", "decided"],
)
def test_runs_of_every_kind_go_on(workspace: Workspace, words: list[str], n_rollouts: int) -> None:
    with_agent(workspace, rows=3)
    workspace.run(EVAL_X, "--osmosis-run=one", *words, "-k", "row0")
    assert 0 < calls(workspace).total() < n_rollouts

    workspace.run(EVAL_X, "--osmosis-run=one", *words, exits=0)

    assert calls(workspace).total() == n_rollouts
    assert workspace.results("one")["provenance"]["sessions"] == 2


def test_after_an_internal_error_of_pytest_the_command_is_printed_too(workspace: Workspace) -> None:
    workspace.hurry()
    with_agent(workspace, rows=3)
    (workspace.root / "slow-2").touch()
    workspace.write(
        "broken_plugin.py",
        "def pytest_runtest_logreport(report):\n    if 'row0' in report.nodeid: raise OSError('no')\n",
    )

    broken = workspace.run(EVAL_X, "-pbroken_plugin", "--osmosis-run=one", exits=3)

    assert broken.outlines[-1].startswith("pytest ")
    assert broken.outlines[-1].endswith(f"{EVAL_X} -pbroken_plugin --osmosis-run=one")


@PLAIN_AND_XDIST
def test_maxfail_keeps_further_runs_from_beginning(workspace: Workspace) -> None:
    with ChatServer(by_row({0: [reply("42")], 1: [reply("42")]}, held(reply("42")))) as server:
        workspace.hurry()
        model = {"base_url": server.base_url}
        workspace.eval(rows=[{"score": 0.0}] * 8, evaluation={"batch_size": 2}, execution={"hosts": 1}, model=model)

        result = workspace.run(CONFIG, "--maxfail=2", "--osmosis-no-probe", "--junitxml=junit.xml")

        assert result.ret == (2 if workspace.distributed else 1)
        assert result.parseoutcomes()["failed"] == 2
        assert server.max_in_flight <= 2
        assert len(server.requests) <= 5
    results = workspace.results()
    assert results["status"] == "stopped"
    assert results["summary"]["total_runs"] == results["summary"]["measured"] == 2
    assert len(results["pending"]) == 6
    cases = junit_cases(workspace.root / "junit.xml").values()
    assert sum(case.find("failure") is not None for case in cases) == 2, "what was prevented has no report"
    assert all(pending["reason"] for pending in results["pending"])
    assert not hosts_under(workspace.root)


@pytest.mark.parametrize("status", [7, 0])
def test_an_exit_status_that_a_test_sets_stays_and_what_ran_is_printed(workspace: Workspace, status: int) -> None:
    workspace.hurry()
    workspace.write("test_python.py", f"import pytest\ndef test_python(): pytest.exit('bye', {status})\n")
    with ChatServer(held(reply("42"))) as server:
        workspace.eval(rows=4, gate={"pass_rate": ">= 0.9"}, model={"base_url": server.base_url})

        result = workspace.run(CONFIG, "test_python.py", "--osmosis-no-probe")

    assert result.ret == status
    summaries = [line for line in result.outlines if line.startswith("results: .osmosis/runs/x-")]
    assert len(summaries) == 1
    assert workspace.results()["status"] == "stopped"


def test_a_test_that_exits_under_xdist_is_not_green(workspace: Workspace) -> None:
    workspace.hurry()
    workspace.eval(rows=4)
    workspace.write("test_python.py", "import pytest\ndef test_python(): pytest.exit('bye', 7)\n")

    result = workspace.run(CONFIG, "test_python.py", "-n2")

    assert result.ret == pytest.ExitCode.INTERNAL_ERROR, "xdist itself does not survive it"
    result.stdout.fnmatch_lines(["results: .osmosis/runs/x-*"])


@PLAIN_AND_XDIST
def test_with_x_a_python_test_that_fails_stops_evals_and_starts_no_other(workspace: Workspace) -> None:
    with ChatServer(held(reply("42"))) as server, ChatServer() as of_y:
        workspace.hurry()
        workspace.eval("x", rows=4, evaluation={"batch_size": 2}, model={"base_url": server.base_url})
        workspace.eval("y", rows=2, model={"base_url": of_y.base_url})
        workspace.write("test_python.py", "def test_python(): raise AssertionError\n")

        result = workspace.run(CONFIG, "configs/eval/y.toml", "test_python.py", "-x", "--osmosis-no-probe")

        assert not of_y.requests
    assert result.ret == (2 if workspace.distributed else 1)
    pending = [*workspace.results("x")["pending"], *workspace.results("y")["pending"]]
    assert len(pending) == 4 + 2
    assert all(run["reason"] for run in pending)
    assert not hosts_under(workspace.root)


@PLAIN_AND_XDIST
@pytest.mark.parametrize("twice", [False, True], ids=["SIGTERM", "Ctrl-C twice"])
def test_sigterm_and_a_second_ctrl_c_end_at_once_and_keep_finished_runs(workspace: Workspace, twice: bool) -> None:
    with ChatServer(reply("42"), held(reply("42"))) as server:
        workspace.hurry()
        workspace.eval("x", rows=6, evaluation={"batch_size": 2}, model={"base_url": server.base_url})
        workspace.eval("y", rows=2)
        if twice:
            workspace.write("hurry.py", constants({**HURRY, "plugin.eval_queue.INTERRUPT_GRACE_S": 600.0}))
        session = workspace.start(CONFIG, "--osmosis-no-probe")
        wait_until(lambda: len(server.requests) == 3, "three requests")
        wait_until(lambda: workspace.events("score") and len(workspace.events("start")) == 3, "the first score")

        if twice:
            session.interrupt()
            wait_until(lambda: workspace.events("skip"), "the first Ctrl-C to be heeded")
            session.interrupt()
        else:
            session.terminate()

        assert session.wait() == 2, session.output
    results = workspace.results("x")
    assert len(results["pending"]) == 5
    assert all(run["reason"] for run in results["pending"])
    if not twice:
        assert results["summary"]["total_runs"] == 1
        assert "\ninterrupted: 3 of 6 runs never started, 2 did not finish\n" in session.output
    assert "INTERNALERROR" not in session.output
    assert not hosts_under(workspace.root)


C_LOOP = """
import itertools, os, pathlib

def loop():
    pathlib.Path(f"looping-{os.getpid()}").touch()
    sum(itertools.repeat(0))  # holds the lock of the interpreter for ever
"""
LOOPING = "from c_loop import loop\n\nasync def rollout(ctx):\n    loop()\n"
FORKING = """
import os
from c_loop import loop

async def rollout(ctx):
    if os.fork() == 0:
        loop()
    while not any(name.startswith("looping") for name in os.listdir()):
        pass
    loop()
"""
ASYNC_SCORE = "from c_loop import loop\n\nasync def score(solution_str):\n    loop()\n"
SCORE = "from c_loop import loop\n\ndef score(solution_str, ground_truth):\n    loop()\n"


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """Return the function that finds the processes which the test started."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    return lambda: processes_with(f"{MARK}={mark}")


def killed_in_loops(workspace: Workspace, n_loops: int, *args: str) -> None:
    """Start pytest, and kill it once `n_loops` processes are in a loop."""
    workspace.write("c_loop.py", C_LOOP)
    session = workspace.start(*args)
    wait_until(lambda: len(list(workspace.root.glob("looping-*"))) >= n_loops, "processes in a C loop")
    session.kill_only()


@pytest.mark.parametrize(
    ("agent", "rewards", "n_loops"),
    [(LOOPING, SCORE, 1), (FORKING, SCORE, 2), (None, SCORE, 1), (None, ASYNC_SCORE, 1)],
    ids=["agent", "forked by an agent", "scorer", "async scoring"],
)
def test_hosts_end_with_a_killed_pytest(
    workspace: Workspace, marked: Callable[[], list[int]], agent: str | None, rewards: str, n_loops: int
) -> None:
    workspace.write("rewards.py", rewards)
    if agent is not None:
        workspace.write("agent.py", agent)
    workspace.eval(rows=2, agent={"agent": "agent:rollout"} if agent else {})
    killed_in_loops(workspace, n_loops, "--osmosis-config=configs/eval/x.toml")
    wait_until(lambda: not marked(), "the hosts to end")


@pytest.mark.parametrize(
    ("workspace", "args"),
    [([], ("--osmosis-lab", "-klab")), (["-n2"], ("-k", "cases"))],
    ids=["children of the lab", "workers of xdist"],
    indirect=["workspace"],
)
def test_tests_of_reward_functions_end_with_a_killed_pytest(
    workspace: Workspace, marked: Callable[[], list[int]], args: tuple[str, ...]
) -> None:
    workspace.write("rewards.py", SCORE)
    workspace.write("rewards.cases.toml", '[[score]]\nsolution_str = "1"\nground_truth = "1"\nexpect = 1\n')
    killed_in_loops(workspace, 1, "rewards.py", *args)
    wait_until(lambda: not marked(), "the processes to end")


@UNDER_XDIST
def test_children_of_the_lab_end_with_a_killed_worker(workspace: Workspace, marked: Callable[[], list[int]]) -> None:
    workspace.write("c_loop.py", C_LOOP)
    workspace.write("rewards.py", SCORE)
    session = workspace.start("rewards.py", "--osmosis-lab", "-klab")
    wait_until(lambda: list(workspace.root.glob("looping-*")), "a process in a C loop")
    looping = {int(path.name.partition("-")[2]) for path in workspace.root.glob("looping-*")}
    session.kill_workers()
    wait_until(lambda: not looping & set(marked()), "the processes of the lab to end")
    session.kill_only()
    wait_until(lambda: not marked(), "every process to end")
