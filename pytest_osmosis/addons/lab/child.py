"""The child process of the lab, which calls reward functions of one module.

The protocol is JSON lines. The first request names the module, and how far its clock runs ahead. Each further request
is a call, and the reply is its outcome. The parent ends this process if a call takes too long. Output of user code is
discarded.

User code may replace functions of modules and builtins. What is needed after a call is therefore looked up before, and
a process that still breaks ends at once: its parent starts another.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import sys
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from pytest_osmosis import seams
from pytest_osmosis.addons.lab.calls import CallInput, CallOutcome, call, call_noting_patterns, outcome_of_exception
from pytest_osmosis.addons.lab.target import Target, targets_in
from pytest_osmosis.processes.child import leave_no_core_file

_encoded = json.JSONEncoder().encode
_decoded = json.JSONDecoder().decode
_write = os.write
_exit = os._exit
_Anything = BaseException


def main() -> None:
    """Serve the parent until it is gone. Threads and exit handlers of user code do not delay the end."""
    requests, replies = _take_protocol()
    try:
        _serve(requests, replies)
        _exit(0)
    except _Anything:
        _write(replies, b'"broken"\n')
    finally:
        _exit(1)


def _serve(requests: IO[str], replies: int) -> None:
    first = _decoded(requests.readline())
    sys.path[:] = first["sys_path"]
    if first["clock_s"]:
        import time_machine

        time_machine.travel(timedelta(seconds=first["clock_s"])).start()
    path = Path(first["path"])
    if first["sdk_shim"] and (sdk_shim := seams.sdk_shim()) is not None:
        sdk_shim.install()
    try:
        module = _load(first["module"], path)
        targets = {target.name: target for target in targets_in(module, path, plain=True)}
    except BaseException as error:
        _send(replies, {"failed": outcome_of_exception(error).text.removeprefix("raised ")})
        return
    _send(replies, {"ready": sorted(targets)})
    for line in requests:
        request = _decoded(line)
        outcome = _called(targets[request["function"]], request)
        _send(replies, {"number": request["number"], "outcome": asdict(outcome)})


def _called(target: Target, request: dict[str, Any]) -> CallOutcome:
    try:
        return (call_noting_patterns if request["patterns"] else call)(target, CallInput(**request["input"]))
    except BaseException as error:  # for example SystemExit
        return replace(outcome_of_exception(error), kind="raised")


def _load(name: str, path: Path) -> ModuleType:
    """Import the module by the name that pytest used, or else from its file."""
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


def _take_protocol() -> tuple[IO[str], int]:
    """Return standard input and output, and point those of user code to the null device."""
    requests = os.dup(0)
    replies = os.dup(1)  # the next free number
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=partial(os.closerange, requests, replies + 1))
    _be_the_first_to_go()
    leave_no_core_file()
    return os.fdopen(requests, "r", encoding="utf-8"), replies


def _be_the_first_to_go() -> None:
    """Let the system end this process, not pytest, if memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _send(replies: int, data: dict[str, Any]) -> None:
    line = memoryview(_encoded(data).encode("ascii") + b"\n")
    while line:
        line = line[_write(replies, line) :]
