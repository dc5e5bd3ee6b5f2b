"""Datasets of the Hugging Face Hub: `hf://datasets/OWNER/NAME[@REVISION][/FILE]` is a file in the Hub's own cache.

huggingface_hub, the extra `hub`, is imported on first use; it finds the token and the cache as for any other program.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from pytest_osmosis.config.tables import DATASET_SUFFIXES, HUB
from pytest_osmosis.errors import DatasetError
from pytest_osmosis.text.names import listed, suggestion
from pytest_osmosis.text.safe import one_line

_ADDRESS = re.compile(rf"{HUB}datasets/(?P<name>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/@]+))?(?:/(?P<file>.+))?")
_SHAPE = f"{HUB}datasets/OWNER/NAME, and perhaps @REVISION and /FILE"
_MOST_LISTED = 10


def fetched(address: str) -> tuple[Path, str]:
    """Return the path of a dataset's file, and its address with the commit that a branch or tag was now.

    Raises DatasetError if the address has another shape, if the dataset cannot be had, or holds several files.
    """
    matched = _ADDRESS.fullmatch(address)
    if matched is None:
        raise DatasetError.at(address, f"must be {_SHAPE}")
    try:
        from huggingface_hub import HfApi, hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError as error:
        fix = 'pip install "pytest-osmosis[hub]"'
        raise DatasetError.at(address, f"a dataset of the Hub needs huggingface_hub: {fix}") from error
    name, revision = matched["name"], matched["revision"]
    try:
        info = HfApi().dataset_info(name, revision=revision and unquote(revision))
        files = sorted(each.rfilename for each in info.siblings or ())
        pinned = f"{HUB}datasets/{name}@{info.sha}/{_file(address, matched['file'], files)}"
        path = hf_hub_download(name, pinned.partition(f"@{info.sha}/")[2], repo_type="dataset", revision=info.sha)
    except (HfHubHTTPError, OSError, ValueError) as error:  # no such dataset or revision, gated, offline
        raise DatasetError.at(address, f"cannot be fetched: {one_line(str(error))}") from error
    return Path(path), pinned


def _file(address: str, asked: str | None, files: list[str]) -> str:
    rows = [file for file in files if file.lower().endswith(DATASET_SUFFIXES)]
    if asked is not None:
        if asked not in files:
            raise DatasetError.at(address, f"the dataset has no such file{suggestion(asked, rows)}; {_told(rows)}")
        return asked
    if len(rows) != 1:
        raise DatasetError.at(address, f"name one file, as in {address}/{rows[0] if rows else 'FILE'}; {_told(rows)}")
    return rows[0]


def _told(files: list[str]) -> str:
    none = f"no file that ends in {listed(DATASET_SUFFIXES, len(DATASET_SUFFIXES))}"
    return f"it has {listed(files, _MOST_LISTED) or none}"
