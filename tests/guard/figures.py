"""The figures of the guard: what a rollout and a process need, now and according to `figures.json`."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.guard.imports import Imports, heavy

FILE = Path(__file__).with_name("figures.json")
PYTHON = "3.11"
"""The version of Python that the figures of calls and bytecodes belong to."""
IS_COUNTED = "{}.{}".format(*sys.version_info) == PYTHON
WARM, *SIZES = 4, 20, 28, 44
"""Rollouts of the evals that are counted. The first one fills caches; the others differ by whole turns."""
TOLERANCE = 0.02
"""Bytecodes may differ by this share of their figure, or else each edit of a busy function would change one."""
CHANCE = 0.0005
"""So much of them is chance: the embedded model takes branches."""
N_LISTED = 8
"""The most functions that are listed."""

Figures = Mapping[str, float]
Needs = Mapping[str, Figures]
"""The needs of one more rollout: "traffic", "counts" (`side, kind`), and for each side the calls of its functions."""


@functools.cache
def needs() -> tuple[Needs, Needs]:
    """Return what a rollout needs in an eval of few and in one of more rollouts, without what an eval needs once."""
    _, few, more, most = json.loads(_output_of("tests.guard.linked", *map(str, (WARM, *SIZES))))
    return _each(few, more, SIZES[1] - SIZES[0]), _each(more, most, SIZES[2] - SIZES[1])


def _each(small: Mapping[str, Mapping[str, int]], large: Mapping[str, Mapping[str, int]], n: int) -> Needs:
    differing = {
        group: {name: figures[name] - small[group].get(name, 0) for name in sorted(figures)}
        for group, figures in large.items()
    }
    return {
        group: {name: d / n if d % n else d // n for name, d in figures.items() if d}
        for group, figures in differing.items()
    }


def import_figures() -> Figures:
    """Return what the import of the plugin needs, which every pytest run of an environment pays for."""
    return {f"import of the plugin, {kind}": n for kind, n in json.loads(_output_of("tests.guard.counting")).items()}


def _output_of(module: str, *arguments: str) -> str:
    """Return what a module prints in a process that knows nothing of this one."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    words = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(words, cwd=FILE.parents[2], env=kept, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def module_figures(imports: Imports) -> dict[str, int | str]:
    """Return how many modules of each room a process imports, and the names of the heavy ones."""
    ours = (name.removeprefix("pytest_osmosis.") for name in imports if name.startswith("pytest_osmosis."))
    rooms = Counter("/".join(name.split(".")[: 2 if name.startswith("addons.") else 1]) for name in ours)
    return {"heavy": " ".join(heavy(imports)), **dict(sorted(rooms.items()))}


def stored() -> dict[str, Any]:
    groups: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return groups


def differences(was: Figures, now: Figures, tolerance: float = TOLERANCE) -> list[str]:
    """Return a line for each figure that is another one now."""
    return [
        f"{name}: {before} -> {after}"
        for name in sorted({*was, *now})
        for before, after in [(was.get(name, 0), now.get(name, 0))]
        if abs(after - before) > ("bytecodes" in name) * tolerance * before
    ]


def most_calls(was: Needs, now: Needs, lines: list[str]) -> list[str]:
    """Return a line for each of the functions whose calls changed most, of the sides that lines are about.

    If nothing is known of earlier calls, they are those that are called most.
    """
    found = []
    for side in dict.fromkeys(name for name in (line.split(", ")[0] for line in lines) if name in now):
        old, new = was.get(side, {}), now[side]
        by = {name: new.get(name, 0) - old.get(name, 0) for name in {*new, *old}}
        most = sorted((name for name in by if by[name]), key=lambda name: (-abs(by[name]), name))[:N_LISTED]
        found += [f"  {side}: {old.get(n, 0)} -> {new.get(n, 0)} calls of {n}" for n in most]
        found += [] if most else [f"  {side}: no function is called more or less often; look for loops"]
    return found


def module_differences(was: Mapping[str, Mapping[str, Any]], now: Mapping[str, Imports]) -> list[str]:
    """Return a line for each room of which a process imports more or fewer modules, and for other heavy modules.

    They are followed by the modules, and what imported them.
    """
    lines = []
    for process in sorted({*was, *now}):
        old, imports = was.get(process, {}), now.get(process, {})
        new = module_figures(imports)
        for group in [name for name in sorted({*old, *new}) if old.get(name, 0) != new.get(name, 0)]:
            lines.append(f"{process}, {group}: {old.get(group, 0)} -> {new.get(group, 0)}")
            names = [name for name in heavy(imports) if name not in str(old.get(group)).split()]
            if group != "heavy":
                names = sorted(name for name in imports if name.split(".")[:2] == ["pytest_osmosis", group])
            lines += [f"  {name} by {imports[name].place}" for name in names]
    return lines
