"""The journal on disk: replay, torn and bad lines, files that cannot be written or read; and what rescoring uses."""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_osmosis.datasets import Content
from pytest_osmosis.errors import JournalError
from pytest_osmosis.record import journal as journals
from pytest_osmosis.record.journal import (
    Journal,
    checked,
    encode,
    end_of_lines,
    event_at,
    last_line,
    last_line_with,
    replay,
    replay_with_positions,
    with_checksum,
)
from pytest_osmosis.record.run_directory import RunDirectory, holder_of
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RewardError, RunNotes, RunRecord
from pytest_osmosis.record.stored_rollouts import Resumption, StoredProgress, StoredRollouts, StoredScore
from tests.raised import raised
from tests.unit.record.test_run_record import BEGAN

TEXTS = st.text(st.characters(exclude_categories=())) | st.text()
"""Lone surrogates too: models and user code produce them."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)
FULL = Path("/dev/full")
EVENTS = st.lists(st.dictionaries(TEXTS, JSON, max_size=4).map(lambda event: {**event, "ev": "other"}), max_size=5)
"""Events of a later version."""
OTHERS = [{"ev": "other", "n": n} for n in (1, 2, 3)]
ONE, TWO, THREE = map(encode, OTHERS)


def written(path: Path, *lines: bytes) -> Path:
    journal = Journal.create(path)
    for line in lines:
        journal.append(line)
    journal.close()
    return path


def fault_of(path: Path) -> str:
    return str(raised(JournalError, lambda: list(replay(path))))


@pytest.mark.slow
@given(EVENTS)
def test_appended_events_are_replayed(events: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder, "journal.jsonl"), *map(encode, events))

        assert list(replay(path)) == events


def test_an_event_is_one_line_of_ascii() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        encode({"score": float("nan")})
    members = b'{"text":"a\\n\\u00fc\\ud800"'
    assert encode({"text": "a\nü\ud800"}) == members + b',"crc":"%08x"}\n' % crc32(members)


def test_a_line_can_be_read_while_the_journal_is_open_and_an_event_at_its_position(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "journal.jsonl")
    assert list(replay(journal.path)) == []
    for n, event in enumerate(OTHERS, 1):
        journal.append(encode({**event, "text": "é" * n}))
        assert len(list(replay(journal.path))) == n
    journal.close()
    journal.close()

    positions = [event["position"] for event in replay_with_positions(journal.path)]

    assert [event_at(journal.path, position)["n"] for position in reversed(positions)] == [3, 2, 1]


@pytest.mark.parametrize(
    "torn",
    [
        *(b'{"ev": "other", "n":', b'{"ev": "other", "n":2}', b"\xff", TWO[:-1]),
        *(b"\0" * 100_000, b'{"ev":"start"' + b"\0" * 10, b"\0"),  # a power cut
        b'{"ev": "other", "n": 2, "text": "' + b"x" * 200_000,
    ],
)
def test_a_torn_last_line_is_skipped_and_removed_when_the_journal_goes_on(tmp_path: Path, torn: bytes) -> None:
    path = written(tmp_path / "journal.jsonl", ONE, torn)

    assert list(replay(path)) == OTHERS[:1]
    journal = Journal.reopen(path)
    journal.append(THREE)
    journal.close()
    assert path.read_bytes() == ONE + THREE


ROLLOUT = '{"ev":"rollout","row":0,"run":0,"attempt":1,"ms":1'
SCORE = '{"ev":"score","row":0,"run":0,"attempt":1,"ms":1'
MISSHAPEN = {
    "{}": "lacks ev",
    '{"ev":"start","row":0,"run":0}': "lacks attempt",
    '{"ev":"start","row":-1,"run":0,"attempt":1}': "row: must be an integer of at least 0, got -1",
    f'{{"ev":"start","row":{"9" * 5000},"run":0,"attempt":1}}': "Exceeds the limit",
    '{"ev":"start","row":0,"run":0,"attempt":1,"model_tag":"third"}': "model_tag: cannot be 'third'",
    '{"ev":"start","row":0,"run":0,"attempt":1,"at":"yesterday"}': "at: must be a time in ISO 8601",
    ROLLOUT.replace("1", "1e999") + "}": "1e999 is too large for a float",
    ROLLOUT.replace('"ms":1', '"ms":NaN') + "}": "NaN is not JSON",
    ROLLOUT + ',"usage":{"input_tokens":-5}}': "usage.input_tokens: must be an integer of at least 0, got -5",
    ROLLOUT + ',"messages":"x"}': "messages: must be a list, got 'x'",
    ROLLOUT + ',"boundary":"\\u001b[31m"}': r"boundary: cannot be '\x1b[31m'",
    ROLLOUT + ',"messages":' + "[" * 700 + "]" * 700 + "}": "it is nested deeper than 500",
    SCORE + ',"scores":{"\\ud800":"high"}}': "scores.\\ud800: must be a number, got 'high'",
    SCORE + ',"scores":{},"errors":{},"output":{},"removed":true}': "lacks name",
    '{"ev":"rows","rows":{"x":["a","b"]}}': "rows.x: must be the index of a row, got 'x'",
}
"""Lines of JSON that are no event, and the beginning of what is said about each."""


@pytest.mark.parametrize("line", MISSHAPEN)
def test_an_event_of_another_shape_is_named_with_its_member(tmp_path: Path, line: str) -> None:
    fault = fault_of(written(tmp_path / "journal.jsonl", ONE, with_checksum(line.encode())))

    assert f"journal.jsonl:2: not a journal line: {MISSHAPEN[line]}" in fault
    assert fault.isprintable()
    assert len(fault) < 500


RUN: dict[str, Any] = {"row": 0, "run": 0, "attempt": 1}
MESSAGES = [{"role": "user", "content": "6 * 7?"}, {"role": "assistant", "content": "42"}]
SESSION: list[dict[str, Any]] = [
    {"ev": "loaded", "scorers": ["f"], "digests": {"f": "0"}},
    {"ev": "start", **RUN},
    {"ev": "rollout", **RUN, "ms": 1.5, "messages": MESSAGES, "n_prompt": 1, "environment": {"crc": "00000000"}},
    {"ev": "score", **RUN, "ms": 0.5, "scores": {"f": 0.5}, "errors": {}, "output": {}},
    {"ev": "rescored"},
]
LINES = list(map(encode, SESSION))


@pytest.mark.parametrize("line", LINES)
def test_a_line_with_any_other_byte_is_refused(line: bytes) -> None:
    assert checked(line, "") == line[: line.rindex(b',"crc"')] + b"}"
    content = bytearray(line)
    for position, byte in enumerate(line):
        for bit in range(8):
            content[position] = byte ^ (1 << bit)
            with pytest.raises(JournalError, match=r"^here: not a journal line: it.*; the file was damaged; "):
                checked(bytes(content), "here")
        content[position] = byte


@pytest.mark.parametrize("torn", [b"", encode(SESSION[3])[:-30]])
def test_no_newline_can_be_changed(tmp_path: Path, torn: bytes) -> None:
    """The last line would pass for a torn one, and be lost: its score, or a whole rescoring."""
    path = tmp_path / "journal.jsonl"
    for number in range(len(LINES)):
        for byte in b" \r\0}x":
            lines = [line[:-1] + bytes([byte]) if at == number else line for at, line in enumerate(LINES)]
            path.write_bytes(b"".join(lines) + torn)
            with pytest.raises(JournalError, match=rf"journal\.jsonl:{number + 1}: not a journal line: "):
                list(replay(path))


RESCORED = encode({"ev": "rescored"})
NONE, WRONG, DOUBLE = (
    "it does not end with a checksum (crc)",
    "its checksum (crc) does not match its bytes",
    "it has two checksums (crc)",
)
DELETE = "delete that line to read the others"
RESTORE = "restore it or begin a new eval run, because without that line the others would be read wrongly"
DAMAGED = {
    **{ascii(bad): (bad, NONE) for bad in (b"{\n", b"\n", b"\xff\n", b"3\n", b"\0\0\n")},
    **{ascii(bad): (with_checksum(bad), RESTORE) for bad in (b"\xff}", b"3}", b'{"ev":"other"}}')},
    "none": (b'{"ev":"rescored"}\n', NONE),
    "a blank after it": (RESCORED[:-1] + b" \n", NONE),
    "two lines in one": (RESCORED[:-1] + RESCORED, WRONG),
    "wrong": (RESCORED.replace(b"rescored", b"restored"), WRONG),
    "upper case": (RESCORED.upper(), NONE),
    "two": (with_checksum(RESCORED), DOUBLE),
    "session": (LINES[0][:-9] + b"x" + LINES[0][-8:], RESTORE),
    "a part of a session": (LINES[0][:40] + b"\n" + LINES[0][41:], RESTORE),
    "another kind": (LINES[0].replace(b"loaded", b"lauded"), RESTORE),
    "run": (LINES[2][:-9] + b"x" + LINES[2][-8:], DELETE),
    "a part of a run": (LINES[2][:40] + b"\n" + LINES[2][41:], DELETE),
    "not ours": (b"not ours\n", DELETE),
}


@pytest.mark.parametrize(("line", "said"), DAMAGED.values(), ids=DAMAGED)
def test_an_error_names_a_damaged_line_and_says_what_is_wrong_or_helps(tmp_path: Path, line: bytes, said: str) -> None:
    fault = fault_of(written(tmp_path / "journal.jsonl", LINES[1], line, LINES[1]))
    assert re.search(r"journal\.jsonl:2: not a journal line: .*; the file was damaged; ", fault)
    assert said in re.split("(?:line: |; )", fault)


@given(
    st.recursive(st.none(), lambda inner: st.dictionaries(st.sampled_from(["crc", "ev"]), inner | TEXTS), max_leaves=9)
)
def test_members_of_others_called_crc_are_theirs(value: Any) -> None:
    event = {"ev": "other", "fields": value, "last": {"crc": "00000000"}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "journal.jsonl")
        path.write_bytes(encode(event) + encode(event)[:-1])
        assert list(replay(path)) == [event]


@pytest.mark.slow
def test_a_line_of_a_gigabyte_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = written(tmp_path / "journal.jsonl", ONE)
    with path.open("r+b") as file:
        file.truncate(1 << 30)
    assert list(replay(path)) == OTHERS[:1]
    with path.open("ab") as file:
        file.write(b"\n")

    assert "journal.jsonl:2: not a journal line: it is longer than 134,217,728 bytes" in fault_of(path)


def test_a_journal_that_exists_is_never_overwritten_and_a_missing_one_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "journal.jsonl", ONE)

    with pytest.raises(JournalError, match=r"journal\.jsonl: cannot be written: File exists"):
        Journal.create(path)
    assert list(replay(path)) == OTHERS[:1]
    assert "gone.jsonl: no such file" in fault_of(tmp_path / "gone.jsonl")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is always full")
def test_a_full_disk_is_an_error_that_names_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.create(tmp_path / "journal.jsonl")
    with FULL.open("wb", buffering=0) as full, monkeypatch.context() as patch:
        patch.setattr(journal, "_file", full)
        with pytest.raises(JournalError, match=r"journal\.jsonl: cannot be written: No space left"):
            journal.append(ONE)
    journal.close()


def test_a_journal_has_one_writer_and_one_that_cannot_be_opened_no_lock(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="No such file"):
        Journal.reopen(tmp_path / "journal.jsonl")
    assert list(tmp_path.iterdir()) == []

    journal = Journal.create(tmp_path / "journal.jsonl")

    assert holder_of(RunDirectory(tmp_path)) is not None
    with pytest.raises(JournalError, match=f"process {os.getpid()} on .* has been writing it since"):
        Journal.reopen(journal.path)
    journal.close()
    assert holder_of(RunDirectory(tmp_path)) is None
    Journal.reopen(journal.path).close()


WHOLE = st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=20)
TORN_LINE = st.binary(max_size=20).map(lambda line: line.replace(b"\n", b""))


@pytest.fixture(scope="module")
def small_pieces() -> Iterator[None]:
    """Make lines and the words in them cross the borders of pieces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journals, "PIECE_BYTES", 2)
        patch.setattr(journals, "LARGEST_PIECE_BYTES", 7)
        yield


