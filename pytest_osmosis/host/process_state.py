"""What of a process belongs to user code: folder, environment, import roots, modules, warnings.

An engine host is born with them. Where user code runs in pytest's own process instead, they are exchanged while it
does, so that neither side sees what the other makes of them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType

PACKAGE = __name__.partition(".")[0]


class Residence:
    """One eval's part of this process: its `folder`, `environ`, and what is imported from its `roots`."""

    def __init__(self, folder: str, environ: Mapping[str, str], roots: Sequence[str]) -> None:
        self._folder = folder
        self._environ = dict(environ)
        self._roots = tuple(os.path.join(os.path.abspath(root), "") for root in roots)  # noqa: PTH100, PTH118
        self._path: list[str] | None = None
        self._modules: dict[str, ModuleType] = {}

    @contextmanager
    def entered(self) -> Iterator[None]:
        """User code may run inside. What it leaves behind is there again the next time, and not in between."""
        folder, environ, path = os.getcwd(), dict(os.environ), list(sys.path)  # noqa: PTH109
        modules = self._take_modules()
        os.chdir(self._folder)
        _set_environ(self._environ)
        sys.path[:] = self._path if self._path is not None else [entry for entry in path if not self._is_users(entry)]
        sys.modules.update(self._modules)
        try:
            with warnings.catch_warnings():
                warnings.resetwarnings()
                yield
        finally:
            self._folder, self._environ, self._path = os.getcwd(), dict(os.environ), list(sys.path)  # noqa: PTH109
            self._modules = self._take_modules()
            os.chdir(folder)
            _set_environ(environ)
            sys.path[:] = path
            sys.modules.update(modules)

    def _take_modules(self) -> dict[str, ModuleType]:
        """Take what was imported from the roots out of `sys.modules`."""
        found = {
            name: module
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] != PACKAGE and any(map(self._is_users, _places(module)))
        }
        for name in found:
            del sys.modules[name]
        return found

    def _is_users(self, place: str) -> bool:
        """True for a file or folder of the user's, and for the current folder; False for what is installed."""
        inside = os.path.join(os.path.abspath(place), "").startswith(self._roots)  # noqa: PTH100, PTH118
        return inside and "-packages" not in place


def _places(module: ModuleType) -> Sequence[str]:
    """A module's file, or the folders of a package that has none."""
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return (file,)
    with contextlib.suppress(Exception):
        return [str(folder) for folder in module.__path__]
    return ()


def _set_environ(environ: Mapping[str, str]) -> None:
    for name in os.environ.keys() - environ.keys():
        del os.environ[name]
    os.environ.update(environ)
