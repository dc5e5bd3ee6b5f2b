"""Objects of user code in words, and tracebacks of errors that are objects of user code too."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_osmosis.text.user_code import (
    MAX_CHARS,
    MAX_ERROR_CHARS,
    UserValueFault,
    described,
    error_in_words,
    number_of,
    type_name,
    user_traceback,
)
from tests.hostile.hostile_objects import ERRORS, VALUES

MOST_CHARS = 3 * MAX_ERROR_CHARS
HANGING = {"hangingrepr", "strhangs"}
RAISING = {"hostileclass", "hostilefloat", "hostileint", "zero", "zero2", "shaperaises", "getattr"}
"""Objects whose own code raises when they are asked whether they are numbers."""


@pytest.mark.parametrize("name", sorted(VALUES.keys() - HANGING - {"exitrepr", "zero2"}))
def test_every_object_can_be_described(name: str) -> None:
    assert isinstance(type_name(VALUES[name]), str)
    assert len(described(VALUES[name])) <= 80


@pytest.mark.parametrize("name", sorted(VALUES.keys() - HANGING - RAISING - {"exitrepr"}))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_object_is_a_number_or_none(name: str) -> None:
    refused: UserValueFault | None = None
    try:
        assert type(number_of(VALUES[name])) is float
    except UserValueFault as error:
        refused = error
    assert refused is None or len(str(refused)) < 200


@pytest.mark.parametrize("name", sorted(ERRORS.keys() - HANGING - {"strexits", "causes", "grp"}))
def test_every_error_can_be_described(name: str) -> None:
    raises: Any = ERRORS[name]
    with pytest.raises(BaseException) as caught:
        raise raises()
    assert 0 < len(error_in_words(caught.value)) <= MAX_ERROR_CHARS + 100
    assert 0 < len(user_traceback(caught.value)) <= (MOST_CHARS if name == "strgiga" else MAX_CHARS)
