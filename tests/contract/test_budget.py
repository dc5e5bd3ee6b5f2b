"""The budget of each room in ARCHITECTURE.md, in thousands of characters of code: a review sees what a change costs."""

from __future__ import annotations

import ast
import functools
import io
import tokenize
from collections import Counter

from tests.contract.test_layers import ENTRANCES, PACKAGE, budgets, module_of, room_of

LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT)


def chars_of_code(source: str) -> int:
    """Return the characters of the lines that hold code: no comments, docstrings, imports, blanks around a line."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            lines.difference_update(_lines_of(node))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            lines.difference_update(_lines_of(node.body[0]))
    return sum(len(line.strip()) for number, line in enumerate(source.splitlines(), 1) if number in lines)


def _lines_of(node: ast.stmt) -> range:
    assert node.end_lineno is not None
    return range(node.lineno, node.end_lineno + 1)


@functools.cache
def measured() -> Counter[str]:
    """Return the characters of code in each room."""
    chars: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        chars[room_of(module_of(path))] += chars_of_code(path.read_text(encoding="utf-8"))
    return chars


def test_only_lines_with_code_count() -> None:
    source = '"""A docstring."""\nimport os\n\ndef one():\n    """Another."""\n    # a comment\n    return (\n  1)'

    assert chars_of_code(source) == len("def one():return (1)")


def test_no_room_holds_more_code_than_its_budget() -> None:
    over = {
        room: f"{chars / 1000:.1f} of {budget}"
        for room, budget in budgets().items()
        if (chars := measured()[room]) > budget * 1000
    }

    assert not over, f"make it smaller, or raise the budget in ARCHITECTURE.md and say why in the commit: {over}"


def test_no_budget_is_far_above_what_its_room_holds() -> None:
    loose = {room: budget for room, budget in budgets().items() if budget * 1000 - measured()[room] >= 2000}

    assert not loose, f"lower these budgets in ARCHITECTURE.md to what the rooms hold: {loose}"


def test_every_room_has_a_budget() -> None:
    assert budgets().keys() == measured().keys() - ENTRANCES
