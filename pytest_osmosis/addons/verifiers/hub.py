"""The push of the files of `prime eval` to the Hugging Face Hub; whatever happens, the eval run stays as it is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

from pytest_osmosis.addons.verifiers.prime_files import METADATA, RESULTS

PUSH_TIMEOUT_S = 600.0
MOST_NAME_CHARS = 96
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+|\.\.+|--+")


def default_name(env_id: str, model: str, n_examples: int, runs_per_example: int) -> str:
    """Return the name of the dataset, made as `prime eval` makes it, of the characters that the Hub takes.

    >>> default_name("math-python", "openai/gpt-5.4-mini", 5, 3)
    'math-python_openai_gpt-5.4-mini_n5_r3'
    """
    name = f"{env_id.rpartition('/')[2]}_{model.replace('/', '_')}"
    size = f"_n{n_examples}_r{runs_per_example}"
    return f"{_UNFIT.sub('-', name)[: MOST_NAME_CHARS - len(size)].strip('-.')}{size}"


def push(folder: Path, name: str | None) -> str:
    """Push the files in a folder to the dataset `name`, and return in a line what became of it."""
    metadata = json.loads((folder / METADATA).read_text(encoding="utf-8"))
    name = name or default_name(
        metadata["env_id"], metadata["model"], metadata["num_examples"], metadata["rollouts_per_example"]
    )
    program = [sys.executable, "-P", "-c", f"from {__name__} import push_as_process; push_as_process()"]
    try:
        done = subprocess.run(
            [*program, str(folder), name, RESULTS, METADATA],
            env={**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PUSH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _not_pushed(name, f"it took longer than {PUSH_TIMEOUT_S:g} s")
    except OSError as error:
        return _not_pushed(name, str(error))
    try:
        said = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        last = done.stderr.splitlines()[-1:]
        return _not_pushed(name, last[0] if last else f"its process ended with {done.returncode}")
    return f"pushed to {said['url']}" if "url" in said else _not_pushed(name, said["error"])


def _not_pushed(name: str, why: str) -> str:
    return f"not pushed to the Hugging Face Hub ({name}): {why}"


CARD = """---
configs:
- config_name: default
  data_files: {results}
---

Results of an evaluation, in the format of `prime eval`: a line for each rollout in `{results}`, settings and averages
in `{metadata}`. Written by pytest-osmosis.
"""


def push_files(folder: Path, name: str, results: str, metadata: str) -> str:
    """Push both files to a dataset, which is made, private, if there is none. Return its address."""
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(library_name="pytest-osmosis")
    repo = api.create_repo(name, repo_type="dataset", private=True, exist_ok=True)
    files = [CommitOperationAdd(each, str(folder / each)) for each in (results, metadata)]
    if not api.file_exists(repo.repo_id, "README.md", repo_type="dataset"):
        card = CARD.format(results=results, metadata=metadata)  # without it both files would be read as rows
        files.append(CommitOperationAdd("README.md", card.encode()))
    api.create_commit(repo.repo_id, files, commit_message=f"Results of {folder.name}", repo_type="dataset")
    return repo.url


def push_as_process() -> None:
    """Push what the arguments name, and print one line of JSON: the `url` of the dataset, or the `error`.

    It runs in a process of its own, so that neither the library nor a hang of the network touches pytest. The token is
    the one that the library finds: HF_TOKEN, or a login.
    """
    warnings.simplefilter("ignore")
    folder, name, results, metadata = sys.argv[1:]
    try:
        said = {"url": push_files(Path(folder), name, results, metadata)}
    except Exception as error:
        said = {"error": f"{type(error).__name__}: {error}".partition("\n")[0]}
    sys.stdout.write(json.dumps(said) + "\n")
