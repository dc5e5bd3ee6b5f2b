"""Files of results: written whole or not at all."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from pytest_osmosis.results.publish import keep_earlier, text_of, why_not_writable, write


def test_missing_folders_are_made(tmp_path: Path) -> None:
    path = write(tmp_path / "new" / "folder" / "results.json", text_of({"text": "ü \ud800"}))

    assert json.loads(path.read_text(encoding="ascii")) == {"text": "ü \ud800"}
    assert [file.name for file in path.parent.iterdir()] == ["results.json"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_values_that_are_not_strict_json_leave_the_old_file_alone(tmp_path: Path, value: object) -> None:
    path = write(tmp_path / "results.json", text_of({"old": True}))

    with pytest.raises((ValueError, TypeError)):
        write(path, text_of({"score": value}))

    assert json.loads(path.read_text(encoding="utf-8")) == {"old": True}
    assert list(tmp_path.iterdir()) == [path]


def test_no_scratch_file_is_left_if_the_path_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "results.json"
    folder.mkdir()

    with pytest.raises(OSError, match=r"results\.json"):
        write(folder, text_of({}))

    assert list(tmp_path.iterdir()) == [folder]


def test_a_reader_sees_the_old_file_or_the_whole_new_one(tmp_path: Path) -> None:
    path = write(tmp_path / "results.json", text_of({"version": 0, "rows": ["x" * 100] * 2000}))
    last = 30
    seen: list[int] = []

    def read_until_the_last() -> None:
        while not seen or seen[-1] != last:
            seen.append(json.loads(path.read_text(encoding="utf-8"))["version"])

    reader = threading.Thread(target=read_until_the_last)
    reader.start()
    for version in range(1, last + 1):
        write(path, text_of({"version": version, "rows": ["x" * 100] * 2000}))
    reader.join(timeout=60)

    assert seen[-1] == last
    assert seen == sorted(seen)


def test_the_reason_why_a_file_cannot_be_written_is_found_in_advance(tmp_path: Path) -> None:
    file = write(tmp_path / "file.json", text_of({}))

    assert why_not_writable(tmp_path) == "it is a folder"
    assert why_not_writable(file / "results.json") == f"{file} is not a folder"
    assert why_not_writable(tmp_path / "new" / "results.json") is None
    assert why_not_writable(file) is None


def test_earlier_results_are_kept_under_the_next_free_number(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    for content in ("first", "second", "third"):
        keep_earlier(path)
        path.write_text(content)

    kept = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert kept == {"results.1.json": "first", "results.2.json": "second", "results.json": "third"}
