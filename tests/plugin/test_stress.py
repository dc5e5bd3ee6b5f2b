"""Sessions in bad weather: workers and hosts killed, Ctrl-C, SIGTERM.

After each session the server's counts show that no attempt sent more requests than allowed, pytest's report shows each
run once and correctly, and nothing is left behind: no process, thread, descriptor, temporary file or warning.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.record.journal import replay
from tests.plugin.workspaces import (
    CONFIG,
    Session,
    Workspace,
    constants,
    hosts_under,
    junit_cases,
    processes_with,
    read_json,
    wait_until,
)
from tests.servers import ChatServer
from tests.weather import AGENT, Weather, check_requests

ROWS, N, BATCH, RETRIES = 12, 2, 4, 6
ALL = ROWS * N
MARK = "OSMOSIS_TEST_MARK"

PYTESTS_OWN = re.compile(
    r"^.*_pytest/assertion/rewrite\.py:\d+: ResourceWarning.*\n(?:(?: |ResourceWarning: Enable).*\n)*", re.M
)
"""The warning of pytest if an interrupt hits a worker that still imports, between an `open` and its `with`."""

LEFT = """
import atexit, json, os, pathlib, threading

def descriptors():
    found = {}
    for path in pathlib.Path("/proc/self/fd").iterdir():
        try:
            found[path.name] = str(path.readlink())
        except OSError:
            pass
    return found

BEFORE = descriptors()

@atexit.register
def tell():
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    left = {
        "threads": [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()],
        "descriptors": [f"{n}: {to}" for n, to in descriptors().items() if BEFORE.get(n) != to],
        "children": [p for t in pathlib.Path("/proc/self/task").iterdir() for p in (t / "children").read_text().split()]
    }
    pathlib.Path("left.json").write_text(json.dumps({what: found for what, found in left.items() if found}))

def pytest_collection_finish():
    if "PYTEST_XDIST_WORKER" in os.environ:
        pathlib.Path("collected-" + os.environ["PYTEST_XDIST_WORKER"]).touch()
"""


class Place:
    """A workspace whose sessions leave traces that tests can find."""

    def __init__(self, workspace: Workspace, temporary: Path) -> None:
        self.workspace = workspace
        self.mark = str(temporary)
        workspace.write("left.py", LEFT)
        workspace.write("agent.py", AGENT)

    def eval(self, server: ChatServer, **tables: Mapping[str, Any]) -> None:
        """Write an eval of ROWS rows with N runs each and two hosts, on `server`."""
        base: dict[str, Mapping[str, Any]] = {
            "agent": {"agent": "agent:rollout"},
            "model": {"base_url": server.base_url, "max_retries": RETRIES},
            "evaluation": {"batch_size": BATCH, "n": N},
            "execution": {"hosts": 2},
            "gate": {"pass_rate": ">= 0.5"},
        }
        rows = [{"score": 0.0 if row == 5 else 1.0} for row in range(ROWS)]
        self.workspace.eval("x", rows, ".", **{**base, **tables})

    def start(self, *args: str) -> Session:
        return self.workspace.start(CONFIG, "--osmosis-no-probe", "-pleft", "--junitxml=junit.xml", *args)

    def done(self) -> int:
        dirs = self.workspace.run_dirs()
        return len(self.workspace.events("score")) if dirs and (dirs[-1] / "journal.jsonl").exists() else 0

    def wait_for_scores(self, n: int) -> None:
        """Wait until `n` runs are scored and all workers have collected. The server must hold later runs back."""
        n_workers = 2 if "-n2" in self.workspace.arguments else int(self.workspace.distributed)
        collected = self.workspace.root
        wait_until(lambda: self.done() >= n, f"{n} scores")
        wait_until(lambda: len(list(collected.glob("collected-*"))) >= n_workers, "the workers")

    def journal(self) -> list[Mapping[str, Any]]:
        return list(replay(self.workspace.run_dirs()[-1] / "journal.jsonl"))

    def told(self) -> Counter[str]:
        """Return each run's outcomes as reported, by kind."""
        cases = {name: case for name, case in junit_cases(self.workspace.root / "junit.xml").items() if "row" in name}
        kinds = {"passed": "passed", "skipped": "xfailed", "error": "error", "failure": "failed"}
        found = [next((each.tag for each in case if each.tag in kinds), "passed") for case in cases.values()]
        return Counter(kinds[tag] for tag in found)

    def check(self, session: Session, weather: Weather | None = None) -> None:
        """Check that nothing is left, that requests kept to their attempts, and that the results match the journal."""
        root = self.workspace.root
        assert read_json(root / "left.json") == {}, session.output
        wait_until(lambda: not processes_with(f"{MARK}={self.mark}"), "processes to end")
        assert [path.name for path in Path(self.mark).iterdir() if not path.name.startswith("pytest-of-")] == []
        said = PYTESTS_OWN.sub("", session.output)
        for word in ("INTERNALERROR", "ResourceWarning", "Exception ignored", "Traceback"):
            assert word not in said, session.output
        if weather is not None:
            check_requests(self.journal(), weather, batch_size=BATCH, retries=RETRIES)
        [run_dir] = self.workspace.run_dirs()
        assert {path.name for path in run_dir.iterdir()} <= {
            "manifest.json",
            "journal.jsonl",
            "results.json",
            "host.log",
        }
        results = read_json(run_dir / "results.json")
        assert results["summary"]["selected"] == results["summary"]["total_runs"] + len(results["pending"]) == ALL


