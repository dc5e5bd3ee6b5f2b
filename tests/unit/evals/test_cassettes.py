"""The cassette of an eval: which file, with what checks, and what becomes of it at the end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_osmosis.cassettes.reader import check_cassette
from pytest_osmosis.config.tables import CassetteTable, EvalConfig, Experiment
from pytest_osmosis.errors import CassetteError
from pytest_osmosis.evals.cassettes import (
    EvalCassette,
    FinishedCassette,
    check_replay,
    eval_cassette,
    finish_cassette,
    is_cassette,
    missing_text,
    unasked_text,
)
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import Boundary, StoredUse
from tests.raised import problems_of
from tests.unit.cassettes.recording import conversation, lines_of, write_log
from tests.unit.made import A, failed, finished, pending


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def config(tmp_path: Path) -> EvalConfig:
    return EvalConfig(tmp_path / "configs/eval/x.toml", "x-tests", tmp_path, Experiment(model_path="m"))


PASSED = [finished({A: 1.0}, row) for row in range(10)]


def recorded(directory: RunDirectory, *runs: RunId, text: str = "42") -> None:
    directory.exchanges.unlink(missing_ok=True)
    write_log(directory.exchanges, *(conversation(run, text) for run in runs))


def test_each_eval_has_a_cassette_named_after_its_file(config: EvalConfig) -> None:
    table = CassetteTable(record="new")

    def found(**changes: Any) -> EvalCassette | None:
        return eval_cassette(replace(config, **changes), replay=False, reads=True)

    assert found() is None
    assert found(cassette=table) == EvalCassette("new", Path("cassettes/x.jsonl").resolve())
    assert found(cassette=table, entry="gsm8k") == EvalCassette("new", Path("cassettes/x.gsm8k.jsonl").resolve())
    mine = CassetteTable("mine.jsonl", "all")
    assert found(cassette=mine) == EvalCassette("record", Path("mine.jsonl").resolve())
    assert eval_cassette(config, replay=True, reads=False) is not None, "evals are only listed"
    with pytest.raises(CassetteError, match=r"cassette cassettes/x\.jsonl: .*--osmosis-record"):
        eval_cassette(config, replay=True, reads=True)


@pytest.mark.parametrize("record", ["all", "new"])
def test_a_broken_cassette_is_refused_before_anything_is_recorded(config: EvalConfig, record: Any) -> None:
    Path("cassettes").mkdir()
    Path("cassettes/x.jsonl").write_text('{"schema_version":1,"kind":"cassette"}\n{"row":')

    with pytest.raises(CassetteError, match=r"^cassettes/x\.jsonl:2: "):
        eval_cassette(replace(config, cassette=CassetteTable(record=record)), replay=False, reads=True)


def test_rollouts_that_an_outage_broke_or_that_an_earlier_session_made_keep_what_there_was(tmp_path: Path) -> None:
    boundaries: Sequence[Boundary] = ("model", "agent", "provider", "host", "timeout")
    directory = RunDirectory(tmp_path / "run")
    cassette = EvalCassette("record", tmp_path / "x.jsonl")
    recorded(directory, *(RunId(row, 0) for row in [*range(7), 8]), text="then")
    assert finish_cassette(cassette, directory, [*PASSED[:7], PASSED[8]]).unrecorded == {}

    recorded(directory, *(RunId(row, 0) for row in range(7)), text="now")
    broken = [failed(boundary, row) for row, boundary in enumerate(boundaries, 1)]
    unended = [replace(pending(6), started=True), pending(7)]
    made = finish_cassette(cassette, directory, [PASSED[0], *broken, *unended, PASSED[8]])

    texts = {line["row"]: line["reply"]["message"]["content"] for line in lines_of(cassette.path)}
    assert texts == {row: "now" if row < 3 else "then" for row in [*range(7), 8]}
    assert made.unrecorded == {"provider": 1, "host": 1, "timeout": 1, "not ended": 1}
    assert made.digest is not None
    assert is_cassette(cassette.path)
    assert not is_cassette(directory.exchanges)


def test_nothing_is_written_if_nothing_was_rolled_out_or_recorded(tmp_path: Path) -> None:
    directory, path = RunDirectory(tmp_path / "run"), tmp_path / "x.jsonl"
    records = [pending(0), failed("provider", 1)]

    assert finish_cassette(EvalCassette("record", path), directory, records).unrecorded == {"provider": 1}
    replayed = EvalCassette("replay", path, digest="d")
    assert finish_cassette(replayed, directory, [finished({A: 1.0})]) == FinishedCassette("d")
    assert not path.exists()


def test_a_folder_in_the_place_of_the_cassette_is_told_with_the_place_of_the_exchanges() -> None:
    directory = RunDirectory(Path("run"))
    recorded(directory, RunId(0, 0))
    Path("x.jsonl").mkdir()

    made = finish_cassette(EvalCassette("record", Path("x.jsonl")), directory, [finished({A: 1.0})])

    failure = r"the cassette was not written: x\.jsonl: .*; its exchanges are in run/exchanges\.jsonl"
    assert re.fullmatch(failure, made.failure or "")


def test_answers_for_which_no_rollout_asked_are_counted() -> None:
    cassette = EvalCassette("replay", Path("x.jsonl"), {RunId(row, 0): 2 for row in range(5)})
    asked = [replace(finished({A: 1.0}, row), stored=StoredUse(2, None)) for row in (0, 1)]
    less = [replace(finished({A: 1.0}, 2), stored=StoredUse(1, None)), finished({A: 1.0}, 3)]
    broken = failed("agent", 4)

    assert unasked_text(cassette, [*asked, broken, pending(9)]) is None
    assert unasked_text(cassette, [*asked, *less, broken]) == (
        "3 of 8 recorded answers were not asked for: row2-run0, row3-run0 asked less than recorded"
    )
    assert unasked_text(replace(cassette, mode="new"), less) is None


def test_a_replay_that_lacks_too_many_runs_is_refused_with_their_names() -> None:
    directory, path = RunDirectory(Path("run")), Path("x.jsonl")
    recorded(directory, *(RunId(row, 0) for row in range(8)))
    finish_cassette(EvalCassette("record", path), directory, PASSED[:8])
    cassette = EvalCassette("replay", path, check_cassette(path))
    runs = [RunId(row, 0) for row in range(10)]

    check_replay(cassette, runs, 2)
    assert missing_text(cassette, runs) == "2 of 10 runs are not in x.jsonl: row8-run0, row9-run0"
    assert missing_text(cassette, runs[:8]) is None
    assert problems_of(CassetteError, check_replay, cassette, runs, 1) == [
        "--osmosis-replay: 2 of 10 runs are not in x.jsonl: row8-run0, row9-run0; "
        "record them (--osmosis-record=new), or select others (-k, --osmosis-limit)"
    ]
    with pytest.raises(CassetteError, match="1 of 1 run is not in"):
        check_replay(cassette, runs[9:], 5)
