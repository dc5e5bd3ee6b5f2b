"""A first workspace with one eval that runs offline. Existing files are never overwritten."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.text.arguments import filled

DESCRIPTION = """\
Write a small workspace into the current folder: an eval, its dataset and agent,
a workflow for GitHub Actions and a .gitignore. The eval runs at once, on an
embedded model, offline and without a key. No file that exists is changed. The
eval "support" fails at first: find out why. Any other name begins with an agent
that adds, and reward functions.
"""
N_ROWS = 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}")


class Example(NamedTuple):
    """The files of an example by template: those of its eval, which must not exist yet, and those that others share.

    `says` is printed before the command that runs it.
    """

    own: Mapping[str, str]
    shared: Mapping[str, str]
    says: str = "next, offline and without a key:"


_SHARED = {
    "evals.yml": ".github/workflows/evals.yml",
    "pyproject.toml": "pyproject.toml",
    "gitignore.txt": ".gitignore",
}
_SUMS = Example(
    {"eval.toml": "configs/eval/{name}.toml", "main.py.txt": "rollouts/{name}/main.py"},  # the rows are generated
    {"rewards.py.txt": "rewards.py", **_SHARED, "README.md": "README.md"},
)
_EXAMPLES = {
    "support": Example(
        {
            "support/eval.toml": "configs/eval/{name}.toml",
            "support/agent.py.txt": "{name}.py",
            "support/rows.jsonl": "data/{name}.jsonl",
        },
        {**_SHARED, "support/README.md": "README.md"},
        "next, offline and without a key; its gate fails, because support.py has a bug:",
    )
}
"""The examples of evals with these names."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", type=filled, metavar="NAME", help="the eval's name: letters, digits, - and _")


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    output.lines(create_workspace(folder, options.name))
    return 0


def create_workspace(folder: Path, name: str) -> list[str]:
    """Write the eval `name` into `folder`. Return lines that say what was written and what to type next.

    Raises `OsmosisError` and writes nothing if a file of the eval exists or the name is not valid.
    """
    if not _NAME.fullmatch(name):
        raise OsmosisError(f'init "{name}": a name holds letters, digits, - and _, and begins with a letter or digit')
    has_rewards = (folder / "rewards.py").exists()
    example = _EXAMPLES.get(name, _SUMS)
    own = {path.format(name=name): _filled(template, name, has_rewards) for template, path in example.own.items()}
    own.setdefault(f"data/{name}.jsonl", _rows())
    existing = [path for path in own if (folder / path).exists()]
    if existing:
        them = "it" if len(existing) == 1 else "them"
        raise OsmosisError(f"init {name}: cannot overwrite {', '.join(existing)}; choose another name or delete {them}")
    shared = {path: _filled(template, name, has_rewards) for template, path in example.shared.items()}
    lines = [_written(folder, path, text) for path, text in {**own, **shared}.items()]
    return [*lines, "", example.says, f"  {command(name)}"]


def command(name: str) -> str:
    return f"pytest configs/eval/{name}.toml"


def _written(folder: Path, path: str, text: str) -> str:
    file = folder / path
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        return f"kept     {path} (it exists already)"
    except OSError as error:
        raise OsmosisError(f"{path}: cannot be written: {error.strerror}") from error
    return f"written  {path}"


def _filled(template: str, name: str, has_rewards: bool) -> str:
    text = files("pytest_osmosis.cli").joinpath("template", template).read_text(encoding="utf-8")
    scoring = "# " if has_rewards else ""  # the user's rewards.py has other functions
    return text.replace("@name@", name).replace("@rewards@", scoring).replace("@command@", command(name))


def _rows() -> str:
    numbers = [(17 + 13 * number % 80, 20 + 29 * number % 70) for number in range(N_ROWS)]
    prompts = [(f"What is {a} + {b}?", str(a + b)) for a, b in numbers]
    system = {"system_prompt": "End with #### and the number."}
    rows = [{**system, "user_prompt": prompt, "ground_truth": truth} for prompt, truth in prompts]
    return "".join(json.dumps(row) + "\n" for row in rows)
