"""Mutants: modules with one small error each, made in their syntax trees.

Texts, annotations, decorators, fields of classes and defaults of parameters stay as they are: it is the logic of a room
that its tests are measured by.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAIRS: list[tuple[type[ast.cmpop], type[ast.cmpop]]] = [
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)),
]
OTHER_COMPARISONS = {one: other for pair in PAIRS for one, other in (pair, pair[::-1])}
OTHER_OPERATIONS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
OTHER_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
IGNORED_FIELDS = {"annotation", "returns", "decorator_list", "defaults", "kw_defaults", "type_params"}
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Scopes = tuple[Scope, ...]
STORED = ast.Attribute | ast.Subscript
REMOVABLE = (ast.Expr, ast.AugAssign, ast.Raise, ast.Break, ast.Continue, ast.Delete)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module in which `after` stands in place of `before`, in the function `where`."""

    path: Path
    line: int
    where: str
    before: str
    after: str
    ordinal: int
    tree: ast.Module
    parent: Any
    field: str
    index: int | None
    old: ast.AST
    new: ast.AST

    @property
    def name(self) -> str:
        """The name, which stays the same as long as the function does."""
        again = f" ({self.ordinal})" if self.ordinal > 1 else ""
        return f"{self.path.name} {self.where or 'module'}: {self.before} -> {self.after}{again}"

    def source(self) -> str:
        """Return the text of the module with the error."""
        self._put(self.new)
        text = ast.unparse(self.tree)
        self._put(self.old)
        return text

    def _put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def sample(paths: Iterable[Path], size: int, seed: int) -> list[Mutant]:
    """Return `size` mutants of the modules. A change of the modules changes few of them."""
    mutants = [mutant for path in paths for mutant in mutants_of(path)]

    def rank(mutant: Mutant) -> bytes:
        return hashlib.sha256(f"{seed} {mutant.path.parent} {mutant.name}".encode()).digest()

    return sorted(sorted(mutants, key=rank)[:size], key=lambda mutant: (mutant.path, mutant.line))


def mutants_of(path: Path) -> Iterator[Mutant]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    met = Counter[tuple[str, str, str]]()
    for parent, field, index, node, scopes in _places(tree, ()):
        where = ".".join(scope.name for scope in scopes)
        for other in _others(parent, field, node, where):
            before, after = _shown(node), _shown(other)
            met[where, before, after] += 1
            n = met[where, before, after]
            yield Mutant(path, node.lineno, where, before, after, n, tree, parent, field, index, node, other)


def _places(parent: ast.AST, scopes: Scopes) -> Iterator[tuple[ast.AST, str, int | None, Any, Scopes]]:
    for field, value in ast.iter_fields(parent):
        if field in IGNORED_FIELDS:
            continue
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(node, ast.AST) and not _is_ignored(node, scopes):
                yield parent, field, index, node, scopes
                yield from _places(node, (*scopes, node) if isinstance(node, Scope) else scopes)


def _is_ignored(node: ast.AST, scopes: Scopes) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    is_of_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    is_of_types |= isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "TypeVar", "cast")
    is_field = bool(scopes) and isinstance(scopes[-1], ast.ClassDef) and not isinstance(node, Scope)
    return is_text or is_of_types or is_field or isinstance(node, ast.Import | ast.ImportFrom)


def _others(parent: ast.AST, field: str, node: ast.AST, where: str) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                yield _with(node, ops=[*ops[:at], OTHER_COMPARISONS[type(op)](), *ops[at + 1 :]])
        case ast.BoolOp(op=op):
            yield _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.BinOp(left=left, op=op, right=right) | ast.AugAssign(target=left, op=op, value=right):
            if type(op) in OTHER_OPERATIONS and where and not (_is_of_texts(left) or _is_of_texts(right)):
                yield _with(node, op=OTHER_OPERATIONS[type(op)]())
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield ast.Constant(value * 2 or 1.0)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Call(func=ast.Name(id=name)) if name in OTHER_FUNCTIONS:
            yield _with(node, func=ast.Name(OTHER_FUNCTIONS[name], ast.Load()))
        case ast.Return(value=ast.AST() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
    is_condition = field == "test" or (field == "ifs" and isinstance(parent, ast.comprehension))
    if is_condition and isinstance(node, ast.expr) and not isinstance(node, ast.Compare | ast.UnaryOp):
        yield ast.UnaryOp(ast.Not(), node)
    if isinstance(node, REMOVABLE) or (isinstance(node, ast.Assign) and isinstance(node.targets[0], STORED)):
        yield ast.Pass()


def _is_of_texts(node: ast.AST) -> bool:
    """Return True for operands with which arithmetic makes no sense: texts and lists."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_text or isinstance(node, ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp)


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    other = copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def _shown(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split()) if not isinstance(node, ast.Pass) else "nothing"
