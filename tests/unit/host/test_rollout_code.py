"""The code of rollouts is the agent's module and what it imports, without the parts that only score."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_osmosis.host.rollout_code import read_anew, rollout_code

MAIN = '''\
"""An agent and its Grader."""
import json
import tools
from graders_only import weigh
from osmosis_ai import Grader

WEIGHTS = {"right": 1.0}
SYSTEM = "Answer."


class Workflow:
    async def run(self, ctx):
        return tools.call(SYSTEM, json)


def bonus(text):
    return weigh(text)


class MyGrader(Grader):
    async def grade(self, ctx):
        return bonus(ctx.text) * WEIGHTS["right"]


backend = dict(grader=MyGrader)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "main.py": MAIN,
        "tools.py": "import deeper\ndef call(*given):\n    return deeper.ask(*given)\n",
        "deeper.py": "def ask(*given):\n    return given\n",
        "graders_only.py": "def weigh(text):\n    return 1.0\n",
        "unused.py": "one = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def code_in(folder: Path, scorers: frozenset[str] = frozenset({"MyGrader"})) -> dict[str, str]:
    main = folder / "main.py"
    read_anew(())  # a host reads each file once
    return rollout_code([main], {main: scorers}, [str(folder)], str(folder))


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_the_code_is_the_agents_module_and_what_it_imports(folder: Path) -> None:
    assert list(code_in(folder)) == ["deeper.py", "main.py", "tools.py"]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("main.py", '"Answer."', '"Answer briefly."'),
        ("tools.py", "*given)\n", "*given, 1)\n"),
        ("deeper.py", "return given", "return given[:1]"),
    ],
)
def test_a_change_of_what_rolls_out_changes_the_digest_of_its_file(folder: Path, file: str, old: str, new: str) -> None:
    before = code_in(folder)
    replaced(folder / file, old, new)

    after = code_in(folder)

    assert {name for name in after if after[name] != before[name]} == {file}


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("main.py", 'bonus(ctx.text) * WEIGHTS["right"]', 'WEIGHTS["right"] + bonus(ctx.text)'),
        ("main.py", '{"right": 1.0}', '{"right": 0.5}'),
        ("graders_only.py", "1.0", "0.5"),
        ("unused.py", "1", "2"),
    ],
)
def test_a_change_of_what_only_scores_changes_nothing(folder: Path, file: str, old: str, new: str) -> None:
    before = code_in(folder)
    replaced(folder / file, old, new)

    assert code_in(folder) == before


@pytest.mark.parametrize("taking", ["from main import bonus\n", "import main\nmain.bonus\n", "from main import *\n"])
def test_a_part_that_another_file_takes_rolls_out_too(folder: Path, taking: str) -> None:
    with (folder / "deeper.py").open("a") as deeper:
        deeper.write(taking)
    before = code_in(folder)
    replaced(folder / "main.py", "return weigh(text)", "return 2 * weigh(text)")

    assert code_in(folder)["main.py"] != before["main.py"]


def test_a_function_that_the_agent_calls_rolls_out_although_it_scores(folder: Path) -> None:
    replaced(folder / "main.py", "tools.call(SYSTEM, json)", "MyGrader().grade(tools.call(SYSTEM, json))")
    before = code_in(folder)
    replaced(folder / "main.py", 'bonus(ctx.text) * WEIGHTS["right"]', "0.5")

    assert code_in(folder)["main.py"] != before["main.py"]


# -- digests of reward functions ------------------------------------------------------------------------------

Digest = Callable[[], str]
PRINT_DIGEST = """
import importlib, sys
from pytest_osmosis.host.rollout_code import source_digest
sys.path.insert(0, ".")
print(source_digest(getattr(importlib.import_module("rewards"), "score"), ["."]))
"""


@pytest.fixture
def digest(tmp_path: Path) -> Digest:
    """Return a function that computes the digest of rewards:score in a new process."""
    (tmp_path / "rewards.py").write_text("import helpers\n\ndef score(solution_str):\n    from tools.more import x\n")
    (tmp_path / "helpers.py").write_text("from deeper import one, two\n")
    (tmp_path / "deeper.py").write_text("one, two = 1, 2\n")
    (tmp_path / "unused.py").write_text("three = 3\n")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/__init__.py").write_text("")
    (tmp_path / "tools/more.py").write_text("from .inner import x\n")
    (tmp_path / "tools/inner.py").write_text("x = 1\n")

    def digest() -> str:
        command = [sys.executable, "-c", PRINT_DIGEST]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    return digest


def test_the_digest_changes_with_every_imported_module_and_with_no_other(tmp_path: Path, digest: Digest) -> None:
    digests = [digest()]
    for file in ("rewards.py", "helpers.py", "deeper.py", "tools/__init__.py", "tools/inner.py", "unused.py"):
        with (tmp_path / file).open("a") as source:
            source.write("# changed\n")
        digests.append(digest())

    assert len({*digests[:-1]}) == len(digests) - 1
    assert digests[-1] == digests[-2]
