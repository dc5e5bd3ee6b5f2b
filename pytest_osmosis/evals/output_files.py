"""The files that a session writes outside run directories, checked before anything runs.

No two of them may be the same file, none may be a file that the session reads, and a file that we did not write is only
replaced if the command says so. Names that differ only in case, or in the Unicode form of a letter, count as the same
file, because on macOS and Windows they are.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis.config import EvalConfig
from pytest_osmosis.errors import Problem
from pytest_osmosis.evals.cassettes import is_cassette
from pytest_osmosis.evals.prepared import Prepared
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.record.find_run import is_run
from pytest_osmosis.record.plan import Shard
from pytest_osmosis.results.publish import partial_path, why_not_writable
from pytest_osmosis.results.read import is_results
from pytest_osmosis.text.names import absolute, shown

OVERWRITE = "--osmosis-overwrite"
CODE = ".py"
CASES = ".cases.toml"


class OutputFile(NamedTuple):
    """A file that is to be written. `kind` and `of` describe it: "results file", "the results of configs/eval/x.toml".

    `is_ours` returns True for an existing file that we wrote. `others` are paths that may be written instead.
    """

    path: Path
    kind: str
    of: str
    is_ours: Callable[[Path], bool]
    others: tuple[Path, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.path, *self.others)

    def problem(self, path: Path, text: str) -> Problem:
        return Problem(f"{self.kind} {shown(path)}", text)


class InputFile(NamedTuple):
    """A file that the session reads; `name` says for what, as in "the dataset of x.toml".

    One that is a `baseline` is only replaced as such.
    """

    path: Path
    name: str
    baseline: bool = False


def outputs_of(prepared: Prepared, *, updating: bool) -> Iterator[OutputFile]:
    """Yield the files that an eval writes; with `updating` also its baseline."""
    config = prepared.config
    results, baseline = results_path(config), baseline_path(config)
    if results is not None:
        of = f"the results of {_name(prepared)}"
        shard = prepared.shard
        instead = partial_path(results) if shard is None else shard_path(results, shard)
        yield OutputFile(results, "results file", of, is_results, (instead,))
    if baseline is not None and updating:
        yield OutputFile(baseline, "baseline", f"the baseline of {_name(prepared)}", is_results)
    cassette = prepared.models.cassette
    if cassette is not None and cassette.is_written:
        entry = "" if config.entry is None else f", {config.entry}"
        yield OutputFile(cassette.path, "cassette", f"the cassette of {shown(config.path)}{entry}", is_cassette)


def problems_of_saving(prepared: Prepared) -> Iterator[Problem]:
    """Yield why the files of `prime eval` cannot be written or pushed, before anything is paid for."""
    folder = prime_folder(prepared)
    if folder is not None and (reason := why_not_writable(folder / "evals" / "results.jsonl")) is not None:
        yield Problem(f"output_dir {shown(folder)}", f"cannot be written: {reason}")
    if is_pushed(prepared) and find_spec(LIBRARY) is None:
        yield Problem(PUSH_FLAG, f'needs {LIBRARY}: pip install "pytest-osmosis[hub]"')


def inputs_of(prepared: Prepared) -> Iterator[InputFile]:
    """Yield the files that an eval reads, apart from its code."""
    config, name = prepared.config, _name(prepared)
    if config.text is not None:
        yield InputFile(config.path, "the config of an eval")
    yield InputFile(config.workspace / "pyproject.toml", "the settings of the workspace")
    yield InputFile(prepared.dataset.path, f"the dataset of {name}")
    cassette = prepared.models.cassette
    if cassette is not None and not cassette.is_written:
        yield InputFile(cassette.path, f"the cassette of {name}")
    if (baseline := baseline_path(config)) is not None:
        yield InputFile(baseline, f"the baseline of {name}", baseline=True)


def output_problems(outputs: Sequence[OutputFile], inputs: Iterable[InputFile], *, overwrite: bool) -> list[Problem]:
    """Return why files cannot be written. `overwrite` replaces files that we did not write, but no input."""
    read = {(_identity(each.path), each.baseline): each.name for each in inputs}
    problems = list(_clashes(outputs))
    for output in outputs:
        found = (_problem(output, path, read, overwrite=overwrite) for path in output.paths)
        problems += list(filter(None, found))[:1]
    return problems


def _problem(
    output: OutputFile, path: Path, read: Mapping[tuple[str, bool], str], *, overwrite: bool
) -> Problem | None:
    identity = _identity(path)
    if output.kind != "baseline" and (baseline := read.get((identity, True))) is not None:
        return output.problem(path, f"is {baseline}, which only --osmosis-update-baseline writes")
    source = "code" if path.suffix == CODE else "a file of cases" if path.name.endswith(CASES) else None
    name = read.get((identity, False), source if source is not None and something_at(path) else None)
    if name is not None:
        return output.problem(path, f"is {name}, which is never overwritten; name another file")
    if (run := next(filter(is_run, absolute(path).parents), None)) is not None:
        return output.problem(path, f"is inside the run directory {shown(run)}; choose a path outside it")
    if (reason := why_not_writable(path)) is not None:
        return output.problem(path, f"cannot be written: {reason}")
    if overwrite or not path.exists() or not path.stat().st_size or output.is_ours(path):
        return None
    return output.problem(
        path, f"exists, and pytest-osmosis did not write it; name another file, or replace it with {OVERWRITE}"
    )


def _clashes(outputs: Sequence[OutputFile]) -> Iterator[Problem]:
    """Yield a problem for each pair of outputs that would be the same file."""
    taken: dict[str, OutputFile] = {}
    for output in outputs:
        for path in output.paths:
            first = taken.setdefault(_identity(path), output)
            # the named eval of a config, or of an entry, and that of its tests write its cassette one after the other
            is_one = first.kind == output.kind == "cassette" and first.of == output.of
            if first is not output and not is_one:
                text = f"would be written for {first.of} and for {output.of}; give each a path of its own"
                yield output.problem(path, text)
                break


def _identity(path: Path) -> str:
    return unicodedata.normalize("NFC", os.path.realpath(path)).casefold()


def _name(prepared: Prepared) -> str:
    return f"{prepared.config.name} ({shown(prepared.config.path)})"


# -- the paths of results ----------------------------------------------------------------------------------


def baseline_path(config: EvalConfig) -> Path | None:
    """Return the path of the baseline's results, None if the config names none."""
    return None if config.baseline.results is None else config.workspace / config.baseline.results


