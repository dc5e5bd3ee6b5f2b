"""The table of cases is well-formed, texts are masked, and planted changes are found in the package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpus import normalise, planted, recording
from tests.corpus.cases import CASES
from tests.corpus.planted import PLANTED, REPOSITORY, Planted

LONGEST = 120


def test_each_case_has_a_file_of_its_own_and_says_what_it_is() -> None:
    assert len({recording.slug(name) for name in CASES}) == len(CASES)
    assert [name for name in CASES if len(name) > LONGEST or not CASES[name].description] == []


def test_a_journal_is_shown_run_by_run_without_moments_and_checksums() -> None:
    began = {"ev": "began", "at": "2026-11-27T00:38:44.320+00:00", "pid": 1860, "crc": "769c5e04"}
    starts = [{"ev": "start", "row": row, "run": 0, "at": "2026-11-27T00:38:44.3+00:00"} for row in (1, 0)]
    events = [began, starts[0], {"ev": "handed_out", "n": 16}, starts[1]]

    shown = normalise.journal("\n".join(map(json.dumps, events)).encode() + b"\n{torn")

    assert shown == [
        '{"at": "TIME", "ev": "began", "pid": "TIME"}',
        "no event: b'{torn'",
        '{"at": "TIME", "ev": "start", "row": 0, "run": 0}',
        '{"at": "TIME", "ev": "start", "row": 1, "run": 0}',
    ]


def test_the_events_of_a_baseline_are_shown_after_those_of_the_run_itself() -> None:
    """Which of the two models answers first is a matter of time."""
    own: list[dict[str, object]] = [{"ev": "start", "row": 0, "run": 0}, {"ev": "rollout", "row": 0, "run": 0}]
    other = [{**event, "model_tag": "baseline"} for event in own]
    orders = ([own[0], other[0], *own[1:], other[1]], [*other, *own])

    shown = [normalise.journal("\n".join(map(json.dumps, order)).encode()) for order in orders]

    assert shown[0] == shown[1]
    assert ["baseline" in line for line in shown[0]] == [False, False, True, True]


VARYING = {
    "process {} on vm": ("12268", "29330"),
    "process, {} on vm": ("12268", "29330"),
    '"started": "{}"': ("5260748", "5988224"),
    '"token": "{}"': ("100e98a62abd6ff5", "00e98a62abd6ff51"),
    '"place": "{} pid:[4026531836]"': ("70454793-cf88", "8a454793-cf88"),
    "llm_latency_ms  {}  2.439  3": ("2.487", "1.316"),
    "num_llm_calls 1, llm_latency_ms {}, num_tool_calls 0": ("3.12724", "2.5"),
    '      "duration_ms": {},': ("2.036", "20"),
    '      "duration_s": {},': ("0.740872", "0.495557"),
    "TIME {}": ("setup  x.toml::x[row3-run0]", "call  x.toml::x[row2-run0]"),
}
STEADY = ("process 3", '"started": true', '"started": "now"', '"total": 12', "num_llm_calls 1", "5 of 6 runs in TIME")


def test_what_is_not_the_same_twice_is_masked_and_all_else_is_shown() -> None:
    for line, values in VARYING.items():
        lines = {line.format(value) for value in values}
        masked = {normalise.masked_text(each) for each in lines}
        assert (len(masked), masked & lines) == (1, set()), line
    assert [normalise.masked_text(text) for text in STEADY] == [*STEADY]


def test_salted_digests_and_moments_in_files_are_masked(tmp_path: Path) -> None:
    manifest = {"inputs": {"env": {"A": "0f5c"}, "model.headers": {"X": "c9ff"}}, "latency_ms": {"mean": 2.5}, "n": 1}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/x.jsonl").write_text('{"kind": "exchanges"}\n{"call": "8a5edb53", "turn": 1}\n')

    shown = "\n".join(normalise.content(tmp_path / "manifest.json"))

    assert not any(varying in shown for varying in ("0f5c", "c9ff", "2.5"))
    assert '"n": 1' in shown
    assert normalise.content(tmp_path / "cache/x.jsonl") == ['{"call": "TIME", "turn": 1}', '{"kind": "exchanges"}']


def test_only_the_beginning_of_a_long_text_is_kept_and_any_change_of_it_is_seen() -> None:
    lines = [str(number) for number in range(normalise.MOST_LINES + 1)]

    assert normalise.shortened(lines)[:2] == ["0", "1"]
    assert normalise.shortened(lines) != normalise.shortened([*lines[:-1], "x"])


def test_a_difference_names_its_command(tmp_path: Path) -> None:
    for folder, status in (("before", 0), ("after", 1)):
        (tmp_path / folder / "plain").mkdir(parents=True)
        (tmp_path / folder / "plain/x.txt").write_text(f"$ pytest x\nexit status 0\n$ pytest y\nexit status {status}\n")

    shown = recording.compare(tmp_path / "before", tmp_path / "after", [], ["plain"])

    assert shown[2].endswith(" $ pytest y")
    assert shown[-2:] == ["-exit status 0", "+exit status 1"]


@pytest.mark.parametrize("change", PLANTED, ids=lambda change: change.what)
def test_each_planted_change_fits_the_package(change: Planted) -> None:
    assert (REPOSITORY / "pytest_osmosis" / change.file).read_text(encoding="utf-8").count(change.old) == 1
    assert any(change.case in name for name in CASES)


@pytest.mark.nightly
def test_the_corpus_notices_each_planted_change(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.corpus", "check", str(tmp_path / "check")]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
    assert f"{len(planted.PLANTED)} of {len(planted.PLANTED)} changes noticed" in done.stdout
