"""Whole workspaces, in which tests run pytest: in the process of the tests, or in one of its own.

A row's own columns set its outcome, so that a test reads like the table that it checks: `score` is the score that the
reward function returns (1.0 by default), `reward` the way in which it fails instead.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.plugin import in_process
from tests.plugin.in_process import run_command, run_pytest
from tests.running import RUNNING

DEADLINE_S = in_process.DEADLINE_S
"""The time that a session may take on a loaded machine; what takes longer hangs."""
WITHOUT_OTHERS = ("-pno:asyncio", "-pno:hypothesispytest", "-pno:anyio", "-pno:metadata", "-pno:time_machine")
"""Leaves out plugins that these workspaces do without: they cost as much as the eval does."""
PYTEST = (sys.executable, "-mpytest", *WITHOUT_OTHERS)
XDIST = re.compile(r"-n.*|--numprocesses(=.*)?")

_XDIST = pytest.param(["-n2"], id="-n2", marks=pytest.mark.slow)
PLAIN_AND_XDIST = pytest.mark.parametrize("workspace", [pytest.param([], id="plain"), _XDIST], indirect=True)
"""Runs a test plain and under xdist, for behaviour that xdist changes.

`test_same_under_xdist.py` compares all other sessions with those under xdist.
"""
UNDER_XDIST = pytest.mark.parametrize("workspace", [_XDIST], indirect=True)

REWARDS = """
def score(solution_str, ground_truth, extra_info=None, **kwargs):
    if extra_info.get("reward") == "raises":
        raise ZeroDivisionError("the reward function broke")
    return extra_info.get("score", 1.0)
"""
EXACT = "def score(solution_str, ground_truth, **kwargs):\n    return float(solution_str == ground_truth)\n"
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "experiment": {"model_path": "demo/arithmetic", "dataset": "x"},
    "data": {"rows": "all"},
    "scoring": {"eval_fns": ["rewards:score"]},
    "secrets": {"required": []},
}
CONSTANTS = """
import importlib

def pytest_configure(config):
    for name, value in {values!r}.items():
        module, _, constant = name.rpartition(".")
        module = importlib.import_module("pytest_osmosis." + module)
        config.add_cleanup(lambda args=(module, constant, getattr(module, constant)): setattr(*args))
        setattr(module, constant, value)
"""
HURRY = {
    "plugin.eval_queue.INTERRUPT_GRACE_S": 0.2,
    "plugin.progress_line.LINE_S": 1.0,
    "plugin.progress_line.REWRITE_S": 0.05,
}
Tables = Mapping[str, Mapping[str, Any]]
Row = Mapping[str, Any]
CONFIG = "--osmosis-config=configs/eval/x.toml"
PASS: Row = {}
FAIL: Row = {"score": 0.0}
BROKEN: Row = {"reward": "raises"}


class Shell:
    """Runs commands in a folder as pytester does, or in the folder below it that a test has changed to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, *words: str, stdin: object = None, timeout: float = DEADLINE_S) -> pytest.RunResult:
        """Run a command with `stdin` as its input."""
        began = time.monotonic()
        given = stdin if isinstance(stdin, bytes) else b""
        folder = folder_in(self.path)
        done = subprocess.run(words, cwd=folder, capture_output=True, input=given, timeout=timeout, check=False)
        out, err = (text.decode().splitlines() for text in (done.stdout, done.stderr))
        return pytest.RunResult(done.returncode, out, err, time.monotonic() - began)


def folder_in(root: Path) -> Path:
    """Return the current folder if it is in `root`, and else `root`."""
    current = Path.cwd()
    return current if current.is_relative_to(root) else root


