"""Reward functions that do to their process whatever Python allows. `OUTCOMES` says how one call of each ends."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

Info = dict[str, Any] | None
FOREVER_S = 1_000_000


def forks(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Returns twice: in this process and in a copy of it."""
    os.fork()
    return 1.0


def forks_and_raises(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    if os.fork() == 0:
        raise ValueError("in the copy")
    return 1.0


def leaves_a_fork(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    if os.fork() == 0:
        time.sleep(FOREVER_S)
    return 1.0


def leaves_a_thread(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    threading.Thread(target=time.sleep, args=(FOREVER_S,), daemon=False).start()
    return 1.0


def leaves_a_daemon(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Starts a process that leaves the group and the session, and ignores SIGTERM."""
    code = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep({FOREVER_S})"
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    return 1.0


def dies_while_a_fork_holds_the_pipe(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    if ctypes.CDLL(None).fork() == 0:  # Python's hooks do not see this one
        time.sleep(FOREVER_S)
    os._exit(0)


def exits_with_success(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    os._exit(0)


def raises_system_exit(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    sys.exit(0)


def kills_its_group(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    os.killpg(0, signal.SIGKILL)
    return 1.0


def crashes(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    ctypes.string_at(0)
    return 1.0


def closes_the_pipe(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    os.closerange(0, 100)
    return 1.0


def closes_the_pipe_and_waits(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    os.closerange(0, 100)
    time.sleep(FOREVER_S)
    return 1.0


def writes_to_the_pipe(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    for fd in range(3, 20):
        with contextlib.suppress(OSError):
            os.write(fd, b'{"number": 1, "outcome": {"kind": "score", "score": 1.0}}\n')
    return 0.0


def writes_a_flood_to_the_pipe(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    while True:
        for fd in range(3, 20):
            with contextlib.suppress(OSError):
                os.write(fd, b"x" * 65536)


def prints_gigabytes(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    while True:
        print("x" * 1_000_000)
        print("x" * 1_000_000, file=sys.stderr)


def takes_gigabytes(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    taken = []
    while True:
        taken.append(os.urandom(1) * 20_000_000)


def loops_in_c(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    """Never returns to Python, so that no signal handler runs."""
    return float(max(itertools.repeat(1)))


def backtracks(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    import re

    return float(re.match(r"(a+)+$", "a" * 60 + "!") is not None)


def ignores_signals(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    for number in {*signal.valid_signals()} - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def catches_everything(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    while True:
        with contextlib.suppress(BaseException):
            while True:
                pass


def waits(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    time.sleep(FOREVER_S)
    return 1.0


def stops_its_process(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    os.kill(os.getpid(), signal.SIGSTOP)
    return 1.0


def replaces_modules(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    json.dumps = json.loads = json.JSONEncoder = json.JSONDecoder = None  # type: ignore[assignment,misc]
    time.perf_counter = time.monotonic = time.time = None  # type: ignore[assignment]
    os.write = os._exit = None  # type: ignore[assignment]
    sys.modules.clear()
    sys.stdout = sys.stderr = None
    return 1.0


def replaces_builtins(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    vars(builtins).clear()
    return 1.0


class Hostile:
    """An object whose every method raises."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"{name}\x1b[31m")

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __float__(self) -> float:
        raise RuntimeError("no number")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]


class HostileNumber(float):
    def __float__(self) -> float:
        raise SystemError("no number")


class HostileType(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")


class HostileError(Exception, metaclass=HostileType):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def returns_a_hostile_object(solution_str: str, ground_truth: str, extra_info: Info = None) -> Any:
    return Hostile()


def returns_a_hostile_number(solution_str: str, ground_truth: str, extra_info: Info = None) -> Any:
    return HostileNumber(1.0)


def returns_a_huge_text(solution_str: str, ground_truth: str, extra_info: Info = None) -> Any:
    return "\x1b[31m" * 2_000_000


def puts_a_hostile_object_into_its_arguments(messages: Any, ground_truth: str, metadata: Any) -> Any:
    metadata["x"] = Hostile()
    messages.append(Hostile())
    return 1.0


def raises_a_hostile_error(solution_str: str, ground_truth: str, extra_info: Info = None) -> Any:
    raise HostileError


def raises_a_huge_error(solution_str: str, ground_truth: str, extra_info: Info = None) -> Any:
    raise ValueError("\x1b[31mx\n" * 1_000_000)


def swallows_a_million_errors(solution_str: str, ground_truth: str, extra_info: Info = None) -> float:
    for number in range(100_000):
        try:
            raise KeyError(number)
        except Exception:
            pass
    return 1.0


OUTCOMES: Mapping[str, tuple[str, str]] = {
    "forks": ("score", ""),
    "forks_and_raises": ("score", ""),
    "leaves_a_fork": ("score", ""),
    "leaves_a_thread": ("score", ""),
    "leaves_a_daemon": ("score", ""),
    "dies_while_a_fork_holds_the_pipe": ("died", "ended its process (exit status 0)"),
    "exits_with_success": ("died", "ended its process (exit status 0)"),
    "raises_system_exit": ("raised", "raised SystemExit: 0"),
    "kills_its_group": ("died", "ended its process (exit status -9)"),
    "crashes": ("died", "ended its process (exit status -11)"),
    "closes_the_pipe": ("died", "ended its process (exit status 1)"),
    "closes_the_pipe_and_waits": ("died", "closed the pipe of its process"),
    "writes_to_the_pipe": ("died", "broke the process in which it runs"),
    "writes_a_flood_to_the_pipe": ("died", "broke the process in which it runs"),
    "prints_gigabytes": ("slow", "took more than 0.5 s of CPU time"),
    "takes_gigabytes": ("died", "took more than 200 MB of memory"),
    "loops_in_c": ("slow", "took more than 0.5 s of CPU time, and could not be interrupted"),
    "backtracks": ("slow", "took more than 0.5 s of CPU time"),
    "ignores_signals": ("slow", "took more than 0.5 s of CPU time, and could not be interrupted"),
    "catches_everything": ("slow", "took more than 0.5 s of CPU time, and could not be interrupted"),
    "waits": ("slow", "waited for more than 2 s"),
    "stops_its_process": ("slow", "waited for more than 2 s"),
    "replaces_modules": ("score", ""),
    "replaces_builtins": ("died", "broke the process in which it runs"),
    "returns_a_hostile_object": ("not_a_score", "must return a number, got Hostile, which raised RuntimeError"),
    "returns_a_hostile_number": ("not_a_score", "must return a number, got HostileNumber, which raised SystemError"),
    "returns_a_huge_text": ("not_a_score", "must return a number, got str: '\\x1b[31m"),
    "puts_a_hostile_object_into_its_arguments": ("score", ""),
    "raises_a_hostile_error": ("refused", "raised HostileError: (its text raised RuntimeError)"),
    "raises_a_huge_error": ("refused", "raised ValueError: \\x1b[31mx \\x1b[31mx"),
    "swallows_a_million_errors": ("score", ""),
}
"""Kind and beginning of the text of each outcome."""
