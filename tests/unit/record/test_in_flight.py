from __future__ import annotations

from pathlib import Path

import pytest

from pytest_osmosis.record.journal import encode
from pytest_osmosis.record.lifecycle import Ending, InFlight, Stop, StopReason, ending_of
from pytest_osmosis.record.run_record import Event


def append(journal: Path, *events: Event) -> None:
    with journal.open("ab") as file:
        file.write(b"".join(map(encode, events)))


def of(kind: str, row: int, attempt: int = 1, **fields: object) -> Event:
    return {"ev": kind, "row": row, "run": 0, **fields, "attempt": attempt, "at": "2026-11-22T14:02:03.456+00:00"}


def test_runs_are_in_flight_from_their_start_to_their_rollout(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    in_flight = InFlight(journal)
    assert in_flight.count() == 0, "there is no journal yet"
    append(journal, of("start", 0), of("start", 1), of("start", 1, model_tag="baseline"))
    assert in_flight.count() == 3
    append(journal, of("rollout", 1), of("start", 0, attempt=2), {"ev": "score", "row": 1, "run": 0, "attempt": 1})
    assert in_flight.count() == 2
    append(journal, of("rollout", 0, attempt=2))
    assert in_flight.count() == 1


def test_what_a_killed_session_left_is_not_in_flight_in_the_next(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    append(journal, of("start", 0), {"ev": "began"}, of("start", 1))
    assert InFlight(journal).count() == 1


def test_hosts_may_have_begun_what_they_were_handed(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    in_flight = InFlight(journal)
    append(journal, of("start", 0), {"ev": "handed_out", "n": 9}, {"ev": "began"}, of("start", 0, attempt=2))
    assert in_flight.most() == 1, "an earlier session has lost the rest"
    append(journal, {"ev": "handed_out", "n": 3}, of("start", 1))
    assert (in_flight.count(), in_flight.most()) == (2, 4)
    append(journal, of("start", 0, attempt=3), of("rollout", 1))
    assert (in_flight.count(), in_flight.most()) == (1, 2)
    append(journal, {"ev": "handed_out", "n": 0})
    assert in_flight.most() == 1


ENDINGS: list[tuple[StopReason, bool, Ending]] = [
    *(("decided", False, "finished"), ("closed", True, "finished"), ("closed", False, "stopped")),
    *(("interrupt", False, "stopped"), ("maxfail", False, "stopped"), ("requested", False, "stopped")),
    *(("max_tokens", False, "stopped"), ("max_cost_usd", False, "stopped"), ("max_duration_s", False, "stopped")),
    *(("systemic", True, "failed"), ("journal", False, "failed"), ("max_errors", False, "failed")),
]


@pytest.mark.parametrize(("reason", "all_done", "ending"), ENDINGS)
def test_the_reason_of_a_stop_tells_its_status(reason: StopReason, all_done: bool, ending: Ending) -> None:
    assert ending_of(Stop(reason, "text"), all_done=all_done) == ending
    assert ending_of(None, all_done=all_done) == "finished"
