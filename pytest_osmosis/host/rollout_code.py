"""The code behind rollouts and scores: its digests, and the code of rollouts, as far as it can be told apart.

A digest covers the source of code and of all modules that it imports from import roots. Imports are read from the
source, at the top of a module and inside of functions, and followed within the roots. It does not cover installed
packages, files other than Python, or the environment. A process reads each file of user code once: what it imports,
also later and again, is what digests are made of.

Reward code often stands in the same file as an agent, and it may change without a new rollout. So functions and classes
that score are left out of the code of rollouts, and so is what only they use: other definitions of their module, and
its imports.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pytest_osmosis.errors import CodeError
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

    Call it before loading code. What is already loaded imports the same as without it.
    """
    global _sources
    _sources = _Sources(folders)
    if folders:
        sys.path_hooks.insert(0, _sources.finder)
        sys.path_importer_cache.clear()


def add_roots(roots: Sequence[str]) -> None:
    """Put import roots before installed packages, but after the standard library, which other code imports too."""
    first = next((index for index, path in enumerate(sys.path) if path.endswith("-packages")), len(sys.path))
    sys.path[first:first] = [root for root in dict.fromkeys(roots) if root not in sys.path[:first]]


def module_of_file(name: str, path: Path) -> tuple[ModuleType, Callable[[], None]]:
    """Return a file as the new module `name`, and what executes it. Raises `CodeError` if it is not Python."""
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CodeError(f"{path}: not a Python file")
    if type(spec.loader) is SourceFileLoader:
        spec.loader = _ReadOnce(_sources, name, str(path))
    module = sys.modules[name] = module_from_spec(spec)
    return module, partial(spec.loader.exec_module, module)


def file_digests(folders: Iterable[str]) -> Mapping[str, str]:
    """Return the digests of all files that were read, by their paths in the first of `folders` that holds them."""
    beginnings = [*map(_beginning, folders), ""]
    return {
        file.removeprefix(next(filter(file.startswith, beginnings))): blake2b(content, digest_size=16).hexdigest()
        for file, content in _sources.content.items()
    }


def source_digest(code: object, roots: Sequence[str]) -> str:
    """Return the digest of the module that defines a function or class, and of the modules in `roots` that it needs."""
    code, file = unwrapped(code)
    digest = blake2b(digest_size=8)
    digest.update(f"{getattr(code, '__qualname__', repr(type(code)))}".encode())
    if file is not None:
        for path in sorted(files_needed_by([file], [Path(root) for root in roots])):
            content, _ = read_source(path)
            digest.update(f"\0{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def unwrapped(code: object) -> tuple[object, Path | None]:
    """Return a function or class without its decorators, and the file of its module."""
    code = inspect.unwrap(code) if callable(code) else code
    return code, module_file(getattr(code, "__module__", None))


def module_file(name: str | None) -> Path | None:
    """Return the file of a module that was imported, None without one."""
    file = getattr(sys.modules.get(name or ""), "__file__", None)
    return None if file is None else Path(file)


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
    parts = [*filter(None, name.split("."))]
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


Names = Mapping[Path, frozenset[str]]
"""The names of functions and classes that score, by the file that defines them."""


def rollout_code(agents: Iterable[Path], scorers: Names, roots: Sequence[str], workspace: str) -> dict[str, str]:
    """Return digests of the files that the modules in `agents` need, without `scorers`, by paths in the workspace."""
    folders, files = [Path(root) for root in roots], sorted(set(agents))
    reader = _Reader(scorers, files_needed_by(files, folders))
    return {
        _title(path, [Path(workspace), *folders]): blake2b(reader.read(path)[0], digest_size=16).hexdigest()
        for path in sorted(files_needed_by(files, folders, reader.read))
    }


def environment_code(module: Path, roots: Sequence[str]) -> dict[str, str]:
    """Return digests of a verifiers environment's files: its module or whole package, and the modules that it needs.

    These lie in `roots`, or in the same folder, unless it is installed among other packages.
    """
    is_package = module.name == "__init__.py"
    folder = module.parents[1] if is_package else module.parent
    files = module.parent.rglob("*.py") if is_package else [module]
    own = [] if folder.name.endswith("-packages") else [str(folder)]
    return rollout_code(files, {}, [*own, *roots], str(folder))


def _title(path: Path, folders: Iterable[Path]) -> str:
    """Return the path of a file in the first of `folders` that holds it, else its name."""
    inside = next((folder for folder in folders if path.is_relative_to(folder)), path.parent)
    return path.relative_to(inside).as_posix()


class _Reader(Struct, frozen=True):
    """Reads files without the parts that score. `files` are all that may import something from one of them."""

    scorers: Names
    files: Collection[Path]

    def read(self, path: Path) -> tuple[bytes, Sequence[str]]:
        """Return the source of a file that concerns rollouts, and the modules that it may import."""
        names = self.scorers.get(path)
        whole, imports = read_source(path)
        if not names or not whole:
            return whole, imports
        body = ast.parse(whole).body
        scoring = _scoring(body, names, self._taken_from(path))
        if not scoring:
            return whole, imports
        kept = [statement for statement in body if statement not in scoring]
        gone = {line for each in scoring for line in _lines(each)} - {line for each in kept for line in _lines(each)}
        source = b"".join(
            line for number, line in enumerate(whole.splitlines(keepends=True), start=1) if number not in gone
        )
        return source, tuple(dict.fromkeys(name for statement in kept for name in imported_by(statement)))

    def _taken_from(self, path: Path) -> frozenset[str]:
        """Return the names that other files may take from the module at `path`; "*" for all."""
        module = path.parent.name if path.stem == "__init__" else path.stem
        others = (read_source(file)[0] for file in self.files if file != path)
        return frozenset(name for source in others for name in _taken(ast.parse(source or b""), module))


def _taken(tree: ast.AST, module: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] == module:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module:
            yield node.attr


def _scoring(body: Sequence[ast.stmt], names: frozenset[str], taken: frozenset[str]) -> list[ast.stmt]:
    """Return the statements of a module that define `names`, and those of which nothing but these makes use."""
    if "*" in taken:
        return []
    definitions = [each for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    scoring: list[ast.stmt] = []
    further: list[ast.stmt] = [
        each
        for each in definitions
        if each.name in names - taken
        and not any(each.name in _used(other) for other in definitions if other is not each)
    ]
    while further:
        scoring += further
        used = {name for each in scoring for name in _used(each)}
        rest = [each for each in body if each not in scoring]
        further = [
            each
            for each in rest
            if (bound := _bound(each))
            and bound <= used
            and not bound & taken
            and not any(bound & _used(other) for other in rest if other is not each)
        ]
    return scoring


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a definition or an import binds; none for other statements."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {statement.name}
        case ast.Import():
            return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
        case ast.ImportFrom() if statement.module != "__future__":
            return {alias.asname or alias.name for alias in statement.names}
        case ast.Assign(value=value, targets=[ast.Name(id=name)]):
            if not any(isinstance(node, ast.Call | ast.Await) for node in ast.walk(value)):  # calls may have effects
                return {name}
    return set()


def _used(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _lines(statement: ast.stmt) -> range:
    decorators = getattr(statement, "decorator_list", [])
    return range(min(each.lineno for each in (statement, *decorators)), (statement.end_lineno or 0) + 1)
