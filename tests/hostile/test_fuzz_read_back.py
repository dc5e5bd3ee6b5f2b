"""Fuzzing of what commands and the viewer read back: journals, manifests, results and cases.

Only an `OsmosisError` may come of it. Each api of the dashboard answers with strict JSON, and a report is written whole
or not at all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_osmosis.addons.lab.cases import cases_by_function
from pytest_osmosis.addons.lab.target import target_of
from pytest_osmosis.addons.verifiers.prime_files import write_prime_files
from pytest_osmosis.addons.viewer.compared_runs import compare_runs, read_side
from pytest_osmosis.addons.viewer.comparison_lines import comparison_json, comparison_lines
from pytest_osmosis.addons.viewer.list import list_runs, runs_json
from pytest_osmosis.addons.viewer.report import END, report
from pytest_osmosis.addons.viewer.run_lines import page_lines
from pytest_osmosis.addons.viewer.server import Dashboard
from pytest_osmosis.addons.viewer.show import named, show_json, unit_lines
from pytest_osmosis.addons.viewer.stored_results import read_run_lines, read_stored
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.evals.eval_models import read_baseline
from pytest_osmosis.record.find_run import find_run, stored
from pytest_osmosis.record.journal import encode
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.stored_rollouts import StoredRollouts
from pytest_osmosis.report.style import ansi, painted
from pytest_osmosis.results.previous_run import previous_run
from pytest_osmosis.results.read import read_results
from pytest_osmosis.text.redaction import Redaction, Sanitizer
from tests.hostile.fuzzing import Fuzzer, check_message, json_document, json_lines, mutated_bytes
from tests.journals import with_checksums
from tests.preparing import prepare_again
from tests.unit.made import MANIFEST, finished, published

NAME, INTACT = "x-1", "intact"
MOST_OPENED = 4
SHARE = 1 / 8
"""The share of the inputs that pages get: their readers are fuzzed here already."""
RUN = {"row": 0, "run": 0}
ATTEMPT = {**RUN, "attempt": 1}
AT = "2026-01-01T00:00:00.000+00:00"
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
MESSAGES = [
    {"role": "user", "content": "1 + 1?"},
    {"role": "assistant", "content": [{"type": "text", "text": "2"}], "tool_calls": [CALL]},
]
NOTES = {
    "metrics": {"rewards:f": {"f1": 0.5}},
    "reasons": {"rewards:f": "why"},
    "fields": {"rollout": {"plan": ["a", {"b": 1}]}},
}
ROLLED = {"messages": MESSAGES, "n_prompt": 1, "usage": {"input_tokens": 3}, "model": "m", "retries": 0, "at": AT}
SPAN = {"start": 1.0, "end": 2.0, "duration": 1.0}
ENVIRONMENT = {
    "timing": {"setup": SPAN, "generation": SPAN, "model": {"spans": [SPAN], "duration": 1.0}},
    "token_usage": {"input_tokens": 1.0},
    "error": {"error": "E", "error_chain_repr": "E()", "error_chain_str": "E"},
    "columns": {"judged": [1]},
    "tool_defs": [{"name": "f"}],
}
EVENTS: tuple[Mapping[str, Any], ...] = (
    {"ev": "rows", "rows": {"0": ["a", "b"], "1": ["c", "d"]}, "digests": {"0": "e", "1": "f"}},
    {"ev": "loaded", "scorers": ["rewards:f"], "digests": {"rewards:f": "x"}},
    {"ev": "start", **ATTEMPT, "at": AT},
    {"ev": "rollout", **ATTEMPT, "ms": 1.5, **ROLLED, "finish_reason": "stop", "environment": ENVIRONMENT},
    {"ev": "score", **ATTEMPT, "ms": 1, "scores": {"rewards:f": 1.0}, "errors": {}, "output": {"stdout": "x"}},
    {"ev": "score", **ATTEMPT, "ms": 1, "scores": {"rewards:f": 1.0}, "errors": {}, "ground_truth": ["x"], **NOTES},
    {"ev": "rollout", **ATTEMPT, "run": 1, "ms": 1, "messages": [], "n_prompt": 0, "boundary": "model", "error": "x"},
    {"ev": "score", **ATTEMPT, "ms": 1, "scores": {}, "errors": {"rewards:f": {"message": "x", "details": "y"}}},
    {"ev": "score", **ATTEMPT, "ms": 1, "scores": {}, "errors": {}, "removed": True, "name": "rewards:f"},
    {"ev": "skip", **RUN, "reason": "401"},
    {"ev": "rescored"},
)
RESULTS = json.loads(json.dumps(published([finished({"rewards:a": 1.0}, row) for row in range(2)])))
TOML = b"""[experiment]
model_path = "demo/arithmetic"
dataset = "x"
[scoring]
eval_fns = ["rewards:f"]
"""
CASES = b"""[[f]]
id = "a"
solution_str = "42"
ground_truth = "42"
extra_info = {split = "test"}
expect = [0.5, 1.0]
[[f]]
messages = [{role = "user", content = "x"}]
raises = "ValueError"
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a run, in a workspace that holds all that the run needs to be rescored."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    rows = [{"user_prompt": "1 + 1?", "ground_truth": "2", "level": level} for level in "aabb"]
    (tmp_path / "data/x.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "rewards.py").write_text("def f(solution_str, ground_truth): return 1.0\n", encoding="utf-8")
    (tmp_path / "x.toml").write_bytes(TOML)
    folder = tmp_path / ".osmosis/runs" / NAME
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(MANIFEST), encoding="utf-8")
    (folder / "journal.jsonl").write_bytes(b"".join(map(encode, EVENTS)))
    (folder / "results.json").write_text(json.dumps(RESULTS, indent=2), encoding="utf-8")
    shutil.copytree(folder, folder.with_name(INTACT))
    return folder


