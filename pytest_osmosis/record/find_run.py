"""The stored eval runs of a workspace, found by name, and what their manifests say."""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path, PurePath

from msgspec import Struct

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.files.reading import FileFault, JsonFault, fault_of, parsed, read_text, something_at
from pytest_osmosis.record.manifest import Manifest, read_manifest
from pytest_osmosis.record.run_directory import RUNS, RunDirectory
from pytest_osmosis.text.names import hint, listed, shown

LATEST = "latest"
TRACES, RESULTS = "traces.jsonl", "results.jsonl"
"""The files in a folder of verifiers whose lines are runs."""
MOST_BYTES = 1 << 30
NO_RUNS = "pytest CONFIG.toml makes one"
"""Advice where no eval has run."""
_MOST_LISTED = 5


class StoredEvalRun(Struct, frozen=True):
    """One eval run of the past."""

    directory: RunDirectory
    manifest: Manifest

    @property
    def results(self) -> Path | None:
        """The results file, None if it was not written."""
        return self.directory.results if something_at(self.directory.results) else None

    @property
    def is_of_files(self) -> bool:
        """True if it was made of another program's files, to be shown."""
        return bool(self.manifest.imported.get("is_all"))

    @property
    def place(self) -> Path:
        """Its directory, or the folder of the files of which it was made."""
        return Path(self.manifest.folder) if self.is_of_files else self.directory.path

    @property
    def workspace(self) -> Path:
        """The workspace of its eval: the recorded one, or the one that now surrounds a run directory that was moved."""
        return self._here(Path(self.manifest.workspace))

    @property
    def config(self) -> Path | None:
        """The path of its TOML, None for an eval that options alone described."""
        return None if self.manifest.config_text is None else self._here(Path(self.manifest.plan.path))

    @property
    def dataset(self) -> Path:
        """The path of its dataset, or of the rows of its environment, which it keeps itself."""
        kept = self.directory.rows
        return kept if something_at(kept) else self._here(Path(self.manifest.plan.dataset))

    @property
    def config_is_there(self) -> bool:
        """True if its TOML still exists."""
        return self.config is not None and fault_of(self.config) is None

    @property
    def own_config(self) -> str | None:
        """The path of its TOML for a command, None unless it still exists and alone describes the eval."""
        manifest, config = self.manifest, self.config
        if config is None or not self.config_is_there or manifest.typed or manifest.plan.name != manifest.named:
            return None
        return Path(shown(config)).as_posix()

    def _here(self, path: Path) -> Path:
        from_folder = os.path.relpath(path, self.manifest.folder)
        moved = Path(os.path.normpath(self.directory.path.absolute() / from_folder))
        return moved if something_at(moved) else path


def find_run(folder: Path, name: str) -> RunDirectory:
    """Return the directory of the eval run that `name` means.

    `name` is its folder, its name or the beginning of it, its results, its eval, the eval's TOML or node id (which mean
    the newest eval run of that eval), or "latest"; "~2" after an eval or "latest" means the run two before. Names are
    searched in `.osmosis/runs` of `folder` or of the nearest folder above it that has one. Raises `OsmosisError` if no
    run matches, or several do.
    """
    home, runs = runs_above(folder)
    if (earlier := _EARLIER.fullmatch(name)) is not None and not something_at(folder / name):
        return _earlier_run(home, runs, name, earlier["of"], int(earlier["back"]))
    if name == LATEST:
        if runs:
            return RunDirectory(runs[0])
        raise OsmosisError(f"no eval runs in {shown(home)}; {NO_RUNS}")
    if is_run(folder / name):
        return RunDirectory(folder / name)
    if _TOML.search(name):
        name = _eval_of_toml(name)
    elif something_at(folder / name) and not (folder / name).is_dir():
        return _run_of_results(folder / name)
    matches = [run for run in runs if run.name.startswith(name)]
    exact = [run for run in matches if run.name == name] or [run for run in runs if eval_in(run) == name][:1]
    if len(exact or matches) == 1:
        return RunDirectory((exact or matches)[0])
    if matches:
        raise OsmosisError(f'eval run "{name}": matches {len(matches)}, {_listed(matches)}; type more of the name')
    names = [each for run in runs for each in (run.name, eval_in(run) or run.name)]
    newest = f"the newest are {_listed(runs)}" if runs else f"there are none; {NO_RUNS}"
    raise OsmosisError(f'eval run "{name}": not found in {shown(home)}; {hint(name, names)}{newest}')


_EARLIER = re.compile(r"(?P<of>.+)~(?P<back>[0-9]{1,6})", re.DOTALL)
"""A name that counts back from the newest run."""


