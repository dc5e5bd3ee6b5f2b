"""Digests of the code behind a score: of its source, and of all modules that it imports from import roots.

Imports are read from the source, at the top of a module and inside of functions, and followed within the roots. A
digest does not cover installed packages, files other than Python, or the environment.

A process reads each file of user code once: what it imports, also later and again, is what digests are made of.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from pytest_osmosis.text.user_code import is_users_own

if TYPE_CHECKING:
    from _typeshed.importlib import PathEntryFinderProtocol


def _beginning(folder: str) -> str:
    """Return the beginning of the real paths of all that is in a folder."""
    return f"{Path(folder).resolve()}{os.sep}"


class _Sources:
    """The files that were read since code was last loaded, by real path. Modules below `folders` run these bytes."""

    def __init__(self, folders: Iterable[str] = ()) -> None:
        self._folders = tuple(map(_beginning, folders))
        self._loaders: Any = [
            (ExtensionFileLoader, EXTENSION_SUFFIXES),
            (partial(_ReadOnce, self), SOURCE_SUFFIXES),
            (SourcelessFileLoader, BYTECODE_SUFFIXES),
        ]
        self.content: dict[str, bytes] = {}
        self.parsed: dict[Path, tuple[bytes, tuple[str, ...]]] = {}

    def read(self, path: str | Path) -> bytes:
        real = os.path.realpath(path)
        if real not in self.content:
            self.content[real] = Path(real).read_bytes()
        return self.content[real]

    def finder(self, folder: str) -> PathEntryFinderProtocol:
        """Return the finder of modules in a folder of the user's. Raises ImportError for others: a path hook."""
        beginning = _beginning(folder)
        if not (beginning.startswith(self._folders) and is_users_own(beginning)):
            raise ImportError(folder)
        return FileFinder.path_hook(*self._loaders)(folder)


class _ReadOnce(SourceFileLoader):
    """Runs the bytes that were read first, and no compiled file: that may be of a file saved within the same second."""

    def __init__(self, sources: _Sources, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self._sources = sources

    def get_code(self, fullname: str) -> CodeType | None:
        return self.source_to_code(self._sources.read(self.path), self.path)


_sources = _Sources()


def read_anew(folders: Sequence[str]) -> None:
    """Read files as they are now, each once, for digests and for modules in `folders` that are imported from here on.

    Code is about to be loaded. What was loaded before keeps importing what it would have.
    """
    global _sources
    _sources = _Sources(folders)
    if folders:
        sys.path_hooks.insert(0, _sources.finder)
        sys.path_importer_cache.clear()


def spec_of_file(name: str, path: Path) -> ModuleSpec | None:
    """Return the spec by which a file is imported as the module `name`, None if it is not Python."""
    spec = spec_from_file_location(name, path)
    if spec is not None and type(spec.loader) is SourceFileLoader:
        spec.loader = _ReadOnce(_sources, name, str(path))
    return spec


def file_digests(folders: Iterable[str]) -> Mapping[str, str]:
    """Return the digests of all files that were read, by their paths in the first of `folders` that holds them."""
    beginnings = [*map(_beginning, folders), ""]
    return {
        file.removeprefix(next(filter(file.startswith, beginnings))): blake2b(content, digest_size=16).hexdigest()
        for file, content in _sources.content.items()
    }


def source_digest(code: object, roots: Sequence[str]) -> str:
    """Return the digest of the module that defines a function or class, and of the modules in `roots` that it needs."""
    code = inspect.unwrap(code) if callable(code) else code
    module = sys.modules.get(getattr(code, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    digest = blake2b(digest_size=8)
    digest.update(f"{getattr(code, '__qualname__', repr(type(code)))}".encode())
    if file is not None:
        folders = [Path(root) for root in roots]
        for path in sorted(files_needed_by([Path(file)], folders)):
            content, _ = read_source(path)
            digest.update(f"\0{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def files_needed_by(
    files: Iterable[Path], roots: Sequence[Path], read: Callable[[Path], tuple[bytes, Sequence[str]]] | None = None
) -> set[Path]:
    """Return `files`, and those in the roots that they need. `read` returns a file's source and what it imports."""
    needed, waiting = set(files), list(files)
    while waiting:
        path = waiting.pop()
        for name in (read or read_source)(path)[1]:
            new = {file for file in _files_of(name, path, roots) if file not in needed}
            needed |= new
            waiting += new
    return needed


def _files_of(name: str, importer: Path, roots: Sequence[Path]) -> Iterator[Path]:
    """Yield the files in the roots that importing a module runs: its own, and those of the packages around it.

    A name that begins with dots is relative to the folder of the importing module.
    """
    level = len(name) - len(name.lstrip("."))
    bases = [importer.parents[level - 1]] if 0 < level <= len(importer.parents) else [] if level else roots
    parts = name.strip(".").split(".") if name.strip(".") else []
    for base in bases:
        for length in range(0 if level else 1, len(parts) + 1):
            path = base.joinpath(*parts[:length])
            for file in (path / "__init__.py", path.with_name(f"{path.name}.py") if length else None):
                if file is not None and file.is_file():
                    yield file


def read_source(path: Path) -> tuple[bytes, tuple[str, ...]]:
    """Return the bytes of a file, and the names of modules that it may import; nothing if it is not Python."""
    if path not in _sources.parsed:
        try:
            content = _sources.read(path)
            _sources.parsed[path] = content, tuple(dict.fromkeys(imported_by(ast.parse(content))))
        except (OSError, ValueError, SyntaxError):  # no source, or not Python
            _sources.parsed[path] = b"", ()
    return _sources.parsed[path]


def imported_by(tree: ast.AST) -> Iterator[str]:
    """Yield the names of modules that the source may import: for `from a import b` both a and a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            yield source
            yield from (f"{source}{'.' if node.module else ''}{alias.name}" for alias in node.names)
