"""Eval runs that are read on while they change: running, killed, ended, and some that have nothing to read yet."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.viewer_runs import RunInProgress, SyntheticRun, write_run
from pytest_osmosis.addons.viewer.open_run import OpenRun
from pytest_osmosis.addons.viewer.shapes import RunPage
from pytest_osmosis.errors import ResultsError
from pytest_osmosis.record.journal import encode, replay
from pytest_osmosis.record.run_directory import RunDirectory

SMALL = SyntheticRun("small", rows=6, n=2, seed=1)


@pytest.fixture
def progress(tmp_path: Path) -> Iterator[RunInProgress]:
    run = RunInProgress(tmp_path, SMALL)
    yield run
    run.journal.close()


def opened(directory: RunDirectory) -> OpenRun:
    run = OpenRun(directory)
    run.read()
    return run


def outcomes(page: RunPage) -> Counter[str]:
    names = page["head"]["outcomes"]
    return Counter(names[each] for each in page["runs"]["outcome"])


def place(page: RunPage) -> Any:
    """Return what never changes: rows, and which run is where."""
    return page["rows"], [page["runs"][key] for key in ("row", "run", "model")]


def test_a_running_eval_run_has_all_planned_runs_and_keeps_their_places(progress: RunInProgress) -> None:
    run = opened(progress.directory)
    first = run.page()
    progress.append(14)  # 12 starts, the first rollout and its first score
    run.read()
    second = run.page()
    progress.append()
    run.read()
    last_of_journal = run.page()
    progress.finish()
    run.read()
    last = run.page()

    assert (first["head"]["row"]["status"], outcomes(first)) == ("running", {"pending": 12})
    assert (second["head"]["row"]["status"], outcomes(second)["running"]) == ("running", 12)
    assert (second["head"]["row"]["ended"], second["head"]["row"]["selected"]) == (0, 12)
    assert last_of_journal["head"]["row"]["pass_rate"] is None
    assert last["head"]["row"]["status"] == "finished"
    assert last["head"]["row"]["passed"] == outcomes(last)["passed"] > 0
    assert place(first) == place(second) == place(last_of_journal) == place(last)
    assert last_of_journal["runs"] == last["runs"]
    assert all(first["rows"]["prompt"]), "the dataset has the prompts of rows that nobody asked yet"


def test_the_prompts_of_the_dataset_are_those_that_are_sent(progress: RunInProgress) -> None:
    run = opened(progress.directory)
    asked = dict(run.prompts)
    progress.append()
    run.read()

    assert run.prompts == asked


def test_an_eval_run_without_a_journal_has_its_planned_runs(tmp_path: Path) -> None:
    directory = write_run(tmp_path, SMALL, until=1)
    directory.journal.unlink()

    page = opened(directory).page()

    assert outcomes(page) == {"pending": 12}
    assert page["head"]["row"]["ended"] == 0


def test_results_that_were_damaged_are_an_error_that_names_them(tmp_path: Path) -> None:
    directory = write_run(tmp_path, SMALL)
    directory.results.write_text(directory.results.read_text()[:500])

    with pytest.raises(ResultsError, match=r"results\.json"):
        opened(directory)


def test_a_run_that_its_grader_removed_is_in_no_rate(tmp_path: Path) -> None:
    directory = write_run(tmp_path, SMALL)
    events = [dict(event) for event in replay(directory.journal)]
    score = next(event for event in events if event["ev"] == "score" and event["scores"])
    score |= {"removed": True, "name": "rewards:correct", "scores": {}}
    directory.journal.write_bytes(b"".join(map(encode, events)))
    directory.results.unlink()

    run = opened(directory)
    page = run.page()

    assert outcomes(page)["removed"] == 1
    at = page["runs"]["outcome"].index(page["head"]["outcomes"].index("removed"))
    assert {scores[at] for scores in page["runs"]["scores"].values()} == {None}
    conversation = run.conversation(at)
    assert conversation is not None
    assert any(each.get("removed") for each in json.loads(conversation)["scores"])
    assert page["head"]["row"]["counted"] == 11


def test_facts_of_a_damaged_journal_do_not_fill_the_memory(tmp_path: Path) -> None:
    directory = write_run(tmp_path, SMALL, until=20)
    events = [dict(event) for event in replay(directory.journal)]
    events[1]["result_facts"] |= {"selected": [["primary", 0, 0, 10**15]]}
    directory.journal.write_bytes(b"".join(map(encode, events)))

    assert len(opened(directory).runs) == 12


def test_a_command_quotes_the_path_of_a_config_for_a_shell(tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    folder.mkdir()
    rerun = opened(write_run(folder, SMALL)).page()["head"]["rerun"]

    assert rerun is not None
    assert rerun[0].endswith("it'\"'\"'s here/configs/eval/support.toml::support[")
    assert rerun[1] == "]'"


def test_pages_are_strict_json_and_hold_no_conversation(tmp_path: Path) -> None:
    page = opened(write_run(tmp_path, SMALL)).page()
    text = json.dumps(page, allow_nan=False)

    assert "You answer questions of customers" not in text, "the system prompt"
