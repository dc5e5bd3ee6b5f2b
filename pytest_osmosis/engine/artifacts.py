"""Files that hosts cause to be written: artifacts that those on other machines send, and their log.

Hosts run user code, so whatever they send is checked: a file lies in the folder of its own run, or nowhere.
The log has output that belongs to no run. Hosts, and all processes that they start, append to it directly, so that it
has the last words of a process that dies. The engine checks its size every turn, and removes the middle of a log that
is too large.
"""

from __future__ import annotations

import contextlib
import os
from base64 import b64decode
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from pytest_osmosis.engine.notices import Notices
from pytest_osmosis.engine.run_table import Host
from pytest_osmosis.files import private
from pytest_osmosis.host.protocol import MOST_BYTES, MOST_FILES, ArtifactEvent, Key, LeftOutEvent, Setup
from pytest_osmosis.text.numbers import plural

LEFT_OUT = {
    "large": f"went beyond {MOST_BYTES >> 20} MB or {MOST_FILES:,} files, and the rest stayed where they ran",
    "unreadable": "could not be read in full where they ran, and are incomplete",
    "special": "hold links, pipes or devices, which are not copied from other machines",
}


@dataclass(slots=True)
class _Arriving:
    """A file of which `size` bytes have arrived, in `scratch`; it will be at `parts` in the folder of artifacts."""

    key: Key
    path: str
    parts: tuple[str, ...]
    scratch: Path
    size: int = 0


class Artifacts:
    """The artifacts of an eval's runs, in their folder, unless hosts write there themselves.

    A file is complete or not there: until its last piece has arrived, it is a hidden file in the folder.
    """

    def __init__(self, setup: Setup, notices: Notices) -> None:
        self._folder = Path(setup.artifacts) if setup.sends_artifacts else None
        self._notices = notices
        self._arriving: dict[Host, _Arriving] = {}
        self._n_bytes, self._n_files = Counter[Key](), Counter[Key]()
        self._n_begun = 0
        self._missing: dict[str, set[Key]] = defaultdict(set)

    def take(self, host: Host, event: ArtifactEvent) -> None:
        """Take a piece of a file of a run that is under way. Whatever is wrong with it costs that file alone."""
        if self._folder is None:
            return
        key = Key.of(event)
        try:
            self._take(self._folder, host, key, event)
        except OSError as error:
            self._drop(host, key, error.strerror or type(error).__name__)
        except ValueError:  # also of binascii, and of names that cannot be encoded
            self._drop(host, key, "a host sent no valid file")

    def left_out(self, event: LeftOutEvent) -> None:
        """Take that a host did not send all artifacts of a run."""
        if self._folder is not None and event["why"] in LEFT_OUT:
            self._missing[LEFT_OUT[event["why"]]].add(Key.of(event))

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

    def _take(self, folder: Path, host: Host, key: Key, event: ArtifactEvent) -> None:
        arriving = self._arriving.get(host)
        if event["offset"] == 0:
            self.died(host)
            arriving = self._begin(folder, host, key, event["path"])
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
            private.move_into(folder, arriving.parts, arriving.scratch)
            del self._arriving[host]

    def _begin(self, folder: Path, host: Host, key: Key, path: str) -> _Arriving | None:
        """Return the file that begins to arrive, None if there are too many."""
        if self._n_files[key] == MOST_FILES:
            self._missing[LEFT_OUT["large"]].add(key)
            return None
        parts = (str(key.run), *private.relative_parts(path))
        self._n_files[key] += 1
        self._n_begun += 1
        private.make_folders(folder)
        scratch = folder / f".arriving-{self._n_begun}"
        scratch.unlink(missing_ok=True)  # an earlier session may have left it
        arriving = self._arriving[host] = _Arriving(key, path, parts, scratch)
        return arriving

    def _drop(self, host: Host, key: Key, why: str) -> None:
        self._missing[f"could not be stored in {self._folder}: {why}"].add(key)
        self.died(host)


MOST_LOG_BYTES = 8 << 20
HEAD_BYTES = 2 << 20
TAIL_BYTES = 2 << 20
"""The parts of a larger log that are kept."""


def bound_log(path: Path) -> None:
    """Replace the middle of a log that is too large by a note. Do nothing if there is none, or the disk takes nothing.

    Bytes that other processes append during this call may be lost.
    """
    with contextlib.suppress(OSError):
        if path.stat().st_size <= MOST_LOG_BYTES:
            return
        with path.open("r+b") as file:
            file.seek(-TAIL_BYTES, os.SEEK_END)
            tail = file.read()
            file.truncate(HEAD_BYTES)
        with path.open("ab") as file:
            file.write(b"\n[... bytes left out ...]\n" + tail)
