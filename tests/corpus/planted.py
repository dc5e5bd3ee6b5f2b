"""Ten planted changes of behaviour, each of which a comparison of recordings must show."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.corpus import recording

REPOSITORY = Path(__file__).resolve().parents[2]
MODES = ("plain",)


class Planted(NamedTuple):
    """A change: what it does, the file, its text before and after, and a case that meets it."""

    what: str
    file: str
    old: str
    new: str
    case: str


PLANTED: Sequence[Planted] = (
    Planted("a message", "report/summary.py", "counted as failed: {cause", "taken as: {cause", "option -ra"),
    Planted("an exit status", "plugin/options.py", '"string", "9"', '"string", "8"', "values, all break"),
    Planted("a digit less", "text/numbers.py", 'f"{value:.3f}" if', 'f"{value:.2f}" if', "option -ra"),
    Planted(
        "a field", "results/publish.py", '"standard_error": summary.se', '"standard_error": summary.mean', "option -ra"
    ),
    Planted(
        "no event at the end",
        *("engine/recorder.py", 'event["baseline_stopped"] = baseline_stopped\n        self._enter_own(event)'),
        *('event["baseline_stopped"] = baseline_stopped', "option -ra"),
    ),
    Planted(
        "a key of requests",
        "models/completions.py",
        "{**body, **sampling}",
        '{**body, **sampling, "x": 1}',
        "option -ra",
    ),
    Planted(
        "a property in JUnit",
        "report/junit.py",
        '("osmosis.tokens", sum',
        '("osmosis.token", sum',
        "option -ra",
    ),
    Planted(
        "a resume that repeats failures",
        *("record/stored_rollouts.py", "None or not (self.retries_failed or record.boundary in INFRASTRUCTURE)"),
        *("None", "table two hosts"),
    ),
    Planted("a default", "config/tables.py", 'at once.",\n        1,', 'at once.",\n        2,', "option -ra"),
    Planted(
        "an order",
        "results/publish.py",
        "record.run.is_baseline, record.run.index)",
        "record.run.is_baseline, -record.run.index)",
        "option --osmosis-n=3",
    ),
)


def check(folder: Path, words: Sequence[str], jobs: int) -> int:
    """Record the package as it is, then with each change, and say which were noticed. Return 1 if one was not."""
    chosen = words or sorted({planted.case for planted in PLANTED})
    shutil.rmtree(folder, ignore_errors=True)
    before = folder / "before"
    recording.record(before, REPOSITORY, None, chosen, MODES, jobs)
    n_noticed = 0
    for number, planted in enumerate(PLANTED):
        code, after = folder / "code", folder / f"after{number}"
        plant(planted, code)
        of_it = words or [planted.case]
        recording.record(after, code, before, of_it, MODES, jobs)
        differences = recording.compare(before, after, of_it, MODES)
        n_noticed += bool(differences)
        print(f"{planted.what}: {'noticed' if differences else 'NOT NOTICED'}, {len(differences)} lines")
        print("\n".join(f"    {line}" for line in differences[:8]), flush=True)
    print(f"{n_noticed} of {len(PLANTED)} changes noticed")
    return int(n_noticed < len(PLANTED))


def plant(planted: Planted, code: Path) -> None:
    shutil.rmtree(code, ignore_errors=True)
    shutil.copytree(
        REPOSITORY / "pytest_osmosis", code / "pytest_osmosis", ignore=shutil.ignore_patterns("__pycache__")
    )
    path = code / "pytest_osmosis" / planted.file
    text = path.read_text(encoding="utf-8")
    if text.count(planted.old) != 1:
        raise ValueError(f"{planted.file} holds {text.count(planted.old)} times: {planted.old}")
    path.write_text(text.replace(planted.old, planted.new), encoding="utf-8")
