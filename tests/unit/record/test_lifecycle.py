"""The status of an eval run, from its lock (between real processes), journal and results; its runs in flight."""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_osmosis.errors import JournalError
from pytest_osmosis.record import lifecycle
from pytest_osmosis.record.journal import Journal, encode, with_checksum
from pytest_osmosis.record.lifecycle import Ending, InFlight, Lifecycle, Stop, StopReason, ending_of, lifecycle_of
from pytest_osmosis.record.run_directory import Holder, RunDirectory, RunLock, holder_of
from pytest_osmosis.record.run_record import Event
from pytest_osmosis.record.submission import SubmissionNote, secrets_file_of
from pytest_osmosis.text.names import shown
from tests.raised import raised


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
    "finished when resumed": ([*FIRST, STOPPED, began(7), *SESSION, ended(8)], results(6, "stopped"), "finished", None),
    "killed while it was rescored": ([*FIRST, STOPPED, LOADED, ROWS, SCORE], None, "stopped", "interrupted"),
    "rescored": ([*FIRST, STOPPED, LOADED, SCORE, RESCORED], None, "stopped", "interrupted"),
    "killed, rescored": ([*FIRST, LOADED, SCORE, RESCORED], results(9, "failed", "killed", KILLED), "failed", KILLED),
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
    ("file", "text"),
    [
        ("journal", encode(ended(5))[:-1]),
        *(("journal", with_checksum(line)) for line in (b"{}", b"3}", b'{"ev": 1}', b'{"ev": "ended"}', b"\xff}")),
        ("journal", with_checksum(b"[" * 9999 + b"}")),
        *(("results", text) for text in (b"", b"{", b"[1]", b'{"status": 1}', b'{"status": "odd"}', b"\0")),
    ],
)
def test_a_last_line_that_is_no_event_and_unreadable_results_are_no_end(tmp_path: Path, file: str, text: bytes) -> None:
    directory = written(tmp_path, FIRST)
    with getattr(directory, file).open("ab") as damaged:
        damaged.write(text)
    assert lifecycle_of(directory).was_killed


@pytest.mark.parametrize(("old", "new"), [(b"00:05:00", b"00:09:00"), (b'"ended"', b'"enved"'), (b"null", b"3333")])
def test_a_changed_byte_in_the_end_or_begin_of_a_session_is_said(tmp_path: Path, old: bytes, new: bytes) -> None:
    directory = written(tmp_path, [*FIRST, ended(5)], results(6))
    directory.journal.write_bytes(directory.journal.read_bytes().replace(old, new))
    life = lifecycle_of(directory)
    assert life == Lifecycle("failed", f"journal.jsonl was damaged; pytest-osmosis show {directory.name} says where")
    assert life.results_are_current, "whoever reads the journal says where"
    killed = written(tmp_path, [*FIRST, STOPPED, began(7), *SESSION], INTERRUPTED)
    killed.journal.write_bytes(killed.journal.read_bytes().replace(b"00:07:00", b"00:03:00"))
    assert "journal.jsonl was damaged" in (lifecycle_of(killed).reason or ""), "older results do not become its own"


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
def test_only_the_head_of_results_is_read(tmp_path: Path, monkeypatch: Any, note: int, rows: int, status: str) -> None:
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


@pytest.mark.parametrize(
    ("reason", "all_done", "ending"),
    [
        *(("decided", False, "finished"), ("closed", True, "finished"), ("closed", False, "stopped")),
        *(("interrupt", False, "stopped"), ("maxfail", False, "stopped"), ("requested", False, "stopped")),
        *(("max_tokens", False, "stopped"), ("max_cost_usd", False, "stopped"), ("max_duration_s", False, "stopped")),
        *(("systemic", True, "failed"), ("journal", False, "failed"), ("max_errors", False, "failed")),
    ],
)
def test_the_reason_of_a_stop_tells_its_status(reason: StopReason, all_done: bool, ending: Ending) -> None:
    assert ending_of(Stop(reason, "text"), all_done=all_done) == ending
    assert ending_of(None, all_done=all_done) == "finished"


