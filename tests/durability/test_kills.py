"""An eval that is killed again and again makes no rollout again that is stored, and says how many are lost at most.

The server's own list of requests is compared with the journal as it was before and after each session. The moments are
random; a failure names the seed that repeats the choices.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pytest_osmosis.record.journal import replay
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import INFRASTRUCTURE, Event
from tests.journals import fold
from tests.plugin.workspaces import CONFIG, Session, Shell, Workspace, hosts_under, wait_until
from tests.servers import ChatServer, Exchange, reply
from tests.weather import kill_choices

N, SEED = 2, 7
LATENCIES_S = (0.02, 0.03, 0.04, 0.05, 0.06)
REWARDS = """
def score(solution_str, ground_truth, **kwargs):
    return float(solution_str)
"""
LIMIT = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, ({most_bytes}, {most_bytes}))\n"
OF_SESSIONS = {
    "duration_ms", "total_duration_ms", "scoring_ms",
    "attempt", "repeated", "rolled_out_again", "throttling", "provenance", "last_run",
}  # fmt: skip
"""Members of results that differ between runs: times, attempts, and where the results came from."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of an eval, and the kills that it survives in their order."""

    rows: int
    batch: int
    most_requests: int
    """A session is killed after 0 to this many requests, so that the run lasts for more than all kills."""
    few_bytes: int
    """A disk is full after at most this much of the events of runs."""
    kills: Sequence[str]
    chance: Callable[[], random.Random]


class Server:
    """Answers as many requests as it may, and the others once it may. `requested` are the runs of all, in order."""

    def __init__(self) -> None:
        self.requested: list[RunId] = []
        self._allowed: float = math.inf

    def allow(self, n: float) -> None:
        """Have this many further requests answered, and no more, however late a session is killed."""
        self._allowed = len(self.requested) + n

    async def __call__(self, exchange: Exchange) -> web.StreamResponse:
        row, run = (int(exchange.seen.headers[name]) for name in ("x-row", "x-run"))
        self.requested.append(RunId(row, run))
        number = len(self.requested)
        while number > self._allowed:  # noqa: ASYNC110  # another thread changes it
            await asyncio.sleep(0.02)
        await asyncio.sleep(LATENCIES_S[number % len(LATENCIES_S)])
        return await reply("1.0" if (row + run) % 3 else "0.0")(exchange)


