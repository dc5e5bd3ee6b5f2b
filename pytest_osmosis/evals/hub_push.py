"""Push the files of `prime eval` to the Hugging Face Hub: `python -m pytest_osmosis.evals.hub_push FOLDER NAME`.

A process of its own, so that neither the library nor a hang of the network touches pytest. It prints one line of JSON:
the `url` of the dataset, or the `error`. The token is the one that the library finds: HF_TOKEN, or a login.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

CARD = """---
configs:
- config_name: default
  data_files: {results}
---

Results of an evaluation, in the format of `prime eval`: a line for each rollout in `{results}`, settings and averages
in `{metadata}`. Written by pytest-osmosis.
"""


def push(folder: Path, name: str, results: str, metadata: str) -> str:
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


def main() -> None:
    warnings.simplefilter("ignore")
    folder, name, results, metadata = sys.argv[1:]
    try:
        said = {"url": push(Path(folder), name, results, metadata)}
    except Exception as error:
        said = {"error": f"{type(error).__name__}: {error}".partition("\n")[0]}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
