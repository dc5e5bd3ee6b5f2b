"""Digests of the code behind a score: of its source, and of all modules that it imports from import roots.

Imports are read from the source, at the top of a module and inside of functions, and followed within the roots. A
digest does not cover installed packages, files other than Python, or the environment.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

_SOURCES: dict[Path, tuple[bytes, tuple[str, ...]]] = {}
"""The bytes of each file that was read since code was last loaded, and the names of modules that it may import."""


def forget_sources() -> None:
    """Let the next digests be of the files as they are now. Code that is about to be loaded is."""
    _SOURCES.clear()


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
    if path not in _SOURCES:
        try:
            content = path.read_bytes()
            _SOURCES[path] = content, tuple(dict.fromkeys(imported_by(ast.parse(content))))
        except (OSError, ValueError, SyntaxError):  # no source, or not Python
            _SOURCES[path] = b"", ()
    return _SOURCES[path]


def imported_by(tree: ast.AST) -> Iterator[str]:
    """Yield the names of modules that the source may import: for `from a import b` both a and a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            yield source
            yield from (f"{source}{'.' if node.module else ''}{alias.name}" for alias in node.names)
