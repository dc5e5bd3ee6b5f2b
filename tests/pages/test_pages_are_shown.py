"""The facts on the five pages that this plugin takes over: each names the tests that show it here, or the difference.

Each table beside this module is about one page. A row has the lines of the page, a kind, a fact in words of ours, and
what shows it: tests, by their path in this folder's parent and their name, and places in docs/, by file and a phrase
there. A page that is a translation (`like`) has the rows of its original, and its own for what only it says.

The pages themselves are not in the repository. What holds of a whole page is therefore in its table too: the number of
its lines, each of which is in a row or among those without a fact, and its names, which were taken from it by script.
Flags are all words that begin with - or --. Fields are the first cells of tables, and what stands before = in TOML and
before : in JSON, below the table or block in which they stand; arguments that an example gives its environment are
none. Whoever takes over a newer page does so again.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parent
ROOT = TESTS.parent
PAGES = ("config_files", "eval_mode", "eval_mode_zh", "hosted_evals", "prime_eval")
KINDS = ("flag", "field", "rule", "default", "message", "example")
ROW = re.compile(r"^\| ([\d, -]+) \| (\w+) \| (.+?) \| (.*) \|$", re.MULTILINE)
TEST = re.compile(r"([\w/]+\.py)::(test_\w+)")
PHRASE = re.compile(r'(docs/[\w/.-]+\.md) "([^"]+)"')
NAMES = re.compile(r"^```text names\n(.*?)^```$", re.MULTILINE | re.DOTALL)
N_LINES = re.compile(r"^The page has (\d+) lines\. Without a fact: ([\d, -]+)\.$", re.MULTILINE)
LIKE = re.compile(r"^It says the same as `(\w+)`, ", re.MULTILINE)


class Fact(NamedTuple):
    lines: str
    kind: str
    text: str
    shown_by: str


class Page(NamedTuple):
    """A table: its rows with those of its original, its names, and lines of the page by what is said of them."""

    own: Sequence[Fact]
    facts: Sequence[Fact]
    names: Sequence[str]
    n_lines: int
    of_facts: frozenset[int]
    without: frozenset[int]


@cache
def page(name: str) -> Page:
    text = text_of(f"tests/pages/{name}.md")
    like = LIKE.search(text)
    original = page(like[1]) if like else None
    own = [Fact(*row) for row in ROW.findall(text)]
    n_lines, without = _only(N_LINES, text)
    of_facts = {line for fact in own for line in _numbers(fact.lines)}
    return Page(
        own,
        [*own, *(original.facts if original else ())],
        list(_names(_only(NAMES, text)[0])),
        int(n_lines),
        frozenset(of_facts | (original.of_facts if original else set())),
        frozenset(_numbers(without)),
    )


def _only(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    [found] = pattern.finditer(text)
    return found.groups()


def _names(block: str) -> Iterator[str]:
    """Yield the names of lines like "[experiment]: rollout entrypoint"; those of "flags" have nothing before them."""
    for line in block.splitlines():
        group, _, words = line.partition(": ")
        yield from (word if group == "flags" else f"{group} {word}" for word in words.split())


def _numbers(lines: str) -> set[int]:
    """Return the numbers of a text like "3, 7-9"."""
    found: set[int] = set()
    for part in lines.split(","):
        first, _, last = part.strip().partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


@cache
def functions_in(path: str) -> frozenset[str]:
    """Return the names of the functions in a file, none if there is no such file."""
    file = TESTS / path
    if not file.is_file():
        return frozenset()
    nodes = ast.parse(file.read_text(encoding="utf-8")).body
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def text_of(path: str) -> str:
    file = ROOT / path
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def what_shows_nothing(shown_by: str) -> Iterator[str]:
    """Yield the tests and phrases that do not exist, and all else that is neither."""
    yield from (f"{path}::{name}" for path, name in TEST.findall(shown_by) if name not in functions_in(path))
    yield from (f'{path} "{phrase}"' for path, phrase in PHRASE.findall(shown_by) if phrase not in text_of(path))
    rest = PHRASE.sub("", TEST.sub("", shown_by)).replace(",", "").strip()
    if rest or not shown_by:
        yield rest or "(nothing)"


def test_each_table_has_its_page() -> None:
    assert sorted(path.stem for path in HERE.glob("*.md")) == sorted(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_each_fact_is_shown_by_a_test_that_exists_or_by_a_documented_difference(name: str) -> None:
    absent = [(fact.lines, fact.text, each) for fact in page(name).own for each in what_shows_nothing(fact.shown_by)]

    assert absent == []
    n_rows = len(re.findall(r"^\| (?!line \|)", text_of(f"tests/pages/{name}.md"), re.MULTILINE))
    assert len(page(name).own) == n_rows, "a row has another form"
    assert {fact.kind for fact in page(name).own} <= set(KINDS)


@pytest.mark.parametrize("name", PAGES)
def test_each_fact_is_there_once(name: str) -> None:
    assert [text for text, n in Counter(fact.text for fact in page(name).facts).items() if n > 1] == []


@pytest.mark.parametrize("name", PAGES)
def test_each_name_of_the_page_has_a_fact(name: str) -> None:
    told = {span for fact in page(name).facts for span in re.findall(r"`([^`]+)`", fact.text)}

    assert len(page(name).names) == len(set(page(name).names))
    assert [each for each in page(name).names if each not in told] == []


@pytest.mark.parametrize("name", PAGES)
def test_each_line_of_the_page_is_in_a_row_or_has_no_fact(name: str) -> None:
    one = page(name)

    assert one.of_facts & one.without == set()
    assert one.of_facts | one.without == set(range(1, one.n_lines + 1))
