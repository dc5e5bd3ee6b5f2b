"""Reward functions that do to their process whatever Python allows. `CASES` says how one call of each ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FUNCTION = """
import builtins, contextlib, ctypes, itertools, json, os, re, signal, subprocess, sys, threading, time

def {name}({arguments}):
    {code}
    return 1.0
"""
FOREVER_S = 1_000_000
RESULT = rb'{"number": 1, "outcome": {"kind": "score", "score": 1.0}}' + b"\n"
DAEMON = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep({FOREVER_S})"
DIED, BROKE, CPU = (
    "ended its process (exit status {})",
    "broke the process in which it runs",
    "took more than 0.5 s of CPU",
)

CASES: Mapping[str, tuple[str, str, str]] = {
    "forks": ("os.fork()", "score", ""),  # it returns twice: in this process and in a copy of it
    "leaves_a_fork": ("if os.fork() == 0: time.sleep(FOREVER_S)", "score", ""),
    # a process that leaves the group and the session, and ignores SIGTERM
    "leaves_a_daemon": ("subprocess.Popen([sys.executable, '-c', DAEMON], start_new_session=True)", "score", ""),
    "dies_while_a_fork_holds_the_pipe": (  # Python's hooks do not see this one
        "ctypes.CDLL(None).fork() or time.sleep(FOREVER_S); os._exit(0)", "died", DIED.format(0),
    ),
    "raises_system_exit": ("sys.exit(0)", "raised", "raised SystemExit: 0"),
    "kills_its_group": ("os.killpg(0, signal.SIGKILL)", "died", DIED.format(-9)),
    "crashes": ("ctypes.string_at(0)", "died", DIED.format(-11)),
    "closes_the_pipe": ("os.closerange(0, 100)", "died", DIED.format(1)),
    "closes_the_pipe_and_waits": (
        "os.closerange(0, 100); time.sleep(FOREVER_S)", "died", "closed the pipe of its process",
    ),
    "writes_to_the_pipe": (
        "for fd in range(3, 20):\n"
        "        with contextlib.suppress(OSError): os.write(fd, RESULT)",
        "died", BROKE,
    ),
    "writes_a_flood_to_the_pipe": (
        "while True:\n"
        "        for fd in range(3, 20):\n"
        "            with contextlib.suppress(OSError): os.write(fd, b'x' * 65536)",
        "died", BROKE,
    ),
    "takes_gigabytes": (
        "taken = []\n    while True: taken.append(os.urandom(1) * 20_000_000)",
        "died", "took more than 200 MB of memory",
    ),
    "loops_in_c": ("max(itertools.repeat(1))", "slow", CPU),  # it never returns to Python: no handler runs
    "waits": ("time.sleep(FOREVER_S)", "slow", "waited for more than 2 s"),
    "stops_its_process": ("os.kill(os.getpid(), signal.SIGSTOP)", "slow", "waited for more than 2 s"),
    "replaces_modules": (
        "json.dumps = json.loads = json.JSONEncoder = json.JSONDecoder = None\n"
        "    time.perf_counter = time.monotonic = time.time = os.write = os._exit = None\n"
        "    sys.modules.clear()\n"
        "    sys.stdout = sys.stderr = None",
        "score", "",
    ),
    "replaces_builtins": ("vars(builtins).clear()", "died", BROKE),
    "returns_a_hostile_object": (
        "return Hostile()", "not_a_score", "must return a number, got Hostile, which raised RuntimeError",
    ),
    "returns_a_huge_text": (
        r"return '\x1b[31m' * 2_000_000", "not_a_score", r"must return a number, got str: '\x1b[31m",
    ),
    "puts_a_hostile_object_into_its_arguments": (
        "metadata['x'] = Hostile()\n    messages.append(Hostile())", "score", "",
    ),
    "raises_a_hostile_error": ("raise HostileError", "refused", "raised HostileError: (its text raised RuntimeError)"),
}  # fmt: skip
"""The code of each function, and kind and beginning of the text of its outcome."""


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


class HostileType(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")


class HostileError(Exception, metaclass=HostileType):
    def __str__(self) -> str:
        raise RuntimeError("no text")


for _name, (_code, *_) in CASES.items():
    _mode = "messages, ground_truth, metadata" if "messages" in _code else "solution_str, ground_truth, extra_info=None"
    exec(compile(FUNCTION.format(name=_name, arguments=_mode, code=_code), __file__, "exec"), globals())