class Eval:
    """A workspace with one eval, and sessions of its run `killed`, each of which is killed. `chance` decides when."""

    def __init__(self, plan: Plan, root: Path, server: Server, base_url: str) -> None:
        self._plan, self._server, self._chance = plan, server, plan.chance()
        self.kills = self._chance.sample(plan.kills, k=len(plan.kills))
        self.workspace = Workspace(Shell(root), [])
        self.workspace.write("rewards.py", REWARDS)
        self.workspace.eval(
            rows=plan.rows,
            experiment={"model_path": "served"},
            model={"base_url": base_url, "headers_from_state": {"x-row": "row_index", "x-run": "run_index"}},
            evaluation={"n": N, "batch_size": plan.batch},
            execution={"hosts": 2},
            gate={"pass_rate": ">= 0.5"},
        )

    def start(self, name: str, *words: str) -> Session:
        return self.workspace.start(CONFIG, "--osmosis-no-probe", f"--osmosis-run={name}", *words)

    def _directory(self, name: str) -> Path:
        return self.workspace.root / ".osmosis" / "runs" / name

    def events(self) -> Sequence[Event]:
        journal = self._directory("killed") / "journal.jsonl"
        return list(replay(journal)) if journal.exists() else []

    def rolled(self) -> Counter[RunId]:
        """Return how often the journal holds a rollout of each run that no infrastructure broke."""
        rollouts = (event for event in self.events() if event["ev"] == "rollout")
        return Counter(RunId.of(event) for event in rollouts if event.get("boundary") not in INFRASTRUCTURE)

    def lost(self) -> tuple[int, int]:
        """Return how many rollouts are lost at most, as the journal says, and how many really are."""
        n_ended = sum(event["ev"] == "rollout" for event in self.events())
        return fold(self.events()).most_lost, len(self._server.requested) - n_ended

    def killed(self, kind: str) -> str:
        """Kill one session and return what it printed. It fails if the session had ended before."""
        words: list[str] = []
        if kind == "full disk":
            journal = self._directory("killed") / "journal.jsonl"
            stored = journal.stat().st_size if journal.exists() else 1
            begins = 60 * self._plan.rows  # bytes of the events with which a session does, mostly digests of rows
            most_bytes = stored + begins + self._some(self._plan.few_bytes)
            self.workspace.write("limit.py", LIMIT.format(most_bytes=most_bytes))
            words = ["-plimit"]
        self._server.allow({"full disk": math.inf, "wave": 0}.get(kind, self._plan.batch))
        session = self.start("killed", *words)
        try:
            self._kill(kind, session)
        finally:
            session.kill()
            wait_until(lambda: not hosts_under(self.workspace.root), "the end of all hosts")
        return session.output

    def _kill(self, kind: str, session: Session) -> None:
        match kind:
            case "full disk":
                assert session.wait() not in (0, 1), session.output[-3000:]
                return
            case "start":
                time.sleep(self._chance.uniform(0.0, 1.5))
            case "wave":
                self._wait_for_requests(session, self._plan.batch - 1, answered=0)
                self._wait_for_requests(session, self._some(self._plan.batch))
            case _:
                self._wait_for_requests(session, self._some(self._plan.most_requests))
        assert not session.ended, f"{kind}: {session.wait()}\n{session.output[-3000:]}"
        if kind == "host":
            for pid in hosts_under(self.workspace.root)[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._wait_for_requests(session, self._some(self._plan.most_requests) // 2)
        elif kind in ("SIGINT", "SIGTERM"):
            (session.interrupt if kind == "SIGINT" else session.terminate)()
            session.wait()

    def _some(self, most: int) -> int:
        return self._chance.randrange(most)

    def _wait_for_requests(self, session: Session, n: int, *, answered: int | None = None) -> None:
        """Wait until the server got more than `n` further requests, or the session is over."""
        end = len(self._server.requested) + n
        self._server.allow(n + self._plan.batch if answered is None else answered)
        wait_until(lambda: session.ended or len(self._server.requested) > end, f"request {n} of a session")


KINDS = {"SIGKILL": 5, "wave": 4, "SIGTERM": 3, "SIGINT": 3, "host": 3, "full disk": 2, "start": 2}
FEW = Plan(100, 8, 20, 10_000, ("full disk", "host", "wave"), lambda: random.Random(SEED))
MANY = Plan(1000, 32, 70, 40_000, [kind for kind, n in KINDS.items() for _ in range(n)], kill_choices)


@pytest.mark.parametrize(
    "plan",
    [pytest.param(FEW, id="few", marks=pytest.mark.slow), pytest.param(MANY, id="many", marks=pytest.mark.nightly)],
)
def test_a_run_that_is_killed_at_random_moments_goes_on_and_knows_what_it_lost(plan: Plan, tmp_path: Path) -> None:
    server = Server()
    with ChatServer(server) as chat:
        eval_ = Eval(plan, tmp_path, server, chat.base_url)
        said_lost = 0

        def check_repeated(stored: Mapping[RunId, int], n_before: int, what: str) -> None:
            assert not stored.keys() & set(server.requested[n_before:]), f"stored runs made again by {what}"

        for turn, kind in enumerate(eval_.kills):
            stored, n_before, what = eval_.rolled(), len(server.requested), f"session {turn} ({kind})"
            said_lost += "possibly billed" in eval_.killed(kind)
            check_repeated(stored, n_before, what)
            most_lost, n_lost = eval_.lost()
            most_unbegun = 3 * plan.batch  # of the hosts of one session
            assert n_lost <= most_lost <= n_lost + (turn + 1) * most_unbegun, what

        stored, n_before = eval_.rolled(), len(server.requested)
        server.allow(math.inf)
        last = eval_.start("killed")
        assert last.wait() == 0, last.output[-3000:]
        check_repeated(stored, n_before, "the last session")
        assert set(server.requested) == {RunId(row, index) for row in range(plan.rows) for index in range(N)}
        assert eval_.rolled() == dict.fromkeys(server.requested, 1)
        assert said_lost > 0
        assert eval_.lost()[1] <= most_lost == eval_.lost()[0]
        assert eval_.workspace.results("killed")["provenance"]["lost_in_flight"] == most_lost
        assert "possibly billed" in last.output
        calm = eval_.start("calm")
        assert calm.wait() == 0, calm.output[-3000:]
        assert comparable(eval_.workspace.results("killed")) == comparable(eval_.workspace.results("calm"))


def comparable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: comparable(item) for key, item in value.items() if key not in OF_SESSIONS}
    return [comparable(item) for item in value] if isinstance(value, list) else value
