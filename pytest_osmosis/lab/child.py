"""The child process of the lab: `python -m pytest_osmosis.lab.child` calls reward functions of one module.

JSON lines: the first says which module (and how far its clock is set forward), each other one is a call, answered by
its outcome. A call that uses more CPU than it may is cut off by a signal; where nothing cuts it off, the parent ends
this process. What the user's code prints goes nowhere.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import IO, Any

from pytest_osmosis.lab.calls import Outcome, call, from_json, outcome_to_json
from pytest_osmosis.lab.swallowing import watched
from pytest_osmosis.lab.target import Target, targets_in

AGAIN_S = 0.2
"""Code that catches everything catches the cut too, so it comes again."""


class CutOff(BaseException):
    """The call has used all its CPU time."""


def main() -> None:
    """Serve calls until standard input ends."""
    requests, replies = _take_protocol()
    first = json.loads(requests.readline())
    sys.path[:] = first["sys_path"]
    if first["clock_s"]:
        from pytest_osmosis.lab.clock import set_forward

        set_forward(first["clock_s"])
    path = Path(first["path"])
    try:
        module = _load(first["module"], path)
        targets = {target.name: target for target in targets_in(module, path, plain=True)}
    except BaseException as error:
        _say(replies, {"failed": f"{type(error).__name__}: {error}"})
        return
    _say(replies, {"ready": sorted(targets)})
    for line in requests:
        asked = json.loads(line)
        target = targets[asked["function"]]
        _say(replies, outcome_to_json(_called(target, asked)))


def _called(target: Target, asked: dict[str, Any]) -> Outcome:
    given = from_json(asked["input"])
    try:
        with _limited(asked["cpu_s"]) as cut:
            outcome = watched(target, given) if asked["watch"] else call(target, given)
    except CutOff:
        return _slow(asked["cpu_s"])
    except BaseException as error:  # sys.exit() and the like
        return Outcome("raised", text=f"raised {type(error).__name__}: {error}")
    return _slow(asked["cpu_s"]) if cut else outcome


def _slow(cpu_s: float) -> Outcome:
    return Outcome("slow", text=f"took more than {cpu_s:g} s of CPU time")


@contextlib.contextmanager
def _limited(cpu_s: float) -> Iterator[list[bool]]:
    """Cut the block off when it has used so much CPU; the list is no longer empty then."""
    cut: list[bool] = []
    if not hasattr(signal, "setitimer"):
        yield cut
        return

    def ring(number: int, frame: FrameType | None) -> None:
        cut.append(True)
        raise CutOff

    signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, cpu_s, AGAIN_S)
    try:
        yield cut
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _load(name: str, path: Path) -> ModuleType:
    """The module as pytest imported it, by its name, or else from its file."""
    with contextlib.suppress(ImportError):
        module = importlib.import_module(name)
        if Path(module.__file__ or "").resolve() == path.resolve():
            return module
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _take_protocol() -> tuple[IO[str], IO[str]]:
    """Standard input and output for us alone; the user's code gets neither."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    return requests, replies


def _say(replies: IO[str], data: dict[str, Any]) -> None:
    replies.write(json.dumps(data) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
