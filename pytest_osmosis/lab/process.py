"""The parent's side of the lab's child process, which calls one function and is ended if it hangs."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from pytest_osmosis.errors import CodeError
from pytest_osmosis.lab.calls import CallInput, CallOutcome, outcome_from_json, to_json
from pytest_osmosis.lab.target import Target

CPU_S = 2.0
"""CPU seconds after which a call is cut off."""
FIRST_CPU_S = 20.0
"""CPU seconds for the first call, which may import modules."""
WALL_S = 20.0
"""Further seconds after which the process is ended, if nothing cut the call off."""


class LabProcess:
    """A process that calls one reward function. After it ended, the next call starts it again.

    `hash_seed` is the seed of its hashes, and its clock runs `clock_s` ahead.
    """

    def __init__(self, target: Target, *, hash_seed: int = 0, clock_s: float = 0.0) -> None:
        self._target = target
        self._hash_seed = hash_seed
        self._clock_s = clock_s
        self._process: subprocess.Popen[bytes] | None = None
        self._replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._fresh = True

    def begin(self) -> None:
        source = str(Path(__file__).parents[2])
        paths = [path for path in sys.path if path not in (source, "")]
        env = {**os.environ, "PYTHONHASHSEED": str(self._hash_seed)}
        env["PYTHONPATH"] = os.pathsep.join([source, *paths])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest_osmosis.lab.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            start_new_session=True,
        )
        self._replies = queue.SimpleQueue()
        self._fresh = True
        threading.Thread(target=_pump, args=(self._process, self._replies), name="osmosis-lab", daemon=True).start()
        module, path = self._target.function.__module__, str(self._target.path)
        self._send({"module": module, "path": path, "sys_path": sys.path, "clock_s": self._clock_s})

    def call(self, call_input: CallInput, *, watch: bool = False, cpu_s: float = CPU_S) -> CallOutcome:
        """Call the function. The outcome is `slow` if the call was cut off, `died` if the process ended."""
        if self._process is None:
            self.begin()
        if self._fresh:
            self._wait_until_ready()
            cpu_s = max(cpu_s, FIRST_CPU_S)
        request = {"function": self._target.name, "input": to_json(call_input), "watch": watch, "cpu_s": cpu_s}
        self._send(request)
        reply = self._receive(cpu_s + WALL_S)
        if reply is None:
            self.close()
            return CallOutcome("slow", text=f"did not end within {cpu_s + WALL_S:g} s")
        if not reply:
            status = self._process.wait() if self._process is not None else None
            self.close()
            return CallOutcome("died", text=f"ended its process (exit status {status})")
        self._fresh = False
        return outcome_from_json(json.loads(reply))

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in filter(None, (process.stdin, process.stdout)):
                with contextlib.suppress(OSError):
                    pipe.close()

    def _wait_until_ready(self) -> None:
        reply = self._receive(FIRST_CPU_S + WALL_S)
        state = json.loads(reply) if reply else {"failed": "its process ended"}
        name, file = self._target.name, self._target.path.name
        if "failed" not in state and name in state["ready"]:
            return
        self.close()
        if "failed" in state:
            raise CodeError(f"{file} could not be imported in a new process: {state['failed']}")
        raise CodeError(f"{name} is missing when {file} is imported in a new process")

    def _send(self, data: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # if the process died, the reply is missing
            self._process.stdin.write(json.dumps(data).encode("ascii") + b"\n")
            self._process.stdin.flush()

    def _receive(self, timeout_s: float) -> bytes | None:
        """Return a line, b"" if the process has ended, None after the timeout."""
        try:
            return self._replies.get(timeout=timeout_s)
        except queue.Empty:
            return None


def _pump(process: subprocess.Popen[bytes], replies: queue.SimpleQueue[bytes]) -> None:
    assert process.stdout is not None
    with contextlib.suppress(OSError, ValueError):
        for line in process.stdout:
            replies.put(line)
    replies.put(b"")
