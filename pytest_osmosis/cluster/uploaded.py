"""The uploaded workspace on a node: a private copy of the folder that Ray shares among its workers, and its paths."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

from pytest_osmosis.processes.guard import GUARD


class WorkspaceCopy:
    """A copy of the folder `source`, made when it is first asked for. It is removed at the end of this process."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lock = threading.Lock()  # protects what follows
        self._holder: str | None = None
        self._root = ""

    def root(self, name: str) -> str:
        """Return the path of the copy, a folder called `name`. Raises `OSError` if it cannot be made."""
        with self._lock:
            if self._holder is None:
                holder = os.path.realpath(tempfile.mkdtemp(prefix="osmosis-workspace-"))
                GUARD.remove_at_end(holder)
                root = str(Path(holder, name or "workspace"))
                try:
                    shutil.copytree(self.source, root, symlinks=True)
                except shutil.Error as error:
                    _remove(holder)
                    (_, _, reason), *_ = error.args[0]
                    raise OSError(None, f"the workspace cannot be copied: {reason}") from None
                except OSError:
                    _remove(holder)
                    raise
                self._holder, self._root = holder, root
            return self._root

    def remove(self) -> None:
        """Remove the copy. The guard does it at the end if this is not possible now."""
        with self._lock:
            holder, self._holder = self._holder, None
            if holder is not None:
                _remove(holder)


def _remove(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.lexists(folder):
        GUARD.keep(folder)


def moved(value: Any, old: str, new: str) -> Any:
    """Return JSON in which the path `old`, and those in it, are in `new`; other text that contains it stays.

    >>> moved({"root": "/w", "files": ["/w/a.py", "/work", "see /w/a.py"]}, "/w", "/copy/w")
    {'root': '/copy/w', 'files': ['/copy/w/a.py', '/work', 'see /w/a.py']}
    """
    if isinstance(value, str):
        return new + value[len(old) :] if value == old or value.startswith(old.rstrip("/") + "/") else value
    if isinstance(value, list):
        return [moved(item, old, new) for item in value]
    if isinstance(value, dict):
        return {moved(key, old, new): moved(item, old, new) for key, item in value.items()}
    return value
