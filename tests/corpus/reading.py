"""The reading of stored eval runs: by all commands that look at them, and by those that go on with them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.cli.dashboards import dashboard
from tests.corpus.place import DEADLINE_S, Place, shortened
from tests.plugin.under_xdist import json_lines

IN_ONE_PROCESS = """
import io, json, runpy, sys, traceback
for command in json.load(sys.stdin):
    sys.argv = ["pytest-osmosis", *command.split()]
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True) for _ in "oe"]
    screens = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = streams
    try:
        status = runpy.run_module("pytest_osmosis", run_name="__main__") and 0
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        status = 1
        traceback.print_exc()
    finally:
        sys.stdout, sys.stderr = screens
    print(json.dumps([status, *(stream.buffer.getvalue().decode() for stream in streams)]))
"""
"""Runs commands of ours one after the other: starting Python costs more than most of them do."""
OF_ONE = (
    *("show {run}", "show {run} --all --json", "show {run} row0", "show {run} row0-run0 --full"),
    *("show {run} row1-run0 --json", "runs export {run}", "runs export {run} --format=jsonl"),
    *("runs export {run} --format=prime -o prime", "html {run} -o report.html"),
)
OF_ALL = (
    *("runs list", "runs list --all --json"),
    *("runs compare latest~1 latest --all", "runs compare latest~1 latest --json"),
)
"""Commands that look at one eval run, and at all of a workspace."""
MOST_RUNS = 4
"""Eval runs of one workspace that are read one by one: the newest."""


def read_runs(place: Place, stored: Path) -> None:
    """Look at each eval run that a story left, show its pages, score it again and go on with it."""
    shutil.copytree(stored, place.root, symlinks=True, dirs_exist_ok=True)
    for folder in sorted({path.parent.parent for path in place.root.rglob(".osmosis/runs")}):
        runs = sorted((path for path in (folder / ".osmosis/runs").iterdir() if path.is_dir()), key=_age)[-MOST_RUNS:]
        _look(place, folder, [line.format(run=run.name) for run in runs for line in OF_ONE])
        _look(place, folder, OF_ALL)
        with dashboard(folder) as running:
            for path in ("runs", *(f"runs/{run.name}{end}" for end in ("", "/conversations/0") for run in runs)):
                answer = running.api(path)
                place.shown += [f"$ GET /api/{path}", f"status {answer.status}", *_laid_out(answer.text)]
        for run in runs:
            _go_on(place, folder, run)


def _age(run: Path) -> tuple[str, str]:
    """Return the moment at which an eval run began, which its manifest holds, and its name."""
    manifest = run / "manifest.json"
    text = manifest.read_text(encoding="utf-8", errors="replace") if manifest.is_file() else ""
    found = re.search(r"\d{4}-\d\d-\d\dT[\d:.]+", text)
    return (found[0] if found else "", run.name)


def _look(place: Place, folder: Path, commands: Sequence[str]) -> None:
    words = [sys.executable, "-c", IN_ONE_PROCESS]
    done = subprocess.run(
        words, cwd=folder, input=json.dumps(commands), capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    place.shown += [f"died: {line}" for line in done.stderr.splitlines()]
    for command, line in zip(commands, done.stdout.splitlines(), strict=False):
        status, out, err = json.loads(line)
        place.shown += [f"$ pytest-osmosis {command}", f"exit status {status}", *_laid_out(out)]
        place.shown += [f"stderr: {line}" for line in err.splitlines()]
    for file in (folder / "report.html", *sorted((folder / "prime").rglob("*"))):
        if file.is_file():
            place.shown += [f"written: {file.relative_to(place.root)}", *place.content(file)]


def _laid_out(text: str) -> list[str]:
    """Return the lines of a text: of JSON, also one on each line, without times; of others without wide columns."""
    for parts in ([text], text.splitlines()):
        with suppress(ValueError):
            return shortened(line for part in parts for line in json_lines(json.loads(part)))
    return shortened(re.sub(r"(?<=\S) {2,}", "  ", line).rstrip() for line in text.splitlines())


def _go_on(place: Place, folder: Path, run: Path) -> None:
    """Score an eval run again, and go on with it by the config of the same name."""
    within = str(folder.relative_to(place.root))
    place.command(0, f"--osmosis-from={run.name}", folder=within)
    name = re.sub(r"-\d{8}T\d{6}Z-\w+$", "", run.name)
    configs = sorted(folder.glob("configs/eval/*.toml"))
    config = next((each for each in configs if each.stem == name), configs[0] if len(configs) == 1 else None)
    if config is not None:
        words = (f"--osmosis-config={config.relative_to(folder)}", f"--osmosis-run={run.name}", "--osmosis-no-probe")
        place.command(0, *words, folder=within)
