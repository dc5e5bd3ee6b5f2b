"""Generate docs/reference/api.md from the public names: their signatures, attributes and docstrings.

An attribute is documented by the string below it, in the class or in `__init__`. What has no docstring is not public,
nor is what takes or returns an object of a class that is not.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import dataclasses
import inspect
import itertools
import re
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, get_overloads

import pytest_osmosis
from docs.pages import markdown
from docs.pages.hooks import markdown_of
from docs.pages.markdown import concise, escape, item

HEAD = """\
# Python API

Everything that `pytest_osmosis` exports: `from pytest_osmosis import ChatContext`. Other modules, names and attributes
may change at any time. A message is a dict in the shape of OpenAI's chat completions, with a `role` and a `content`,
whatever the provider. An attribute without a type here is a `str`; indices start at 0.
"""


class Section(NamedTuple):
    """A section of the page: its title, a sentence about it, and the public names that it documents."""

    title: str
    text: str
    names: Sequence[str]


SECTIONS = (
    Section(
        "Agents",
        "See [write an agent](../how-to/write-an-agent.md).",
        (
            *("ChatContext", "ChatReply", "Usage", "ModelError", "BoundError"),
            *(
                "AgentWorkflow",
                "AgentWorkflowContext",
                "AgentWorkflowOutput",
                "AgentWorkflowConfig",
                "ConcurrencyConfig",
            ),
        ),
    ),
    Section(
        "Reward functions and Graders",
        "An eval function is a plain function. See [test a reward function](../how-to/test-rewards.md).",
        ("osmosis_reward", "RewardWarning", "Grader", "GraderContext", "RolloutSample", "GraderConfig"),
    ),
    Section(
        "LLM judges",
        "See [judge with an LLM](../how-to/scores.md#judge-with-an-llm).",
        (
            *("evaluate_rubric", "RubricResult", "osmosis_rubric"),
            *("MissingAPIKeyError", "ProviderRequestError", "ModelNotFoundError", "JudgeError"),
        ),
    ),
    Section(
        "Tests over rollouts",
        "See [write tests over rollouts](../how-to/test-rewards.md#tests-over-rollouts).",
        ("Rollout", "ScoreError"),
    ),
    Section(
        "Hooks",
        "[Hooks](hooks.md) of a conftest.py get and return these.",
        ("Results", "Summary", "Interval", "RunRecord", "RunId", "RewardError", "Verdict"),
    ),
    Section("Errors", "", ("OsmosisError",)),
)

PLAIN: Mapping[str, str] = {
    "Message": "dict[str, Any]",
    "stats.Summary": "Summary",
    "Origin": "Literal['reference', 'model']",
    "Boundary": "str",
    "AnswerFault": "str",
    "ModelTag": "str",
    "State": "str",
    "Systemic": "Literal['never', 'no', 'until_success', 'always']",
    "Status": "Literal['pending', 'finished', 'failed', 'skipped']",
}
"""The types on the page for names of types that are not public."""

CONSTRUCTED = (
    *("AgentWorkflowOutput", "AgentWorkflowConfig", "ConcurrencyConfig", "GraderConfig", "ModelError", "Verdict"),
    *("ChatReply", "Usage", "RolloutSample", "GraderContext"),
)
"""The classes that users construct, in their code or in its tests."""

TYPES = frozenset(
    [
        *pytest_osmosis.__all__,
        *vars(typing),
        *vars(collections.abc),
        *vars(builtins),
        *PLAIN,
        "stats",
        "Path",
        "Function",
    ]
)
"""The names that types on the page may consist of."""

FOR_OURSELVES = frozenset(
    [
        *("n_unrecorded", "decided", "is_fragment", "is_merged", "whole", "cost_of"),
        *("elsewhere", "to_json", "started", "rolled", "charged", "answer_fault", "was_answered", "repeated"),
    ]
)
"""The members of public classes that only the package itself needs, and `Results.to_json`, which hooks.md describes."""

PUBLISHED: Mapping[str, tuple[str, frozenset[str]]] = {
    "RunRecord": (
        "run",
        frozenset(
            [
                *("attempt", "scores", "boundary", "error", "duration_ms", "scoring_ms", "usage", "retries", "bound"),
                *("finish_reason", "answer", "metrics", "reasons", "status", "tokens"),
            ]
        ),
    ),
    "Summary": ("statistics", frozenset({"mean", "std", "min", "max", "median", "pass_rate", "pass_rate_interval"})),
    "Results": ("summary", frozenset({"measured", "total_tokens", "usage", "cost_usd"})),
}
"""By class, an object of results.json, and the attributes that have the names and meanings of its keys."""

QUOTED_TYPE = re.compile(r"""(?<=: )(["'])(.*?)\1(?= = |$)""")
"""A parameter's type as `inspect` writes it if annotations are strings."""

WIDTH = 100
"""A longer signature is broken into lines."""


class Attribute(NamedTuple):
    """A documented attribute: its name, its type as written, its docstring."""

    name: str
    type: str
    text: str


def page() -> str:
    parts: list[Iterator[str] | str] = [HEAD]
    for section in SECTIONS:
        parts.append("\n\n".join(filter(None, (f"## {section.title}", section.text))))
        parts += [public(name, getattr(pytest_osmosis, name)) for name in section.names]
    return markdown.page(parts)


def public(name: str, value: Any) -> Iterator[str]:
    """Yield the lines about a public name."""
    yield from (f"### `{name}`", "")
    if not inspect.isclass(value):
        overloads = get_overloads(value)
        yield from (signature(name, overloads[-1] if overloads else value), "", text_of(value.__doc__ or ""))
    elif value.__name__ != name:
        yield f"Another name of [`{value.__name__}`](#{value.__name__.lower()})."
    else:
        yield from class_lines(value)


def class_lines(cls: type[Any]) -> Iterator[str]:
    """Yield the lines about a class: what it is, its attributes, its methods."""
    bases = [base.__name__ for base in cls.__bases__ if base.__name__ in pytest_osmosis.__all__]
    if bases:
        yield from (f"A subclass of {', '.join(f'[`{base}`](#{base.lower()})' for base in bases)}.", "")
    if cls.__name__ in CONSTRUCTED:
        yield from (constructor(cls), "")
    yield text_of(cls.__doc__ or "")
    attributes = [
        each
        for each in (*documented_attributes(cls), *properties(cls))
        if has_public_types(each.type) and each.name not in FOR_OURSELVES
    ]
    whole = [(name, method) for name, method in methods(cls) if "\n\n" in inspect.cleandoc(method.__doc__ or "")]
    short = [(name, method) for name, method in methods(cls) if (name, method) not in whole]
    place, published = PUBLISHED.get(cls.__name__, ("", frozenset()))
    items = [attribute_item(each, cls.__doc__ or "") for each in attributes if each.name not in published]
    if same := ", ".join(f"`{each.name}`" for each in attributes if each.name in published):
        items.append(f"- As in [`{place}`](results.md#{place}) of results.json, None if unknown: {same}.")
    items += [item(written(name, method), escape(" ".join((method.__doc__ or "").split()))) for name, method in short]
    yield from ("", *items) if items else ()
    for name, method in whole:
        yield from ("", signature(name, method), "", text_of(method.__doc__ or ""))


def attribute_item(attribute: Attribute, about: str) -> str:
    """Return the item of an attribute, without what its text, or that about its class, says of its type."""
    text = escape(" ".join(attribute.text.split())).replace(", from 0.", ".")
    type_ = plain(attribute.type.removesuffix(" | None") if "None" in text + about else attribute.type)
    shown = "" if type_ == "str" or (type_ == "bool" and text.startswith("True")) else f" ({type_text(type_)})"
    return f"- `{attribute.name}`{shown}: {concise(text)}"


def documented_attributes(cls: type[Any]) -> Iterator[Attribute]:
    """Yield the attributes that have a docstring, in the body of the class or of its `__init__`."""
    body = syntax_of(cls).body
    constructors = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    for statements in (body, *(constructor.body for constructor in constructors)):
        for assigned, after in itertools.pairwise(statements):
            if not (isinstance(assigned, ast.AnnAssign) and isinstance(after, ast.Expr)):
                continue
            if isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
                target = assigned.target
                name = target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")
                yield Attribute(name, ast.unparse(assigned.annotation), inspect.cleandoc(after.value.value))


def properties(cls: type[Any]) -> Iterator[Attribute]:
    """Yield the properties that have a docstring."""
    for name, value in vars(cls).items():
        getter = value.fget if isinstance(value, property) else getattr(value, "func", None)
        if not name.startswith("_") and isinstance(getter, FunctionType) and getter.__doc__:
            yield Attribute(name, str(getter.__annotations__.get("return", "")), getter.__doc__)


def methods(cls: type[Any]) -> Iterator[tuple[str, FunctionType]]:
    """Yield the methods that have a docstring, by name."""
    for name, value in vars(cls).items():
        if name.startswith("_") or name in FOR_OURSELVES or not isinstance(value, FunctionType) or not value.__doc__:
            continue
        if all(map(has_public_types, value.__annotations__.values())):
            yield name, value


def has_public_types(annotation: object) -> bool:
    """Return True if a type consists of public names and those of the standard library.

    >>> has_public_types("Mapping[str, RunRecord] | None"), has_public_types("list[RowRuns]")
    (True, False)
    """
    names = re.findall(r"(?<![\w.'\"])[A-Za-z_]\w*", str(annotation))
    return TYPES.issuperset(names)


def syntax_of(cls: type[Any]) -> ast.ClassDef:
    """Return the syntax tree of a class."""
    tree = ast.parse(Path(inspect.getfile(cls)).read_text(encoding="utf-8"))
    return next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == cls.__name__)


