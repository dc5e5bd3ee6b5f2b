"""Node ids of rows that begin with the dataset in place of the eval's TOML: `data/x.jsonl::x[row3-run0]`.

VS Code makes an id from the path at which it shows a test, which for a row is its dataset. The TOML of such an id is
the one of that name, below pytest's rootdir, which has this dataset.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from pytest_osmosis.config import load_eval_config, read_entries
from pytest_osmosis.datasets import locate
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.plugin.command import options
from pytest_osmosis.plugin.command.eval_files import is_skipped_folder
from pytest_osmosis.plugin.command.overrides import read_overrides
from pytest_osmosis.plugin.items.node_ids import eval_id_of, unit_key
from pytest_osmosis.plugin.reward_tests.reward_options import path_of, split_argument
from pytest_osmosis.text.paths import shown


def ids_of_tomls(config: pytest.Config, arguments: Sequence[str], tomls: Sequence[Path]) -> Mapping[str, str]:
    """Return the node id with the TOML for each argument that names a row by its dataset.

    `tomls` are named by the command; others are looked for only if none of these is meant. Raises `pytest.UsageError`
    if more than one TOML could be meant.
    """
    evals: dict[str, Path | None] = {}
    ids = {}
    for arg in filter(options.names_a_row, arguments):
        key = eval_id_of(arg)
        if key not in evals:
            evals[key] = _toml(config, path_of(config, arg), _name(config, arg), tomls)
        if (toml := evals[key]) is not None:
            ids[arg] = f"{toml}{split_argument(config.invocation_params.dir, arg)[1]}"
    return ids


def _name(config: pytest.Config, arg: str) -> str:
    """Return the name of the eval in a node id."""
    key = unit_key(split_argument(config.invocation_params.dir, arg)[1])
    return "" if key is None else key.eval_id.removeprefix("::")


def _toml(config: pytest.Config, dataset: Path, name: str, tomls: Sequence[Path]) -> Path | None:
    typed = [path for path in tomls if path.stem == name or _has_entry(path, name)]
    found = _with_dataset(config, dataset, name, typed)
    found = found or _with_dataset(config, dataset, name, _tomls_named(config, name))
    if len(found) > 1:
        listed = " and ".join(map(shown, found))
        text = f"the rows of {listed} have this id; name one of them in place of the dataset"
        raise pytest.UsageError(f"{shown(dataset)}::{name}[...]: {text}")
    return found[0] if found else None


def _has_entry(toml: Path, name: str) -> bool:
    """Return True for a TOML with several evals, one of which has this name."""
    try:
        several = read_entries(toml)
    except OsmosisError:
        return False
    return several is not None and several.named(name) is not None


def _with_dataset(config: pytest.Config, dataset: Path, name: str, tomls: Iterable[Path]) -> list[Path]:
    """Return the TOMLs whose eval of a name has this dataset; if none has it, those whose dataset is not known."""
    datasets = {toml: _dataset(config, toml, name) for toml in tomls}
    return [toml for toml, each in datasets.items() if each is not None and _is_same(each, dataset)] or [
        toml for toml, each in datasets.items() if each is None
    ]


def _dataset(config: pytest.Config, toml: Path, name: str) -> Path | None:
    """Return the dataset of an eval as this command configures it, None if the config has a problem."""
    try:
        loaded = load_eval_config(toml, read_overrides(config, os.environ, []), name)
        return locate(loaded.workspace, loaded.experiment.dataset, loaded.data.path)
    except OsmosisError:
        return None


def _is_same(path: Path, other: Path) -> bool:
    return path == other or (path.exists() and other.exists() and path.samefile(other))


def _tomls_named(config: pytest.Config, name: str) -> Iterator[Path]:
    """Yield the TOMLs of this name, or with an eval of it, below the rootdir, apart from folders that pytest skips."""
    for parent, folders, files in os.walk(config.rootpath):
        folders[:] = sorted(each for each in folders if not is_skipped_folder(config, each))
        in_configs = Path(parent).parts[-2:] == ("configs", "eval")
        for file in sorted(files):
            toml = Path(parent, file)
            if file == f"{name}.toml" or (in_configs and toml.suffix == ".toml" and _has_entry(toml, name)):
                yield toml
