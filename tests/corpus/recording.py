"""Recordings: a folder with a text for each case and mode, and the workspaces that the plain ones left.

A case happens in a folder and beside a server whose path and port are the same in all recordings, as digests depend on
them. So one recording is made at a time.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.corpus.cases import CASES
from tests.corpus.place import Place
from tests.corpus.reading import read_runs
from tests.servers import ChatServer

WORK = Path(tempfile.gettempdir()) / "osmosis-corpus"
FIRST_PORT = 21_000
"""The port of the first case's server: systems give such ports to no client."""
INHERITED = ("HOME", "LANG", "PATH", "TMPDIR", "VIRTUAL_ENV")
SETTINGS = {
    "COLUMNS": "200",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_PLUGINS": "pytest_osmosis.plugin,xdist.plugin,pytest_jsonreport.plugin",
    "PYTEST_OSMOSIS_SHOW_FAILURES": "all",  # which of them are the first is a matter of time
}
MODES = {"plain": [], "xdist": ["-n2"], "read": []}


def record(
    folder: Path, code: Path, words: Sequence[str], modes: Sequence[str], jobs: int, runs: Path | None = None
) -> None:
    """Record every case whose name holds one of `words`, or all, with the package in `code`.

    The eval runs that are read are those of the recording `runs`, or the own ones.
    """
    if not (code / "pytest_osmosis").is_dir():
        sys.exit(f"{code} holds no package pytest_osmosis")
    # Both versions see only this: no keys, no settings of CI, this code and our plugins.
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    os.environ.clear()
    os.environ.update(kept, **SETTINGS, PYTHONPATH=str(code))
    names = [name for name in CASES if not words or any(word in name for word in words)]
    one = partial(_record_one, modes=modes, folder=folder, runs=(runs or folder).resolve())
    WORK.mkdir(exist_ok=True)
    with (WORK / "lock").open("w") as lock, multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=8) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for done, (name, seconds) in enumerate(pool.imap_unordered(one, names), 1):
            print(f"{done}/{len(names)} {name} {seconds:.1f} s", flush=True)


def slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)


def _record_one(name: str, modes: Sequence[str], folder: Path, runs: Path) -> tuple[str, float]:
    """Tell a story in its modes, read the eval runs that it left, and write down what was seen."""
    began, case, root, kept = time.monotonic(), CASES[name], WORK / slug(name), Path("kept") / slug(name)
    for mode in (*case.modes, *["read"] * case.is_read):
        if mode not in modes:
            continue
        shutil.rmtree(root, ignore_errors=True)
        script = case.script()[-1:] if mode == "read" else case.script()  # what comes before ended the story's session
        with ChatServer(*script, port=FIRST_PORT + list(CASES).index(name)) as server:
            place = Place(root, MODES[mode], server)
            try:
                if mode == "read":
                    read_runs(place, runs / kept)
                else:
                    case.tell(place)
            except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
                place.shown.append(f"the case broke: {type(error).__name__}: {str(error)[:500]}")
            text = "\n".join(place.text())
        path = folder / mode / f"{slug(name)}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
        if mode == "plain" and case.is_read:
            shutil.rmtree(folder / kept, ignore_errors=True)
            shutil.copytree(root, folder / kept, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(root, ignore_errors=True)
    return name, time.monotonic() - began
