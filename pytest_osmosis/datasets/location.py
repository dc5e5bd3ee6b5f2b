"""Where a dataset's file is: a path, or a name that stands for one file under `datasets/` or `data/`.

What a config names lies inside its workspace, symlinks resolved; only an absolute `path` may lie anywhere.
"""

from __future__ import annotations

from pathlib import Path

from pytest_osmosis.config.tables import DATASET_SUFFIXES
from pytest_osmosis.errors import DatasetError, Problem
from pytest_osmosis.text.lists import listed

FOLDERS = ("datasets", "data")
_MOST_LISTED = 10


def locate(workspace: Path, name: str | None, path: str | None) -> Path:
    """The dataset's file. `path` (absolute, or from the workspace) comes before `name`.

    A name is a file inside the workspace, or the stem of one file in `datasets/` or `data/`. Raises
    DatasetError where there is no such file, more than one, one outside the workspace, or of another format.
    """
    if path is not None:
        return _at_path(workspace, path)
    if name is not None:
        return _by_name(workspace, name)
    raise _error("dataset", 'missing; set [experiment] dataset = "<name>" or [data] path = "<file>"')


def need_readable(path: Path, where: str) -> None:
    """Raises DatasetError unless the file's suffix is that of a format that can be read."""
    suffix = path.suffix.lower()
    if suffix not in DATASET_SUFFIXES:
        got = f'got "{suffix}"' if suffix else "got none"
        raise _error(where, f"the suffix must be {_one_of(DATASET_SUFFIXES)}, {got}")


def _at_path(workspace: Path, path: str) -> Path:
    found = workspace / path
    if not Path(path).is_absolute():
        _need_inside(workspace, found, path)
    if not found.is_file():
        what = "is a folder, not a file" if found.is_dir() else f"no such file{_from(workspace, path)}"
        raise _error(path, f"{what}; {_what_lies_there(workspace)}")
    need_readable(found, path)
    return found


def _by_name(workspace: Path, name: str) -> Path:
    candidates = _candidates(workspace, name)
    if not candidates:
        looked = f"looked for {' and '.join(f'{folder}/{name}.*' for folder in FOLDERS)} in {workspace}"
        raise _error(f'dataset "{name}"', f"not found; {looked}; {_what_lies_there(workspace)}")
    if len(candidates) > 1:
        listed = " and ".join(_short(workspace, candidate) for candidate in candidates)
        fix = f'set [data] path = "{_short(workspace, candidates[0])}" or remove the others'
        raise _error(f'dataset "{name}"', f"matches {len(candidates)} files, {listed}; {fix}")
    found = candidates[0]
    _need_inside(workspace, found, _short(workspace, found))
    need_readable(found, _short(workspace, found))
    return found


def _candidates(workspace: Path, name: str) -> list[Path]:
    as_path = workspace / name
    if as_path.suffix.lower() in DATASET_SUFFIXES and as_path.is_file():
        return [as_path]
    named = [workspace / folder / (name + suffix) for folder in FOLDERS for suffix in DATASET_SUFFIXES]
    return [path for path in named if path.is_file()]


def _need_inside(workspace: Path, path: Path, where: str) -> None:
    if not path.resolve().is_relative_to(workspace.resolve()):
        fix = "copy it into the workspace, or give its absolute path in [data] path"
        raise _error(where, f"is outside the workspace {workspace} (symlinks resolved); {fix}")


def _what_lies_there(workspace: Path) -> str:
    folders = [workspace / folder for folder in FOLDERS if (workspace / folder).is_dir()]
    if not folders:
        return "the workspace has neither datasets/ nor data/"
    files = sorted(p for folder in folders for p in folder.iterdir() if p.suffix.lower() in DATASET_SUFFIXES)
    if not files:
        return f"there is no dataset in {' or '.join(f'{folder.name}/' for folder in folders)}"
    return f"available: {listed((_short(workspace, path) for path in files), _MOST_LISTED)}"


def _from(workspace: Path, path: str) -> str:
    return "" if Path(path).is_absolute() else f" in {workspace}"


def _short(workspace: Path, path: Path) -> str:
    return path.relative_to(workspace).as_posix() if path.is_relative_to(workspace) else str(path)


def _one_of(suffixes: tuple[str, ...]) -> str:
    return f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"


def _error(where: str, text: str) -> DatasetError:
    return DatasetError([Problem(where, text)])
