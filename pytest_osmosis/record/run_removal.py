"""The removal of run directories: each is renamed away at once, and then deleted.

So a reader sees a whole eval run or none, whenever the process ends. What an interrupted removal leaves is deleted by
the next one. No link is followed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from pathlib import Path

from pytest_osmosis.errors import JournalError
from pytest_osmosis.files import private
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_lock import RunLock
from pytest_osmosis.text.paths import shown

REMOVED = ".removed"
"""The folder, next to the eval runs, of those that are being deleted. It is no eval run: it has no manifest."""


def remove_run(directory: RunDirectory) -> None:
    """Remove a run directory. Raises `JournalError` if a process writes it, or it cannot be removed."""
    lock = RunLock.take(directory)
    try:
        trash = directory.path.parent / REMOVED
        if not trash.is_dir():
            private.make_folder(trash)
        gone = trash / f"{directory.name}.{secrets.token_hex(3)}"
        directory.path.rename(gone)
    except OSError as error:
        raise JournalError(f"{shown(directory.path)}: cannot be removed: {error.strerror}") from error
    finally:
        lock.close()
    _delete(gone)
    _remove_empty(trash)


def finish_removals(home: Path) -> None:
    """Delete what interrupted removals left in a folder of eval runs. Raises `JournalError` if that fails."""
    trash = home / REMOVED
    if not trash.is_dir() or trash.is_symlink():
        return
    for left in sorted(trash.iterdir()):
        _delete(left)
    _remove_empty(trash)


def _remove_empty(trash: Path) -> None:
    with contextlib.suppress(OSError):  # another process just moved something there
        trash.rmdir()


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder, those of links themselves and not of what they point to."""
    total = 0
    for above, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):  # removed meanwhile
                total += os.lstat(os.path.join(above, name)).st_size  # noqa: PTH118 (quicker for many files)
    return total


def _delete(folder: Path) -> None:
    try:
        try:
            shutil.rmtree(folder)
        except PermissionError:
            _open_folders(folder)
            shutil.rmtree(folder)
    except FileNotFoundError:  # another process deletes it too
        if folder.exists():
            _delete(folder)
    except OSError as error:
        raise JournalError(
            f"{shown(folder)}: cannot be deleted: {error.strerror}; the eval run is already removed, delete the rest"
        ) from error


def _open_folders(folder: Path) -> None:
    """Let the owner delete what is in folders that user code protected."""
    for above, folders, _ in os.walk(folder):
        for name in (".", *folders):
            path = Path(above, name)
            with contextlib.suppress(OSError):
                if not path.is_symlink():
                    path.chmod(stat.S_IRWXU)
