"""An eval run that is read on while it goes on, is killed, or ends between two looks."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from benchmarks.viewer_runs import RunInProgress, SyntheticRun, write_run
from pytest_osmosis.errors import JournalError
from pytest_osmosis.record.journal import event_at
from pytest_osmosis.viewer.dashboard import Dashboard, NoPageError
from pytest_osmosis.viewer.live import LOOK_S, LiveRun
from tests.unit.viewer.test_live_page import applied

RUN = SyntheticRun("support-live", rows=4, n=2)


@pytest.fixture
def going_on(tmp_path: Path) -> Iterator[RunInProgress]:
    made = RunInProgress(tmp_path, RUN)
    yield made
    made.journal.close()


def newer(live: LiveRun, page: Any) -> Any:
    """The page that a browser has after it asked for changes, which it asks for after a while."""
    time.sleep(LOOK_S)
    changes = live.changes(page["seq"])
    return applied(page, changes) if changes["seq"] >= page["seq"] else live.page()


def outcomes(page: Any) -> list[str]:
    return [page["head"]["outcomes"][each] for each in page["runs"]["outcome"]]


def errors(page: Any) -> list[str | None]:
    return [page["head"]["errors"][each] if each >= 0 else None for each in page["runs"]["error"]]


def test_a_page_follows_its_eval_run_to_the_end(going_on: RunInProgress) -> None:
    live = LiveRun(going_on.directory, count(1))
    page: Any = copy.deepcopy(live.page())
    assert (page["head"]["row"]["status"], set(outcomes(page))) == ("running", {"pending"})
    going_on.append(12)
    page = newer(live, page)
    assert {"running"} < set(outcomes(page))
    going_on.append()
    going_on.finish()
    page = newer(live, page)
    assert page["head"]["row"]["status"] == "finished"
    fresh: Any = LiveRun(going_on.directory, count(1)).page()
    assert (outcomes(page), errors(page)) == (outcomes(fresh), errors(fresh))
    assert {**page["head"], "errors": 0} == {**fresh["head"], "errors": 0}
    assert page["rows"] == fresh["rows"]
    assert page["runs"]["scores"] == fresh["runs"]["scores"]
    assert live.changes(page["seq"])["head"] is None


def test_runs_with_new_events_are_shown_before_the_statistics_are_made_again(
    going_on: RunInProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = LiveRun(going_on.directory, count(1))
    live.page()
    going_on.append(12)
    time.sleep(LOOK_S)
    monkeypatch.setattr(live, "_next_whole", 0.0)  # or no whole page is made after one that took long
    monkeypatch.setattr("pytest_osmosis.viewer.live.WHOLE_PAGES", 10**6)  # no further one but where it is needed
    page: Any = copy.deepcopy(live.page())
    going_on.append(14)
    newest = newer(live, page)
    assert newest["head"]["row"] == page["head"]["row"]
    fresh: Any = LiveRun(going_on.directory, count(1)).page()
    assert outcomes(newest) == outcomes(fresh) != outcomes(page)
    same = ("scores", "metrics", "cost_usd", "tokens", "turns", "duration_ms", "boundary")
    assert {key: newest["runs"][key] for key in same} == {key: fresh["runs"][key] for key in same}
    assert errors(newest) == errors(fresh)
    monkeypatch.setattr(live, "_next_whole", 0.0)
    assert newer(live, newest)["head"]["row"] == fresh["head"]["row"]


def test_browsers_that_ask_without_a_pause_are_shown_what_is_new(going_on: RunInProgress) -> None:
    live = LiveRun(going_on.directory, count(1))
    live.page()
    going_on.append()
    going_on.finish()
    end = time.monotonic() + 300 * LOOK_S
    while live.page()["head"]["row"]["status"] == "running":
        assert time.monotonic() < end


def test_what_cannot_be_read_is_an_error_until_it_can(going_on: RunInProgress) -> None:
    live = LiveRun(going_on.directory, count(1))
    live.page()
    going_on.append(9)
    whole = going_on.directory.journal.read_bytes()
    going_on.journal.append(b"{}\n")
    for _ in range(2):
        time.sleep(LOOK_S)
        with pytest.raises(JournalError, match="not a journal line"):
            live.page()
    going_on.directory.journal.write_bytes(whole)
    time.sleep(LOOK_S)
    assert "running" in outcomes(live.page())


def test_a_torn_line_is_read_once_it_is_whole(going_on: RunInProgress) -> None:
    live = LiveRun(going_on.directory, count(1))
    page: Any = copy.deepcopy(live.page())
    before = going_on.directory.journal.read_bytes()
    going_on.append()
    lines = going_on.directory.journal.read_bytes()[len(before) :]
    torn = lines.index(b'{"ev":"rollout"') + 99
    going_on.directory.journal.write_bytes(before + lines[:torn])
    page = newer(live, page)
    assert set(outcomes(page)) == {"running"}
    going_on.directory.journal.write_bytes(before + lines)
    page = newer(live, page)
    assert not {"running", "pending"} & set(outcomes(page))


def test_a_conversation_is_whole_that_was_torn_when_another_one_was_opened(going_on: RunInProgress) -> None:
    live = LiveRun(going_on.directory, count(1))
    going_on.append()
    lines = going_on.directory.journal.read_bytes()
    last = lines.rindex(b'{"ev":"rollout"')
    going_on.directory.journal.write_bytes(lines[: last + 99])
    page: Any = copy.deepcopy(live.page())
    places = range(len(page["runs"]["row"]))
    (missing,) = [at for at in places if live.conversation(at) is None]
    going_on.directory.journal.write_bytes(lines)
    newer(live, page)
    conversation = json.loads(live.conversation(missing) or b"")
    assert conversation["rollout"] == event_at(going_on.directory.journal, last)
    assert len(conversation["scores"]) == 2


def test_an_eval_run_whose_process_dies_is_over(going_on: RunInProgress) -> None:
    live = LiveRun(going_on.directory, count(1))
    going_on.append(20)
    page: Any = copy.deepcopy(live.page())
    going_on.journal.close()  # as if its process were gone: nobody holds the lock, and no session has ended
    page = newer(live, page)
    assert page["head"]["row"]["status"] == "failed"
    assert "running" not in outcomes(page)


def test_another_eval_run_in_the_same_folder_is_asked_for_as_a_whole(tmp_path: Path) -> None:
    directory = write_run(tmp_path, RUN)
    live = LiveRun(directory, count(1))
    page: Any = copy.deepcopy(live.page())
    assert live.conversation(0)
    other = write_run(tmp_path / "other", SyntheticRun(RUN.name, rows=5, n=2, seed=9))
    for path in (directory.results, directory.manifest, directory.journal):
        path.unlink()
        (other.path / path.name).rename(path)
    assert len(newer(live, page)["rows"]["index"]) == 5
    fresh = LiveRun(directory, count(1))
    fresh.page()
    assert [live.conversation(at) for at in range(10)] == [fresh.conversation(at) for at in range(10)]


def test_a_search_goes_on_where_the_last_request_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_osmosis.viewer.live.SEARCH_S", 0.0)
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


def test_a_removed_eval_run_is_no_page(tmp_path: Path) -> None:
    directory = write_run(tmp_path, RUN)
    dashboard = Dashboard(tmp_path)
    dashboard.run(RUN.name)
    directory.manifest.unlink()
    with pytest.raises(NoPageError, match="it was removed"):
        dashboard.changes(RUN.name, 1)
