"""Trials: the tests of a room, run on one mutant at a time.

One session of pytest collects the tests of a room. For each mutant it forks a process that changes the functions or the
constants which are in memory already, and runs the tests that call them, the fastest first. Nothing is written into the
repository.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from tests.mutation.mutants import CALLED, Mutant, Place, marked

LEFT_OUT = ("slow", "nightly", "journey")
TIMES, SPARE_CPU_S, SPARE_S = 5, 5, 60
"""A test of a mutant may take so many times what it takes without one, and so much more CPU time. All tests of a mutant
together have a multiple of that, and so much more, on the clock: the machine may be busy."""
UNKNOWN_S = 2400.0
LATE = "no end in time"
MOST_BYTES = 16 * 2**30


class NotApplied(Exception):
    """The mutant compiles to the same code, or its function is made and called at import alone."""


class Trials:
    """A plugin of pytest that, in place of running its tests, calls `each` with itself."""

    def __init__(self, each: Callable[[Trials], None]) -> None:
        self._each = each
        self.items: list[pytest.Item] = []
        self.failed = ""
        self.called: dict[str, set[Place]] = {}
        self.took_s: dict[str, float] = {}
        self.functions: list[FunctionType] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not any(map(item.get_closest_marker, LEFT_OUT))]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            sys.exit("the tests cannot be collected")
        self.items = session.items
        self._each(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def watch(self, paths: list[Path]) -> None:
        """Run all tests, and keep which of them call which functions. Exit if one fails."""

        for path in paths:
            module_of(path)

        def run() -> dict[str, Any]:
            found = {}
            functions = functions_of(paths)
            for path in paths:
                swap(functions, marked(path))
            for item in self.items:
                began, builtins.__dict__[CALLED] = time.process_time(), set[Place]()
                self._run([item])
                found[item.nodeid] = [time.process_time() - began, sorted(builtins.__dict__[CALLED])]
            return {"failed": self.failed, "found": found, "modules": list(sys.modules)}

        told = _in_child(run, UNKNOWN_S)
        if told.get("failed", "no end"):
            sys.exit(f"a test fails without a mutant: {told.get('failed')}")
        for name, (took_s, called) in told["found"].items():
            self.took_s[name], self.called[name] = took_s, {(file, line) for file, line in called}
        for name in told["modules"]:  # what tests import while they run is imported once
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        self.functions = functions_of(paths)
        gc.collect()
        gc.freeze()

    def failure(self, mutant: Mutant) -> str | None:
        """Return the first test that fails with a mutant, or why none ended; None if all pass, "" if none calls it."""
        items = [item for item in self.items if self._calls(item, mutant)]
        if not items:
            return ""
        items.sort(key=lambda item: self.took_s[item.nodeid])
        by_file = {item.path: 0.0 for item in items}
        for item in items:
            by_file[item.path] += self.took_s[item.nodeid]
        items.sort(key=lambda item: by_file[item.path])

        def run() -> dict[str, Any]:
            try:
                apply(mutant, self.functions)
            except NotApplied:
                return {"failed": ""}
            except Exception as error:
                return {"failed": f"{type(error).__name__} when imported"}
            self._run(items)
            return {"failed": self.failed}

        told = _in_child(run, 4 * TIMES * sum(by_file.values()) + SPARE_S)
        return told["failed"] or None

    def _calls(self, item: pytest.Item, mutant: Mutant) -> bool:
        file, (first, last) = str(mutant.path.resolve()), mutant.lines
        return not mutant.where or any(
            path == file and first <= line <= last for path, line in self.called[item.nodeid]
        )

    def _run(self, items: list[pytest.Item]) -> None:
        for item, following in zip(items, [*items[1:], None], strict=True):
            most_cpu_s = int(time.process_time() + TIMES * self.took_s.get(item.nodeid, UNKNOWN_S) + SPARE_CPU_S)
            resource.setrlimit(resource.RLIMIT_CPU, (most_cpu_s, resource.RLIM_INFINITY))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                return


def _in_child(run: Callable[[], dict[str, Any]], most_s: float) -> dict[str, Any]:
    """Return what `run` returns in a forked process, or that it has not ended in time."""
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        child = os.fork()
        if not child:
            os.setpgid(0, 0)
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
            try:
                told = run()
            except BaseException as error:  # the mutant's, whatever it is
                told = {"failed": f"{type(error).__name__} outside of tests"}
            os.write(writing, json.dumps(told).encode() + b"\n")
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            line = pipe.readline() if select.select([pipe], [], [], most_s)[0] else b""
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return json.loads(line) if line else {"failed": LATE}


def apply(mutant: Mutant, functions: Iterable[FunctionType]) -> None:
    """Change the functions of a module, or the module itself, which is in memory."""
    changed = mutant.code()
    if not mutant.where:
        _assign(module_of(mutant.path).__dict__, mutant)
        return
    if not swap(functions, changed):
        raise NotApplied


def module_of(path: Path) -> ModuleType:
    parts = path.resolve().relative_to(Path.cwd()).with_suffix("").parts
    return importlib.import_module(".".join(parts).removesuffix(".__init__"))


def swap(functions: Iterable[FunctionType], module: CodeType) -> int:
    """Give functions of a module the code that they have in another form of it; return how many of them change."""
    codes = {(code.co_qualname, code.co_firstlineno): code for code in _codes(module)}
    n = 0
    for function in functions:
        if function.__code__.co_filename == module.co_filename:
            code = codes[function.__code__.co_qualname, function.__code__.co_firstlineno]
            if code != function.__code__ and code.co_freevars == function.__code__.co_freevars:
                function.__code__ = code
                n += 1
    return n


def functions_of(paths: Iterable[Path]) -> list[FunctionType]:
    """Return the functions of modules, as far as they are in memory."""
    files = {str(path.resolve()) for path in paths}
    gc.unfreeze()  # objects that an earlier room froze are not listed
    functions = [each for each in gc.get_objects() if type(each) is FunctionType]
    return [each for each in functions if each.__code__.co_filename in files]


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _assign(namespace: dict[str, Any], mutant: Mutant) -> None:
    """Assign the changed constant of a module, and those that follow from it, wherever they have been imported."""
    names = set[str]()
    for statement in mutant.tree.body:
        found = list(ast.walk(statement))
        loads = {node.id for node in found if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        if mutant.node in found or (isinstance(statement, ast.Assign | ast.AnnAssign) and names & loads):
            before = dict(namespace)
            exec(compile(ast.Module([statement], []), mutant.path, "exec"), namespace)
            for name in [name for name, value in namespace.items() if before.get(name, value) is not value]:
                names.add(name)
                for module in list(sys.modules.values()):
                    if getattr(module, "__dict__", {}).get(name) is before[name]:
                        setattr(module, name, namespace[name])
