"""Files and folders that only their owner may read: all that a run directory holds. The umask cannot widen them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER_MODE, FILE_MODE = 0o700, 0o600


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
