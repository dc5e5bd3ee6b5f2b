"""Recordings: a folder with a text for each case and mode, and the workspaces that the plain ones left.

A case happens in a folder and beside a server whose path and port are the same in all recordings, as digests depend on
them. So one recording is made at a time.
"""

from __future__ import annotations

import difflib
import fcntl
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.corpus.cases import CASES
from tests.corpus.place import Place
from tests.corpus.reading import read_runs
from tests.servers import ChatServer

WORK = Path(tempfile.gettempdir()) / "osmosis-corpus"
CONTEXT = 2
"""Equal lines that are shown around a difference."""
FIRST_PORT = 21_000
"""The port of the first case's server: systems give such ports to no client."""
INHERITED = ("HOME", "LANG", "PATH", "TMPDIR", "VIRTUAL_ENV")
SETTINGS = {
    "COLUMNS": "200",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_OSMOSIS_SHOW_FAILURES": "all",  # which of them are the first is a matter of time
}
PLUGINS = "pytest_osmosis.plugin,xdist.plugin,pytest_jsonreport.plugin"
MODES = {"plain": [], "xdist": ["-n2"], "read": []}
Task = tuple[str, Sequence[str], Path, Path]
"""The name of a case, its modes, which follow each other, the recording, and the one whose eval runs are read."""


def record(folder: Path, code: Path, runs: Path | None, words: Sequence[str], modes: Sequence[str], jobs: int) -> None:
    """Record every case whose name holds one of `words`, or all, with the package in `code`."""
    if not (code / "pytest_osmosis").is_dir():
        sys.exit(f"{code} holds no package pytest_osmosis")
    folder.mkdir(parents=True, exist_ok=True)
    _set_environment(code)
    names = [name for name in CASES if not words or any(word in name for word in words)]
    told = [(name, [mode for mode in CASES[name].modes if mode in modes], folder, folder) for name in names]
    read = [(name, ["read"], folder, (runs or folder).resolve()) for name in names if CASES[name].is_read]
    read = read if "read" in modes else []
    told = [task for task in told if task[1]]
    began = time.monotonic()
    with _alone(), multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=8) as pool:
        for tasks in (told, read):
            for done, (name, modes, seconds) in enumerate(pool.imap_unordered(_recorded, tasks), 1):
                print(f"{done}/{len(tasks)} {name} ({', '.join(modes)}) {seconds:.1f} s", flush=True)
    n_commands = sum(text.count("\n$ ") for text in _texts(folder, words, modes).values())
    n_runs = sum(path.is_dir() for path in (folder / "kept").rglob(".osmosis/runs/*"))
    print(f"{n_commands} commands, {n_runs} eval runs left, in {time.monotonic() - began:.0f} s")


def compare(before: Path, after: Path, words: Sequence[str], modes: Sequence[str]) -> list[str]:
    texts = _texts(before, words, modes), _texts(after, words, modes)
    lines: list[str] = []
    for name in sorted(texts[0].keys() | texts[1].keys()):
        old, new = (each.get(name, "not recorded").splitlines() for each in texts)
        if old != new:
            lines += _with_commands(old, new, name)
    return lines


def _with_commands(old: Sequence[str], new: Sequence[str], name: str) -> Iterator[str]:
    """Yield a diff in which each hunk is preceded by its command."""
    for line in difflib.unified_diff(old, new, f"before/{name}", f"after/{name}", lineterm="", n=CONTEXT):
        if line.startswith("@@"):
            at = int(line.split()[1].partition(",")[0].lstrip("-")) + CONTEXT
            command = next((each for each in reversed(old[:at]) if each.startswith("$ ")), "")
            yield f"{line} {command}"
        else:
            yield line


def _texts(folder: Path, words: Sequence[str], modes: Sequence[str]) -> dict[str, str]:
    files = {f"{mode}/{path.stem}": path for mode in modes for path in (folder / mode).glob("*.txt")}
    chosen = {name: path for name, path in files.items() if not words or any(slug(word) in name for word in words)}
    return {name: path.read_text(encoding="utf-8") for name, path in chosen.items()}


def slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)


def _set_environment(code: Path) -> None:
    """Leave only what both versions are to see: no keys, no settings of CI, this code and our plugins."""
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    os.environ.clear()
    os.environ.update(kept, **SETTINGS, PYTHONPATH=str(code), PYTEST_PLUGINS=PLUGINS)


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the folder in which cases happen, against a second recording at the same time."""
    WORK.mkdir(exist_ok=True)
    with (WORK / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _recorded(task: Task) -> tuple[str, Sequence[str], float]:
    name, modes, folder, runs = task
    began = time.monotonic()
    for mode in modes:
        _record_one(name, mode, folder, runs)
    return name, modes, time.monotonic() - began


def _record_one(name: str, mode: str, folder: Path, runs: Path) -> None:
    """Tell a story, or read the eval runs that it left, and write down what was seen."""
    root, kept = WORK / slug(name), Path("kept") / slug(name)
    shutil.rmtree(root, ignore_errors=True)
    case = CASES[name]
    script = (
        list(case.script())[-1:] if mode == "read" else case.script()
    )  # what comes before ended the story's session
    with ChatServer(*script, port=FIRST_PORT + list(CASES).index(name)) as server:
        place = Place(root, MODES[mode], server)
        try:
            if mode == "read":
                read_runs(place, runs / kept)
            else:
                case.tell(place)
        except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
            place.shown.append(f"the case broke: {type(error).__name__}: {str(error)[:500]}")
        text = "\n".join([f"# {case.description}", *place.text()])
    path = folder / mode / f"{slug(name)}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
    if mode == "plain" and case.is_read:
        shutil.rmtree(folder / kept, ignore_errors=True)
        shutil.copytree(root, folder / kept, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(root, ignore_errors=True)