@pytest.mark.usefixtures("small_pieces")
@given(WHOLE, TORN_LINE)
def test_the_last_whole_line_is_found_before_a_torn_one(lines: list[bytes], torn: bytes) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    file = io.BytesIO(whole + torn)
    assert end_of_lines(file) == len(whole)
    assert last_line(file) == (lines[-1] + b"\n" if lines else b"")


@pytest.mark.usefixtures("small_pieces")
@given(WHOLE, TORN_LINE, st.lists(st.sampled_from([b"began", b"ended", b"other", b"xbegan"]), max_size=8))
def test_the_last_line_with_a_beginning_is_found(lines: list[bytes], torn: bytes, marks: list[bytes]) -> None:
    marked = [mark + line for mark, line in zip(marks, lines, strict=False)] + lines[len(marks) :]
    file = io.BytesIO(b"".join(line + b"\n" for line in marked) + b"began" + torn)
    wanted = [line for line in marked if line.startswith((b"began", b"ended"))]
    assert last_line_with(file, (b"began", b"ended")) == (wanted[-1] + b"\n" if wanted else b"")


def test_of_a_long_line_the_beginning_is_returned() -> None:
    long = b"x" * (journals.MOST_BYTES + 10)
    assert last_line(io.BytesIO(b"first\n" + long + b"\n")) == long[: journals.MOST_BYTES]


