"""Values in findings: shortened, and readable if they repeat themselves."""

from __future__ import annotations

import pytest

from pytest_osmosis.addons.lab.findings import quoted


class Silent:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1" * 5000, "'1' * 5000"),
        ("####" + " a" * 100 + "!", "'####' + ' a' * 100 + '!'"),
        ("ab" * 60 + "a", "'ab' * 60 + 'a'"),
        ("x" * 80, repr("x" * 80)),
        ("\x1b" * 100, "'\\x1b' * 100"),
        (Silent(), "<an object whose text raised RuntimeError>"),
    ],
)
def test_a_value_is_written_as_code(value: object, text: str) -> None:
    assert quoted(value) == text


def test_long_text_with_a_repetition_is_shortened_at_once() -> None:
    text = "a" * 2_000_000 + "bcdefghijk" * 20 + "q"

    assert quoted(text).startswith("'aaaa")
    assert len(quoted(text)) < 200
