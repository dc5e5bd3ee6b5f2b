"""Failures as GitHub's annotations: in the right place, with nothing that could be taken for a command."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.report.github_annotations import SHOWN, Finding, commands

ROOT = Path("/checkout")
FINDING = Finding("x[row3-run1]", "score 0.2 < 0.5", ROOT / "data/x.jsonl", 4)


def test_a_finding_names_its_line_and_its_path_in_the_checkout() -> None:
    assert commands([FINDING], ROOT) == [
        "::error file=data/x.jsonl,line=4,title=x[row3-run1]::score 0.2 < 0.5",
    ]


def test_a_path_outside_of_the_checkout_stays_whole() -> None:
    outside = FINDING._replace(path=Path("/elsewhere/x.jsonl"))

    assert commands([outside], ROOT)[0].startswith("::error file=/elsewhere/x.jsonl,line=4,")
    assert commands([FINDING], None)[0].startswith("::error file=/checkout/data/x.jsonl,")


def test_characters_that_end_a_property_are_escaped() -> None:
    odd = Finding("x[gate pass_rate >= 50%]", "50%: a, b\r\nc", ROOT / "a,b:c.jsonl", 1)

    assert commands([odd], ROOT) == [
        "::error file=a%2Cb%3Ac.jsonl,line=1,title=x[gate pass_rate >= 50%25]::50%25: a, b c"
    ]


@given(st.text())
def test_a_finding_with_any_text_is_one_line_and_one_command(said: str) -> None:
    line = commands([FINDING._replace(message=said)], ROOT)[0]

    assert line.startswith("::error file=data/x.jsonl,line=4,title=x[row3-run1]::")
    assert line.splitlines() == [line]
    assert line.isprintable() or all(
        not char.isspace() or char in " \u3000\xa0" for char in line if not char.isprintable()
    )


def test_errors_beyond_the_number_that_github_shows_are_counted() -> None:
    findings = [FINDING] * (SHOWN + 1200)

    lines = commands(findings, ROOT)

    assert [line.partition(" ")[0] for line in lines] == ["::error"] * SHOWN + ["::notice"]
    assert lines[-1] == "::notice title=osmosis::1,200 more errors are in the log"
    assert len(commands(findings[:SHOWN], ROOT)) == SHOWN