def manifest(root: Path) -> Mapping[str, Any]:
    """Return the manifest of the eval run, which leads to the files of its workspace."""
    here = {"folder": str(root / ".osmosis/runs" / NAME), "workspace": str(root), "config_text": TOML.decode()}
    plan = {**MANIFEST["plan"], "path": str(root / "x.toml"), "dataset": str(root / "data/x.jsonl")}
    return {**MANIFEST, **here, "plan": plan}


def each(*steps: Callable[[], object]) -> None:
    """Do all steps; each may refuse its input with an error that is fit to be shown."""
    for step in steps:
        try:
            step()
        except OsmosisError as error:
            check_message(error)


def shown(run: str, row_run: str | None = None) -> list[Callable[[], object]]:
    """Return steps that show an eval run, or a run or a row of it, as text and as JSON, and check what they show."""
    name, unit = named(run, row_run)
    sanitizer = Sanitizer()

    def page() -> Iterator[str]:
        directory = find_run(Path(), name)
        return page_lines(read_stored(stored(directory)), "all", 80) if unit is None else unit_lines(directory, unit)

    def lines() -> None:
        for line in page():
            assert "\n" not in line
            painted(line, sanitizer.shown, ansi)

    return [lines, lambda: json.loads(sanitizer.json(show_json(find_run(Path(), name), unit)))]


def managed() -> list[Callable[[], object]]:
    """Return steps that compare the eval run with one that is not broken, and export it."""
    sanitizer, folder = Sanitizer(), Path()

    def compared() -> None:
        found = compare_runs(read_side("A", folder, "x-1"), read_side("B", folder, "intact"))
        for line in comparison_lines(found, every_row=True):
            assert "\n" not in line
            painted(line, sanitizer.shown, ansi)
        json.loads(sanitizer.json(comparison_json(found)))

    def exported() -> None:
        for line in read_run_lines(stored(find_run(folder, "x-1"))).text(sanitizer.redaction):
            json.loads(line)
        write_prime_files(stored(find_run(folder, "x-1")), folder / "prime", sanitizer.redaction)

    return [compared, exported]


def test_journals(fuzz: Fuzzer, run: Path) -> None:
    journal, folder = run / "journal.jsonl", Path()

    def target(content: bytes) -> None:
        journal.write_bytes(with_checksums(content) if len(content) % 8 else content)
        each(
            lambda: StoredRollouts(journal).took_ms,
            *shown("x-1", "row0-run0"),
            *shown("x-1", "row0-run1"),
            *shown("x-1", "row0"),
            *shown("x-1"),
            *managed(),
        )
        (run / "results.json").rename(run / "results.json.away")
        each(*managed(), *shown("x-1"), *shown("x-1", "row0"), lambda: list_runs(folder))
        (run / "results.json.away").rename(run / "results.json")

    fuzz("journal", target, json_lines(EVENTS), share=1 / 3)


