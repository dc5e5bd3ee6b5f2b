"""A probe of speed: 19 of 20 calls take at most `max_ms`, and no pattern explodes on a repetitive answer.

Texts that make a regular expression backtrack are built from its own structure. A text begins with what a match needs
before a repetition, goes on with what the repetition repeats, and ends with something that is no match: of
`"score": \\[(\\d+,?)*\\]`, a `"score": [` and then many digits. Characters that several parts of a repetition match
come first, because they are what can be divided among these parts in many ways.

`patterns_in` finds the patterns that a function may use in its own code, and in the namespaces that its module imports
from other code of the user. Those that it compiles in a call are noted there.

Python's parser of patterns is private. Where it is missing or another, no text is built: `attacks` yields nothing.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pytest_osmosis.addons.lab.calls import CallInput, CallOutcome, LabResult, RewardFinding, ScoredCall
from pytest_osmosis.addons.lab.decorator import python_function
from pytest_osmosis.addons.lab.probe_context import ProbeContext, constants
from pytest_osmosis.addons.lab.target import Target
from pytest_osmosis.text.user_code import is_users_own

try:
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:
    parser = None

OFTEN = 10
"""Repetitions that can be this long are attacked."""
MOST_PUMPS = 4
SAMPLE = "a0 \n1A.,;:!?-+*/=_#$%&@|~^'`\"<>()[]{}\\zZ\t\u00e9"
CATEGORIES = {"DIGIT": r"\d", "NOT_DIGIT": r"\D", "SPACE": r"\s", "NOT_SPACE": r"\S", "WORD": r"\w", "NOT_WORD": r"\W"}
REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
ONE_CHARACTER = ("LITERAL", "NOT_LITERAL", "IN", "ANY", "RANGE", "CATEGORY", "ANY_ALL")

Node = tuple[Any, Any]
CALLS = 40
ROUNDS = 3
LIMIT_S = 1.0
SIZES = (24, 32, 64, 256, 1024, 3072)
"""Lengths of repetitive answers. An exponential pattern exceeds the limit at the second, a cubic one at the fifth."""
UNITS = ("1", "a", " ", "\n", ".", ",", "-", "(", "{", '"', "#", "*", "a ", "1,", "1.", "0 ", "<a>", "x=1 ", "aA1_")
ENDINGS = ("!", "\x00")
SIZES_OF_BUILT = (32, 1024, 3072)
"""Lengths of texts that are built from the structure of a pattern."""
MOST_ATTACKS = 80


class Pattern(NamedTuple):
    text: str
    flags: int


class Attack(NamedTuple):
    """A text to repeat, the text before it, and a character after it that ends every repetition."""

    head: str
    unit: str
    end: str


def attacks(pattern: Pattern) -> list[Attack]:
    """Return the attacks on the repetitions of a pattern, the outer ones first; none if it cannot be parsed."""
    try:
        nodes = list(parser.parse(pattern.text, pattern.flags & ~re.DEBUG))
        found = [attack for head, repeated in _repetitions(nodes, "") for attack in _on_repetition(head, repeated)]
    except (re.error, AttributeError, KeyError, TypeError, ValueError, RecursionError, OverflowError):
        return []  # no pattern, or a parser that says something else
    return list(dict.fromkeys(found))


def patterns_in(target: Target) -> list[Pattern]:
    """Return the compiled patterns in reach of a function's module, and its constants, which may be patterns."""
    inner = python_function(target.function)
    namespace = {} if inner is None else inner.__globals__
    compiled = [value for reached in _reached(namespace) for value in _values(reached.values(), 2)]
    found = [Pattern(value.pattern, value.flags) for value in compiled if isinstance(value.pattern, str)]
    return list(dict.fromkeys([*found, *(Pattern(text, 0) for text in constants(target, most=100, most_chars=1000))]))