@pytest.fixture
def place(
    pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[list[str]], Place]]:
    temporary = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv(MARK, str(temporary))
    monkeypatch.setenv("PYTHONWARNINGS", "always::ResourceWarning")
    yield lambda arguments: Place(Workspace(pytester, arguments), temporary)
    for pid in processes_with(f"{MARK}={temporary}"):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("-n2 --dist=load", marks=pytest.mark.slow),
        pytest.param("-n2 --dist=worksteal", marks=pytest.mark.nightly),
        pytest.param("-n1 --dist=loadscope", marks=pytest.mark.nightly),
    ],
)
def test_killed_workers_and_hosts_change_no_outcome(place: Callable[[list[str]], Place], arguments: str) -> None:
    weather = Weather(1, faults=0.1, held_from=4)
    here = place(arguments.split())
    with ChatServer(weather) as server:
        here.eval(server)
        session = here.start()
        here.wait_for_scores(4)
        os.kill(session.workers[0], signal.SIGKILL)
        weather.held_from = 8
        here.wait_for_scores(10)
        os.killpg(hosts_under(here.workspace.root)[0], signal.SIGKILL)  # a host and all its children
        weather.held_from = ROWS

        assert session.wait() == 0, session.output

    here.check(session, weather)
    assert here.told() == {"passed": ALL - N, "xfailed": N}
    assert len(weather.asked) == ALL
    assert "node down" in session.output


@pytest.mark.slow
def test_runs_are_reported_even_when_xdist_gives_up_on_its_workers(place: Callable[[list[str]], Place]) -> None:
    weather = Weather(2, faults=0.0, held_from=4)
    here = place(["-n1", "--max-worker-restart=0"])
    with ChatServer(weather) as server:
        here.eval(server)
        session = here.start("-rE")
        here.wait_for_scores(4)
        os.kill(session.workers[0], signal.SIGKILL)
        weather.held_from = ROWS

        status = session.wait()

    here.check(session, weather)
    assert status != 0, session.output


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("Ctrl-C", marks=pytest.mark.slow),
        *(pytest.param(how, marks=pytest.mark.nightly) for how in ("Ctrl-C twice", "SIGTERM")),
    ],
)
@pytest.mark.parametrize(
    "arguments", [pytest.param([], id="plain"), pytest.param(["-n2"], id="-n2", marks=pytest.mark.nightly)]
)
def test_a_session_that_is_ended_leaves_nothing(
    place: Callable[[list[str]], Place], arguments: list[str], how: str
) -> None:
    weather = Weather(3, faults=0.05, held_from=8)
    here = place(arguments)
    here.workspace.write("patient.py", constants({"plugin.eval_queue.INTERRUPT_GRACE_S": 600.0}))
    with ChatServer(weather) as server:
        here.eval(server)
        session = here.start(*(["-ppatient"] if how == "Ctrl-C twice" else []))
        here.wait_for_scores(3)
        session.terminate() if how == "SIGTERM" else session.interrupt()
        if how == "Ctrl-C twice":
            wait_until(lambda: here.workspace.events("skip"), "the first Ctrl-C to be heeded")
            session.interrupt()

        assert session.wait() == 2, session.output

    here.check(session, weather)
    results = here.workspace.results()
    assert (results["status"] != "finished", bool(results["pending"])) == (True, True)
    assert len(weather.asked) <= ALL