_TOML = re.compile(r"\.toml(?:::|$)")
"""The end of a TOML in a name, which may be that of a node id."""


def _eval_of_toml(name: str) -> str:
    path, _, rest = name.partition("::")
    return rest.partition("[")[0] or PurePath(path).stem


def _earlier_run(home: Path, runs: list[Path], name: str, of: str, back: int) -> RunDirectory:
    """Return the run that is `back` runs older than the newest one of an eval, or of all."""
    eval = _eval_of_toml(of) if _TOML.search(of) else of
    found = runs if of == LATEST else [run for run in runs if eval_in(run) == eval]
    if back < len(found):
        return RunDirectory(found[back])
    whose = "" if of == LATEST else f' of the eval "{eval}"'
    there = {0: "there are none", 1: "there is one"}.get(len(found), f"there are {len(found)}")
    raise OsmosisError(f'eval run "{name}": not found in {shown(home)}; {there}{whose}')


_RUN_NAME = re.compile(r"(?P<eval>.+)-(?P<began>[0-9]{8}T[0-9]{6}Z)-[0-9a-f]{6}", re.DOTALL)
"""The name that an eval run gives its directory."""


def eval_of(run_name: str) -> str | None:
    """Return the eval of a run directory by its name, None for a directory that was renamed.

    >>> eval_of("sums-20261122T140157Z-1ef7a3")
    'sums'
    """
    named = _RUN_NAME.fullmatch(run_name)
    return named and named["eval"]


def eval_in(run: Path) -> str | None:
    """Return the eval of a run directory: by its name, or else by its manifest, None if that cannot be read."""
    try:
        return eval_of(run.name) or read_manifest(RunDirectory(run).manifest).eval
    except OsmosisError:
        return None


def runs_above(folder: Path) -> tuple[Path, list[Path]]:
    """Return the nearest `.osmosis/runs`, from `folder` upwards, and the runs in it, newest first."""
    home = home_above(folder)
    runs = [run for run in home.glob("*") if is_run(run)]
    return home, sorted(runs, key=began_at, reverse=True)


def home_above(folder: Path) -> Path:
    """Return the nearest `.osmosis/runs`, from `folder` upwards; the one of `folder`, which is missing, without any."""
    homes = (above / RUNS for above in (folder, *folder.absolute().parents))
    return next((home for home in homes if home.is_dir()), folder / RUNS)


def began_at(run: Path) -> tuple[float, float]:
    """Return when an eval run began: to the second by its name, as times of files do not survive an upload."""
    try:
        written = RunDirectory(run).manifest.stat().st_mtime_ns / 1e9
    except OSError:  # removed meanwhile
        written = 0.0
    return _began_second(run.name) or written, written


def _began_second(run_name: str) -> float | None:
    """Return when an eval run began by the name of its directory, in seconds; None for one that was renamed."""
    named = _RUN_NAME.fullmatch(run_name)
    try:
        return None if named is None else datetime.strptime(named["began"], "%Y%m%dT%H%M%S%z").timestamp()
    except ValueError:  # 20269999T999999Z
        return None


def is_run(folder: Path) -> bool:
    return fault_of(RunDirectory(folder).manifest) is None


def stored(directory: RunDirectory) -> StoredEvalRun:
    """Return the eval run in a run directory. Raises `OsmosisError` if its manifest cannot be read."""
    return StoredEvalRun(directory, read_manifest(directory.manifest))


def _run_of_results(path: Path) -> RunDirectory:
    """Return the run directory that a results file belongs to: the one around it, else the one that it names."""
    if is_run(path.parent):
        return RunDirectory(path.parent)
    try:
        results = parsed(read_text(path, most_bytes=MOST_BYTES))
    except FileFault as fault:
        raise OsmosisError(f"{shown(path)}: {fault}") from None
    except JsonFault as error:
        raise OsmosisError(f"{shown(path)}: is not JSON: {error}") from None
    provenance = results.get("provenance") if isinstance(results, dict) else None
    run_dir = Path(str((provenance if isinstance(provenance, dict) else {}).get("run_dir", "")))
    if not run_dir.name:
        raise OsmosisError(f"{shown(path)}: names no run in provenance.run_dir; name the run itself")
    for home in (*path.absolute().parents, *Path.cwd().parents, Path.cwd()):
        for place in (home / run_dir, home / RUNS / run_dir.name):
            if is_run(place):
                return RunDirectory(place)
    raise OsmosisError(f"{shown(path)}: its run, {run_dir}, no longer exists")


def _listed(runs: list[Path]) -> str:
    return listed((run.name for run in runs), _MOST_LISTED)