def _reached(namespace: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a module's namespace, and those of the user's own modules from which it imports something."""
    modules = [value if inspect.ismodule(value) else sys.modules.get(_module_of(value)) for value in namespace.values()]
    own = [module for module in modules if module and is_users_own(getattr(module, "__file__", None) or "")]
    return [namespace, *(vars(module) for module in dict.fromkeys(own) if vars(module) is not namespace)]


def _module_of(value: object) -> str:
    return value.__module__ if inspect.isfunction(value) or inspect.isclass(value) else ""


def _values(values: Iterable[object], depth: int) -> Iterator[re.Pattern[Any]]:
    """Yield the patterns among values, and in their containers and classes."""
    for value in values:
        if isinstance(value, re.Pattern):
            yield value
        elif depth and isinstance(value, (list, tuple, set, frozenset)):
            yield from _values(value, depth - 1)
        elif depth and (isinstance(value, dict) or inspect.isclass(value)):
            yield from _values(list((value if isinstance(value, dict) else vars(value)).values()), depth - 1)


def _on_repetition(head: str, repeated: Sequence[Node]) -> Iterator[Attack]:
    leaves = list(_leaves(repeated))
    characters = {character: None for leaf in leaves for character in _examples(leaf)}
    shared = sorted(characters, key=lambda character: -sum(_matches(leaf, character) for leaf in leaves))
    end = next((each for each in "\x00!,;" + SAMPLE if not any(_matches(leaf, each) for leaf in leaves)), "")
    units = [*shared[:MOST_PUMPS], _text(repeated), "".join(shared[:2])]
    yield from (Attack(head, unit, end) for unit in units if unit)
    if head:
        yield Attack("", head, end)  # for searches, which begin again at every head


def _repetitions(nodes: Sequence[Node], head: str) -> Iterator[tuple[str, Sequence[Node]]]:
    """Yield each long repetition with a text that leads to it."""
    for node in nodes:
        for part in _parts(node):
            if str(node[0]) in REPEATS and node[1][1] >= OFTEN:
                yield head, part
            yield from _repetitions(part, head)
        head += _text([node])


def _parts(node: Node) -> list[Sequence[Node]]:
    """Return the patterns within a node: its body, or its alternatives."""
    kind, value = str(node[0]), node[1]
    if kind in (*REPEATS, "SUBPATTERN"):
        return [list(value[-1])]
    if kind == "BRANCH":
        return [list(alternative) for alternative in value[1]]
    if kind in ("ASSERT", "ASSERT_NOT"):
        return [list(value[1])]
    if kind == "ATOMIC_GROUP":
        return [list(value)]
    if kind == "GROUPREF_EXISTS":
        return [list(part) for part in value[1:] if part]
    return []


def _leaves(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        if str(node[0]) in ONE_CHARACTER:
            yield node
        for part in _parts(node):
            yield from _leaves(part)


def _text(nodes: Sequence[Node]) -> str:
    """Return a short text that the nodes match, apart from assertions and references to groups."""
    return "".join(map(_text_of, nodes))


def _text_of(node: Node) -> str:
    kind, value = str(node[0]), node[1]
    if kind in ONE_CHARACTER:
        return next(_examples(node), "")
    if kind.startswith("ASSERT"):
        return ""
    parts = _parts(node)
    return _text(parts[0]) * (min(value[0], OFTEN) if kind in REPEATS else 1) if parts else ""


def _examples(leaf: Node) -> Iterator[str]:
    """Yield characters that a leaf matches: those that it names, and those of a sample."""
    kind, value = str(leaf[0]), leaf[1]
    members = value if kind == "IN" else [leaf]
    named = [code for kind, code in members if str(kind) in ("LITERAL", "RANGE")]
    codes = [each for code in named for each in (code if isinstance(code, tuple) else (code,))]
    yield from (text for text in dict.fromkeys([*map(chr, codes), *SAMPLE]) if _matches(leaf, text))


def _matches(leaf: Node, character: str) -> bool:
    kind, value = str(leaf[0]), leaf[1]
    match kind:
        case "LITERAL":
            return bool(chr(value) == character)
        case "NOT_LITERAL":
            return bool(chr(value) != character)
        case "RANGE":
            return bool(value[0] <= ord(character) <= value[1])
        case "CATEGORY":
            return re.match(CATEGORIES[str(value).removeprefix("CATEGORY_")], character) is not None
        case "IN":
            negated = str(value[0][0]) == "NEGATE"
            return any(_matches(member, character) for member in value[negated:]) is not negated
    return True


def probe_speed(context: ProbeContext) -> LabResult:
    base = context.answers.usable[0]
    return LabResult((*_usual(context, base), *_growing(context, base)))


def _usual(context: ProbeContext, call_input: CallInput) -> Iterator[RewardFinding]:
    limit_ms = context.target.declaration.max_ms
    if limit_ms is None:
        return
    rounds = [[context.call(call_input) for _ in range(CALLS)] for _ in range(ROUNDS)]
    searched = [call.outcome for call in context.answers.calls[1:]]  # the first may have loaded something
    times = [p95_ms for outcomes in rounds if (p95_ms := _p95_ms(outcomes)) is not None]
    best = min(times) if times else _p95_ms(searched) or 0.0  # a busy machine makes some rounds wait for longer
    if best > limit_ms:
        example = f"{call_input.shown(context.target)}: 19 of 20 calls take up to {best:.3g} ms, max_ms is {limit_ms:g}"
        fix = "compile patterns and load things once, outside the function, or declare another max_ms"
        yield RewardFinding("slow", "it takes longer than max_ms", example, fix)


def _p95_ms(outcomes: Iterable[CallOutcome]) -> float | None:
    """Return the time that 19 of 20 calls keep, None if there was no time for a call."""
    times = sorted(outcome.seconds for outcome in outcomes if outcome.kind not in ("not_called", "died"))
    return times[int(len(times) * 0.95)] * 1000 if times else None


def _growing(context: ProbeContext, base: CallInput) -> Iterator[RewardFinding]:
    plain = [Attack("", unit, end) for end in ENDINGS for unit in UNITS]
    built = [attack for pattern in _patterns(context, base) for attack in attacks(pattern)]
    built = list(dict.fromkeys(built))[:MOST_ATTACKS]
    both = {size: [*built * (size in SIZES_OF_BUILT), *plain] for size in SIZES}
    inputs = (call_input for size in SIZES for attack in both[size] for call_input in _repeating(base, attack, size))
    for call_input in inputs:
        outcome = context.call(call_input, cpu_s=LIMIT_S)
        if outcome.kind == "slow" and context.call(call_input, cpu_s=LIMIT_S).kind in ("slow", "not_called"):
            example = ScoredCall(call_input, outcome).shown(context.target)
            fix = (
                "a pattern backtracks: avoid nested or adjacent repetitions that match the same text "
                "(such as (a+)+), or look only at the last 300 characters"
            )
            yield RewardFinding("explodes", "a repetitive answer takes it too long", example, fix)
            return


def _patterns(context: ProbeContext, base: CallInput) -> list[Pattern]:
    """Return the regular expressions of the function: of calls with right and wrong answers, and of its module."""
    inputs = [base, *(call_input for pair in context.answers.pairs[:3] for call_input in (pair.right, pair.wrong))]
    outcomes = [context.call(call_input, patterns=True) for call_input in inputs]
    used = [Pattern(*pattern) for outcome in outcomes for pattern in outcome.patterns]
    return list(dict.fromkeys([*used, *patterns_in(context.target)]))


def _repeating(base: CallInput, attack: Attack, size: int) -> Iterator[CallInput]:
    """Yield the text alone, and in the place of the ground truth in a right answer, with and without what follows."""
    body = attack.head + attack.unit * (size // len(attack.unit) or 1)
    right, truth = base.text(), str(base.ground_truth)
    head, _, tail = right.partition(truth) if truth and truth in right else ("", "", "")
    for before, after in dict.fromkeys((("", ""), (head, ""), (head, tail))):
        for end in dict.fromkeys(("", attack.end)):
            yield base.answering(before + body + end + after)
