"""An eval run that is read on while it goes on, is killed, or ends between two looks, and some with nothing to read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.viewer_runs import RunInProgress, SyntheticRun, write_run
from pytest_osmosis.addons.viewer.open_run import OpenRun
from pytest_osmosis.addons.viewer.server import Dashboard, NoPageError
from pytest_osmosis.addons.viewer.shapes import RunPage, encoded
from pytest_osmosis.errors import JournalError, ResultsError
from pytest_osmosis.record.journal import encode, replay
from pytest_osmosis.record.run_directory import RunDirectory

RUN = SyntheticRun("support-live", rows=4, n=2)
SMALL = SyntheticRun("small", rows=6, n=2, seed=1)


@pytest.fixture
def going_on(tmp_path: Path) -> Iterator[RunInProgress]:
    made = RunInProgress(tmp_path, RUN)
    yield made
    made.journal.close()


@pytest.fixture(autouse=True)
def no_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request reads what is new."""
    monkeypatch.setattr("pytest_osmosis.addons.viewer.open_run.RESTS", 0)


def page_of(live: OpenRun) -> Any:
    return json.loads(live.json())


def outcomes(page: Any) -> list[str]:
    return [page["head"]["outcomes"][each] for each in page["runs"]["outcome"]]


def test_a_page_follows_its_eval_run_to_the_end_and_is_not_made_again_if_nothing_changed(
    going_on: RunInProgress,
) -> None:
    live = OpenRun(going_on.directory)
    page = page_of(live)
    assert (page["head"]["row"]["status"], set(outcomes(page))) == ("running", {"pending"})
    made = live.json()
    assert live.json() is made
    going_on.append(12)
    assert live.json() is not made
    assert {"running"} < set(outcomes(page_of(live)))
    going_on.append()
    going_on.finish()
    page = page_of(live)
    assert page["head"]["row"]["status"] == "finished"
    assert page == page_of(OpenRun(going_on.directory))


