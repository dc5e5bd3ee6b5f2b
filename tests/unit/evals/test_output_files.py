"""Files that would be written twice, or that are not ours to write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_osmosis.evals.output_files import InputFile, OutputFile, output_problems
from pytest_osmosis.report.markdown import MARK, is_page
from pytest_osmosis.results.read import is_results

OURS = {"schema_version": 7, "status": "finished", "config": {}, "summary": {}, "provenance": {}, "rows": []}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def results(path: str, of: str = "x", *others: str) -> OutputFile:
    return OutputFile(Path(path), "results file", f"the results of {of}", is_results, tuple(map(Path, others)))


def problems(*outputs: OutputFile, inputs: str = "", baselines: str = "", overwrite: bool = False) -> list[str]:
    named = [InputFile(Path(path), f"the input {path}") for path in inputs.split()]
    kept = [InputFile(Path(path), f"the baseline {path}", baseline=True) for path in baselines.split()]
    return [str(problem) for problem in output_problems(outputs, [*named, *kept], overwrite=overwrite)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("out/x.json", "out/x.json"),
        ("out/x.json", "./a/../out/x.json"),
        ("real/x.json", "link/x.json"),
        ("x.json", "X.json"),
        ("\u00e9.json", "e\u0301.json"),
    ],
)
def test_two_files_at_one_path_are_reported_with_both_names(folder: Path, first: str, second: str) -> None:
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    [problem] = problems(results(first, "a"), results(str(folder / second), "b"))
    assert ": would be written for the results of a and for the results of b" in problem
    assert problem.endswith("; give each a path of its own")
    assert len(problems(results("a.json", "a", "a.partial.json"), results("a.partial.json", "b"))) == 1


@pytest.mark.parametrize("overwrite", [False, True])
def test_inputs_and_code_are_never_overwritten(folder: Path, overwrite: bool) -> None:
    names = ("data.jsonl", "link.json", "rewards.py", "rewards.cases.toml", "base.json")
    (folder / "link.json").symlink_to("data.jsonl")
    for name in names:
        (folder / name).write_text(json.dumps(OURS))
    found = problems(*map(results, names), inputs="data.jsonl", baselines="base.json", overwrite=overwrite)
    never = "which is never overwritten; name another file"
    assert found[1:] == [
        f"results file data.jsonl: is the input data.jsonl, {never}",
        f"results file link.json: is the input data.jsonl, {never}",
        f"results file rewards.py: is code, {never}",
        f"results file rewards.cases.toml: is a file of cases, {never}",
        "results file base.json: is the baseline base.json, which only --osmosis-update-baseline writes",
    ]


def test_a_run_directory_keeps_its_files(folder: Path) -> None:
    (folder / "x-1").mkdir()
    (folder / "x-1/manifest.json").write_text("{}")
    said = "results file x-1/artifacts/out.json: is inside the run directory x-1; choose a path outside it"
    assert problems(results("x-1/artifacts/out.json"), overwrite=True) == [said]


FILES: dict[str, tuple[str, bool]] = {
    "empty": ("", True),
    "ours": (json.dumps(OURS), True),
    "sorted": (json.dumps(OURS, indent=2, sort_keys=True), True),
    "large": (json.dumps({**OURS, "summary": "x" * 11_000_000}, indent=2), True),
    "large foreign": ("x" * 11_000_000, False),
    "one key": ('{"schema_version": 1}', False),
    "text": ("notes", False),
    "page": (MARK + "### x", False),
}


@pytest.mark.parametrize(("text", "replaced"), FILES.values(), ids=FILES)
def test_only_results_are_replaced_unless_the_command_says_so(folder: Path, text: str, replaced: bool) -> None:
    (folder / "out.json").write_text(text)
    others = (
        "results file out.json: exists, and pytest-osmosis did not write it; name another file, or replace it with "
    )
    assert problems(results("out.json")) == ([] if replaced else [f"{others}--osmosis-overwrite"])
    assert problems(results("out.json"), overwrite=True) == []
    assert is_page(Path("out.json")) is text.startswith(MARK)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Path.mkdir, "it is a folder"),
        (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
        (lambda path: path.symlink_to("/dev/null"), "it is not a regular file"),
    ],
)
def test_what_cannot_be_written_is_reported(folder: Path, make: Callable[[Path], object], reason: str) -> None:
    make(Path("out.json"))
    assert problems(results("out.json"), overwrite=True) == [f"results file out.json: cannot be written: {reason}"]
    [problem] = problems(results("x" * 300))
    assert problem.endswith(": cannot be written: File name too long")