def results_path(config: EvalConfig) -> Path | None:
    """Return the path that the results are also written to, None if the config names none."""
    return None if config.output.results is None else config.workspace / config.output.results


def html_path(config: EvalConfig) -> Path | None:
    """Return the path of the HTML report on the evals of the config, None if it names none."""
    html = config.output.html
    return None if html is None else config.workspace / html.replace("{name}", config.name)


def shard_path(path: Path, shard: Shard) -> Path:
    """Return the path of a shard's results next to those of others: x.shard-2-of-8.json for x.json."""
    return path.with_name(f"{path.stem}.shard-{shard.index}-of-{shard.of}{path.suffix}")


def comparison_path(entries: Sequence[EvalConfig], *, alone: bool) -> Path | None:
    """Return the path of the table that compares the entries of a config, None if no results are written elsewhere.

    It lies in the folder of all their results; `alone` is False if other configs have such a table too.
    """
    folders = [str(path.parent) for config in entries if (path := results_path(config)) is not None]
    name = "comparison.json" if alone else f"{entries[0].path.stem}.comparison.json"
    if folders:
        return Path(os.path.commonpath(folders)) / name
    saving = next((config for config in entries if config.output.save_results), None)
    return None if saving is None else saving.workspace / saving.output.output_dir / "evals" / name


# -- the push to the Hugging Face Hub: whatever happens to it, the eval run stays as it is -----------------

PUSH_FLAG = "--osmosis-save-to-hf-hub"
LIBRARY = "huggingface_hub"


def is_pushed(prepared: Prepared) -> bool:
    """Return True if the command asks for a push: a config alone cannot publish results."""
    asked = any((each.table, each.key) == ("output", "save_to_hf_hub") for each in prepared.typed)
    return asked and prepared.config.output.save_to_hf_hub


def prime_folder(prepared: Prepared) -> Path | None:
    """Return the folder for the files of `prime eval`, None if none are requested."""
    config = prepared.config
    requested = config.output.save_results or is_pushed(prepared)
    return config.workspace / config.output.output_dir if requested else None
