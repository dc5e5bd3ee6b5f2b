"""The file of a dataset: a path, or the name of one file under `datasets/` or `data/`.

After resolving symlinks, the file must be inside the workspace. Only an absolute `path` can be anywhere.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from pytest_osmosis.config.tables import DATASET_SUFFIXES
from pytest_osmosis.errors import DatasetError, Problem
from pytest_osmosis.files.reading import fault_of, something_at
from pytest_osmosis.text.lists import listed
from pytest_osmosis.text.paths import shown

FOLDERS = ("datasets", "data")
_MOST_LISTED = 10


def locate(workspace: Path, name: str | None, path: str | None) -> Path:
    """Return the file of a dataset. `path` (absolute, or relative to the workspace) takes precedence over `name`.

    A name is a file inside the workspace, or the stem of one file in `datasets/` or `data/`. Raises DatasetError if
    there is no such file or more than one, if it is outside the workspace, or if its format is not supported.
    """
    if path is not None:
        file, where = workspace / path, path
    elif name is not None:
        file = _named(workspace, name)
        where = _short(workspace, file)
    else:
        raise _error("dataset", 'missing; set [experiment] dataset = "<name>" or [data] path = "<file>"')
    if path is None or not Path(path).is_absolute():
        _check_inside(workspace, file, where)
    _check_file(workspace, file, where)
    check_suffix(file, where)
    return file


def check_suffix(path: Path, where: str) -> None:
    """Raise DatasetError unless the file has the suffix of a supported format."""
    suffix = path.suffix.lower()
    if suffix not in DATASET_SUFFIXES:
        got = f'got "{suffix}"' if suffix else "got none"
        valid = f"{', '.join(DATASET_SUFFIXES[:-1])} or {DATASET_SUFFIXES[-1]}"
        raise _error(where, f"the suffix must be {valid}, {got}")


def _named(workspace: Path, name: str) -> Path:
    candidates = _candidates(workspace, name)
    if not candidates:
        looked = f"looked for {' and '.join(f'{folder}/{name}.*' for folder in FOLDERS)} in {workspace}"
        raise _error(f'dataset "{name}"', f"not found; {looked}; {_available(workspace)}")
    if len(candidates) > 1:
        paths = " and ".join(_short(workspace, candidate) for candidate in candidates)
        fix = f'set [data] path = "{_short(workspace, candidates[0])}" or remove the others'
        raise _error(f'dataset "{name}"', f"matches {len(candidates)} files, {paths}; {fix}")
    return candidates[0]


def _candidates(workspace: Path, name: str) -> list[Path]:
    """Return the files that a name can mean, or else what is there in their places, which can be no dataset."""
    as_path = workspace / name
    if as_path.suffix.lower() in DATASET_SUFFIXES and something_at(as_path):
        return [as_path]
    places = (workspace / folder / (name + suffix) for folder in FOLDERS for suffix in DATASET_SUFFIXES)
    present = [place for place in places if something_at(place)]
    return [place for place in present if fault_of(place) is None] or present


def _check_inside(workspace: Path, path: Path, where: str) -> None:
    try:
        outside = not path.resolve().is_relative_to(workspace.resolve())
    except RuntimeError:  # a loop of links, which is nowhere
        return
    if outside:
        fix = f"copy it in, or use --osmosis-dataset={shlex.quote(shown(path))}"
        raise _error(where, f"lies outside the workspace {workspace} (symlinks resolved); {fix}")


def _check_file(workspace: Path, path: Path, where: str) -> None:
    fault = fault_of(path)
    if fault is not None:
        folder = "" if Path(where).is_absolute() or not fault.missing else f" in {workspace}"
        raise _error(where, f"{fault}{folder}; {_available(workspace)}" if fault.missing else str(fault))


def _available(workspace: Path) -> str:
    folders = [workspace / folder for folder in FOLDERS if (workspace / folder).is_dir()]
    if not folders:
        return "the workspace has neither datasets/ nor data/"
    files = sorted(p for folder in folders for p in folder.iterdir() if p.suffix.lower() in DATASET_SUFFIXES)
    if not files:
        return f"there is no dataset in {' or '.join(f'{folder.name}/' for folder in folders)}"
    return f"available: {listed((_short(workspace, path) for path in files), _MOST_LISTED)}"


def _short(workspace: Path, path: Path) -> str:
    return path.relative_to(workspace).as_posix() if path.is_relative_to(workspace) else str(path)


def _error(where: str, text: str) -> DatasetError:
    return DatasetError([Problem(where, text)])
