"""Ten planted changes of behaviour, each of which a comparison of recordings must show."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.corpus import recording

REPOSITORY = Path(__file__).resolve().parents[2]


class Planted(NamedTuple):
    """A change: what it does, the file, its text before and after, and a case that meets it."""

    what: str
    file: str
    old: str
    new: str
    case: str = "option -ra"


PLANTED: Sequence[Planted] = (
    Planted("a message", "report/summary.py", "counted as failed: {cause", "taken as: {cause"),
    Planted("an exit status", "plugin/options.py", '"string", "9"', '"string", "8"', "values, all break"),
    Planted("a digit less", "text/numbers.py", 'f"{value:.3f}" if', 'f"{value:.2f}" if'),
    Planted("a field", "results/publish.py", '"standard_error": summary.se', '"standard_error": summary.mean'),
    Planted("no event at the end", "engine/recorder.py", "stopped\n        self._enter_own(event)", "stopped"),
    Planted("a key of requests", "models/completions.py", "{**body, **sampling}", '{**body, **sampling, "x": 1}'),
    Planted("a property in JUnit", "report/junit.py", '("osmosis.tokens", sum', '("osmosis.token", sum'),
    Planted(
        "a resume that repeats failures",
        *("record/stored_rollouts.py", "None or not (self.retries_failed or record.boundary in INFRASTRUCTURE)"),
        *("None", "table two hosts"),
    ),
    Planted("a default", "config/tables.py", 'at once.",\n        1,', 'at once.",\n        2,'),
    Planted("an order", "results/publish.py", "record.run.index)", "-record.run.index)", "option --osmosis-n=3"),
)


def check(folder: Path, jobs: int) -> int:
    """Record the package as it is, then with each change, and say which were noticed. Return 1 if one was not."""
    shutil.rmtree(folder, ignore_errors=True)
    before = folder / "before"
    recording.record(before, REPOSITORY, [planted.case for planted in PLANTED], ["plain"], jobs)
    n_noticed = 0
    for number, planted in enumerate(PLANTED):
        code, after = folder / "code", folder / f"after{number}"
        plant(planted, code)
        recording.record(after, code, [planted.case], ["plain"], jobs)
        words = ["diff", "-rU2", r"-F^\$ ", str(before / "plain"), str(after / "plain")]
        shown = subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()
        differences = [line for line in shown if not line.startswith("Only in ")]
        n_noticed += bool(differences)
        print(f"{planted.what}: {'noticed' if differences else 'NOT NOTICED'}, {len(differences)} lines")
        print("\n".join(f"    {line}" for line in differences[:8]), flush=True)
    print(f"{n_noticed} of {len(PLANTED)} changes noticed")
    return int(n_noticed < len(PLANTED))


def plant(planted: Planted, code: Path) -> None:
    shutil.rmtree(code, ignore_errors=True)
    package = code / "pytest_osmosis"
    shutil.copytree(REPOSITORY / package.name, package, ignore=shutil.ignore_patterns("__pycache__"))
    path = package / planted.file
    text = path.read_text(encoding="utf-8")
    if text.count(planted.old) != 1:
        raise ValueError(f"{planted.file} holds {text.count(planted.old)} times: {planted.old}")
    path.write_text(text.replace(planted.old, planted.new), encoding="utf-8")