TAKE = """
import sys
from pathlib import Path
from pytest_osmosis.errors import JournalError
from pytest_osmosis.record.run_directory import RunDirectory, RunLock
directory = RunDirectory(Path(sys.argv[1]))
try:
    lock = RunLock.take(directory)
except JournalError as error:
    print("refused:", error, flush=True)
    sys.exit(1)
print("taken", flush=True)
"""
HOLD = f"{TAKE}\nsys.stdin.read()\nlock.close()"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a Python program on the run directory; all are ended after the test."""
    processes = []

    def start(code: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, str(tmp_path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def holder_pid(folder: Path) -> int | None:
    holder = holder_of(RunDirectory(folder))
    return None if holder is None else holder.pid


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def test_one_process_at_a_time_holds_the_lock(tmp_path: Path, start: Start) -> None:
    assert holder_pid(tmp_path) is None
    first = start(HOLD)
    assert line_of(first) == "taken"
    assert holder_pid(tmp_path) == first.pid
    assert re.fullmatch(
        rf"refused: run {re.escape(tmp_path.name)}: process {first.pid} on {re.escape(socket.gethostname())} has been "
        r"writing it since 20..-..-.. ..:.. UTC, and one process at a time may; "
        rf'wait until it ends, or stop it with "pytest-osmosis runs stop {re.escape(tmp_path.name)}"',
        line_of(start(HOLD)),
    )
    first.communicate("")
    assert holder_pid(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    assert line_of(start(HOLD)) == "taken"


@pytest.mark.slow
def test_of_many_that_take_over_at_once_one_succeeds(tmp_path: Path, start: Start) -> None:
    for _ in range(3):
        dead = start(HOLD)
        line_of(dead)
        dead.kill()
        dead.communicate()
        rivals = [start(f"import sys\nsys.stdin.readline()\n{HOLD}") for _ in range(6)]
        for rival in rivals:
            print("go", file=rival.stdin, flush=True)
        said = Counter(line_of(rival).partition(":")[0] for rival in rivals)
        assert said == {"taken": 1, "refused": len(rivals) - 1}
        for rival in rivals:
            rival.communicate("")
        assert list(tmp_path.iterdir()) == []


def test_the_children_that_a_holder_forks_do_not_hold_the_lock(tmp_path: Path, start: Start) -> None:
    forking = f"""{TAKE}
import os, time
closed, close = os.pipe()
child = os.fork()
if not child:
    lock.close()
    os.setsid()
    os.write(close, b".")
    time.sleep(600)
os.read(closed, 1)
print(child, flush=True)
sys.stdin.read()
"""
    parent = start(forking)
    line_of(parent)
    child = int(line_of(parent))
    try:
        assert holder_pid(tmp_path) == parent.pid
        parent.kill()
        parent.wait()
        assert holder_pid(tmp_path) is None
        assert line_of(start(HOLD)) == "taken"
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("content", [b"", b"\n", b"{", b"\xff\n", b'{"pid": "x"}\n', b"[1]\n", b"x" * 10_000])
def test_a_lock_that_names_nobody_is_taken(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    assert holder_pid(tmp_path) is None
    lock = RunLock.take(RunDirectory(tmp_path))
    assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    lock.close()
    lock.close()
    assert not (tmp_path / "lock").exists()


def test_a_lock_is_readable_by_its_owner_only_and_looking_does_not_hold_it(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    for _ in range(50):
        held = RunLock.take(directory)
        assert directory.lock.stat().st_mode & 0o777 == 0o600
        assert holder_pid(tmp_path) == os.getpid()
        held.close()
        assert holder_pid(tmp_path) is None


def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(file: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    directory = RunDirectory(tmp_path / "mine")
    directory.path.mkdir()
    assert str(raised(JournalError, RunLock.take, directory)) == (
        f"run mine: {shown(directory.path)} is on a file system without locks (No locks available), which keep two "
        "processes from writing an eval run at once; keep runs in another folder, with "
        "--osmosis-set output.dir=FOLDER or [output] dir"
    )
    assert holder_of(directory) is None


def test_a_lock_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(JournalError, match="lock: cannot be written: Is a directory"):
        RunLock.take(RunDirectory(tmp_path))
    with pytest.raises(JournalError, match="lock: cannot be written: No such file"):
        RunLock.take(RunDirectory(tmp_path / "missing"))


INHERIT = """
import sys
from pathlib import Path
from pytest_osmosis.record.run_directory import RunDirectory, RunLock
sys.stdin.readline()
RunLock.inherit(int(sys.argv[2]))
print(RunLock.take(RunDirectory(Path(sys.argv[1]))).holder.pid, flush=True)
sys.stdin.read()
"""


def test_a_lock_that_is_handed_down_is_held_until_its_heir_ends(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    lock = RunLock.take(directory)
    command = [sys.executable, "-c", INHERIT, str(tmp_path), str(lock.file)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    heir = subprocess.Popen(command, pass_fds=(lock.file,), **pipes)
    lock.forget()
    assert holder_pid(tmp_path) == os.getpid(), "the heir holds it before it knows"
    directory.stop_request.touch()

    print("go", file=heir.stdin, flush=True)

    assert line_of(heir) == str(heir.pid)
    assert holder_pid(tmp_path) == heir.pid
    assert directory.stop_request.exists(), "the request is for the heir"
    heir.kill()
    heir.communicate()
    assert holder_pid(tmp_path) is None


def test_the_lock_tells_how_long_the_journal_was_and_a_request_to_stop_is_not_for_later_holders(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.journal.write_bytes(b"x" * 40)
    lock = RunLock.take(directory)
    found = [holder_of(directory)]
    lock.note_journal(30)
    found.append(holder_of(directory))
    lock.close()
    assert [holder and holder.journal_bytes for holder in found] == [40, 30]
    assert lock.holder.journal_bytes == 30

    again = RunDirectory(tmp_path)
    again.stop_request.touch()

    RunLock.take(again).close()

    assert not again.stop_request.exists()


def test_a_process_is_alive_until_another_has_its_id_whatever_its_size() -> None:
    own = Holder.process(os.getpid())
    others = (replace(own, started="0"), replace(own, machine="another"), replace(own, pid=None))
    with mmap.mmap(-1, 64 << 20):
        assert [holder.is_alive for holder in (own, *others)] == [True, False, False, False]
