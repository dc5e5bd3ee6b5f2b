"""A workspace on disk, and the configs or problems that loading a text in it results in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from pytest_osmosis.config import EvalConfig, Override, load_eval_config, load_training_config
from pytest_osmosis.errors import ConfigError
from tests.raised import problems_of
from tests.sections import sections_in

Load = Callable[..., EvalConfig]
Problems = Callable[..., list[str]]

BASE = {
    "experiment": {"model_path": '"demo/arithmetic"', "dataset": '"multiply"'},
    "secrets": {"required": "[]"},
    "scoring": {"eval_fns": '["rewards:exact", "rewards:close"]'},
}

Cases = Mapping[str, Sequence[tuple[str, list[str]]]]
"""By section: texts of TOML, and all problems with each, beginning with their lines."""


def cases_in(name: str, **words: str) -> Cases:
    """Read `problems/NAME.txt`. A section has lines of TOML, and after `> ` their problems; or a key, its problem and
    the values that have it, of which each is a case, and perhaps another line `with` it."""
    found: dict[str, list[tuple[str, list[str]]]] = {}
    for table, lines in sections_in(Path(__file__).parent / "problems" / f"{name}.txt", **words).items():
        cases = found[table] = []
        for line in lines:
            if line.startswith("> "):
                cases[-1][1].append(line.removeprefix("> "))
            elif short := re.fullmatch(r"([\w.]+): (.*), got (.*?)(?: with (.*))?", line):
                key, problem, values, other = short.groups(default="")
                for value in values.split(" | "):
                    body = f"{key} = {value}\n{other}".rstrip()
                    cases.append((body, [f"2: [{table}] {key}: {problem}, got {value}"]))
            elif cases and not cases[-1][1]:
                cases[-1] = (f"{cases[-1][0]}\n{line}", [])
            else:
                cases.append((line, []))
    return found


def check_cases(cases: Sequence[tuple[str, list[str]]], problems: Callable[[str], list[str]]) -> None:
    """Check the problems with each text, and show all that differ."""
    found = [(text, problems(text), expected) for text, expected in cases]
    wrong = [f"{text}\n  said: {said}\n  not:  {expected}" for text, said, expected in found if said != expected]
    assert not wrong, "\n".join(wrong)


def complete(table: str, body: str) -> str:
    """Return a config that is valid except for `body`: first `table`, with `body` from line 2 on, then the rest.

    Keys in `body` replace those of BASE.
    """
    own = {line.partition("=")[0].strip() for line in body.splitlines()}
    rest = [f"{key} = {value}" for key, value in BASE.get(table, {}).items() if key not in own]
    others = [
        "\n".join([f"[{name}]", *(f"{key} = {value}" for key, value in keys.items())])
        for name, keys in BASE.items()
        if name != table
    ]
    return "\n".join([f"[{table}]", *([body] if body else []), *rest, *others]) + "\n"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "ws"
    for folder in ("configs/eval", "configs/training", "rollouts/multiply/sub", "rollouts/empty", "data"):
        (home / folder).mkdir(parents=True)
    code = ("main.py", "tools.py", "sub/deep.py")
    for file in (*(f"rollouts/multiply/{name}" for name in code), "data/multiply.parquet", "data/multiply.txt"):
        (home / file).write_text("")
    (home / "data/multiply.jsonl").write_text("{}\n")
    (tmp_path / "outside.jsonl").write_text("{}\n")
    (tmp_path / "outside.py").write_text("")
    (home / "data/link.jsonl").symlink_to(tmp_path / "outside.jsonl")
    (home / "data/folder.jsonl").mkdir()
    (home / "link_out").symlink_to(tmp_path)
    (home / "rollouts/elsewhere").symlink_to(tmp_path)
    (home / "rollouts/multiply/link.py").symlink_to(tmp_path / "outside.py")
    monkeypatch.chdir(home)
    return home


def loading(read: Callable[[Path, Sequence[Override]], EvalConfig], path: Path) -> Load:
    """Return a function that loads a text and overrides as the file at a path."""

    def load(text: str, *overrides: Override) -> EvalConfig:
        path.write_text(text, encoding="utf-8")
        return read(path, overrides)

    return load


@pytest.fixture
def load(workspace: Path) -> Load:
    """Load configs/eval/x.toml of the workspace, which is the current folder."""
    return loading(load_eval_config, workspace / "configs/eval/x.toml")


@pytest.fixture
def load_training(workspace: Path) -> Load:
    return loading(load_training_config, workspace / "configs/training/x.toml")


@pytest.fixture
def load_table(load: Load) -> Load:
    """Load a config that is complete, with the body of one table."""
    return lambda table, body, *overrides: load(complete(table, body), *overrides)


@pytest.fixture
def problems(load: Load) -> Problems:
    """Return the problems with a text. Each begins with the number of its line."""
    return lambda *given: [re.sub(r"^configs/\w+/x.toml:", "", each) for each in problems_of(ConfigError, load, *given)]


@pytest.fixture
def table_problems(problems: Problems) -> Problems:
    """Return the problems with a config that is complete, with the body of one table."""
    return lambda table, body, *overrides: problems(complete(table, body), *overrides)
