"""The progress line: in place on a terminal, repeated in a log, and never over other output."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
from collections.abc import Mapping

import pytest

from pytest_osmosis.text.safe import width
from tests.plugin.workspaces import CONFIG, DEADLINE_S, PLAIN_AND_XDIST, Workspace
from tests.servers import ChatServer, held, reply

PYTHON_TEST = "import time\n\n\ndef test_python():\n    time.sleep(0.3)\n    print('never hidden')\n    assert False\n"
SLOW_REWARDS = "import time\n\n\ndef score(solution_str, **kwargs):\n    time.sleep(0.1)\n    return 1.0\n"
WAITING_REWARDS = """
import time
from pathlib import Path

def score(solution_str, ground_truth, extra_info, **kwargs):
    assert not extra_info.get("reward")
    while ground_truth != "0" and not Path(extra_info.get("waits_for", "shown")).exists():
        time.sleep(0.01)
    return 1.0
"""
"""The first run of an eval is scored at once, the others once the test has seen the line."""
BEGUN = {"shown": "[1-9]/[0-9]+, [0-9]+% passed"}


def on_a_terminal(
    workspace: Workspace,
    *args: str,
    columns: int = 80,
    wanted: Mapping[str, str] = BEGUN,
    rewards: str = WAITING_REWARDS,
) -> str:
    """Return the output of pytest on a terminal of that width.

    Files with the names in `wanted` are made when the line has matched their patterns in three of its states.
    """
    workspace.write("rewards.py", rewards)
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    workspace.hurry()
    words = workspace.words("-pno:cacheprovider", *args)
    process = subprocess.Popen(words, cwd=workspace.root, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    written = b""
    try:
        with contextlib.suppress(OSError):  # the other end is closed
            while select.select([ours], [], [], DEADLINE_S)[0]:
                written += os.read(ours, 65536)
                states = live_lines(written.decode(errors="replace"))
                for name, pattern in wanted.items():
                    if sum(re.search(pattern, state) is not None for state in states) >= 3:
                        (workspace.root / name).touch()
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        os.close(ours)
    return written.decode()


def live_lines(written: str) -> list[str]:
    """Return every state of the line."""
    return [
        re.sub(r"\x1b\[\w*", "", line).rstrip()
        for line in re.findall(r"\r([^\r\n]*x [^\r\n]*\d+/\d+[^\r\n]*)", written)
    ]


@pytest.mark.journey
def test_on_a_terminal_the_line_is_rewritten_and_erased_at_the_end(workspace: Workspace) -> None:
    workspace.eval("評価 x", rows=8)

    written = on_a_terminal(workspace, "--osmosis-config=configs/eval/評価 x.toml", columns=50)

    lines = live_lines(written)
    assert len(lines) > 2
    assert all(width(line) < 50 for line in lines)
    assert re.search(r"\d/8, 100% passed", lines[-1])
    after = written[written.rindex("/8") :]
    assert re.match(r"[^\r\n]*\r *\r", after), "the last one is wiped before anything else is written"
    in_place = re.findall(r"\r([^\r\n]+)\r", re.sub(r"\x1b\[[\d;]*m", "", written))
    assert any("評価 x" in line for line in in_place)
    assert {width(line) for line in in_place} == {49}, "each wipes the one before, and none wraps"


def on_screen(written: str) -> list[str]:
    """Return the final state of the terminal, with text after a carriage return over earlier text."""
    lines = []
    for line in re.sub(r"\x1b\[[\d;]*m", "", written).split("\n"):
        shown = ""
        for part in line.split("\r"):
            shown = part + shown[len(part) :]
        lines.append(shown.rstrip())
    return lines


def test_slow_workers_are_reported_on_a_clean_line(workspace: Workspace) -> None:
    """Rollouts begin when the first xdist worker has collected; xdist continues to count the others."""
    workspace.eval(rows=8)
    late = "import os, time\nif os.environ.get('PYTEST_XDIST_WORKER') == 'gw1':\n    time.sleep(1)\n"
    workspace.write("conftest.py", late)

    written = on_a_terminal(workspace, "-n2", CONFIG)

    assert live_lines(written)
    assert [line for line in on_screen(written) if "workers [" in line] == ["2 workers [8 items]"]


def test_output_of_a_python_test_stays(workspace: Workspace) -> None:
    workspace.eval(rows=4)
    workspace.write("test_python.py", PYTHON_TEST)

    written = on_a_terminal(workspace, "-s", "test_python.py", "configs/eval/x.toml")

    assert "never hidden\nF" in written.replace("\r\n", "\n").replace("\x1b[31m", "")
    assert live_lines(written)


def test_quiet_keeps_the_line_on_a_terminal_and_nothing_else(workspace: Workspace) -> None:
    workspace.eval(rows=6)
    for option, rewards in {"-q": WAITING_REWARDS, "-qq": SLOW_REWARDS}.items():
        written = on_a_terminal(workspace, option, CONFIG, rewards=rewards)
        assert bool(live_lines(written)) == (option == "-q")
        assert "osmosis: x (configs" not in written
        assert "......" not in written


@PLAIN_AND_XDIST
def test_the_line_is_updated_while_no_report_arrives(workspace: Workspace) -> None:
    """Only the first run is answered, so everything printed afterwards is due to time."""
    with ChatServer(reply("42"), held(reply("42"))) as server:
        workspace.hurry()
        model, execution = {"base_url": server.base_url}, {"watchdog_s": 1}
        workspace.eval(rows=4, evaluation={"batch_size": 2}, model=model, execution=execution)
        session = workspace.start(CONFIG, "--osmosis-no-probe")

        session.wait_for("osmosis x: nothing has finished for")
        session.wait_for("osmosis: x 1/4, 100% passed")
        server.release()

        assert session.wait() == 0, session.output


def test_several_evals_share_a_line_that_counts_all(workspace: Workspace) -> None:
    """One that was stopped is done, and its missing runs do not count."""
    with ChatServer(reply("42"), reply("42"), held(reply("42"))) as server:
        workspace.hurry()
        workspace.eval("down", rows=5, model={"base_url": "http://127.0.0.1:9/v1", "max_retries": 0})
        workspace.eval("set2", rows=3)
        workspace.eval("set10", rows=4, model={"base_url": server.base_url})
        workspace.eval("set11", rows=5)
        session = workspace.start("--osmosis-config=configs/eval")

        session.wait_for("osmosis: 2/4 evals, 4/12 runs, set10 1/4, 100% passed, mean 1.000, 1 in flight")
        server.release()

        assert session.wait() == 9, session.output
