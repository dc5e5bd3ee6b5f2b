"""Evals that pytest runs in a terminal or in the background: `submit`, `runs stop` and `runs logs`."""

from __future__ import annotations

import json
import os
import pty
import select
import shlex
import signal
import stat
import subprocess
import time

import pytest

from pytest_osmosis.record.lifecycle import REQUESTED, lifecycle_of
from pytest_osmosis.record.run_directory import RunDirectory
from tests.cli.background import PROGRAM, Background
from tests.plugin.workspaces import DEADLINE_S, hosts_under, wait_until


@pytest.mark.journey
def test_a_stopped_eval_finishes_what_is_in_flight_and_leaves_the_others_alone(background: Background) -> None:
    background.workspace.eval("y", rows=2)
    session = background.workspace.start(
        "--osmosis-config=configs/eval/x.toml", "--osmosis-config=configs/eval/y.toml", "-rs"
    )
    wait_until(lambda: background.begun() == 2, "the first rollouts")
    wait_until(lambda: len(background.workspace.events("start")) == 2, "the journal to know of them")
    stopping = background.start("runs", "stop", "x", "--yes")
    assert stopping.stdout is not None
    assert stopping.stdout.readline() == "stopping: 2 rollouts in flight (Ctrl-C ends only this command)\n"
    wait_until(lambda: background.workspace.events("skip"), "the runs that will not begin")
    assert stopping.poll() is None, "the command waits"
    background.go()

    said, _ = stopping.communicate(timeout=DEADLINE_S)

    assert session.wait() == 9, session.output
    assert stopping.returncode == 0, said
    assert said.splitlines()[-1].endswith(" is stopped")
    assert background.begun() == 2
    assert background.workspace.results("x")["stopped_by"] == "requested"
    assert background.workspace.results("x")["summary"]["total_runs"] == 2
    assert background.workspace.results("y")["status"] == "finished"
    assert "\nstopped with pytest-osmosis runs stop\n" in session.output
    assert "x[stop]" in session.output
    assert not hosts_under(background.root)
    again = background.call("runs", "stop", "x", exits=1)
    assert (
        "is not running, so there is nothing to stop; its status is stopped: stopped with pytest-osmosis runs stop"
        in again
    )


def test_an_eval_that_waits_for_another_one_never_begins(background: Background) -> None:
    background.workspace.eval("y", rows=2)
    session = background.workspace.start("--osmosis-config=configs/eval/x.toml", "--osmosis-config=configs/eval/y.toml")
    wait_until(lambda: background.begun() == 2, "the first rollouts")
    stopping = background.start("runs", "stop", "y", "--yes")
    assert stopping.stdout is not None
    name = background.workspace.run_dirs("x")[0].name
    assert f"stopping: nothing in flight; it ends with {name}, of the same command" in stopping.stdout.readline()
    background.go()
    said, _ = stopping.communicate(timeout=DEADLINE_S)
    assert session.wait() == 9, session.output
    assert said.splitlines()[-1].endswith(" is stopped")
    assert background.workspace.results("x")["status"] == "finished"
    assert [run["reason"] for run in background.workspace.results("y")["pending"]] == [REQUESTED] * 2


def test_without_a_terminal_nothing_is_stopped_unless_yes(background: Background) -> None:
    background.workspace.hurry()
    session = background.workspace.start("--osmosis-config=configs/eval/x.toml")
    wait_until(lambda: background.begun() == 2, "the first rollouts")

    said = background.call("runs", "stop", "latest", exits=2)

    assert said == "not stopped: there is no terminal to ask on; add --yes to answer yes beforehand\n"
    assert not session.ended

    document = json.loads(background.call("runs", "stop", "latest", "--yes", "--now", "--json"))

    assert document["status"] == "stopped"
    assert session.wait() == 2, session.output
    assert not hosts_under(background.root)


SECRET = "sk-live-0123456789abcdef"
LOUD = """
import os
os.write(2, f"loaded with {os.environ['X_SECRET']} \\x1b[31mred\\x1b[0m\\n".encode())
"""


