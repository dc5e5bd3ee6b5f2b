"""Machines that are lost and hosts that cannot be started: user code is not blamed for them, and work goes on after.

Messages may wait for their reader, but a host never does.
"""

from __future__ import annotations

import queue
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_osmosis.engine import host_connection as pipes
from pytest_osmosis.engine import recovery
from pytest_osmosis.engine.host_connection import Died, Heard, HostConnection, HostEnviron
from pytest_osmosis.engine.hosts import MOST_LOST
from pytest_osmosis.host.protocol import HostCode, Setup
from pytest_osmosis.processes.child import Child
from pytest_osmosis.report.summary import notice_lines
from pytest_osmosis.results.results import causes_of
from pytest_osmosis.verdicts.pass_rule import reason_of
from tests.engine.stepped import ROWS, RUN, Make, ScriptedHost, SteppedEngine, resuming

BLOCKING, ASYNC = {"exact": True}, {"judge": False}
LOST = "its machine was lost three times (node n1 was lost)"


def roll_out(stepped: SteppedEngine) -> ScriptedHost:
    """Let a host roll the first run out, and return the host."""
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


@pytest.mark.parametrize("grouped", [[], ["judge"]], ids=["run", "group"])
def test_scoring_that_loses_its_machine_three_times_is_not_to_blame(make: Make, grouped: list[str]) -> None:
    stepped = make(1, scorers=ASYNC, grouped=grouped)
    host = roll_out(stepped)
    for role in ("host", "quarantine", None):
        host.say("scoring", RUN, name="judge")
        stepped.after(host.is_lost)
        if role is not None:
            host = stepped.host(role)
            stepped.is_ready(host)
    check_reported_as_unmeasured(stepped, LOST)


def test_a_blocking_function_that_loses_its_machine_three_times_is_not_to_blame(make: Make) -> None:
    stepped = make(1, scorers=BLOCKING)
    roll_out(stepped)
    for _ in range(3):
        stepped.is_ready(stepped.host("scorer"))
        stepped.host("scorer").say("scoring", RUN, name="exact")
        stepped.after(stepped.host("scorer").is_lost)
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


DEADLINE_S = 60.0
FOR_EVER_S = 1000.0

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
        connection.gather_s = FOR_EVER_S
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