def test_manifests(fuzz: Fuzzer, run: Path) -> None:
    folder = Path()

    def target(content: bytes) -> None:
        (run / "manifest.json").write_bytes(content)

        def rescore() -> None:
            prepare_again(stored(find_run(folder, "x-1")), environ={})

        each(lambda: list_runs(folder), rescore, *shown("x-1"), *shown("x-1", "row0-run0"), *managed())

    fuzz("manifest", target, json_document(manifest(run.parents[2])))


def test_results(fuzz: Fuzzer, run: Path) -> None:
    path, folder = run / "results.json", Path()
    digest = RESULTS["provenance"]["plan_digest"]

    def read(reader: Callable[[Path], Any]) -> None:
        results = reader(path)
        results.row_runs(), results.measured_runs()

    def target(content: bytes) -> None:
        path.write_bytes(content)
        each(
            lambda: read(read_results),
            lambda: read_results(path).pass_rule,
            lambda: read_baseline(path, "x.toml"),
            lambda: list_runs(folder),
            lambda: previous_run(run.parent, digest),
            *shown("x-1", "row0-run0"),
            *shown("x-1"),
            lambda: runs_json(folder),
            *managed(),
        )

    fuzz("results", target, json_document(RESULTS), share=1 / 2)


def test_cases(fuzz: Fuzzer, run: Path) -> None:
    def f(solution_str: str, ground_truth: str) -> float:
        return 1.0

    found = target_of("f", f, __name__, Path("rewards.py"), plain=True)
    assert found is not None

    def target(content: bytes) -> None:
        Path("rewards.cases.toml").write_bytes(content)
        each(lambda: cases_by_function([found], Path("rewards.py")))

    fuzz("cases", target, mutated_bytes([CASES]))


# -- what the viewer reads ------------------------------------------------------------------------------------
# Each api of the dashboard answers with strict JSON, and a report is written whole or not at all.


@pytest.fixture
def root(run: Path) -> Path:
    """Return the workspace of the eval run and its copy, whose manifests lead to the dataset."""
    root = run.parents[2]
    for folder in (run, run.with_name(INTACT)):
        (folder / "manifest.json").write_text(json.dumps(manifest(root)), encoding="utf-8")
    return root


def check_pages(root: Path) -> None:
    """Ask for all that a browser does, and write reports; each may be refused with an error that is fit to be shown."""
    dashboard = Dashboard(root)
    page = answer(lambda: dashboard.run(NAME))
    n_runs = len(page["runs"]["row"]) if page else 0
    for at in range(min(n_runs, MOST_OPENED)):
        answer(lambda at=at: dashboard.conversation(NAME, at))  # type: ignore[misc]
    answer(lambda: dashboard.search(NAME, "text", 0))
    answer(lambda: dashboard.comparison(NAME, INTACT))
    answer(lambda: dashboard.comparison(INTACT, NAME))
    answer(lambda: dashboard.history("x"))
    assert {row["name"] for row in answer(dashboard.runs)["runs"]} == {NAME, INTACT}
    for names in ([NAME], [NAME, INTACT]):
        check_report(root, names)


def check_report(root: Path, names: list[str]) -> None:
    path = root / "report.html"
    try:
        report(path, {RunDirectory(root / ".osmosis/runs" / name): "all" for name in names}, Redaction())
    except OsmosisError as error:
        check_message(error)
    else:
        assert path.read_bytes().endswith(END)
        path.unlink()
    assert not list(root.glob(".*report*"))


def answer(ask: Callable[[], bytes]) -> Any:
    """Return an answer of the dashboard, which is strict JSON; None if it was refused."""
    try:
        content = ask()
    except OsmosisError as error:
        check_message(error)
        return None
    return json.loads(content.decode("ascii"), parse_constant=_refuse)


def _refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON: a browser does not read it")


@pytest.mark.parametrize("name", ["journal", "manifest", "results"])
def test_pages(fuzz: Fuzzer, run: Path, root: Path, name: str) -> None:
    """Ask for all pages; those of a journal also without its results."""
    inputs = {
        "journal": json_lines(EVENTS),
        "manifest": json_document(manifest(root)),
        "results": json_document(RESULTS),
    }
    results, away = run / "results.json", run / "results.away"

    def target(content: bytes) -> None:
        if name != "journal":
            (run / f"{name}.json").write_bytes(content)
            check_pages(root)
            return
        (run / "journal.jsonl").write_bytes(with_checksums(content) if len(content) % 8 else content)
        check_pages(root)
        results.rename(away)
        check_pages(root)
        away.rename(results)

    fuzz(name, target, inputs[name], SHARE)
