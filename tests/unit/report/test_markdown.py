"""Results as Markdown; and styled text, which is plain to whatever reads it: only its own styles become colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_osmosis.report.markdown import MOST_CHANGED, MOST_LISTED, markdown
from pytest_osmosis.report.style import Style, ansi, bad, dim, good, joined, painted
from pytest_osmosis.results.results import Results
from pytest_osmosis.text.redaction import Sanitizer
from pytest_osmosis.verdicts.comparison import Matched, Pair
from pytest_osmosis.verdicts.gates import State, Verdict
from tests.unit.made import A, failed, finished, of_baseline, results_of


def title(results: Results) -> str:
    return markdown(results).splitlines()[0].rpartition(": ")[2]


@pytest.mark.parametrize(
    ("states", "stopped_by", "expected"),
    [
        ((), None, "1 of 2 runs passed"),
        (("holds",), None, "every gate holds"),
        (("holds", "not measured"), None, "not measured"),
        (("fails", "not measured"), None, "a gate fails"),
        (("fails", "fails"), None, "2 gates fail"),
        (("partial",), None, "1 of 2 runs passed"),
        (("holds",), "interrupt", "stopped"),
        (("holds",), "decided", "every gate holds"),
    ],
)
def test_the_title_is_the_worst_verdict_of_the_gates(states: Sequence[State], stopped_by: Any, expected: str) -> None:
    verdicts = [Verdict(f"gate {number}", state, "why") for number, state in enumerate(states)]
    results = results_of([finished({A: 1.0}), finished({A: 0.0}, 1)], stopped=stopped_by)
    assert title(replace(results, verdicts=verdicts, stop_reason=stopped_by)) == expected


def test_the_line_below_the_title_names_model_dataset_and_rows() -> None:
    of_rows = {"dataset": "data/x.jsonl", "selection": "sample 6 of 60, seed 0"}
    whole = results_of([finished({A: 1.0})], n=2, extra=of_rows)
    compared = results_of([finished({A: 1.0})], baseline=[of_baseline(finished({A: 1.0}))])

    lines = [markdown(results).splitlines()[2] for results in (whole, compared)]

    assert lines == [
        "vendor/some-model on data/x.jsonl (rows: sample 6 of 60, seed 0), n = 2",
        "vendor/some-model, baseline other",
    ]


def test_runs_that_did_not_pass_and_rows_that_changed_are_listed_up_to_a_bound() -> None:
    records = [failed("agent", row)._replace(error="KeyError: 'x'") for row in range(MOST_LISTED + 7)]

    lines = markdown(results_of(records)).splitlines()

    assert "<details><summary>57 runs did not pass</summary>" in lines
    assert "| row0-run0 | agent: KeyError: 'x' |" in lines
    assert "| ... | 7 more |" in lines
    assert not any(f"row{MOST_LISTED}-" in line for line in lines)

    n_rows = MOST_CHANGED + 3
    rerun = [finished({A: float(row == 0)}, row) for row in range(n_rows)]
    pairs = [Pair(row, row, [row == 0], [row != 0]) for row in range(n_rows)]

    changed = markdown(results_of(rerun, previous=Matched(pairs))).splitlines()

    assert "<details><summary>Against the last eval run: 1 row better, 1,002 worse</summary>" in changed
    assert "| row | passed then | passed now |" in changed
    assert "| row1 | 1/1 | 0/1 |" in changed
    assert "| ... | 3 more in results.json |  |" in changed


def test_text_of_other_authors_is_escaped() -> None:
    record = failed("agent")._replace(error="a | b\n<script>alert(1)</script> [x](y) @team #1 \x1b[31m")

    text = markdown(results_of([record]))

    said = "a \\| b &lt;script&gt;alert(1)&lt;/script&gt; \\[x\\](y) &#64;team &#35;1 \\\\x1b\\[31m"
    assert f"| row0-run0 | agent: {said} |" in text


SECRET = "sk-a-secret-of-the-session"


def tagged(text: str, style: Style) -> str:
    """Paint for a reader: "<good>text</>"."""
    return f"<{style}>{text}</>"


def test_styled_text_equals_its_plain_text_and_joined_keeps_every_style() -> None:
    line, styles = joined("gate x: ", good("HOLDS"), ": 9 of 10"), joined(joined("a ", bad("b")), " ", "", dim("c"))

    assert line == "gate x: HOLDS: 9 of 10"
    assert line in {"gate x: HOLDS: 9 of 10"}
    assert painted(styles, str, tagged) == "a <bad>b</> <dim>c</>"
    assert painted(joined("a ", bad("b"), " c"), str, ansi) == "a \x1b[31mb\x1b[0m c"
    assert painted("plain", str, tagged) == "plain"
    assert painted(joined("plain", good("")), str, tagged) == "plain"


@pytest.mark.parametrize("hostile", ["\x1b[32mHOLDS\x1b[0m", "\x9b32mHOLDS", "\r\x1b]0;title\x07"])
def test_control_characters_in_a_text_stay_escapes(hostile: str) -> None:
    shown = painted(joined(hostile, bad(hostile)), Sanitizer().shown, tagged)

    clean = Sanitizer().shown(hostile)
    assert shown == f"{clean}<bad>{clean}</>"
    assert shown.isprintable()


def test_a_secret_or_a_command_across_pieces_is_found() -> None:
    sanitizer = Sanitizer({"KEY": SECRET})

    across = painted(joined(SECRET[:9], bad(SECRET[9:])), sanitizer.shown, ansi)
    command = painted(joined("#", bad("#[group]x")), sanitizer.shown, ansi)
    within = painted(joined("key ", bad(SECRET)), sanitizer.shown, tagged)

    assert across == sanitizer.shown(SECRET)
    assert SECRET[9:] not in across
    assert command == sanitizer.shown("##[group]x")
    assert within == f"key <bad>{sanitizer.shown(SECRET)}</>", "it leaves the styles"