F, G = "rewards:f", "rewards:g"


def loaded(**digests: str) -> dict[str, Any]:
    named = {f"rewards:{name}": digest for name, digest in digests.items()}
    return {"ev": "loaded", "scorers": list(named), "digests": named}


def rows(*contents: str) -> dict[str, Any]:
    """Row 0, 1, ...: "prompt whole"."""
    digests = {str(row): f"{row:016x}" for row in range(len(contents))}
    return {"ev": "rows", "rows": {row: contents[int(row)].split() for row in digests}, "digests": digests}


def rollout(row: int = 0, attempt: int = 1, said: str = "hi", **more: Any) -> dict[str, Any]:
    messages = [{"role": "assistant", "content": said}]
    fields = {"attempt": attempt, "ms": 5.0, "messages": messages, "n_prompt": 0}
    return {"ev": "rollout", "row": row, "run": 0, **fields, **more}


def score(name: str, value: float, row: int = 0, attempt: int = 1, **more: Any) -> dict[str, Any]:
    fields = {"attempt": attempt, "ms": 2.0, "scores": {name: value}, "errors": {}, "output": {}}
    return {"ev": "score", "row": row, "run": 0, **fields, **more}


def journal(folder: Path, *events: Mapping[str, Any]) -> Path:
    path = folder / str(len(list(folder.iterdir()))) / "journal.jsonl"
    path.parent.mkdir()
    path.write_bytes(b"".join(map(encode, events)))
    return path


