from __future__ import annotations

import os
from pathlib import Path

from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_lock import Holder
from pytest_osmosis.record.submission import SubmissionNote
from tests.cli.stored_runs import Cli, Stored

SECRET = "s3cr3t-0123456789"


def test_the_secrets_file_of_a_submission_is_known_when_its_logs_are_read(
    typed: Cli, stored: Stored, tmp_path: Path
) -> None:
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
