"""Entrypoints that build a backend which runs the workflow elsewhere: their source tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_osmosis.addons.osmosis_sdk.workflows import other_backend
from pytest_osmosis.host.rollout_code import read_anew

HARBOR = "from osmosis_ai.rollout.backend.harbor import HarborBackend"
OWN = """from osmosis_ai.rollout import ExecutionBackend as Base
class Remote(Base):
    async def execute(self, request): ...
"""
MAKES = f"{HARBOR}\ndef make():\n    return HarborBackend()"


def found(tmp_path: Path, main: str, helper: str = "") -> str | None:
    (tmp_path / "main.py").write_text(main, encoding="utf-8")
    (tmp_path / "helper.py").write_text(helper, encoding="utf-8")
    read_anew([])
    return other_backend(tmp_path / "main.py", [str(tmp_path)])


@pytest.mark.parametrize(
    ("main", "line"),
    [
        (f"{HARBOR}\ndef main():\n    backend = HarborBackend(agent=Flow)\nmain()", 3),
        (f"def main():\n    {HARBOR}\n    create_rollout_server(backend=HarborBackend())", 3),
        (f"{HARBOR} as HB\nbackend = HB()", 2),
        ("import osmosis_ai.rollout.backend.harbor as h\ndef main(): serve(h.HarborBackend())", 2),
        ("from osmosis_ai.rollout.backend.harbor import *\nHarborBackend()", 2),
        (f"{HARBOR}\nmake = partial(HarborBackend, agent=Flow)", 2),
        (f"{HARBOR}\nclass Mine(HarborBackend): pass\ndef main(): Mine()", 2),
        (f"try:\n    {HARBOR}\n    b = HarborBackend()\nexcept ImportError:\n    b = LocalBackend()", 3),
        (f"{HARBOR}\ntext = {' + '.join(['1'] * 2000)}\nHarborBackend()", 3),
    ],
)
def test_each_use_of_the_backend_with_containers_is_found(tmp_path: Path, main: str, line: int) -> None:
    expected = f"{tmp_path / 'main.py'}: line {line} uses HarborBackend, which runs the workflow in a container"
    assert (found(tmp_path, main) or "").startswith(expected)


@pytest.mark.parametrize("main", ["from helper import make\nmake()", "import helper\nhelper.make()"])
def test_it_is_found_in_a_module_of_the_users(tmp_path: Path, main: str) -> None:
    assert (found(tmp_path, main, MAKES) or "").startswith(f"{tmp_path / 'helper.py'}: line 3 uses HarborBackend")


def test_a_backend_of_the_users_own_is_found_under_its_name(tmp_path: Path) -> None:
    text = found(tmp_path, f"{OWN}def main(): serve(Remote())") or ""
    assert "line 2 uses Remote, which runs the workflow in a way of its own" in text


@pytest.mark.parametrize(
    ("main", "helper"),
    [
        ("from osmosis_ai.rollout import LocalBackend\ndef main(): LocalBackend(workflow=Flow)", MAKES),
        (f"{HARBOR}\nbackend: HarborBackend | None = None\ndef f(b: HarborBackend) -> HarborBackend: ...", ""),
        (f"{HARBOR}\ndef f(b):\n    return isinstance(b, HarborBackend)", ""),
        ("from osmosis_ai.rollout import ExecutionBackend\nB = TypeVar('B', bound=ExecutionBackend)\nB()", ""),
        ("# HarborBackend is not used\n'HarborBackend'", ""),
        ("HarborBackend(", ""),
    ],
)
def test_what_builds_none_is_not_taken_for_one(tmp_path: Path, main: str, helper: str) -> None:
    assert found(tmp_path, main, helper) is None
