"""Fuzzing of what the viewer reads: journals, manifests and results. Only an `OsmosisError` may come of it.

Each api of the dashboard answers with strict JSON, and a report is written whole or not at all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_osmosis.addons.viewer.report import report
from pytest_osmosis.addons.viewer.report_file import END
from pytest_osmosis.addons.viewer.server import Dashboard
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.journal import encode
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.text.redaction import Redaction
from tests.hostile.fuzzing import Fuzzer, check_message
from tests.hostile.mutations import json_document, json_lines
from tests.hostile.test_fuzz_read_back import EVENTS, RESULTS, TOML
from tests.journals import with_checksums
from tests.unit.made import MANIFEST

NAME, INTACT = "x-1", "intact"
MOST_OPENED = 4
SHARE = 1 / 8
"""The share of the inputs that other borders get; the readers below are fuzzed there already."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an eval run, next to an intact copy of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    rows = [{"user_prompt": "1 + 1?", "ground_truth": "2", "level": level} for level in "aabb"]
    (tmp_path / "data/x.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    folder = tmp_path / ".osmosis/runs" / NAME
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(manifest(tmp_path)), encoding="utf-8")
    (folder / "journal.jsonl").write_bytes(b"".join(map(encode, EVENTS)))
    (folder / "results.json").write_text(json.dumps(RESULTS, indent=2), encoding="utf-8")
    shutil.copytree(folder, folder.with_name(INTACT))
    return folder


def manifest(root: Path) -> Mapping[str, Any]:
    here = {"folder": str(root / ".osmosis/runs" / NAME), "workspace": str(root), "config_text": TOML.decode()}
    plan = {**MANIFEST["plan"], "path": str(root / "x.toml"), "dataset": str(root / "data/x.jsonl")}
    return {**MANIFEST, **here, "plan": plan}


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


def test_journals(fuzz: Fuzzer, run: Path) -> None:
    journal, results = run / "journal.jsonl", run / "results.json"
    away = results.with_suffix(".away")

    def target(content: bytes) -> None:
        journal.write_bytes(with_checksums(content) if len(content) % 8 else content)
        check_pages(run.parents[2])
        results.rename(away)
        check_pages(run.parents[2])
        away.rename(results)

    fuzz("journal", target, json_lines(EVENTS), SHARE)


@pytest.mark.parametrize("name", ["manifest", "results"])
def test_documents(fuzz: Fuzzer, run: Path, name: str) -> None:
    document = manifest(run.parents[2]) if name == "manifest" else RESULTS

    def target(content: bytes) -> None:
        (run / f"{name}.json").write_bytes(content)
        check_pages(run.parents[2])

    fuzz(name, target, json_document(document), SHARE)