def stored(folder: Path, *events: Mapping[str, Any]) -> StoredRollouts:
    return StoredRollouts(journal(folder, *events))


def test_a_rollout_of_the_last_attempt_is_read_from_its_position_once_it_has_ended(tmp_path: Path) -> None:
    begin = (loaded(f="a"), rows("p w", "q v"), rollout())
    again = {"ev": "start", "row": 0, "run": 0, "attempt": 2}

    found = stored(tmp_path, *begin, rollout(1, said="there"))
    twice = stored(tmp_path, *begin, score(F, 0.5), rollout(attempt=2, said="no"), score(F, 0.5))

    assert found.rollout(RunId(1, 0))["messages"][0]["content"] == "there"
    assert (RunId(0, 0) in found, RunId(2, 0) in found, found.n_rolled) == (True, False, 2)
    assert found.contents == {0: Content("p", "w"), 1: Content("q", "v")}
    assert twice.rollout(RunId(0, 0))["messages"][0]["content"] == "no"
    assert twice.scores(RunId(0, 0), {F: "a"}, "w") == {}
    resumed = stored(tmp_path, *begin, BEGAN, rollout(attempt=2))
    assert [each.records[RunId(0, 0)].repeated for each in (twice, resumed)] == [True, False]
    assert RunId(0, 0) not in stored(tmp_path, *begin, again)
    assert not StoredProgress(journal(tmp_path, *begin, again)).events(RunId(0, 0))


