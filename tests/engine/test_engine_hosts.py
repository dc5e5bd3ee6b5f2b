"""Several hosts for one eval: limits that they share, the cost of a killed host, lost machines, and requests to stop.

No run is rolled out more often than it must, user code is not blamed for machines, and none waits for ever: messages
may wait for their reader, but a host never does.
"""

from __future__ import annotations

import os
import queue
import resource
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.engine import host_connection as pipes
from pytest_osmosis.engine import hosts, recovery
from pytest_osmosis.engine.host_connection import Connection, Died, Heard, HostConnection, HostEnviron, Post
from pytest_osmosis.engine.hosts import MOST_LOST
from pytest_osmosis.host.protocol import HostCode, Key, Setup
from pytest_osmosis.processes.child import Child
from pytest_osmosis.record.lifecycle import Stop
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.report.summary import notice_lines
from pytest_osmosis.results.results import causes_of
from pytest_osmosis.verdicts.pass_rule import reason_of
from tests.engine.evaluating import DEADLINE_S, Workspace, asked_rows, evaluated, running
from tests.engine.stepped import ROWS, RUN, Make, ScriptedHost, SteppedEngine, resuming
from tests.servers import ChatServer, held, reply, slow


class Unplaced(ScriptedHost):
    def __init__(self, name: str, post: Post) -> None:
        super().__init__(name, post)
        self.placed_at = None

    def kill(self) -> None:
        self._post(Died(self, "it was ended while it waited for a place", by="machine"))


@pytest.mark.slow
def test_a_host_sends_as_many_requests_as_it_has_runs_once_it_has_the_share_of_another(workspace: Workspace) -> None:
    """Its client has room for them, too: a request that waits for a connection counts as failed after a while."""
    spawned: list[str] = []

    def spawn(name: str, setup: Setup, **options: Any) -> Connection:
        spawned.append(name)
        is_second = name == "host" and spawned.count("host") == 2
        return Unplaced(name, options["post"]) if is_second else HostConnection(name, setup, **options)

    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": "42"} for row in range(9)])
    with ChatServer(held(reply("42"))) as server:
        config = workspace.config(server, evaluation={"batch_size": 4}, execution={"hosts": 2})
        with running(config, spawn=spawn) as live:
            server.wait_for(lambda server: server.in_flight == 4)
            server.release()
            live.wait()
        assert server.max_in_flight == 4
    assert live.kinds() == ["passed"] * 9


@pytest.mark.parametrize(
    ("batch_size", "n_hosts"),
    [pytest.param(1, 1, marks=pytest.mark.slow), pytest.param(3, 1, marks=pytest.mark.slow), (4, 2)],
)
def test_a_killed_host_costs_only_the_rollouts_it_had_begun(
    workspace: Workspace, batch_size: int, n_hosts: int
) -> None:
    """They are rolled out once more, one at a time."""
    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": "42"} for row in range(8)])
    n_begun = batch_size // n_hosts
    with ChatServer(held(slow(0.1, reply("42")))) as server:
        config = workspace.config(server, evaluation={"batch_size": batch_size}, execution={"hosts": n_hosts})
        with running(config) as live:
            server.wait_for(lambda server: server.in_flight == batch_size)
            live.wait_for(lambda: live.run.engine.progress.in_flight == batch_size)
            os.killpg(live.host("host").pid, signal.SIGKILL)
            server.wait_for(lambda server: len(server.requests) > batch_size)
            live.host("quarantine")
            server.release()
            live.wait()
            live.wait_for(lambda: {host.role for host in live.hosts} == {"host", "scorer"})
        again = {row for row, times in asked_rows(server).items() if times == 2}
        assert sorted(asked_rows(server).values()) == [1] * (8 - n_begun) + [2] * n_begun
        if n_hosts == 1:  # else another host may send a request before the server learns that one is gone
            assert server.max_in_flight == batch_size
    assert live.kinds() == ["passed"] * 8
    assert {row for row in range(8) if live.record(row).attempt == 2} == again
    assert live.run.engine.progress.repeated == n_begun
    starts = [(event["row"], event["at"]) for event in live.events("start") if event["attempt"] == 2]
    ends = {event["row"]: event["at"] for event in live.events("rollout")}
    assert all(ends[before] <= at for (before, _), (_, at) in pairwise(starts)), "one at a time"
    assert any("rolled out once more" in text for text in live.run.engine.notices.texts)


