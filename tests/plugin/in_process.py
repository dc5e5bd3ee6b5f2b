"""Sessions of pytest, and commands of ours, in the process of the tests: a third of the cost of a process of their own.

They see what a new process would see: the folder, an import path and modules without those of earlier workspaces,
Python's own filters for warnings. What they change is undone, and what they leave behind fails the test that ran them:
signal handlers, environment, hooks and handlers of the interpreter, threads of ours, open files of the workspace.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import logging
import os
import pkgutil
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

import pytest_osmosis
from pytest_osmosis import cli

REPOSITORY = Path(__file__).resolve().parents[2]
KEPT = tuple(f"{folder}{os.sep}" for folder in (REPOSITORY, sys.prefix, sys.base_prefix))
"""Folders whose modules stay imported. All others belong to workspaces, which have modules of equal names."""
OURS = f"{Path(pytest_osmosis.__file__).parent}{os.sep}"
DEADLINE_S = 180.0
"""The time that a session may take on a loaded machine; what takes longer hangs."""
END_S = 60.0
"""The time that threads of ours have to end after a session, on a loaded machine."""
REQUESTS = "osmosis-own-loop"
"""The thread that sends the requests of code that blocks. It is made once, and ends with the process."""
OF_A_SESSION = ("PYTEST_CURRENT_TEST", "PYTEST_VERSION")
"""Environment variables that pytest sets while it runs."""


class NotInProcess:
    """A plugin that refuses what needs a process of its own."""

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_xdist_setupnodes(self) -> None:
        raise RuntimeError("xdist needs a process of its own: use run_process")


def run_pytest(root: Path, arguments: Sequence[str], stdin: bytes | None = None) -> pytest.RunResult:
    installed = _distributions()
    with _undone(root), pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata, "distributions", lambda: installed)
        return _run(lambda: pytest.main(list(arguments), plugins=[NotInProcess()]), root, stdin)


class _Distribution:
    """An installed distribution, each of whose attributes is read once."""

    def __init__(self, distribution: metadata.Distribution) -> None:
        self._distribution = distribution

    def __getattr__(self, name: str) -> object:
        value = getattr(self._distribution, name)
        setattr(self, name, value)
        return value


@functools.cache
def _distributions() -> tuple[_Distribution, ...]:
    """Return what is installed. Each session looks for plugins there twice, which takes a fifth of its time."""
    return tuple(map(_Distribution, metadata.distributions()))


def run_command(root: Path, arguments: Sequence[str], stdin: bytes | None = None) -> pytest.RunResult:
    with _undone(root), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["pytest-osmosis", *arguments])
        return _run(lambda: cli.main(arguments), root, stdin)


def _run(main: Callable[[], int], root: Path, stdin: bytes | None) -> pytest.RunResult:
    out, err, given = _stream(), _stream(), sys.stdin
    began = time.monotonic()
    try:
        with contextlib.chdir(root), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _deadline():
            sys.stdin = _stream(stdin or b"")
            status = _status(main)
    finally:
        sys.stdin = given
        for stream, shown in ((out, sys.stdout), (err, sys.stderr)):
            shown.write(_text(stream))  # pytest shows it if the test fails
    return pytest.RunResult(status, _text(out).splitlines(), _text(err).splitlines(), time.monotonic() - began)


def _status(main: Callable[[], int]) -> int:
    try:
        return main()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except Exception:
        traceback.print_exc()
        return 1


@contextlib.contextmanager
def _deadline() -> Iterator[None]:
    """Press Ctrl-C in a session that hangs, and fail."""
    rang = threading.Event()

    def ring(*_: object) -> None:
        rang.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)
    try:
        yield
    except KeyboardInterrupt:
        if not rang.is_set():
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not rang.is_set(), f"the session did not end within {DEADLINE_S:g} s"


def _stream(content: bytes = b"") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    content: bytes = stream.buffer.getvalue()  # type: ignore[attr-defined]  # a BytesIO
    return content.decode("utf-8", "replace")


# -- what a session leaves behind ----------------------------------------------------------------------------


@contextlib.contextmanager
def _undone(root: Path) -> Iterator[None]:
    """A context in which a session may import what it likes. Other changes of this process are reported."""
    _import_plugin()
    importlib.invalidate_caches()
    before, threads = _state(root), _threads()
    modules, path, finders = dict(sys.modules), list(sys.path), list(sys.meta_path)
    environ = dict(os.environ)
    for name, module in modules.items():
        if _is_an_example(module):
            del sys.modules[name]
    sys.path[:] = [str(root), *(entry for entry in path if entry not in ("", str(REPOSITORY))), str(REPOSITORY)]
    try:
        with warnings.catch_warnings():
            _filter_as_python_does()
            yield
            gc.collect()  # files that nobody closed are nobody's fault here, as in a process that ends
    finally:
        sys.path[:], sys.meta_path[:] = path, finders
        _forget_users_modules(modules)
        left = _changes(before, _state(root))
        os.environ.clear()
        os.environ.update(environ)
    assert not left, f"the session left behind: {left}"
    _wait_for_end_of(_threads() - threads)


@functools.cache
def _import_plugin() -> None:
    """Import the plugin, so that its constants are known before a session changes one.

    The garbage collector does not look again at what is there now: pytest lets it look five times a session.
    """
    for module in pkgutil.walk_packages([f"{OURS}plugin"], "pytest_osmosis.plugin."):
        importlib.import_module(module.name)
    gc.collect()
    gc.freeze()


def _filter_as_python_does() -> None:
    warnings.resetwarnings()
    for category in (ResourceWarning, ImportWarning, PendingDeprecationWarning, DeprecationWarning):
        warnings.simplefilter("ignore", category)
    warnings.filterwarnings("default", category=DeprecationWarning, module="__main__")


State = dict[str, dict[str, object]]


def _state(root: Path) -> State:
    """Return settings of this process that belong to whoever started pytest, by kind and name."""
    return {
        "signal handlers": {number.name: signal.getsignal(number) for number in signal.Signals},
        "environment": {name: value for name, value in os.environ.items() if name not in OF_A_SESSION},
        "streams": {"in": sys.stdin, "out": sys.stdout, "err": sys.stderr},
        "hooks": {"errors": sys.excepthook, "threads": threading.excepthook, "unraisable": sys.unraisablehook},
        "log handlers": {"handlers": list(logging.root.handlers), "level": logging.root.level},
        "garbage collector": {"enabled": gc.isenabled()},
        "open files": dict.fromkeys(_open_files(root), "open"),
        "constants": _constants(),
    }


def _changes(before: State, after: State) -> dict[str, dict[str, tuple[object, object]]]:
    """Return what differs, with the values before and after. A module that is imported adds its constants."""
    changes: dict[str, dict[str, tuple[object, object]]] = {}
    for kind, was in before.items():
        names = was.keys() if kind == "constants" else was.keys() | after[kind].keys()
        for name in names:
            values = was.get(name), after[kind].get(name)
            if values[0] != values[1]:
                changes.setdefault(kind, {})[name] = values
    return changes


def _constants() -> dict[str, object]:
    """Return the constants of the package, which plugins of tests change."""
    return {
        f"{name}.{constant}": vars(module).get(constant)
        for name, module in list(sys.modules.items())
        if name.startswith("pytest_osmosis.")
        for constant in _names_of_constants(module)
    }


@functools.cache
def _names_of_constants(module: ModuleType) -> Sequence[str]:
    return [name for name, value in vars(module).items() if name.isupper() and isinstance(value, int | float | str)]


def _open_files(root: Path) -> Iterator[str]:
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            path = str(link.readlink())
            if path.startswith(f"{root}{os.sep}"):
                yield path


def _threads() -> set[threading.Thread]:
    return {
        thread for thread in threading.enumerate() if thread.name.startswith("osmosis-") and thread.name != REQUESTS
    }


def _wait_for_end_of(threads: set[threading.Thread]) -> None:
    end = time.monotonic() + END_S
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    alive = [thread.name for thread in threads if thread.is_alive()]
    assert not alive, f"the session left threads behind: {alive}"


def _is_an_example(module: ModuleType) -> bool:
    """Return True for a module of an example of this repository: its name may be one of a workspace's."""
    file = str(getattr(module, "__file__", None) or "")
    inside = file.startswith(KEPT[0]) and not file.startswith((OURS, *KEPT[1:]))
    return inside and not file.startswith(str(REPOSITORY / "tests"))


def _forget_users_modules(before: dict[str, ModuleType]) -> None:
    """Restore the modules of before, and keep new ones that are no user's: some cannot be imported twice."""
    for name, module in list(sys.modules.items()):
        if name not in before and not _is_kept(name, module):
            del sys.modules[name]
    sys.modules.update(before)


def _is_kept(name: str, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return file.startswith(KEPT)
    folders = [str(folder) for folder in getattr(module, "__path__", ())]
    if folders:
        return all(folder.startswith(KEPT) for folder in folders)
    top, _, below = name.partition(".")
    return top in sys.stdlib_module_names or (bool(below) and top in sys.modules and _is_kept(top, sys.modules[top]))
