"""The artifacts that hosts on other machines send, as the engine stores them.

Hosts run user code, so whatever they send is checked: a file lies in the folder of its own run, or nowhere.
"""

from __future__ import annotations

import os
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from pytest_osmosis.engine.notices import Notices
from pytest_osmosis.engine.run_table import Host
from pytest_osmosis.files import private
from pytest_osmosis.host.protocol import MOST_BYTES, MOST_FILES, ArtifactEvent, Key, LeftOutEvent
from pytest_osmosis.text.numbers import plural

LEFT_OUT = {
    "large": f"went beyond {MOST_BYTES >> 20} MB or {MOST_FILES:,} files, and the rest stayed where they ran",
    "unreadable": "could not be read in full where they ran, and are incomplete",
    "special": "hold links, pipes or devices, which are not copied from other machines",
}


class _Arriving(Struct):
    """A file of which `size` bytes have arrived, in `scratch`; it will be at `parts` in the folder of artifacts."""

    key: Key
    path: str
    parts: tuple[str, ...]
    scratch: Path
    size: int = 0


class Artifacts:
    """The artifacts of an eval's runs, in their folder.

    A file is complete or not there: until its last piece has arrived, it is a hidden file in the folder.
    """

    def __init__(self, folder: Path, notices: Notices) -> None:
        self._folder = folder
        self._notices = notices
        self._arriving: dict[Host, _Arriving] = {}
        self._n_bytes, self._n_files = Counter[Key](), Counter[Key]()
        self._n_begun = 0
        self._missing: dict[str, set[Key]] = defaultdict(set)

    def take(self, host: Host, event: ArtifactEvent | LeftOutEvent) -> None:
        """Take a piece of a file of a run that is under way, or that its host did not send all of them.

        Whatever is wrong with a piece costs that file alone.
        """
        key = Key.of(event)
        if event["ev"] == "left_out":
            if event["why"] in LEFT_OUT:
                self._missing[LEFT_OUT[event["why"]]].add(key)
            return
        try:
            self._take(host, key, event)
        except OSError as error:
            self._drop(host, key, error.strerror or type(error).__name__)
        except ValueError:  # also of binascii, and of names that cannot be encoded
            self._drop(host, key, "a host sent no valid file")

    def died(self, host: Host) -> None:
        """Drop the file whose pieces a host no longer sends."""
        if (arriving := self._arriving.pop(host, None)) is not None:
            try:
                arriving.scratch.unlink(missing_ok=True)
            except OSError as error:
                self._drop(host, arriving.key, error.strerror or type(error).__name__)

    def close(self) -> None:
        """Drop what has not arrived as a whole, and tell the user what is missing."""
        for host in list(self._arriving):
            self.died(host)
        for text, keys in self._missing.items():
            self._notices.add(f"artifacts of {plural(len({key.run for key in keys}), 'run')} {text}")

    def _take(self, host: Host, key: Key, event: ArtifactEvent) -> None:
        arriving = self._arriving.get(host)
        if event["offset"] == 0:
            self.died(host)
            arriving = self._begin(host, key, event["path"])
        elif arriving is None or (arriving.key, arriving.path, arriving.size) != (key, event["path"], event["offset"]):
            self.died(host)  # it is the rest of a file that was dropped
            return
        if arriving is None:
            return
        data = b64decode(event["data"], validate=True)
        if self._n_bytes[key] + len(data) > MOST_BYTES:
            self._missing[LEFT_OUT["large"]].add(key)
            self.died(host)
            return
        self._n_bytes[key] += len(data)
        arriving.size += len(data)
        private.append(arriving.scratch, data)
        if event["last"]:
            _move_into(self._folder, arriving.parts, arriving.scratch)
            del self._arriving[host]

    def _begin(self, host: Host, key: Key, path: str) -> _Arriving | None:
        """Return the file that begins to arrive, None if there are too many."""
        if self._n_files[key] == MOST_FILES:
            self._missing[LEFT_OUT["large"]].add(key)
            return None
        parts = (str(key.run), *relative_parts(path))
        self._n_files[key] += 1
        self._n_begun += 1
        private.make_folders(self._folder)
        scratch = self._folder / f".arriving-{self._n_begun}"
        scratch.unlink(missing_ok=True)  # an earlier session may have left it
        arriving = self._arriving[host] = _Arriving(key, path, parts, scratch)
        return arriving

    def _drop(self, host: Host, key: Key, why: str) -> None:
        self._missing[f"could not be stored in {self._folder}: {why}"].add(key)
        self.died(host)


DEEPEST = 64
"""A relative path has no more parts."""


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


def _move_into(folder: Path, parts: Sequence[str], source: Path) -> None:
    """Move `source` to the path `parts` in `folder`, in place of a file there. Raises `OSError`.

    Private folders are made where there are none. No link below `folder` is followed, whoever made it.
    """
    *folders, name = parts
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for each in folders:
            with suppress(FileExistsError):
                os.mkdir(each, private.FOLDER_MODE, dir_fd=inner)
            outer, inner = inner, os.open(each, flags, dir_fd=inner)
            os.close(outer)
        os.rename(source, name, dst_dir_fd=inner)
    finally:
        os.close(inner)
