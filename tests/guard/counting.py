"""Counts of what our code does in this thread. They are exact: neither the machine nor its load changes them.

They belong to one minor version of Python, as others compile and call the same code in other ways.
`python -m tests.guard.counting` prints those of the import of the plugin.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

PACKAGE = "/pytest_osmosis/"
Tracer = Callable[[FrameType, str, Any], Any]


class Counts:
    """The `calls` and `bytecodes` of each function of ours, and the calls of `others` by ours.

    Others are neither builtins nor the import system. What `stats` does is left out: how often its numerical searches
    go round depends on the numbers.
    """

    def __init__(self) -> None:
        self.calls = Counter[str]()
        self.others = Counter[str]()
        self.bytecodes = Counter[str]()
        self.tracers: dict[str, Tracer] = {}

    @property
    def sums(self) -> dict[str, int]:
        kinds = {"calls": self.calls, "calls of others": self.others, "bytecodes": self.bytecodes}
        return {kind: counter.total() for kind, counter in kinds.items()}

    @property
    def functions(self) -> Counter[str]:
        """The calls of each function, of ours and of others."""
        return self.calls + self.others


@contextmanager
def counted(counts: Counts) -> Iterator[None]:
    def profile(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            if name := _name_of(frame.f_code):
                counts.calls[name] += 1
            elif frame.f_back and _name_of(frame.f_back.f_code) and "importlib" not in frame.f_code.co_filename:
                counts.others[frame.f_code.co_qualname] += 1
        elif event == "c_call" and _name_of(frame.f_code):
            module = arg.__module__ or type(arg.__self__).__module__
            if module != "builtins":
                counts.others[f"{module}.{arg.__qualname__}"] += 1

    def tracer_of(name: str) -> Tracer:
        def each(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "opcode":
                counts.bytecodes[name] += 1
            return each

        return each

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if not (name := _name_of(frame.f_code)):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return counts.tracers.get(name) or counts.tracers.setdefault(name, tracer_of(name))

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before[1])
        sys.settrace(before[0])


_NAMES: dict[tuple[str, int, str], str] = {}


def _name_of(code: CodeType) -> str:
    """Return the file and name of a function of ours that is counted, "" for others."""
    key = (code.co_filename, code.co_firstlineno, code.co_qualname)
    if (name := _NAMES.get(key)) is None:
        _, ours, file = code.co_filename.rpartition(PACKAGE)
        name = _NAMES[key] = f"{file} {code.co_qualname}" if ours and not file.startswith("stats/") else ""
    return name


if __name__ == "__main__":
    import pytest  # noqa: F401 (its import is not what is counted)

    of_import = Counts()
    with counted(of_import):
        import pytest_osmosis.plugin  # noqa: F401
    print(json.dumps(of_import.sums))
