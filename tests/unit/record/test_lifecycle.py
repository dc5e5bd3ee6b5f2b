"""The status of an eval run, from its lock, its journal and its results; its runs in flight; and its ending."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.record import lifecycle
from pytest_osmosis.record.journal import Journal, encode, with_checksum
from pytest_osmosis.record.lifecycle import Ending, InFlight, Lifecycle, Stop, StopReason, ending_of, lifecycle_of
from pytest_osmosis.record.run_directory import Holder, RunDirectory, RunLock
from pytest_osmosis.record.run_record import Event
from pytest_osmosis.record.submission import SubmissionNote, secrets_file_of


def began(minute: int, *, resumed: bool = False) -> dict[str, Any]:
    at = f"2026-01-01T00:{minute:02}:00.000+00:00"
    return {"ev": "began", "at": at, "pid": 4711, "machine": "build7", "resumed": resumed}


def ended(minute: int, status: str = "finished", reason: str | None = None) -> dict[str, Any]:
    return {"ev": "ended", "at": f"2026-01-01T00:{minute:02}:00.000+00:00", "status": status, "reason": reason}


LOADED: dict[str, Any] = {"ev": "loaded", "scorers": ["rewards:exact"], "digests": {"rewards:exact": "0"}}
ROWS: dict[str, Any] = {"ev": "rows", "rows": {}, "digests": {}}
START: dict[str, Any] = {"ev": "start", "row": 0, "run": 0, "attempt": 1, "at": "2026-01-01T00:00:01.000+00:00"}
SCORE: dict[str, Any] = {**START, "ev": "score", "ms": 1.0, "scores": {}, "errors": {}, "output": {}}
RESCORED: dict[str, Any] = {"ev": "rescored"}
SESSION = [LOADED, ROWS, START]
KILLED = "its process, 4711 on build7, was killed, or its machine failed"


def written(folder: Path, events: Sequence[Event], results: Mapping[str, Any] | None = None) -> RunDirectory:
    directory = RunDirectory(folder)
    directory.journal.write_bytes(b"".join(map(encode, events)))
    if results is not None:
        members = {"schema_version": 1, **results}
        finished_at = members.pop("finished_at", None)
        text = json.dumps({**members, "provenance": {"finished_at": finished_at}, "rows": []}, indent=2)
        directory.results.write_text(text + "\n")
        os.utime(directory.results, (2_000_000_000,) * 2)
    return directory


def results(minute: int, status: str = "finished", by: str | None = None, reason: str | None = None) -> dict[str, Any]:
    stopped = {} if reason is None else {"stop_reason": reason}
    return {"status": status, **stopped, "stopped_by": by, "finished_at": f"2026-01-01T00:{minute:02}:00.000+00:00"}


STOPPED = ended(5, "stopped", "interrupted")


FIRST = [began(0), *SESSION]
INTERRUPTED = results(6, "stopped", "interrupt", "x")
NOBODY: dict[str, tuple[list[dict[str, Any]], dict[str, Any] | None, str, str | None]] = {
    "finished": ([*FIRST, ended(5)], results(6), "finished", None),
    "finished without results": ([*FIRST, ended(5)], None, "finished", None),
    "stopped": ([*FIRST, STOPPED], INTERRUPTED, "stopped", "interrupted"),
    "failed": ([*FIRST, ended(5, "failed", "401")], None, "failed", "401"),
    "killed": (FIRST, None, "failed", KILLED),
    "killed before it began": ([], None, "failed", "its process was killed, or its machine failed"),
    "killed when it was resumed": ([*FIRST, STOPPED, began(7), *SESSION], INTERRUPTED, "failed", KILLED),
    "finished when it was resumed": (
        [*FIRST, STOPPED, began(7), *SESSION, ended(8)], results(6, "stopped"), "finished", None,
    ),
    "killed while it was rescored": ([*FIRST, STOPPED, LOADED, ROWS, SCORE], None, "stopped", "interrupted"),
    "rescored": ([*FIRST, STOPPED, LOADED, SCORE, RESCORED], None, "stopped", "interrupted"),
    "killed, then rescored": (
        [*FIRST, LOADED, SCORE, RESCORED], results(9, "failed", "killed", KILLED), "failed", KILLED,
    ),
    "full disk": (FIRST, results(9, "failed", "journal", "No space"), "failed", "No space"),
}  # fmt: skip
WERE_KILLED = {"killed", "killed before it began", "killed when it was resumed"}


@pytest.mark.parametrize("name", NOBODY)
def test_status_of_an_eval_run_that_nobody_writes(tmp_path: Path, name: str) -> None:
    events, published, status, reason = NOBODY[name]
    life = lifecycle_of(written(tmp_path, events, published))
    assert (life.status, life.reason, life.was_killed) == (status, reason, name in WERE_KILLED)
    assert life.holder is None
    assert life.has_ended


@pytest.mark.parametrize(
    "line",
    [
        encode(ended(5))[:-1],
        *map(with_checksum, (b"{}", b"3}", b'{"ev": 1}', b'{"ev": "ended"}', b"[" * 9999 + b"}", b"\xff}")),
    ],
)
def test_a_last_line_that_is_torn_or_no_event_is_no_end(tmp_path: Path, line: bytes) -> None:
    directory = written(tmp_path, FIRST)
    with directory.journal.open("ab") as journal:
        journal.write(line)
    assert lifecycle_of(directory).was_killed


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"status": 1}', '{"status": "odd"}', "\0"])
def test_results_that_cannot_be_read_say_nothing(tmp_path: Path, text: str) -> None:
    directory = written(tmp_path, FIRST)
    directory.results.write_text(text)
    assert lifecycle_of(directory).was_killed


@pytest.mark.parametrize(("old", "new"), [(b"00:05:00", b"00:09:00"), (b'"ended"', b'"enved"'), (b"null", b"3333")])
def test_a_changed_byte_in_the_end_of_a_session_is_said(tmp_path: Path, old: bytes, new: bytes) -> None:
    directory = written(tmp_path, [*FIRST, ended(5)], results(6))
    directory.journal.write_bytes(directory.journal.read_bytes().replace(old, new))
    life = lifecycle_of(directory)
    assert life == Lifecycle("failed", f"journal.jsonl was damaged; pytest-osmosis show {directory.name} says where")
    assert life.results_are_current, "whoever reads the journal says where"


def test_a_changed_byte_in_the_begin_of_a_killed_session_does_not_make_older_results_its_own(tmp_path: Path) -> None:
    session = [*FIRST, STOPPED, began(7), *SESSION]
    directory = written(tmp_path, session, INTERRUPTED)
    directory.journal.write_bytes(directory.journal.read_bytes().replace(b"00:07:00", b"00:03:00"))
    assert "journal.jsonl was damaged" in (lifecycle_of(directory).reason or "")


@pytest.mark.parametrize(("reason", "by"), [("maxfail", "maxfail"), ("closed", None)])
def test_the_reason_in_a_word_is_that_of_the_stop(tmp_path: Path, reason: str, by: str | None) -> None:
    end = {**STOPPED, "stop": {"reason": reason, "text": "interrupted"}}
    assert lifecycle_of(written(tmp_path, [*FIRST, end])).stopped_by == by
    assert lifecycle_of(written(tmp_path, [*FIRST, STOPPED])).stopped_by is None, "only a part was resumed"


def test_results_that_were_formatted_anew_say_the_same(tmp_path: Path) -> None:
    directory = written(tmp_path, FIRST, results(6, "stopped", "maxfail", "2 failures"))
    before = lifecycle_of(directory)
    directory.results.write_text(json.dumps(json.loads(directory.results.read_text())))
    assert lifecycle_of(directory) == before
    assert before.stopped_by == "maxfail"


@pytest.mark.parametrize(("note", "rows", "status"), [(0, 3000, "stopped"), (3000, 0, "failed")])
def test_only_the_head_of_large_results_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, note: int, rows: int, status: str
) -> None:
    monkeypatch.setattr(lifecycle, "MOST_HEAD_CHARS", 2000)
    directory = written(tmp_path, FIRST, {"note": "x" * note, **results(6, "stopped", "maxfail", "2 failures")})
    whole = {**json.loads(directory.results.read_text()), "rows": ["x" * 100] * (rows // 100)}
    directory.results.write_text(json.dumps(whole, indent=2) + "\n")
    os.utime(directory.results, (2_000_000_000,) * 2)
    assert lifecycle_of(directory).status == status


def test_a_run_is_pending_until_its_session_writes_to_the_journal(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    lock = RunLock.take(directory)
    lives = [lifecycle_of(directory)]
    journal = Journal.create(directory.journal, lock)
    lives.append(lifecycle_of(directory))
    journal.append(encode(began(0)))
    lives.append(lifecycle_of(directory))
    assert [life.holder and life.holder.pid for life in lives] == [os.getpid()] * 3
    journal.close()
    lives.append(lifecycle_of(directory))
    assert [life.status for life in lives] == ["pending", "pending", "running", "failed"]
    assert [life.has_ended for life in lives] == [False, False, False, True]


def test_a_run_that_is_resumed_is_pending_until_its_code_is_loaded(tmp_path: Path) -> None:
    directory = written(tmp_path, [*FIRST, STOPPED], INTERRUPTED)
    with directory.journal.open("ab") as file:
        file.write(b'{"torn')
    journal = Journal.reopen(directory.journal)
    life = lifecycle_of(directory)
    assert (life.status, life.results_are_current) == ("pending", True)
    journal.append(encode(began(7, resumed=True)))
    life = lifecycle_of(directory)
    assert (life.status, life.results_are_current) == ("running", False)
    journal.close()


def test_a_run_keeps_its_status_while_it_is_rescored(tmp_path: Path) -> None:
    directory = written(tmp_path, [*FIRST, STOPPED], INTERRUPTED)
    journal = Journal.reopen(directory.journal, RunLock.take(directory, "scoring"))
    journal.append(encode(LOADED))
    life = lifecycle_of(directory)
    assert (life.status, life.is_being_rescored, life.has_ended) == ("stopped", True, True)
    journal.close()


def test_the_journal_of_a_finished_run_is_not_read_as_a_whole(tmp_path: Path) -> None:
    """A journal of gigabytes, with a hole that takes no room on the disk, is looked at in a few reads."""
    for events in ([ended(5)], [ended(5), LOADED, RESCORED]):
        directory = written(tmp_path, FIRST, results(6))
        with directory.journal.open("r+b") as journal:
            journal.seek(1 << 34)
            journal.write(b"\n" + b"".join(map(encode, events)))
        os.utime(directory.journal, (1_000_000_000,) * 2)
        assert lifecycle_of(directory).status == "finished"
        directory.journal.unlink()


def test_a_submitted_run_that_never_began_refers_to_its_log(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "mine")
    directory.path.mkdir()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    SubmissionNote(Holder.process(process.pid), [], str(tmp_path)).write(directory)
    process.communicate(b"\n")
    now = lifecycle_of(directory)
    assert (now.status, now.was_killed) == ("failed", False)
    assert now.reason == "it ended before its code was loaded; see pytest-osmosis runs logs mine"


@pytest.mark.parametrize(
    ("words", "file"), [([], None), (["a.env"], "a.env"), (["a.env", "-"], None), (["-", "b"], "b")]
)
def test_the_secrets_file_of_a_submitted_run_is_the_last_that_was_named(
    tmp_path: Path, words: list[str], file: str | None
) -> None:
    directory, arguments = RunDirectory(tmp_path), [f"--osmosis-secrets-file={word}" for word in words]
    assert secrets_file_of(directory) is None
    SubmissionNote(Holder.process(1), ["-x", *arguments], str(tmp_path)).write(directory)
    assert secrets_file_of(directory) == (None if file is None else tmp_path / file)


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


def test_hosts_may_have_begun_what_they_were_handed(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    in_flight = InFlight(journal)
    append(journal, of("start", 5), {"ev": "handed_out", "n": 9}, {"ev": "began"}, of("start", 0, attempt=2))
    assert (in_flight.count(), in_flight.most()) == (1, 1), "an earlier session has lost the rest"
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
