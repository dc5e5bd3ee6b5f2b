"""The code of rollouts: the agent's module, and the modules in import roots that it needs, as `host.code_digest` finds.

Reward code often stands in the same file as an agent, and it may change without a new rollout. So functions and classes
that score are left out, and so is what only they use: other definitions of their module, and its imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

from pytest_osmosis.host.code_digest import files_needed_by, imported_by, read_source

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


class _Reader:
    """Reads files without the parts that score. `files` are all that may import something from one of them."""

    def __init__(self, scorers: Names, files: Iterable[Path]) -> None:
        self._scorers = scorers
        self._files = sorted(files)

    def read(self, path: Path) -> tuple[bytes, Sequence[str]]:
        """Return the source of a file that concerns rollouts, and the modules that it may import."""
        names = self._scorers.get(path)
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
        others = (read_source(file)[0] for file in self._files if file != path)
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
    scoring: list[ast.stmt] = [
        each
        for each in definitions
        if each.name in names - taken
        and not any(each.name in _used(other) for other in definitions if other is not each)
    ]
    while True:
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
        if not further:
            return scoring
        scoring += further


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a definition or an import binds; none for other statements."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {statement.name}
        case ast.Import():
            return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
        case ast.ImportFrom() if statement.module != "__future__":
            return {alias.asname or alias.name for alias in statement.names}
        case ast.Assign(value=value, targets=[ast.Name(id=name)]) if not _calls(value):
            return {name}
    return set()


def _calls(value: ast.expr) -> bool:
    """Return True for an expression that calls something, which may have effects."""
    return any(isinstance(node, ast.Call | ast.Await) for node in ast.walk(value))


def _used(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _lines(statement: ast.stmt) -> range:
    decorators = getattr(statement, "decorator_list", [])
    return range(min(each.lineno for each in (statement, *decorators)), (statement.end_lineno or 0) + 1)
