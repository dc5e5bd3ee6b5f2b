"""Logs to which several processes append, and disks that are full."""

from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path

import pytest

from pytest_osmosis.cassettes.exchange import LOG, ROLLOUT, Asker, Run, header
from pytest_osmosis.cassettes.reader import CassetteReader
from pytest_osmosis.cassettes.writer import ExchangeLog
from pytest_osmosis.errors import CassetteError
from tests.unit.cassettes.recording import conversation

N_LINES = 200


def _append(path: Path, row: int) -> None:
    log = ExchangeLog(path)
    for number in range(N_LINES):
        (line,) = conversation(Run(row, number), "x" * 2000).lines
        log.append(line)
    log.close()


def test_two_processes_append_whole_lines_to_one_log(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "x.jsonl"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_append, args=(path, row)) for row in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert path.read_bytes().startswith(header(LOG))
    with CassetteReader.open([path]) as reader:
        assert len(reader) == 2 * N_LINES
        assert reader.at(Asker(Run(1, 7), ROLLOUT)).n == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_line_that_a_crash_tore_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    first, second = conversation(Run(0, 0), "a"), conversation(Run(1, 0), "b")
    for torn in (b'{"schema_ver', header(LOG) + first.lines[0] + second.lines[0][:50]):
        path.write_bytes(torn)
        log = ExchangeLog(path)
        log.append(second.lines[0])
        log.close()
        assert path.read_bytes().endswith(b"\n" + second.lines[0])
        with CassetteReader.open([path]) as reader:
            assert reader.runs() - {Run(0, 0)} == {Run(1, 0)}


def test_a_log_that_cannot_be_written_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file")
    with pytest.raises(CassetteError, match=r"folder/x\.jsonl: cannot be written: "):
        ExchangeLog(tmp_path / "folder" / "x.jsonl").append(b"{}\n")
