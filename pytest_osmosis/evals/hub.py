"""The push of results to the Hugging Face Hub, after an eval run. Whatever happens to it, the run stays as it is.

Results are published only if the command says so (`--osmosis-save-to-hf-hub`); a config cannot do it alone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_osmosis.errors import Problem
from pytest_osmosis.results.prime_files import METADATA, RESULTS

if TYPE_CHECKING:
    from pytest_osmosis.evals.prepared import Prepared

FLAG = "--osmosis-save-to-hf-hub"
LIBRARY = "huggingface_hub"
TIMEOUT_S = 600.0
MOST_NAME_CHARS = 96
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+|\.\.+|--+")


def is_pushed(prepared: Prepared) -> bool:
    """Return True if the command asks for a push."""
    asked = any((each.table, each.key) == ("output", "save_to_hf_hub") for each in prepared.typed)
    return asked and prepared.config.output.save_to_hf_hub


def prime_folder(prepared: Prepared) -> Path | None:
    """Return the folder for the files of `prime eval`, None if none are requested."""
    config = prepared.config
    requested = config.output.save_results or is_pushed(prepared)
    return config.workspace / config.output.output_dir if requested else None


def problems_of_push(prepared: Prepared) -> list[Problem]:
    """Return why nothing can be pushed, before anything is paid for."""
    if not is_pushed(prepared) or find_spec(LIBRARY) is not None:
        return []
    return [Problem(FLAG, f'needs {LIBRARY}: pip install "pytest-osmosis[hub]"')]


def default_name(env_id: str, model: str, n_examples: int, runs_per_example: int) -> str:
    """Return the name of the dataset, made as `prime eval` makes it, of the characters that the Hub takes.

    >>> default_name("math-python", "openai/gpt-5.4-mini", 5, 3)
    'math-python_openai_gpt-5.4-mini_n5_r3'
    """
    name = f"{env_id.rpartition('/')[2]}_{model.replace('/', '_')}"
    size = f"_n{n_examples}_r{runs_per_example}"
    return f"{_UNFIT.sub('-', name)[: MOST_NAME_CHARS - len(size)].strip('-.')}{size}"


def push(prepared: Prepared, folder: Path) -> str:
    """Push the files in a folder, and return in a line what became of it."""
    metadata = json.loads((folder / METADATA).read_text(encoding="utf-8"))
    name = prepared.config.output.hf_hub_dataset_name or default_name(
        metadata["env_id"], metadata["model"], metadata["num_examples"], metadata["rollouts_per_example"]
    )
    program = [sys.executable, "-P", "-m", "pytest_osmosis.evals.hub_push"]
    try:
        done = subprocess.run(
            [*program, str(folder), name, RESULTS, METADATA],
            env={**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _failed(name, f"it took longer than {TIMEOUT_S:g} s")
    except OSError as error:
        return _failed(name, str(error))
    try:
        said = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        last = done.stderr.splitlines()[-1:]
        return _failed(name, last[0] if last else f"its process ended with {done.returncode}")
    return f"pushed to {said['url']}" if "url" in said else _failed(name, said["error"])


def _failed(name: str, why: str) -> str:
    return f"not pushed to the Hugging Face Hub ({name}): {why}"
