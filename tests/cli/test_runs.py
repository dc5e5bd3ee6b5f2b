"""`pytest-osmosis runs`, `runs logs`, and options of other systems, whose error names what to type instead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_osmosis import cli, seams
from pytest_osmosis.cli.logs import SHORTENED, LogTail
from pytest_osmosis.record.run_directory import Holder, RunDirectory
from pytest_osmosis.record.submission import SubmissionNote
from tests.cli.stored_runs import Cli, Stored


def test_an_unknown_command_of_runs_is_a_usage_error(typed: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        typed("runs", "unheard", "sums")
    said = capsys.readouterr().err
    assert "invalid choice: 'unheard'" in said
    assert "list" in said.partition("choose from")[2]


SECRET = "s3cr3t-0123456789"


def test_logs_are_redacted_with_the_secrets_file_of_the_submission(typed: Cli, stored: Stored, tmp_path: Path) -> None:
    directory = RunDirectory(stored("sums-20261122T140157Z-1ef7a3"))
    (tmp_path / "keys.env").write_text(f"MY_KEY={SECRET}\n")
    arguments = ["--osmosis-config=x.toml", "--osmosis-secrets-file=keys.env"]
    SubmissionNote(Holder.process(os.getpid()), arguments, str(tmp_path)).write(directory)
    directory.session_log.write_text(f"pytest says {SECRET}\n")
    directory.host_log.write_text(f"code says {SECRET}\n")
    said = typed("runs", "logs", "sums")
    assert said.splitlines() == [
        "pytest says [MY_KEY]",
        "output of user code that belongs to no run (host.log):",
        "code says [MY_KEY]",
    ]


def test_a_broken_note_of_a_submission_is_no_obstacle(typed: Cli, stored: Stored) -> None:
    directory = RunDirectory(stored("sums-20261122T140157Z-1ef7a3"))
    for note in ("", "[]", '{"process": 1, "arguments": [1], "folder": []}', '{"process": {"pid": "x"}}', "\0"):
        directory.submission.write_text(note)
        assert typed("runs", "logs", "sums") == "pytest has printed nothing yet\n"


def test_lines_come_once_they_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = LogTail(path)
    assert list(tail.new()) == [], "the file does not exist yet"
    path.write_bytes(b"one\ntw")
    assert list(tail.new()) == ["one"]
    path.write_bytes(b"one\ntwo\r\nthree")
    assert list(tail.new()) == ["two"]
    assert list(tail.rest()) == ["three"]
    assert list(tail.rest()) == []


def test_the_last_lines_are_shown_and_nothing_is_repeated_once_secrets_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\nthe key is 0123456789\nand anoth")
    tail = LogTail(path)
    assert tail.last(2) == ["two", "the key is 0123456789"]
    path.write_bytes(b"one\ntwo\nthe key is [KEY]\nand another\n")
    assert list(tail.new()) == ["and another"]


def test_a_log_that_became_shorter_is_followed_from_its_new_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a long line\nanother\nand anoth")
    tail = LogTail(path)
    assert tail.last(None) == ["a long line", "another"]
    path.write_bytes(b"short\n")
    assert list(tail.new()) == [SHORTENED]
    path.write_bytes(b"short\nnew\n")
    assert list(tail.new()) == ["new"]


TAKES = "unrecognized argument; an eval takes"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("submit x.toml --limit 5", f"--limit: {TAKES} --osmosis-limit"),
        ("submit x.toml --limit=5 --other", f"--limit: {TAKES} --osmosis-limit\n--other: unrecognized argument"),
        pytest.param("show --api-key=sk-1", f"--api-key: {TAKES} --osmosis-api-key-env", marks=pytest.mark.addon),
        pytest.param("show --other", "unrecognized arguments: --other", marks=pytest.mark.addon),
    ],
)
def test_an_option_that_a_command_lacks_is_refused_with_its_equivalent(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main(typed.split())

    assert capsys.readouterr().err.partition(": error: ")[2] == f"{said}\n"


@pytest.mark.parametrize(
    ("command", "name"),
    [("show", "show"), ("html -o x.html", "html"), ("runs", "list"), ("runs compare a b", "compare")],
)
def test_a_command_of_an_add_on_that_is_missing_says_what_to_do(
    typed: Cli, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    monkeypatch.setattr(seams, "_has_addons", lambda: False)

    said = typed(*command.split(), fails=1)

    assert said == f"{name}: needs the folder addons/ of pytest_osmosis, which is missing; install it again\n"
