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

from pytest_osmosis.host.rollout_code import files_needed_by, read_source

CONTAINERS = "HarborBackend"
BASE = "ExecutionBackend"
"""The class from which users derive backends of their own."""
_CHECKS = ("isinstance", "issubclass", "cast")
_UNUSED = ("annotation", "returns", "bases")


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
    leads = {CONTAINERS: CONTAINERS, BASE: BASE}
    if not any(name.encode() in source for source in sources.values() for name in leads):
        return None
    modules = {path: _Module(source) for path, source in sources.items()}
    while any(module.follow(leads) for module in modules.values()):
        pass
    return min(modules[entrypoint].uses(modules[entrypoint].tree, leads), default=None)


class _Module:
    """A module's source. Its `tree` lacks the parts that only name a class: annotations, bases, checks of types."""

    def __init__(self, source: bytes) -> None:
        self.tree = ast.parse(source)
        nodes = [*ast.walk(self.tree)]
        names = [alias for node in reversed(nodes) if isinstance(node, ast.ImportFrom) for alias in node.names]
        self._imported = {alias.asname or alias.name: alias.name for alias in names}
        self._defined = [(name, node, getattr(node, "bases", ())) for name, node in _definitions(self.tree)]
        self._own: dict[str, str] = {}
        for node in nodes:
            unused = ("args",) if isinstance(node, ast.Call) and _last_name(node.func) in _CHECKS else _UNUSED
            for field in unused:
                setattr(node, field, None)

    def follow(self, leads: dict[str, str]) -> bool:
        """Add the names that this module defines and that lead to a backend, and return True if there are more."""
        before = len(self._own)
        for name, node, bases in self._defined:
            of_base = [name if backend == BASE else backend for base in bases if (backend := self._led(base, leads))]
            for backend in (*of_base, *(use.backend for use in self.uses(node, leads))):
                leads.setdefault(name, self._own.setdefault(name, backend))
        return len(self._own) > before

    def uses(self, tree: ast.AST, leads: Mapping[str, str]) -> Iterator[OtherBackend]:
        for node in ast.walk(tree):
            backend = self._led(node, leads)
            if backend not in (None, BASE) and isinstance(node, ast.expr):
                yield OtherBackend(node.lineno, _last_name(node), backend)

    def _led(self, node: ast.AST, leads: Mapping[str, str]) -> str | None:
        """Return the backend to which an expression leads by its name, None for another."""
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()):
                return leads.get(name)
            case ast.Name(id=name, ctx=ast.Load()):
                imported = self._imported.get(name, name if "*" in self._imported else "")
                return self._own.get(name) or leads.get(imported)
        return None


def _definitions(node: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the names that are defined when a module is imported, also in blocks, and the statements that do it."""
    for child in ast.iter_child_nodes(node):
        match child:
            case (
                ast.ClassDef(name=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.AnnAssign(target=ast.Name(id=name))
            ):
                yield name, child
            case ast.Assign(targets=targets):
                names = (each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
                yield from ((each.id, child) for each in names)
            case ast.stmt() | ast.ExceptHandler() | ast.match_case():
                yield from _definitions(child)


def _last_name(node: ast.AST) -> str:
    """Return the last name of an expression like `a.b`, "" for another."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
