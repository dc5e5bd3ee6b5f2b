"""The state of a process that belongs to user code: folder, environment, import path and hooks, modules, warnings.

An engine host starts with it. If user code runs in pytest's own process instead, this state is exchanged while it
runs, so that neither side sees the other's changes.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from pytest_osmosis.text.user_frames import is_installed

PACKAGE = __name__.partition(".")[0]


class ProcessState:
    """One eval's state of this process: its `folder`, `environ`, and the modules imported from its `roots`."""

    def __init__(self, folder: str, environ: Mapping[str, str], roots: Sequence[str]) -> None:
        self._folder = folder
        self._environ = dict(environ)
        self._roots = tuple(os.path.join(os.path.abspath(root), "") for root in roots)  # noqa: PTH100, PTH118
        self._path: list[str] | None = None
        self._path_hooks = list(sys.path_hooks)
        self._modules: dict[str, ModuleType] = {}

    @contextmanager
    def active(self) -> Iterator[None]:
        """A context for user code. Changes that the code makes are undone on leaving and restored on the next entry."""
        folder, environ, path = os.getcwd(), dict(os.environ), list(sys.path)  # noqa: PTH109
        hooks = list(sys.path_hooks)
        modules = self._take_modules()
        os.chdir(self._folder)
        _set_environ(self._environ)
        sys.path[:] = self._path if self._path is not None else [entry for entry in path if not self._is_users(entry)]
        _set_path_hooks(self._path_hooks)
        sys.modules.update(self._modules)
        try:
            with warnings.catch_warnings():
                warnings.resetwarnings()
                yield
        finally:
            self._folder, self._environ, self._path = os.getcwd(), dict(os.environ), list(sys.path)  # noqa: PTH109
            self._path_hooks = list(sys.path_hooks)
            self._modules = self._take_modules()
            os.chdir(folder)
            _set_environ(environ)
            sys.path[:] = path
            _set_path_hooks(hooks)
            sys.modules.update(modules)

    def _take_modules(self) -> dict[str, ModuleType]:
        """Remove modules that were imported from the roots from `sys.modules`, and return them."""
        modules = {
            name: module
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] != PACKAGE and any(map(self._is_users, _files(module)))
        }
        for name in modules:
            del sys.modules[name]
        return modules

    def _is_users(self, path: str) -> bool:
        """Return True for a file or folder in the roots that is not installed. "" is the current folder."""
        inside = os.path.join(os.path.abspath(path), "").startswith(self._roots)  # noqa: PTH100, PTH118
        return inside and not is_installed(path)


def _files(module: ModuleType) -> Sequence[str]:
    """Return the file of a module, or the folders of a package without a file."""
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return (file,)
    with contextlib.suppress(Exception):
        return [str(folder) for folder in module.__path__]
    return ()


def _set_path_hooks(hooks: list[Any]) -> None:
    if sys.path_hooks != hooks:
        sys.path_hooks[:] = hooks
        sys.path_importer_cache.clear()


def _set_environ(environ: Mapping[str, str]) -> None:
    for name in os.environ.keys() - environ.keys():
        del os.environ[name]
    os.environ.update(environ)
