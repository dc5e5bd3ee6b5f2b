"""The code of rollouts without the parts that only score, digests, and files that are read once by a process."""

from __future__ import annotations

import os
import py_compile
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import blake2b
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.engine.inline_host import ProcessState
from pytest_osmosis.host.loading import UserCode, load
from pytest_osmosis.host.protocol import HostCode, Setup
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


def code_in(folder: Path) -> dict[str, str]:
    main = folder / "main.py"
    read_anew(())  # a host reads each file once
    return rollout_code([main], {main: frozenset({"MyGrader"})}, [str(folder)], str(folder))


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "old", "new", "rolls_out"),
    [
        ("main.py", '"Answer."', '"Answer briefly."', True),
        ("main.py", "tools.call(SYSTEM, json)", "tools.call(SYSTEM)", True),
        ("tools.py", "*given)\n", "*given, 1)\n", True),
        ("deeper.py", "return given", "return given[:1]", True),
        ("main.py", 'bonus(ctx.text) * WEIGHTS["right"]', 'WEIGHTS["right"] + bonus(ctx.text)', False),
        ("main.py", "return weigh(text)", "return 2 * weigh(text)", False),
        ("main.py", '{"right": 1.0}', '{"right": 0.5}', False),
        ("graders_only.py", "1.0", "0.5", False),
        ("unused.py", "1", "2", False),
    ],
)
def test_a_change_of_what_rolls_out_changes_the_digest_of_its_file_and_one_of_what_only_scores_none(
    folder: Path, file: str, old: str, new: str, rolls_out: bool
) -> None:
    before = code_in(folder)
    replaced(folder / file, old, new)

    after = code_in(folder)

    assert list(before) == list(after) == ["deeper.py", "main.py", "tools.py"]
    assert {name for name in after if after[name] != before[name]} == ({file} if rolls_out else set())


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("deeper.py", "def", "from main import bonus\ndef"),
        ("deeper.py", "def", "import main\nmain.bonus\ndef"),
        ("deeper.py", "def", "from main import *\ndef"),
        ("main.py", "tools.call(SYSTEM, json)", "MyGrader().grade(tools.call(SYSTEM, json))"),
    ],
)
def test_a_part_that_another_file_takes_or_the_agent_calls_rolls_out_although_it_scores(
    folder: Path, file: str, old: str, new: str
) -> None:
    replaced(folder / file, old, new)
    before = code_in(folder)
    replaced(folder / "main.py", "return weigh(text)", "return 2 * weigh(text)")

    assert code_in(folder)["main.py"] != before["main.py"]


RIGHT = "def score(solution_str):\n    return 1.0\n"
WRONG = RIGHT.replace("1.0", "0.0")
SAVES = "import pathlib\npathlib.Path(__file__).with_name({name!r}).write_text({text!r})\n"
FROM_HELPER = "from helper import value\ndef score(solution_str):\n    return value\n"

Load = Callable[..., UserCode]


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Load]:
    """Return a function that loads the code in `tmp_path` as a host does, with the fields of its setup."""
    with ExitStack() as stack:

        def loaded(**fields: Any) -> UserCode:
            stack.enter_context(ProcessState(str(tmp_path), os.environ, [str(tmp_path)]).active())
            return load(Setup(HostCode("score", str(tmp_path), (str(tmp_path),), {}), **fields))

        yield loaded


def scored(code: UserCode) -> float:
    value: float = code.functions[0].function("42")
    return value