def test_a_page_that_took_long_stays_as_it_is_for_a_while(
    going_on: RunInProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, cpu_s = 1000.0, 0.0
    monkeypatch.setattr("pytest_osmosis.addons.viewer.open_run.RESTS", 4)
    monkeypatch.setattr("pytest_osmosis.addons.viewer.open_run.monotonic", lambda: now)
    monkeypatch.setattr("pytest_osmosis.addons.viewer.open_run.thread_time", lambda: cpu_s)
    made = OpenRun.page

    def slowly(run: OpenRun) -> RunPage:
        nonlocal cpu_s
        cpu_s += 2.0
        return made(run)

    monkeypatch.setattr(OpenRun, "page", slowly)
    live = OpenRun(going_on.directory)
    first = live.json()
    going_on.append(12)
    now = 1007.5
    assert live.json() is first
    now = 1008.0
    assert live.json() != first


def test_what_cannot_be_read_is_an_error_until_it_can(going_on: RunInProgress) -> None:
    live = OpenRun(going_on.directory)
    live.json()
    going_on.append(9)
    whole = going_on.directory.journal.read_bytes()
    going_on.journal.append(b"{}\n")
    for _ in range(2):
        with pytest.raises(JournalError, match="not a journal line"):
            live.json()
    going_on.directory.journal.write_bytes(whole)
    assert "running" in outcomes(page_of(live))


def test_another_eval_run_in_the_same_folder_is_asked_for_as_a_whole(tmp_path: Path) -> None:
    directory = write_run(tmp_path, RUN)
    live = OpenRun(directory)
    live.json()
    assert live.conversation(0)
    other = write_run(tmp_path / "other", SyntheticRun(RUN.name, rows=5, n=2, seed=9))
    for path in (directory.results, directory.manifest, directory.journal):
        path.unlink()
        (other.path / path.name).rename(path)
    assert len(page_of(live)["rows"]["index"]) == 5
    fresh = OpenRun(directory)
    fresh.json()
    assert [live.conversation(at) for at in range(10)] == [fresh.conversation(at) for at in range(10)]


def test_a_search_goes_on_where_the_last_request_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_osmosis.addons.viewer.open_run.SEARCH_S", 0.0)
    write_run(tmp_path, RUN)
    dashboard = Dashboard(tmp_path)
    page = json.loads(dashboard.run(RUN.name))
    conversations = [json.loads(dashboard.conversation(RUN.name, at)) for at in range(8)]
    text = conversations[5]["rollout"]["messages"][-1]["content"][:40]
    found: list[int] = []
    hits: Any = {"searched": 0, "is_whole": False}
    n_requests = 0
    while not hits["is_whole"]:
        hits = json.loads(dashboard.search(RUN.name, text.upper(), hits["searched"]))
        found += hits["at"]
        n_requests += 1
    assert 5 in found
    assert (hits["searched"], n_requests) == (8, 8)
    assert all(conversations[at]["rollout"]["row"] == page["rows"]["index"][page["runs"]["row"][at]] for at in range(8))


def test_pages_on_several_eval_runs(tmp_path: Path) -> None:
    write_run(tmp_path, RUN)
    write_run(tmp_path, SyntheticRun("support-2", rows=4, n=2, seed=1, share=0.1))
    dashboard = Dashboard(tmp_path)
    compared = json.loads(dashboard.comparison(RUN.name, "support-2"))
    assert (compared["a"]["name"], compared["b"]["name"], len(compared["rows"])) == (RUN.name, "support-2", 4)
    assert all(row["prompt"] for row in compared["rows"])
    points = json.loads(dashboard.history("support"))["points"]
    assert {point["row"]["name"] for point in points} == {RUN.name, "support-2"}


@pytest.mark.parametrize("name", ["..", "../support-live", "", ".", "/etc", "support-liv", "SUPPORT-LIVE"])
def test_only_a_name_in_the_folder_is_an_eval_run(tmp_path: Path, name: str) -> None:
    write_run(tmp_path, RUN)
    with pytest.raises(NoPageError, match="no eval run"):
        Dashboard(tmp_path).run(name)


# -- eval runs that are opened without a dashboard ------------------------------------------------------------


@pytest.fixture
def progress(tmp_path: Path) -> Iterator[RunInProgress]:
    run = RunInProgress(tmp_path, SMALL)
    yield run
    run.journal.close()


def opened(directory: RunDirectory) -> OpenRun:
    run = OpenRun(directory)
    run.read()
    return run


def counted(page: RunPage) -> Counter[str]:
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

    assert (first["head"]["row"].status, counted(first)) == ("running", {"pending": 12})
    assert (second["head"]["row"].status, counted(second)["running"]) == ("running", 12)
    assert (second["head"]["row"].ended, second["head"]["row"].selected) == (0, 12)
    assert last_of_journal["head"]["row"].pass_rate is None
    assert last["head"]["row"].status == "finished"
    assert last["head"]["row"].passed == counted(last)["passed"] > 0
    assert place(first) == place(second) == place(last_of_journal) == place(last)
    assert last_of_journal["runs"] == last["runs"]
    assert all(first["rows"]["prompt"]), "the dataset has the prompts of rows that nobody asked yet"


def test_a_run_that_its_grader_removed_is_in_no_rate(tmp_path: Path) -> None:
    directory = write_run(tmp_path, SMALL)
    events = [dict(event) for event in replay(directory.journal)]
    score = next(event for event in events if event["ev"] == "score" and event["scores"])
    score |= {"removed": True, "name": "rewards:correct", "scores": {}}
    directory.journal.write_bytes(b"".join(map(encode, events)))
    directory.results.unlink()

    run = opened(directory)
    page = run.page()

    assert counted(page)["removed"] == 1
    at = page["runs"]["outcome"].index(page["head"]["outcomes"].index("removed"))
    assert {scores[at] for scores in page["runs"]["scores"].values()} == {None}
    conversation = run.conversation(at)
    assert conversation is not None
    assert any(each.get("removed") for each in json.loads(conversation)["scores"])
    assert page["head"]["row"].counted == 11


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


def test_pages_are_strict_json_without_conversations_and_damaged_results_are_named(tmp_path: Path) -> None:
    directory = write_run(tmp_path, SMALL)
    text = encoded(opened(directory).page()).decode()
    assert "You answer questions of customers" not in text, "the system prompt"

    directory.results.write_text(directory.results.read_text()[:500])
    with pytest.raises(ResultsError, match=r"results\.json"):
        opened(directory)
