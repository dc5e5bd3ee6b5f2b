"""Submitted eval runs: they survive their parent and their terminal, and what is wrong is said before they start."""

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

from pytest_osmosis.record.lifecycle import lifecycle_of
from pytest_osmosis.record.run_directory import RunDirectory
from tests.cli.background import PROGRAM, Background
from tests.plugin.workspaces import DEADLINE_S, hosts_under, wait_until

SECRET = "sk-live-0123456789abcdef"


def read_until(terminal: int, text: str) -> str:
    """Return what appears on a terminal up to `text`."""
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


@pytest.mark.slow
def test_a_submitted_eval_that_is_killed_has_failed(background: Background) -> None:
    submitted = background.submit()
    assert submitted["status"] == "running"
    assert submitted["rollouts"] == 4
    wait_until(lambda: background.begun() == 2, "the first rollouts")

    os.kill(submitted["pid"], signal.SIGKILL)

    wait_until(lambda: status(background, submitted["name"]) == "failed", "the end of the process")
    wait_until(lambda: not hosts_under(background.root), "the end of its hosts")
    said = background.call("runs", "stop", submitted["name"], "--yes", exits=1)
    assert "is not running, so there is nothing to stop; its status is failed: its process" in said


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "option", ["--osmosis-secrets-file=- --", "--osmosis-secrets-file={} --", "-- --osmosis-secrets-file {}"]
)
def test_secrets_from_standard_input_or_a_pipe_are_handed_on_and_reach_no_log(
    background: Background, option: str
) -> None:
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
    assert background.wait_for_end(name)["status"] == "finished"
    wait_until(lambda: "the key is [X_SECRET]" in background.log(name), "the redaction")
    assert SECRET not in background.log(name)
    assert "1 passed" in background.log(name)


@pytest.mark.slow
def test_a_stopped_run_goes_on_under_its_name(background: Background) -> None:
    name = background.submit("--name", "mine")["name"]
    wait_until(lambda: background.begun() == 2, "the first rollouts")
    again = background.workspace.cli("submit", "configs/eval/x.toml", "--yes", "--name", "mine")
    assert again.ret == 1
    assert "run mine: process " in again.stderr.str()
    assert 'or stop it with "pytest-osmosis runs stop mine"' in again.stderr.str()
    stopping = background.start("runs", "stop", "mine", "--yes")
    wait_until(lambda: any(event["ev"] == "skip" for event in background.journal("mine")), "the stop")
    background.go()
    said, _ = stopping.communicate(timeout=DEADLINE_S)
    assert said.splitlines()[-1] == "mine is stopped: stopped with pytest-osmosis runs stop"
    resume = "pytest --osmosis-config=configs/eval/x.toml --osmosis-run=mine"
    wait_until(lambda: resume in background.log("mine").splitlines()[-1], "pytest's last line")

    said = background.call("submit", "configs/eval/x.toml", "--yes", "--name", "mine")

    assert "cost of 2 rollouts: none" in said
    assert "resumes mine, begun " in said
    assert "kept in: .osmosis/runs/mine, which was stopped" in said
    assert background.workspace.cli("runs", "logs", "mine", "--follow").ret == 0
    assert status(background, "mine") == "finished"
    assert background.begun() == 4
    assert [event["ev"] for event in background.journal("mine")].count("began") == 2
    assert name == "mine"
    assert "--- submitted again, " in background.log("mine")
    background.call("submit", "configs/eval/x.toml", "--yes", "--name", "mine")
