"""Backends that an entrypoint uses, by its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_osmosis.host.rollout_code import read_anew
from pytest_osmosis.host.workflow_classes import other_backend

HARBOR = "from osmosis_ai.rollout.backend.harbor import HarborBackend"


def found(tmp_path: Path, main: str, helper: str = "") -> tuple[int, str, str] | None:
    (tmp_path / "main.py").write_text(main, encoding="utf-8")
    (tmp_path / "helper.py").write_text(helper, encoding="utf-8")
    read_anew([])
    return other_backend(tmp_path / "main.py", [str(tmp_path)])


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        (f"{HARBOR}\ndef main():\n    backend = HarborBackend(agent=Flow)\nmain()", (3, "HarborBackend")),
        (f"def main():\n    {HARBOR}\n    create_rollout_server(backend=HarborBackend())", (3, "HarborBackend")),
        (f"{HARBOR} as HB\nbackend = HB()", (2, "HB")),
        ("import osmosis_ai.rollout.backend.harbor as h\ndef main(): serve(h.HarborBackend())", (2, "HarborBackend")),
        ("from osmosis_ai.rollout.backend.harbor import *\nHarborBackend()", (2, "HarborBackend")),
        (f"{HARBOR}\nmake = partial(HarborBackend, agent=Flow)", (2, "HarborBackend")),
        (f"{HARBOR}\nclass Mine(HarborBackend): pass\nclass Other(Mine): pass\nOther()", (4, "Other")),
        (
            f"try:\n    {HARBOR}\n    b = HarborBackend()\nexcept ImportError:\n    b = LocalBackend()",
            (3, "HarborBackend"),
        ),
        (f"{HARBOR}\ntext = {' + '.join(['1'] * 2000)}\nHarborBackend()", (3, "HarborBackend")),
    ],
)
def test_each_use_of_the_backend_with_containers_is_found(tmp_path: Path, main: str, expected: tuple[int, str]) -> None:
    assert found(tmp_path, main) == (*expected, "HarborBackend")


@pytest.mark.parametrize(
    ("main", "helper", "name"),
    [
        ("from helper import make\nmake()", f"{HARBOR}\ndef make():\n    return HarborBackend()", "make"),
        ("import helper\nhelper.make()", f"{HARBOR}\ndef make():\n    return HarborBackend()", "make"),
        ("from helper import backend as b\nserve(b)", f"{HARBOR}\nif True:\n    backend = HarborBackend()", "b"),
        ("from helper import Mine\nMine()", f"{HARBOR}\nclass Mine(HarborBackend): pass", "Mine"),
        ("from helper import b\nb()", f"{HARBOR}\ndef a(): return HarborBackend()\ndef b(): return a()", "b"),
    ],
)
def test_it_is_found_behind_a_module_of_the_users(tmp_path: Path, main: str, helper: str, name: str) -> None:
    assert found(tmp_path, main, helper) == (2, name, "HarborBackend")


OWN = """from osmosis_ai.rollout import ExecutionBackend as Base
class Remote(Base):
    async def execute(self, request): ...
"""


def test_a_backend_of_the_users_own_is_found_under_its_name(tmp_path: Path) -> None:
    assert found(tmp_path, f"{OWN}def main(): serve(Remote())") == (4, "Remote", "Remote")


@pytest.mark.parametrize(
    ("main", "helper"),
    [
        ("from osmosis_ai.rollout import LocalBackend\ndef main(): LocalBackend(workflow=Flow)", ""),
        (f"{HARBOR}\nbackend: HarborBackend | None = None\ndef f(b: HarborBackend) -> HarborBackend: ...", ""),
        (f"{HARBOR}\ndef f(b):\n    return isinstance(b, HarborBackend)", ""),
        (OWN, ""),
        ("from helper import local\ndef main(): local()", f"{HARBOR}\ndef other(): HarborBackend()\ndef local(): ..."),
        ("from helper import a\ndef main(): ...\nmain()", f"{HARBOR}\na = 1\ndef main(): HarborBackend()"),
        ("from osmosis_ai.rollout import ExecutionBackend\nB = TypeVar('B', bound=ExecutionBackend)\nB()", ""),
        ("HarborBackend(", ""),
    ],
)
def test_what_builds_none_is_not_taken_for_one(tmp_path: Path, main: str, helper: str) -> None:
    assert found(tmp_path, main, helper) is None
