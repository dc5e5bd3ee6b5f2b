"""Cases have files of their own, no mask hides too much, and planted changes are found in the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpus.cases import CASES
from tests.corpus.place import masked_text
from tests.corpus.planted import PLANTED, REPOSITORY, Planted
from tests.corpus.recording import slug


def test_each_case_has_a_file_of_its_own() -> None:
    assert len({slug(name) for name in CASES}) == len(CASES)
    assert [name for name in CASES if len(name) > 120] == []


STEADY = ("process 3", '"started": true', '"started": "now"', '"total": 12', "num_llm_calls 1", "5 of 6 runs in TIME")


def test_what_is_the_same_twice_is_shown() -> None:
    assert [masked_text(text) for text in STEADY] == [*STEADY]


@pytest.mark.parametrize("change", PLANTED, ids=lambda change: change.what)
def test_each_planted_change_fits_the_package(change: Planted) -> None:
    assert (REPOSITORY / "pytest_osmosis" / change.file).read_text(encoding="utf-8").count(change.old) == 1
    assert any(change.case in name for name in CASES)


@pytest.mark.nightly
def test_the_corpus_notices_each_planted_change(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.corpus", "check", str(tmp_path / "check")]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
    assert f"{len(PLANTED)} of {len(PLANTED)} changes noticed" in done.stdout
