"""A first workspace with one eval that runs offline. Existing files are never overwritten."""

from __future__ import annotations

import argparse
import json
import re
from importlib.resources import files
from pathlib import Path

from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.text.arguments import filled

DESCRIPTION = """\
Write a small workspace into the current folder: an eval, its dataset, agent
and reward functions, a workflow for GitHub Actions and a .gitignore. The eval
runs at once, on an embedded model, offline and without a key. No file that
exists is changed.
"""
N_ROWS = 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}")
_OWN = {
    "eval.toml": "configs/eval/{name}.toml",
    "main.py.txt": "rollouts/{name}/main.py",
}
"""The files of the eval by template. They must not exist yet. The rows are generated."""
_SHARED = {
    "rewards.py.txt": "rewards.py",
    "evals.yml": ".github/workflows/evals.yml",
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "gitignore.txt": ".gitignore",
}
"""The files that several evals share, by template. Existing ones are kept."""


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
        raise OsmosisError(f'init "{name}": the name must be letters, digits, - and _, and not begin with - or _')
    has_rewards = (folder / "rewards.py").exists()
    own = {path.format(name=name): _filled(template, name, has_rewards) for template, path in _OWN.items()}
    own[f"data/{name}.jsonl"] = _rows()
    existing = [path for path in own if (folder / path).exists()]
    if existing:
        them = "it" if len(existing) == 1 else "them"
        raise OsmosisError(f"init {name}: cannot overwrite {', '.join(existing)}; choose another name or delete {them}")
    shared = {path: _filled(template, name, has_rewards) for template, path in _SHARED.items()}
    lines = [_written(folder, path, text) for path, text in {**own, **shared}.items()]
    return [*lines, "", "next, offline and without a key:", f"  {command(name)}"]


def command(name: str) -> str:
    return f"pytest --osmosis-config=configs/eval/{name}.toml"


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