class Workspace:
    """An Osmosis workspace in pytest's folder, and the commands that a user gives there."""

    def __init__(self, pytester: pytest.Pytester | Shell, arguments: Sequence[str]) -> None:
        self.pytester = pytester
        self.root = pytester.path
        self.arguments = list(arguments)
        self.plugins: list[str] = []
        self.ini()

    @property
    def distributed(self) -> bool:
        return bool(self.arguments)

    def ini(self, *lines: str) -> None:
        self.write("pytest.ini", "\n".join(["[pytest]", *lines]) + "\n")

    def hurry(self) -> None:
        """Let sessions that end early wait 0.2 s, not 2 s, for runs in flight; update the progress line often."""
        self.write("hurry.py", constants(HURRY))
        self.plugins = ["-phurry"]

    def write(self, path: str, text: str) -> Path:
        """Write a file, and make its folders.

        Python would take the compiled file of a module that has the same size and was written in the same second.
        """
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        if file.suffix == ".py":
            for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
                compiled.unlink()
        return file

    def eval(
        self, name: str = "x", rows: int | Iterable[Row] = 3, folder: str = ".", **tables: Mapping[str, Any]
    ) -> None:
        """Write configs/eval/<name>.toml and data/<name>.jsonl, with these rows or a number of rows that pass."""
        given = [{} for _ in range(rows)] if isinstance(rows, int) else list(rows)
        lines = [
            json.dumps({"user_prompt": f"What is {index} * 2?", "ground_truth": str(index * 2), **row})
            for index, row in enumerate(given)
        ]
        if not (self.root / folder / "rewards.py").exists():
            self.write(f"{folder}/rewards.py", REWARDS)
        self.write(f"{folder}/data/{name}.jsonl", "\n".join(lines) + "\n")
        self.write(f"{folder}/configs/eval/{name}.toml", toml(name, tables))

    def run(self, *args: str, stdin: bytes | None = None, exits: int | None = None) -> pytest.RunResult:
        """Run `pytest <arguments of the fixture> <args>` in the root, and check its exit status if `exits` names one.

        It runs in this process. Journeys, and sessions with xdist, have a process of their own; with
        `--runpytest=subprocess` all have. So have sessions in the folder of `pytester`, which forgets the modules that
        they import.
        """
        words = [*self.plugins, *self.arguments, *args]
        xdist = any(XDIST.fullmatch(word) for word in words)
        if xdist or RUNNING.wants_processes or not isinstance(self.pytester, Shell):
            result = self.run_process(*args, stdin=stdin)
        else:
            result = run_pytest(folder_in(self.root), [*WITHOUT_OTHERS, *words], stdin)
        assert exits in (None, result.ret), f"{result.stdout}\n{result.stderr}"
        return result

    def run_process(self, *args: str, stdin: bytes | None = None) -> pytest.RunResult:
        """Run the same command in a process of its own.

        What needs one: signals, terminals, debuggers, IDEs, other plugins, output of file descriptors, processes that
        die, and state of the interpreter.
        """
        given = pytest.Pytester.CLOSE_STDIN if stdin is None else stdin
        return self.pytester.run(*self.words(*args), stdin=given, timeout=DEADLINE_S)

    def words(self, *args: str) -> list[str]:
        """Return the words of the same command, for a process. Only tests that are marked may start one."""
        RUNNING.check_process()
        return [*PYTEST, *self.plugins, *self.arguments, *args]

    def cli(self, *args: str) -> pytest.RunResult:
        """Run `pytest-osmosis <args>` in the root: in this process, but for journeys."""
        if RUNNING.wants_processes:
            return self.pytester.run(sys.executable, "-m", "pytest_osmosis", *args, timeout=DEADLINE_S)
        return run_command(folder_in(self.root), args)

    def show(self, run: str) -> list[str]:
        return self.cli("show", "latest", run).outlines

    def start(self, *args: str) -> Session:
        """Start the same command in the background, in a process group of its own."""
        return Session(self.words(*args), self.root)

    def on_terminal(
        self, *args: str, columns: int, typed: str = "", seen: Callable[[str], object] = len
    ) -> tuple[str, int]:
        """Run the same command on a terminal of that width, and return what it wrote and its exit status.

        `typed` is what the user types; `seen` is called with all that was written so far.
        """
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        env = {**os.environ, "TERM": "xterm"}
        env.pop("COLUMNS", None)
        words = self.words(*args)
        with subprocess.Popen(words, cwd=self.root, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            os.write(ours, typed.encode())
            written = b""
            with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0):  # the other end is closed
                while select.select([ours], [], [], DEADLINE_S)[0]:
                    written += os.read(ours, 65536)
                    seen(written.decode(errors="replace"))
            try:
                return written.decode(), process.wait(DEADLINE_S)
            finally:
                process.kill()

    def run_dirs(self, name: str = "x", folder: str = ".") -> list[Path]:
        """Return the run directories of an eval, or the one with that name, the oldest first."""
        runs = self.root / folder / ".osmosis" / "runs"
        return sorted({*runs.glob(name), *runs.glob(f"{name}-*")}, key=lambda path: path.stat().st_ctime_ns)

    def results(self, name: str = "x") -> dict[str, Any]:
        results: dict[str, Any] = read_json(self.run_dirs(name)[-1] / "results.json")
        return results

    def events(self, kind: str, name: str = "x") -> list[dict[str, Any]]:
        """Return the events of one kind in the journal of an eval's last run, without a line that is being written."""
        lines = (self.run_dirs(name)[-1] / "journal.jsonl").read_bytes().splitlines(keepends=True)
        events = (json.loads(line) for line in lines if line.endswith(b"\n"))
        return [event for event in events if event["ev"] == kind]

    def last_failed(self) -> set[str]:
        """Return the node ids that `--lf` would select."""
        path = self.root / ".pytest_cache" / "v" / "cache" / "lastfailed"
        return set(read_json(path)) if path.exists() else set()


