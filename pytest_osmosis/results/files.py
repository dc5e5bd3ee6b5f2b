"""Files of results: writing one, keeping earlier ones, and the reason why one cannot be written."""

from __future__ import annotations

import itertools
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_osmosis.files import private


def why_not_writable(path: Path) -> str | None:
    """Return why a file cannot be written at `path`, None if it can."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 (Path.stat does the same)
        if not stat.S_ISREG(mode):
            return "it is a folder" if stat.S_ISDIR(mode) else "it is not a regular file"
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:  # a loop of links, a name too long, a folder that may not be entered
        return error.strerror
    nearest = next(folder for folder in Path(os.path.realpath(path)).parents if folder.exists())
    if not nearest.is_dir():
        return f"{nearest} is not a folder"
    return None if os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} cannot be written to"


def kept_path(path: Path) -> Path:
    """Return the first unused path for earlier results: results.json is kept as results.1.json."""
    numbered = (path.with_name(f"{path.stem}.{number}{path.suffix}") for number in itertools.count(1))
    return next(free for free in numbered if not free.exists())


def keep_earlier(path: Path) -> None:
    """Copy the results at `path`, if there are any, before new ones replace them."""
    if path.exists():
        shutil.copy2(path, kept_path(path))


def write(path: Path, text: Iterable[str], *, is_private: bool = False) -> Path:
    """Write atomically and return the path: a reader sees the old file or the whole new one. Follows a link.

    Only its owner may read a file that `is_private`.
    """
    with (
        replacing(path) as scratch,
        open(scratch, "w", encoding="utf-8", opener=private.opener if is_private else None) as pieces,
    ):
        pieces.writelines(text)
    return path


@contextmanager
def replacing(path: Path, *, follows_link: bool = True) -> Iterator[Path]:
    """Give a path to write to, and let that file replace the one at `path` at the end, or be gone after an error."""
    file = path.resolve() if follows_link else path
    file.parent.mkdir(parents=True, exist_ok=True)
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        yield scratch
        scratch.replace(file)
    finally:
        scratch.unlink(missing_ok=True)


def append(path: Path, text: str) -> None:
    """Append to a file of another program. A pipe that nobody reads raises `OSError` and does not block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8", opener=_open_without_waiting) as file:
        file.write(text)


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