def test_what_a_resumed_session_keeps_and_what_is_left(tmp_path: Path) -> None:
    lost = [rollout(row, error="x", details="", boundary=b) for row, b in ((1, "provider"), (2, "agent"))]
    begun = {"ev": "start", "row": 4, "run": 0, "attempt": 1}
    events = [BEGAN, loaded(f="a"), rows(*["p w"] * 6), rollout(), score(F, 0.5), *lost, rollout(3), begun]
    progress, runs = StoredProgress(journal(tmp_path, *events)), [RunId(row, 0) for row in range(6)]

    def found(resumption: Resumption) -> tuple[list[bool], list[bool]]:
        return [resumption.is_kept(run) for run in runs], [resumption.is_left(run) for run in runs]

    assert found(Resumption(progress)) == (
        [True, False, True, True, False, False],
        [False, True, False, True, True, True],
    )
    kept, _ = found(Resumption(progress, retries_failed=True))
    assert kept == [True, False, False, True, False, False]


def test_a_function_scores_again_what_a_judge_or_a_host_kept_it_from_or_all_that_it_failed(tmp_path: Path) -> None:
    progress = StoredProgress(journal(tmp_path))
    errors = {F: RewardError("401", boundary="provider"), G: RewardError("no")}
    record = RunRecord(RunId(0, 0), scorer_errors=errors)
    assert Resumption(progress).scored_again(record) == {F}
    assert Resumption(progress, retries_failed=True).scored_again(record) == {F, G}
    assert Resumption(progress, retries_failed=True).scored_again(replace(record, boundary="agent")) == set()


@pytest.mark.parametrize("read", [StoredRollouts, StoredProgress])
def test_a_row_counts_as_it_was_when_it_was_first_rolled_out(tmp_path: Path, read: type[StoredRollouts]) -> None:
    sessions = (
        *(BEGAN, loaded(f="a"), rows("p w", "q v"), rollout(), score(F, 1.0)),
        *(loaded(f="a"), rows("p w2", "killed v2")),
        *(BEGAN, loaded(f="a"), rows("p w3", "r v3"), rollout(1), score(F, 1.0, 1)),
        *(loaded(f="a"), rows("p w4", "s v4"), {"ev": "rescored"}),
    )

    assert read(journal(tmp_path, *sessions)).contents == {0: Content("p", "w"), 1: Content("r", "v3")}


def test_a_score_belongs_to_its_row_and_not_to_a_rescoring_that_was_killed_before(tmp_path: Path) -> None:
    found = stored(
        tmp_path,
        *(BEGAN, loaded(f="a"), rows("p w"), rollout()),
        *(loaded(f="a"), rows("p killed")),
        *(BEGAN, loaded(f="a"), score(F, 1.0)),
    )

    assert set(found.scores(RunId(0, 0), {F: "a"}, "w")) == {F}
    assert found.scores(RunId(0, 0), {F: "a"}, "killed") == {}