def test_exit_handlers_run_although_a_thread_never_ends(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's logging registers one when it is imported; coverage and other tools when the interpreter starts."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sitecustomize.py").write_text("import atexit\natexit.register(lambda: open('tool', 'w').close())\n")
    monkeypatch.setenv("PYTHONPATH", str(tools))
    monkeypatch.setattr(hosts, "CLOSE_S", DEADLINE_S)  # no host is killed because it is slow to end
    workspace.agent(
        """
        import atexit, logging.handlers, threading
        threading.Thread(target=threading.Event().wait).start()
        atexit.register(lambda: open("ended", "w").close())
        memory = logging.handlers.MemoryHandler(1000, target=logging.FileHandler("logged"))
        async def rollout(ctx):
            memory.emit(logging.makeLogRecord({"msg": "kept to the end", "levelno": 20}))
            return [*ctx.prompt, {"role": "assistant", "content": "42"}]
        """
    )
    assert evaluated(workspace.config(None)).kinds() == ["passed"] * 4
    assert "kept to the end" in (workspace.root / "logged").read_text()
    assert (workspace.root / "ended").exists()
    assert (workspace.root / "tool").exists()


def test_a_host_whose_user_code_closed_stdout_ends_without_an_error(workspace: Workspace) -> None:
    workspace.agent(
        """
        async def rollout(ctx):
            sys.stdout = open(os.devnull, "w")
            sys.stdout.close()
            return [*ctx.prompt, {"role": "assistant", "content": "42"}]
        """
    )
    live = evaluated(workspace.config(None))
    assert live.kinds() == ["passed"] * 4
    assert live.run_files().get("host.log", "") == ""


def test_a_second_close_does_not_interrupt_the_closing_of_clients(workspace: Workspace, server: ChatServer) -> None:
    """The engine sends `close` when nothing is left for a host, and once more when the session ends."""
    workspace.agent(
        """
        import aiohttp
        close = aiohttp.ClientSession.close
        async def slowly(self):
            open("closing", "w").close()
            await asyncio.sleep(0.5)
            await close(self)
        aiohttp.ClientSession.close = slowly
        async def rollout(ctx):
            await ctx.chat(ctx.prompt)
        """
    )
    with running(workspace.config(server)) as live:
        live.wait()
        live.run.engine.release()
        live.wait_for((workspace.root / "closing").exists, "for the client to be closed")
    assert live.run_files().get("host.log", "") == ""


def test_an_accounting_error_names_the_runs(workspace: Workspace) -> None:
    live = evaluated(workspace.config(None))
    recorder, runs = live.loop.recorder, set(live.run.selected.runs)
    assert recorder.discrepancy(runs) is None
    assert "1 run never reported (such as row9-run0)" in str(recorder.discrepancy(runs | {RunId(9, 0)}))
    assert "1 run not submitted (such as row0-run0)" in str(recorder.discrepancy(runs - {RunId(0, 0)}))
    recorder.reports.sent[RunId(1, 0)] += 1
    assert "1 run reported twice (such as row1-run0)" in str(recorder.discrepancy(runs))


def test_a_host_may_open_more_files_than_shells_allow(workspace: Workspace, server: ChatServer) -> None:
    workspace.agent("""
        async def rollout(ctx):
            files = [open(os.devnull) for _ in range(300)]
            reply = await ctx.chat(ctx.prompt)
            return [*ctx.prompt, reply.message]
    """)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        live = evaluated(workspace.config(server))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert live.kinds() == ["passed"] * 4, live.events("rollout")


REQUESTED = Stop("requested", "stopped with pytest-osmosis runs stop")


def test_a_stop_that_is_requested_before_the_first_run_asks_no_model(make: Make) -> None:
    stepped = make(probes=(ModelTag.PRIMARY,))
    stepped.engine.pause()
    stepped.begin()
    stepped.engine.job.stop_request.touch()
    stepped.later(1.0)
    stepped.engine.resume()
    stepped.turn()
    host = stepped.host("host")
    assert (host.asked("probe"), host.runs(), stepped.kinds()) == ([], [], ["skipped"] * 4)
    assert stepped.engine.stopped == REQUESTED


@pytest.mark.parametrize("n_begun", [2, 4])
def test_a_requested_stop_begins_no_further_run_and_lets_those_in_flight_finish(make: Make, n_begun: int) -> None:
    """It changes nothing after the last run began."""
    stepped = make(batch_size=n_begun, scorers={"exact": False}).begin()
    host, (begun, left) = stepped.host("host"), (stepped.runs[:n_begun], stepped.runs[n_begun:])
    stepped.after(host.starts, *begun)
    stepped.engine.job.stop_request.touch()
    stepped.later(1.0)
    assert bool(host.asked("drop")) == bool(left)
    host.say("dropped", runs=[Key(run, 1).to_json() for run in left])
    for run in begun:
        host.rolls(run)
    stepped.after(host.scores, *begun)
    assert sorted(stepped.kinds()) == ["passed"] * n_begun + ["skipped"] * len(left)
    assert stepped.engine.stopped == (REQUESTED if left else None)


BLOCKING, ASYNC = {"exact": True}, {"judge": False}
LOST = "its machine was lost three times (node n1 was lost)"


def roll_out(stepped: SteppedEngine) -> ScriptedHost:
    host = stepped.begin().host("host")
    stepped.after(host.rolls_out, RUN)
    return host


def boundaries(stepped: SteppedEngine) -> list[tuple[str, str]]:
    """Return the error of each function that gave no score, as (boundary, message)."""
    errors = (error for event in stepped.events("score") for error in event["errors"].values())
    return [(error.get("boundary", "reward"), error["message"]) for error in errors]


def check_reported_as_unmeasured(stepped: SteppedEngine, message: str) -> None:
    """Check that the only function is not to blame, by the record of the only run, its test and the results."""
    stepped.end()
    assert boundaries(stepped) == [("host", message)]
    record, rule = stepped.engine.ledger.records[RUN], stepped.engine.recorder.pass_rule
    [function] = stepped.scorers
    assert stepped.kinds() == ["error"]
    assert (rule.boundary(record), rule.measured(record)) == ("host", False)
    assert reason_of(record, rule) == f"host: {function}: {message}"
    [cause] = causes_of([record], rule)
    assert (cause.boundary, cause.is_measured) == ("host", False)
    assert stepped.engine.progress.unmeasured == 1


@pytest.mark.parametrize(
    ("role", "grouped"),
    [("scorer", []), ("host", []), ("host", ["judge"]), ("quarantine", []), ("quarantine", ["judge"])],
)
def test_a_function_for_which_no_process_can_be_started_is_not_to_blame(
    make: Make, role: str, grouped: list[str]
) -> None:
    """Nor is one of a group."""
    stepped = make(1, scorers=BLOCKING if role == "scorer" else ASYNC, grouped=grouped)
    host = roll_out(stepped)
    stepped.spawns = False
    if role == "quarantine":
        host.say("scoring", RUN, name="judge")
    if role == "scorer":
        stepped.host("scorer").die()
    stepped.after(host.die)
    stepped.turn()
    check_reported_as_unmeasured(stepped, "no memory")


@pytest.mark.parametrize(("scorers", "grouped"), [(BLOCKING, []), (ASYNC, []), (ASYNC, ["judge"])])
def test_scoring_that_loses_its_machine_three_times_is_not_to_blame(
    make: Make, scorers: Mapping[str, bool], grouped: list[str]
) -> None:
    stepped = make(1, scorers=scorers, grouped=grouped)
    roll_out(stepped)
    [name] = scorers
    for role in ["scorer"] * 3 if scorers is BLOCKING else ["host", "host", "quarantine"]:
        stepped.is_ready(stepped.host(role))
        stepped.host(role).say("scoring", RUN, name=name)
        stepped.after(stepped.host(role).is_lost)
    check_reported_as_unmeasured(stepped, LOST)


def test_a_lost_scorer_leaves_its_place_to_the_next_where_one_may_score_at_once(make: Make) -> None:
    stepped = make(1, scorers=BLOCKING, most_scorings=1)
    roll_out(stepped)
    for _ in range(2):
        scorer = stepped.host("scorer")
        stepped.is_ready(scorer)
        assert len(scorer.asked("score")) == 1
        stepped.after(scorer.is_lost)


def test_a_function_that_ends_two_processes_is_to_blame(make: Make) -> None:
    stepped = make(1, scorers=BLOCKING)
    roll_out(stepped)
    for _ in range(2):
        stepped.is_ready(stepped.host("scorer"))
        stepped.host("scorer").say("scoring", RUN, name="exact")
        stepped.after(stepped.host("scorer").die)
    stepped.end()

    assert boundaries(stepped) == [("reward", "ended its process twice (SIGKILL)")]
    assert stepped.host("host").runs() == [RUN], "a scorer that ends costs no rollout"


@pytest.mark.parametrize(("scorers", "grouped"), [(BLOCKING, []), (ASYNC, []), (ASYNC, ["judge"])])
def test_a_resumed_eval_scores_what_no_process_could_score_and_rolls_nothing_out_again(
    make: Make, scorers: Mapping[str, bool], grouped: list[str]
) -> None:
    first = make(1, scorers=scorers, grouped=grouped, score_inputs=ROWS)
    host = roll_out(first)
    first.spawns = False
    if scorers is BLOCKING:
        first.host("scorer").die()
    host.die()
    first.turn()
    first.turn()
    first.end()

    resume = resuming(first.path)
    assert (resume.resumption.is_kept(RUN), resume.resumption.is_left(RUN)) == (True, True)
    second = make(1, scorers=scorers, grouped=grouped, score_inputs=ROWS, resume=resume)
    second.begin().turn()
    if scorers is BLOCKING:
        second.is_ready(second.host("scorer"))
    scoring = second.host("scorer" if scorers is BLOCKING else "host")
    assert len(scoring.asked("score_group" if grouped else "score")) == 1
    [name] = scorers
    scoring.scores(RUN, name=name)
    second.turn()
    second.end()

    assert second.kinds() == ["passed"]
    assert second.host("host").runs() == []
    assert len(second.events("rollout")) == 1
    assert second.engine.stopped is not None
    assert second.engine.stopped.reason == "closed"


def test_a_machine_that_fails_again_and_again_gets_one_line_and_a_count_in_the_summary(make: Make) -> None:
    stepped = make(20, hosts=2, scorers=ASYNC).begin()
    bad = stepped.host("host")
    for _ in range(3):
        stepped.after(bad.is_lost)
        stepped.later(recovery.REPORT_S)
        bad = stepped.host("host")
    stepped.end()

    assert stepped.engine.notices.alerts == ["node n1 was lost"]
    assert notice_lines(stepped.engine.notices.texts) == ["node n1 was lost (3 times)"]


def test_a_bad_machine_does_not_end_an_eval_while_a_host_elsewhere_works(make: Make) -> None:
    """Its rollouts take long: meanwhile nothing shows that hosts can work, but that this one is ready."""
    stepped = make(4, hosts=2, scorers=ASYNC).begin()
    works, bad = stepped.hosts
    works.starts(*works.runs())
    for _ in range(2 * MOST_LOST):
        stepped.after(bad.is_lost)
        assert stepped.engine.stopped is None
        bad = stepped.host("host")

    works.is_lost("node n2 was lost", "n2")
    for _ in range(MOST_LOST):
        stepped.turn()
        stepped.host("host").is_lost()
    stepped.turn()
    stepped.end()
    assert "10 processes in a row were lost with their machines" in str(stepped.engine.stopped)


def test_hosts_that_wait_for_a_place_end_as_soon_as_nothing_is_left_to_do(make: Make) -> None:
    """Otherwise they would get a place later, and load all code before the hosts of the next eval."""
    stepped = make(1, hosts=2).begin()
    stepped.is_ready(stepped.host("scorer"))
    works, waits, scorer, waiting_scorer = stepped.hosts
    waits.placed_at = waiting_scorer.placed_at = None
    stepped.engine.release()
    stepped.turn()

    placed = (works, scorer)
    assert [(host.killed, len(host.asked("close"))) for host in placed] == [(False, 1)] * 2
    assert [(host.killed, host.asked("close")) for host in (waits, waiting_scorer)] == [(True, [])] * 2


TALKS = """
def say(text):
    print(text, flush=True)
for line in sys.stdin:
    if '"op":"pause"' in line:
        say('{"ev": "unused", "id": 1}')
        for number in range(64):
            say('{"ev": "refused", "error": "%s", "details": ""}' % ("x" * 50_000))
        say('{"ev": "unused", "id": 2}')
    if '"op":"close"' in line:
        break
"""


@contextmanager
def talking(tmp_path: Path, heard: queue.SimpleQueue[Heard | Died]) -> Iterator[HostConnection]:
    """Open the connection to a host that writes three megabytes on request."""
    process = Child(TALKS, subprocess.DEVNULL)
    setup = Setup(HostCode("roll", str(tmp_path), (), {}))
    connection = HostConnection(
        "host", setup, environ=HostEnviron({}), log=tmp_path / "log", post=heard.put, loaded=process
    )
    try:
        yield connection
    finally:
        connection.gather_s = 0.0
        connection.kill()
        assert connection.join(DEADLINE_S)


@pytest.mark.parametrize("size", [pipes.SIZE_BYTES, 1 << 16], ids=["large", "small"])
def test_a_host_that_writes_much_never_waits_for_its_reader(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that are gathered meanwhile are read once they need not wait."""
    monkeypatch.setattr(pipes, "SIZE_BYTES", size)
    heard: queue.SimpleQueue[Heard | Died] = queue.SimpleQueue()
    with talking(tmp_path, heard) as connection:
        connection.gather_s = 1000.0
        connection.send([{"op": "pause"}])
        n_heard = 0
        while n_heard < 1 + 64 - size // 50_000:
            gathered = heard.get(timeout=DEADLINE_S)
            assert isinstance(gathered, Heard)
            n_heard += len(gathered.events)
        connection.gather_s = 0.0
        connection.send([{"op": "close"}])
        while isinstance(said := heard.get(timeout=DEADLINE_S), Heard):
            n_heard += len(said.events)
    assert n_heard == 66
    assert said == Died(connection, "exit status 0")
