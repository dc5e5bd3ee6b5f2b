"""Files and folders that only their owner may read: all that a run directory holds. The umask cannot widen them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDER_MODE, FILE_MODE = 0o700, 0o600
DEEPEST = 64
"""A relative path has no more parts."""


def make_folder(path: Path) -> None:
    """Make a private folder. Folders above it are made as usual. Raises `FileExistsError` if there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=FOLDER_MODE)


def make_folders(path: Path) -> None:
    """Make a private folder, and private folders above it where there are none."""
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


def opener(path: str, flags: int) -> int:
    """Open a file for `open(path, opener=opener)`. It is private if this makes it."""
    return os.open(path, flags, FILE_MODE)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path to write to, and let that file replace the one at `path` at the end, or be gone after an error."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield scratch
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def write(path: Path, text: Iterable[str]) -> None:
    """Write a private file atomically: a reader sees the old file or the whole new one."""
    with replacing(path) as scratch, open(scratch, "w", encoding="utf-8", opener=opener) as pieces:
        pieces.writelines(text)


def append(path: Path, data: bytes) -> None:
    """Append to a private file, which is made if there is none. A link is not followed."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    with open(path, "ab", buffering=0, opener=lambda name, _: opener(name, flags)) as file:
        while data:
            data = data[file.write(data) :]


def relative_parts(path: str) -> tuple[str, ...]:
    """Return the parts of a relative path that others chose. Raises `ValueError` for one that may lead elsewhere.

    >>> relative_parts("logs/a.txt")
    ('logs', 'a.txt')
    >>> relative_parts("../a.txt")
    Traceback (most recent call last):
    ValueError: not a relative path
    """
    parts = tuple(path.split("/"))
    if len(parts) > DEEPEST or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise ValueError("not a relative path")
    return parts


def move_into(folder: Path, parts: Sequence[str], source: Path) -> None:
    """Move `source` to the path `parts` in `folder`, in place of a file there. Raises `OSError`.

    Private folders are made where there are none. No link below `folder` is followed, whoever made it.
    """
    *folders, name = parts
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for each in folders:
            with suppress(FileExistsError):
                os.mkdir(each, FOLDER_MODE, dir_fd=inner)
            outer, inner = inner, os.open(each, flags, dir_fd=inner)
            os.close(outer)
        os.rename(source, name, dst_dir_fd=inner)
    finally:
        os.close(inner)
