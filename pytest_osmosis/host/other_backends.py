"""Backends of the Osmosis SDK that run a rollout elsewhere, found in the source of an entrypoint without running it.

An entrypoint builds its backend where an eval does not come: in `main()`. It also imports what only that backend needs.
So the source is read: a backend counts if the entrypoint uses its class, or anything that leads to it in a module of
the import roots (a class, function or variable). Annotations, and classes that nothing uses, do not count.

Source: osmosis_ai 0.3.8, whose only other backend is `LocalBackend`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis.host.code_digest import files_needed_by, read_source

CONTAINERS = "HarborBackend"
BASE = "ExecutionBackend"
"""The class from which users derive backends of their own."""
_CHECKS = ("isinstance", "issubclass", "cast")


class OtherBackend(NamedTuple):
    """The line of the entrypoint that uses `name`, which is or leads to the class `backend`."""

    line: int
    name: str
    backend: str

    def __str__(self) -> str:
        where = "in a container" if self.backend == CONTAINERS else "in a way of its own"
        leads = "" if self.name == self.backend else f" (by {self.name})"
        return (
            f"line {self.line} uses {self.backend}{leads}, which runs the workflow {where}, while an eval runs it on "
            "this machine; `osmosis eval run` evaluates it there; if it can run here, use LocalBackend, or name its "
            "classes in [agent] agent and [scoring] grader: see docs/how-to/osmosis-workspace.md"
        )


def other_backend(entrypoint: Path, roots: Sequence[str]) -> OtherBackend | None:
    """Return the first use of such a backend in an entrypoint, None if there is none."""
    sources = {path: read_source(path)[0] for path in files_needed_by([entrypoint], [Path(root) for root in roots])}
    if not any(name.encode() in source for source in sources.values() for name in (CONTAINERS, BASE)):
        return None
    modules = {path: _Module(ast.parse(source)) for path, source in sources.items()}
    leads, before = {CONTAINERS: CONTAINERS}, -1
    while before < sum(len(module.own) for module in modules.values()):
        before = sum(len(module.own) for module in modules.values())
        for module in modules.values():
            module.follow(leads)
        leads = {name: backend for module in modules.values() for name, backend in module.own.items()} | leads
    return min(modules[entrypoint].uses(leads), default=None)


class _Module:
    """A module's source. `own` are the names that it defines and that lead to a backend."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        self.own: dict[str, str] = {}

    def follow(self, leads: Mapping[str, str]) -> None:
        for statement in _statements(self._tree.body):
            for name in _bound(statement):
                bases = statement.bases if isinstance(statement, ast.ClassDef) else []
                derived = [*filter(None, (self._led(base, leads) for base in bases))]
                own = [name for base in bases if self._named(base) == BASE]
                used = [use.backend for use in self._uses(statement, leads)]
                for backend in (*derived, *own, *used):
                    self.own.setdefault(name, backend)

    def uses(self, leads: Mapping[str, str]) -> Iterator[OtherBackend]:
        return self._uses(self._tree, leads)

    def _uses(self, node: ast.AST, leads: Mapping[str, str]) -> Iterator[OtherBackend]:
        waiting = [node]
        while waiting:
            node = waiting.pop()
            backend = self._led(node, leads)
            if backend is not None and isinstance(node, ast.Name | ast.Attribute):
                yield OtherBackend(node.lineno, _last_name(node), backend)
            waiting += _children(node)

    def _led(self, node: ast.AST, leads: Mapping[str, str]) -> str | None:
        """Return the backend to which an expression leads by its name, None for another."""
        if isinstance(node, ast.Attribute):
            return leads.get(node.attr) if isinstance(node.ctx, ast.Load) else None
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            return None
        return self.own.get(node.id) or leads.get(self._imported(node.id) or "")

    def _named(self, node: ast.AST) -> str | None:
        """Return the name of a class where it is defined."""
        return (self._imported(node.id) or node.id) if isinstance(node, ast.Name) else _last_name(node)

    def _imported(self, name: str) -> str | None:
        """Return the name under which another module defines a name, None if it is not imported."""
        aliases = [alias for node in self._imports for alias in node.names]
        named = (alias.name for alias in aliases if name == (alias.asname or alias.name))
        return next(named, name if any(alias.name == "*" for alias in aliases) else None)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node that can use a class, not those that only name it."""
    unused = {"annotation", "returns"}
    if isinstance(node, ast.ClassDef):
        unused.add("bases")
    if isinstance(node, ast.Call) and _last_name(node.func) in _CHECKS:
        unused.add("args")
    for field, value in ast.iter_fields(node):
        if field not in unused:
            yield from (
                child for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST)
            )


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is imported, also those in blocks."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With | ast.For | ast.While):
            yield from _statements([child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)])


def _bound(statement: ast.stmt) -> list[str]:
    """Return the names that a statement defines."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
    return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]


def _last_name(node: ast.AST) -> str:
    """Return the last name of an expression like `a.b`, "" for another."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