def test_logs_of_a_terminal_are_what_code_printed_outside_of_runs(
    background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("X_SECRET", SECRET)
    background.workspace.eval(
        "x", rows=2, agent={"agent": "agent:rollout"}, evaluation={"batch_size": 2}, secrets={"required": ["X_SECRET"]}
    )
    with (background.root / "agent.py").open("a") as agent:
        agent.write(LOUD)
    session = background.workspace.start("--osmosis-config=configs/eval/x.toml")
    wait_until(lambda: background.begun() == 2, "the first rollouts")
    follower = background.start("runs", "logs", "latest", "--follow")
    whole = background.call("runs", "logs", "latest")
    background.go()

    assert session.wait() == 0, session.output
    followed, _ = follower.communicate(timeout=DEADLINE_S)
    name = background.workspace.run_dirs()[0].name
    loaded = "loaded with [X_SECRET] \\x1b[31mred\\x1b[0m"
    assert followed.splitlines() == [
        f"{name} was not submitted: this is only what user code prints outside of runs",
        f"user code | {loaded}",
        f"{name}: finished",
    ]
    assert whole.splitlines() == [
        f"{name} was not submitted: the terminal that ran it has the output of pytest",
        "output of user code that belongs to no run (host.log):",
        loaded,
    ]
    document = json.loads(background.call("runs", "logs", "latest", "--json", "--tail", "1"))
    assert document["host"] == ["loaded with [X_SECRET] \x1b[31mred\x1b[0m"]
    assert (document["submitted"], document["status"], document["session"]) == (False, "finished", [])


def read_until(terminal: int, text: str) -> str:
    shown, end = "", time.monotonic() + DEADLINE_S
    while text not in shown:
        ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"waited in vain for {text!r}:\n{shown}"
        shown += os.read(terminal, 65536).decode()
    return shown


def status(background: Background, run: str) -> str:
    return lifecycle_of(RunDirectory(background.root / ".osmosis/runs" / run)).status


@pytest.mark.journey
def test_a_submitted_eval_survives_its_terminal_and_can_be_followed(background: Background) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(background.root)
        os.execv(PROGRAM[0], [*PROGRAM, "submit", "configs/eval/x.toml", "--osmosis-n=2"])
    shown = read_until(terminal, "[y/N]")
    for line in ("4 rows x 2 runs = 8 rollouts, 2 in flight", "cost of 8 rollouts: none", "kept in: .osmosis/runs/x-"):
        assert line in shown
    assert not (background.root / ".osmosis").exists()
    os.write(terminal, b"y\n")
    read_until(terminal, "runs stop x-")
    os.close(terminal)
    os.waitpid(pid, 0)
    (folder,) = background.workspace.run_dirs()
    os.kill(json.loads((folder / "submitted.json").read_text())["process"]["pid"], signal.SIGHUP)
    follower = background.start("runs", "logs", "x", "--follow", "--tail", "3")
    wait_until(lambda: background.begun() == 1, "the first rollouts, of one row")

    background.go()
    followed, _ = follower.communicate(timeout=DEADLINE_S)

    assert "= 8 passed in " in followed
    assert followed.splitlines()[-1] == f"{folder.name}: finished"
    assert background.workspace.results()["status"] == "finished"
    assert not hosts_under(background.root)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (folder, *folder.iterdir())}
    assert set(modes.values()) == {0o600, 0o700}, modes


def test_code_that_does_not_load_fails_the_run_and_its_log_says_why(background: Background) -> None:
    background.workspace.write("agent.py", "raise ZeroDivisionError('no agent')")

    said = background.call("submit", "configs/eval/x.toml", "--yes", exits=1)

    (folder,) = background.workspace.run_dirs()
    assert f"{folder.name} failed at once; the end of its log:" in said
    assert "ZeroDivisionError: no agent" in said
    document = json.loads(background.call("runs", "logs", "x", "--json"))
    assert document["status"] == "failed"
    reason = f"it ended before its code was loaded; see pytest-osmosis runs logs {folder.name}"
    assert lifecycle_of(RunDirectory(folder)).reason == reason
    assert any("ZeroDivisionError" in line for line in document["session"])


def test_every_problem_is_reported_before_anything_starts(background: Background) -> None:
    config = "configs/eval/x.toml"
    background.workspace.eval("x", data={"path": "data/none.jsonl"}, secrets={"required": ["X_SECRET"]})
    broken = background.call("submit", config, "--yes", exits=1)
    assert "data/none.jsonl" in broken
    assert "secret X_SECRET: missing" in broken
    background.workspace.write("configs/training/t.toml", '[experiment]\nrollout = "r"\n[training]\nlr = 1\n')
    assert "is a training config, and submit runs evals" in background.call(
        "submit", "configs/training/t.toml", "--yes", exits=1
    )
    assert "no such file; submit takes the TOML of one eval" in background.call("submit", "nix.toml", "--yes", exits=1)
    assert "--osmosis-from: scores stored rollouts" in background.call(
        "submit", config, "--osmosis-from=latest", exits=1
    )
    background.workspace.eval("x")
    background.workspace.write(
        "configs/eval/two.toml",
        'model = "demo/arithmetic"\ndataset = "x"\neval_fn = ["rewards:score"]\n[[eval]]\nname = "a"\n[[eval]]\n',
    )
    assert background.call("submit", "configs/eval/two.toml", "--yes", exits=1).endswith(
        "holds 2 evals, and submit takes one; name it, as in configs/eval/two.toml::a\n"
    )
    assert "no eval of this file is called" in background.call("submit", "configs/eval/two.toml::c", "--yes", exits=1)
    nothing = background.call("submit", config, "--yes", "--", "-k", "nothing", exits=1)
    assert nothing == "not submitted: these arguments select no run of the eval\n"
    assert "there is no terminal to debug on" in background.call("submit", config, "--yes", "--", "--pdb", exits=1)
    assert background.call("submit", config, exits=2).endswith(
        "not submitted: there is no terminal to ask on; add --yes to answer yes beforehand\n"
    )
    assert not (background.root / ".osmosis").exists()


