"""Stands in for `osmosis_ai` while code that was written for it is imported.

The modules in `osmosis_ai/` have the paths of the SDK's. While an `SdkShim` is installed, one that the SDK lacks is
served under its name there, and names that a module of the SDK lacks are added to it. What the installed SDK has always
wins; what it cannot load because one of its extras is missing counts as lacking. `uninstall` leaves no trace of either.

Sources: osmosis_ai 0.2.17 and 0.3.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

PACKAGE = "osmosis_ai"
SERVER = "uvicorn"
"""A module that entrypoints import too: the SDK's extra `server` installs it. It is stood in for as a whole."""
INI = "osmosis_compat"
"""The ini key that turns this off."""
OURS = __name__.rpartition(".")[0]
FOLDER = Path(__file__).parent


class SdkShim:
    """Finds modules of `osmosis_ai` (an entry of `sys.meta_path`). `used` are those of which names were imported."""

    def __init__(self) -> None:
        self.used: dict[str, None] = {}
        self._served: dict[str, ModuleType] = {}
        self._extended: list[tuple[ModuleType, Callable[[str], object] | None]] = []
        self._given: list[object] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence on what code imported from here, none if it imported nothing."""
        if not self.used:
            return ()
        off = f"({INI} = false in pytest's configuration turns this off)"
        if PACKAGE in self._served:
            return (f"{PACKAGE} is not installed: pytest-osmosis stands in for it {off}",)
        return (f"pytest-osmosis adds names that the installed {PACKAGE} lacks {off}",)

    def install(self) -> None:
        sys.meta_path.insert(0, self)
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == PACKAGE and _is_offered(name) and isinstance(module, ModuleType):
                self.extend(module)

    def uninstall(self) -> None:
        sys.meta_path.remove(self)
        for name, module in self._served.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
            above, _, child = name.rpartition(".")
            parent = sys.modules.get(above)
            if parent is not None and vars(parent).get(child) is module:
                delattr(parent, child)
        for module, own in self._extended:
            if own is None:
                del module.__getattr__
            else:
                module.__getattr__ = own  # type: ignore[method-assign]
            for name, value in list(vars(module).items()):
                if any(value is given for given in self._given):  # the SDK keeps what it loads when it is asked for
                    delattr(module, name)
        self._extended.clear()
        self._given.clear()

    @contextmanager
    def active(self, enabled: bool = True) -> Iterator[None]:
        """A context in which this is installed; without `enabled`, one that changes nothing."""
        if not enabled:
            yield
            return
        self.install()
        try:
            yield
        finally:
            self.uninstall()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the SDK's module, which gets the names that it lacks, or else of ours."""
        if name.partition(".")[0] not in (PACKAGE, SERVER) or not _is_offered(name):
            return None
        spec = self._installed(name, path, target)
        if spec is None or spec.loader is None:  # a folder of that name without any module is no SDK
            return _spec_of_ours(name, _OurLoader(self))
        if name == SERVER:
            return None
        spec.loader = _ExtendingLoader(spec.loader, self)  # type: ignore[assignment]  # a loader by its methods
        return spec

    def _installed(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find: Callable[..., ModuleSpec | None] | None = getattr(finder, "find_spec", None)
            if finder is not self and find is not None and (spec := find(name, path, target)) is not None:
                return spec
        return None

    def serve(self, module: ModuleType) -> None:
        """Give a new module all names of ours."""
        self._served[module.__name__] = module
        self._use(module.__name__)
        ours = _ours(module.__name__)
        module.__doc__ = ours.__doc__
        vars(module)["__all__"] = _names(ours)
        self._add_names(module, None)

    def extend(self, module: ModuleType) -> None:
        """Add our names to a module of the SDK until `uninstall`: those that it has not itself."""
        own: Callable[[str], object] | None = vars(module).get("__getattr__")
        self._extended.append((module, own))
        self._add_names(module, own)

    def _add_names(self, module: ModuleType, own: Callable[[str], object] | None) -> None:
        def __getattr__(name: str) -> object:
            missing = None
            if own is not None:
                try:
                    return own(name)
                except AttributeError:
                    pass
                except ModuleNotFoundError as error:
                    missing = error
            value = self._ours(module.__name__, name)
            if value is not None:
                return value
            if missing is not None:
                raise missing
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)

        module.__getattr__ = __getattr__  # type: ignore[method-assign]

    def _use(self, module: str) -> None:
        if module != SERVER:
            self.used[module] = None

    def _ours(self, module: str, name: str) -> object:
        """Return our value of a name of a module, or the module of that name below it; None if there is neither."""
        if name.startswith("__"):  # looked up by the import system, and by tools
            return None
        ours = _ours(module)
        if name in _names(ours):
            self._use(module)
            value: object = getattr(ours, name)
            self._given.append(value)
            return value
        below = f"{module}.{name}"
        return importlib.import_module(below) if _is_offered(below) else None


class _OurLoader(Struct, frozen=True):
    sdk_shim: SdkShim

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self.sdk_shim.serve(module)


class _ExtendingLoader(Struct, frozen=True):
    """Executes a module with its own loader, which the module keeps, and then adds our names to it."""

    loader: Any
    sdk_shim: SdkShim

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        try:
            self.loader.exec_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == PACKAGE:
                raise
            self._serve_instead(module, error)
        else:
            self.sdk_shim.extend(module)

    def _serve_instead(self, module: ModuleType, error: ModuleNotFoundError) -> None:
        """Make ours of a module whose extra is not installed. Raises its own error if ours needs the extra too."""
        for name in [name for name in vars(module) if not name.startswith("__")]:
            delattr(module, name)
        try:
            self.sdk_shim.serve(module)
        except ModuleNotFoundError:
            raise error from None


def _file_of(name: str) -> Path | None:
    """Return our file for a module, or the folder of a package without one; None if we have neither."""
    path = FOLDER.joinpath(*name.split("."))
    candidates = (path / "__init__.py", path.with_suffix(".py"), path)
    return next(filter(Path.exists, candidates), None)


def _is_offered(name: str) -> bool:
    return _file_of(name) is not None


def _ours(name: str) -> ModuleType:
    return importlib.import_module(f"{OURS}.{name}")


def _names(ours: ModuleType) -> list[str]:
    names: list[str] = getattr(ours, "__all__", [])
    return names


def _spec_of_ours(name: str, loader: _OurLoader) -> ModuleSpec:
    file = _file_of(name)
    assert file is not None, "only modules that we have are served"
    is_package = file.name == "__init__.py" or file.is_dir()
    spec = ModuleSpec(name, loader, origin=str(file), is_package=is_package)  # type: ignore[arg-type]
    spec.has_location = file.is_file()  # errors name our file
    return spec
