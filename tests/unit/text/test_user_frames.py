"""Frames are told apart by their files; objects and errors of user code in words."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import pytest_osmosis
from pytest_osmosis.text import user_code
from tests.hostile.hostile_objects import ERRORS, VALUES

PACKAGE = Path(pytest_osmosis.__file__).parent


OWN = ("/evals/rewards.py", f"{PACKAGE}-of-mine/agent.py")
OTHERS = (
    *(str(PACKAGE / "host/core.py"), os.__file__, "<frozen importlib._bootstrap>", "<string>"),
    "/evals/.venv/lib/python3.12/site-packages/openai/client.py",
    "/usr/lib/python3/dist-packages/numpy/core.py",
)


def test_only_files_that_the_user_wrote_are_the_users_own() -> None:
    assert [file for file in OWN + OTHERS if user_code.is_users_own(file)] == [*OWN]


def test_our_files_are_recognised_in_tracebacks_and_without_a_frame_nothing_is_user_code() -> None:
    core = PACKAGE / "host/core.py"
    files = {core: True, core.resolve(): True, Path(f"{PACKAGE}-of-mine/agent.py"): False}
    assert user_code.is_ours(str(core))
    assert {file: user_code.names_our_file(f'  File "{file}", line 3 in perform') for file in files} == files
    assert (user_code.runs_user_code(None), user_code.user_stack(None)) == (False, "")


def test_the_standard_library_called_by_user_code_counts_as_user_code() -> None:
    stacks = []

    def default(_: object) -> str:
        frame = sys._getframe(1)  # in json, which was called from here
        assert user_code.is_python(frame.f_code.co_filename)
        assert user_code.runs_user_code(frame)
        stacks.append(user_code.user_stack(frame))
        return ""

    json.JSONEncoder(default=default, indent=1).encode(object())
    assert "test_the_standard_library_called_by_user_code" in stacks[0]


def test_a_cause_within_this_package_has_its_text_and_no_frames() -> None:
    try:
        try:
            user_code.number_of("a")
        except Exception as cause:
            raise ValueError("no score") from cause.with_traceback(
                None if cause.__traceback__ is None else cause.__traceback__.tb_next
            )
    except ValueError as error:
        shown = user_code.user_traceback(error)

    assert shown.startswith("pytest_osmosis.text.user_code.UserValueFault: must return a number, got str")
    assert shown.count("Traceback (most recent call last)") == 1
    assert "user_code.py" not in shown
    assert f'File "{__file__}"' in shown


MOST_CHARS = 3 * user_code.MAX_ERROR_CHARS
HANGING = {"hangingrepr", "strhangs"}
RAISING = {"hostileclass", "hostilefloat", "hostileint", "zero", "zero2", "shaperaises", "getattr"}
"""Objects whose own code raises when they are asked whether they are numbers."""


@pytest.mark.parametrize("name", sorted(VALUES.keys() - HANGING - {"exitrepr", "zero2"}))
def test_every_object_can_be_described(name: str) -> None:
    assert isinstance(user_code.type_name(VALUES[name]), str)
    assert len(user_code.described(VALUES[name])) <= 80


@pytest.mark.parametrize("name", sorted(VALUES.keys() - HANGING - RAISING - {"exitrepr"}))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_object_is_a_number_or_none(name: str) -> None:
    try:
        assert type(user_code.number_of(VALUES[name])) is float
    except user_code.UserValueFault as error:
        assert len(str(error)) < 200  # noqa: PT017


@pytest.mark.parametrize("name", sorted(ERRORS.keys() - HANGING - {"strexits", "causes", "grp"}))
def test_every_error_can_be_described(name: str) -> None:
    raises: Any = ERRORS[name]
    with pytest.raises(BaseException) as caught:
        raise raises()
    assert 0 < len(user_code.error_in_words(caught.value)) <= user_code.MAX_ERROR_CHARS + 100
    assert 0 < len(user_code.user_traceback(caught.value)) <= (MOST_CHARS if name == "strgiga" else user_code.MAX_CHARS)
