"""README and docs are right: configs load, code runs, commands print the output on the page; and each test can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import blocks
from tests.docs.blocks import PAGES, REPOSITORY, blocks_of
from tests.docs.printed import difference
from tests.docs.test_translations import TRANSLATIONS
from tests.docs.walk import Page

WITH_BLOCKS = [page for page in PAGES if blocks_of(page) and page not in TRANSLATIONS]


JOURNEYS = {"README.md", "docs/tutorial/first-eval.md"}


def _name(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


def _types_commands(page: Path) -> bool:
    """Return True if walking a page starts pytest or one of our commands."""
    typed = {("console", "run"), ("console", "list"), ("console", "check"), ("yaml", "file")}
    return any((block.language, block.way) in typed for block in blocks_of(page))


def _parameter(page: Path) -> pytest.ParameterSet:
    """Return a page to walk. `make test` walks those that start nothing, and the journeys."""
    name = _name(page)
    if name in JOURNEYS:
        return pytest.param(page, id=name, marks=pytest.mark.journey)
    return pytest.param(page, id=name, marks=[pytest.mark.slow] if _types_commands(page) else [])


@pytest.mark.parametrize("path", [_parameter(page) for page in WITH_BLOCKS])
def test_a_page_is_right(path: Path, tmp_path: Path) -> None:
    page = Page(path, tmp_path)
    page.walk()

    assert not page.problems, "\n\n".join(page.problems)


def test_every_block_says_how_it_is_tested() -> None:
    untested = [f"{block.where}: {block.problem}" for page in PAGES for block in blocks_of(page) if block.problem]

    assert untested == []


def test_the_pages_that_are_named_here_exist() -> None:
    assert {_name(page) for page in WITH_BLOCKS} >= JOURNEYS


@pytest.fixture
def walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    """An empty page in its own repository."""
    monkeypatch.setattr(blocks, "REPOSITORY", tmp_path)
    (tmp_path / "page.md").touch()
    (tmp_path / "space").mkdir()
    return Page(tmp_path / "page.md", tmp_path / "space")


def problems(page: Page, *lines: str) -> list[str]:
    page.path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    page.walk()
    return page.problems


WRONG = [
    ("console", "ls", "name a test"),
    ("", "ls", 'no test for ""'),
    ("sh run", "ls", 'no test for "sh"'),
    ("console run quiet=1", "ls", "unknown: quiet"),
    ("toml fragment", "[evaluation]\nm = 1", "unknown key"),
    ("toml file=configs/eval/x.toml", "[evaluation]", "it does not load"),
    ("toml pyproject", "[[", "Invalid initial character"),
    ("toml registry", "[[endpoint]]", "lacks endpoint_id, model, url"),
    ("python run", "1 / 0", "ZeroDivisionError"),
    ("python signature", "def f(x -> int: ...", "SyntaxError"),
    ("python file=x.py", "import nothing_like_it", "ModuleNotFoundError"),
    ("json parsed", '{"a": 1}\n{"a": }', "Expecting value"),
    ("yaml file=x.yml", "script: [pytest --osmosis-confg=x]", "pytest has no --osmosis-confg"),
    ("yaml file=x.yml", "script: [ls]", "no command runs pytest"),
    ("console run", "exit 3", "exit 3 instead of 0"),
    ("console run exit=1", "true", "exit 0 instead of 1"),
    ("console list", "pytest nowhere.py", "exit 4"),
    ("console list", "ls", "only pytest lists tests"),
    ("console foreign", "pip install vllm && pytest", "a command of ours"),
    ("console check", "pytest --osmosis-confg=x.toml", "pytest has no --osmosis-confg"),
    ("console check", "A=1 pytest --osmosis-confg=x.toml", "pytest has no --osmosis-confg"),
    ("console check", "pytest-osmosis demo --prot 0", "pytest-osmosis demo has no --prot"),
    ("console check", "make dmeo", "no target dmeo"),
    ("console check", "pip install pytest-osmosis[al]", "no such package"),
    ("console check", "rm -rf x", "a kind of command that is not checked here"),
    ("text output", "x", "no `console run` before it"),
]
"""Blocks that are wrong: the info string, the line, and a part of the problem that is reported."""


@pytest.mark.slow
def test_each_wrong_block_is_reported_with_its_line(walked: Page) -> None:
    lines: list[str] = []
    expected = []
    for info, text, problem in WRONG:
        expected.append((f"page.md:{len(lines) + 2}: ", problem))
        lines += [f"```{info}", *text.splitlines(), "```"]

    reported = problems(walked, *lines)

    found = {place: [line for line in reported if line.startswith(place)] for place, _ in expected}
    assert [(place, problem) for place, problem in expected if problem not in "".join(found[place])] == []
    assert len(reported) == len(WRONG)


def test_a_wrong_output_line_is_reported(walked: Page) -> None:
    (problem,) = problems(
        walked, "```console run", "echo 3 rows in 1.2 s", "```", "```text output", "4 rows in 9 s", "```"
    )

    assert "-4 rows in <duration>" in problem
    assert "+3 rows in <duration>" in problem


def test_an_elision_matches_any_lines() -> None:
    same = ["a\nb\nc", "a\n...\nc", "...\nb\n...", "...\nc", "a\n..."]
    other = ["a\nb", "b\n...", "...\nb", "...\nc\n...\nb\n...", "a\nb\n...\nb\nc"]

    assert [shown for shown in (*same, *other) if difference(shown, "a\nb\nc\n") == ""] == same


BUSY = [
    "osmosis: sums 0/20, starting",
    "osmosis: sums,a=1 7/1,020, 50% passed, 8 in flight, 1 from before, 30 tokens/s, 5 s left",
    "osmosis: 2/6 evals, 41/120 runs, sums 1/20, 100% passed, 8 in flight",
    "osmosis: loading environment me/sums, which alone knows its rows ...",
]


def test_what_only_a_busy_machine_prints_is_no_difference() -> None:
    assert [line for line in BUSY if difference("a\nb", f"a\n{line}\nb\n")] == []
    assert difference("submitted: x", "submitted: x (pending: its code is still being loaded)") == ""
    assert difference("2 passed in 0.5s", "2 passed in 78.12s (0:01:18)") == ""
    assert difference("a\nb", "a\nosmosis: 1 of 20 runs failed\nb\n") != ""