@pytest.mark.parametrize(
    "option", ["--osmosis-secrets-file=- --", "--osmosis-secrets-file={} --", "-- --osmosis-secrets-file {}"]
)
def test_secrets_from_stdin_or_a_pipe_are_handed_on_and_reach_no_log(background: Background, option: str) -> None:
    """Twice, as `submit` starts a dry run and the eval. A conftest.py prints one past pytest's terminal."""
    background.workspace.eval("x", rows=1, secrets={"required": ["X_SECRET"]})
    background.workspace.write("conftest.py", f"import os\nos.write(2, b'the key is {SECRET}\\n')\n")
    typed = shlex.join([*PROGRAM, "submit", "configs/eval/x.toml", "--yes", "--json"])
    secrets = option.format(f"<(echo X_SECRET={SECRET})")
    done = subprocess.run(
        ["bash", "-c", f"{typed} {secrets} -s ."],
        cwd=background.root,
        input=f"X_SECRET={SECRET}\n" if "=-" in option else "",
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    name = json.loads(done.stdout)["name"]
    wait_until(lambda: status(background, name) == "finished", "the end of the eval")
    wait_until(lambda: "the key is [X_SECRET]" in background.log(name), "the redaction")
    assert SECRET not in background.log(name)
    assert "1 passed" in background.log(name)


def test_a_stopped_run_goes_on_under_its_name(background: Background) -> None:
    name = background.submit("--name", "mine")["name"]
    wait_until(lambda: background.begun() == 2, "the first rollouts")
    again = background.workspace.cli("submit", "configs/eval/x.toml", "--yes", "--name", "mine")
    assert again.ret == 1
    assert "run mine: process " in again.stderr.str()
    assert 'or stop it with "pytest-osmosis runs stop mine"' in again.stderr.str()
    stopping = background.start("runs", "stop", "mine", "--yes")
    wait_until(lambda: background.workspace.events("skip", "mine"), "the stop")
    background.go()
    said, _ = stopping.communicate(timeout=DEADLINE_S)
    assert said.splitlines()[-1] == "mine is stopped"
    resume = "pytest configs/eval/x.toml --osmosis-run=mine"
    wait_until(lambda: resume in background.log("mine").splitlines()[-1], "pytest's last line")

    said = background.call("submit", "configs/eval/x.toml", "--yes", "--name", "mine")

    assert "cost of 2 rollouts: none" in said
    assert "resumes mine, begun " in said
    assert "kept in: .osmosis/runs/mine, which was stopped" in said
    assert background.workspace.cli("runs", "logs", "mine", "--follow").ret == 0
    assert status(background, "mine") == "finished"
    assert background.begun() == 4
    assert len(background.workspace.events("began", "mine")) == 2
    assert name == "mine"
    assert "--- submitted again, " in background.log("mine")
    background.call("submit", "configs/eval/x.toml", "--yes", "--name", "mine")


# -- runs wait ends with the eval run, and exits as its pytest did -----------------------------------------


@pytest.mark.addon
@pytest.mark.journey
def test_it_waits_for_a_submitted_eval_run_no_longer_than_it_may(background: Background) -> None:
    name = background.submit("--name=nightly")["name"]
    wait_until(lambda: background.begun() == 2, "the first rollouts")
    said = background.call("runs", "wait", name, "--timeout=0.1", exits=124)
    assert said == "nightly is still running (exit status 124)\n"
    waiting = background.start("runs", "wait", name, "--json")
    assert waiting.poll() is None, "the command waits"
    background.go()
    said, _ = waiting.communicate(timeout=DEADLINE_S)
    assert waiting.returncode == 0
    found = json.loads(said)
    assert (found["name"], found["status"], found["exit_status"]) == ("nightly", "finished", 0)
    assert background.workspace.results("nightly")["status"] == "finished", "the results are written"


@pytest.mark.addon
@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "ended"), [(signal.SIGKILL, 9, "failed: its process"), (signal.SIGINT, 2, "stopped: ")]
)
def test_a_submitted_eval_that_is_killed_has_failed_and_whoever_waits_for_it_is_told(
    background: Background, number: signal.Signals, status: int, ended: str
) -> None:
    document = background.submit("--name=nightly")
    assert (document["status"], document["rollouts"]) == ("running", 4)
    wait_until(lambda: background.begun() == 2, "the first rollouts")
    waiting = background.start("runs", "wait", "nightly")
    os.kill(document["pid"], number)
    said, _ = waiting.communicate(timeout=DEADLINE_S)
    assert waiting.returncode == status, said
    assert f"(exit status {status})" in said
    assert said.startswith(f"nightly {'failed' if status == 9 else 'is stopped'}: ")
    wait_until(lambda: not hosts_under(background.root), "the end of its hosts")
    said = background.call("runs", "stop", "nightly", "--yes", exits=1)
    assert f"is not running, so there is nothing to stop; its status is {ended}" in said
