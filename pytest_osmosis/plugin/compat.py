"""Adjustments to Python and pytest: how our modules are imported, SIGTERM, and paths that pytest misreads."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from _pytest import main

from pytest_osmosis.plugin.reward_options import split_argument

_READER = "resolve_collection_argument"


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path, target) if name.startswith("pytest_osmosis.") else None


@contextmanager
def without_assert_rewriting() -> Iterator[None]:
    """Import modules of this package past pytest's assertion rewriting, which would add about 100 ms to the start.

    Rewriting explains failed assertions of tests; this package contains no tests.
    """
    sys.meta_path.insert(0, _Finder)
    try:
        yield
    finally:
        sys.meta_path.remove(_Finder)


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM, unless somebody else handles that signal.

    CI systems and schedulers send it, and by default Python would end at once, without results.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def keep_literal_paths(config: pytest.Config, arguments: Iterable[str]) -> None:
    """Let pytest collect from these arguments although it takes "[" and "::" for the beginning of a test's name.

    pytest has no other way to name a file, so its function that reads an argument is replaced for the session: it reads
    the name of a file without such characters, and then gets the path. If pytest renames that function, such paths are
    refused again, as without us (`tests/hostile/test_paths.py`).
    """
    folder = config.invocation_params.dir
    split = {arg: split_argument(folder, arg) for arg in arguments}
    literal = {
        arg: (folder / path, rest)
        for arg, (path, rest) in split.items()
        if ("[" in path or "::" in path) and (folder / path).exists()
    }
    read = getattr(main, _READER, None)
    if not literal or read is None:
        return

    def read_literally(invocation_path: Path, arg: str, *args: Any, **options: Any) -> Any:
        if arg not in literal:
            return read(invocation_path, arg, *args, **options)
        path, rest = literal[arg]
        replacement = read(invocation_path, f"{os.devnull}{rest}", *args, **options)
        whole = ["::".join(replacement.parts)] if rest else []  # evals are flat
        return dataclasses.replace(replacement, path=path, parts=replacement.parts if path.suffix == ".py" else whole)

    setattr(main, _READER, read_literally)
    config.add_cleanup(lambda: setattr(main, _READER, read))
