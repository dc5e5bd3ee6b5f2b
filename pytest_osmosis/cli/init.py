"""A workspace to begin with: one eval that runs offline at once. What is there already is never overwritten."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

from pytest_osmosis.errors import OsmosisError

N_ROWS = 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}")

_OWN = {
    "eval.toml": "configs/eval/{name}.toml",
    "main.py.txt": "rollouts/{name}/main.py",
}
"""Template -> file of the eval alone; it must not be there yet. The rows are made."""
_SHARED = {
    "rewards.py.txt": "rewards.py",
    "evals.yml": ".github/workflows/evals.yml",
    "README.md": "README.md",
}
"""Template -> file that several evals share: kept where it is there already."""


def create_workspace(folder: Path, name: str) -> list[str]:
    """Write the eval `name` into `folder`; gives lines that say what was written and what to type next.

    Raises OsmosisError, and writes nothing, where a file of the eval is there already or the name is not usable.
    """
    if not _NAME.fullmatch(name):
        raise OsmosisError(f'init "{name}": the name must be letters, digits, - and _, and not begin with - or _')
    has_rewards = (folder / "rewards.py").exists()
    own = {path.format(name=name): _filled(template, name, has_rewards) for template, path in _OWN.items()}
    own[f"data/{name}.jsonl"] = _rows()
    there = [path for path in own if (folder / path).exists()]
    if there:
        raise OsmosisError(
            f"init {name}: already there: {', '.join(there)}; give another name, or remove what is there"
        )
    shared = {path: _filled(template, name, has_rewards) for template, path in _SHARED.items()}
    lines = [_written(folder, path, text) for path, text in {**own, **shared}.items()]
    return [*lines, "", "next, offline and without a key:", f"  {command(name)}"]


def command(name: str) -> str:
    """What runs the eval."""
    return f"pytest --osmosis-config=configs/eval/{name}.toml"


def _written(folder: Path, path: str, text: str) -> str:
    file = folder / path
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        return f"kept     {path} (there already)"
    except OSError as error:
        raise OsmosisError(f"{path}: cannot be written: {error.strerror}") from error
    return f"written  {path}"


def _filled(template: str, name: str, has_rewards: bool) -> str:
    text = files("pytest_osmosis.cli").joinpath("template", template).read_text(encoding="utf-8")
    scoring = "# " if has_rewards else ""  # a rewards.py of the user's has functions of its own
    return text.replace("@name@", name).replace("@rewards@", scoring).replace("@command@", command(name))


def _rows() -> str:
    numbers = [(17 + 13 * number % 80, 20 + 29 * number % 70) for number in range(N_ROWS)]
    rows = [
        {
            "system_prompt": "End with #### and the number.",
            "user_prompt": f"What is {a} + {b}?",
            "ground_truth": str(a + b),
        }
        for a, b in numbers
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)