class Session:
    def __init__(self, words: Sequence[str], folder: Path) -> None:
        self.output = ""
        self._process = subprocess.Popen(
            words,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # undoes what a shell does to background processes: they, and their children, ignore Ctrl-C
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )

    def interrupt(self) -> None:
        """Press Ctrl-C: send SIGINT to the whole process group."""
        os.killpg(self._process.pid, signal.SIGINT)

    def terminate(self) -> None:
        """Send SIGTERM to pytest alone, as a scheduler does."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL, after which pytest can do nothing."""
        self._process.kill()
        self.output += self._process.communicate()[0]

    def kill_only(self) -> None:
        """Send SIGKILL to pytest alone, and wait for nothing else: others may hold its output."""
        self._process.kill()
        self._process.wait(DEADLINE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def kill_workers(self) -> None:
        for worker in self.workers:
            os.kill(worker, signal.SIGKILL)

    @property
    def workers(self) -> list[int]:
        """Return the process ids of xdist's workers."""
        found = []
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                children = [Path("/proc") / pid for pid in (task / "children").read_text().split()]
                found += [
                    int(each.name) for each in children if b"sys.stdin.readline" in (each / "cmdline").read_bytes()
                ]
        return found

    def wait_for(self, text: str) -> None:
        """Wait until pytest has printed `text`. `output` keeps everything that it prints."""
        assert self._process.stdout is not None
        end = time.monotonic() + DEADLINE_S
        while text not in self.output:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, end - time.monotonic()))
            read = os.read(self._process.stdout.fileno(), 65536) if ready else b""
            assert read, f"waited in vain for {text!r}:\n{self.output}"
            self.output += read.decode()

    def type(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self) -> int:
        """Wait for the exit status; kill a pytest that does not end, and fail. `output` is everything printed."""
        try:
            self.output += self._process.communicate(timeout=DEADLINE_S)[0]
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self.output += self._process.communicate()[0]
            pytest.fail(f"pytest did not end:\n{self.output}")
        return self._process.returncode


def constants(values: Mapping[str, float]) -> str:
    """Return a plugin that sets constants of the package, such as "git.PATIENCE_S", until its session ends."""
    return CONSTANTS.format(values=dict(values))


def toml(name: str, tables: Tables) -> str:
    """Return a config: the defaults with `tables` laid over them, without keys that are None."""
    defaults = {**DEFAULTS, "experiment": {**DEFAULTS["experiment"], "dataset": name}}
    merged = {table: {**defaults.get(table, {}), **tables.get(table, {})} for table in {**defaults, **tables}}
    lines = []
    for table, keys in merged.items():
        lines += [f"[{table}]", *(f"{_key(key)} = {_value(value)}" for key, value in keys.items() if value is not None)]
    return "\n".join(lines) + "\n"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def timeless(value: Any) -> Any:
    """Return results without times and provenance."""
    if isinstance(value, dict):
        kept = {key for key in value if not key.endswith("_ms") and key != "provenance"}
        return {key: timeless(each) for key, each in value.items() if key in kept}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def junit_cases(path: Path) -> dict[str, ElementTree.Element]:
    """Return the test cases of a JUnit file by name; after Ctrl-C pytest writes one without a name."""
    cases = ElementTree.parse(path).getroot().iter("testcase")
    return {case.attrib["name"]: case for case in cases if "name" in case.attrib}


def hosts_under(folder: Path) -> list[int]:
    """Return the process ids of engine hosts that work in `folder`, and of their children."""
    found = []
    for pid in processes_with("pytest_osmosis.host", "cmdline"):
        with contextlib.suppress(OSError):  # it ended while it was looked at
            if Path(f"/proc/{pid}/cwd").readlink().is_relative_to(folder):
                found.append(pid)
    return found


def processes_with(text: str, part: str = "environ") -> list[int]:
    """Return the processes whose environment when they began, or whose command line, holds a text."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdecimal() and text.encode() in (process / part).read_bytes():
                found.append(int(process.name))
    return found


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Return when the condition holds; fails after a deadline."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)
