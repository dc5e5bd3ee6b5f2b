"""Values in findings: shortened, and of any kind."""

from __future__ import annotations

import pytest

from pytest_osmosis.addons.lab.calls import quoted


class Silent:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x" * 80, repr("x" * 80)),
        ("\x1b", "'\\x1b'"),
        (Silent(), "<an object whose text raised RuntimeError>"),
    ],
)
def test_a_value_is_written_as_code(value: object, text: str) -> None:
    assert quoted(value) == text


def test_long_text_is_shortened() -> None:
    assert quoted("a" * 2_000_000).startswith("'aaaa")
    assert len(quoted("a" * 2_000_000)) < 200