def test_a_score_is_found_by_its_code_and_its_row_with_its_reason_and_its_judges(tmp_path: Path) -> None:
    decided_later = (loaded(f="b", g="c"), rows("p changed"), score(F, 0.7), score(G, 0.1))
    found = stored(tmp_path, loaded(f="a"), rows("p w"), rollout(), score(F, 0.5), *decided_later)

    assert found.scores(RunId(0, 0), {F: "a"}, "w") == {F: StoredScore(0.5, 2.0)}
    changed = {F: StoredScore(0.7, 2.0), G: StoredScore(0.1, 2.0)}
    assert found.scores(RunId(0, 0), {F: "b", G: "c"}, "changed") == changed
    assert found.scores(RunId(0, 0), {F: "b"}, "w") == {}
    assert found.scores(RunId(0, 0), {F: "c"}, "changed") == {}
    assert found.contents == {0: Content("p", "w")}, "the rows as they were rolled out"

    counts = {"calls": 1, "retries": 0, "uncounted": 0, "usage": {"input_tokens": 9}}
    judge: Any = {"model": "j", "base_url": None, **counts}
    told = score(F, 0.5, reasons={F: "close"}, metrics={F: {"f1": 0.5}}, judges=[judge])
    explained = stored(tmp_path, loaded(f="a"), rows("p w"), rollout(), told)

    notes = RunNotes({F: {"f1": 0.5}}, {F: "close"})
    assert explained.scores(RunId(0, 0), {F: "a"}, "w") == {F: StoredScore(0.5, 2.0, notes, [judge])}


def test_the_removal_of_a_run_is_found_too_and_a_failure_to_score_is_not(tmp_path: Path) -> None:
    removed = {**score(F, 0.0, scores={}, removed=True), "name": F}
    failed = score(F, 0.0, 1, scores={}, errors={F: {"message": "no", "details": ""}})
    found = stored(tmp_path, loaded(f="a"), rows("p w", "q w"), rollout(), rollout(1), removed, failed)

    assert found.scores(RunId(0, 0), {F: "a"}, "w") == {F: StoredScore(None, 2.0)}
    assert found.scores(RunId(1, 0), {F: "a"}, "w") == {}


def test_a_run_without_a_rollout_has_the_reason_of_the_session_that_did_not_make_it(tmp_path: Path) -> None:
    skip = {"ev": "skip", "row": 1, "run": 0}
    found = stored(
        tmp_path,
        *(BEGAN, loaded(f="a"), rows("p w", "q v"), rollout(), {**skip, "reason": "the limit"}),
        *(loaded(f="b"), {**skip, "reason": "no rollout is stored (the limit)"}, {"ev": "rescored"}),
    )

    assert found.records[RunId(1, 0)].skip_reason == "the limit"


def test_a_row_that_is_not_stored_is_an_error_of_its_rollout(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="the rollout of row0-run0 is stored, but not its row"):
        stored(tmp_path, loaded(f="a"), rollout())

    with pytest.raises(JournalError, match="row1-run0 is stored, but not its row"):
        StoredProgress(journal(tmp_path, BEGAN, loaded(f="a"), rows("p w"), rollout(1)))


def test_the_duration_is_that_of_the_sessions_without_the_time_between(tmp_path: Path) -> None:
    days = [f"2026-01-0{day}T00:00:" for day in (1, 2)]
    events = [
        event
        for row, day in enumerate(days)
        for event in ({**BEGAN, "at": f"{day}00+00:00"}, loaded(f="a"), rows("p w", "q v"),
                      {"ev": "start", "row": row, "run": 0, "attempt": 1, "at": f"{day}10+00:00"},
                      rollout(row, at=f"{day}13+00:00"),
                      {"ev": "ended", "at": f"{day}15+00:00", "status": "finished", "reason": None})
    ]  # fmt: skip

    assert stored(tmp_path, *events).took_ms == 30_000


def test_what_a_rescoring_selects_was_not_rolled_out(tmp_path: Path) -> None:
    first, second = ({**loaded(f="a"), "result_facts": {"selected": [[row, 1, 1]]}} for row in (1, 2))
    found = stored(tmp_path, BEGAN, first, rows("p w"), rollout(), second, {"ev": "rescored"}, BEGAN, second)
    assert found.selected == [[1, 1, 1], [2, 1, 1]]