def digest_of(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def test_a_file_that_is_saved_while_it_is_imported_is_run_and_digested_as_it_was(tmp_path: Path, loaded: Load) -> None:
    (tmp_path / "helper.py").write_text("value = 1.0\n")
    rewards = FROM_HELPER + SAVES.format(name="helper.py", text="value = 0.0\n")
    rewards += SAVES.format(name="rewards.py", text=WRONG)
    (tmp_path / "rewards.py").write_text(rewards)

    code = loaded(eval_fns=("rewards:score",))

    assert scored(code) == 1.0
    assert code.files == {"rewards.py": digest_of(rewards), "helper.py": digest_of("value = 1.0\n")}
    (tmp_path / "rewards.py").write_text(rewards)
    (tmp_path / "helper.py").write_text("value = 1.0\n")
    assert loaded(eval_fns=("rewards:score",)).digests == code.digests


def test_the_digest_changes_with_every_imported_module_and_with_no_other(tmp_path: Path, loaded: Load) -> None:
    files = {
        "rewards.py": "import helpers\n\ndef score(solution_str):\n    from tools.more import x\n",
        "helpers.py": "from deeper import one, two\n",
        "deeper.py": "one, two = 1, 2\n",
        "tools/__init__.py": "",
        "tools/more.py": "from .inner import x\n",
        "tools/inner.py": "x = 1\n",
        "unused.py": "three = 3\n",
    }
    (tmp_path / "tools").mkdir()
    digests: list[str] = []
    for changed in ("nothing", *files):
        for name, text in files.items():
            (tmp_path / name).write_text(text + "# changed\n" * (name == changed))
        digests += loaded(eval_fns=("rewards:score",)).digests.values()

    assert digests[-1] == digests[0]
    assert len({*digests}) == len(files)


def test_a_compiled_file_of_the_same_second_and_size_is_not_run(tmp_path: Path, loaded: Load) -> None:
    rewards = tmp_path / "rewards.py"
    for text in (RIGHT, WRONG):
        rewards.write_text(text)
        os.utime(rewards, (1_000_000_000, 1_000_000_000))
        if text == RIGHT:
            py_compile.compile(str(rewards))

    code = loaded(eval_fns=("rewards:score",))

    assert (scored(code), code.files) == (0.0, {"rewards.py": digest_of(WRONG)})


@pytest.mark.parametrize("helper", ["helper", "tools.helper"])
def test_what_is_imported_later_is_what_was_digested(tmp_path: Path, loaded: Load, helper: str) -> None:
    file = tmp_path / f"{helper.replace('.', '/')}.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text("value = 1.0\n")
    later = f"def score(solution_str):\n    import importlib\n    import {helper} as helper\n"
    (tmp_path / "rewards.py").write_text(f"{later}    return importlib.reload(helper).value\n")
    code = loaded(eval_fns=("rewards:score",))
    file.write_text("value = 0.0\n")

    assert (scored(code), scored(code)) == (1.0, 1.0)
    assert code.files[f"{helper.replace('.', '/')}.py"] == digest_of("value = 1.0\n")


def test_an_entrypoint_and_what_it_imports_are_read_once(tmp_path: Path, loaded: Load) -> None:
    (tmp_path / "helper.py").write_text("value = 1.0\n")
    main = "from helper import value\nfrom pytest_osmosis import Grader\nclass G(Grader):\n    score = value\n"
    main += "    async def grade(self, ctx): ...\n" + SAVES.format(name="main.py", text="") + "score = 1\n"
    (tmp_path / "main.py").write_text(main)

    code = loaded(entrypoint=str(tmp_path / "main.py"))

    assert code.grader is not None
    assert code.files == {"main.py": digest_of(main), "helper.py": digest_of("value = 1.0\n")}


def test_code_that_was_loaded_before_imports_what_it_would_have(tmp_path: Path, loaded: Load) -> None:
    (tmp_path / "helper.py").write_text("value = 1.0\n")
    (tmp_path / "rewards.py").write_text("def score(solution_str):\n    from helper import value\n    return value\n")
    state = ProcessState(str(tmp_path), os.environ, [str(tmp_path)])
    hooks = list(sys.path_hooks)
    with state.active():
        first = load(Setup(HostCode("score", str(tmp_path), (str(tmp_path),), {}), eval_fns=("rewards:score",)))
    assert sys.path_hooks == hooks
    (tmp_path / "helper.py").write_text("value = 0.0\n")

    second = loaded(eval_fns=("rewards:score",))

    assert scored(second) == 0.0
    with state.active():
        assert scored(first) == 1.0


def test_installed_modules_and_those_of_other_folders_are_imported_as_usual(tmp_path: Path, loaded: Load) -> None:
    packages = tmp_path / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "installed.py").write_text("value = 1.0\n")
    rewards = f"import sys\nsys.path.append({str(packages)!r})\nimport installed\n{RIGHT}"
    (tmp_path / "rewards.py").write_text(rewards)

    assert loaded(eval_fns=("rewards:score",)).files.keys() == {"rewards.py"}
    assert type(sys.modules["installed"].__loader__) is SourceFileLoader
    sys.path.remove(str(packages))
    sys.modules.pop("installed")