def constructor(cls: type[Any]) -> str:
    """Return the call that creates an instance, up to the first attribute that is not documented."""
    shown = {"message", "values", *(each.name for each in documented_attributes(cls))}
    made = {each.name: each.default_factory() for each in _fields(cls) if callable(each.default_factory)}
    parameters = itertools.takewhile(lambda each: each.name in shown, inspect.signature(cls).parameters.values())
    short = [each.replace(annotation=each.empty, default=made.get(each.name, each.default)) for each in parameters]
    return f"`{cls.__name__}({', '.join(written_parameters(short))})`"


def _fields(cls: type[Any]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()


def signature(name: str, function: Callable[..., Any]) -> str:
    """Return the signature of a function as a Python block, without `self`, in one line if it fits."""
    line = f"{written(name, function)}: ..."
    if len(line) > WIDTH:
        keyword, returned = line[: line.index("(")], line[line.rindex(")") :]
        lines = "".join(f"    {each},\n" for each in written_parameters(parameters(function)))
        line = f"{keyword}(\n{lines}{returned}"
    return f"```python signature\n{line}\n```"


def written(name: str, function: Callable[..., Any]) -> str:
    """Return the signature of a function in one line, without `self`."""
    annotation = inspect.signature(function).return_annotation
    keyword = "async def" if inspect.iscoroutinefunction(function) else "def"
    returned = f" -> {plain(str(annotation))}" if annotation is not inspect.Signature.empty else ""
    return f"{keyword} {name}({', '.join(written_parameters(parameters(function)))}){returned}"


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return [each for each in inspect.signature(function).parameters.values() if each.name != "self"]


def written_parameters(parameters: Sequence[inspect.Parameter]) -> Iterator[str]:
    """Yield parameters as they are written, with the `*` in front of those that are passed by keyword alone."""
    starred = False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        yield plain(QUOTED_TYPE.sub(r"\2", str(parameter)))


def plain(annotation: str) -> str:
    """Return an annotation in which public types replace ours.

    >>> plain("Sequence[Message] | None")
    'Sequence[dict[str, Any]] | None'
    """
    for name, type_ in PLAIN.items():
        annotation = re.sub(rf"(?<![\w.]){re.escape(name)}\b", type_, annotation)
    return annotation


def type_text(annotation: str) -> str:
    """Return a type as code, linked if it is a public class."""
    shown = f"`{plain(annotation)}`".replace("'", '"')
    linked = next((name for name in re.findall(r"\w+", plain(annotation)) if name in pytest_osmosis.__all__), None)
    return shown if linked is None else f"[{shown}](#{linked.lower()})"


def text_of(docstring: str) -> str:
    """Return a docstring as Markdown, without its doctests."""
    paragraphs = textwrap.dedent(inspect.cleandoc(docstring)).split("\n\n")
    return markdown_of("\n\n".join(each for each in paragraphs if not each.startswith(">>>")))
